//! Actor of a working set: serializes the edits of a document, each durable before the next.
//!
//! An edit is accepted if it was made for the current revision (compare-and-swap); otherwise the
//! caller receives the newer text. The append runs outside of the actor, and its acknowledgement
//! arrives as a message. If the store rejects it because a version was stored outside of this
//! actor, the document is read again.
//!
//! Invariant: `documents` contains only committed documents.
//!
//! Elsewhere: matching (`change.rs`), versions (`store/flush.rs`).

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactSnapshot, ArtifactWrite, DocumentEdit, EffectId, ErrorInfo,
    EventDraft, NewEdit, SessionId, Splice, TraceId, Write,
};
use soong_storage::{
    store::{Append, StoreError},
    writer::AppendCallback,
};
use soong_tool::artifact::Edited;
use tokio::sync::oneshot;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{CommitOutcome, DocumentCache};
use crate::{
    actor_base::Mailbox,
    actor_tree::ActorStatus,
    artifact::{
        document::Document,
        working_set::{ArtifactStoreSupervisorMsg, DocumentAccess, idle},
    },
    clock::now,
};

/// Maximum amount of cached text, in bytes. Beyond it, documents that are not being edited are
/// evicted.
const MAX_CACHED_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of retries of an edit that the store rejects.
const MAX_RETRIES: u32 = 5;

type Reply<T> = oneshot::Sender<Result<T, ErrorInfo>>;

/// Request to record an edit.
pub(in crate::artifact) struct EditCommand {
    /// Document including the edit, which was made for the previous revision.
    pub(in crate::artifact) document: Arc<Document>,
    pub(in crate::artifact) edited: Edited,
    pub(in crate::artifact) splice: Splice,
    pub(in crate::artifact) old: Option<String>,
    pub(in crate::artifact) effect: EffectId,
    pub(in crate::artifact) trace_id: TraceId,
}

/// Mailbox of a working set.
pub(in crate::artifact) enum WorkingSetMsg {
    /// Sent by an edit: requests the current state of a document.
    Read {
        name: String,
        reply: Reply<Option<Arc<Document>>>,
    },
    /// Sent by an edit: records it.
    Commit {
        name: String,
        command: Arc<EditCommand>,
        reply: Reply<CommitOutcome>,
    },
    /// Sent by the task that reads a document: its result.
    ReadDone {
        name: String,
        outcome: Result<Option<Arc<Document>>, ErrorInfo>,
    },
    /// Sent by the writer thread: the result of appending an edit.
    Appended {
        name: String,
        outcome: Result<(), StoreError>,
    },
    /// Sent by the idle timer of the actor itself.
    IdleTimeout { generation: u64 },
    /// For fault-injection tests: makes the actor fail.
    Crash,
}

/// The actor of a working set and its handles.
pub(in crate::artifact) struct WorkingSetActor {
    pub(in crate::artifact) store: DocumentAccess,
    pub(in crate::artifact) session: SessionId,
    pub(in crate::artifact) documents: Arc<DocumentCache>,
    pub(in crate::artifact) status: Arc<ActorStatus>,
    pub(in crate::artifact) supervisor: ActorRef<ArtifactStoreSupervisorMsg>,
    pub(in crate::artifact) tasks: TaskTracker,
    pub(in crate::artifact) idle_after: Duration,
}

/// Request that waits for a document.
enum PendingRequest {
    Read(Reply<Option<Arc<Document>>>),
    /// The last field is the number of times that the store rejected the edit.
    Commit(Arc<EditCommand>, Reply<CommitOutcome>, u32),
}

/// A document that is being read or edited. Other requests for it wait.
struct BusyDocument {
    /// The edit that is being recorded. `None`: the document is being read.
    committing: Option<(Arc<EditCommand>, Reply<CommitOutcome>, u32)>,
    waiting: VecDeque<PendingRequest>,
}

/// Mutable state of the actor.
#[derive(Default)]
pub(in crate::artifact) struct WorkingSetState {
    busy: HashMap<String, BusyDocument>,
    cached_bytes: usize,
    idle_timer_generation: u64,
    idle_timer: Option<AbortOnDropHandle<()>>,
}

