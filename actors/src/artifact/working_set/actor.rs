//! The working set's actor: one edit of a document after the other, each durable before the next.
//!
//! An edit is taken if it was made for the revision that stands (compare-and-swap); whoever was overtaken gets
//! the newer text. What is at work is an append: its acknowledgement comes back as a message. What the store
//! refuses, because somebody stored a version beside this actor, is read anew.
//! Invariant: `documents` holds only what is committed.
//! Not here: matching (`change.rs`), versions (`store/flush.rs`).

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactSnapshot, DocumentEdit, EffectId, ErrorInfo, EventDraft, NewEdit, SessionId,
    Splice, TraceId, Write,
};
use soong_storage::{
    store::{Append, StoreError},
    writer::Done,
};
use tokio::sync::oneshot;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::{Committed, Documents};
use crate::{
    actor_base::Mailbox,
    artifact::{
        change::Edited,
        document::Document,
        working_set::{ArtifactStoreSupervisorMsg, DocumentAccess, idle},
    },
    clock::now,
    observatory::Gauge,
};

/// How much text a set keeps at hand, in bytes; beyond it, what is not being edited is read anew when needed.
const KEPT_BYTES: usize = 32 * 1024 * 1024;
/// How often an edit is retried that the store refuses although the document has not changed.
const MAX_TRIES: u32 = 5;

type Reply<T> = oneshot::Sender<Result<T, ErrorInfo>>;

/// An edit that somebody wants recorded.
pub(in crate::artifact) struct EditWish {
    /// The document as it is with the edit; it was made for the revision before.
    pub(in crate::artifact) document: Arc<Document>,
    pub(in crate::artifact) edited: Edited,
    pub(in crate::artifact) splice: Splice,
    pub(in crate::artifact) old: Option<String>,
    pub(in crate::artifact) effect: EffectId,
    pub(in crate::artifact) trace_id: TraceId,
}

/// Mailbox of a working set.
pub(in crate::artifact) enum WorkingSetMsg {
    /// From whoever edits: what does a document hold?
    Look { name: String, reply: Reply<Option<Arc<Document>>> },
    /// From whoever edits: record this.
    Commit { name: String, wish: Arc<EditWish>, reply: Reply<Committed> },
    /// From its own reading task: what a document holds.
    Read { name: String, outcome: Result<Option<Arc<Document>>, ErrorInfo> },
    /// From the writer: what became of the edit of a document.
    Appended { name: String, outcome: Result<(), StoreError> },
    /// From its own timer: still idle?
    Idle { asked: u64 },
    /// For drills: die here.
    Crash,
}

/// What a set needs.
pub(in crate::artifact) struct WorkingSetActor {
    pub(in crate::artifact) store: DocumentAccess,
    pub(in crate::artifact) session: SessionId,
    pub(in crate::artifact) documents: Arc<Documents>,
    pub(in crate::artifact) gauge: Arc<Gauge>,
    pub(in crate::artifact) supervisor: ActorRef<ArtifactStoreSupervisorMsg>,
    pub(in crate::artifact) tasks: TaskTracker,
    pub(in crate::artifact) idle_after: Duration,
}

/// Somebody who waits for a document.
enum Waiting {
    Look(Reply<Option<Arc<Document>>>),
    /// The last number is how often it was refused.
    Commit(Arc<EditWish>, Reply<Committed>, u32),
}

/// A document that is being read or edited; everybody else waits.
struct Busy {
    /// The edit that is being recorded; `None` = the document is being read.
    committing: Option<(Arc<EditWish>, Reply<Committed>, u32)>,
    waiting: VecDeque<Waiting>,
}

/// What changes.
#[derive(Default)]
pub(in crate::artifact) struct WorkingSetState {
    busy: HashMap<String, Busy>,
    kept_bytes: usize,
    asked: u64,
    idle_timer: Option<AbortOnDropHandle<()>>,
}

