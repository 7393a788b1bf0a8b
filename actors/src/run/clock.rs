//! A run's clock: how long it has been at work in this process, and when something last came of it (SUB-7, RUN-7).
//!
//! It stands still while somebody holds a [`Standstill`]: while the run waits for a slot, for a budget that others
//! hold, for its turn with a model, or for people. Not here: what of it survives the process (the run's state).

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{
            AtomicI64, AtomicU64,
            Ordering::{AcqRel, Relaxed, Release},
        },
    },
    time::Duration,
};

use soong_protocol::Timestamp;
use tokio::time::Instant;

use super::decide::News;
use crate::live::{Fate, LiveRun, Shared};

/// How long whoever has to tell a run something waits between two tries, while the run has no actor.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
struct Stand {
    holders: usize,
    since: Option<Instant>,
    total: Duration,
}

/// Where the time of a run stood when it began to be watched.
#[derive(Debug)]
struct Begun {
    at: Instant,
    used: Duration,
    stood_still: Duration,
}

/// The clock of a run, over all incarnations of its actor.
#[derive(Debug, Default)]
pub(crate) struct RunClock {
    stand: Mutex<Stand>,
    /// Where the run has a limit of time, once it has begun.
    begun: OnceLock<Begun>,
    /// Milliseconds since the epoch.
    progress: AtomicI64,
    /// How long nothing may come of the run, in milliseconds; `u64::MAX` = as long as it takes.
    patience_ms: AtomicU64,
    /// The last progress before it was told that nothing comes of it.
    told_of: AtomicI64,
}

impl RunClock {
    /// Stops the clock until what is returned is dropped.
    pub(crate) fn stop(self: &Arc<Self>) -> Standstill {
        self.with(|stand| {
            stand.holders += 1;
            stand.since.get_or_insert_with(Instant::now);
        });
        Standstill(Arc::clone(self))
    }

    /// Returns how long it has stood still so far.
    fn stood_still(&self) -> Duration {
        self.with(|stand| stand.total + stand.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }

    /// Returns whether it stands still.
    pub(crate) fn is_stopped(&self) -> bool {
        self.with(|stand| stand.holders > 0)
    }

    /// Counts from now on, where so much is used already; what counts goes on as it does.
    fn begin(&self, used: Duration) {
        self.begun.get_or_init(|| Begun { at: Instant::now(), used, stood_still: self.stood_still() });
    }

    /// Returns how much of its time a run has used that has a limit of it; waiting does not count.
    pub(crate) fn used(&self) -> Duration {
        let used = |begun: &Begun| {
            let stood = self.stood_still().saturating_sub(begun.stood_still);
            (begun.used + begun.at.elapsed()).saturating_sub(stood)
        };
        self.begun.get().map_or(Duration::ZERO, used)
    }

    /// Something came of the run.
    pub(crate) fn progress(&self, at: Timestamp) {
        self.progress.fetch_max(at.as_millis(), Relaxed);
    }

    /// Returns when something last came of it.
    pub(crate) fn last_progress(&self) -> Timestamp {
        Timestamp::from_millis(self.progress.load(Relaxed))
    }

    /// Sets how long nothing may come of it; `None` = as long as it takes.
    pub(crate) fn set_patience(&self, patience_ms: Option<u64>) {
        self.patience_ms.store(patience_ms.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns how long nothing may come of it; `None` = as long as it takes.
    pub(crate) fn patience_ms(&self) -> Option<u64> {
        Some(self.patience_ms.load(Relaxed)).filter(|patience_ms| *patience_ms < u64::MAX)
    }

    /// Returns whether it was told already that nothing came since then, and takes note that it is now.
    pub(crate) fn is_told_of(&self, since: Timestamp) -> bool {
        self.told_of.swap(since.as_millis(), Relaxed) == since.as_millis()
    }

    fn with<T>(&self, change: impl FnOnce(&mut Stand) -> T) -> T {
        change(&mut self.stand.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Lets the next actor of a run be told once more: the one that was told has crashed.
pub(super) fn watch_time_again(live: &LiveRun) {
    if live.time_is_told.swap(false, AcqRel) {
        live.time_is_watched.store(false, Release);
    }
}

/// Tells a run when its time is over, of which `used_ms` have gone; once per run, unless the actor that heard it crashes.
pub(crate) fn watch_time(shared: &Arc<Shared>, live: &Arc<LiveRun>, used_ms: u64, limit_ms: u64, is_budget: bool) {
    if live.time_is_watched.swap(true, AcqRel) {
        return;
    }
    live.clock.begin(Duration::from_millis(used_ms));
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

/// Keeps a run's clock still.
#[derive(Debug)]
pub(crate) struct Standstill(Arc<RunClock>);

impl Drop for Standstill {
    fn drop(&mut self) {
        self.0.with(|stand| {
            stand.holders -= 1;
            if stand.holders == 0 {
                stand.total += stand.since.take().map_or(Duration::ZERO, |since| since.elapsed());
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn sub_7_the_clock_stands_still_as_long_as_anybody_holds_it() {
        let clock = Arc::new(RunClock::default());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let first = clock.stop();
        wait(2).await;
        let second = clock.stop();
        wait(3).await;
        drop(first);
        wait(4).await;
        assert_eq!((clock.stood_still().as_secs(), clock.is_stopped()), (9, true));
        drop(second);
        wait(5).await;
        assert_eq!((clock.stood_still().as_secs(), clock.is_stopped()), (9, false));
        drop(clock.stop());
        assert_eq!(clock.stood_still().as_secs(), 9);
    }
}
