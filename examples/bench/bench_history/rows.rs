//! Rows of a session, a trace and a run, for benchmarks that write directly to the store.

use soong::protocol::{
    NewSession, NewTrace, Run, RunId, RunMode, RunSettings, RunWrite, SessionId, SessionWrite,
    Timestamp, TraceId, TraceWrite, Write,
};

const TASK: &str = "Look at one part of the project";

pub(crate) fn session(id: &SessionId, at: Timestamp) -> Write {
    Write::Session(SessionWrite::Create(NewSession {
        session_id: id.clone(),
        name: Some(TASK.to_owned()),
        uid: "local".to_owned(),
        project_dir: ".".to_owned(),
        created_at: at,
    }))
}

pub(crate) fn trace(id: &TraceId, session: &SessionId, at: Timestamp) -> Write {
    Write::Trace(TraceWrite::Create(NewTrace {
        trace_id: id.clone(),
        session_id: session.clone(),
        run_mode: RunMode::Normal,
        name: TASK.to_owned(),
        task: TASK.to_owned(),
        agent_type: "default".to_owned(),
        parent_trace_id: None,
        parent_goal_id: None,
        uid: "local".to_owned(),
        model: "mock".to_owned(),
        created_at: at,
    }))
}

pub(crate) fn run(id: &RunId, trace: &TraceId, session: &SessionId, at: Timestamp) -> Write {
    let settings = RunSettings::default();
    let queued = Run::queued(
        session.clone(),
        trace.clone(),
        TASK.to_owned(),
        settings,
        "local".to_owned(),
        at,
    );
    Write::Run(RunWrite::Create(Box::new(Run {
        run_id: id.clone(),
        ..queued
    })))
}
