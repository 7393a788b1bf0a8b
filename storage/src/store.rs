//! The store as traits: batches of appends in, records out (DUR-1, DUR-2, DUR-7).
//!
//! An [`Append`] is one atomic unit. The store gives out every cursor, refuses writes of stale
//! incarnations, and keeps the rows that lists and records are read from in step with the events
//! that are appended: nobody else derives them.
//! Not here: the thread that writes (`writer.rs`), SQL (`sqlite.rs`).

mod filter;

pub use filter::{PermissionFilter, QuestionFilter, SessionFilter, TraceFilter, UsageFilter};

use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactVersion, ChildResult, Collaborator, DocumentEdit, ErrorCode,
    ErrorInfo, EventRecord, GoalTree, Message, Permission, PermissionId, Question, QuestionId, Run, RunId, Session,
    SessionId, Trace, TraceId, UsageBy, UsageRow, Write,
};

/// Why the store refused or failed. A refused append changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer incarnation of the run has opened its journal (ACT-3).
    #[error("run {0} was taken over by a newer incarnation")]
    Stale(RunId),
    /// Something of that id or name exists.
    #[error("{0} exists already")]
    Exists(String),
    /// Somebody was first.
    #[error("{0} is decided already")]
    Decided(String),
    /// The conversation's head is not where the append says that it is.
    #[error("the conversation of trace {0} has gone on meanwhile: see where it stands now")]
    Moved(TraceId),
    /// Something that the append refers to does not exist.
    #[error("{0} does not exist")]
    Missing(String),
    /// The place in a list is none that the list before it has named.
    #[error("{0:?} is no cursor: take `next_cursor` of the page before as it is")]
    Cursor(String),
    /// A run of the session is queued or at work, so that it cannot be removed.
    #[error("session {0} has a run that waits or is at work: let it end, or stop it")]
    Active(SessionId),
    /// A session of that id is on its way out; the id is free when it is gone (DUR-8).
    #[error("session {0} is being deleted: try again in a moment")]
    Removing(SessionId),
    /// The disk failed, is full or read-only; the same append may succeed later (DUR-6).
    #[error("the database could not be written or read: {0}")]
    Io(String),
    /// A statement cannot be run, or a value not be stored: it will not succeed later either.
    #[error("a statement of the store failed, which is a defect of soong: {0}")]
    Defect(String),
    /// What holds the bytes of artifacts failed, is full or read-only; the same request may succeed
    /// later (DUR-6).
    #[error("the bytes of an artifact could not be written or read: {0}")]
    Blob(String),
    /// What was to be stored could not be read; nothing was stored.
    #[error("what was to be stored could not be read: {0}")]
    Source(String),
    /// What was to be stored is larger than it may be; nothing was stored.
    #[error("more than {limit_bytes} bytes were to be stored: that is the limit")]
    TooLarge {
        /// How much is allowed.
        limit_bytes: u64,
    },
    /// The file is no database, or damaged.
    #[error("{0}")]
    Corrupt(String),
    /// The file was written by a newer version; it was left untouched (DUR-5).
    #[error("the database has format {found}, this version knows up to {known}: use a newer soong")]
    Newer {
        /// The file's format.
        found: u32,
        /// The newest that this build knows.
        known: u32,
    },
    /// The file was written by an older version; the next writer brings it up to date (DUR-5).
    #[error(
        "the database has format {found} of an earlier version: start a run or `soong serve`, which brings it to format {known} and keeps a copy"
    )]
    Older {
        /// The file's format.
        found: u32,
        /// The newest that this build knows.
        known: u32,
    },
    /// The writer has been closed.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Blob(_))
    }
}

impl From<&StoreError> for ErrorInfo {
    fn from(error: &StoreError) -> Self {
        let code = match error {
            StoreError::Exists(_) | StoreError::Source(_) | StoreError::Cursor(_) => ErrorCode::ValidationError,
            StoreError::Decided(_) => ErrorCode::AlreadyDecided,
            StoreError::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            StoreError::Closed => ErrorCode::Closing,
            StoreError::Defect(_) => ErrorCode::InternalError,
            StoreError::Active(_) | StoreError::Removing(_) | StoreError::Moved(_) => ErrorCode::SessionActive,
            _ => ErrorCode::StorageError,
        };
        match error.is_transient() || code == ErrorCode::SessionActive {
            true => Self::retryable(code, error.to_string()),
            false => Self::new(code, error.to_string()),
        }
    }
}