impl Actor for WorkingSetActor {
    type Msg = WorkingSetMsg;
    type State = WorkingSetState;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<WorkingSetMsg>,
        (): (),
    ) -> Result<WorkingSetState, ActorProcessingErr> {
        // The cache of an earlier incarnation may lack edits that it had already handed to the
        // writer.
        self.documents.clear();
        let mut state = WorkingSetState::default();
        self.become_idle(&myself, &mut state);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<WorkingSetMsg>,
        message: WorkingSetMsg,
        state: &mut WorkingSetState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            WorkingSetMsg::Read { name, reply } => {
                self.handle_request(&myself, state, name, PendingRequest::Read(reply))
            }
            WorkingSetMsg::Commit {
                name,
                command,
                reply,
            } => {
                self.handle_request(
                    &myself,
                    state,
                    name,
                    PendingRequest::Commit(command, reply, 0),
                );
            }
            WorkingSetMsg::ReadDone { name, outcome } => self.read(&myself, state, name, outcome),
            WorkingSetMsg::Appended { name, outcome } => {
                self.appended(&myself, state, name, outcome)
            }
            WorkingSetMsg::IdleTimeout { generation }
                if generation == state.idle_timer_generation && state.busy.is_empty() =>
            {
                let _ = self.supervisor.cast(idle(
                    &self.session,
                    myself.get_id(),
                    self.status.handled(),
                ));
                return Ok(());
            }
            WorkingSetMsg::IdleTimeout { .. } => return Ok(()),
            WorkingSetMsg::Crash => return Err("crashed on request".into()),
        }
        if state.busy.is_empty() {
            self.become_idle(&myself, state);
        } else {
            state.idle_timer = None;
            self.status
                .set_state("running", format!("{} documents", state.busy.len()));
        }
        Ok(())
    }
}

