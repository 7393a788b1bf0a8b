//! The entry of a run that has not ended. It survives restarts of the run's actor.

use std::sync::{Arc, Mutex};

use soong_protocol::{ErrorInfo, PermissionMode, Run, RunMode};
use tokio::sync::{SetOnce, watch};
use tokio_util::sync::CancellationToken;
use tracing::Span;

use crate::{
    actor_base::closing,
    actor_tree::ActorStatus,
    budget::BudgetAccount,
    clock::now,
    events::UnrecordedRun,
    gateway::{CoolDowns, PrefixCache},
    run::{
        clock::RunClock,
        machine::{outcome::RunOutcome, spec::RunIdentity},
        otel_spans,
        registry::address::RunAddress,
    },
};

/// The phase of a run. The last three are final in this process.
#[derive(Debug, Clone)]
pub(crate) enum RunPhase {
    /// The run has not started: it waits in the queue of its session, or for a slot.
    Queued,
    /// The run has started and can make progress.
    Running,
    /// The run waits only for its children.
    WaitingForChildren,
    /// The run waits only for an answer or a decision of a user (SUB-9).
    WaitingForUser,
    /// The end of the run is decided but not yet published. This does not imply that the run is
    /// cancelled.
    Ending,
    /// The run has ended, and its end is recorded.
    Ended(Arc<RunOutcome>),
    /// This process does not continue the run, for this reason. The next owner of the home does.
    Interrupted(ErrorInfo),
    /// The run has ended, but its end cannot be recorded, for this reason.
    Unrecorded(ErrorInfo),
}

impl RunPhase {
    /// Returns whether the phase is final in this process.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Ended(_) | Self::Interrupted(_) | Self::Unrecorded(_)
        )
    }

    /// Returns whether the run has started and its end is not decided.
    pub(crate) fn is_active(&self) -> bool {
        matches!(self, Self::Running) || self.is_waiting()
    }

    /// Returns whether the run waits only for its children or a user.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(self, Self::WaitingForChildren | Self::WaitingForUser)
    }
}

/// The published status of a run, over all incarnations of its actor.
#[derive(Debug, Clone)]
pub(crate) struct RunPublished {
    pub(crate) phase: RunPhase,
    /// Whether the run has left its queue. A queued run that is cancelled ends without having
    /// started.
    pub(crate) started: bool,
    /// Whether the request to cancel the run is durable.
    pub(crate) cancel_recorded: bool,
    /// Whether an earlier process executed the run and this process has not appended to it yet.
    pub(crate) interrupted: bool,
    /// Whether the run had to wait for other runs of its session when it was accepted.
    pub(crate) was_queued: bool,
    /// Id of the run's first event; 0 if not known yet.
    pub(crate) first_event: u64,
    /// Number of children that this process has registered, including ended ones.
    pub(crate) child_count: usize,
    /// Permission mode, as far as this process knows it.
    pub(crate) permission_mode: PermissionMode,
    /// Summary that a program passed when it finished a run that it drives.
    pub(crate) finish_summary: Option<String>,
    /// Whether the single event stream of the run's handle is taken.
    events_taken: bool,
    /// Whether the run's task journal is being written.
    has_journal_writer: bool,
    /// Tracing span of the run; disabled once the run has ended.
    span: Span,
}

/// A run that has not ended.
pub(crate) struct RunEntry {
    pub(crate) identity: RunIdentity,
    /// Cloned by each `RunHandle`, in order to count them.
    pub(crate) handles: Arc<()>,
    pub(crate) control: RunControl,
    pub(crate) status: Arc<ActorStatus>,
    pub(crate) address: RunAddress,
    pub(crate) models: ModelUse,
    /// Held while the actor of the run is started, and while something is written for a run that
    /// has none yet.
    pub(crate) opening: tokio::sync::Mutex<Opening>,
    published: watch::Sender<RunPublished>,
    /// Set once the phase is final. Callers that wait for the end are not woken by other changes of
    /// the published status.
    ended: SetOnce<()>,
}

