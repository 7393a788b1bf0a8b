//! A store under test, with helpers to write records.

use std::sync::Arc;

use soong_protocol::{
    ArtifactId, EndReason, Event, EventDraft, EventRecord, GoalId, Message, ModelEvent, NewSession,
    NewTrace, Role, Run, RunEvent, RunId, RunMode, RunOptions, RunSettings, RunWrite, SessionId,
    SessionWrite, StatsPair, Timestamp, Trace, TraceId, TraceWrite, Usage, Usd, Write,
};

use crate::store::{Ack, Append, Fence, Reader, Store, StoreError};

/// A new store with its reader.
pub(super) struct TestStore {
    pub(super) store: Box<dyn Store>,
    pub(super) reader: Box<dyn Reader>,
}

pub(super) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(1_763_700_000_000 + seconds * 1_000)
}

pub(super) fn session_id(id: &str) -> SessionId {
    SessionId::new(id)
}

pub(super) fn trace_id(id: &str) -> TraceId {
    TraceId::new(id)
}

pub(super) fn run_id(id: &str) -> RunId {
    RunId::new(id)
}

pub(super) fn goal_id(id: &str) -> GoalId {
    GoalId::new(id)
}

pub(super) fn artifact_id(id: &str) -> ArtifactId {
    ArtifactId::new(id)
}

/// Returns the owner of a session and everything in it: `bob` if the id begins with `bob`, else
/// `local`.
fn owner(session: &str) -> String {
    if session.starts_with("bob") {
        "bob"
    } else {
        "local"
    }
    .into()
}

pub(super) fn new_session(id: &str) -> Write {
    Write::Session(SessionWrite::Create(NewSession {
        session_id: session_id(id),
        name: Some(format!("session {id}")),
        uid: owner(id),
        project_dir: "project".into(),
        created_at: at(0),
    }))
}

pub(super) fn new_trace(id: &str, session: &str) -> Write {
    sub_trace(id, session, None, None)
}

pub(super) fn sub_trace(
    id: &str,
    session: &str,
    parent: Option<&str>,
    goal: Option<&str>,
) -> Write {
    Write::Trace(TraceWrite::Create(NewTrace {
        trace_id: trace_id(id),
        session_id: session_id(session),
        run_mode: RunMode::Normal,
        task: format!("task of {id}"),
        name: format!("trace {id}"),
        agent_type: "default".into(),
        parent_trace_id: parent.map(trace_id),
        parent_goal_id: goal.map(goal_id),
        uid: owner(session),
        model: "m0".into(),
        created_at: at(1),
    }))
}

pub(super) fn new_run_record(id: &str, trace: &str, session: &str, parent: Option<&str>) -> Run {
    let options = RunOptions {
        max_turns: Some(7),
        ..RunOptions::default()
    };
    let settings = RunSettings {
        options,
        ..RunSettings::default()
    };
    let task = format!("task of {id}");
    Run {
        run_id: run_id(id),
        parent_run_id: parent.map(run_id),
        depth: u32::from(parent.is_some()),
        ..Run::queued(
            session_id(session),
            trace_id(trace),
            task,
            settings,
            owner(session),
            at(2),
        )
    }
}

pub(super) fn new_run(id: &str, trace: &str, session: &str) -> Write {
    Write::Run(RunWrite::Create(Box::new(new_run_record(
        id, trace, session, None,
    ))))
}

pub(super) fn child_run(id: &str, trace: &str, session: &str, parent: &str) -> Write {
    Write::Run(RunWrite::Create(Box::new(new_run_record(
        id,
        trace,
        session,
        Some(parent),
    ))))
}

pub(super) fn open_run(id: &str) -> Write {
    Write::Run(RunWrite::NewEpoch(run_id(id)))
}

pub(super) fn event(trace: &str, run: Option<&str>, second: i64, event: impl Into<Event>) -> Write {
    Write::Event(EventDraft::new(
        trace_id(trace),
        run.map(run_id),
        at(second),
        event,
    ))
}

pub(super) fn message(trace: &str, sequence: u64, parent: Option<u64>, role: Role) -> Message {
    Message::new(
        trace_id(trace),
        sequence,
        parent,
        role,
        format!("text {sequence}"),
        at(3),
    )
}

/// Returns the first message of a trace: a system prompt that is long enough to be shared with
/// other traces.
pub(super) fn system_message(trace: &str) -> Message {
    let prompt = "You are careful, and say what you do not know. ".repeat(4);
    Message::new(trace_id(trace), 1, None, Role::System, prompt, at(3))
}