impl WorkingSetActor {
    /// Publishes the idle status, and starts the idle timer (ACT-7).
    fn become_idle(&self, myself: &ActorRef<WorkingSetMsg>, state: &mut WorkingSetState) {
        self.status.set_state("idle", "");
        state.idle_timer_generation += 1;
        let mailbox = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        let generation = state.idle_timer_generation;
        let wait = self.idle_after;
        state.idle_timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            mailbox.send(WorkingSetMsg::IdleTimeout { generation });
        })));
    }

    /// Handles a request immediately, or when the document is free.
    fn handle_request(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        request: PendingRequest,
    ) {
        if let Some(busy) = state.busy.get_mut(&name) {
            busy.waiting.push_back(request);
            return;
        }
        let known = self
            .documents
            .get(&name)
            .map(|document| Arc::clone(&document));
        match known {
            Some(document) => self.answer(
                myself,
                state,
                name,
                Some(document),
                VecDeque::from([request]),
            ),
            None => {
                state.busy.insert(
                    name.clone(),
                    BusyDocument {
                        committing: None,
                        waiting: VecDeque::from([request]),
                    },
                );
                self.start_reading(myself, name);
            }
        }
    }

    /// Reads a document after everything that was handed to the writer before has been committed.
    fn start_reading(&self, myself: &ActorRef<WorkingSetMsg>, name: String) {
        let store = self.store.clone();
        let session = self.session.clone();
        let mailbox = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        self.tasks.spawn(async move {
            let outcome = match store.journal.append_and_wait(Append::default()).await {
                Ok(_) => Document::read(&store.reader, &session, &name).await,
                Err(error) => Err(ErrorInfo::from(&error)),
            };
            mailbox.send(WorkingSetMsg::ReadDone { name, outcome });
        });
    }

    fn read(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        outcome: Result<Option<Arc<Document>>, ErrorInfo>,
    ) {
        let Some(busy) = state.busy.remove(&name) else {
            return;
        };
        match outcome {
            Ok(document) => {
                if let Some(document) = &document {
                    self.cache(state, &name, document);
                }
                self.answer(myself, state, name, document, busy.waiting);
            }
            Err(error) => {
                for waiting in busy.waiting {
                    // The caller may have dropped its receiver.
                    match waiting {
                        PendingRequest::Read(reply) => drop(reply.send(Err(error.clone()))),
                        PendingRequest::Commit(_, reply, _) => drop(reply.send(Err(error.clone()))),
                    }
                }
            }
        }
    }

    /// Answers the waiting requests in order until one of them starts an edit. The remaining ones
    /// wait for that edit.
    fn answer(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        document: Option<Arc<Document>>,
        mut waiting: VecDeque<PendingRequest>,
    ) {
        let current_version = document
            .as_ref()
            .map_or(0, |document| document.artifact.current_version);
        while let Some(request) = waiting.pop_front() {
            match request {
                PendingRequest::Read(reply) => drop(reply.send(Ok(document.clone()))),
                PendingRequest::Commit(command, reply, retries) => {
                    if command.document.artifact.current_version != current_version + 1 {
                        drop(reply.send(Ok(CommitOutcome::Conflict(document.clone()))));
                    } else {
                        self.start_recording(myself, &name, &command);
                        state.busy.insert(
                            name,
                            BusyDocument {
                                committing: Some((command, reply, retries)),
                                waiting,
                            },
                        );
                        return;
                    }
                }
            }
        }
    }

    /// Appends an edit with its event. The acknowledgement arrives as a message.
    fn start_recording(&self, myself: &ActorRef<WorkingSetMsg>, name: &str, command: &EditCommand) {
        let mailbox = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        let name = name.to_owned();
        let done: AppendCallback = Box::new(move |outcome| {
            let outcome = outcome.map(|_| ()).map_err(|(error, _)| error);
            mailbox.send(WorkingSetMsg::Appended { name, outcome });
        });
        self.store.journal.append(
            Append {
                fence: None,
                writes: edit_writes(command),
            },
            done,
        );
    }

    fn appended(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        outcome: Result<(), StoreError>,
    ) {
        let Some(mut busy) = state.busy.remove(&name) else {
            return;
        };
        let Some((command, reply, retries)) = busy.committing.take() else {
            return;
        };
        match outcome {
            Ok(()) => {
                self.cache(state, &name, &command.document);
                self.store
                    .inventories
                    .invalidate(&command.document.artifact.scope);
                let edited = Edited {
                    snapshot: Some(snapshot(&command)),
                    ..command.edited.clone()
                };
                let _ = reply.send(Ok(CommitOutcome::Recorded(Box::new(edited))));
                self.answer(
                    myself,
                    state,
                    name,
                    Some(Arc::clone(&command.document)),
                    busy.waiting,
                );
            }
            Err(error) => {
                match error {
                    // For the first edit, the missing record is the session or the run, so a retry
                    // cannot succeed.
                    StoreError::NotFound(_) if command.document.artifact.current_version <= 1 => {
                        drop(reply.send(Err(ErrorInfo::from(&error))));
                    }
                    // A version was stored, or the artifact was deleted, outside of this actor:
                    // check the request again.
                    StoreError::AlreadyExists(_) | StoreError::NotFound(_)
                        if retries < MAX_RETRIES =>
                    {
                        busy.waiting.push_front(PendingRequest::Commit(
                            command,
                            reply,
                            retries + 1,
                        ));
                    }
                    error => drop(reply.send(Err(ErrorInfo::from(&error)))),
                }
                // Only the store knows the current state now.
                self.documents.remove(&name);
                self.start_reading(myself, name.clone());
                state.busy.insert(name, busy);
            }
        }
    }

    /// Caches a document. If the cache becomes too large, evicts all documents that are not busy.
    fn cache(&self, state: &mut WorkingSetState, name: &str, document: &Arc<Document>) {
        let before = self.documents.insert(name.to_owned(), Arc::clone(document));
        state.cached_bytes = (state.cached_bytes + document.size_bytes())
            .saturating_sub(before.map_or(0, |one| one.size_bytes()));
        if state.cached_bytes > MAX_CACHED_BYTES {
            self.documents
                .retain(|other, _| other == name || state.busy.contains_key(other));
            state.cached_bytes = self
                .documents
                .iter()
                .map(|document| document.size_bytes())
                .sum();
        }
    }
}

fn snapshot(command: &EditCommand) -> ArtifactSnapshot {
    let text = command.document.text().unwrap_or_default();
    ArtifactSnapshot::new(&command.document.artifact, &text)
}

/// Returns the writes of an edit: its row and its event.
fn edit_writes(command: &EditCommand) -> Vec<Write> {
    let artifact: &Artifact = &command.document.artifact;
    let edit = DocumentEdit {
        artifact_id: artifact.artifact_id.clone(),
        revision: artifact.current_version,
        update_type: command.edited.update_type,
        splice: command.splice.clone(),
        old: command.old.clone(),
        effect: command.effect.clone(),
        trace_id: command.trace_id.clone(),
        outcome: serde_json::to_string(&command.edited).unwrap_or_default(),
        created_at: artifact.updated_at,
    };
    let event = ArtifactEvent::Edited {
        name: artifact.label().to_owned(),
        update_type: command.edited.update_type,
        layer: command.edited.layer,
        snapshot: snapshot(command),
    };
    let draft = EventDraft::new(
        command.trace_id.clone(),
        Some(command.effect.run_id.clone()),
        now(),
        event,
    );
    vec![
        Write::Artifact(ArtifactWrite::Edit(Box::new(NewEdit {
            artifact: artifact.clone(),
            edit,
        }))),
        Write::Event(draft),
    ]
}
