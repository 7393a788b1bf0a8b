//! Writes: the changes to the store. An append is a list of writes that the store applies together.
//!
//! A write is rejected with an error of the store, such as `AlreadyExists` or `NotFound`
//! (`StoreError` in the crate `soong-storage`).

use std::sync::Arc;

use crate::{
    Artifact, ArtifactId, ChildResult, DocumentEdit, EventDraft, GoalId, Message, OpenModelCall,
    Permission, PermissionDecision, Provenance, QuestionId, RequestAnswer, RequestKey,
    RequestSubject, Run, RunId, RunMode, SessionId, Timestamp, TraceId, UpdateType,
};

/// A session to create.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Unique id.
    pub session_id: SessionId,
    /// Display name.
    pub name: Option<String>,
    /// User that owns the session.
    pub uid: String,
    /// Project directory in which the runs of the session work.
    pub project_dir: String,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A trace to create.
#[derive(Debug, Clone)]
pub struct NewTrace {
    /// Unique id.
    pub trace_id: TraceId,
    /// Session of the trace.
    pub session_id: SessionId,
    /// Mode of the first run.
    pub run_mode: RunMode,
    /// Task of the trace.
    pub task: String,
    /// Display name.
    pub name: String,
    /// Preset of the first run.
    pub agent_type: String,
    /// Parent trace. `None` for a root trace.
    pub parent_trace_id: Option<TraceId>,
    /// Goal of the parent trace that this trace works on.
    pub parent_goal_id: Option<GoalId>,
    /// User that owns the trace.
    pub uid: String,
    /// Model of the first run.
    pub model: String,
    /// Creation time.
    pub created_at: Timestamp,
}

/// A version to register. The store rejects it with `AlreadyExists` if it is not the artifact's
/// next version, or if the artifact has edits that are not part of a version yet.
#[derive(Debug, Clone)]
pub struct NewVersion {
    /// The artifact after this write. Both `current_version` and `stored_version` are the number of
    /// the version.
    pub artifact: Artifact,
    /// How the version changed the text.
    pub update_type: UpdateType,
    /// Location of the blob, relative to the home.
    pub path: String,
}

/// An edit of a document. The store rejects it with `AlreadyExists` unless its revision is the
/// artifact's next number.
#[derive(Debug, Clone)]
pub struct NewEdit {
    /// The artifact after this write. `current_version` is the revision of the edit. The store
    /// ignores its `stored_version`.
    pub artifact: Artifact,
    /// The edit.
    pub edit: DocumentEdit,
}

/// A version that contains edits of a document that no version contains yet. The store rejects it
/// with `AlreadyExists` if this or a later version is stored, and with `NotFound` if the document
/// has no such revision.
#[derive(Debug, Clone)]
pub struct NewDocumentVersion {
    /// The document.
    pub artifact_id: ArtifactId,
    /// Number of the version, which is the revision of the last edit that it contains.
    pub version: u64,
    /// Size in bytes.
    pub size: u64,
    /// How the version changed the text.
    pub update_type: UpdateType,
    /// Origin of the last edit in the version.
    pub provenance: Provenance,
    /// Location of the blob, relative to the home.
    pub path: String,
    /// Time at which the version is stored.
    pub at: Timestamp,
}

/// A session to create as a copy of a conversation. The messages up to `last_message` are copied
/// and keep their numbers. Sub-traces are not copied; the copy refers to them.
///
/// The store rejects it with `NotFound` unless the conversation can be continued after
/// `last_message`.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// The new session.
    pub session: NewSession,
    /// Root trace of the new session.
    pub trace_id: TraceId,
    /// Trace to copy. It is not changed.
    pub source_trace: TraceId,
    /// Number of the last message to copy. It becomes the head of the copy.
    pub last_message: u64,
}

/// The first version of a copy of an artifact of another session.
#[derive(Debug, Clone)]
pub struct NewArtifactCopy {
    /// The version of the copy.
    pub version: NewVersion,
    /// Artifact that was copied. A lookup by its id also finds the copy. If it is a copy too, so
    /// does a lookup by the ids of the artifacts that it was copied from.
    pub source_artifact: ArtifactId,
}

