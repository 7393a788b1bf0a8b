//! Recovery of interrupted runs: runs of an earlier process that had not ended. They are found when
//! a home is opened, or when their session is used again (DUR-3).
//!
//! Interrupted runs are resumed under their ids. They are added to the registry first, parents
//! before children, so that handles, tokens and links exist before any actor does. Then their
//! sessions are started.
//!
//! Elsewhere: how a run is resumed (`run/machine/lifecycle/resume.rs`), and in which order
//! a session resumes its runs (`session/actor/restore.rs`).

use std::{collections::HashSet, path::Path, sync::Arc};

use soong_protocol::{
    EndReason, ErrorCode, ErrorInfo, RecoveryMode, Run, RunId, RunStatus, SessionId, TraceId,
};

use super::{
    RunHandle, Runtime, RuntimeInfo, Sessions, Traces, abandoned_drafts, services::Services,
};
use crate::{
    actor_base::closing,
    run::{Ending, RunEntry},
    session::{SessionKey, SessionSupervisorMsg},
};

/// Which interrupted runs are resumed when a home is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RecoveryPolicy {
    /// All interrupted runs, unless `runtime.recovery` is `"none"` or `"ask"`.
    #[default]
    All,
    /// Those of one session.
    Session(SessionId),
    /// None. They stay interrupted until their session is used, or until the home is opened with
    /// another policy.
    Nothing,
}

/// Interrupted runs that were found when the home was opened, by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InterruptedRuns {
    /// Runs that were resumed.
    pub resumed: Vec<RunId>,
    /// Runs that were ended as `interrupted`, because of `runtime.recovery = "fail"`.
    pub ended: Vec<RunId>,
    /// Runs that stay interrupted.
    pub unchanged: Vec<RunId>,
}

impl RecoveryPolicy {
    fn includes(&self, run: &Run, mode: RecoveryMode) -> bool {
        match self {
            Self::All => matches!(mode, RecoveryMode::Resume | RecoveryMode::Fail),
            Self::Session(id) => run.session_id == *id,
            Self::Nothing => false,
        }
    }

    /// Finds interrupted runs, and ends them if `runtime.recovery = "fail"`. Returns the runs to
    /// resume.
    pub(super) async fn find_interrupted(
        &self,
        services: &Arc<Services>,
    ) -> Result<(InterruptedRuns, Vec<Run>), ErrorInfo> {
        let found = services
            .core
            .reader
            .read(|reader| reader.live_runs(None))
            .await?;
        abandoned_drafts::remove_in_background(services, &found);
        let mode = services.core.config.runtime.recovery.unwrap_or_default();
        let (included, others): (Vec<Run>, Vec<Run>) =
            found.into_iter().partition(|run| self.includes(run, mode));
        let ids = |runs: &[Run]| {
            runs.iter()
                .map(|run| run.run_id.clone())
                .collect::<Vec<_>>()
        };
        let included_ids = ids(&included);
        let unchanged = ids(&others);
        if mode == RecoveryMode::Fail {
            services.finalizer.finalize_interrupted(included).await?;
            return Ok((
                InterruptedRuns {
                    ended: included_ids,
                    unchanged,
                    ..InterruptedRuns::default()
                },
                Vec::new(),
            ));
        }
        Ok((
            InterruptedRuns {
                resumed: included_ids,
                unchanged,
                ..InterruptedRuns::default()
            },
            included,
        ))
    }
}

/// Resumes runs that no actor executes. Returns when they are in the registry.
pub(super) async fn resume_runs(services: &Arc<Services>, runs: &[Run]) -> Result<(), ErrorInfo> {
    let sessions: HashSet<SessionId> = runs.iter().map(|run| run.session_id.clone()).collect();
    let wanted: Vec<SessionId> = sessions.into_iter().collect();
    let found = services
        .core
        .reader
        .read(move |reader| {
            wanted
                .iter()
                .map(|id| reader.session(id))
                .collect::<Result<Vec<_>, _>>()
        })
        .await?;
    let used = services.finalizer.read_used(runs).await?;
    // From here on the session supervisor owns these runs: it starts their sessions, or deregisters
    // the runs again.
    services.finalizer.register_interrupted(runs, &used);
    for session in found.into_iter().flatten() {
        let project_dir: Arc<Path> = Path::new(&session.project_dir).into();
        let lost = SessionKey {
            session_id: session.session_id,
            project_dir,
        };
        if !services
            .sessions
            .send_to_supervisor(SessionSupervisorMsg::Recover(lost))
        {
            return Err(closing());
        }
    }
    Ok(())
}

