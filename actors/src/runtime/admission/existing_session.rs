//! State of an existing session that the admission of a run reads: its last runs, and the end of
//! its conversation.

use soong_protocol::{
    ConversationPoint, ErrorCode, ErrorInfo, Event, Message, Role, Run, RunEvent, RunId, RunMode,
    Session, SessionId, TraceId,
};
use soong_storage::store::{MessageAuthor, Reader, ResumePoint, StoreError};

use crate::runtime::settings::InheritedSettings;

/// State of an existing session, as far as a new run needs it.
pub(super) struct ExistingSession {
    pub(super) session: Session,
    /// The trace on which the new run works: the root trace, or that of a sub-agent.
    trace_id: TraceId,
    /// The last run of that trace. `None` if the session was created without a run, or is a copy
    /// without runs.
    pub(super) last: Option<Run>,
    /// The mode of the source conversation, if the session is a copy that has had no run.
    pub(super) copied_mode: Option<RunMode>,
    /// The settings that a new run inherits: those of the last run that is queued or has started.
    /// For a copy without runs, those that its source had when it was copied.
    pub(super) inherited: Option<InheritedSettings>,
    /// The runs of the session that have not ended.
    pub(super) live_runs: Vec<LiveRun>,
    /// The head of the trace.
    head_sequence: u64,
    /// The permission rules that deny, which stay in force for the session and for copies of it.
    pub(super) deny_rules: Vec<String>,
    /// The end of the conversation, after a rewind if there is one. Read only if the new run has no
    /// message.
    pub(super) conversation_end: Option<ConversationEnd>,
    /// The position of the message after which the new run continues.
    resume_point: Option<ResumePoint>,
}

/// A run that has not ended.
pub(super) struct LiveRun {
    pub(super) run_id: RunId,
    pub(super) trace_id: TraceId,
}

/// The end of a conversation.
pub(super) struct ConversationEnd {
    /// The run whose settings and task a run without a message takes: the last one that started
    /// (not one that was cancelled in the queue). If the conversation is rewound, was switched to
    /// another message, or is a copy without runs: the one that wrote the message to continue
    /// after. `None` in a copy of an earlier version.
    run: Option<MessageAuthor>,
    /// The first task of the trace.
    task: String,
    /// The last message; if the conversation is rewound first, the last message that is kept.
    pub(super) head: Message,
}

pub(super) fn read_session(
    reader: &dyn Reader,
    id: &SessionId,
    trace_id: TraceId,
    resumes: bool,
    after: Option<u64>,
) -> Result<Option<ExistingSession>, StoreError> {
    let root = &trace_id;
    let Some(session) = reader.session(id)? else {
        return Ok(None);
    };
    // Read first: if the head moves afterwards, the writer rejects the run.
    let head_sequence = reader.trace(root)?.map_or(0, |trace| trace.head_sequence);
    let last = reader.last_run(root)?;
    let copied = match &last {
        None => reader
            .trace(root)?
            .filter(|trace| trace.head_sequence > 0)
            .map(|trace| trace.run_mode),
        Some(_) => None,
    };
    let inherited = match last
        .as_ref()
        .filter(|last| !last.status.is_terminal() || last.started_at.is_some())
    {
        Some(last) => Some(InheritedSettings::of(last)),
        // The session has had no run, or the last one was cancelled in the queue.
        None => inherited_settings(reader, root)?,
    };
    let resume_point = match after {
        Some(sequence) => reader.resume_point(root, sequence)?,
        None => None,
    };
    let conversation_end = if resumes {
        read_conversation_end(reader, root, resume_point.as_ref())?
    } else {
        None
    };
    let live_runs = reader.live_runs(Some(id))?;
    let live_runs = live_runs
        .into_iter()
        .map(|run| LiveRun {
            run_id: run.run_id,
            trace_id: run.trace_id,
        })
        .collect();
    let deny_rules = session_deny_rules(reader, id, root)?;
    let copied_mode = copied;
    Ok(Some(ExistingSession {
        session,
        trace_id,
        last,
        copied_mode,
        inherited,
        live_runs,
        head_sequence,
        deny_rules,
        conversation_end,
        resume_point,
    }))
}

