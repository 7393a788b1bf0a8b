//! Admission of appends: decides whether an append may be written, before its first write. So a
//! rejected append writes nothing and does not affect the other appends of its batch.

use foldhash::{HashMap, HashSet};
use rusqlite::Connection;
use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactWrite, ConversationPoint, Event, EventDraft,
    Message, MessageEvent, NewDocumentVersion, NewEdit, NewFork, NewSession, NewTrace, NewVersion,
    Permission, PermissionId, PermissionStatus, PermissionWrite, QuestionId, QuestionStatus, Run,
    RunId, RunWrite, SessionId, SessionWrite, TraceId, TraceWrite, Write,
};

use super::{
    WriteError,
    artifacts::{self, RevisionNumbers},
    cache::Cache,
    deletion, main_path, permissions, questions, runs, sessions,
};
use crate::store::{Append, DeletionStage, Fence, StoreError};

/// Decision about an append that is not rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admission {
    /// The append is new: write it.
    New,
    /// The append is already recorded: acknowledge it only.
    AlreadyRecorded,
}

/// Decides about an append. The earlier appends of the batch count as written.
pub(super) fn admit(
    conn: &Connection,
    cache: &mut Cache,
    append: &Append,
) -> Result<Admission, WriteError> {
    let mut gate = AdmissionCheck {
        conn,
        cache,
        appended: AppendedRecords::default(),
    };
    if let Some(fence) = &append.fence
        && gate.is_recorded(fence)?
    {
        return Ok(Admission::AlreadyRecorded);
    }
    for write in &append.writes {
        gate.check_write(write)?;
    }
    Ok(Admission::New)
}

/// Records that the earlier writes of the same append will create.
#[derive(Default)]
struct AppendedRecords<'a> {
    sessions: HashSet<&'a SessionId>,
    traces: HashSet<&'a TraceId>,
    runs: HashSet<&'a RunId>,
    results: HashSet<&'a RunId>,
    answers: HashSet<&'a QuestionId>,
    decisions: HashSet<&'a PermissionId>,
    /// Last sequence of the traces that get messages.
    sequences: HashMap<&'a TraceId, u64>,
    /// Numbers of the artifacts that get a version or an edit; `None` if the artifact is deleted.
    numbers: HashMap<&'a ArtifactId, Option<RevisionNumbers>>,
    names: HashMap<(&'a ArtifactScope, &'a str), Option<&'a ArtifactId>>,
}

struct AdmissionCheck<'a, 'c> {
    conn: &'c Connection,
    cache: &'c mut Cache,
    appended: AppendedRecords<'a>,
}

fn already_exists(what: &str, id: impl std::fmt::Display) -> WriteError {
    StoreError::AlreadyExists(format!("{what} {id}")).into()
}

fn not_found(what: &str, id: impl std::fmt::Display) -> WriteError {
    StoreError::NotFound(format!("{what} {id}")).into()
}