/// Proves which incarnation of a run writes, and which of its appends this is.
///
/// `number` counts an incarnation's appends from 1. An append whose number is recorded already is
/// acknowledged again and not repeated, so that a writer may retry after an unclear failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The run.
    pub run_id: RunId,
    /// Its incarnation, as `Write::OpenRun` gave it out.
    pub epoch: u64,
    /// Which append of that incarnation, from 1.
    pub number: u64,
    /// How long the run has been at work so far, in milliseconds of a clock that nobody sets; it becomes the run's
    /// duration while it has not ended. `None` = as before.
    pub used_ms: Option<u64>,
}

/// One atomic unit of writing.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// Who writes; absent where no run does.
    pub fence: Option<Fence>,
    /// What is written, in order.
    pub writes: Vec<Write>,
}

/// A task journal that is not known to be complete: what it begins with (TASK-1).
///
/// The store notes one with the event that begins a user's orchestrator run, unless a program drives it.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskJournal {
    /// The run.
    pub run: Run,
    /// The project directory of its session.
    pub project_dir: String,
    /// The event that began the run, on its trace's timeline.
    pub first_event: u64,
    /// The goal tree as it stood at that event, without sub-traces and stats.
    pub goals: GoalTree,
}

/// A session that is being removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The session.
    pub session_id: SessionId,
    /// How far it has come.
    pub stage: RemovalStage,
}

/// How far the removal of a session has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RemovalStage {
    /// Its rows are all there; its files are on their way out.
    Files,
    /// Its files are gone; its rows go.
    Rows,
}

impl RemovalStage {
    /// Returns the word under which it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Rows => "rows",
        }
    }
}

/// What the store says about a committed append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ack {
    /// The epoch that `Write::OpenRun` took.
    pub epoch: Option<u64>,
    /// The ids of the append's events, in order; empty where the append was recorded before.
    pub events: Vec<EventIds>,
}

/// What the store gives to one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIds {
    /// Place in the whole store.
    pub lsn: u64,
    /// Place on the trace's timeline.
    pub event_id: u64,
    /// Place among the run's events; 0 where no run acts.
    pub run_seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// Place among the session's events.
    pub session_seq: u64,
}

/// The writing side; owned by one thread.
pub trait Store: Send {
    /// Commits a batch in one transaction, answering each append by itself.
    ///
    /// A refused append leaves the others alone. `Err` = nothing of the batch is known to be
    /// durable: the store closes its connection, and opens and checks it anew on the next call;
    /// it never repeats a failed sync (DUR-2).
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError>;
}

impl Store for Box<dyn Store> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        self.as_mut().commit(batch)
    }
}

/// Which messages of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePath {
    /// From the first to the head (MSG-1).
    Main,
    /// What the main path would be with this message as head; it need not lie on the main path.
    To(u64),
    /// All, by sequence.
    All,
}

/// A message from which a conversation can go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The message, or where it makes or answers tool calls the last of their results (MSG-3).
    pub sequence: u64,
    /// Where that one stands among all events.
    pub lsn: u64,
    /// Up to where what follows from it stands, such as a goal that it closes; behind that comes the next message.
    pub until_lsn: u64,
    /// The run that said it; `None` where that is not known, or it is a copy.
    pub run_id: Option<RunId>,
    /// Whether it leads to the head, or is it.
    pub is_on_path: bool,
    /// The trace's head.
    pub head: u64,
}

/// A document with what it was at an earlier time.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedDocument {
    /// As it is now.
    pub artifact: Artifact,
    /// The number that it had then; 0 = it was not made yet.
    pub revision: u64,
    /// Whether it was there then: made, and not withdrawn.
    pub is_there: bool,
    /// Whether somebody else has changed it since as well.
    pub is_foreign: bool,
}

/// A page of a list, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Where the next page begins; absent at the end. Opaque.
    pub next_cursor: Option<String>,
}

/// Where the bytes of a stored version lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// Which version of it.
    pub version: u64,
    /// Where its blob lies, relative to the home.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The artifacts of a scope in short, without those that only help to find defects.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentArtifacts {
    /// Those with a name that were changed last, the last one first.
    pub named: Vec<Artifact>,
    /// How many have a name.
    pub named_count: u64,
    /// How many have none.
    pub unnamed_count: u64,
}