/// One change of an append.
#[derive(Debug, Clone)]
#[allow(
    clippy::large_enum_variant,
    reason = "most writes are events, the largest: boxes would save nothing"
)]
pub enum Write {
    /// Creates or deletes a session.
    Session(SessionWrite),
    /// Creates or changes a trace.
    Trace(TraceWrite),
    /// Creates a run, or records what belongs to it.
    Run(RunWrite),
    /// Adds a message. The message becomes the head of the trace if its parent is the current head,
    /// it is complete, and it is not on a side branch.
    Message(Arc<Message>),
    /// Records an event, and updates the rows that depend on it (status, usage, goals,
    /// collaborators and others).
    Event(EventDraft),
    /// Answers an open question. Rejected with `AlreadyDecided` if the question has an answer or
    /// its run has ended.
    Answer {
        /// The question.
        question_id: QuestionId,
        /// The answer.
        answer: String,
        /// Time of the answer.
        at: Timestamp,
    },
    /// Stores a permission request or its decision.
    Permission(PermissionWrite),
    /// Changes an artifact.
    Artifact(ArtifactWrite),
    /// Records or removes the intent to write a blob.
    Blob(BlobWrite),
    /// Records a request with an `Idempotency-Key`.
    Request(RequestWrite),
    /// Rewrites the format version with the same value, to test whether the disk accepts writes.
    Probe,
}

/// Creation or deletion of a session.
#[derive(Debug, Clone)]
pub enum SessionWrite {
    /// Creates a session.
    Create(NewSession),
    /// Creates a session as a copy of a conversation. Later writes of the same append must register
    /// the copies of its artifacts and then record the event `session_forked`, which sets its
    /// goals.
    Fork(Box<NewFork>),
    /// Marks a session for deletion. From then on, readers do not see the session and its records,
    /// and the writer rejects writes to them with `NotFound`. Creating a session with its id is
    /// rejected with `SessionDeleting`.
    ///
    /// Rejected with `SessionActive` if the session has runs that have not ended. Has no effect if
    /// the session is already marked.
    BeginRemoval(SessionId),
    /// Removes the mark, which restores the session. Rejected with `NotFound` unless the session is
    /// marked and none of its rows have been deleted.
    EndRemoval(SessionId),
    /// Deletes some rows of a marked session. The write that deletes the last rows also deletes the
    /// row of the session; then its id can be used again. After the first of these writes, the
    /// session cannot be restored. Rejected with `NotFound` if the session is not marked.
    RemoveRows {
        /// The session.
        session_id: SessionId,
        /// Maximum number of rows to delete, not counting the row of the session.
        limit: u64,
    },
    /// Writes nothing. Rejects the append with `SessionDeleting` unless the session exists in this
    /// incarnation: the append was prepared for it, and its id may have been used again since.
    Require {
        /// The session.
        session_id: SessionId,
        /// Its incarnation.
        incarnation: u64,
    },
}

/// Creation or change of a trace.
#[derive(Debug, Clone)]
pub enum TraceWrite {
    /// Creates a trace in an existing session. Its goal tree has the task as mission and no goals.
    Create(NewTrace),
    /// Sets the task of a root trace that was created without a run. If the session has no name, it
    /// gets the name of the trace. Rejected with `AlreadyExists` if the trace has a run.
    FirstTask(NewTrace),
    /// Writes nothing. Rejects the append with `HeadMoved` unless the trace ends at this point: the
    /// append continues the conversation from there.
    Require(ConversationPoint),
}

/// The end of a conversation, as a caller has read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationPoint {
    /// The trace.
    pub trace_id: TraceId,
    /// Its head.
    pub head_sequence: u64,
    /// Its last run that does not only reflect; `None` if it has none.
    pub last_run: Option<RunId>,
}

