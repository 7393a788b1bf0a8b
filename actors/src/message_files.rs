//! Images and files of messages: stored as artifacts without a name, and loaded for model calls.
//!
//! Such an artifact has one version, so its bytes never change. A file that is new must first fit
//! the model that receives it: images are scaled down, other files are rejected if they are too
//! large.
//!
//! Elsewhere: the parts (`soong_protocol::ContentPart`), and how a provider sends them
//! (`soong_model`).

mod image;

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::BoxStream};
use soong_protocol::{
    ArtifactId, ArtifactSource, ContentPart, ErrorCode, ErrorInfo, InlineFile, InputKind, Message,
    MessageContent, ModelConfig, PartFile, Provenance, media_type,
};
use soong_text::{shorten, strip_invisible};
use soong_tool::artifact::{ArtifactOwner, ArtifactService, Save};

use crate::artifact::ArtifactHandle;

/// Maximum length of a file name, in characters.
const MAX_NAME_CHARS: usize = 120;
/// Number of bytes at the beginning and at the end of a PDF document in which readers look for its
/// markers.
const PDF_MARKER_RANGE: usize = 2_048;
/// Factor by which an image may exceed the limit in bytes. Larger ones are not scaled but rejected.
const MAX_IMAGE_EXCESS: u64 = 8;

/// Kinds and sizes of the images and files that a model takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InputLimits {
    /// Name of the model, for errors.
    pub(crate) model: String,
    pub(crate) kinds: Arc<[InputKind]>,
    /// Maximum size of an image, in bytes.
    pub(crate) image_bytes: u64,
    /// Maximum width and height of an image, in pixels.
    pub(crate) image_side: u32,
    /// Maximum size of another file, in bytes.
    pub(crate) file_bytes: u64,
}

impl InputLimits {
    pub(crate) fn of(model: &str, config: &ModelConfig, kinds: &[InputKind]) -> Self {
        Self {
            model: model.to_owned(),
            kinds: kinds.into(),
            image_bytes: config.max_image_bytes,
            image_side: config.max_image_side,
            file_bytes: config.max_file_bytes,
        }
    }

    /// Fails with `unsupported_capability` if the model does not take a file of the content. Stored
    /// files whose content type is not given are not checked.
    pub(crate) fn check_content(&self, content: &MessageContent) -> Result<(), ErrorInfo> {
        content.parts().iter().try_for_each(|part| match part {
            ContentPart::Inline(InlineFile { content_type, .. })
            | ContentPart::Image(PartFile { content_type, .. })
            | ContentPart::File(PartFile { content_type, .. })
                if !content_type.is_empty() =>
            {
                self.check_kind(content_type)
            }
            _ => Ok(()),
        })
    }

    /// Fails with `unsupported_capability` if the model does not take files of this content type.
    fn check_kind(&self, content_type: &str) -> Result<(), ErrorInfo> {
        let kind = InputKind::of_content_type(content_type);
        if kind.is_some_and(|kind| self.kinds.contains(&kind)) {
            return Ok(());
        }
        let what = kind.map_or_else(
            || format!("files of type {content_type}"),
            |kind| format!("input of type {kind}"),
        );
        let known: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
        let message = format!(
            "model {:?} does not take {what}, only {}: remove it, choose another model, or, if the model takes it, add it \
             to model.input",
            self.model,
            known.join(", ")
        );
        Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
    }

    /// Fails with `payload_too_large` if a file is too large to be read. Images may be larger than
    /// their limit, because they are scaled down.
    fn check_readable(&self, label: &str, content_type: &str, size: u64) -> Result<(), ErrorInfo> {
        match InputKind::of_content_type(content_type) {
            Some(InputKind::Image) => check_size(
                label,
                size,
                self.image_bytes.saturating_mul(MAX_IMAGE_EXCESS),
                "model.max_image_bytes",
            ),
            _ => check_size(label, size, self.file_bytes, "model.max_file_bytes"),
        }
    }
}

/// Content whose files fit a model. They are not stored yet.
pub(crate) struct FittedContent(Vec<FittedPart>);

enum FittedPart {
    /// A text, or a file that is stored.
    Ready(ContentPart),
    New(Fitted),
}

/// A file that fits the limits.
struct Fitted {
    file: InlineFile,
    /// Width and height of an image.
    pixels: Option<(u32, u32)>,
    /// Width and height of an image before it was scaled.
    scaled_from: Option<(u32, u32)>,
}

