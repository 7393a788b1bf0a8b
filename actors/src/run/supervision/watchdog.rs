//! Detects runs that make no progress, and reports them as stuck (RUN-7).
//!
//! Time without progress does not count while a run waits for children, users, a slot, a budget or
//! the model gateway, or during a model call within its timeout. A stuck run is not ended here,
//! except a driven run without a handle.

use std::{sync::Arc, time::Duration};

use crate::{
    actor_base::Lifetime,
    run::{
        machine::input::{EndInput, RunInput},
        registry::{
            RunRegistry,
            entry::{RunEntry, RunPhase},
        },
    },
};

fn is_stuck(entry: &RunEntry) -> bool {
    let clock = &entry.control.clock;
    let is_over = |timeout_ms: u64| clock.quiet_ms() > timeout_ms;
    entry.published().phase.is_active()
        && !clock.is_paused()
        && clock.stall_timeout_ms().is_some_and(is_over)
}

/// Returns whether a driven run has no handle and no open children, and made no progress for
/// `stuck_after_ms`.
fn is_undriven(entry: &RunEntry, stuck_after_ms: u64) -> bool {
    let is_idle = matches!(entry.published().phase, RunPhase::Running);
    entry.identity.driven
        && !entry.has_handle()
        && is_idle
        && entry.control.clock.quiet_ms() > stuck_after_ms
}

/// Checks all runs periodically until the runtime closes.
pub(crate) async fn watch(runs: Arc<RunRegistry>, lifetime: Lifetime, stuck_after_ms: u64) {
    let every = Duration::from_millis((stuck_after_ms / 4).clamp(250, 30_000));
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = lifetime.closing().cancelled() => return,
        }
        for run in runs.select(|run| is_undriven(run, stuck_after_ms)) {
            runs.notify(&run, RunInput::End(EndInput::Undriven));
        }
        for run in runs.select(is_stuck) {
            if run.control.clock.mark_stall_reported() {
                continue;
            }
            let since = run.control.clock.last_progress();
            tracing::warn!(run = %run.identity.run_id, %since, "run stalled");
            run.status.update_run(|view| view.stuck = true);
            runs.notify(&run, RunInput::End(EndInput::Stuck { since }));
        }
    }
}
