//! Edits of a text, and the two ways in which they are stored (ART-4, ART-5).
//!
//! A model's edit of a session document is recorded in the working set, by compare-and-swap on the
//! revision. Every other edit (user scope, clients) stores the next version immediately. Matching
//! is slow, so it runs on a blocking thread, never in an actor. An edit that lost against a
//! concurrent one is matched again with the newer text.

use std::{sync::Arc, time::Duration};

use soong_protocol::{
    Artifact, ArtifactId, ArtifactName, ArtifactScope, ArtifactSnapshot, EffectId, ErrorCode,
    ErrorInfo, Provenance, SessionId, TraceId,
};
use soong_tool::artifact::{
    Change, Content, EditRequest, Edited, IfExists, Save,
    content::{self},
};

use crate::{
    artifact::{
        ArtifactStore,
        change::{Applied, already_exists, apply},
        document::Document,
        not_found,
        store::put::{Precondition, PutRequest},
        working_set::{CommitOutcome, EditCommand},
    },
    clock::now,
};

/// Initial delay before an edit that the disk rejected is retried. It doubles after each attempt;
/// there is no attempt after it reaches `STORAGE_RETRY_LIMIT`.
const STORAGE_RETRY_BACKOFF: Duration = Duration::from_millis(100);
const STORAGE_RETRY_LIMIT: Duration = Duration::from_secs(2);
/// Maximum number of attempts of a change that loses against concurrent changes. In each round, one
/// of the others has succeeded.
const MAX_ATTEMPTS: usize = 1_000;

/// Same as [`apply`], but on a blocking thread if the text must be searched.
async fn apply_blocking(
    change: &Change,
    key: &str,
    before: Option<&Document>,
) -> Result<Applied, ErrorInfo> {
    if matches!(change, Change::Create { .. }) && before.is_some() {
        return Err(already_exists(key));
    }
    let before = before.map(Document::text).transpose()?;
    if !matches!(change, Change::Update { .. }) {
        return apply(change, key, before.as_deref());
    }
    let change = change.clone();
    let key = key.to_owned();
    let searching = tokio::task::spawn_blocking(move || apply(&change, &key, before.as_deref()));
    searching.await.unwrap_or_else(|error| {
        Err(ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the search did not finish: {error}"),
        ))
    })
}

impl ArtifactStore {
    /// Edits a document of a session in its working set. It becomes a version when the run ends.
    pub(in crate::artifact) async fn edit_document(
        &self,
        session: &SessionId,
        name: ArtifactName,
        request: EditRequest,
        effect: EffectId,
    ) -> Result<Edited, ErrorInfo> {
        let trace_id = request
            .provenance
            .trace_id
            .clone()
            .unwrap_or_else(|| TraceId::root(session));
        let set = self.working_sets.set(session);
        let mut before = set.read(name.as_str()).await?;
        let mut wait = STORAGE_RETRY_BACKOFF;
        for _ in 0..MAX_ATTEMPTS {
            // Check in every round: an attempt before a crash of the set, or with an unclear result
            // of the disk, may have been recorded.
            if let Some(done) = self.recorded_edit(&effect, name.as_str()).await? {
                return Ok(done);
            }
            let applied =
                match apply_blocking(&request.change, &request.key, before.as_deref()).await {
                    Ok(applied) => applied,
                    Err(error) => match self
                        .reload_if_changed(session, name.as_str(), before.as_deref())
                        .await?
                    {
                        Some(newer) => {
                            before = newer;
                            continue;
                        }
                        None => return Err(error),
                    },
                };
            self.check_size(&request.key, true, applied.text.len() as u64)?;
            let artifact = edited_artifact(session, &name, &request, before.as_deref(), &applied);
            let command = EditCommand {
                edited: applied.result_of(artifact.clone()),
                document: Arc::new(Document::new(artifact, Some(applied.text.into()))),
                splice: applied.splice,
                old: applied.old,
                effect: effect.clone(),
                trace_id: trace_id.clone(),
            };
            match set.commit(name.as_str(), command).await {
                Ok(CommitOutcome::Recorded(edited)) => return Ok(*edited),
                // A concurrent edit won, or an earlier attempt of this edit whose acknowledgement
                // was lost in a crash.
                Ok(CommitOutcome::Conflict(newer)) => before = newer,
                // Retry after a transient disk error. The effect identifies the edit, so it is not
                // applied twice (DUR-6).
                Err(error)
                    if error.code == ErrorCode::StorageError
                        && error.retryable
                        && wait < STORAGE_RETRY_LIMIT =>
                {
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    before = set.read(name.as_str()).await?;
                }
                Err(error) => return Err(error),
            }
        }
        Err(too_many_conflicts(&request.key))
    }

