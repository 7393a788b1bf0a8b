//! Restores documents when a conversation is moved to one of its earlier messages (MSG-4).
//!
//! Nothing is undone: a document gets its earlier text by one more edit, and a document that did
//! not exist yet is withdrawn, which frees its name. So every state can be restored later, and
//! versions are kept. Documents that another writer has changed since then, and artifacts of the
//! user scope, are not moved.
//!
//! Elsewhere: the choice of the message, and the commit that includes these edits.

use std::sync::Arc;

use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactId, ArtifactSnapshot, ArtifactWrite, DocumentEdit, EffectId,
    ErrorInfo, EventDraft, NewEdit, RunId, SessionId, Splice, TraceId, UpdateType, Write,
};
use soong_storage::store::ChangedDocument;
use soong_tool::artifact::{Edited, content};

use crate::{artifact::ArtifactStore, clock::now};

/// Edits that restore documents to an earlier state.
#[derive(Debug, Default)]
pub(crate) struct RestorePlan {
    /// Edits with their events, for the commit that moves the head.
    pub(crate) writes: Vec<Write>,
    /// Names of the documents that are restored.
    pub(crate) restored: Vec<String>,
    /// Names of the documents that are kept unchanged, because another writer has changed them
    /// since.
    pub(crate) unchanged: Vec<String>,
}

impl ArtifactStore {
    /// Plans the edits that restore the documents of a trace to their state at an event, identified
    /// by `lsn`. The edits are recorded for `run`; their events belong to the active run
    /// `reported_by`, if there is one.
    pub(crate) async fn plan_restore(
        &self,
        trace: &TraceId,
        run: &RunId,
        reported_by: Option<&RunId>,
        lsn: u64,
    ) -> Result<RestorePlan, ErrorInfo> {
        let wanted = trace.clone();
        let changed = self
            .reads
            .read(move |reader| reader.changed_documents(&wanted, lsn))
            .await?;
        let mut moved = RestorePlan::default();
        // Withdraw documents first, so that their names are free for the others.
        let (to_withdraw, to_restore): (Vec<ChangedDocument>, Vec<ChangedDocument>) =
            changed.into_iter().partition(|document| !document.existed);
        let mut withdrawn_ids: Vec<ArtifactId> = Vec::new();
        for document in to_withdraw.into_iter().chain(to_restore) {
            let name = document
                .artifact
                .name
                .clone()
                .or_else(|| document.artifact.withdrawn.clone());
            let Some(name) = name else { continue };
            if document.changed_elsewhere {
                moved.unchanged.push(name);
                continue;
            }
            if !document.existed && document.artifact.withdrawn.is_some() {
                continue; // it does not exist now either
            }
            if document.existed && document.artifact.withdrawn.is_some() {
                // Another artifact may hold the name now, without being withdrawn by this plan.
                let holder = self.reader.row(&document.artifact.scope, &name).await?;
                if holder.is_some_and(|holder| !withdrawn_ids.contains(&holder.artifact_id)) {
                    moved.unchanged.push(name);
                    continue;
                }
            }
            if !document.existed {
                withdrawn_ids.push(document.artifact.artifact_id.clone());
            }
            let text: Option<Arc<str>> = if document.existed {
                self.reader
                    .text_at(&document.artifact, document.revision)
                    .await?
            } else {
                None
            };
            moved.writes.extend(restore_writes(
                document.artifact,
                &name,
                text.as_deref(),
                trace,
                run,
                reported_by,
            ));
            moved.restored.push(name);
        }
        moved.restored.sort();
        moved.unchanged.sort();
        Ok(moved)
    }

    /// Removes a session's restored documents from the cache.
    pub(crate) fn evict_restored(&self, session: &SessionId, names: &[String]) {
        for name in names {
            self.working_sets.evict(session, name);
        }
        self.evict_inventory(session);
    }
}

/// Returns the edit that sets the text of an artifact to `text`, and its event. `None` withdraws
/// the artifact.
fn restore_writes(
    before: Artifact,
    name: &str,
    text: Option<&str>,
    trace: &TraceId,
    run: &RunId,
    reported_by: Option<&RunId>,
) -> [Write; 2] {
    let at = now();
    let update_type = if text.is_some() {
        UpdateType::Rewrite
    } else {
        UpdateType::Withdraw
    };
    let inserted = text.unwrap_or_default().to_owned();
    let splice = Splice {
        start: 0,
        removed: before.size,
        inserted,
    };
    let artifact = Artifact {
        name: text.map(|_| name.to_owned()),
        withdrawn: text.is_none().then(|| name.to_owned()),
        size: splice.inserted.len() as u64,
        current_version: before.current_version + 1,
        dirty: true,
        summary: text.and_then(content::summary),
        updated_at: at,
        ..before
    };
    let event = match text {
        Some(text) => {
            let snapshot = ArtifactSnapshot::new(&artifact, text);
            ArtifactEvent::Edited {
                name: name.to_owned(),
                update_type,
                layer: None,
                snapshot,
            }
        }
        None => ArtifactEvent::Withdrawn {
            name: name.to_owned(),
            artifact_id: artifact.artifact_id.clone(),
        },
    };
    let edited = Edited {
        artifact: artifact.clone(),
        update_type,
        layer: None,
        similarity: None,
        replaced: None,
        snapshot: None,
    };
    let effect = EffectId {
        run_id: run.clone(),
        turn: 0,
        tool_call_id: format!(
            "go_back:{}:{}",
            artifact.artifact_id, artifact.current_version
        ),
    };
    let edit = DocumentEdit {
        artifact_id: artifact.artifact_id.clone(),
        revision: artifact.current_version,
        update_type,
        splice,
        old: None,
        effect,
        trace_id: trace.clone(),
        outcome: serde_json::to_string(&edited).unwrap_or_default(),
        created_at: at,
    };
    let event_draft = EventDraft::new(trace.clone(), reported_by.cloned(), at, event);
    [
        Write::Artifact(ArtifactWrite::Edit(Box::new(NewEdit { artifact, edit }))),
        Write::Event(event_draft),
    ]
}
