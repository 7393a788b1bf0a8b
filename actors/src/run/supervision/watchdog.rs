//! Runs of which nothing comes: looked for from time to time, and told (RUN-7).
//!
//! What a run declares to be progress is none of its own: waiting for children, for people, for a slot, a budget or
//! its turn with a model, and a model call within its own time limit. Such a run is not ended here. A driven run
//! without a handle is.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use crate::{
    live::Shared,
    run::{machine::input::News, registry::entry::LiveRun},
};

fn is_stuck(live: &LiveRun) -> bool {
    let is = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Acquire);
    let clock = &live.clock;
    let is_late = |patience_ms: u64| clock.quiet_ms() > patience_ms;
    is(&live.begun) && !is(&live.over) && !clock.is_stopped() && clock.patience_ms().is_some_and(is_late)
}

/// Returns whether a driven run has neither a handle, nor open children, nor made progress for `stuck_after_ms`.
fn is_undriven(live: &LiveRun, stuck_after_ms: u64) -> bool {
    let is = |flag: &std::sync::atomic::AtomicBool| flag.load(Ordering::Acquire);
    let is_held = live.handles.load(Ordering::Acquire) > 0;
    let is_idle = is(&live.begun) && !is(&live.over) && !live.is_waiting();
    live.driven && !is_held && is_idle && live.clock.quiet_ms() > stuck_after_ms
}

/// Looks for such runs until the runtime closes.
pub(crate) async fn watch(shared: Arc<Shared>) {
    let stuck_after_ms = shared.config.runtime.stuck_after_s.saturating_mul(1_000);
    let every = Duration::from_millis((stuck_after_ms / 4).clamp(250, 30_000));
    loop {
        tokio::select! {
            () = tokio::time::sleep(every) => {}
            () = shared.closing.cancelled() => return,
        }
        let undriven = shared.runs.iter().filter(|run| is_undriven(run, stuck_after_ms));
        // Collected first: telling a run takes locks of its own.
        for run in undriven.map(|run| Arc::clone(run.value())).collect::<Vec<_>>() {
            shared.tell(&run, News::Undriven);
        }
        let found: Vec<Arc<LiveRun>> =
            shared.runs.iter().filter(|run| is_stuck(run)).map(|run| Arc::clone(run.value())).collect();
        for run in found {
            if run.clock.is_told_of_silence() {
                continue;
            }
            let since = run.clock.last_progress();
            tracing::warn!(run = %run.run_id, %since, "nothing comes of a run");
            run.gauge.show_run(|view| view.stuck = true);
            shared.tell(&run, News::Stuck { since });
        }
    }
}
