//! The events of an earlier version, written once more by this version: in rows that hold several
//! events and refer to messages and results, each event is still the same, byte by byte.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::Arc,
};

use rusqlite::Connection;
use soong::protocol::{
    ChildResult, Durability, Event, EventDraft, EventRecord, MessageEvent, NewSession, NewTrace,
    RunEvent, RunId, RunStatus, RunWrite, Session, SessionId, SessionWrite, Timestamp, Trace,
    TraceId, TraceWrite, Write,
};
use soong_storage::{
    sqlite::{SqliteReader, SqliteStore},
    store::{Append, MessagePath, Reader, SessionFilter, Store, TraceFilter},
};

use super::home::{HOME_0_1, unpack};

fn new_session(session: &Session) -> Write {
    Write::Session(SessionWrite::Create(NewSession {
        session_id: session.session_id.clone(),
        name: session.name.clone(),
        uid: session.uid.clone(),
        project_dir: session.project_dir.clone(),
        created_at: session.created_at,
    }))
}

fn new_trace(trace: &Trace, at: Timestamp) -> Write {
    Write::Trace(TraceWrite::Create(NewTrace {
        trace_id: trace.trace_id.clone(),
        session_id: trace.session_id.clone(),
        run_mode: trace.run_mode,
        task: trace.task.clone(),
        name: trace.name.clone(),
        agent_type: trace.agent_type.clone(),
        parent_trace_id: trace.parent_trace_id.clone(),
        parent_goal_id: trace.parent_goal_id.clone(),
        uid: trace.uid.clone(),
        model: trace.model.clone(),
        created_at: at,
    }))
}

/// Returns the traces and the events of a session.
fn session_of(old: &SqliteReader, session: &Session) -> (Vec<Trace>, Vec<EventRecord>) {
    let filter = TraceFilter {
        session_id: Some(session.session_id.clone()),
        ..TraceFilter::default()
    };
    let mut traces = old.traces(&filter, usize::MAX, None).unwrap().items;
    traces.reverse();
    (
        traces,
        old.session_events(&session.session_id, 0, usize::MAX)
            .unwrap(),
    )
}

/// Returns the appends that write the events of a session, with their messages and results.
/// Consecutive events with the same time are one append.
fn appends(old: &SqliteReader, traces: &[Trace], events: &[EventRecord]) -> Vec<Vec<Write>> {
    let mut runs: HashSet<RunId> = HashSet::new();
    let mut results: BTreeMap<RunId, ChildResult> = BTreeMap::new();
    for run_id in events.iter().filter_map(|event| event.run_id.as_ref()) {
        results.extend(
            old.child_results(run_id)
                .unwrap()
                .into_iter()
                .map(|result| (result.run_id.clone(), result)),
        );
    }
    let mut appends = vec![messages_without_event(old, traces, events)];
    for same_time in events.chunk_by(|one, next| one.ts == next.ts) {
        let mut writes = Vec::new();
        for event in same_time {
            if let Some(run_id) = event
                .run_id
                .as_ref()
                .filter(|run_id| runs.insert((*run_id).clone()))
            {
                let mut run = old.run(run_id).unwrap().unwrap();
                run.status = RunStatus::Queued;
                writes.push(Write::Run(RunWrite::Create(Box::new(run))));
            }
            match &event.event {
                Event::Message(MessageEvent::Added { sequence, .. }) => {
                    let message = old
                        .messages_at(&event.trace_id, &[*sequence])
                        .unwrap()
                        .remove(0);
                    writes.push(Write::Message(Arc::new(message)));
                }
                Event::Run(RunEvent::Completed { .. }) => {
                    let result = event
                        .run_id
                        .as_ref()
                        .and_then(|run_id| results.remove(run_id));
                    writes.extend(
                        result.map(|result| Write::Run(RunWrite::ChildResult(Box::new(result)))),
                    );
                }
                _ => {}
            }
            let EventRecord {
                trace_id,
                run_id,
                ts,
                event,
                data,
                ..
            } = event.clone();
            writes.push(Write::Event(EventDraft {
                trace_id,
                run_id,
                ts,
                event,
                data,
            }));
        }
        appends.push(writes);
    }
    appends
}