/// Whether the actor of a run was started.
#[derive(Debug)]
pub(crate) struct Opening {
    /// Whether the actor was started, in this process or an earlier one, or the run is being ended.
    /// From then on, only the actor or the finalizer writes for the run.
    pub(crate) is_opened: bool,
    /// Whether children may have been added while the run was queued. Then the actor must read the
    /// stored state of the run.
    pub(crate) has_children: bool,
}

/// State of the services that a run calls.
#[derive(Default)]
pub(crate) struct ModelUse {
    /// Prompt cache that the run uses, with the profile of its service.
    pub(crate) prefix_cache: Mutex<Option<(Arc<str>, Arc<PrefixCache>)>>,
    /// Cool-downs of the run's own model (`None`) and its fallbacks, by index.
    pub(crate) cool_downs: CoolDowns<Option<usize>>,
}

/// The cancellation, budget and clock of a run. They are the same over all incarnations of
/// its actor.
pub(crate) struct RunControl {
    /// Cancelled when cancellation of the run or one of its ancestors is requested.
    pub(crate) token: CancellationToken,
    /// The budget that the run draws on; `None` if neither the run nor an ancestor has one.
    pub(crate) budget: Option<BudgetAccount>,
    pub(crate) clock: Arc<RunClock>,
}

impl RunEntry {
    pub(super) fn new(
        run: &Run,
        control: RunControl,
        status: Arc<ActorStatus>,
        span: Span,
    ) -> Self {
        Self {
            identity: RunIdentity::of(run),
            handles: Arc::default(),
            control,
            status,
            address: RunAddress::default(),
            models: ModelUse::default(),
            opening: tokio::sync::Mutex::new(Opening {
                is_opened: run.started_at.is_some(),
                has_children: false,
            }),
            published: watch::Sender::new(RunPublished {
                phase: RunPhase::Queued,
                started: false,
                cancel_recorded: false,
                interrupted: false,
                was_queued: false,
                first_event: 0,
                child_count: 0,
                permission_mode: run.settings.permissions.mode.unwrap_or_default(),
                finish_summary: None,
                events_taken: false,
                has_journal_writer: false,
                span,
            }),
            ended: SetOnce::new(),
        }
    }

