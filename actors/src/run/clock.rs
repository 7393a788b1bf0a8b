//! A run's clock: how long it has been at work, and when something last came of it (SUB-7, RUN-7).
//!
//! It counts by the machine's steady clock, which nobody sets and which stands still while the machine is suspended.
//! It stands still while somebody holds a [`Standstill`]: while the run waits for a slot, for a budget that others
//! hold, for its turn with a model, or for people. Not here: what of it survives the process (the run's state).

use std::{
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use soong_protocol::Timestamp;
use tokio::time::Instant;

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
#[derive(Debug)]
pub(crate) struct RunClock {
    stand: Mutex<Stand>,
    /// Present once the run has begun.
    begun: OnceLock<Begun>,
    /// When the clock was made.
    origin: Instant,
    /// When something last came of the run: in milliseconds since the origin, and as it is shown, since the epoch.
    progress: AtomicU64,
    progress_at: AtomicI64,
    /// How long nothing may come of the run, in milliseconds; `u64::MAX` = as long as it takes.
    patience_ms: AtomicU64,
    /// The last progress whose silence was reported, plus one; 0 = none was.
    told_of: AtomicU64,
}

impl Default for RunClock {
    fn default() -> Self {
        Self {
            stand: Mutex::default(),
            begun: OnceLock::new(),
            origin: Instant::now(),
            progress: AtomicU64::new(0),
            progress_at: AtomicI64::new(0),
            patience_ms: AtomicU64::new(0),
            told_of: AtomicU64::new(0),
        }
    }
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

    /// Counts from now on, where so many milliseconds are used already; what counts goes on as it does.
    pub(crate) fn begin(&self, used_ms: u64) {
        let used = Duration::from_millis(used_ms);
        self.begun.get_or_init(|| Begun { at: Instant::now(), used, stood_still: self.stood_still() });
    }

    /// Returns how long the run has been at work, in milliseconds.
    pub(crate) fn used_ms(&self) -> u64 {
        u64::try_from(self.used().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns how long the run has been at work since it began; waiting does not count.
    pub(crate) fn used(&self) -> Duration {
        let used = |begun: &Begun| {
            let stood = self.stood_still().saturating_sub(begun.stood_still);
            (begun.used + begun.at.elapsed()).saturating_sub(stood)
        };
        self.begun.get().map_or(Duration::ZERO, used)
    }

    /// Something came of the run; `at` is when, as it is shown.
    pub(crate) fn progress(&self, at: Timestamp) {
        self.progress.fetch_max(self.now_ms(), Relaxed);
        self.progress_at.store(at.as_millis(), Relaxed);
    }

    /// Returns when something last came of it, for people.
    pub(crate) fn last_progress(&self) -> Timestamp {
        Timestamp::from_millis(self.progress_at.load(Relaxed))
    }

    /// Returns how long nothing has come of it, in milliseconds.
    pub(crate) fn quiet_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.progress.load(Relaxed))
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sets how long nothing may come of it; `None` = as long as it takes.
    pub(crate) fn set_patience(&self, patience_ms: Option<u64>) {
        self.patience_ms.store(patience_ms.unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns how long nothing may come of it; `None` = as long as it takes.
    pub(crate) fn patience_ms(&self) -> Option<u64> {
        Some(self.patience_ms.load(Relaxed)).filter(|patience_ms| *patience_ms < u64::MAX)
    }

    /// Returns whether the silence since the last progress was already reported, and marks it as reported.
    pub(crate) fn is_told_of_silence(&self) -> bool {
        let silence = self.progress.load(Relaxed) + 1;
        self.told_of.swap(silence, Relaxed) == silence
    }

    fn with<T>(&self, change: impl FnOnce(&mut Stand) -> T) -> T {
        change(&mut self.stand.lock().unwrap_or_else(PoisonError::into_inner))
    }
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

    #[tokio::test(start_paused = true)]
    async fn run_7_silence_is_counted_whatever_becomes_of_the_clock_on_the_wall() {
        let clock = RunClock::default();
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        wait(1).await;
        // It was set an hour ahead, and back.
        clock.progress(at(3_600));
        wait(2).await;
        assert_eq!((clock.quiet_ms(), clock.last_progress()), (2_000, at(3_600)));
        clock.progress(at(3));
        assert_eq!((clock.quiet_ms(), clock.last_progress()), (0, at(3)));
        wait(5).await;
        assert_eq!(clock.quiet_ms(), 5_000);
        assert_eq!([clock.is_told_of_silence(), clock.is_told_of_silence()], [false, true]);
        clock.progress(at(8));
        wait(1).await;
        assert!(!clock.is_told_of_silence());
    }

    #[tokio::test(start_paused = true)]
    async fn sub_7_a_run_goes_on_counting_from_what_is_stored() {
        let clock = Arc::new(RunClock::default());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        wait(9).await;
        assert_eq!(clock.used_ms(), 0, "it has not begun");
        clock.begin(4_000);
        wait(2).await;
        clock.begin(0);
        let waiting = clock.stop();
        wait(7).await;
        assert_eq!(clock.used_ms(), 6_000);
        drop(waiting);
        wait(1).await;
        assert_eq!(clock.used_ms(), 7_000);
    }
}
