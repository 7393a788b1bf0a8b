//! Records what `write` and `edit` change, and keeps the content that they replace, so that users
//! can revert a change (TOOL-7).
//!
//! A content is stored as an artifact without a name that models do not see. It is not kept if
//! reading the file requires permission, or if the session keeps too much already. A failure to
//! keep it does not fail the call.
//!
//! Elsewhere: reverting a change (the chat of the binary).

use std::{
    collections::HashMap,
    fs::File,
    io::Read as _,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::Value;
use sha2::{Digest, Sha256};
use soong_protocol::{Artifact, ErrorInfo, FileChange, PreviousContent, SessionId};

use super::{
    ToolContext,
    artifact::{ArtifactOwner, ArtifactService, Save},
    diff::unified_diff,
    path_policy::PathPolicy,
    project_path::ResolvedPath,
    safe_fs::{open_file, read_exactly},
};

/// Key of the metadata that marks a stored content. Its value is the path of the file.
const METADATA_KEY: &str = "previous_content_of";
/// Maximum size of the diff in a recorded change, in bytes.
const MAX_DIFF_BYTES: usize = 8 * 1024;
/// Maximum number of sessions whose size is known. All are forgotten, and read again, when there
/// are more.
const MAX_SESSIONS: usize = 1_000;

/// Contents that were replaced, by session.
#[derive(Debug, Default)]
pub(super) struct PreviousContents {
    /// Maximum size of all contents of a session, in bytes.
    max_session_bytes: u64,
    /// Size of the contents that each session keeps, in bytes.
    kept_bytes: Mutex<KeptBytes>,
}

/// Bytes by session and its incarnation.
type KeptBytes = HashMap<(SessionId, u64), u64>;

/// Content of a file that a call is about to replace.
#[derive(Debug)]
pub(super) struct ReplacedFile {
    size_bytes: usize,
    sha256: String,
    /// Present if it is text that may be shown.
    text: Option<String>,
    stored: Option<PreviousContent>,
}

impl PreviousContents {
    pub(super) fn new(max_session_bytes: u64) -> Self {
        Self {
            max_session_bytes,
            kept_bytes: Mutex::default(),
        }
    }

    fn kept_bytes(&self) -> MutexGuard<'_, KeptBytes> {
        self.kept_bytes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads and stores the content of a file. Returns `None` if there is no such file or if
    /// reading it requires permission.
    pub(super) async fn keep(
        &self,
        context: &ToolContext,
        resolved: &ResolvedPath,
        policy: &PathPolicy,
    ) -> Option<ReplacedFile> {
        if policy.read_access(resolved).is_some() {
            return None;
        }
        let read_path = resolved.clone();
        let max_bytes = self.max_session_bytes;
        let read = tokio::task::spawn_blocking(move || read_file(&read_path, max_bytes)).await;
        let bytes = read.ok().flatten()?;
        let size = bytes.len();
        let sha256 = sha256(&bytes);
        let text = String::from_utf8(bytes.clone()).ok();
        let stored = match self.store(context, resolved, bytes, text.is_some()).await {
            Ok(artifact) => {
                let sha256 = sha256.clone();
                artifact.map(|artifact| PreviousContent {
                    artifact_id: artifact.artifact_id,
                    sha256,
                })
            }
            Err(error) => {
                tracing::warn!(file = resolved.display_name(), %error, "failed to keep the content of a file");
                None
            }
        };
        Some(ReplacedFile {
            size_bytes: size,
            sha256,
            text,
            stored,
        })
    }

    /// Stores a content, unless the session would keep too much.
    async fn store(
        &self,
        context: &ToolContext,
        resolved: &ResolvedPath,
        bytes: Vec<u8>,
        is_text: bool,
    ) -> Result<Option<Artifact>, ErrorInfo> {
        let Some(service) = context
            .services
            .artifacts
            .as_ref()
            .filter(|_| self.max_session_bytes > 0)
        else {
            return Ok(None);
        };
        let named = context.named_artifacts()?;
        let size = bytes.len() as u64;
        let session = (context.session_id.clone(), context.session_incarnation);
        let kept_bytes = self
            .size_of(service.as_ref(), &named.owner, &session)
            .await?;
        if kept_bytes + size > self.max_session_bytes {
            return Ok(None);
        }
        let content_type = if is_text {
            "text/plain"
        } else {
            "application/octet-stream"
        };
        let name = resolved.display_name();
        let save = Save {
            key: None,
            title: format!("{name} before a change"),
            summary: Some(format!("content of {name} before a change")),
            provenance: named.provenance,
            metadata: [(METADATA_KEY.to_owned(), Value::String(name))]
                .into_iter()
                .collect(),
            debug: true,
            ..Save::new("", content_type, bytes)
        };
        let artifact = service.save(&named.owner, save).await?;
        if let Some(kept_bytes) = self.kept_bytes().get_mut(&session) {
            *kept_bytes += size;
        }
        Ok(Some(artifact))
    }

    /// Returns the size of the contents that a session keeps, in bytes.
    async fn size_of(
        &self,
        service: &dyn ArtifactService,
        owner: &ArtifactOwner,
        session: &(SessionId, u64),
    ) -> Result<u64, ErrorInfo> {
        if let Some(kept_bytes) = self.kept_bytes().get(session) {
            return Ok(*kept_bytes);
        }
        let artifacts = service.list(owner).await?;
        let stored = artifacts
            .iter()
            .filter(|artifact| artifact.metadata.contains_key(METADATA_KEY));
        let kept_bytes = stored.map(|artifact| artifact.size).sum();
        let mut known = self.kept_bytes();
        if known.len() >= MAX_SESSIONS {
            known.clear();
        }
        Ok(*known.entry(session.clone()).or_insert(kept_bytes))
    }
}

impl ReplacedFile {
    /// Returns whether this is the content.
    pub(super) fn is_content(&self, content: &[u8]) -> bool {
        content.len() == self.size_bytes && sha256(content) == self.sha256
    }

    /// Returns whether an open file has the content.
    pub(super) fn is_content_of(&self, file: &mut File) -> bool {
        read_exactly(file, self.size_bytes).is_some_and(|content| self.is_content(&content))
    }
}

/// Returns the change of a file that a call has written. `replaced`: the content that it replaced,
/// if that is known. `with_diff`: whether the change may be shown. Returns `None` if the path is
/// not valid Unicode.
pub(super) fn file_change(
    resolved: &ResolvedPath,
    new: &str,
    created: bool,
    replaced: Option<ReplacedFile>,
    with_diff: bool,
) -> Option<Box<FileChange>> {
    let path = resolved.path.to_str()?.to_owned();
    let (text, previous) =
        replaced.map_or((None, None), |replaced| (replaced.text, replaced.stored));
    let old = if created { Some(String::new()) } else { text };
    let diff = old
        .filter(|_| with_diff)
        .and_then(|old| unified_diff(&old, new))
        .map(|diff| shortened(&diff));
    Some(Box::new(FileChange {
        path,
        sha256: sha256(new.as_bytes()),
        created,
        previous,
        diff,
    }))
}

/// Returns a diff of at most [`MAX_DIFF_BYTES`], with a note if a part of it is left out.
pub(super) fn shortened(diff: &str) -> String {
    let end = diff.floor_char_boundary(MAX_DIFF_BYTES);
    let note = if end < diff.len() {
        "\n[the rest of the diff is left out]"
    } else {
        ""
    };
    format!("{}{note}", &diff[..end])
}

/// Reads a file of at most this size.
fn read_file(resolved: &ResolvedPath, max_bytes: u64) -> Option<Vec<u8>> {
    let (file, metadata) = open_file(resolved).ok()?;
    if metadata.len() > max_bytes {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= max_bytes).then_some(bytes)
}

/// Returns the SHA-256 of a content in hexadecimal, as in [`FileChange`].
pub fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