    /// Edits a text and stores the next version immediately.
    pub(in crate::artifact) async fn edit_directly(
        &self,
        scope: ArtifactScope,
        name: ArtifactName,
        request: EditRequest,
    ) -> Result<Edited, ErrorInfo> {
        for _ in 0..MAX_ATTEMPTS {
            let before = self.current_document(&scope, name.as_str()).await?;
            request.condition.check(
                &request.key,
                before
                    .as_ref()
                    .map(|before| before.artifact.current_version),
            )?;
            if let Some(before) = &before
                && request.effect.is_some()
                && let Some(done) = self.version_of_call(before, &request.provenance).await?
            {
                return Ok(done);
            }
            let applied = apply_blocking(&request.change, &request.key, before.as_ref()).await?;
            let (title, content_type) = match (&request.change, &before) {
                (
                    Change::Create {
                        title,
                        content_type,
                        ..
                    },
                    _,
                ) => (title.clone(), content_type.clone()),
                (_, Some(before)) => (
                    before.artifact.title.clone(),
                    before.artifact.content_type.clone(),
                ),
                (_, None) => return Err(not_found(&request.key)),
            };
            let save = Save {
                title,
                source: request.source,
                provenance: request.provenance.clone(),
                if_exists: IfExists::NextVersion,
                metadata: before
                    .as_ref()
                    .map(|before| before.artifact.metadata.clone())
                    .unwrap_or_default(),
                ..Save::new(
                    request.key.clone(),
                    content_type,
                    Content::from(applied.text.clone()),
                )
            };
            let expect = Precondition::Version(
                before
                    .as_ref()
                    .map_or(0, |before| before.artifact.current_version),
            );
            let put = PutRequest {
                scope: scope.clone(),
                name: Some(name.clone()),
                save,
                update_type: Some(applied.update_type),
            };
            match self.put(put, expect).await? {
                Some(artifact) => {
                    let snapshot = Some(ArtifactSnapshot::new(&artifact, &applied.text));
                    return Ok(Edited {
                        snapshot,
                        ..applied.result_of(artifact)
                    });
                }
                None => continue, // another writer was faster
            }
        }
        Err(too_many_conflicts(&request.key))
    }

    /// Reads a document again after a change could not be applied, because the set may be outdated
    /// if a client has just written or deleted it. Returns `None` if the document has not changed.
    async fn reload_if_changed(
        &self,
        session: &SessionId,
        name: &str,
        before: Option<&Document>,
    ) -> Result<Option<Option<Arc<Document>>>, ErrorInfo> {
        let scope = ArtifactScope::Session {
            session_id: session.clone(),
        };
        let number = |artifact: &Artifact| (artifact.artifact_id.clone(), artifact.current_version);
        let now = self.row(&scope, name).await?;
        if now.as_ref().map(number) == before.map(|before| number(&before.artifact)) {
            return Ok(None);
        }
        self.working_sets.evict(session, name);
        self.working_sets.set(session).read(name).await.map(Some)
    }

    /// Returns the version that the same tool call has already stored, if any.
    async fn version_of_call(
        &self,
        now: &Document,
        provenance: &Provenance,
    ) -> Result<Option<Edited>, ErrorInfo> {
        let id = now.artifact.artifact_id.clone();
        let versions = self.reads.read(move |reader| reader.versions(&id)).await?;
        let Some(version) = versions
            .into_iter()
            .rfind(|version| version.provenance == *provenance)
        else {
            return Ok(None);
        };
        let is_last = version.version == now.artifact.current_version;
        let artifact = Artifact {
            current_version: version.version,
            stored_version: version.version,
            size: version.size,
            content_type: version.content_type,
            source: version.source,
            provenance: version.provenance,
            updated_at: version.created_at,
            ..now.artifact.clone()
        };
        let snapshot = if is_last {
            Some(ArtifactSnapshot::new(&artifact, &now.text()?))
        } else {
            None
        };
        let layer = None;
        let similarity = None;
        let replaced = None;
        Ok(Some(Edited {
            artifact,
            update_type: version.update_type,
            layer,
            similarity,
            replaced,
            snapshot,
        }))
    }

    /// Returns the recorded result of an effect for a document, if any.
    async fn recorded_edit(
        &self,
        effect: &EffectId,
        name: &str,
    ) -> Result<Option<Edited>, ErrorInfo> {
        let run = effect.run_id.clone();
        let turn = effect.turn;
        let edits = self
            .reads
            .read(move |reader| reader.turn_edits(&run, turn))
            .await?;
        let of_call = edits.into_iter().filter(|edit| edit.effect == *effect);
        let mut done =
            of_call.filter_map(|edit| serde_json::from_str::<Edited>(&edit.outcome).ok());
        // A call may edit several documents, but each only once.
        Ok(done.find(|edited| edited.artifact.name.as_deref() == Some(name)))
    }
}

/// Returns the artifact after an edit.
fn edited_artifact(
    session: &SessionId,
    name: &ArtifactName,
    request: &EditRequest,
    before: Option<&Document>,
    applied: &Applied,
) -> Artifact {
    let at = now();
    let mut artifact = match before {
        Some(before) => before.artifact.clone(),
        None => {
            let (title, content_type) = match &request.change {
                Change::Create {
                    title,
                    content_type,
                    ..
                } => (title.as_str(), content_type.as_str()),
                Change::Update { .. } | Change::Rewrite { .. } => ("", ""),
            };
            Artifact {
                artifact_id: ArtifactId::generate(),
                scope: ArtifactScope::Session {
                    session_id: session.clone(),
                },
                name: Some(name.as_str().to_owned()),
                withdrawn: None,
                title: if title.is_empty() {
                    name.as_str().to_owned()
                } else {
                    title.to_owned()
                },
                filename: name.filename(content_type),
                content_type: content_type.to_owned(),
                size: 0,
                current_version: 0,
                stored_version: 0,
                dirty: true,
                source: request.source,
                debug: false,
                provenance: Provenance::default(),
                summary: None,
                metadata: serde_json::Map::new(),
                created_at: at,
                updated_at: at,
            }
        }
    };
    artifact.size = applied.text.len() as u64;
    artifact.current_version += 1;
    artifact.dirty = true;
    artifact.source = request.source;
    artifact.provenance = request.provenance.clone();
    artifact.summary = content::summary(&applied.text);
    artifact.updated_at = at;
    artifact
}

fn too_many_conflicts(key: &str) -> ErrorInfo {
    let message = format!(
        "{key:?} has too many concurrent changes, and this change conflicted with them: try again"
    );
    ErrorInfo::retryable(ErrorCode::Overloaded, message)
}
