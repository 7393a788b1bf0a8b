//! The child: opens the home, carries out actions, and then waits for all runs. It is killed at any
//! time.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use soong::{RunFilter, Runtime};

use super::{
    Failed,
    action::{ACTIONS, action, answer_people, carry_out},
    drill_dir::DrillDir,
    scene,
};

/// Maximum time that the runs may need after the last action.
const TIME_TO_END: Duration = Duration::from_secs(60);

/// Line that reports that an action was carried out.
pub(crate) const ACTION_DONE: &str = "action done";
/// Line that reports that a rebuilt state equals the live one.
pub(crate) const COMPARED: &str = "state compared";
/// Kind of the line that reports an unexpected error of an action.
const ACTION_FAILED: &str = "action failed";
/// Kind of the line that reports runs without end.
const HANGS: &str = "run hangs";
/// Kind of the line that reports a rebuilt state that differs from the live one.
const STATE_DIFFERS: &str = "rebuilt state differs";
/// Kind of the line that reports actors or tasks that are left after the runtime was closed.
const LEFT_OVER: &str = "actor left over";

/// Returns the kind of violation that a line of the child reports.
pub(crate) fn violation_kind(kind: &str) -> &'static str {
    let kinds = [ACTION_FAILED, HANGS, STATE_DIFFERS, LEFT_OVER];
    kinds
        .into_iter()
        .find(|known| *known == kind)
        .unwrap_or("unexpected output")
}

/// Writes a line to stdout at once.
fn report(line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    // If the parent is gone, no report is needed.
    let _ = std::io::stdout().lock().write_all(line.as_bytes());
}

/// Carries out the actions from this one on, waits for all runs, and closes the runtime.
pub(crate) async fn work(folder: &Path, seed: u64, first_action: u64) -> Result<(), Failed> {
    let builder = scene::builder(&DrillDir(folder), seed);
    let builder = builder.difference_hook(Arc::new(|run, lines| {
        if lines.is_empty() {
            report(COMPARED);
        } else {
            report(&format!("{STATE_DIFFERS}: {run}: {}", lines.join("; ")));
        }
    }));
    let runtime = builder.build().await?;
    for number in first_action..ACTIONS {
        let action = action(seed, number);
        if let Err(error) = carry_out(&runtime, &action).await {
            report(&format!("{ACTION_FAILED}: {number} {action:?}: {error}"));
        }
        report(ACTION_DONE);
    }
    if tokio::time::timeout(TIME_TO_END, wait_for_runs(&runtime))
        .await
        .is_err()
    {
        let mut runs = Vec::new();
        for run in runtime.runs(RunFilter::active()) {
            runs.push(format!(
                "{} of {}: {:?}",
                run.run_id(),
                run.trace_id(),
                run.status().await
            ));
        }
        report(&format!(
            "{HANGS}: {}; {:?}",
            runs.join(", "),
            runtime.tree().snapshot()
        ));
    }
    runtime.close().await;
    let left = runtime.tree().live_count();
    if left > 0 {
        report(&format!("{LEFT_OVER}: {left}"));
    }
    Ok(())
}

/// Answers people until no run is active.
async fn wait_for_runs(runtime: &Runtime) {
    while !runtime.runs(RunFilter::active()).is_empty() {
        // A run that ends meanwhile needs no answer.
        let _ = answer_people(runtime, true).await;
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
