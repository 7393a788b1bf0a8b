//! `soong tree`: prints the live actor tree of the home's owner or, without an owner, the unfinished runs recorded on
//! disk.

use serde_json::{Value, json};
use soong::{
    ActorKind, ActorView,
    protocol::{Run, Session, Timestamp, Usd, api::Ready},
};
use soong_client::socket;
use soong_tui::{
    format,
    screen::{
        self,
        lines::{PictureFormat, lines},
        run_table::{RunRow, RunTable},
        totals::format_usd,
    },
    styled_line::StyledLine,
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
/// Width of the activity column.
const ACTIVITY_COLUMNS: usize = 27;

pub(super) async fn tree(context: &Context<'_>) -> Result<Exit, Failure> {
    if context.print_if_unused(&json!({ "source": "disk", "pid": null, "children": [] }))? {
        return Ok(Exit::Success);
    }
    match context.source().await? {
        Source::Owner(client, ready) => live(context, &client.tree().await?, &ready)?,
        Source::Disk(records) => print_recorded(context, &records)?,
    }
    Ok(Exit::Success)
}

/// Prints the actor tree as its owner reports it.
fn live(context: &Context<'_>, root: &ActorView, ready: &Ready) -> Result<(), Failure> {
    if context.global.json {
        let mut json = serde_json::to_value(root).unwrap_or_default();
        json["source"] = Value::from("owner");
        json["pid"] = Value::from(ready.pid);
        return print::json(&json);
    }
    for line in drawn(root, &frame(context)) {
        print::line(line.to_ansi(context.terminal.stdout).trim_end())?;
    }
    Ok(())
}

fn frame(context: &Context<'_>) -> PictureFormat {
    let (columns, _) = crossterm::terminal::size().unwrap_or_default();
    let is_known = context.terminal.has_stdout && columns > 0;
    let width = if is_known { usize::from(columns) - 1 } else { COLUMNS };
    PictureFormat { width, height: usize::MAX, unicode: context.terminal.unicode, now: screen::now() }
}

/// A line of the printed tree, before columns are measured.
struct Row<'a> {
    view: &'a ActorView,
    /// Branch characters that lead to the actor.
    branch: String,
    name: String,
}

/// Formats an actor and all its descendants, one per line; state and activity have their own column.
fn drawn(root: &ActorView, frame: &PictureFormat) -> Vec<StyledLine> {
    let (more, last, down) = if frame.unicode { ("├─ ", "└─ ", "│  ") } else { ("|- ", "`- ", "|  ") };
    let mut rows = Vec::new();
    // Each entry: the actor, the prefix of its line and the prefix of the lines below it.
    let mut open: Vec<(&ActorView, String, String)> = vec![(root, String::new(), String::new())];
    while let Some((view, branch, below)) = open.pop() {
        rows.push(Row { view, branch, name: name(view) });
        for (at, child) in view.children.iter().enumerate().rev() {
            let (branch, trunk) = if at + 1 == view.children.len() { (last, "   ") } else { (more, down) };
            open.push((child, format!("{below}{branch}"), format!("{below}{trunk}")));
        }
    }
    let widest = rows.iter().map(|row| text::width(&row.branch) + text::width(&row.name)).max().unwrap_or(0);
    // Leaves room for the activity and the age in all but the narrowest windows.
    let left = widest.min((frame.width / 3).max(frame.width.saturating_sub(ACTIVITY_COLUMNS + 14)));
    rows.iter().map(|row| draw(row, left, frame)).collect()
}

fn name(view: &ActorView) -> String {
    let kind = view.kind.as_str();
    let name = match &view.run {
        Some(run) => format!("run {} {}", run.agent_type, run.task),
        // Only one actor of this kind exists, in the tree or below its session.
        None if view.id == "0" || matches!(view.kind, ActorKind::RunSupervisor | ActorKind::SubAgentSupervisor) => {
            kind.to_owned()
        }
        None => format!("{kind} {}", view.id),
    };
    text::safe_line(&name)
}

