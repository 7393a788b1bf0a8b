//! `soong tree`: prints the live actor tree of the home's owner or, without an owner, the
//! unfinished runs recorded on disk.

use std::time::Duration;

use futures::StreamExt;
use serde_json::{Value, json};
use soong::{
    ActorView,
    protocol::{
        Run, Session, SessionId,
        api::{
            Ready,
            operation::{ReadSession, ReadTree},
        },
        tree::ActorKind,
    },
};
use soong_client::{Client, socket};
use soong_tui::{
    monitor::{CellWriter, tree_lines},
    screen::{
        self,
        lines::{PictureFormat, lines},
        run_table::{RunRow, RunTable},
    },
    terminal::TextStyle,
    text,
};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    offline_store::{self, OfflineStore, unfinished},
    print,
    source::Source,
};

/// Width in columns if standard output is not a terminal of known width.
const COLUMNS: usize = 160;
/// Maximum number of concurrent reads of sessions.
const CONCURRENT_READS: usize = 16;
/// Maximum time for reading sessions: the tree is also shown if the store of the owner hangs.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) async fn tree(context: &Context<'_>, by_supervision: bool) -> Result<Exit, Failure> {
    if context.print_if_unused(&json!({ "source": "disk", "pid": null, "children": [] }))? {
        return Ok(Exit::Success);
    }
    match context.source().await? {
        Source::Owner(client, ready) => {
            let root = client.call(ReadTree {}).await?;
            let sessions = if context.global.json {
                Vec::new()
            } else {
                read_sessions(&client, &root).await
            };
            live(context, root, sessions, &ready, by_supervision)?
        }
        Source::Disk(records) => print_recorded(context, &records)?,
    }
    Ok(Exit::Success)
}

/// Reads the sessions of a tree, for their names. Leaves out those that cannot be read, or all if
/// that takes too long.
async fn read_sessions(client: &Client, root: &ActorView) -> Vec<Session> {
    let mut ids = Vec::new();
    let mut open = vec![root];
    while let Some(actor) = open.pop() {
        open.extend(&actor.children);
        if actor.kind == ActorKind::Session {
            ids.push(&actor.id);
        }
    }
    let reads = futures::stream::iter(ids)
        .map(async |id| {
            let request = ReadSession {
                session_id: SessionId::new(id.as_str()),
            };
            client.call(request).await
        })
        .buffer_unordered(CONCURRENT_READS);
    let read = reads
        .filter_map(async |read| read.ok().map(|view| view.session))
        .collect();
    tokio::time::timeout(READ_TIMEOUT, read)
        .await
        .unwrap_or_default()
}

/// Prints the actor tree as its owner reports it.
fn live(
    context: &Context<'_>,
    root: ActorView,
    sessions: Vec<Session>,
    ready: &Ready,
    by_supervision: bool,
) -> Result<(), Failure> {
    if context.global.json {
        let mut json = serde_json::to_value(&root).unwrap_or_default();
        json["source"] = Value::from("owner");
        json["pid"] = Value::from(ready.pid);
        return print::json(&json);
    }
    let format = frame(context);
    let cells = CellWriter::of(context.terminal.stdout, context.terminal);
    let width = u16::try_from(format.width).unwrap_or(u16::MAX);
    let lines = tree_lines(root, sessions, by_supervision, cells, width, format.now);
    lines
        .iter()
        .try_for_each(|line| print::line(&line.to_ansi(context.terminal.stdout)))
}

fn frame(context: &Context<'_>) -> PictureFormat {
    let (columns, _) = crossterm::terminal::size().unwrap_or_default();
    let is_known = context.terminal.has_stdout && columns > 0;
    let width = if is_known {
        usize::from(columns) - 1
    } else {
        COLUMNS
    };
    PictureFormat {
        width,
        height: usize::MAX,
        unicode: context.terminal.unicode,
        now: screen::now(),
    }
}

/// Prints the unfinished runs from disk; without an owner it is unknown which of them are alive.
fn print_recorded(context: &Context<'_>, records: &OfflineStore) -> Result<(), Failure> {
    let found = unfinished(&records.reader)?;
    let sessions = by_session(
        records,
        found.interrupted.iter().chain(&found.awaiting_input),
    )?;
    if context.global.json {
        let children: Vec<Value> = sessions
            .iter()
            .map(|(session, runs)| session_json(session, runs))
            .collect();
        let pid = offline_store::owner(records.home());
        return print::json(&json!({ "source": "disk", "pid": pid, "children": children }));
    }
    if sessions.is_empty() {
        return print::line(&format!(
            "no unfinished runs in {}",
            records.home().display()
        ));
    }
    // An owner that has a socket but does not answer was reported before.
    let pid = offline_store::owner(records.home());
    if let Some(pid) = pid.filter(|_| !socket::is_served(records.home())) {
        print::note(&format!(
            "process {pid} owns this home but has no control socket: its runs are shown as recorded on disk"
        ));
    } else if pid.is_none() && !found.interrupted.is_empty() {
        print::note(
            "no process owns this home: runs were interrupted; resume them with `soong run --trace SESSION`",
        );
    }
    if !found.awaiting_input.is_empty() {
        print::note(
            "runs are waiting for input: see `soong questions list` and `soong permissions list`",
        );
    }
    let frame = frame(context);
    for (session, runs) in &sessions {
        let name = text::safe_line(session.name.as_deref().unwrap_or(""));
        let head = text::cut(
            &format!("session {}  {name}", text::safe_line(session.short_name())),
            frame.width,
            context.terminal.ellipsis(),
        );
        print::line(&context.terminal.stdout.paint(TextStyle::Bold, &head))?;
        print_runs(context, runs.iter().copied(), usize::MAX)?;
    }
    Ok(())
}

/// Prints runs as a tree of at most `height` lines.
pub(super) fn print_runs<'a>(
    context: &Context<'_>,
    runs: impl Iterator<Item = &'a Run>,
    height: usize,
) -> Result<(), Failure> {
    let table = RunTable::of(runs.map(RunRow::from).collect());
    let format = PictureFormat {
        height,
        ..frame(context)
    };
    lines(&table, &format)
        .iter()
        .try_for_each(|line| print::line(line.to_ansi(context.terminal.stdout).trim_end()))
}

/// Groups runs by session.
fn by_session<'a>(
    records: &OfflineStore,
    runs: impl Iterator<Item = &'a Run>,
) -> Result<Vec<(Session, Vec<&'a Run>)>, Failure> {
    let mut sessions: Vec<(Session, Vec<&Run>)> = Vec::new();
    for run in runs {
        match sessions
            .iter_mut()
            .find(|(session, _)| session.session_id == run.session_id)
        {
            Some((_, runs)) => runs.push(run),
            None => sessions.push((records.session(&run.session_id)?, vec![run])),
        }
    }
    Ok(sessions)
}

/// Formats a session and its runs like the live tree, with the fields that are recorded on disk.
fn session_json(session: &Session, runs: &[&Run]) -> Value {
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
