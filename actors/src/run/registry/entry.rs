//! A run that has not ended: its record in memory, over all incarnations of its actor.

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering},
};

use soong_protocol::{ErrorInfo, RunId, RunMode, SessionId, TraceId};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Span;

use crate::{
    actor_base::closing,
    budget::Purse,
    clock::now,
    events::LostRun,
    observatory::Gauge,
    run::{
        clock::RunClock,
        machine::outcome::RunOutcome,
        registry::{address::Door, waits_for::WaitsFor},
    },
};

/// What became of a run, for those who wait.
#[derive(Debug, Clone)]
pub(crate) enum Fate {
    /// Not over.
    Open,
    /// Not over; that it is to be cancelled is recorded, so that it holds for the next owner of the home, too.
    Cancelling,
    /// Over, and recorded.
    Ended(Arc<RunOutcome>),
    /// Interrupted: this process does not continue it, for this reason. The next owner of the home does.
    Parked(ErrorInfo),
    /// Over, and its end cannot be recorded, for this reason.
    Lost(ErrorInfo),
}

impl Fate {
    /// Returns whether nothing more comes of the run here.
    pub(crate) fn is_over(&self) -> bool {
        !matches!(self, Self::Open | Self::Cancelling)
    }
}

/// A run that has not ended, over all incarnations of its actor.
pub(crate) struct LiveRun {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    pub(crate) session_id: SessionId,
    pub(crate) parent_run_id: Option<RunId>,
    pub(crate) mode: RunMode,
    /// Whether a program drives it instead of a model.
    pub(crate) driven: bool,
    /// Number of `RunHandle`s that exist.
    pub(crate) handles: AtomicUsize,
    /// Tripped when the run, or one above it, is to be cancelled.
    pub(crate) token: CancellationToken,
    pub(crate) gauge: Arc<Gauge>,
    /// What it draws on, if it or one above it has a budget.
    pub(crate) purse: Option<Purse>,
    pub(crate) clock: Arc<RunClock>,
    /// What those who trace see of it, until it is over.
    pub(crate) span: Mutex<Span>,
    pub(crate) door: Door,
    /// Whether somebody tells it when its time is over, and whether that is told.
    pub(crate) time_is_watched: AtomicBool,
    pub(crate) time_is_told: AtomicBool,
    pub(crate) fate: watch::Sender<Fate>,
    /// Work of the current incarnation; the next one starts when it is gone (ACT-3).
    pub(crate) work: Mutex<TaskTracker>,
    /// The run's first event, for its stream; 0 = not known yet.
    pub(crate) first_event: AtomicU64,
    pub(crate) events_taken: AtomicBool,
    /// Whether others of its session were before it when it was accepted.
    pub(crate) was_queued: AtomicBool,
    /// Whether the run has left its queue.
    pub(crate) begun: AtomicBool,
    /// Whether an earlier process left it behind, and nothing that says so is recorded yet.
    pub(crate) left_behind: AtomicBool,
    /// Whom it waits for, if for others only.
    pub(crate) waits_for: AtomicU8,
    /// Whether its end is decided, durable or about to be: nobody needs to wait for it or to stop it.
    pub(crate) over: AtomicBool,
    /// Whether somebody keeps its task journal.
    pub(crate) journaled: AtomicBool,
    /// What the program said when it was done with a run that it drives.
    pub(crate) finish: OnceLock<String>,
}

impl LiveRun {
    pub(crate) fn set_waits_for(&self, whom: WaitsFor) {
        self.waits_for.store(whom as u8, Ordering::Release);
    }

    pub(crate) fn waits_for(&self, whom: WaitsFor) -> bool {
        self.waits_for.load(Ordering::Acquire) == whom as u8
    }

    /// Returns whether it only waits for others.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waits_for(WaitsFor::Nobody)
    }

    /// Returns its span; once it is over, that of nothing.
    pub(crate) fn span(&self) -> Span {
        self.span.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn fate(&self) -> watch::Receiver<Fate> {
        self.fate.subscribe()
    }

    pub(crate) fn end(&self, fate: Fate) {
        self.fate.send_replace(fate);
    }

    /// Notes that the request to cancel the run is durable.
    pub(crate) fn cancel_is_recorded(&self) {
        self.fate.send_if_modified(|fate| {
            let is_news = matches!(fate, Fate::Open);
            if is_news {
                *fate = Fate::Cancelling;
            }
            is_news
        });
    }

    /// Waits until the request to cancel the run is durable, or the run has ended.
    pub(crate) async fn cancelling(&self) -> Result<(), ErrorInfo> {
        let mut fate = self.fate();
        let known = fate.wait_for(|fate| !matches!(fate, Fate::Open)).await;
        match known.as_deref() {
            Ok(Fate::Cancelling | Fate::Ended(_)) => Ok(()),
            Ok(Fate::Lost(error) | Fate::Parked(error)) => Err(error.clone()),
            _ => Err(closing()),
        }
    }

    /// Returns whether the caller has to start the run's task journal: it has one, and nothing writes it yet.
    pub(crate) fn begins_journal(&self) -> bool {
        let has_one = self.mode == RunMode::Orchestrator && self.parent_run_id.is_none();
        has_one && !self.journaled.swap(true, Ordering::AcqRel)
    }

    /// Gives a new incarnation room for its work; returns the room of the one before.
    pub(crate) fn renew_work(&self) -> (TaskTracker, TaskTracker) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *work, TaskTracker::new());
        before.close();
        (before, work.clone())
    }

    /// Says of it that its end cannot be recorded.
    pub(crate) fn lost(&self, error: ErrorInfo) -> LostRun {
        let (trace_id, session_id, run_id) = (self.trace_id.clone(), self.session_id.clone(), self.run_id.clone());
        LostRun { trace_id, session_id, run_id, ts: now(), error }
    }

    /// Waits for the end; at most as long as the runtime lives.
    pub(crate) async fn outcome(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        let mut fate = self.fate();
        let ended = fate.wait_for(Fate::is_over).await;
        match ended.as_deref() {
            Ok(Fate::Ended(outcome)) => Ok(Arc::clone(outcome)),
            Ok(Fate::Lost(error) | Fate::Parked(error)) => Err(error.clone()),
            _ => Err(closing()),
        }
    }
}