impl Actor for WorkingSetActor {
    type Msg = WorkingSetMsg;
    type State = WorkingSetState;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<WorkingSetMsg>, (): ()) -> Result<WorkingSetState, ActorProcessingErr> {
        // What an earlier incarnation held may be behind what it had handed over.
        self.documents.clear();
        let mut state = WorkingSetState::default();
        self.rest(&myself, &mut state);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<WorkingSetMsg>,
        message: WorkingSetMsg,
        state: &mut WorkingSetState,
    ) -> Result<(), ActorProcessingErr> {
        self.gauge.took();
        match message {
            WorkingSetMsg::Look { name, reply } => self.take(&myself, state, name, Waiting::Look(reply)),
            WorkingSetMsg::Commit { name, wish, reply } => {
                self.take(&myself, state, name, Waiting::Commit(wish, reply, 0));
            }
            WorkingSetMsg::Read { name, outcome } => self.read(&myself, state, name, outcome),
            WorkingSetMsg::Appended { name, outcome } => self.appended(&myself, state, name, outcome),
            WorkingSetMsg::Idle { asked } if asked == state.asked && state.busy.is_empty() => {
                let _ = self.supervisor.cast(idle(&self.session, myself.get_id(), self.gauge.handled()));
                return Ok(());
            }
            WorkingSetMsg::Idle { .. } => return Ok(()),
            WorkingSetMsg::Crash => return Err("crashed on request".into()),
        }
        if state.busy.is_empty() {
            self.rest(&myself, state);
        } else {
            state.idle_timer = None;
            self.gauge.show("running", format!("{} documents", state.busy.len()));
        }
        Ok(())
    }
}

