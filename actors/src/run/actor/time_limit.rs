//! The time limit of a run.

use std::{
    sync::{
        Arc,
        atomic::Ordering::{AcqRel, Release},
    },
    time::Duration,
};

use crate::{
    live::Shared,
    run::{
        machine::input::News,
        registry::entry::{Fate, LiveRun},
    },
};

/// Delay between two tries to notify a run that has no actor.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// Makes the next actor of a run receive the time limit again: the one that received it has crashed.
pub(in crate::run) fn watch_time_again(live: &LiveRun) {
    if live.time_is_told.swap(false, AcqRel) {
        live.time_is_watched.store(false, Release);
    }
}

/// Notifies a run when its time is over, of which `used_ms` are used; once per run, unless the actor that received it
/// crashes.
pub(crate) fn watch_time(shared: &Arc<Shared>, live: &Arc<LiveRun>, used_ms: u64, limit_ms: u64, is_budget: bool) {
    if live.time_is_watched.swap(true, AcqRel) {
        return;
    }
    live.clock.begin(used_ms);
    let limit = Duration::from_millis(limit_ms);
    let (told, live) = (Arc::clone(shared), Arc::clone(live));
    let mut fate = live.fate();
    let until_over = async move {
        loop {
            let rest = limit.saturating_sub(live.clock.used());
            if rest.is_zero() && told.tell(&live, News::TimedOut { limit_ms, is_budget }) {
                live.time_is_told.store(true, Release);
                return;
            }
            tokio::time::sleep(if rest.is_zero() { BETWEEN_TRIES } else { rest }).await;
        }
    };
    shared.tasks.spawn(async move {
        tokio::select! {
            _ = fate.wait_for(Fate::is_over) => {}
            () = until_over => {}
        }
    });
}