/// Reads the rules of a session that deny. Each run passes on those of the run before it, on
/// whichever trace that was. Earlier versions passed them on only within a trace, so those of the
/// given trace and of the root are included.
pub(in crate::runtime) fn session_deny_rules(
    reader: &dyn Reader,
    id: &SessionId,
    trace_id: &TraceId,
) -> Result<Vec<String>, StoreError> {
    let mut rules = reader.deny_rules(id)?;
    let root = TraceId::root(id);
    let mut trace_ids = vec![trace_id];
    if *trace_id != root {
        trace_ids.push(&root);
    }
    for trace_id in trace_ids {
        let inherited = inherited_settings(reader, trace_id)?.into_iter();
        for rule in inherited.flat_map(|before| before.settings.permissions.deny) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Ok(rules)
}

fn read_conversation_end(
    reader: &dyn Reader,
    root: &TraceId,
    resume_point: Option<&ResumePoint>,
) -> Result<Option<ConversationEnd>, StoreError> {
    let Some(trace) = reader.trace(root)? else {
        return Ok(None);
    };
    let head = resume_point.map_or(trace.head_sequence, |resume_point| resume_point.sequence);
    let last = reader.last_started_run(root)?;
    // The last run may have written no message. Its settings count unless the conversation
    // continues elsewhere.
    let continues_elsewhere =
        resume_point.is_some() || last.is_none() || reader.is_head_switched(root)?;
    let author = if continues_elsewhere {
        reader.message_author(root, head)?
    } else {
        None
    };
    let run = author.or_else(|| last.map(MessageAuthor::from));
    let head = reader.messages_at(root, &[head])?.pop();
    Ok(head.map(|head| ConversationEnd {
        run,
        task: trace.task,
        head,
    }))
}

/// Reads the settings that a new run of a conversation inherits: those of its last run that has
/// started, else those that were recorded when it was copied. Nothing is read through the id of its
/// source later, which may have had other runs, or have been deleted and its id used again.
pub(in crate::runtime) fn inherited_settings(
    reader: &dyn Reader,
    root: &TraceId,
) -> Result<Option<InheritedSettings>, StoreError> {
    if let Some(run) = reader.last_started_run(root)? {
        return Ok(Some(InheritedSettings::of(&run)));
    }
    let Some(fork) = reader.events(root, 0, 1)?.pop() else {
        return Ok(None);
    };
    let Event::Run(RunEvent::SessionForked {
        source,
        at,
        settings,
        ..
    }) = fork.event
    else {
        return Ok(None);
    };
    if let Some(settings) = settings {
        let mode = reader
            .trace(root)?
            .map(|trace| trace.run_mode)
            .unwrap_or_default();
        return Ok(Some(InheritedSettings {
            mode,
            settings: *settings,
        }));
    }
    // Version 0.1 recorded no settings. The source is still the same session if it has an event
    // from before the copy.
    let is_same = reader
        .events(&source, 0, 1)?
        .first()
        .is_some_and(|first| first.lsn < fork.lsn);
    let author = if is_same {
        reader.message_author(&source, at)?
    } else {
        None
    };
    Ok(author.map(|run| InheritedSettings {
        mode: run.mode,
        settings: run.settings,
    }))
}

impl ExistingSession {
    /// Returns whether the session has had a run, or is a copy of a conversation.
    pub(super) fn has_conversation(&self) -> bool {
        self.last.is_some() || self.copied_mode.is_some()
    }

    /// Returns the settings that a new run inherits.
    pub(super) fn inherited(&self) -> Option<InheritedSettings> {
        let run = self
            .conversation_end
            .as_ref()
            .and_then(|end| end.run.clone());
        run.map(|run| InheritedSettings {
            mode: run.mode,
            settings: run.settings,
        })
        .or_else(|| self.inherited.clone())
    }

    /// Returns the end of the conversation on which the new run works.
    pub(super) fn conversation_point(&self) -> ConversationPoint {
        ConversationPoint {
            trace_id: self.trace_id.clone(),
            head_sequence: self.head_sequence,
            last_run: self.last.as_ref().map(|last| last.run_id.clone()),
        }
    }

    /// Returns the message to rewind to. `None` if the conversation ends there already.
    pub(super) fn rewind_target(&self, sequence: u64) -> Result<Option<u64>, ErrorInfo> {
        match &self.resume_point {
            Some(resume_point) if resume_point.is_on_path => {
                Ok((resume_point.sequence != resume_point.head).then_some(sequence))
            }
            _ => Err(crate::run::cannot_continue_after(&self.trace_id, sequence)),
        }
    }

    /// Returns the last task of the session if it has no answer yet (MSG-2).
    pub(super) fn unanswered_task(&self) -> Result<String, ErrorInfo> {
        let subject = match self.trace_id.parent() {
            Some(_) => format!("trace {}", self.trace_id),
            None => format!("session {}", self.session.session_id),
        };
        if self
            .last
            .as_ref()
            .is_some_and(|last| !last.status.is_terminal())
        {
            let message =
                format!("{subject} has an unfinished run: wait for it, stop it, or send a message");
            return Err(ErrorInfo::retryable(ErrorCode::SessionActive, message));
        }
        let is_open = |head: &Message| match head.role {
            Role::Assistant => !head.tool_calls.is_empty(),
            Role::User | Role::Tool => true,
            Role::System => false,
        };
        match &self.conversation_end {
            Some(end) if end.head.is_request() => {
                Ok(super::input_files::task_text(&end.head.content))
            }
            Some(end) if is_open(&end.head) => Ok(end
                .run
                .as_ref()
                .map_or_else(|| end.task.clone(), |run| run.task.clone())),
            _ => {
                let was_asked = self.last.is_some() || self.copied_mode.is_some();
                let is_system = self
                    .conversation_end
                    .as_ref()
                    .is_some_and(|end| end.head.role == Role::System);
                let stands = match (was_asked, &self.resume_point) {
                    (true, Some(resume_point)) if is_system => {
                        format!(
                            "has no user message up to message {}",
                            resume_point.sequence
                        )
                    }
                    (true, Some(resume_point)) => {
                        format!("ends with an answer in message {}", resume_point.sequence)
                    }
                    (true, None) => "ends with an answer".to_owned(),
                    (false, _) => "has no user message".to_owned(),
                };
                let message = format!("{subject} {stands}: a new message is required");
                Err(ErrorInfo::new(ErrorCode::ValidationError, message))
            }
        }
    }
}
