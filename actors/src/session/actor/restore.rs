//! Restoring a session whose runs are stored: its unfinished runs are read and resumed (DUR-3).

use std::{collections::HashSet, sync::Arc};

use ractor::ActorRef;
use soong_protocol::{EndReason, ErrorInfo, RecoveryMode, Run, RunId, RunStatus, SessionId};
use soong_storage::store::{Append, Reader};

use super::{QueuedRun, SessionActor, SessionState, StartMode};
use crate::{
    actor_base::Mailbox,
    run::{BudgetUsage, Ending, ResumeReason, RunEntry, RunStart, RunSupervisorMsg, SubAgentMsg},
    session::{SessionServices, message::SessionMsg},
};

/// Ends the runs of a session that an earlier process left unfinished.
async fn fail_interrupted(services: &SessionServices, id: &SessionId) -> Result<(), ErrorInfo> {
    let wanted = id.clone();
    let runs = services
        .core
        .reader
        .read(move |reader| reader.live_runs(Some(&wanted)))
        .await?;
    services.finalizer.finalize_interrupted(runs).await
}

impl SessionActor {
    /// Reads the unfinished runs of the session, and ends the runs that exist only in memory.
    pub(super) fn restore(&self, myself: &ActorRef<SessionMsg>, is_recovery: bool) {
        let session = Mailbox::new(myself.clone(), Arc::clone(&self.status));
        let services = Arc::clone(&self.services);
        let id = self.key.session_id.clone();
        self.services.core.lifetime.spawn(async move {
            // The empty append completes after every append that the previous incarnation had
            // submitted.
            let _ = services
                .core
                .journal
                .append_and_wait(Append::default())
                .await;
            let attempt = || async {
                if is_recovery && services.core.config.runtime.recovery == Some(RecoveryMode::Fail)
                {
                    fail_interrupted(&services, &id).await?;
                }
                let wanted = id.clone();
                let read = move |reader: &dyn Reader| {
                    Ok((
                        reader.session(&wanted)?.is_some(),
                        reader.live_runs(Some(&wanted))?,
                    ))
                };
                let (known, runs) = services.core.reader.read(read).await?;
                let used = services.finalizer.read_used(&runs).await?;
                Ok((known, runs, used))
            };
            session.send(
                match services
                    .core
                    .lifetime
                    .keep_trying("reading a session", attempt)
                    .await
                {
                    Ok((known, runs, used)) => SessionMsg::Restored { known, runs, used },
                    Err(error) => SessionMsg::LoadFailed(error),
                },
            );
        });
    }

    /// Ends the live runs of a session that cannot be read, and rejects the held start requests.
    pub(super) fn unreadable(&self, state: &mut SessionState, error: &ErrorInfo) {
        if self.services.core.lifetime.is_closing() {
            return; // closing interrupts them
        }
        tracing::error!(session = %self.key.session_id, %error, "failed to read a session; its runs are ended as failed");
        state.is_holding = false;
        state.start_mode = StartMode::Stored;
        for request in std::mem::take(&mut state.held_requests) {
            let _ = request.reply.send(Err(error.clone()));
        }
        for entry in self.live_runs(|_| true) {
            let ending = Ending {
                status: RunStatus::Failed,
                reason: EndReason::Failed,
                error: Some(error.clone()),
            };
            self.services.finalizer.finalize_orphan(entry, ending);
        }
    }

    /// Returns the live runs of the session that match `wanted`.
    pub(super) fn live_runs(&self, wanted: impl Fn(&RunId) -> bool) -> Vec<Arc<RunEntry>> {
        self.services.core.runs.select(|run| {
            run.identity.session_id == self.key.session_id && wanted(&run.identity.run_id)
        })
    }

    pub(super) fn restored(&self, state: &mut SessionState, runs: Vec<Run>, used: &BudgetUsage) {
        let known: HashSet<&RunId> = runs.iter().map(|run| &run.run_id).collect();
        for entry in self.live_runs(|run| !known.contains(run)) {
            // Either never recorded, or recorded as ended before anyone was notified: the store
            // shows which.
            let ending = Ending {
                status: RunStatus::Cancelled,
                reason: EndReason::Cancelled,
                error: None,
            };
            self.services.finalizer.finalize_orphan(entry, ending);
        }
        self.services.finalizer.register_interrupted(&runs, used);
        let (user_runs, children): (Vec<Run>, Vec<Run>) = runs
            .into_iter()
            .partition(|run| run.parent_run_id.is_none());
        let reason = match state.start_mode {
            StartMode::Recover => ResumeReason::ProcessRestart,
            _ => ResumeReason::Crashed {
                count: 0,
                error: "the session's actor crashed".to_owned(),
            },
        };
        let queued_runs: HashSet<RunId> = user_runs
            .iter()
            .chain(&children)
            .filter(|run| run.status == RunStatus::Queued)
            .map(|run| run.run_id.clone())
            .collect();
        // The children of a queued run start with it.
        let starts_now = |run: &Run| {
            run.parent_run_id
                .as_ref()
                .is_none_or(|parent| !queued_runs.contains(parent))
        };
        let children: Vec<Run> = children.into_iter().filter(starts_now).collect();
        // Children first, so that their parents find them running.
        if !children.is_empty() {
            state.sub_agents.send(SubAgentMsg::Restore {
                runs: children,
                reason: reason.clone(),
            });
        }
        for run in user_runs {
            if run.status == RunStatus::Queued {
                state.queue.push_back(QueuedRun {
                    run,
                    reply: None,
                    recorded: true,
                });
            } else {
                state.active = Some(run.run_id.clone());
                let start = RunStart::Load {
                    restarted: Some(reason.clone()),
                };
                state.runs.send(RunSupervisorMsg::Start {
                    run: Box::new(run),
                    start,
                });
            }
        }
        let cancelled = |queued: &QueuedRun| {
            self.services
                .core
                .runs
                .register(&queued.run)
                .control
                .token
                .is_cancelled()
        };
        let cancelled_runs: Vec<RunId> = state
            .queue
            .iter()
            .filter(|queued| cancelled(queued))
            .map(|queued| queued.run.run_id.clone())
            .collect();
        for run in cancelled_runs {
            self.cancel_queued(state, &run);
        }
    }
}