impl<'a> AdmissionCheck<'a, '_> {
    fn is_recorded(&mut self, fence: &Fence) -> Result<bool, WriteError> {
        let run = self.cache.runs.get(self.conn, &fence.run_id)?;
        let run = run.ok_or_else(|| not_found("run", &fence.run_id))?;
        if run.position.epoch != fence.epoch {
            return Err(StoreError::StaleIncarnation(fence.run_id.clone()).into());
        }
        Ok(fence.number <= run.position.append_number)
    }

    fn check_write(&mut self, write: &'a Write) -> Result<(), WriteError> {
        match write {
            Write::Session(write) => self.check_session_write(write),
            Write::Trace(TraceWrite::Create(new)) => self.trace(new),
            Write::Trace(TraceWrite::FirstTask(new)) => self.first_task(&new.trace_id),
            Write::Trace(TraceWrite::Require(point)) => self.require_point(point),
            Write::Run(write) => self.check_run_write(write),
            Write::Message(message) => self.message(message),
            Write::Event(draft) => {
                self.require_trace(&draft.trace_id)?;
                if let Some(run_id) = &draft.run_id {
                    self.require_run(run_id)?;
                }
                self.check_head_move(draft)
            }
            Write::Answer { question_id, .. } => self.answer(question_id),
            Write::Permission(PermissionWrite::Request(permission)) => self.permission(permission),
            Write::Permission(PermissionWrite::Decision(answer)) => {
                self.decision(&answer.permission_id)
            }
            Write::Artifact(write) => self.check_artifact_write(write),
            Write::Request(_) | Write::Blob(_) | Write::Probe => Ok(()),
        }
    }

    fn check_session_write(&mut self, write: &'a SessionWrite) -> Result<(), WriteError> {
        match write {
            SessionWrite::Create(new) => self.session(new),
            SessionWrite::Fork(new) => self.fork(new),
            SessionWrite::BeginRemoval(id) => self.check_begin_deletion(id),
            SessionWrite::EndRemoval(id) => self.require_deletion(id, &[DeletionStage::Files]),
            SessionWrite::RemoveRows { session_id, .. } => {
                self.require_deletion(session_id, &[DeletionStage::Files, DeletionStage::Rows])
            }
            SessionWrite::Require {
                session_id,
                incarnation,
            } => match self.cache.sessions.get(self.conn, session_id)? {
                Some(session) if session.incarnation == *incarnation => Ok(()),
                _ => Err(StoreError::SessionDeleting(session_id.clone()).into()),
            },
        }
    }

    fn check_run_write(&mut self, write: &'a RunWrite) -> Result<(), WriteError> {
        match write {
            RunWrite::Create(run) => self.run(run),
            RunWrite::NewEpoch(run_id)
            | RunWrite::OpenModelCalls { run_id, .. }
            | RunWrite::OfferedTools { run_id, .. } => self.require_run(run_id),
            RunWrite::ChildResult(result) => {
                self.require_run(&result.run_id)?;
                let stored = match self.cache.runs.get(self.conn, &result.run_id)? {
                    Some(run) => runs::has_result(self.conn, run.key)?,
                    None => false,
                };
                if stored || !self.appended.results.insert(&result.run_id) {
                    return Err(already_exists("the result of run", &result.run_id));
                }
                Ok(())
            }
            RunWrite::TaskJournalCompleted(_) => Ok(()),
        }
    }

    fn check_artifact_write(&mut self, write: &'a ArtifactWrite) -> Result<(), WriteError> {
        match write {
            ArtifactWrite::Version(new) => self.version(new),
            ArtifactWrite::Copy(new) => self.version(&new.version),
            ArtifactWrite::Edit(new) => self.edit(new),
            ArtifactWrite::DocumentVersion(new) => self.flush(new),
            ArtifactWrite::Deleted { artifact_id, .. } => {
                self.numbers(artifact_id)?
                    .ok_or_else(|| not_found("artifact", artifact_id))?;
                self.appended.numbers.insert(artifact_id, None);
                Ok(())
            }
        }
    }

    /// Accepts the first answer only, also within one append.
    fn answer(&mut self, id: &'a QuestionId) -> Result<(), WriteError> {
        let question =
            questions::question(self.conn, id)?.ok_or_else(|| not_found("question", id))?;
        if question.status != QuestionStatus::Pending || !self.appended.answers.insert(id) {
            return Err(StoreError::AlreadyDecided(format!("question {id}")).into());
        }
        Ok(())
    }

    /// Accepts the first decision only, also within one append.
    fn decision(&mut self, id: &'a PermissionId) -> Result<(), WriteError> {
        let permission =
            permissions::permission(self.conn, id)?.ok_or_else(|| not_found("permission", id))?;
        if permission.status != PermissionStatus::Pending || !self.appended.decisions.insert(id) {
            return Err(StoreError::AlreadyDecided(format!("permission {id}")).into());
        }
        Ok(())
    }

    fn permission(&mut self, permission: &'a Permission) -> Result<(), WriteError> {
        self.require_run(&permission.run_id)
    }

    fn session(&mut self, new: &'a NewSession) -> Result<(), WriteError> {
        if deletion::stage(self.conn, &new.session_id)?.is_some() {
            return Err(StoreError::SessionDeleting(new.session_id.clone()).into());
        }
        if self.has_session(&new.session_id)? {
            return Err(already_exists("session", &new.session_id));
        }
        self.appended.sessions.insert(&new.session_id);
        Ok(())
    }

    /// Accepts a copy only up to a message after which a conversation can be resumed.
    fn fork(&mut self, new: &'a NewFork) -> Result<(), WriteError> {
        self.session(&new.session)?;
        if self.has_trace(&new.trace_id)? {
            return Err(already_exists("trace", &new.trace_id));
        }
        let source = self
            .cache
            .traces
            .get(self.conn, &new.source_trace)?
            .ok_or_else(|| not_found("trace", &new.source_trace))?;
        if main_path::turn_end(self.conn, source.key, new.last_message)?.is_none() {
            return Err(not_found(
                "message",
                format!("{}-{:04}", new.source_trace, new.last_message),
            ));
        }
        self.appended.traces.insert(&new.trace_id);
        Ok(())
    }

    fn has_session(&mut self, id: &SessionId) -> Result<bool, WriteError> {
        Ok(
            self.appended.sessions.contains(id)
                || self.cache.sessions.get(self.conn, id)?.is_some(),
        )
    }

    fn has_trace(&mut self, id: &TraceId) -> Result<bool, WriteError> {
        Ok(self.appended.traces.contains(id) || self.cache.traces.get(self.conn, id)?.is_some())
    }

    fn has_run(&mut self, id: &RunId) -> Result<bool, WriteError> {
        Ok(self.appended.runs.contains(id) || self.cache.runs.get(self.conn, id)?.is_some())
    }

    fn first_task(&mut self, id: &TraceId) -> Result<(), WriteError> {
        let trace = self
            .cache
            .traces
            .get(self.conn, id)?
            .ok_or_else(|| not_found("trace", id))?;
        if runs::has_any(self.conn, trace.key)? {
            Err(already_exists("a run of trace", id))
        } else {
            Ok(())
        }
    }

    fn require_session(&mut self, id: &SessionId) -> Result<(), WriteError> {
        if self.has_session(id)? {
            Ok(())
        } else {
            Err(not_found("session", id))
        }
    }

    fn require_trace(&mut self, id: &TraceId) -> Result<(), WriteError> {
        if self.has_trace(id)? {
            Ok(())
        } else {
            Err(not_found("trace", id))
        }
    }

    fn require_run(&mut self, id: &RunId) -> Result<(), WriteError> {
        if self.has_run(id)? {
            Ok(())
        } else {
            Err(not_found("run", id))
        }
    }

    /// Accepts a move of the head only from its current position, and only to a message after which
    /// a conversation can be resumed.
    fn check_head_move(&mut self, draft: &EventDraft) -> Result<(), WriteError> {
        let (from, to, only_back) = match &draft.event {
            Event::Message(MessageEvent::Rewind {
                from_sequence,
                head_sequence,
                ..
            }) => (*from_sequence, *head_sequence, true),
            Event::Message(MessageEvent::HeadSwitched {
                from_sequence,
                sequence,
                ..
            }) => (*from_sequence, *sequence, false),
            _ => return Ok(()),
        };
        if draft.run_id.is_none() {
            self.reject_active_session(&draft.trace_id)?;
        }
        let trace = self.cache.traces.get(self.conn, &draft.trace_id)?;
        let trace = trace.ok_or_else(|| not_found("trace", &draft.trace_id))?;
        if trace.head_sequence != from {
            return Err(StoreError::HeadMoved(draft.trace_id.clone()).into());
        }
        let is_resumable = if only_back {
            main_path::is_on_path(self.conn, trace.key, from, to)?
        } else {
            main_path::turn_end(self.conn, trace.key, to)?.is_some()
        };
        if is_resumable {
            Ok(())
        } else {
            Err(not_found("message", format!("{}-{to:04}", draft.trace_id)))
        }
    }

    /// Rejects a change of a trace while a run of its session has not ended, on this trace or on
    /// another (SES-1).
    fn reject_active_session(&mut self, id: &TraceId) -> Result<(), WriteError> {
        let trace = self
            .cache
            .traces
            .get(self.conn, id)?
            .ok_or_else(|| not_found("trace", id))?;
        let session_id = trace.session_id.clone();
        self.require_no_live_runs(&session_id)
    }

    fn require_no_live_runs(&mut self, id: &SessionId) -> Result<(), WriteError> {
        let key = self
            .cache
            .sessions
            .get(self.conn, id)?
            .ok_or_else(|| not_found("session", id))?
            .key;
        // Runs that were created or ended earlier in the batch must be in their rows.
        self.cache.save_runs(self.conn)?;
        if deletion::has_live_runs(self.conn, key)? {
            return Err(StoreError::SessionActive(id.clone()).into());
        }
        Ok(())
    }

    /// Requires that no message and no run was added to a conversation, and its head not moved,
    /// since the caller read it.
    fn require_point(&mut self, point: &ConversationPoint) -> Result<(), WriteError> {
        let id = &point.trace_id;
        let trace = self
            .cache
            .traces
            .get(self.conn, id)?
            .ok_or_else(|| not_found("trace", id))?;
        let is_same = trace.head_sequence == point.head_sequence
            && runs::last_id_of(self.conn, trace.key)? == point.last_run;
        if is_same {
            Ok(())
        } else {
            Err(StoreError::HeadMoved(id.clone()).into())
        }
    }

    fn check_begin_deletion(&mut self, id: &SessionId) -> Result<(), WriteError> {
        if deletion::stage(self.conn, id)?.is_some() {
            return Ok(());
        }
        self.require_no_live_runs(id)
    }

    fn require_deletion(&self, id: &SessionId, stages: &[DeletionStage]) -> Result<(), WriteError> {
        match deletion::stage(self.conn, id)? {
            Some(stage) if stages.contains(&stage) => Ok(()),
            _ => Err(not_found("a pending deletion of session", id)),
        }
    }

    fn trace(&mut self, new: &'a NewTrace) -> Result<(), WriteError> {
        self.require_session(&new.session_id)?;
        if let Some(parent) = &new.parent_trace_id {
            self.require_trace(parent)?;
        }
        if self.has_trace(&new.trace_id)? {
            return Err(already_exists("trace", &new.trace_id));
        }
        self.appended.traces.insert(&new.trace_id);
        self.appended.sequences.insert(&new.trace_id, 0);
        Ok(())
    }

    fn run(&mut self, run: &'a Run) -> Result<(), WriteError> {
        self.require_trace(&run.trace_id)?;
        if let Some(parent) = &run.parent_run_id {
            self.require_run(parent)?;
        }
        if self.has_run(&run.run_id)? {
            return Err(already_exists("run", &run.run_id));
        }
        // The session may have been deleted, and its id used again, since the run was prepared.
        let incarnation = match self.cache.sessions.get(self.conn, &run.session_id)? {
            Some(session) => session.incarnation,
            // This append creates it.
            None => sessions::next_incarnation(self.conn, &run.session_id)?.number,
        };
        if incarnation != run.session_incarnation {
            return Err(StoreError::SessionDeleting(run.session_id.clone()).into());
        }
        self.appended.runs.insert(&run.run_id);
        Ok(())
    }

    /// Requires a sequence above all earlier ones (MSG-1), and a parent that is one of them.
    fn message(&mut self, message: &'a Message) -> Result<(), WriteError> {
        let last = match self.appended.sequences.get(&message.trace_id) {
            Some(last) => *last,
            None => match self.cache.traces.get(self.conn, &message.trace_id)? {
                Some(trace) => trace.last_sequence,
                None => return Err(not_found("trace", &message.trace_id)),
            },
        };
        if message.sequence <= last {
            return Err(already_exists("message", message.message_id()));
        }
        if let Some(parent) = message.parent_sequence.filter(|parent| *parent > last) {
            return Err(not_found(
                "message",
                format!("{}-{parent:04}", message.trace_id),
            ));
        }
        self.appended
            .sequences
            .insert(&message.trace_id, message.sequence);
        Ok(())
    }

    fn numbers(&mut self, id: &ArtifactId) -> Result<Option<RevisionNumbers>, WriteError> {
        match self.appended.numbers.get(id) {
            Some(numbers) => Ok(*numbers),
            None => Ok(artifacts::numbers(self.conn, id)?),
        }
    }

    fn version(&mut self, new: &'a NewVersion) -> Result<(), WriteError> {
        let last = self.check_next_number(&new.artifact)?;
        if last.stored != last.current {
            let message = format!(
                "{}, which has edits without a stored version,",
                new.artifact.label()
            );
            return Err(already_exists("artifact", message));
        }
        let number = new.artifact.current_version;
        self.appended.numbers.insert(
            &new.artifact.artifact_id,
            Some(RevisionNumbers {
                current: number,
                stored: number,
            }),
        );
        Ok(())
    }

    fn edit(&mut self, new: &'a NewEdit) -> Result<(), WriteError> {
        self.require_trace(&new.edit.trace_id)?;
        self.require_run(&new.edit.effect.run_id)?;
        let last = self.check_next_number(&new.artifact)?;
        let numbers = RevisionNumbers {
            current: new.edit.revision,
            ..last
        };
        self.appended
            .numbers
            .insert(&new.artifact.artifact_id, Some(numbers));
        Ok(())
    }

    fn flush(&mut self, new: &'a NewDocumentVersion) -> Result<(), WriteError> {
        let last = self
            .numbers(&new.artifact_id)?
            .ok_or_else(|| not_found("artifact", &new.artifact_id))?;
        if new.version <= last.stored {
            return Err(already_exists(
                "artifact",
                format!("{} in version {}", new.artifact_id, last.stored),
            ));
        }
        if new.version > last.current {
            return Err(not_found(
                "revision",
                format!("{} of artifact {}", new.version, new.artifact_id),
            ));
        }
        self.appended.numbers.insert(
            &new.artifact_id,
            Some(RevisionNumbers {
                stored: new.version,
                ..last
            }),
        );
        Ok(())
    }

    /// Requires that an artifact's numbers have no gaps and that its name is unique in the scope;
    /// returns its last numbers.
    fn check_next_number(&mut self, artifact: &'a Artifact) -> Result<RevisionNumbers, WriteError> {
        if let ArtifactScope::Session { session_id } = &artifact.scope {
            self.require_session(session_id)?;
        }
        if let Some(name) = artifact.name.as_deref() {
            let name = (&artifact.scope, name);
            let owner = match self.appended.names.get(&name) {
                Some(id) => id.cloned(),
                None => artifacts::id_by_name(self.conn, name.0, name.1)?,
            };
            if owner.is_some_and(|owner| owner != artifact.artifact_id) {
                return Err(already_exists("artifact", name.1));
            }
            self.appended
                .names
                .insert(name, Some(&artifact.artifact_id));
        }
        if let Some(name) = artifact.withdrawn.as_deref() {
            self.appended.names.insert((&artifact.scope, name), None);
        }
        let last = self.numbers(&artifact.artifact_id)?;
        if last.is_none() && artifact.current_version > 1 {
            return Err(not_found("artifact", artifact.label()));
        }
        let last = last.unwrap_or_default();
        if artifact.current_version != last.current + 1 {
            // The number is taken or would leave a gap, so the caller has not seen the last
            // version.
            return Err(already_exists(
                "artifact",
                format!("{} in version {}", artifact.label(), last.current),
            ));
        }
        Ok(last)
    }
}
