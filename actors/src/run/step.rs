//! Runs one transition of a run with the current time, new ids, and the run's budget.

use soong_protocol::RunId;

use crate::{
    clock::now,
    run::{
        machine::{RunState, Step, StepContext, input::RunInput},
        registry::entry::RunEntry,
    },
};

/// Handles one input with the current time, new ids, and the run's budget. `entry`: `None` if no
/// actor of this process executed the run.
pub(crate) fn run_step(run: &mut RunState, input: RunInput, entry: Option<&RunEntry>) -> Step {
    let mut new_run_id = RunId::generate;
    let used_ms = entry.map_or(0, |entry| entry.control.clock.used_ms());
    let account = entry.and_then(|entry| entry.control.budget.as_ref());
    let step = run.handle(
        input,
        &mut StepContext {
            now: now(),
            used_ms,
            new_run_id: &mut new_run_id,
            budget: account,
        },
    );
    if let Some(entry) = entry.filter(|_| run.has_started()) {
        entry.control.clock.start(run.used_ms());
    }
    step
}
