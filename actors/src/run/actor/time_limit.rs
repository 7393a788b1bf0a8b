//! The time limit of a run.

use std::{sync::Arc, time::Duration};

use crate::run::{
    actor::RunServices,
    machine::input::{EndInput, RunInput},
    registry::entry::RunEntry,
};

/// Delay between two attempts to notify a run that has no actor.
const NOTIFY_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Notifies a run when its time limit is reached, of which `used_ms` are used. Notifies once per
/// run, unless the actor that was notified crashes.
pub(crate) fn watch_time(
    services: &Arc<RunServices>,
    entry: &Arc<RunEntry>,
    used_ms: u64,
    limit_ms: u64,
    is_budget: bool,
) {
    if !entry.control.clock.claim_time_limit() {
        return;
    }
    entry.control.clock.start(used_ms);
    let limit = Duration::from_millis(limit_ms);
    let runs = Arc::clone(&services.core.runs);
    let entry = Arc::clone(entry);
    let mut watch = entry.watch();
    let notify_at_limit = async move {
        loop {
            let remaining = limit.saturating_sub(entry.control.clock.used());
            if remaining.is_zero()
                && runs.notify(
                    &entry,
                    RunInput::End(EndInput::TimedOut {
                        limit_ms,
                        is_budget,
                    }),
                )
            {
                entry.control.clock.time_limit_notified();
                return;
            }
            tokio::time::sleep(if remaining.is_zero() {
                NOTIFY_RETRY_DELAY
            } else {
                remaining
            })
            .await;
        }
    };
    services.core.lifetime.spawn(async move {
        tokio::select! {
            _ = watch.wait_for(|published| published.phase.is_final()) => {}
            () = notify_at_limit => {}
        }
    });
}
