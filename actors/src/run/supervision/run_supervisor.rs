//! The run supervisor of a session: starts and restarts its user runs.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    actor_tree::ActorStatus,
    run::{
        actor::RunServices, message::RunSupervisorMsg, resolver::RunResolver,
        supervision::spawner::RunSpawner,
    },
};

/// The run supervisor. Its state is a [`RunSpawner`].
pub(crate) struct RunSupervisorActor {
    pub(crate) services: Arc<RunServices>,
    pub(crate) resolver: Arc<RunResolver>,
    pub(crate) status: Arc<ActorStatus>,
}

impl Actor for RunSupervisorActor {
    type Msg = RunSupervisorMsg;
    type State = RunSpawner;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<RunSpawner, ActorProcessingErr> {
        self.status.set_state("running", "");
        Ok(RunSpawner::new(
            Arc::clone(&self.services),
            Arc::clone(&self.resolver),
        ))
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        spawner: &mut RunSpawner,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            RunSupervisorMsg::Start { run, start } => spawner.start(&myself, &run, start).await,
            RunSupervisorMsg::Activate(run) => spawner.activate(&myself, &run).await,
            RunSupervisorMsg::StartFailed(failed) => spawner.start_failed(failed),
            RunSupervisorMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        spawner: &mut RunSpawner,
    ) -> Result<(), ActorProcessingErr> {
        spawner.supervise(&myself, event).await;
        Ok(())
    }
}