impl WorkingSetActor {
    /// Shows that there is nothing to do, and waits whether that lasts (ACT-7).
    fn rest(&self, myself: &ActorRef<WorkingSetMsg>, state: &mut WorkingSetState) {
        self.gauge.show("idle", "");
        state.asked += 1;
        let (mailbox, asked) = (Mailbox::new(myself.clone(), Arc::clone(&self.gauge)), state.asked);
        let wait = self.idle_after;
        state.idle_timer = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(wait).await;
            mailbox.cast(WorkingSetMsg::Idle { asked });
        })));
    }

    /// Deals with a request now, or when the document is free.
    fn take(&self, myself: &ActorRef<WorkingSetMsg>, state: &mut WorkingSetState, name: String, request: Waiting) {
        if let Some(busy) = state.busy.get_mut(&name) {
            busy.waiting.push_back(request);
            return;
        }
        let known = self.documents.get(&name).map(|document| Arc::clone(&document));
        match known {
            Some(document) => self.answer(myself, state, name, Some(document), VecDeque::from([request])),
            None => {
                state.busy.insert(name.clone(), Busy { committing: None, waiting: VecDeque::from([request]) });
                self.start_reading(myself, name);
            }
        }
    }

    /// Reads a document, behind everything that was handed to the writer before.
    fn start_reading(&self, myself: &ActorRef<WorkingSetMsg>, name: String) {
        let (store, session) = (self.store.clone(), self.session.clone());
        let mailbox = Mailbox::new(myself.clone(), Arc::clone(&self.gauge));
        self.tasks.spawn(async move {
            let outcome = match store.journal.append_and_wait(Append::default()).await {
                Ok(_) => Document::read(&store.reader, &session, &name).await,
                Err(error) => Err(ErrorInfo::from(&error)),
            };
            mailbox.cast(WorkingSetMsg::Read { name, outcome });
        });
    }

    fn read(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        outcome: Result<Option<Arc<Document>>, ErrorInfo>,
    ) {
        let Some(busy) = state.busy.remove(&name) else { return };
        match outcome {
            Ok(document) => {
                if let Some(document) = &document {
                    self.keep(state, &name, document);
                }
                self.answer(myself, state, name, document, busy.waiting);
            }
            Err(error) => {
                for waiting in busy.waiting {
                    // Who asked may have left.
                    match waiting {
                        Waiting::Look(reply) => drop(reply.send(Err(error.clone()))),
                        Waiting::Commit(_, reply, _) => drop(reply.send(Err(error.clone()))),
                    }
                }
            }
        }
    }

    /// Answers those who wait, until one of them changes the document; the others then wait for that.
    fn answer(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        document: Option<Arc<Document>>,
        mut waiting: VecDeque<Waiting>,
    ) {
        let stands = document.as_ref().map_or(0, |document| document.artifact.current_version);
        while let Some(request) = waiting.pop_front() {
            match request {
                Waiting::Look(reply) => drop(reply.send(Ok(document.clone()))),
                Waiting::Commit(wish, reply, tries) => {
                    if wish.document.artifact.current_version != stands + 1 {
                        drop(reply.send(Ok(Committed::Moved(document.clone()))));
                    } else {
                        self.start_recording(myself, &name, &wish);
                        state.busy.insert(name, Busy { committing: Some((wish, reply, tries)), waiting });
                        return;
                    }
                }
            }
        }
    }

    /// Appends an edit with its event; the acknowledgement comes back as a message.
    fn start_recording(&self, myself: &ActorRef<WorkingSetMsg>, name: &str, wish: &EditWish) {
        let mailbox = Mailbox::new(myself.clone(), Arc::clone(&self.gauge));
        let name = name.to_owned();
        let done: Done = Box::new(move |outcome| {
            let outcome = outcome.map(|_| ()).map_err(|(error, _)| error);
            mailbox.cast(WorkingSetMsg::Appended { name, outcome });
        });
        self.store.journal.append(Append { fence: None, writes: record(wish) }, done);
    }

    fn appended(
        &self,
        myself: &ActorRef<WorkingSetMsg>,
        state: &mut WorkingSetState,
        name: String,
        outcome: Result<(), StoreError>,
    ) {
        let Some(mut busy) = state.busy.remove(&name) else { return };
        let Some((wish, reply, tries)) = busy.committing.take() else { return };
        match outcome {
            Ok(()) => {
                self.keep(state, &name, &wish.document);
                self.store.inventories.void(&wish.document.artifact.scope);
                let edited = Edited { snapshot: Some(snapshot(&wish)), ..wish.edited.clone() };
                let _ = reply.send(Ok(Committed::Done(Box::new(edited))));
                self.answer(myself, state, name, Some(Arc::clone(&wish.document)), busy.waiting);
            }
            Err(error) => {
                match error {
                    // It is the first edit: what is missing is its session or run, and stays so.
                    StoreError::Missing(_) if wish.document.artifact.current_version <= 1 => {
                        drop(reply.send(Err(ErrorInfo::from(&error))));
                    }
                    // Somebody stored a version, or deleted it, beside us: the wish has to be looked at anew.
                    StoreError::Exists(_) | StoreError::Missing(_) if tries < MAX_TRIES => {
                        busy.waiting.push_front(Waiting::Commit(wish, reply, tries + 1));
                    }
                    error => drop(reply.send(Err(ErrorInfo::from(&error)))),
                }
                // What stands is for the store to say.
                self.documents.remove(&name);
                self.start_reading(myself, name.clone());
                state.busy.insert(name, busy);
            }
        }
    }

    /// Keeps a document at hand; lets go of others where that is too much.
    fn keep(&self, state: &mut WorkingSetState, name: &str, document: &Arc<Document>) {
        let before = self.documents.insert(name.to_owned(), Arc::clone(document));
        state.kept_bytes = (state.kept_bytes + document.weight()).saturating_sub(before.map_or(0, |one| one.weight()));
        if state.kept_bytes > KEPT_BYTES {
            self.documents.retain(|other, _| other == name || state.busy.contains_key(other));
            state.kept_bytes = self.documents.iter().map(|document| document.weight()).sum();
        }
    }
}

fn snapshot(wish: &EditWish) -> ArtifactSnapshot {
    let text = wish.document.text().unwrap_or_default();
    ArtifactSnapshot::of(&wish.document.artifact, &text)
}

/// The writes of an edit: its row, and the event that tells of it.
fn record(wish: &EditWish) -> Vec<Write> {
    let artifact: &Artifact = &wish.document.artifact;
    let edit = DocumentEdit {
        artifact_id: artifact.artifact_id.clone(),
        revision: artifact.current_version,
        update_type: wish.edited.update_type,
        splice: wish.splice.clone(),
        old: wish.old.clone(),
        effect: wish.effect.clone(),
        trace_id: wish.trace_id.clone(),
        outcome: serde_json::to_string(&wish.edited).unwrap_or_default(),
        created_at: artifact.updated_at,
    };
    let event = ArtifactEvent::Edited {
        name: artifact.label().to_owned(),
        update_type: wish.edited.update_type,
        layer: wish.edited.layer,
        snapshot: snapshot(wish),
    };
    let draft = EventDraft::new(wish.trace_id.clone(), Some(wish.effect.run_id.clone()), now(), event);
    vec![Write::Edit(Box::new(NewEdit { artifact: artifact.clone(), edit })), Write::Event(draft)]
}