impl Runtime {
    /// Reads the interrupted runs of a session. If the session has actors, it executes all its
    /// runs, so there are none.
    pub(super) async fn interrupted_in(&self, id: &SessionId) -> Result<Vec<Run>, ErrorInfo> {
        let services = &self.inner.services;
        if services.sessions.contains(id) {
            return Ok(Vec::new());
        }
        let wanted = id.clone();
        let mut runs = services
            .core
            .reader
            .read(move |reader| reader.live_runs(Some(&wanted)))
            .await?;
        runs.retain(|run| !services.core.runs.contains(&run.run_id));
        Ok(runs)
    }
}

impl<'a> RuntimeInfo<'a> {
    /// Returns the interrupted runs that were found when the home was opened.
    pub fn interrupted_runs(self) -> &'a InterruptedRuns {
        &self.runtime.inner.interrupted_runs
    }

    /// Returns handles of the driven runs that this runtime has resumed and that no program holds a
    /// handle of.
    ///
    /// A program continues them with [`RunHandle::children_or_spawn`] and [`RunHandle::finish`]. A
    /// driven run without any handle ends as `interrupted` when it has made no progress for
    /// `runtime.stuck_after_s`.
    pub fn resumed_driven_runs(self) -> Vec<RunHandle> {
        let services = &self.runtime.inner.services;
        let is_undriven =
            |entry: &RunEntry| entry.identity.driven && !entry.has_handle() && !entry.is_ending();
        services
            .core
            .runs
            .select(is_undriven)
            .into_iter()
            .map(|entry| RunHandle::new(Arc::clone(services), entry))
            .collect()
    }
}

impl Sessions<'_> {
    /// Resumes the interrupted runs of a session. Returns the handle of the run that is active
    /// then.
    ///
    /// `None`: there are none, or they were ended now because of `runtime.recovery = "fail"`.
    ///
    /// # Errors
    /// `session_not_found`, `storage_error`, `closing`.
    pub async fn resume(self, id: &SessionId) -> Result<Option<RunHandle>, ErrorInfo> {
        self.get(id).await?;
        let services = &self.runtime.inner.services;
        let runs = self.runtime.interrupted_in(id).await?;
        if runs.is_empty() {
            return Ok(None);
        }
        if services.core.config.runtime.recovery == Some(RecoveryMode::Fail) {
            let ids = runs.iter().map(|run| run.run_id.clone()).collect();
            services.finalizer.finalize_interrupted(runs).await?;
            services.task_journals.complete_ended(ids);
            return Ok(None);
        }
        services.resolver.mcp.wait_started().await;
        resume_runs(services, &runs).await?;
        // The trace of a sub-agent can have a run of a user, too.
        let is_of_a_user =
            |entry: &RunEntry| entry.identity.session_id == *id && entry.identity.parent.is_none();
        Ok(self.runtime.active_run_among(is_of_a_user))
    }
}

impl Traces<'_> {
    /// Cancels an interrupted run of a trace together with its descendants: the run that was
    /// executing, or else the next one in the queue. Other runs do not change, and no run executes
    /// any step.
    ///
    /// # Errors
    /// `trace_not_found`; `nothing_running` if no run of the trace is interrupted, or one is
    /// running in this process: see [`Traces::active_run`]; `storage_error`.
    pub async fn cancel_interrupted(self, id: &TraceId) -> Result<Run, ErrorInfo> {
        let trace = self.get(id).await?;
        let services = &self.runtime.inner.services;
        let runs = self.runtime.interrupted_in(&trace.session_id).await?;
        let own = |run: &&Run| run.trace_id == *id;
        let begun = runs
            .iter()
            .filter(own)
            .find(|run| run.status != RunStatus::Queued);
        let Some(run) = begun.or_else(|| runs.iter().find(own)) else {
            let message = format!("trace {id} has no interrupted run: there is nothing to stop");
            return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
        };
        // Parents are listed before their children.
        let mut below: Vec<&Run> = vec![run];
        for other in &runs {
            let parent = other.parent_run_id.as_ref();
            if parent.is_some_and(|parent| below.iter().any(|above| above.run_id == *parent)) {
                below.push(other);
            }
        }
        for ended in below.into_iter().rev() {
            let ending = Ending {
                status: RunStatus::Cancelled,
                reason: EndReason::Cancelled,
                error: None,
            };
            services
                .finalizer
                .finalize(&ended.run_id, &ended.trace_id, ending)
                .await?;
        }
        services
            .task_journals
            .complete_ended(vec![run.run_id.clone()]);
        services.core.bus.clear_session_failure(&trace.session_id);
        self.run(&run.run_id).await
    }
}
