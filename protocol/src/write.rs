//! Writes: the rows that one append to the store consists of.

use std::sync::Arc;

use crate::{
    Artifact, ArtifactId, ChildResult, DocumentEdit, EventDraft, GoalId, Message, Permission, PermissionDecision,
    Provenance, QuestionId, Run, RunId, RunMode, SessionId, Timestamp, TraceId, UpdateType,
};

/// A session to be made.
#[derive(Debug, Clone)]
pub struct NewSession {
    /// Its id.
    pub session_id: SessionId,
    /// What people call it.
    pub name: Option<String>,
    /// Whose it is.
    pub uid: String,
    /// The project directory its runs work in.
    pub project_dir: String,
    /// When it is made.
    pub created_at: Timestamp,
}

/// A trace to be made.
#[derive(Debug, Clone)]
pub struct NewTrace {
    /// Its id.
    pub trace_id: TraceId,
    /// The session it belongs to.
    pub session_id: SessionId,
    /// The mode of its first run.
    pub run_mode: RunMode,
    /// What it is asked to do.
    pub task: String,
    /// What people call it.
    pub name: String,
    /// The preset of its first run.
    pub agent_type: String,
    /// Whose child it is.
    pub parent_trace_id: Option<TraceId>,
    /// Which of its parent's goals it serves.
    pub parent_goal_id: Option<GoalId>,
    /// Whose it is.
    pub uid: String,
    /// The model of its first run.
    pub model: String,
    /// When it is made.
    pub created_at: Timestamp,
}

/// A version to be registered. Refused with `Exists` unless it is the artifact's next one, and where the
/// artifact has edits that are no version yet.
#[derive(Debug, Clone)]
pub struct NewVersion {
    /// The artifact as it is with this version; `current_version` and `stored_version` are its number.
    pub artifact: Artifact,
    /// How the version came about.
    pub update_type: UpdateType,
    /// Where its blob lies, relative to the home.
    pub path: String,
}

/// An edit of a document. Refused with `Exists` unless its revision is the artifact's next number.
#[derive(Debug, Clone)]
pub struct NewEdit {
    /// The artifact as it is with this edit; `current_version` is the edit's revision. Its stored version
    /// stays as the store knows it.
    pub artifact: Artifact,
    /// The edit.
    pub edit: DocumentEdit,
}

/// A version that a document's edits become. Refused with `Exists` where it, or a later one, is stored.
#[derive(Debug, Clone)]
pub struct NewFlush {
    /// The document.
    pub artifact_id: ArtifactId,
    /// The revision whose text it is.
    pub version: u64,
    /// Its size in bytes.
    pub size: u64,
    /// How it came about.
    pub update_type: UpdateType,
    /// Where its last edit came from.
    pub provenance: Provenance,
    /// Where its blob lies, relative to the home.
    pub path: String,
    /// When it is stored.
    pub at: Timestamp,
}

/// A session to be made as a copy of a conversation: its messages up to one, with their numbers, and what is linked.
///
/// Refused with `Missing` unless somebody can go on from that message.
#[derive(Debug, Clone)]
pub struct NewFork {
    /// The session.
    pub session: NewSession,
    /// Its root trace.
    pub trace_id: TraceId,
    /// The trace that is copied; it stays as it is.
    pub source: TraceId,
    /// The last message that is copied: the head of the copy.
    pub at: u64,
}

/// The first version of a copy of another session's artifact.
#[derive(Debug, Clone)]
pub struct NewCopy {
    /// The copy.
    pub version: NewVersion,
    /// What it is a copy of: under that id it is found too, and under those of what that one is a copy of.
    pub source: ArtifactId,
}

/// One write of an append.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant, reason = "most writes are events, the largest: boxes would save nothing")]
pub enum Write {
    /// A new session.
    Session(NewSession),
    /// A new session that begins as a copy of a conversation. Where the bytes of its artifacts lie follows in the
    /// same append, and then the event `session_forked`, from which its goals follow.
    Fork(Box<NewFork>),
    /// A new trace of an existing session; its goal tree is empty, with the task as mission.
    Trace(NewTrace),
    /// The task of a root trace that was made before its first run, and has had none; its session takes the
    /// name if it has none.
    FirstTask(NewTrace),
    /// A new run of an existing trace, as given: its status is `queued`.
    Run(Box<Run>),
    /// Takes a new epoch for a run; the acknowledgement carries it.
    OpenRun(RunId),
    /// A message. Unless it is partial it becomes the trace's head.
    Message(Arc<Message>),
    /// An event; rows follow from it (status, usage, goals, collaborators, …).
    Event(EventDraft),
    /// What a child brought back, for its parent (SUB-4).
    ChildResult(Box<ChildResult>),
    /// The answer to an open question; refused as `Decided` where there is one already, or its run has ended.
    Answer {
        /// The question.
        question_id: QuestionId,
        /// What is answered.
        answer: String,
        /// When.
        at: Timestamp,
    },
    /// Asks whether a tool call may run (PERM-1); one that was asked for before stays as it is. The event that tells of
    /// it follows in the same append.
    Permission(Box<Permission>),
    /// The decision about an open permission; refused as `Decided` where there is one already, or its run has ended.
    Decision(PermissionDecision),
    /// Announces a blob before its file exists (DUR-8).
    BlobIntent {
        /// Where the file will lie, relative to the home.
        path: String,
        /// When it was announced.
        at: Timestamp,
    },
    /// Registers a version whose blob exists, and ends the blob's intent.
    ArtifactVersion(Box<NewVersion>),
    /// The same for the first version of a copy of another session's artifact.
    ArtifactCopy(Box<NewCopy>),
    /// An edit of a document; the first one makes the artifact. The event that tells of it follows in the
    /// same append.
    Edit(Box<NewEdit>),
    /// Registers what a document held at one of its edits as a version, and ends the blob's intent.
    Flush(Box<NewFlush>),
    /// Removes an artifact with its versions and edits; its blobs become intents.
    ArtifactGone {
        /// The artifact.
        artifact_id: ArtifactId,
        /// When it is removed.
        at: Timestamp,
    },
    /// Ends an intent whose blob is gone.
    BlobGone {
        /// Where the file would lie, relative to the home.
        path: String,
    },
    /// Marks a session as being removed: from now on nobody reads it or what belongs to it, and nothing is
    /// written there; to the writer too it is `Missing`, and a new session of its id is refused as `Removing`.
    ///
    /// Refused as `Active` while it has runs that have not ended. One that is marked already stays as it is.
    BeginRemoval(SessionId),
    /// Takes the mark off: everything is as before. Refused as `Missing` unless the session is marked and has
    /// all its rows.
    EndRemoval(SessionId),
    /// Removes rows of a marked session; its own goes with the last ones, and its id is free. From the first
    /// piece on there is no way back. Refused as `Missing` where no session of that id is marked.
    RemoveRows {
        /// The session.
        session_id: SessionId,
        /// How many rows at most, its own not counted.
        limit: u64,
    },
    /// The task journal of a run is complete and on disk (TASK-1). Nothing changes where it has none.
    TaskJournalDone(RunId),
    /// Writes a page and changes nothing: tells whether the disk takes what is written.
    Probe,
}
