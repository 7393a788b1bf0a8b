//! The store as traits: batches of appends in, records out (DUR-1, DUR-2, DUR-7).
//!
//! An [`Append`] is one atomic unit. The store assigns every cursor, rejects writes of stale
//! incarnations, and updates the rows that lists and records are read from together with the
//! appended events. No other code derives these rows.
//!
//! Elsewhere: the writer thread (`writer.rs`), SQL (`sqlite.rs`).

mod filter;

pub use filter::{PermissionFilter, QuestionFilter, SessionFilter, TraceFilter, UsageFilter};

use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactVersion, ChildResult, Collaborator, DocumentEdit,
    ErrorCode, ErrorInfo, EventRecord, GoalTree, KeyedRequest, Message, OpenModelCall, Permission,
    PermissionId, Question, QuestionId, Run, RunId, RunMode, RunSettings, Session, SessionId,
    Trace, TraceId, UsageBy, UsageRow, Write,
};

/// Reason why the store rejected a request or failed. A rejected append changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// A newer incarnation of the run has opened its journal (ACT-3).
    #[error("run {0} was taken over by a newer incarnation")]
    StaleIncarnation(RunId),
    /// A record with that id or name already exists.
    #[error("{0} already exists")]
    AlreadyExists(String),
    /// The question or permission was already decided.
    #[error("{0} has already been decided")]
    AlreadyDecided(String),
    /// The conversation's head is not the message that the append expects.
    #[error(
        "the conversation of trace {0} has changed in the meantime: read its current head and retry"
    )]
    HeadMoved(TraceId),
    /// The append refers to a record that does not exist.
    #[error("{0} does not exist")]
    NotFound(String),
    /// The cursor of a list request was not returned by an earlier page of that list.
    #[error("{0:?} is not a valid cursor: pass `next_cursor` of the previous page unchanged")]
    InvalidCursor(String),
    /// A run of the session is queued or running, so the session cannot be deleted or its head
    /// switched.
    #[error("session {0} has an unfinished run: wait for it, or stop it")]
    SessionActive(SessionId),
    /// A session with this id is being deleted; the id is free when the deletion is complete
    /// (DUR-8). Or it was deleted after the append was prepared.
    #[error("session {0} is being deleted, or was deleted in the meantime: retry")]
    SessionDeleting(SessionId),
    /// The disk failed, is full or read-only; the same append may succeed later (DUR-6).
    #[error("the database could not be written or read: {0}")]
    Io(String),
    /// A statement cannot be run or a value cannot be stored; a retry fails too.
    #[error("a database statement failed; this is a bug in soong: {0}")]
    Internal(String),
    /// The bytes of an artifact could not be stored or read.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// The file is damaged, or not a database of this program.
    #[error("{0}")]
    Corrupt(String),
    /// The file was written by a newer version; it was not changed (DUR-5).
    #[error(
        "the database has format {found}, this version supports up to {known}: use a newer version of soong"
    )]
    NewerFormat {
        /// The file's format.
        found: u32,
        /// The newest format that this build supports.
        known: u32,
    },
    /// The file was written by an older version; the next writer migrates it (DUR-5).
    #[error(
        "the database has format {found} of an earlier version: start a run or `soong serve` to migrate it to format {known} (a backup is kept)"
    )]
    OlderFormat {
        /// The file's format.
        found: u32,
        /// The newest format that this build supports.
        known: u32,
    },
    /// The writer has been closed.
    #[error("the store is closed")]
    Closed,
}

/// Reason why the bytes of an artifact could not be stored or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BlobError {
    /// The storage of artifact bytes failed, is full or read-only; the same request may succeed
    /// later (DUR-6).
    #[error("the bytes of an artifact could not be written or read: {0}")]
    Io(String),
    /// The source of the bytes to store could not be read; nothing was stored.
    #[error("the source of the artifact could not be read: {0}")]
    SourceUnreadable(String),
    /// The content is larger than the limit; nothing was stored.
    #[error("the artifact is larger than the limit of {limit_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: u64,
    },
}

impl StoreError {
    /// Returns whether the same request may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Io(_) | Self::Blob(BlobError::Io(_)))
    }
}

