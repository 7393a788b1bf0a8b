//! `soong tree`: which runs have not ended, as recorded on disk.
//!
//! Nobody is asked who is alive: a run whose process is gone looks at work here until the next
//! owner of the home ends it.

use serde_json::{Value, json};
use soong::protocol::{Run, Session};
use soong_storage::store::Reader;

use super::Context;
use crate::{
    exit::{Exit, Failure},
    print,
    records::Records,
    screen::{
        self,
        board::{Board, Entry},
        lines::{Frame, lines},
    },
    terminal::Hue,
    text,
};

pub(super) fn tree(context: &Context<'_>) -> Result<Exit, Failure> {
    let records = context.records()?;
    let sessions = at_work(&records)?;
    if context.global.json {
        let children: Vec<Value> = sessions.iter().map(|(session, runs)| session_json(session, runs)).collect();
        print::json(&json!({ "source": "disk", "children": children }))?;
        return Ok(Exit::Done);
    }
    if sessions.is_empty() {
        print::line(&format!("no run is at work in {}", records.home().display()))?;
        return Ok(Exit::Done);
    }
    print::error_line("note: read from disk; a run whose process is gone is shown until the home has a new owner");
    let (columns, _) = crossterm::terminal::size().unwrap_or((120, 0));
    let width = if columns == 0 { 120 } else { usize::from(columns) - 1 };
    for (session, runs) in &sessions {
        let name = text::line(session.name.as_deref().unwrap_or(""));
        let head = text::cut(&format!("session {}  {name}", session.session_id), width, context.terminal.ellipsis());
        print::line(&context.terminal.stdout.paint(Hue::Bold, &head))?;
        let board = Board { entries: runs.iter().map(Entry::from).collect() };
        let frame = Frame { width, height: usize::MAX, unicode: context.terminal.unicode, now: screen::now() };
        for line in lines(&board, &frame) {
            print::line(line.painted(context.terminal.stdout).trim_end())?;
        }
    }
    Ok(Exit::Done)
}

/// Returns the sessions in which runs have not ended, with these runs.
fn at_work(records: &Records) -> Result<Vec<(Session, Vec<Run>)>, Failure> {
    let mut sessions: Vec<(Session, Vec<Run>)> = Vec::new();
    for run in records.reader.live_runs(None)? {
        match sessions.iter_mut().find(|(session, _)| session.session_id == run.session_id) {
            Some((_, runs)) => runs.push(run),
            None => sessions.push((records.session(run.session_id.as_str())?, vec![run])),
        }
    }
    Ok(sessions)
}

/// Writes a session with its runs in the shape of the live tree, as far as the disk knows.
fn session_json(session: &Session, runs: &[Run]) -> Value {
    let actor_id = format!("session:{}", session.session_id);
    let children: Vec<Value> = runs
        .iter()
        .map(|run| {
            json!({
                "actor_id": format!("run:{}", run.run_id),
                "kind": "run",
                "id": run.run_id,
                "name": run.settings.agent_type,
                "parent": actor_id,
                "state": run.status,
                "started_at": run.started_at,
                "run": {
                    "trace_id": run.trace_id,
                    "parent_run_id": run.parent_run_id,
                    "mode": run.mode,
                    "agent_type": run.settings.agent_type,
                    "task": run.task,
                    "turn": run.turn,
                    "tokens": run.usage.total_tokens,
                    "cost": run.cost,
                },
                "children": [],
            })
        })
        .collect();
    json!({
        "actor_id": actor_id,
        "kind": "session",
        "id": session.session_id,
        "name": session.name,
        "parent": null,
        "state": "running",
        "started_at": session.created_at,
        "children": children,
    })
}