/// The reading side; never waits for the writer. Calls block: use a blocking thread.
///
/// A session that is being removed is not there, nor is what belongs to it, for all calls but
/// [`Reader::removals`] and [`Reader::removal_blobs`].
pub trait Reader: Send + Sync {
    /// Reads a session.
    fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;
    /// Reads the number that identifies this store. A restored backup gets a new one. 0 = none yet.
    fn store_id(&self) -> Result<u32, StoreError>;
    /// Reads to which users these sessions belong; those that are not there are left out.
    fn session_owners(&self, ids: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError>;
    /// Lists sessions, newest first.
    fn sessions(&self, filter: &SessionFilter, limit: usize, cursor: Option<&str>)
    -> Result<Page<Session>, StoreError>;
    /// Reads a trace.
    fn trace(&self, id: &TraceId) -> Result<Option<Trace>, StoreError>;
    /// Lists traces, newest first.
    fn traces(&self, filter: &TraceFilter, limit: usize, cursor: Option<&str>) -> Result<Page<Trace>, StoreError>;
    /// Lists the children of a trace in the order of their start; not those of the trace that it is a copy of.
    fn sub_traces(&self, parent: &TraceId) -> Result<Vec<Trace>, StoreError>;
    /// Lists the children of the trace that a trace is a copy of, as far as there were any when it was copied and
    /// they are there still, in the order of their start.
    fn linked_traces(&self, id: &TraceId) -> Result<Vec<Trace>, StoreError>;
    /// Reads a trace's goals with their sub-traces and stats.
    fn goal_tree(&self, id: &TraceId) -> Result<Option<GoalTree>, StoreError>;
    /// Reads a trace's messages in order.
    fn messages(&self, id: &TraceId, path: MessagePath) -> Result<Vec<Message>, StoreError>;
    /// Reads those messages of a trace that have these sequences, in the order given, and no other; what
    /// there is none of is left out.
    fn messages_at(&self, id: &TraceId, sequences: &[u64]) -> Result<Vec<Message>, StoreError>;
    /// Looks at a message as a place to go on from; `None` = nobody can (see [`Place`]).
    fn place(&self, id: &TraceId, sequence: u64) -> Result<Option<Place>, StoreError>;
    /// Reads the goal tree as it was at a place among the events, without sub-traces and stats.
    fn goal_tree_at(&self, id: &TraceId, lsn: u64) -> Result<Option<GoalTree>, StoreError>;
    /// Reads the collaborators of a trace as they were at a place among the events, in the order of their first
    /// appearance; of an unknown trace none.
    fn collaborators_at(&self, id: &TraceId, lsn: u64) -> Result<Vec<Collaborator>, StoreError>;
    /// Reads up to `limit` events of a trace after `since` in order.
    fn events(&self, id: &TraceId, since: u64, limit: usize) -> Result<Vec<EventRecord>, StoreError>;
    /// Reads all events of a run in order.
    fn run_events(&self, id: &RunId) -> Result<Vec<EventRecord>, StoreError>;
    /// Reads up to `limit` events of a whole session with an lsn above `since_lsn` in order.
    fn session_events(&self, id: &SessionId, since_lsn: u64, limit: usize) -> Result<Vec<EventRecord>, StoreError>;
    /// Finds where the events of a session after `session_seq` begin, without reading those before: the
    /// `since_lsn` from which [`Reader::session_events`] gives them and no other. 0 where there is no session.
    fn session_lsn(&self, id: &SessionId, session_seq: u64) -> Result<u64, StoreError>;
    /// Reads a run.
    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError>;
    /// Reads the last run of a trace.
    fn last_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError>;
    /// Reads the last run of a trace that left its queue and began.
    fn last_begun_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError>;
    /// Lists runs that have not ended, of one session or of all, in the order of their start.
    fn live_runs(&self, session: Option<&SessionId>) -> Result<Vec<Run>, StoreError>;
    /// Lists the children of a run in the order of their start.
    fn children(&self, id: &RunId) -> Result<Vec<Run>, StoreError>;
    /// Reads what the ended children of a run brought back.
    fn child_results(&self, id: &RunId) -> Result<Vec<ChildResult>, StoreError>;
    /// Reads a question.
    fn question(&self, id: &QuestionId) -> Result<Option<Question>, StoreError>;
    /// Lists questions, the oldest first.
    fn questions(&self, filter: &QuestionFilter) -> Result<Vec<Question>, StoreError>;
    /// Reads a permission.
    fn permission(&self, id: &PermissionId) -> Result<Option<Permission>, StoreError>;
    /// Lists permissions, the oldest first.
    fn permissions(&self, filter: &PermissionFilter) -> Result<Vec<Permission>, StoreError>;
    /// Lists the artifacts of a scope by name, those without one last.
    fn artifacts(&self, scope: &ArtifactScope) -> Result<Vec<Artifact>, StoreError>;
    /// Reads up to `limit` artifacts of a scope that were changed last, and how many there are.
    fn recent_artifacts(&self, scope: &ArtifactScope, limit: usize) -> Result<RecentArtifacts, StoreError>;
    /// Lists the artifacts of all sessions with the bytes of all their versions, the one changed longest ago
    /// first.
    fn session_artifacts(&self) -> Result<Vec<(Artifact, u64)>, StoreError>;
    /// Lists the documents of a trace's session that its runs have changed since a place among the events, in the
    /// order in which they were made.
    fn changed_documents(&self, id: &TraceId, since_lsn: u64) -> Result<Vec<ChangedDocument>, StoreError>;
    /// Lists the documents with edits which are no stored version yet, by name: edits of a run, and those that ended
    /// runs of its session have left.
    fn unflushed(&self, run: &RunId) -> Result<Vec<Artifact>, StoreError>;
    /// Reads the edits of a document with a revision above `after` and up to `upto`, in order.
    fn edits(&self, id: &ArtifactId, after: u64, upto: u64) -> Result<Vec<DocumentEdit>, StoreError>;
    /// Reads the edits that a run made in one of its turns, in the order of their recording.
    fn turn_edits(&self, run: &RunId, turn: u32) -> Result<Vec<DocumentEdit>, StoreError>;
    /// Lists the artifacts of a session that were there at a place among the events, each as it is now and with the
    /// number that it had then; those changed last come last.
    fn artifacts_at(&self, id: &SessionId, lsn: u64) -> Result<Vec<(Artifact, u64)>, StoreError>;
    /// Reads an artifact of a scope by name, else by id, else by the id of what it is a copy of.
    fn artifact(&self, scope: &ArtifactScope, name: &str) -> Result<Option<Artifact>, StoreError>;
    /// Lists the stored versions of an artifact in order.
    fn versions(&self, id: &ArtifactId) -> Result<Vec<ArtifactVersion>, StoreError>;
    /// Returns where the blob of a version lies, relative to the home.
    fn blob_path(&self, id: &ArtifactId, version: u64) -> Result<Option<String>, StoreError> {
        Ok(self.blob(id, version)?.map(|(path, _)| path))
    }
    /// The same with its MIME type.
    fn blob(&self, id: &ArtifactId, version: u64) -> Result<Option<(String, String)>, StoreError>;
    /// Lists where the blobs of an artifact's versions lie, in their order.
    fn blob_paths(&self, id: &ArtifactId) -> Result<Vec<String>, StoreError>;
    /// Lists blobs that were announced and never registered.
    fn blob_intents(&self) -> Result<Vec<String>, StoreError>;
    /// Lists the sessions that are being removed, in the order in which they were made.
    fn removals(&self) -> Result<Vec<Removal>, StoreError>;
    /// Lists where the blobs of a session that is being removed lie, relative to the home.
    fn removal_blobs(&self, id: &SessionId) -> Result<Vec<String>, StoreError>;
    /// Reads what the task journal of a run begins with; `None` = it has none, or it is complete.
    fn task_journal(&self, id: &RunId) -> Result<Option<TaskJournal>, StoreError>;
    /// Lists the runs whose task journals are not known to be complete, in the order of their start.
    fn runs_with_task_journal(&self) -> Result<Vec<Run>, StoreError>;
    /// Sums up what runs have used that began: by day in order, else what used most first. Each
    /// run counts with its own work.
    fn usage(&self, by: UsageBy, filter: &UsageFilter) -> Result<Vec<UsageRow>, StoreError>;
}