/// Stores and loads the images and files of messages of a session.
pub(crate) struct MessageFiles<'a> {
    pub(crate) artifacts: &'a ArtifactHandle,
    pub(crate) owner: ArtifactOwner,
}

impl MessageFiles<'_> {
    /// Makes the files of a content fit the limits. Stores nothing. The kinds of files whose
    /// content type is given must have been checked.
    pub(crate) async fn fit(
        &self,
        content: MessageContent,
        limits: &InputLimits,
    ) -> Result<FittedContent, ErrorInfo> {
        let mut fitted = Vec::new();
        if content.parts().is_empty() {
            return Ok(FittedContent(vec![FittedPart::Ready(ContentPart::text(
                content.into_text(),
            ))]));
        }
        for part in content.into_parts() {
            fitted.push(match part {
                ContentPart::Inline(file) => FittedPart::New(fit(file, limits).await?),
                ContentPart::Image(file) | ContentPart::File(file) => {
                    self.fit_stored(file, limits).await?
                }
                text @ ContentPart::Text { .. } => FittedPart::Ready(text),
            });
        }
        Ok(FittedContent(fitted))
    }

    /// Returns the part of an artifact of the session. An artifact with a name may change, so its
    /// current version is copied.
    async fn fit_stored(
        &self,
        file: PartFile,
        limits: &InputLimits,
    ) -> Result<FittedPart, ErrorInfo> {
        let loaded = self
            .artifacts
            .reader()
            .find(&self.owner, file.artifact_id.as_str(), None)
            .await?;
        limits.check_kind(&loaded.content_type)?;
        limits.check_readable(loaded.artifact.label(), &loaded.content_type, loaded.size)?;
        let artifact = loaded.artifact;
        let content_type = loaded.content_type;
        let filename = file.filename.or_else(|| Some(artifact.filename.clone()));
        let bytes = read_all(loaded.body).await?.into();
        let fitted = fit(
            InlineFile {
                content_type,
                filename,
                bytes,
            },
            limits,
        )
        .await?;
        Ok(if artifact.name.is_some() || fitted.scaled_from.is_some() {
            FittedPart::New(fitted)
        } else {
            FittedPart::Ready(fitted.part(artifact.artifact_id))
        })
    }

    /// Stores the files of a content, and returns it. The ids of the new artifacts are added to
    /// `stored`.
    pub(crate) async fn save(
        &self,
        content: FittedContent,
        source: ArtifactSource,
        provenance: &Provenance,
        stored: &mut Vec<ArtifactId>,
    ) -> Result<MessageContent, ErrorInfo> {
        let mut parts = Vec::with_capacity(content.0.len());
        for part in content.0 {
            parts.push(match part {
                FittedPart::Ready(part) => part,
                FittedPart::New(fitted) => {
                    let InlineFile {
                        content_type,
                        filename,
                        bytes,
                    } = &fitted.file;
                    let save = Save {
                        key: None,
                        title: filename
                            .clone()
                            .unwrap_or_else(|| "file of a message".to_owned()),
                        source,
                        provenance: provenance.clone(),
                        ..Save::new("", content_type.as_str(), Bytes::copy_from_slice(bytes))
                    };
                    let artifact = self.artifacts.save(&self.owner, save).await?;
                    stored.push(artifact.artifact_id.clone());
                    fitted.part(artifact.artifact_id)
                }
            });
        }
        Ok(MessageContent::from_parts(parts))
    }

    /// Deletes artifacts of a request that was rejected after they were stored. A failure leaves
    /// them to the deletion of the session.
    pub(crate) async fn discard(&self, stored: &[ArtifactId]) {
        for id in stored {
            if let Err(error) = self.artifacts.delete(&self.owner, id.as_str()).await {
                tracing::warn!(artifact = %id, %error, "a file of a rejected request could not be deleted");
            }
        }
    }

    /// Returns the bytes of the files of messages in base64, by artifact. Files that the model does
    /// not take, that were deleted or that cannot be read are left out.
    pub(crate) async fn load(
        &self,
        messages: &[Arc<Message>],
        kinds: &[InputKind],
    ) -> HashMap<ArtifactId, Arc<str>> {
        let mut loaded = HashMap::new();
        for file in messages.iter().flat_map(|message| message.content.files()) {
            let is_taken = file.kind().is_some_and(|kind| kinds.contains(&kind));
            if !is_taken || loaded.contains_key(&file.artifact_id) {
                continue;
            }
            match Box::pin(self.read(&file.artifact_id)).await {
                Ok(Some(data)) => drop(loaded.insert(file.artifact_id.clone(), data)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!(artifact = %file.artifact_id, %error, "a file of a message could not be read");
                }
            }
        }
        loaded
    }

    async fn read(&self, id: &ArtifactId) -> Result<Option<Arc<str>>, ErrorInfo> {
        match self.artifacts.load(&self.owner, id.as_str(), None).await? {
            Some(found) => Ok(Some(
                BASE64_STANDARD.encode(read_all(found.body).await?).into(),
            )),
            None => Ok(None),
        }
    }
}

