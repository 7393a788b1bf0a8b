//! The clock of a run: its active time, and the time of its last progress (SUB-7, RUN-7).
//!
//! It uses the monotonic clock, which stops while the machine is suspended. Active time does not
//! advance while a guard from [`RunClock::pause`] exists, that is, while the run waits for a slot,
//! for budget, for the model gateway, or for a user. The time since the last progress keeps
//! advancing. Elsewhere: the part that survives the process (the state of the run).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use soong_protocol::Timestamp;
use tokio::time::Instant;

#[derive(Debug, Default)]
struct PauseTimer {
    holders: usize,
    since: Option<Instant>,
    total: Duration,
}

impl PauseTimer {
    /// Returns how long the clock has been stopped so far.
    fn total(&self) -> Duration {
        self.total + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// The state of the clock when measuring began.
#[derive(Debug)]
struct Measurement {
    started_at: Instant,
    initial: Duration,
    paused: Duration,
}

/// Whether a task watches the time limit of the run.
#[derive(Debug, Default, PartialEq, Eq)]
enum TimeLimit {
    #[default]
    Unwatched,
    Watched,
    /// The actor of the run has been notified that its time limit is reached.
    Notified,
}

#[derive(Debug)]
struct ClockState {
    pauses: PauseTimer,
    /// Set once the run has started.
    measurement: Option<Measurement>,
    /// Time of the last progress: by the monotonic clock (`progress`), and by the wall clock
    /// (`progress_at`).
    progress: Instant,
    progress_at: Timestamp,
    /// Maximum time without progress, in milliseconds; `None` if unlimited.
    stall_timeout_ms: Option<u64>,
    /// Time of the last progress for which a stall was reported.
    reported_stall: Option<Instant>,
    time_limit: TimeLimit,
}

/// The clock of a run, over all incarnations of its actor.
#[derive(Debug)]
pub(crate) struct RunClock(Mutex<ClockState>);

impl Default for RunClock {
    fn default() -> Self {
        Self(Mutex::new(ClockState {
            pauses: PauseTimer::default(),
            measurement: None,
            progress: Instant::now(),
            progress_at: Timestamp::from_millis(0),
            stall_timeout_ms: Some(0),
            reported_stall: None,
            time_limit: TimeLimit::Unwatched,
        }))
    }
}

impl RunClock {
    /// Stops the clock until the returned guard is dropped.
    pub(crate) fn pause(self: &Arc<Self>) -> ClockPause {
        let mut state = self.state();
        state.pauses.holders += 1;
        state.pauses.since.get_or_insert_with(Instant::now);
        ClockPause(Arc::clone(self))
    }

    /// Returns whether the clock is stopped.
    pub(crate) fn is_paused(&self) -> bool {
        self.state().pauses.holders > 0
    }

    /// Starts measuring active time, with `used_ms` milliseconds already used. Has no effect if
    /// measuring has started.
    pub(crate) fn start(&self, used_ms: u64) {
        let mut state = self.state();
        let begun = Measurement {
            started_at: Instant::now(),
            initial: Duration::from_millis(used_ms),
            paused: state.pauses.total(),
        };
        state.measurement.get_or_insert(begun);
    }

    /// Returns the active time in milliseconds.
    pub(crate) fn used_ms(&self) -> u64 {
        u64::try_from(self.used().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns the active time, including that of earlier processes. Time during which the clock is
    /// stopped does not count.
    pub(crate) fn used(&self) -> Duration {
        let state = self.state();
        let used = |begun: &Measurement| {
            let paused = state.pauses.total().saturating_sub(begun.paused);
            (begun.initial + begun.started_at.elapsed()).saturating_sub(paused)
        };
        state.measurement.as_ref().map_or(Duration::ZERO, used)
    }

    /// Records progress; `at` is the wall-clock time that is shown to users.
    pub(crate) fn progress(&self, at: Timestamp) {
        let mut state = self.state();
        state.progress = Instant::now();
        state.progress_at = at;
    }

    /// Returns the wall-clock time of the last progress.
    pub(crate) fn last_progress(&self) -> Timestamp {
        self.state().progress_at
    }

    /// Returns the time since the last progress, in milliseconds.
    pub(crate) fn quiet_ms(&self) -> u64 {
        u64::try_from(self.state().progress.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Sets the maximum time without progress, in milliseconds; `None` if unlimited.
    pub(crate) fn set_stall_timeout(&self, timeout_ms: Option<u64>) {
        self.state().stall_timeout_ms = timeout_ms;
    }

    /// Returns the maximum time without progress, in milliseconds; `None` if unlimited.
    pub(crate) fn stall_timeout_ms(&self) -> Option<u64> {
        self.state().stall_timeout_ms
    }

    /// Returns whether the current stall has been reported already, and marks it as reported.
    pub(crate) fn mark_stall_reported(&self) -> bool {
        let mut state = self.state();
        let stall = Some(state.progress);
        std::mem::replace(&mut state.reported_stall, stall) == stall
    }

    /// Returns whether the caller must watch the time limit, because no task watches it yet.
    pub(crate) fn claim_time_limit(&self) -> bool {
        let mut state = self.state();
        let is_unwatched = state.time_limit == TimeLimit::Unwatched;
        if is_unwatched {
            state.time_limit = TimeLimit::Watched;
        }
        is_unwatched
    }

    /// Records that the actor of the run has been notified that its time limit is reached.
    pub(crate) fn time_limit_notified(&self) {
        self.state().time_limit = TimeLimit::Notified;
    }

    /// Resets the time limit after a crash if the actor had been notified, so that the next actor
    /// is notified too.
    pub(crate) fn reset_time_limit(&self) {
        let mut state = self.state();
        if state.time_limit == TimeLimit::Notified {
            state.time_limit = TimeLimit::Unwatched;
        }
    }

    fn state(&self) -> MutexGuard<'_, ClockState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guard that stops the clock of a run.
#[derive(Debug)]
pub(crate) struct ClockPause(Arc<RunClock>);

impl Drop for ClockPause {
    fn drop(&mut self) {
        let stand = &mut self.0.state().pauses;
        stand.holders -= 1;
        if stand.holders == 0 {
            stand.total += stand
                .since
                .take()
                .map_or(Duration::ZERO, |since| since.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paused_seconds(clock: &RunClock) -> u64 {
        clock.state().pauses.total().as_secs()
    }

    #[tokio::test(start_paused = true)]
    async fn clock_is_stopped_while_any_pause_is_held() {
        let clock = Arc::new(RunClock::default());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let first = clock.pause();
        wait(2).await;
        let second = clock.pause();
        wait(3).await;
        drop(first);
        wait(4).await;
        assert_eq!((paused_seconds(&clock), clock.is_paused()), (9, true));
        drop(second);
        wait(5).await;
        assert_eq!((paused_seconds(&clock), clock.is_paused()), (9, false));
        drop(clock.pause());
        assert_eq!(paused_seconds(&clock), 9);
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_measured_independently_of_wall_clock() {
        let clock = RunClock::default();
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        let at = |seconds: i64| Timestamp::from_millis(seconds * 1_000);
        wait(1).await;
        // The wall clock is set ahead by an hour, and back.
        clock.progress(at(3_600));
        wait(2).await;
        assert_eq!(
            (clock.quiet_ms(), clock.last_progress()),
            (2_000, at(3_600))
        );
        clock.progress(at(3));
        assert_eq!((clock.quiet_ms(), clock.last_progress()), (0, at(3)));
        wait(5).await;
        assert_eq!(clock.quiet_ms(), 5_000);
        assert_eq!(
            [clock.mark_stall_reported(), clock.mark_stall_reported()],
            [false, true]
        );
        clock.progress(at(8));
        wait(1).await;
        assert!(!clock.mark_stall_reported());
    }

    #[tokio::test(start_paused = true)]
    async fn active_time_resumes_from_stored_value() {
        let clock = Arc::new(RunClock::default());
        let wait = |seconds| tokio::time::advance(Duration::from_secs(seconds));
        wait(9).await;
        assert_eq!(clock.used_ms(), 0, "it has not begun");
        clock.start(4_000);
        wait(2).await;
        clock.start(0);
        let waiting = clock.pause();
        wait(7).await;
        assert_eq!(clock.used_ms(), 6_000);
        drop(waiting);
        wait(1).await;
        assert_eq!(clock.used_ms(), 7_000);
    }
}