/// A fork has messages that no event reports.
fn messages_without_event(
    old: &SqliteReader,
    traces: &[Trace],
    events: &[EventRecord],
) -> Vec<Write> {
    let reported: HashSet<(&TraceId, u64)> = events
        .iter()
        .filter_map(|event| match &event.event {
            Event::Message(MessageEvent::Added { sequence, .. }) => {
                Some((&event.trace_id, *sequence))
            }
            _ => None,
        })
        .collect();
    let all = traces
        .iter()
        .flat_map(|trace| old.messages(&trace.trace_id, MessagePath::All).unwrap());
    let missing = all.filter(|message| !reported.contains(&(&message.trace_id, message.sequence)));
    missing
        .map(|message| Write::Message(Arc::new(message)))
        .collect()
}

fn lines(events: &[EventRecord]) -> Vec<String> {
    events
        .iter()
        .map(|event| serde_json::to_string(event).unwrap())
        .collect()
}

/// Checks that a database has exactly these events, from every cursor.
fn assert_events(path: &Path, expected: &BTreeMap<SessionId, Vec<EventRecord>>) {
    let reader = SqliteReader::open(path).unwrap();
    for (session, events) in expected {
        for seen in 0..=events.len() {
            let lsn = reader.session_lsn(session, seen as u64).unwrap();
            let read = reader.session_events(session, lsn, 5).unwrap();
            assert_eq!(
                lines(&read),
                lines(&events[seen..events.len().min(seen + 5)]),
                "{session} after {seen}"
            );
        }
        let mut by_trace: BTreeMap<&TraceId, Vec<EventRecord>> = BTreeMap::new();
        let mut by_run: BTreeMap<&RunId, Vec<EventRecord>> = BTreeMap::new();
        for event in events {
            by_trace
                .entry(&event.trace_id)
                .or_default()
                .push(event.clone());
            if let Some(run) = &event.run_id {
                by_run.entry(run).or_default().push(event.clone());
            }
        }
        for (trace, events) in by_trace {
            for since in 0..=events.len() {
                let read = reader.events(trace, since as u64, usize::MAX).unwrap();
                assert_eq!(
                    lines(&read),
                    lines(&events[since..]),
                    "{trace} after {since}"
                );
            }
        }
        for (run, events) in by_run {
            assert_eq!(
                lines(&reader.run_events(run).unwrap()),
                lines(&events),
                "{run}"
            );
        }
    }
}

#[test]
fn events_of_0_1_are_the_same_after_being_written_again() {
    let (world, _) = unpack(HOME_0_1);
    let old_path = world.home().join("sessions.sqlite");
    drop(SqliteStore::open(&old_path, Durability::Normal).unwrap());
    let old = SqliteReader::open(&old_path).unwrap();
    let path = world.dir.path().join("again.sqlite");
    let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
    let mut sessions = old
        .sessions(&SessionFilter::default(), usize::MAX, None)
        .unwrap()
        .items;
    sessions.reverse();
    let mut expected = BTreeMap::new();
    for session in &sessions {
        let (traces, events) = session_of(&old, session);
        let mut all = vec![new_session(session)];
        all.extend(
            traces
                .iter()
                .map(|trace| new_trace(trace, session.created_at)),
        );
        for writes in std::iter::once(all).chain(appends(&old, &traces, &events)) {
            store
                .commit(&[Append {
                    fence: None,
                    writes,
                }])
                .unwrap()
                .remove(0)
                .unwrap();
        }
        expected.insert(session.session_id.clone(), events);
    }
    assert_events(&old_path, &expected);
    assert_events(&path, &expected);

    // Most events share a row, and events refer to messages.
    let count = |path: &Path| {
        let rows = |connection: Connection| {
            connection.query_row("SELECT count(*) FROM event", [], |row| row.get(0))
        };
        rows(Connection::open(path).unwrap()).unwrap()
    };
    let old_rows: i64 = count(&old_path);
    let new_rows: i64 = count(&path);
    assert!(
        new_rows * 3 < old_rows,
        "{new_rows} rows instead of {old_rows}"
    );
    let repeated = "SELECT count(*) FROM event WHERE instr(kind, 'message_added') AND instr(data, '\"parent_sequence\"')";
    let repeated: i64 = Connection::open(&path)
        .unwrap()
        .query_row(repeated, [], |row| row.get(0))
        .unwrap();
    assert_eq!(repeated, 0);

    let copy = world.dir.path().join("copy.sqlite");
    SqliteReader::open(&path).unwrap().copy_to(&copy).unwrap();
    assert_events(&copy, &expected);
}
