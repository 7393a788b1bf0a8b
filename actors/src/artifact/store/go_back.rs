//! Documents that move with the conversation: what makes them what they were at one of its messages (MSG-4).
//!
//! Nothing is taken back: a document gets its earlier text as one more edit, and one that was not there yet lets
//! go of its name. So every state can be reached again, and versions stay. What another writer has changed since
//! stays as it is; the user's own artifacts do not move.
//! Not here: which message it is, and the commit in which all of it happens.

use std::sync::Arc;

use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactId, ArtifactSnapshot, DocumentEdit, EffectId, ErrorInfo, EventDraft, NewEdit,
    RunId, SessionId, Splice, TraceId, UpdateType, Write,
};
use soong_storage::store::ChangedDocument;

use crate::{
    artifact::{ArtifactStore, change::Edited, content},
    clock::now,
};

/// What moves documents to another moment.
#[derive(Debug, Default)]
pub(crate) struct Moved {
    /// Edits with their events, for the commit that moves the head.
    pub(crate) writes: Vec<Write>,
    /// The documents that move.
    pub(crate) restored: Vec<String>,
    /// Those that stay, because somebody else has changed them since.
    pub(crate) left: Vec<String>,
}

impl ArtifactStore {
    /// Plans what gives a trace's documents back what they held at a place among the events; `by` is the run that
    /// the edits are booked to, and the one on whose timeline they are told, where one is at work.
    pub(crate) async fn plan_to_go_back(
        &self,
        trace: &TraceId,
        by: (&RunId, Option<&RunId>),
        lsn: u64,
    ) -> Result<Moved, ErrorInfo> {
        let wanted = trace.clone();
        let changed = self.reading.read(move |reader| reader.changed_documents(&wanted, lsn)).await?;
        let mut moved = Moved::default();
        // Names are let go of before they are taken.
        let (gone, back): (Vec<ChangedDocument>, Vec<ChangedDocument>) =
            changed.into_iter().partition(|document| !document.is_there);
        let mut let_go: Vec<ArtifactId> = Vec::new();
        for document in gone.into_iter().chain(back) {
            let name = document.artifact.name.clone().or_else(|| document.artifact.withdrawn.clone());
            let Some(name) = name else { continue };
            if document.is_foreign {
                moved.left.push(name);
                continue;
            }
            if !document.is_there && document.artifact.withdrawn.is_some() {
                continue; // it is not there now either
            }
            if document.is_there && document.artifact.withdrawn.is_some() {
                // Its name may belong to another one by now, that does not let go of it.
                let holder = self.reader.row(&document.artifact.scope, &name).await?;
                if holder.is_some_and(|holder| !let_go.contains(&holder.artifact_id)) {
                    moved.left.push(name);
                    continue;
                }
            }
            if !document.is_there {
                let_go.push(document.artifact.artifact_id.clone());
            }
            let text: Option<Arc<str>> = match document.is_there {
                true => self.reader.text_at(&document.artifact, document.revision).await?,
                false => None,
            };
            moved.writes.extend(edit(document.artifact, &name, text.as_deref(), trace, by));
            moved.restored.push(name);
        }
        moved.restored.sort();
        moved.left.sort();
        Ok(moved)
    }

    /// Forgets what is at hand of a session's documents: they have moved.
    pub(crate) fn have_moved(&self, session: &SessionId, names: &[String]) {
        for name in names {
            self.working.forget(session, name);
        }
        self.forget(session);
    }
}

/// The edit by which an artifact holds `text` from now on, and the event that tells of it; `None` = it is not there.
fn edit(
    before: Artifact,
    name: &str,
    text: Option<&str>,
    trace: &TraceId,
    (run, told_by): (&RunId, Option<&RunId>),
) -> [Write; 2] {
    let at = now();
    let update_type = if text.is_some() { UpdateType::Rewrite } else { UpdateType::Withdraw };
    let inserted = text.unwrap_or_default().to_owned();
    let splice = Splice { start: 0, removed: before.size, inserted };
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
            let snapshot = ArtifactSnapshot::of(&artifact, text);
            ArtifactEvent::Edited { name: name.to_owned(), update_type, layer: None, snapshot }
        }
        None => ArtifactEvent::Withdrawn { name: name.to_owned(), artifact_id: artifact.artifact_id.clone() },
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
        tool_call_id: format!("go_back:{}:{}", artifact.artifact_id, artifact.current_version),
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
    let told = EventDraft::new(trace.clone(), told_by.cloned(), at, event);
    [Write::Edit(Box::new(NewEdit { artifact, edit })), Write::Event(told)]
}
