//! Images and files of messages: stored as artifacts without a name, and loaded for model calls.
//!
//! A part of a message refers to the version of an artifact by number, so its bytes never change. A file that is new
//! must fit the model that receives it first: images are scaled down, other files are rejected if they are too large.
//!
//! Elsewhere: the parts (`soong_protocol::ContentPart`), and how a provider sends them (`soong_model`).

mod image;

use std::{collections::HashMap, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use soong_protocol::{
    ArtifactId, ArtifactSource, ContentPart, ErrorCode, ErrorInfo, InlineFile, InputKind, Message, MessageContent,
    ModelConfig, PartFile, Provenance,
};
use soong_tool::artifact::{ArtifactOwner, ArtifactService, Save};

use crate::artifact::ArtifactHandle;

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

    /// Fails with `unsupported_capability` if the model does not take a file of the content. Stored files whose content
    /// type is not given are not checked.
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
        let what = kind.map_or_else(|| format!("files of type {content_type}"), |kind| format!("input of type {kind}"));
        let known: Vec<&str> = self.kinds.iter().map(|kind| kind.as_str()).collect();
        let message = format!(
            "model {:?} does not take {what}, only {}: remove it, choose another model, or, if the model takes it, add it \
             to model.input",
            self.model,
            known.join(", ")
        );
        Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
    }
}

/// Stores and loads the images and files of messages of a session.
pub(crate) struct MessageFiles<'a> {
    pub(crate) artifacts: &'a ArtifactHandle,
    pub(crate) owner: ArtifactOwner,
}

impl MessageFiles<'_> {
    /// Replaces the files of a content by stored ones that fit the limits. The kinds must have been checked.
    pub(crate) async fn store_content(
        &self,
        content: &mut MessageContent,
        limits: &InputLimits,
        provenance: &Provenance,
    ) -> Result<(), ErrorInfo> {
        if content.parts().is_empty() {
            return Ok(());
        }
        let mut stored = Vec::with_capacity(content.parts().len());
        for part in std::mem::take(content).into_parts() {
            stored.push(match part {
                ContentPart::Inline(file) => self.store(file, limits, provenance).await?,
                ContentPart::Image(file) | ContentPart::File(file) => {
                    self.check_stored(file, limits, provenance).await?
                }
                text @ ContentPart::Text { .. } => text,
            });
        }
        *content = MessageContent::from_parts(stored);
        Ok(())
    }

    async fn store(
        &self,
        file: InlineFile,
        limits: &InputLimits,
        provenance: &Provenance,
    ) -> Result<ContentPart, ErrorInfo> {
        let label = file.filename.clone().unwrap_or_else(|| file.content_type.clone());
        self.save(fit(file, &label, limits).await?, provenance).await
    }

    async fn save(&self, mut fitted: Fitted, provenance: &Provenance) -> Result<ContentPart, ErrorInfo> {
        let InlineFile { content_type, filename, bytes } = &mut fitted.file;
        let save = Save {
            key: None,
            title: filename.clone().unwrap_or_else(|| "input".to_owned()),
            source: ArtifactSource::UserUpload,
            provenance: provenance.clone(),
            ..Save::new("", content_type.as_str(), Bytes::from(std::mem::take(bytes)))
        };
        let artifact = self.artifacts.save(&self.owner, save).await?;
        Ok(ContentPart::of_file(fitted.part(artifact.artifact_id)))
    }

    /// Returns the part of an artifact of the session. An artifact with a name may change, so its current version is
    /// copied.
    async fn check_stored(
        &self,
        file: PartFile,
        limits: &InputLimits,
        provenance: &Provenance,
    ) -> Result<ContentPart, ErrorInfo> {
        let loaded = self.artifacts.reader().find(&self.owner, file.artifact_id.as_str(), None).await?;
        limits.check_kind(&loaded.content_type)?;
        let label = loaded.artifact.label().to_owned();
        // A larger image is not read only to be rejected.
        check_size(&label, loaded.size, limits.file_bytes.max(4 * limits.image_bytes), "model.max_file_bytes")?;
        let (artifact, content_type) = (loaded.artifact, loaded.content_type);
        let filename = file.filename.or_else(|| Some(artifact.filename.clone()));
        let bytes = read_all(loaded.body).await?.into();
        let fitted = fit(InlineFile { content_type, filename, bytes }, &label, limits).await?;
        if artifact.name.is_some() || fitted.scaled_from.is_some() {
            return self.save(fitted, provenance).await;
        }
        Ok(ContentPart::of_file(fitted.part(artifact.artifact_id)))
    }

    /// Returns the bytes of the files of messages in base64, by artifact. Files that the model does not take, and
    /// files that were deleted, are left out.
    pub(crate) async fn load(
        &self,
        messages: &[Arc<Message>],
        kinds: &[InputKind],
    ) -> Result<HashMap<ArtifactId, Arc<str>>, ErrorInfo> {
        let mut loaded = HashMap::new();
        for file in messages.iter().flat_map(|message| message.content.files()) {
            let is_taken = file.kind().is_some_and(|kind| kinds.contains(&kind));
            if !is_taken || loaded.contains_key(&file.artifact_id) {
                continue;
            }
            let Some(found) = self.artifacts.load(&self.owner, file.artifact_id.as_str(), None).await? else {
                continue;
            };
            let bytes = read_all(found.body).await?;
            loaded.insert(file.artifact_id.clone(), BASE64_STANDARD.encode(bytes).into());
        }
        Ok(loaded)
    }
}

/// A file that fits the limits.
struct Fitted {
    file: InlineFile,
    /// Number of its bytes, which are moved out when they are stored.
    size: u64,
    /// Width and height of an image.
    pixels: Option<(u32, u32)>,
    /// Width and height of an image before it was scaled.
    scaled_from: Option<(u32, u32)>,
}

impl Fitted {
    /// Returns the part of the file, whose bytes are stored as this artifact.
    fn part(&self, artifact_id: ArtifactId) -> PartFile {
        PartFile {
            artifact_id,
            content_type: self.file.content_type.clone(),
            size: self.size,
            filename: self.file.filename.clone(),
            width: self.pixels.map(|(width, _)| width),
            height: self.pixels.map(|(_, height)| height),
            scaled_from: self.scaled_from,
        }
    }
}

async fn fit(file: InlineFile, label: &str, limits: &InputLimits) -> Result<Fitted, ErrorInfo> {
    if InputKind::of_content_type(&file.content_type) == Some(InputKind::Image) {
        return image::fit(file, label, limits).await;
    }
    check_size(label, file.bytes.len() as u64, limits.file_bytes, "model.max_file_bytes")?;
    Ok(Fitted { size: file.bytes.len() as u64, file, pixels: None, scaled_from: None })
}

fn check_size(label: &str, size: u64, limit: u64, setting: &str) -> Result<(), ErrorInfo> {
    if size <= limit {
        return Ok(());
    }
    let message = format!("{label:?} has {size} bytes, more than the limit of {limit} ({setting})");
    Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message))
}

async fn read_all(mut body: futures::stream::BoxStream<'static, Result<Bytes, ErrorInfo>>) -> Result<Bytes, ErrorInfo> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await {
        bytes.extend_from_slice(&piece?);
    }
    Ok(bytes.freeze())
}
