//! Runs that an earlier process left behind: found when a home is opened, or when their session is used again
//! (DUR-3).
//!
//! They go on under their ids: entered among the living first, parents before children, so that handles, tokens
//! and links are there before any actor is; then their sessions are woken.
//! Not here: how a run goes on (`run/machine/transition.rs`), in which order a session takes its runs up (`session/actor.rs`).

use std::{collections::HashSet, path::Path, sync::Arc};

use soong_protocol::{EndReason, ErrorCode, ErrorInfo, Recovery, Run, RunStatus, SessionId, TraceId};

use super::{RunHandle, Runtime, services::Services};
use crate::{
    actor_base::closing,
    run::{Ending, RunEntry},
    session::{Lost, SessionSupervisorMsg},
};

/// Which of the runs that an earlier process left behind are taken up when a home is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Recover {
    /// All of them.
    #[default]
    All,
    /// Those of this session.
    Session(SessionId),
    /// None. They wait until their session is used, or somebody opens the home who takes them up.
    Nothing,
}

/// What was found when the home was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LeftBehind {
    /// Runs that go on.
    pub resumed: usize,
    /// Runs that were ended as `interrupted`, by `runtime.recovery = "fail"`.
    pub ended: usize,
    /// Runs that stay as they are.
    pub untouched: usize,
}

impl Recover {
    fn takes(&self, run: &Run) -> bool {
        match self {
            Self::All => true,
            Self::Session(id) => run.session_id == *id,
            Self::Nothing => false,
        }
    }

    /// Looks at what was left behind, and ends it where that is wanted; returns what is to go on.
    pub(super) async fn look(&self, services: &Arc<Services>) -> Result<(LeftBehind, Vec<Run>), ErrorInfo> {
        let found = services.reader.read(|reader| reader.live_runs(None)).await?;
        let all = found.len();
        let taken: Vec<Run> = found.into_iter().filter(|run| self.takes(run)).collect();
        let untouched = all - taken.len();
        if services.config.runtime.recovery == Recovery::Fail {
            let ended = taken.len();
            services.finalizer.finalize_interrupted(taken).await?;
            return Ok((LeftBehind { ended, untouched, ..LeftBehind::default() }, Vec::new()));
        }
        Ok((LeftBehind { resumed: taken.len(), untouched, ..LeftBehind::default() }, taken))
    }
}

/// Has runs go on that nobody has at work; returns when they are among the living.
pub(super) async fn take_up(services: &Arc<Services>, runs: &[Run]) -> Result<(), ErrorInfo> {
    let sessions: HashSet<SessionId> = runs.iter().map(|run| run.session_id.clone()).collect();
    let wanted: Vec<SessionId> = sessions.into_iter().collect();
    let found = services
        .reader
        .read(move |reader| wanted.iter().map(|id| reader.session(id)).collect::<Result<Vec<_>, _>>())
        .await?;
    let used = services.finalizer.read_used(runs).await?;
    // From here on somebody has them: the session supervisor wakes their sessions, or strikes them again.
    services.finalizer.register_interrupted(runs, &used);
    for session in found.into_iter().flatten() {
        let project_dir: Arc<Path> = Path::new(&session.project_dir).into();
        let lost = Lost { session_id: session.session_id, project_dir };
        if !services.sessions.to_supervisor(SessionSupervisorMsg::Recover(lost)) {
            return Err(closing());
        }
    }
    Ok(())
}

impl Runtime {
    /// Tells what was found of earlier processes when the home was opened.
    pub fn left_behind(&self) -> LeftBehind {
        self.inner.left_behind
    }

    /// Returns handles of the driven runs that this runtime has resumed and that no program holds a handle of.
    ///
    /// A program continues them with [`RunHandle::children_or_spawn`] and [`RunHandle::finish`]. A driven run without any
    /// handle ends as `interrupted` when it has made no progress for `runtime.stuck_after_s`.
    pub fn undriven(&self) -> Vec<RunHandle> {
        let services = &self.inner.services;
        let is_undriven = |run: &RunEntry| run.driven && !run.has_handle() && !run.is_ending();
        services.runs.select(is_undriven).into_iter().map(|live| RunHandle::new(Arc::clone(services), live)).collect()
    }

    /// Has a session's runs go on that an earlier process left behind; returns the one whose turn it is.
    ///
    /// `None` = there are none, or `runtime.recovery = "fail"` has ended them now.
    ///
    /// # Errors
    /// `session_not_found`, `storage_error`, `closing`.
    pub async fn resume(&self, id: &SessionId) -> Result<Option<RunHandle>, ErrorInfo> {
        self.session(id).await?;
        let services = &self.inner.services;
        let runs = self.left_in(id).await?;
        if runs.is_empty() {
            return Ok(None);
        }
        if services.config.runtime.recovery == Recovery::Fail {
            let ids = runs.iter().map(|run| run.run_id.clone()).collect();
            services.finalizer.finalize_interrupted(runs).await?;
            services.task_journals.complete(ids);
            return Ok(None);
        }
        services.resolver.mcp.settled().await;
        take_up(services, &runs).await?;
        Ok(self.active(&TraceId::root(id)))
    }

    /// Ends a run that an earlier process left behind on a trace, with everything below it and nothing else: the one
    /// that was at work, or the next in the queue. No step of any run is made.
    ///
    /// # Errors
    /// `trace_not_found`; `nothing_running` where none was left behind, or one is at work here: see
    /// [`Runtime::active`]; `storage_error`.
    pub async fn end_left_behind(&self, id: &TraceId) -> Result<Run, ErrorInfo> {
        let trace = self.trace(id).await?;
        let services = &self.inner.services;
        let runs = self.left_in(&trace.session_id).await?;
        let own = |run: &&Run| run.trace_id == *id;
        let begun = runs.iter().filter(own).find(|run| run.status != RunStatus::Queued);
        let Some(run) = begun.or_else(|| runs.iter().find(own)) else {
            let message = format!("no run is at work on trace {id}: there is nothing to stop");
            return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
        };
        // Parents come before their children.
        let mut below: Vec<&Run> = vec![run];
        for other in &runs {
            let parent = other.parent_run_id.as_ref();
            if parent.is_some_and(|parent| below.iter().any(|above| above.run_id == *parent)) {
                below.push(other);
            }
        }
        for ended in below.into_iter().rev() {
            let ending = Ending { status: RunStatus::Cancelled, reason: EndReason::Cancelled, error: None };
            services.finalizer.finalize(&ended.run_id, &ended.trace_id, ending).await?;
        }
        services.task_journals.complete(vec![run.run_id.clone()]);
        services.hub.session_is_used(&trace.session_id);
        self.run(&run.run_id).await
    }

    /// Reads the runs of a session that nobody has at work. One that has actors has all of its runs.
    pub(super) async fn left_in(&self, id: &SessionId) -> Result<Vec<Run>, ErrorInfo> {
        let services = &self.inner.services;
        if services.sessions.contains(id) {
            return Ok(Vec::new());
        }
        let wanted = id.clone();
        let mut runs = services.reader.read(move |reader| reader.live_runs(Some(&wanted))).await?;
        runs.retain(|run| !services.runs.contains(&run.run_id));
        Ok(runs)
    }
}
