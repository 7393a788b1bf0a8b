//! Attachments of a run: checked before anything is created, uploaded before the run starts
//! (ART-11). Images, PDF documents and audio are also parts of the message.

use std::{
    io::Read,
    path::{Path, PathBuf},
};

use soong::{
    ErrorCode, ErrorInfo,
    artifact::is_text,
    protocol::{
        ArtifactsConfig, ContentPart, GivenMessage, InputKind, MessageContent, PartFile, Role,
        SessionId,
        api::{
            NewSessionBody, StartBody, Stored,
            operation::{CreateSession, ReadSession},
        },
    },
};
use soong_client::{Client, Upload, UploadTarget};
use soong_tui::{format, text};
use tempfile::TempDir;

use crate::{
    exit::{Exit, Failure},
    file, print,
};

/// Files to upload to a session. `upload` can be repeated after an error: completed steps are not
/// repeated.
pub(super) struct Attachments {
    files: Vec<PathBuf>,
    /// Folder with the file that was read from standard input.
    _stdin_folder: Option<TempDir>,
    session: Option<SessionId>,
    stored: Vec<Stored>,
}

fn content_type_of(path: &Path) -> &'static str {
    file::content_type(path).unwrap_or_else(|| file::detect_content_type(path))
}

impl Attachments {
    /// Checks that the files exist and are not too large.
    ///
    /// The path `-` means standard input, which is read to its end.
    pub(super) fn check(
        mut files: Vec<PathBuf>,
        limits: &ArtifactsConfig,
    ) -> Result<Self, Failure> {
        let stdin_folder = match files.iter().filter(|path| path.as_os_str() == "-").count() {
            0 => None,
            1 => Some(read_stdin(&mut files, limits.max_blob_bytes)?),
            _ => {
                return Err(Failure::usage(
                    "standard input is attached twice",
                    "Give `--attach -` once.",
                ));
            }
        };
        for path in &files {
            let opened = file::open(path)?;
            let size = opened.metadata().map_or(0, |known| known.len());
            let (limit, key) = if is_text(content_type_of(path)) {
                (limits.max_text_bytes, "max_text_bytes")
            } else {
                (limits.max_blob_bytes, "max_blob_bytes")
            };
            if size > limit {
                let size = format::bytes(size);
                let limit = format::bytes(limit);
                let code = ErrorCode::PayloadTooLarge;
                let what = format!(
                    "{} has {size}, more than the limit of {limit} ({code})",
                    path.display()
                );
                let advice =
                    format!("Raise artifacts.{key} in config.toml, or attach a part of the file.");
                return Err(Failure::new(Exit::of(code), what, advice));
            }
        }
        Ok(Self {
            files,
            _stdin_folder: stdin_folder,
            session: None,
            stored: Vec::new(),
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Uploads the files that are not uploaded yet to the session of the request, which is created
    /// if it does not exist.
    pub(super) async fn upload(
        &mut self,
        client: &Client,
        request: &StartBody,
    ) -> Result<SessionId, ErrorInfo> {
        let session = match &self.session {
            Some(session) => session.clone(),
            None => self
                .session
                .insert(session_for(client, request).await?)
                .clone(),
        };
        for path in &self.files[self.stored.len()..] {
            let opened = tokio::fs::File::open(path).await.map_err(|error| {
                ErrorInfo::new(
                    ErrorCode::FileNotFound,
                    format!("{} cannot be read: {error}", path.display()),
                )
            })?;
            let file_name = path.file_name().unwrap_or_default();
            let request = UploadTarget {
                session_id: session.clone(),
                filename: file_name.to_string_lossy().into_owned(),
            };
            let upload = Upload {
                content_type: content_type_of(path).to_owned(),
                bytes: file::read_chunks(opened),
            };
            self.stored.push(client.upload_file(request, upload).await?);
        }
        Ok(session)
    }

    /// Adds the uploaded images, PDF documents and audio to the message of a request.
    pub(super) fn add_to(&self, request: &mut StartBody) {
        let media = self
            .stored
            .iter()
            .filter(|stored| InputKind::of_content_type(&stored.content_type).is_some());
        let parts: Vec<ContentPart> = media
            .map(|stored| {
                ContentPart::of_file(PartFile {
                    artifact_id: stored.artifact_id.clone(),
                    content_type: stored.content_type.clone(),
                    size: stored.size,
                    filename: Some(stored.name.clone()),
                    width: None,
                    height: None,
                    scaled_from: None,
                })
            })
            .collect();
        if parts.is_empty() {
            return;
        }
        let Some(prompt) = request.prompt.take() else {
            print::note(
                "a run without a message does not show its model the attached images and documents",
            );
            return;
        };
        let mut content = MessageContent::from(prompt);
        parts.into_iter().for_each(|part| content.push(part));
        request.messages.push(GivenMessage {
            role: Role::User,
            content,
            tool_call_id: None,
        });
    }

    /// Prints the name of each attached file, and its artifact name if that differs.
    pub(super) fn print(&self) {
        for (path, stored) in self.files.iter().zip(&self.stored) {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            let other = if file == stored.name {
                String::new()
            } else {
                format!(" (as {})", stored.name)
            };
            print::error_line(&text::safe_line(&format!("attached {file}{other}")));
        }
    }
}

/// Copies standard input to a file, which replaces `-` in `files`.
fn read_stdin(files: &mut [PathBuf], max_bytes: u64) -> Result<TempDir, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(
            Exit::Failed,
            format!("standard input cannot be read: {error}"),
            "Attach a file instead.",
        )
    };
    let folder = tempfile::tempdir().map_err(failed)?;
    let path = folder.path().join("stdin");
    let mut copy = std::fs::File::create(&path).map_err(failed)?;
    // One byte more shows that the limit is exceeded.
    let mut input = std::io::stdin().lock().take(max_bytes + 1);
    std::io::copy(&mut input, &mut copy).map_err(failed)?;
    let named = path.with_extension(file::extension(file::detect_content_type(&path)));
    std::fs::rename(&path, &named).map_err(failed)?;
    files
        .iter_mut()
        .filter(|file| file.as_os_str() == "-")
        .for_each(|file| file.clone_from(&named));
    Ok(folder)
}

/// Returns the session of the run, creating it if it does not exist.
async fn session_for(client: &Client, request: &StartBody) -> Result<SessionId, ErrorInfo> {
    if let Some(id) = &request.session_id {
        match client
            .call(ReadSession {
                session_id: SessionId::new(id.as_str()),
            })
            .await
        {
            Ok(known) => return Ok(known.session.session_id),
            Err(error) if error.code == ErrorCode::SessionNotFound => {}
            Err(error) => return Err(error),
        }
    }
    let new = NewSessionBody {
        session_id: request.session_id.clone(),
        project_dir: request.project_dir.clone(),
        ..NewSessionBody::default()
    };
    Ok(client
        .call(CreateSession { body: new })
        .await?
        .session
        .session_id)
}
