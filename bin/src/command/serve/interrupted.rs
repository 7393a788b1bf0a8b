//! Runs that an earlier process left unfinished: names them with their cost so far, and lets the
//! user decide about them.

use std::path::Path;

use soong::protocol::{RecoveryMode, Run, RunStatus};
use soong_storage::{sqlite::SqliteReader, store::Reader};
use soong_tui::{format, spent::Spent, text};

use crate::{
    context::Context,
    exit::{Exit, Failure},
    input::{Input, InputLine},
    offline_store::{self, OfflineStore, unfinished},
    print, prompts,
};

/// Maximum number of runs that are named.
const MAX_NAMED: usize = 20;
/// Maximum width of a task, in columns.
const MAX_TASK_COLUMNS: usize = 50;

/// An interrupted run of a user, with its unfinished sub-agents.
struct InterruptedRun {
    session_name: String,
    task: String,
    status: RunStatus,
    turn: u32,
    unfinished_children: usize,
    spent: Spent,
}

/// Names the interrupted runs of a home, and returns what happens to them. `setting`: what the
/// command line or the configuration says.
///
/// Without a setting, the user is asked if there is a terminal. Where nobody can be asked, `ask`
/// leaves them interrupted.
pub(super) async fn decide(
    context: &Context<'_>,
    home: &Path,
    setting: Option<RecoveryMode>,
) -> Result<RecoveryMode, Failure> {
    let can_ask = !context.global.json && prompts::is_interactive();
    let default = if can_ask {
        RecoveryMode::Ask
    } else {
        RecoveryMode::Resume
    };
    let mode = setting.unwrap_or(default);
    let runs = find(home);
    if runs.is_empty() {
        // A run may be interrupted later, when another process that owns the home exits.
        return Ok(if mode == RecoveryMode::Ask {
            RecoveryMode::Resume
        } else {
            mode
        });
    }
    if !context.global.json {
        print_runs(&runs);
    }
    if mode != RecoveryMode::Ask {
        return Ok(mode);
    }
    if can_ask {
        return ask().await;
    }
    print::error_line(
        "warning: recovery \"ask\" needs a terminal: the runs stay interrupted; see --recovery",
    );
    Ok(RecoveryMode::None)
}

/// Reads the interrupted runs. Returns nothing if the home cannot be read; opening it reports the
/// error.
fn find(home: &Path) -> Vec<InterruptedRun> {
    if offline_store::owner(home).is_some() {
        return Vec::new();
    }
    let Ok(store) = OfflineStore::open(home) else {
        return Vec::new();
    };
    let Ok(found) = unfinished(&store.reader) else {
        return Vec::new();
    };
    let mut runs = found.interrupted;
    runs.extend(found.awaiting_input);
    let mut interrupted = Vec::new();
    for run in runs.iter().filter(|run| run.parent_run_id.is_none()) {
        let session = store.session(&run.session_id);
        interrupted.push(InterruptedRun {
            session_name: session.map_or_else(
                |_| run.session_id.to_string(),
                |found| found.short_name().to_owned(),
            ),
            task: text::safe_line(&run.task),
            status: run.status,
            turn: run.turn,
            unfinished_children: count_below(&runs, run),
            spent: spent_by_tree(&store.reader, run),
        });
    }
    interrupted
}

/// Returns the number of unfinished runs below a run.
fn count_below(runs: &[Run], above: &Run) -> usize {
    let children = runs
        .iter()
        .filter(|run| run.parent_run_id.as_ref() == Some(&above.run_id));
    children.map(|child| 1 + count_below(runs, child)).sum()
}

/// Returns what a run and all runs below it have used, including those that have ended.
fn spent_by_tree(reader: &SqliteReader, run: &Run) -> Spent {
    let mut spent = Spent::NOTHING;
    let mut open = vec![run.clone()];
    while let Some(run) = open.pop() {
        spent = spent.plus(Spent::from(&run.usage));
        open.extend(reader.children(&run.run_id).unwrap_or_default());
    }
    spent
}

fn print_runs(runs: &[InterruptedRun]) {
    let count = format::plural(runs.len(), "run was", "runs were");
    print::error_line(&format!(
        "{count} interrupted when the last process of this home ended:"
    ));
    for run in runs.iter().take(MAX_NAMED) {
        let task = text::cut(&run.task, MAX_TASK_COLUMNS, "…");
        let progress = match run.status {
            RunStatus::Queued => "queued".to_owned(),
            _ => format!(
                "{}, {}",
                format::plural(run.turn as usize, "turn", "turns"),
                run.spent.cost()
            ),
        };
        let children = match run.unfinished_children {
            0 => String::new(),
            count => format!(
                ", {}",
                format::plural(count, "open sub-agent", "open sub-agents")
            ),
        };
        print::error_line(&format!(
            "  {}  {task}  ({progress}{children})",
            text::safe_line(&run.session_name)
        ));
    }
    if runs.len() > MAX_NAMED {
        print::error_line(&format!(
            "  … and {} more: see `soong traces list`",
            runs.len() - MAX_NAMED
        ));
    }
}

async fn ask() -> Result<RecoveryMode, Failure> {
    let mut input = Input::of_person()?;
    loop {
        let answer = input
            .next(
                "resume them? [Y]es, [n]o: leave them interrupted, [f]ail: end them: ",
                "",
            )
            .await?;
        let answer = match answer {
            InputLine::Line(answer) => answer,
            InputLine::Closed => return Ok(RecoveryMode::None),
            InputLine::Key(..) | InputLine::Discarded => {
                return Err(Failure::new(
                    Exit::Interrupted,
                    "interrupted before the server started",
                    "",
                ));
            }
        };
        match answer.trim().to_lowercase().as_str() {
            "" | "y" | "yes" => return Ok(RecoveryMode::Resume),
            "n" | "no" => return Ok(RecoveryMode::None),
            "f" | "fail" => return Ok(RecoveryMode::Fail),
            _ => {}
        }
    }
}