impl From<&StoreError> for ErrorInfo {
    fn from(error: &StoreError) -> Self {
        let code = match error {
            StoreError::AlreadyExists(_)
            | StoreError::InvalidCursor(_)
            | StoreError::Blob(BlobError::SourceUnreadable(_)) => ErrorCode::ValidationError,
            StoreError::AlreadyDecided(_) => ErrorCode::AlreadyDecided,
            StoreError::Blob(BlobError::TooLarge { .. }) => ErrorCode::PayloadTooLarge,
            StoreError::Closed => ErrorCode::Closing,
            StoreError::Internal(_) => ErrorCode::InternalError,
            StoreError::SessionActive(_)
            | StoreError::SessionDeleting(_)
            | StoreError::HeadMoved(_) => ErrorCode::SessionActive,
            _ => ErrorCode::StorageError,
        };
        if error.is_transient() || code == ErrorCode::SessionActive {
            Self::retryable(code, error.to_string())
        } else {
            Self::new(code, error.to_string())
        }
    }
}

/// Identifies the incarnation of a run that writes, and the number of the append.
///
/// `number` counts an incarnation's appends from 1. An append whose number is already recorded is
/// acknowledged again and not repeated, so a writer can retry after a failure with unknown outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fence {
    /// The run.
    pub run_id: RunId,
    /// Its incarnation, as assigned by `RunWrite::NewEpoch`.
    pub epoch: u64,
    /// Number of the append within the incarnation, from 1.
    pub number: u64,
    /// Time that the run has worked so far, in milliseconds of a monotonic clock. It is stored as
    /// the run's duration until the run has ended. `None`: the stored value is kept.
    pub active_ms: Option<u64>,
}

/// One atomic unit of writing.
#[derive(Debug, Clone, Default)]
pub struct Append {
    /// The run that writes; `None` if the append does not belong to a run.
    pub fence: Option<Fence>,
    /// The writes, in order.
    pub writes: Vec<Write>,
}

/// Start of a task journal that is not known to be complete (TASK-1).
///
/// The store records one with the event that starts a user's orchestrator run, unless a program
/// drives the run instead of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingTaskJournal {
    /// The run.
    pub run: Run,
    /// The project directory of its session.
    pub project_dir: String,
    /// The event that started the run, on its trace's timeline.
    pub first_event_id: u64,
    /// The goal tree at that event, without sub-traces and stats.
    pub goals: GoalTree,
}

/// A session that is being deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionDeletion {
    /// The session.
    pub session_id: SessionId,
    /// The stage of the deletion.
    pub stage: DeletionStage,
}

/// Stage of the deletion of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeletionStage {
    /// All rows of the session still exist; its files are being deleted.
    Files,
    /// Its files are deleted; its rows are being deleted.
    Rows,
}

impl DeletionStage {
    /// Returns the stored form of the stage.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Files => "files",
            Self::Rows => "rows",
        }
    }
}

/// The store's answer to a committed append.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ack {
    /// The epoch that `RunWrite::NewEpoch` took.
    pub epoch: Option<u64>,
    /// The ids of the append's events, in order; empty if the append was already recorded.
    pub events: Vec<EventIds>,
}

/// Numbers that the store assigns to one event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventIds {
    /// Number in the whole store.
    pub lsn: u64,
    /// Number on the trace's timeline.
    pub event_id: u64,
    /// Number among the run's events; 0 if the event belongs to no run.
    pub run_seq: u64,
    /// The session.
    pub session_id: SessionId,
    /// Number among the session's events.
    pub session_seq: u64,
}

/// The writing side of a store; owned by one thread.
pub trait Store: Send {
    /// Commits a batch in one transaction, with one result for each append.
    ///
    /// A rejected append does not affect the others. `Err`: no append of the batch is known to be
    /// durable. The store then closes its connection, and reopens and checks it on the next call;
    /// it never repeats a failed sync (DUR-2).
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError>;
}

impl Store for Box<dyn Store> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        self.as_mut().commit(batch)
    }
}

/// Selection of messages of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessagePath {
    /// The main path: from the first message to the head (MSG-1).
    Main,
    /// The main path as it would be with this message as the head. The message need not be on the
    /// main path.
    To(u64),
    /// All messages, by sequence.
    All,
}