impl Fitted {
    /// Returns the part of the file, whose bytes are stored as this artifact.
    fn part(&self, artifact_id: ArtifactId) -> ContentPart {
        ContentPart::of_file(PartFile {
            artifact_id,
            content_type: self.file.content_type.clone(),
            size: self.file.bytes.len() as u64,
            filename: self.file.filename.clone(),
            width: self.pixels.map(|(width, _)| width),
            height: self.pixels.map(|(_, height)| height),
            scaled_from: self.scaled_from,
        })
    }
}

async fn fit(mut file: InlineFile, limits: &InputLimits) -> Result<Fitted, ErrorInfo> {
    file.content_type = essence(&file.content_type);
    // Names and declared types of images are often wrong.
    let is_image =
        |content_type: &str| InputKind::of_content_type(content_type) == Some(InputKind::Image);
    if let Some(actual) =
        media_type(&file.bytes).filter(|actual| is_image(actual) && is_image(&file.content_type))
    {
        actual.clone_into(&mut file.content_type);
    }
    let name = file
        .filename
        .take()
        .map(|name| shorten(strip_invisible(&name).trim(), MAX_NAME_CHARS).to_string());
    file.filename = name
        .map(|name| name.replace('\n', " "))
        .filter(|name| !name.is_empty());
    let label = file
        .filename
        .clone()
        .unwrap_or_else(|| file.content_type.clone());
    limits.check_readable(&label, &file.content_type, file.bytes.len() as u64)?;
    match InputKind::of_content_type(&file.content_type) {
        Some(InputKind::Image) => image::fit(file, label, limits).await,
        Some(InputKind::Pdf) => {
            check_pdf(&file.bytes, &label)?;
            Ok(Fitted {
                file,
                pixels: None,
                scaled_from: None,
            })
        }
        _ => Ok(Fitted {
            file,
            pixels: None,
            scaled_from: None,
        }),
    }
}

/// Fails with `validation_error` if a PDF document is no PDF document, or is cut off: services
/// reject it, and with it each later request of the conversation.
fn check_pdf(bytes: &[u8], label: &str) -> Result<(), ErrorInfo> {
    let contains =
        |part: &[u8], marker: &[u8]| part.windows(marker.len()).any(|window| window == marker);
    let head = &bytes[..bytes.len().min(PDF_MARKER_RANGE)];
    let tail = &bytes[bytes.len().saturating_sub(PDF_MARKER_RANGE)..];
    let fault = if !contains(head, b"%PDF-") {
        "it does not begin with %PDF-"
    } else if !contains(tail, b"%%EOF") {
        "it is cut off: %%EOF is missing at its end"
    } else {
        return Ok(());
    };
    Err(ErrorInfo::new(
        ErrorCode::ValidationError,
        format!("{label:?} is not a valid application/pdf: {fault}"),
    ))
}

/// Returns a content type in lower case, without parameters, and with its usual name.
fn essence(content_type: &str) -> String {
    match content_type
        .split(';')
        .next()
        .unwrap_or_default()
        .trim()
        .to_ascii_lowercase()
        .as_str()
    {
        "image/jpg" => "image/jpeg".to_owned(),
        essence => essence.to_owned(),
    }
}

fn check_size(label: &str, size: u64, limit: u64, setting: &str) -> Result<(), ErrorInfo> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("{label:?} has {size} bytes, more than the limit of {limit} ({setting})");
    Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message))
}

async fn read_all(
    mut body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
) -> Result<Bytes, ErrorInfo> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.freeze())
}