    /// Returns the published status. It is locked while the returned value exists.
    pub(crate) fn published(&self) -> watch::Ref<'_, RunPublished> {
        self.published.borrow()
    }

    /// Subscribes to the published status.
    pub(crate) fn watch(&self) -> watch::Receiver<RunPublished> {
        self.published.subscribe()
    }

    /// Returns whether the run has left its queue.
    pub(crate) fn has_started(&self) -> bool {
        self.published().started
    }

    /// Returns whether the end of the run is decided.
    pub(crate) fn is_ending(&self) -> bool {
        let phase = &self.published().phase;
        phase.is_final() || matches!(phase, RunPhase::Ending)
    }

    /// Returns the run's tracing span; a disabled one if the run has ended.
    pub(crate) fn span(&self) -> Span {
        self.published().span.clone()
    }

    /// Returns whether a `RunHandle` of the run exists.
    pub(crate) fn has_handle(&self) -> bool {
        Arc::strong_count(&self.handles) > 1
    }

    /// Publishes the phase of a run that has not ended.
    pub(crate) fn set_phase(&self, phase: RunPhase) {
        self.change(|published| {
            let is_same =
                std::mem::discriminant(&published.phase) == std::mem::discriminant(&phase);
            let changes = !is_same && !published.phase.is_final();
            if changes {
                published.phase = phase;
            }
            changes
        });
    }

    /// Publishes that the run has started. If its phase is [`RunPhase::Queued`], it becomes
    /// [`RunPhase::Running`].
    pub(crate) fn set_started(&self) {
        self.change(|published| {
            if matches!(published.phase, RunPhase::Queued) {
                published.phase = RunPhase::Running;
            }
            !std::mem::replace(&mut published.started, true)
        });
    }

    /// Publishes a final phase, closes the address, and ends the span.
    pub(super) fn set_ended(&self, phase: RunPhase) {
        self.address.close();
        let span = self.span();
        if let RunPhase::Ended(outcome) = &phase {
            otel_spans::run_ended(&span, outcome.status.as_str(), outcome.error.as_ref());
        }
        self.published.send_modify(|published| {
            published.phase = phase;
            published.span = Span::none();
        });
        // An interrupted run may be deregistered a second time; then this is already set.
        let _ = self.ended.set(());
    }

    /// Publishes that the request to cancel the run is durable.
    pub(crate) fn set_cancel_recorded(&self) {
        self.change(|published| !std::mem::replace(&mut published.cancel_recorded, true));
    }

    /// Publishes whether an earlier process executed the run and this process has not appended to
    /// it yet.
    pub(crate) fn set_interrupted(&self, interrupted: bool) {
        self.change(|published| {
            std::mem::replace(&mut published.interrupted, interrupted) != interrupted
        });
    }

    /// Publishes that the run had to wait for other runs of its session when it was accepted.
    pub(crate) fn set_was_queued(&self) {
        self.change(|published| !std::mem::replace(&mut published.was_queued, true));
    }

    /// Publishes the id of the run's first event, if none is known yet.
    pub(crate) fn set_first_event(&self, event_id: u64) {
        self.change(|published| {
            let is_new = published.first_event == 0;
            if is_new {
                published.first_event = event_id;
            }
            is_new
        });
    }

    /// Counts a child. Watchers are not notified.
    pub(crate) fn count_child(&self) {
        self.change(|published| {
            published.child_count += 1;
            false
        });
    }

    /// Publishes the permission mode.
    pub(crate) fn set_permission_mode(&self, mode: PermissionMode) {
        self.change(|published| std::mem::replace(&mut published.permission_mode, mode) != mode);
    }

    /// Publishes the summary with which the run is finished. The first summary counts; returns it.
    pub(crate) fn request_finish(&self, summary: impl FnOnce() -> String) -> String {
        self.change(|published| {
            let is_first = published.finish_summary.is_none();
            if is_first {
                published.finish_summary = Some(summary());
            }
            is_first
        });
        self.published().finish_summary.clone().unwrap_or_default()
    }

    /// Takes the single event stream of the run's handle; returns `false` if it is taken already.
    pub(crate) fn take_events(&self) -> bool {
        self.change(|published| !std::mem::replace(&mut published.events_taken, true))
    }

    /// Returns whether the caller must start the run's task journal: the run has one, and no task
    /// writes it yet.
    pub(crate) fn claim_journal(&self) -> bool {
        let has_one = self.identity.mode == RunMode::Orchestrator && self.identity.parent.is_none();
        has_one
            && self.change(|published| !std::mem::replace(&mut published.has_journal_writer, true))
    }

    fn change(&self, change: impl FnOnce(&mut RunPublished) -> bool) -> bool {
        self.published.send_if_modified(change)
    }

    /// Returns the report that the end of the run cannot be recorded.
    pub(crate) fn unrecorded_report(&self, error: ErrorInfo) -> UnrecordedRun {
        let RunIdentity {
            trace_id,
            session_id,
            run_id,
            ..
        } = self.identity.clone();
        UnrecordedRun {
            trace_id,
            session_id,
            run_id,
            ts: now(),
            error,
        }
    }

    /// Waits until the request to cancel the run is durable, or the run has ended.
    pub(crate) async fn wait_cancel_recorded(&self) -> Result<(), ErrorInfo> {
        let mut watch = self.watch();
        let is_known =
            |published: &RunPublished| published.cancel_recorded || published.phase.is_final();
        let known = watch.wait_for(is_known).await.map_err(|_| closing())?;
        match &known.phase {
            RunPhase::Unrecorded(error) | RunPhase::Interrupted(error) => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits for the end of the run.
    ///
    /// # Errors
    /// The reason if the run is interrupted or its end cannot be recorded.
    pub(crate) async fn wait_outcome(&self) -> Result<Arc<RunOutcome>, ErrorInfo> {
        self.ended.wait().await;
        match &self.published().phase {
            RunPhase::Ended(outcome) => Ok(Arc::clone(outcome)),
            RunPhase::Unrecorded(error) | RunPhase::Interrupted(error) => Err(error.clone()),
            _ => Err(closing()),
        }
    }
}