/// A message after which a conversation can be resumed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResumePoint {
    /// Sequence of the message. If it makes or answers tool calls, that of the last of their
    /// results (MSG-3).
    pub sequence: u64,
    /// The lsn of that message.
    pub lsn: u64,
    /// The last lsn before that of the next message. Up to it, events that follow from the message
    /// are included, such as a goal that it completes.
    pub until_lsn: u64,
    /// The run that wrote the message; `None` if it is unknown, or if the message is a copy.
    pub run_id: Option<RunId>,
    /// Whether the message is on the path to the head, or is the head.
    pub is_on_path: bool,
    /// The trace's head.
    pub head: u64,
}

/// Mode, task and settings of the run that wrote a message.
#[derive(Debug, Clone, PartialEq)]
pub struct MessageAuthor {
    /// Mode of the run.
    pub mode: RunMode,
    /// Task of the run.
    pub task: String,
    /// Settings of the run.
    pub settings: RunSettings,
}

impl From<Run> for MessageAuthor {
    fn from(run: Run) -> Self {
        Self {
            mode: run.mode,
            task: run.task,
            settings: run.settings,
        }
    }
}

/// A document that has changed, with its state at an earlier time.
#[derive(Debug, Clone, PartialEq)]
pub struct ChangedDocument {
    /// The document in its current state.
    pub artifact: Artifact,
    /// Its revision at the earlier time; 0 if it did not exist yet.
    pub revision: u64,
    /// Whether it existed at that time: created, and not withdrawn.
    pub existed: bool,
    /// Whether it has since also been changed by another trace, or by a version that was stored
    /// without an edit.
    pub changed_elsewhere: bool,
}

/// A page of a list, newest first.
#[derive(Debug, Clone)]
pub struct Page<T> {
    /// The items.
    pub items: Vec<T>,
    /// Cursor of the next page; `None` at the end. Opaque.
    pub next_cursor: Option<String>,
}

/// Storage location of a stored version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredBlob {
    /// The artifact.
    pub artifact_id: ArtifactId,
    /// The version number.
    pub version: u64,
    /// Path of its blob, relative to the home.
    pub path: String,
    /// Its size in bytes.
    pub size: u64,
}

/// Summary of the artifacts of a scope, without debug artifacts.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecentArtifacts {
    /// The most recently changed artifacts that have a name, newest first.
    pub named: Vec<Artifact>,
    /// Number of artifacts with a name.
    pub named_count: u64,
    /// Number of artifacts without a name.
    pub unnamed_count: u64,
}

/// Formats the number of a store as clients see it.
pub fn format_store_id(store: u32) -> String {
    format!("{store:08x}")
}

