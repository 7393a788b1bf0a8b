//! What an append may bring into being: sessions, traces, versions and edits, as they are to be.

use soong_protocol::{
    Artifact, ArtifactId, DocumentEdit, GoalId, GoalTree, Provenance, Run, RunMode, SessionId, Timestamp, TraceId,
    UpdateType,
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
