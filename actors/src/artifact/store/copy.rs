//! Copies of a session's artifacts for another session: what each held at one of its numbers, as a first version.
//!
//! Bytes first, as with every version: announced, written, and registered by whoever makes the other session.
//! Not here: which artifacts come along, and the commit.

use futures::{StreamExt, TryStreamExt};
use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ErrorInfo, EventDraft, NewCopy, NewVersion, SessionId, TraceId, UpdateType,
    Write,
};
use soong_storage::blob::version_path;

use crate::{
    artifact::{
        ArtifactStore,
        content::{self, is_text},
        reader::{damaged, file_is_missing},
        store::{failed, saved},
    },
    clock::now,
};

/// How many are copied at once.
const AT_ONCE: usize = 16;

impl ArtifactStore {
    /// Writes the bytes of copies for a session that is not there yet; each artifact comes with the number whose bytes
    /// they are. Where one fails, nothing is left.
    pub(crate) async fn copy_all(
        &self,
        session: &SessionId,
        all: Vec<(Artifact, u64)>,
    ) -> Result<Vec<NewCopy>, ErrorInfo> {
        let planned: Vec<(Artifact, u64, NewCopy)> = all
            .into_iter()
            .filter(|(artifact, _)| !artifact.debug)
            .map(|(artifact, number)| {
                let copy = plan(session, &artifact);
                (artifact, number, copy)
            })
            .collect();
        let paths: Vec<String> = planned.iter().map(|(_, _, copy)| copy.version.path.clone()).collect();
        if paths.is_empty() {
            return Ok(Vec::new());
        }
        let announced = paths.iter().map(|path| Write::BlobIntent { path: path.clone(), at: now() }).collect();
        self.append(announced).await.map_err(failed)?;
        let copied = futures::stream::iter(planned)
            .map(|(artifact, number, copy)| self.copy(artifact, number, copy))
            .buffered(AT_ONCE)
            .try_collect()
            .await;
        if copied.is_err() {
            self.discard_copies(&paths).await;
        }
        copied
    }

    async fn copy(&self, artifact: Artifact, number: u64, mut copy: NewCopy) -> Result<NewCopy, ErrorInfo> {
        let id = artifact.artifact_id.clone();
        let stored = self.reading.read(move |reader| reader.blob(&id, number)).await?;
        let is_as_now = number == artifact.current_version;
        let NewVersion { artifact: made, path, .. } = &mut copy.version;
        match stored {
            Some((from, content_type)) => {
                let (_, pieces) = self
                    .blobs
                    .get_stream(&from)
                    .await
                    .map_err(failed)?
                    .ok_or_else(|| file_is_missing(&artifact, &from))?;
                let pieces = pieces.map(|piece| piece.map_err(std::io::Error::other)).boxed();
                made.size = self.blobs.put_stream(path, u64::MAX, pieces).await.map_err(failed)?;
                made.content_type = content_type;
                if !is_as_now {
                    made.summary = if is_text(&made.content_type) { self.read_summary(path).await? } else { None };
                }
            }
            // Edits that were no version at that time.
            None => {
                let text = self.reader.text_at(&artifact, number).await?;
                let text = text.ok_or_else(|| damaged(&artifact, &format!("there is no text of revision {number}")))?;
                made.size = text.len() as u64;
                self.blobs.put(path, bytes::Bytes::copy_from_slice(text.as_bytes())).await.map_err(failed)?;
                if !is_as_now {
                    made.summary = content::summary(&text);
                }
            }
        }
        Ok(copy)
    }

    /// Removes the bytes of copies that came to nothing.
    pub(crate) async fn discard_copies(&self, paths: &[String]) {
        if let Err(error) = self.discard_all(paths).await {
            // They stay announced: the next owner removes them.
            tracing::warn!(%error, "what was copied in vain stays for now");
        }
    }
}

/// Registers copies; those that tell of it stand on the timeline of a trace.
pub(crate) fn registered(copies: Vec<NewCopy>, trace: &TraceId) -> (Vec<Write>, Vec<Write>) {
    let told = copies.iter().map(|copy| {
        let artifact = &copy.version.artifact;
        Write::Event(EventDraft::new(trace.clone(), None, artifact.updated_at, saved(artifact)))
    });
    let told = told.collect();
    (copies.into_iter().map(|copy| Write::ArtifactCopy(Box::new(copy))).collect(), told)
}

/// What a copy will be; its size is not known yet.
fn plan(session: &SessionId, artifact: &Artifact) -> NewCopy {
    let scope = ArtifactScope::Session { session_id: session.clone() };
    let (id, at) = (ArtifactId::generate(), now());
    let path = version_path(&scope, &id, 1, &artifact.filename);
    let made = Artifact {
        artifact_id: id,
        scope,
        // One that is not there now was there then.
        name: artifact.name.clone().or_else(|| artifact.withdrawn.clone()),
        withdrawn: None,
        current_version: 1,
        stored_version: 1,
        dirty: false,
        created_at: at,
        updated_at: at,
        ..artifact.clone()
    };
    NewCopy {
        version: NewVersion { artifact: made, update_type: UpdateType::Create, path },
        source: artifact.artifact_id.clone(),
    }
}