pub(super) fn add_message(message: Message) -> Write {
    Write::Message(Arc::new(message))
}

pub(super) fn queued() -> RunEvent {
    RunEvent::Queued { position: 1 }
}

pub(super) fn started() -> RunEvent {
    RunEvent::LoopStarted {
        mode: RunMode::Orchestrator,
        agent_type: "orchestrator".into(),
        model: "m1".into(),
    }
}

pub(super) fn turn_started(attempt: u32) -> ModelEvent {
    ModelEvent::Started {
        model: "m1".into(),
        attempt,
    }
}

pub(super) fn answered(prompt: u64, completion: u64, cost: Option<u64>) -> ModelEvent {
    ModelEvent::Completed {
        finish_reason: "stop".into(),
        tool_calls: 0,
        usage: Usage {
            prompt_tokens: prompt,
            completion_tokens: completion,
            cached_tokens: 1,
            cache_write_tokens: 3,
            ..Usage::default()
        },
        cost: cost.map(Usd::from_nanos),
        duration_ms: 5,
        waited_ms: 0,
        answer_check: None,
    }
}

pub(super) fn stats_with_duration(duration_ms: u64) -> StatsPair {
    let mut stats = StatsPair::zero();
    stats.own.duration_ms = duration_ms;
    stats
}

pub(super) fn completed(summary: &str) -> RunEvent {
    RunEvent::Completed {
        summary: summary.into(),
        stats: stats_with_duration(1_500),
    }
}

pub(super) fn cancelled(reason: EndReason) -> RunEvent {
    RunEvent::Cancelled {
        queued: false,
        end_reason: reason,
        stats: stats_with_duration(10),
    }
}

impl TestStore {
    pub(super) fn new(store: Box<dyn Store>, reader: Box<dyn Reader>) -> Self {
        Self { store, reader }
    }

    /// Commits appends without a fence as one batch.
    pub(super) fn batch(&mut self, appends: Vec<Vec<Write>>) -> Vec<Result<Ack, StoreError>> {
        let batch: Vec<Append> = appends
            .into_iter()
            .map(|writes| Append {
                fence: None,
                writes,
            })
            .collect();
        self.store.commit(&batch).unwrap()
    }

    /// Commits one append without a fence, which must be accepted.
    pub(super) fn write(&mut self, writes: Vec<Write>) -> Ack {
        self.batch(vec![writes]).remove(0).unwrap()
    }

    /// Commits one append without a fence, which must be rejected.
    pub(super) fn write_rejected(&mut self, writes: Vec<Write>) -> StoreError {
        self.batch(vec![writes]).remove(0).unwrap_err()
    }

    /// Commits one append of an incarnation.
    pub(super) fn fenced(
        &mut self,
        run: &str,
        epoch: u64,
        number: u64,
        writes: Vec<Write>,
    ) -> Result<Ack, StoreError> {
        let fence = Some(Fence {
            run_id: run_id(run),
            epoch,
            number,
            active_ms: None,
        });
        self.store
            .commit(&[Append { fence, writes }])
            .unwrap()
            .remove(0)
    }

    /// Creates a session, a trace and a run with the same name, and opens the run: its epoch is 1.
    pub(super) fn start_run(&mut self, name: &str) {
        let ack = self.write(vec![
            new_session(name),
            new_trace(name, name),
            new_run(name, name, name),
            open_run(name),
        ]);
        assert_eq!(ack.epoch, Some(1));
    }

    /// Creates a session with the id of a deleted one, a trace and a run with the same name.
    pub(super) fn start_again(&mut self, name: &str, incarnation: u64) {
        let run = Run {
            session_incarnation: incarnation,
            ..new_run_record(name, name, name, None)
        };
        let run = Write::Run(RunWrite::Create(Box::new(run)));
        self.write(vec![
            new_session(name),
            new_trace(name, name),
            run,
            open_run(name),
        ]);
    }

    pub(super) fn trace(&self, id: &str) -> Trace {
        self.reader.trace(&trace_id(id)).unwrap().unwrap()
    }

    pub(super) fn run(&self, id: &str) -> Run {
        self.reader.run(&run_id(id)).unwrap().unwrap()
    }

    pub(super) fn events(&self, trace: &str) -> Vec<EventRecord> {
        self.reader.events(&trace_id(trace), 0, usize::MAX).unwrap()
    }
}