/// Creation of a run, or a record that belongs to it.
#[derive(Debug, Clone)]
pub enum RunWrite {
    /// Creates a run of an existing trace, with status `queued`.
    Create(Box<Run>),
    /// Assigns a new epoch to a run. The acknowledgement of the append returns the epoch.
    NewEpoch(RunId),
    /// Stores the result of a child run for its parent (SUB-4).
    ChildResult(Box<ChildResult>),
    /// Sets the model calls of a run that have no outcome yet, and what they have used so far.
    OpenModelCalls {
        /// The run.
        run_id: RunId,
        /// The calls.
        calls: Vec<OpenModelCall>,
    },
    /// Sets the names of the tools that a run offers to its model.
    OfferedTools {
        /// The run.
        run_id: RunId,
        /// The names.
        tools: Vec<String>,
    },
    /// Records that the task journal of a run is complete and on disk (TASK-1). Has no effect if
    /// the run has no journal.
    TaskJournalCompleted(RunId),
}

/// Permission request or decision.
#[derive(Debug, Clone)]
pub enum PermissionWrite {
    /// Stores a permission request for a tool call (PERM-1). An existing request for the call stays
    /// unchanged. A later write of the same append must record the event that reports the request.
    Request(Box<Permission>),
    /// Stores the decision about a permission request. Rejected with `AlreadyDecided` if the
    /// request has a decision or its run has ended.
    Decision(PermissionDecision),
}

/// Change of an artifact.
#[derive(Debug, Clone)]
pub enum ArtifactWrite {
    /// Registers a version whose blob exists, and removes the intent of the blob.
    Version(Box<NewVersion>),
    /// Registers the first version of a copy of an artifact of another session.
    Copy(Box<NewArtifactCopy>),
    /// Records an edit of a document. The first edit creates the artifact. A later write of the
    /// same append must record the event that reports the edit.
    Edit(Box<NewEdit>),
    /// Registers the content of a document after one of its edits as a version, and removes the
    /// intent of the blob.
    DocumentVersion(Box<NewDocumentVersion>),
    /// Deletes an artifact with its versions and edits. Records an intent for each of its blobs, so
    /// that their files are removed later.
    Deleted {
        /// The artifact.
        artifact_id: ArtifactId,
        /// Time of the deletion.
        at: Timestamp,
    },
}

/// A request with an `Idempotency-Key`. Each of these writes also deletes requests whose lifetime
/// has ended.
#[derive(Debug, Clone)]
pub enum RequestWrite {
    /// Records a request before it is executed, if its effect cannot record it. While its answer is
    /// not recorded, it is unknown whether it had its effect.
    Begin {
        /// The request.
        key: RequestKey,
        /// Time of the request.
        at: Timestamp,
    },
    /// Deletes a request that has begun and failed. Has no effect if its answer is recorded.
    Withdraw {
        /// The request.
        key: RequestKey,
        /// Time of the failure.
        at: Timestamp,
    },
    /// Records what a request creates, in the append that creates it.
    Claim {
        /// The request.
        key: RequestKey,
        /// The run or session that it creates.
        subject: RequestSubject,
        /// Time of the request.
        at: Timestamp,
    },
    /// Records the answer to a request.
    Answer {
        /// The request.
        key: RequestKey,
        /// The answer.
        answer: RequestAnswer,
        /// Session that the answer concerns: it is deleted together with it.
        session_id: Option<SessionId>,
        /// Time of the answer.
        at: Timestamp,
    },
}

impl RequestKey {
    /// Returns the write that records what the request creates.
    pub fn claim(self, subject: RequestSubject, at: Timestamp) -> Write {
        Write::Request(RequestWrite::Claim {
            key: self,
            subject,
            at,
        })
    }
}

/// Start or end of the intent to write a blob.
#[derive(Debug, Clone)]
pub enum BlobWrite {
    /// Records the intent to write a blob, before its file exists (DUR-8). Orphaned files are found
    /// by their intents.
    Intent {
        /// Future location of the file, relative to the home.
        path: String,
        /// Time at which the intent is recorded.
        at: Timestamp,
    },
    /// Removes the intent of a blob whose file does not exist any more.
    Deleted {
        /// Location of the file, relative to the home.
        path: String,
    },
}