fn draw(row: &Row<'_>, left: usize, frame: &PictureFormat) -> StyledLine {
    let Row { view, branch, name } = row;
    let style = match &*view.state {
        _ if view.run.as_ref().is_some_and(|run| run.stuck) => TextStyle::Red,
        "running" => TextStyle::Plain,
        "idle" | "queued" => TextStyle::Dim,
        _ => TextStyle::Yellow,
    };
    let name = text::cut(name, left.saturating_sub(text::width(branch)), frame.ellipsis());
    let name = text::pad(&name, left.saturating_sub(text::width(branch)));
    let mut facts = vec![format!("{:>10}", age(view.since, frame.now))];
    if let Some(run) = &view.run {
        facts.push(format!("turn {}", run.turn));
        facts.push(format!("{} tok", format::count(run.tokens)));
        facts.extend(run.cost.filter(|cost| *cost > Usd::default()).map(format_usd));
        facts.extend((run.asks > 0).then(|| format::plural(run.asks as usize, "open request", "open requests")));
        let quiet = run.last_progress.filter(|_| run.stuck).map(|at| age(at, frame.now));
        facts.extend(quiet.map(|quiet| format!("stuck: no progress for {quiet}")));
    }
    if view.restarts > 0 {
        facts.push(format!("{} of {} restarts", view.restarts, view.restart_limit));
    }
    if view.mailbox > 0 {
        facts.push(format!("{} in mailbox", view.mailbox));
    }
    facts.extend(view.last_error.as_ref().map(|error| format!("last error: {}", text::safe_line(error))));
    // The activity says more than the state `running`.
    let doing = match (&*view.state, view.activity.as_str()) {
        (state, "") => state.to_owned(),
        ("running", activity) => activity.to_owned(),
        (state, activity) => format!("{state}: {activity}"),
    };
    let doing = text::pad(&text::cut(&text::safe_line(&doing), ACTIVITY_COLUMNS, frame.ellipsis()), ACTIVITY_COLUMNS);
    StyledLine::of(TextStyle::Dim, branch.as_str())
        .and(style, name)
        .and(TextStyle::Dim, format!("  {doing}  {}", facts.join("  ")))
        .cut(frame.width, frame.ellipsis())
}

fn age(since: Timestamp, now: Timestamp) -> String {
    format::duration(now.millis_since(since))
}

/// Prints the unfinished runs from disk; without an owner it is unknown which of them are alive.
fn print_recorded(context: &Context<'_>, records: &OfflineStore) -> Result<(), Failure> {
    let found = unfinished(&records.reader)?;
    let sessions = by_session(records, found.interrupted.iter().chain(&found.awaiting_input))?;
    if context.global.json {
        let children: Vec<Value> = sessions.iter().map(|(session, runs)| session_json(session, runs)).collect();
        let pid = offline_store::owner(records.home());
        return print::json(&json!({ "source": "disk", "pid": pid, "children": children }));
    }
    if sessions.is_empty() {
        return print::line(&format!("no unfinished runs in {}", records.home().display()));
    }
    // An owner that has a socket but does not answer was reported before.
    let pid = offline_store::owner(records.home());
    if let Some(pid) = pid.filter(|_| !socket::is_served(records.home())) {
        print::error_line(&format!(
            "note: process {pid} owns this home but has no control socket: its runs are shown as recorded on disk"
        ));
    } else if pid.is_none() && !found.interrupted.is_empty() {
        print::error_line(
            "note: no process owns this home: runs were interrupted; resume them with `soong run --trace SESSION`",
        );
    }
    if !found.awaiting_input.is_empty() {
        print::error_line("note: runs are waiting for input: see `soong questions list` and `soong permissions list`");
    }
    let frame = frame(context);
    for (session, runs) in &sessions {
        let name = text::safe_line(session.name.as_deref().unwrap_or(""));
        let head =
            text::cut(&format!("session {}  {name}", session.session_id), frame.width, context.terminal.ellipsis());
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
    let table = RunTable { entries: runs.map(RunRow::from).collect() };
    let format = PictureFormat { height, ..frame(context) };
    lines(&table, &format).iter().try_for_each(|line| print::line(line.to_ansi(context.terminal.stdout).trim_end()))
}

/// Groups runs by session.
fn by_session<'a>(
    records: &OfflineStore,
    runs: impl Iterator<Item = &'a Run>,
) -> Result<Vec<(Session, Vec<&'a Run>)>, Failure> {
    let mut sessions: Vec<(Session, Vec<&Run>)> = Vec::new();
    for run in runs {
        match sessions.iter_mut().find(|(session, _)| session.session_id == run.session_id) {
            Some((_, runs)) => runs.push(run),
            None => sessions.push((records.session(run.session_id.as_str())?, vec![run])),
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
