//! Starts run actors, restarts them after crashes, ends runs that crash too often, and keeps the
//! entries of passivated runs.
//!
//! Used by the two supervisors of run actors. They differ in whom they notify of the end.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorId, ActorRef, Message, SupervisionEvent};
use soong_protocol::{EndReason, ErrorCode, ErrorInfo, Run, RunId, RunStatus};

use crate::{
    actor_base::restart::{self, CrashHistory},
    run::{
        actor::{RunActor, RunServices},
        machine::{ending::Ending, input::ResumeReason, spec::RunSpec},
        message::{RunStart, StartFailed},
        registry::{address::Passivation, entry::RunEntry},
        resolver::RunResolver,
    },
};

/// Delay before a failed start is reported. A supervisor that is being killed stops within this
/// time.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// Start of the actor of a passivated run.
const ACTIVATE: RunStart = RunStart::Load {
    restarted: Some(ResumeReason::Reactivated),
};

struct ChildEntry {
    entry: Arc<RunEntry>,
    spec: Arc<RunSpec>,
    crashes: CrashHistory,
}

/// The runs of one supervisor.
pub(crate) struct RunSpawner {
    services: Arc<RunServices>,
    resolver: Arc<RunResolver>,
    by_actor: HashMap<ActorId, ChildEntry>,
    /// Waiting runs whose actors are passivated (ACT-7).
    passivated: HashMap<RunId, ChildEntry>,
}

/// Marks a run as opened. A run to which children were added while it was queued has a state to
/// read.
async fn open(entry: &RunEntry, start: RunStart) -> RunStart {
    let mut opening = entry.opening.lock().await;
    opening.is_opened = true;
    match start {
        RunStart::New { accepted: None, .. } if opening.has_children => {
            RunStart::Load { restarted: None }
        }
        start => start,
    }
}

impl RunSpawner {
    pub(crate) fn new(services: Arc<RunServices>, resolver: Arc<RunResolver>) -> Self {
        Self {
            services,
            resolver,
            by_actor: HashMap::new(),
            passivated: HashMap::new(),
        }
    }

    /// Starts the actor of a run under `supervisor`.
    ///
    /// If the run names a preset or a tool that does not exist any more, it is ended instead.
    pub(crate) async fn start<M>(&mut self, supervisor: &ActorRef<M>, run: &Run, start: RunStart)
    where
        M: Message + From<StartFailed>,
    {
        let entry = self.services.core.runs.register(run);
        let start = open(&entry, start).await;
        let project = self.services.core.runs.project_dir(&run.session_id);
        match (self.resolver.resolve(run, &project), start) {
            (Ok(spec), start) => {
                let child = ChildEntry {
                    entry,
                    spec: Arc::new(spec),
                    crashes: CrashHistory::new(restart::RUN),
                };
                self.spawn(supervisor, child, start).await;
            }
            (
                Err(error),
                RunStart::New {
                    accepted: Some(accepted),
                    ..
                },
            ) => {
                self.services.core.runs.abandon_start(&entry);
                let _ = accepted.send(Err(error));
            }
            (Err(error), _) => self.finalize(entry, EndReason::Failed, error),
        }
    }

    /// Starts the actor of a passivated run. If the old actor is still stopping,
    /// [`Self::supervise`] starts the next one when it has stopped.
    pub(crate) async fn activate<M: Message + From<StartFailed>>(
        &mut self,
        supervisor: &ActorRef<M>,
        run: &RunId,
    ) {
        if let Some(child) = self.passivated.remove(run) {
            self.spawn(supervisor, child, ACTIVATE).await;
        }
    }

    async fn spawn<M: Message + From<StartFailed>>(
        &mut self,
        supervisor: &ActorRef<M>,
        child: ChildEntry,
        start: RunStart,
    ) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&child.entry);
        let spec = Arc::clone(&child.spec);
        let actor = RunActor {
            services,
            entry,
            spec,
        };
        match Actor::spawn_linked(None, actor, start, supervisor.get_cell()).await {
            Ok((actor, _)) => {
                self.by_actor.insert(actor.get_id(), child);
            }
            Err(error) => {
                // Starting an actor also fails while its supervisor is being killed together with
                // its session. In that case, this message is not delivered, and the next
                // incarnation of the session starts the run.
                let error = ErrorInfo::new(
                    ErrorCode::ActorCrashed,
                    format!("the run's actor did not start: {error}"),
                );
                let failed = StartFailed {
                    run_id: child.entry.identity.run_id.clone(),
                    error,
                };
                supervisor.send_after(KILL_GRACE, move || failed.into());
            }
        }
    }

    /// Ends a run whose actor could not be started.
    pub(crate) fn start_failed(&self, failed: StartFailed) {
        if let Some(entry) = self.services.core.runs.get(&failed.run_id) {
            self.finalize(entry, EndReason::ActorCrashed, failed.error);
        }
    }

    /// Handles the end of an actor. If it was passivated, keeps the run, or restarts it if messages
    /// are waiting. If it crashed, restarts it from the journal, or ends the run and its children
    /// after too many crashes. Returns the run if it restarts after a crash.
    pub(crate) async fn supervise<M: Message + From<StartFailed>>(
        &mut self,
        supervisor: &ActorRef<M>,
        event: SupervisionEvent,
    ) -> Option<RunId> {
        let (actor, error) = match event {
            SupervisionEvent::ActorTerminated(actor, ..) => {
                let child = self.by_actor.remove(&actor.get_id())?;
                match child.entry.address.passivation() {
                    Passivation::MessagesWait => self.spawn(supervisor, child, ACTIVATE).await,
                    Passivation::Idle => {
                        self.passivated
                            .insert(child.entry.identity.run_id.clone(), child);
                    }
                    Passivation::None => {}
                }
                return None;
            }
            SupervisionEvent::ActorFailed(actor, error) => (actor, error.to_string()),
            _ => return None,
        };
        let mut crashed = self.by_actor.remove(&actor.get_id())?;
        if self.services.core.lifetime.is_closing() {
            return None;
        }
        let error = error.as_str();
        tracing::warn!(run = %crashed.entry.identity.run_id, error, "run actor crashed");
        crashed.entry.address.close();
        if let Some(debug_artifacts) = &self.services.debug_artifacts {
            debug_artifacts.store_crash(&crashed.entry.identity, "run actor", error);
        }
        match crashed.crashes.record(Instant::now()) {
            Some(count) => {
                crashed.entry.status.restarted(error);
                let run = crashed.entry.identity.run_id.clone();
                let restarted = Some(ResumeReason::Crashed {
                    count,
                    error: error.to_owned(),
                });
                self.spawn(supervisor, crashed, RunStart::Load { restarted })
                    .await;
                Some(run)
            }
            None => {
                let message = format!(
                    "the run's actor exceeded its restart limit ({}); last error: {error}",
                    restart::RUN.label
                );
                let error = ErrorInfo::new(ErrorCode::ActorCrashed, message);
                self.finalize(crashed.entry, EndReason::ActorCrashed, error);
                None
            }
        }
    }

    fn finalize(&self, entry: Arc<RunEntry>, reason: EndReason, error: ErrorInfo) {
        let ending = Ending {
            status: RunStatus::Failed,
            reason,
            error: Some(error),
        };
        self.services.finalizer.finalize_orphan(entry, ending);
    }
}