/// The reading side of a store; never waits for the writer. Calls block: use a blocking thread.
///
/// A session that is being deleted, and everything that belongs to it, is invisible to all calls
/// except [`Reader::session_deletions`] and [`Reader::deletion_blob_paths`].
pub trait Reader: Send + Sync {
    /// Reads a session.
    fn session(&self, id: &SessionId) -> Result<Option<Session>, StoreError>;
    /// Reads the number that identifies this store; 0 if it has none yet. A restored backup gets a
    /// new number.
    fn store_id(&self) -> Result<u32, StoreError>;
    /// Returns the incarnation that the next session with this id gets. The id must not be that of
    /// a session.
    fn next_incarnation(&self, id: &SessionId) -> Result<u64, StoreError>;
    /// Reads the owners of these sessions; sessions that do not exist are omitted.
    fn session_owners(&self, ids: &[SessionId]) -> Result<Vec<(SessionId, String)>, StoreError>;
    /// Lists sessions, newest first.
    fn sessions(
        &self,
        filter: &SessionFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<Session>, StoreError>;
    /// Reads a trace.
    fn trace(&self, id: &TraceId) -> Result<Option<Trace>, StoreError>;
    /// Lists traces, newest first.
    fn traces(
        &self,
        filter: &TraceFilter,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Page<Trace>, StoreError>;
    /// Lists the children of a trace in the order of their start; without those of the trace that
    /// it was copied from.
    fn sub_traces(&self, parent: &TraceId) -> Result<Vec<Trace>, StoreError>;
    /// Lists the children of the trace that this trace was copied from, in the order of their
    /// start. Children that were started after the last copied message, or that no longer exist,
    /// are omitted.
    fn linked_traces(&self, id: &TraceId) -> Result<Vec<Trace>, StoreError>;
    /// Reads a trace's goals with their sub-traces and stats.
    fn goal_tree(&self, id: &TraceId) -> Result<Option<GoalTree>, StoreError>;
    /// Reads a trace's messages in order.
    fn messages(&self, id: &TraceId, path: MessagePath) -> Result<Vec<Message>, StoreError>;
    /// Reads the messages of a trace with these sequences, in the order given. Sequences without a
    /// message are omitted.
    fn messages_at(&self, id: &TraceId, sequences: &[u64]) -> Result<Vec<Message>, StoreError>;
    /// Reads a message as a point to resume from; `None` if the conversation cannot be resumed
    /// there (see [`ResumePoint`]).
    fn resume_point(&self, id: &TraceId, sequence: u64) -> Result<Option<ResumePoint>, StoreError>;
    /// Reads the run that wrote a message; for a copied message, as the run was when the message
    /// was copied. `None` if it is unknown: the message does not exist, or was copied by an earlier
    /// version.
    fn message_author(
        &self,
        id: &TraceId,
        sequence: u64,
    ) -> Result<Option<MessageAuthor>, StoreError>;
    /// Returns whether the head of a trace was switched since the last run of the trace that has
    /// started.
    fn is_head_switched(&self, id: &TraceId) -> Result<bool, StoreError>;
    /// Reads the goal tree as it was at an lsn, without sub-traces and stats.
    fn goal_tree_at(&self, id: &TraceId, lsn: u64) -> Result<Option<GoalTree>, StoreError>;
    /// Reads the collaborators of a trace as they were at an lsn, in the order of their first
    /// appearance; empty if the trace is unknown.
    fn collaborators_at(&self, id: &TraceId, lsn: u64) -> Result<Vec<Collaborator>, StoreError>;
    /// Reads up to `limit` events of a trace after `since` in order.
    fn events(
        &self,
        id: &TraceId,
        since: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, StoreError>;
    /// Reads all events of a run in order.
    fn run_events(&self, id: &RunId) -> Result<Vec<EventRecord>, StoreError>;
    /// Reads up to `limit` events of a whole session with an lsn above `since_lsn` in order.
    fn session_events(
        &self,
        id: &SessionId,
        since_lsn: u64,
        limit: usize,
    ) -> Result<Vec<EventRecord>, StoreError>;
    /// Returns the `since_lsn` with which [`Reader::session_events`] returns exactly the events
    /// after `session_seq`, without reading the events before. 0 if there is no such session.
    fn session_lsn(&self, id: &SessionId, session_seq: u64) -> Result<u64, StoreError>;
    /// Reads a run.
    fn run(&self, id: &RunId) -> Result<Option<Run>, StoreError>;
    /// Reads the last run of a trace.
    fn last_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError>;
    /// Reads the last run of a trace that has left its queue and started.
    fn last_started_run(&self, id: &TraceId) -> Result<Option<Run>, StoreError>;
    /// Reads the permission rules that deny of all runs that users started in the session, on its
    /// root trace or on that of a sub-agent, except runs that were cancelled in the queue.
    fn deny_rules(&self, id: &SessionId) -> Result<Vec<String>, StoreError>;
    /// Lists runs that have not ended, of one session or of all, in the order of their start.
    fn live_runs(&self, session: Option<&SessionId>) -> Result<Vec<Run>, StoreError>;
    /// Lists the children of a run in the order of their start.
    fn children(&self, id: &RunId) -> Result<Vec<Run>, StoreError>;
    /// Reads the model calls of a run that have no outcome yet.
    fn open_model_calls(&self, id: &RunId) -> Result<Vec<OpenModelCall>, StoreError>;
    /// Reads the results of the ended children of a run.
    fn child_results(&self, id: &RunId) -> Result<Vec<ChildResult>, StoreError>;
    /// Reads the result of a child; `None` if it has none.
    fn child_result(&self, id: &RunId) -> Result<Option<ChildResult>, StoreError>;
    /// Reads a request with an `Idempotency-Key`, also if its lifetime has ended; `None` if the
    /// user has sent none with this key.
    fn keyed_request(&self, uid: &str, key_hash: &str) -> Result<Option<KeyedRequest>, StoreError>;
    /// Reads a question.
    fn question(&self, id: &QuestionId) -> Result<Option<Question>, StoreError>;
    /// Lists questions, the oldest first.
    fn questions(&self, filter: &QuestionFilter) -> Result<Vec<Question>, StoreError>;
    /// Reads a permission.
    fn permission(&self, id: &PermissionId) -> Result<Option<Permission>, StoreError>;
    /// Lists permissions, the oldest first.
    fn permissions(&self, filter: &PermissionFilter) -> Result<Vec<Permission>, StoreError>;
    /// Lists the artifacts of a scope by name; artifacts without a name come last.
    fn artifacts(&self, scope: &ArtifactScope) -> Result<Vec<Artifact>, StoreError>;
    /// Reads up to `limit` of the most recently changed artifacts of a scope, and the numbers of
    /// artifacts.
    fn recent_artifacts(
        &self,
        scope: &ArtifactScope,
        limit: usize,
    ) -> Result<RecentArtifacts, StoreError>;
    /// Lists the artifacts of all sessions, each with the total bytes of its versions; the least
    /// recently changed one first.
    fn session_artifacts(&self) -> Result<Vec<(Artifact, u64)>, StoreError>;
    /// Lists the documents of a trace's session that its runs have changed since an lsn, in the
    /// order of their creation.
    fn changed_documents(
        &self,
        id: &TraceId,
        since_lsn: u64,
    ) -> Result<Vec<ChangedDocument>, StoreError>;
    /// Lists the documents that have edits without a stored version, by name: documents edited by
    /// this run or by ended runs of its session.
    fn unflushed_documents(&self, run: &RunId) -> Result<Vec<Artifact>, StoreError>;
    /// Reads the edits of a document with a revision above `after` and up to `upto`, in order.
    fn edits(
        &self,
        id: &ArtifactId,
        after: u64,
        upto: u64,
    ) -> Result<Vec<DocumentEdit>, StoreError>;
    /// Reads the edits that a run made in one of its turns, in the order of their recording.
    fn turn_edits(&self, run: &RunId, turn: u32) -> Result<Vec<DocumentEdit>, StoreError>;
    /// Lists the artifacts of a session that existed at an lsn, each in its current state and with
    /// its revision at that lsn; the most recently changed one last.
    fn artifacts_at(&self, id: &SessionId, lsn: u64) -> Result<Vec<(Artifact, u64)>, StoreError>;
    /// Reads an artifact of a scope by name, else by id, else by the id of the artifact that it was
    /// copied from.
    fn artifact(&self, scope: &ArtifactScope, name: &str) -> Result<Option<Artifact>, StoreError>;
    /// Lists the stored versions of an artifact in order.
    fn versions(&self, id: &ArtifactId) -> Result<Vec<ArtifactVersion>, StoreError>;
    /// Returns the path of a version's blob, relative to the home.
    fn blob_path(&self, id: &ArtifactId, version: u64) -> Result<Option<String>, StoreError> {
        Ok(self.blob_path_and_type(id, version)?.map(|(path, _)| path))
    }
    /// Returns the path of a version's blob and its MIME type.
    fn blob_path_and_type(
        &self,
        id: &ArtifactId,
        version: u64,
    ) -> Result<Option<(String, String)>, StoreError>;
    /// Lists the paths of the blobs of an artifact's versions, in the order of the versions.
    fn blob_paths(&self, id: &ArtifactId) -> Result<Vec<String>, StoreError>;
    /// Lists the paths of blobs that were announced but never registered.
    fn blob_intents(&self) -> Result<Vec<String>, StoreError>;
    /// Lists the sessions that are being deleted, in the order of their creation.
    fn session_deletions(&self) -> Result<Vec<SessionDeletion>, StoreError>;
    /// Lists the paths of the blobs of a session that is being deleted, relative to the home.
    fn deletion_blob_paths(&self, id: &SessionId) -> Result<Vec<String>, StoreError>;
    /// Reads the start of a run's task journal; `None` if the run has none, or if the journal is
    /// complete.
    fn pending_task_journal(&self, id: &RunId) -> Result<Option<PendingTaskJournal>, StoreError>;
    /// Lists the runs whose task journals are not known to be complete, in the order of their
    /// start.
    fn runs_with_pending_task_journal(&self) -> Result<Vec<Run>, StoreError>;
    /// Sums up the usage of runs that have started: in order of days if grouped by day, else the
    /// highest usage first. Each run counts its own work only.
    fn usage(&self, by: UsageBy, filter: &UsageFilter) -> Result<Vec<UsageRow>, StoreError>;
}
