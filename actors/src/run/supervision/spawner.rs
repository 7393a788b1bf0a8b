//! The keeper of runs: starts them, restarts what crashes, gives up on what crashes too often, and keeps a place for
//! what has left until somebody needs it.
//!
//! Used by the two supervisors that keep runs; they differ in whom they tell.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ractor::{Actor, ActorId, ActorRef, Message, SupervisionEvent};
use soong_protocol::{EndReason, ErrorCode, ErrorInfo, Run, RunId, RunStatus};

use crate::{
    actor_base::restart::{self, Crashes},
    run::{
        actor::{RunActor, RunServices},
        machine::{ending::Ending, input::Again, spec::RunSpec},
        message::{Start, StartFailed},
        registry::entry::RunEntry,
        resolver::RunResolver,
    },
};

/// How long a supervisor that is being killed may take to die.
const KILL_GRACE: Duration = Duration::from_secs(2);

/// How the actor of a run begins that had left while the run waited.
const ACTIVATE: Start = Start::Load { restarted: Some(Again::Activated) };

struct Kept {
    live: Arc<RunEntry>,
    spec: Arc<RunSpec>,
    crashes: Crashes,
}

/// The runs of one supervisor.
pub(crate) struct Keeper {
    services: Arc<RunServices>,
    resolver: Arc<RunResolver>,
    by_actor: HashMap<ActorId, Kept>,
    /// Runs that wait, and whose actors have left (ACT-7).
    passive: HashMap<RunId, Kept>,
}

impl Keeper {
    pub(crate) fn new(services: Arc<RunServices>, resolver: Arc<RunResolver>) -> Self {
        Self { services, resolver, by_actor: HashMap::new(), passive: HashMap::new() }
    }

    /// Starts a run's actor under `supervisor`.
    ///
    /// A run whose preset or tools the configuration does not know (any more) is ended at once.
    pub(crate) async fn start<M>(&mut self, supervisor: &ActorRef<M>, run: &Run, start: Start)
    where
        M: Message + From<StartFailed>,
    {
        let live = self.services.runs.register(run);
        let project = self.services.runs.project_dir(&run.session_id);
        match (self.resolver.resolve(run, &project), start) {
            (Ok(spec), start) => {
                let kept = Kept { live, spec: Arc::new(spec), crashes: Crashes::new(restart::RUN) };
                self.spawn(supervisor, kept, start).await;
            }
            (Err(error), Start::Fresh { accepted: Some(accepted), .. }) => {
                self.services.runs.abandon_start(&live);
                let _ = accepted.send(Err(error));
            }
            (Err(error), _) => self.give_up(live, EndReason::Failed, error),
        }
    }

    /// Gives a run whose actor has left an actor again; one that is about to leave gets it when it has.
    pub(crate) async fn activate<M: Message + From<StartFailed>>(&mut self, supervisor: &ActorRef<M>, run: &RunId) {
        if let Some(kept) = self.passive.remove(run) {
            self.spawn(supervisor, kept, ACTIVATE).await;
        }
    }

    async fn spawn<M: Message + From<StartFailed>>(&mut self, supervisor: &ActorRef<M>, kept: Kept, start: Start) {
        let (services, live, spec) = (Arc::clone(&self.services), Arc::clone(&kept.live), Arc::clone(&kept.spec));
        let actor = RunActor { services, live, spec };
        match Actor::spawn_linked(None, actor, start, supervisor.get_cell()).await {
            Ok((actor, _)) => {
                self.by_actor.insert(actor.get_id(), kept);
            }
            Err(error) => {
                // An actor does not start either if its supervisor is being killed, together with its session. Then this
                // message is not delivered, and the next incarnation of the session starts the run.
                let error = ErrorInfo::new(ErrorCode::ActorCrashed, format!("the run's actor did not start: {error}"));
                let failed = StartFailed { run_id: kept.live.run_id.clone(), error };
                supervisor.send_after(KILL_GRACE, move || failed.into());
            }
        }
    }

    /// Ends a run whose actor could not be started.
    pub(crate) fn start_failed(&self, failed: StartFailed) {
        if let Some(live) = self.services.runs.get(&failed.run_id) {
            self.give_up(live, EndReason::ActorCrashed, failed.error);
        }
    }

    /// Deals with what became of an actor: forgets one that left, restarts one that crashed from the
    /// journal, and ends the run and its children after too many crashes. Returns a run that restarts.
    pub(crate) async fn supervise<M: Message + From<StartFailed>>(
        &mut self,
        supervisor: &ActorRef<M>,
        event: SupervisionEvent,
    ) -> Option<RunId> {
        let (actor, error) = match event {
            SupervisionEvent::ActorTerminated(actor, ..) => {
                let kept = self.by_actor.remove(&actor.get_id())?;
                match kept.live.door.is_called() {
                    Some(true) => self.spawn(supervisor, kept, ACTIVATE).await,
                    Some(false) => {
                        self.passive.insert(kept.live.run_id.clone(), kept);
                    }
                    None => {}
                }
                return None;
            }
            SupervisionEvent::ActorFailed(actor, error) => (actor, error.to_string()),
            _ => return None,
        };
        let mut kept = self.by_actor.remove(&actor.get_id())?;
        if self.services.lifetime.is_closing() {
            return None;
        }
        let error = error.as_str();
        tracing::warn!(run = %kept.live.run_id, error, "a run's actor crashed");
        kept.live.door.shut();
        match kept.crashes.record(Instant::now()) {
            Some(count) => {
                kept.live.gauge.restarted(error);
                let run = kept.live.run_id.clone();
                let restarted = Some(Again::Crashed { count, error: error.to_owned() });
                self.spawn(supervisor, kept, Start::Load { restarted }).await;
                Some(run)
            }
            None => {
                let message =
                    format!("the run's actor crashed more often than it may ({}); last: {error}", restart::RUN.shown);
                let error = ErrorInfo::new(ErrorCode::ActorCrashed, message);
                self.give_up(kept.live, EndReason::ActorCrashed, error);
                None
            }
        }
    }

    fn give_up(&self, live: Arc<RunEntry>, reason: EndReason, error: ErrorInfo) {
        let ending = Ending { status: RunStatus::Failed, reason, error: Some(error) };
        self.services.finalizer.finalize_orphan(live, ending);
    }
}
