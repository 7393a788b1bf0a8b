//! The run supervisor of a session: keeps its user runs.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};

use crate::{
    live::Shared,
    observatory::Gauge,
    run::{message::RunSupervisorMsg, supervision::spawner::Keeper},
};

/// What the supervisor needs; its keeper is its state.
pub(crate) struct RunSupervisorActor {
    pub(crate) gauge: Arc<Gauge>,
}

impl Actor for RunSupervisorActor {
    type Msg = RunSupervisorMsg;
    type State = Keeper;
    type Arguments = Arc<Shared>;

    async fn pre_start(&self, _: ActorRef<Self::Msg>, shared: Arc<Shared>) -> Result<Keeper, ActorProcessingErr> {
        self.gauge.show("running", "");
        Ok(Keeper::new(shared))
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: Self::Msg,
        keeper: &mut Keeper,
    ) -> Result<(), ActorProcessingErr> {
        self.gauge.took();
        match message {
            RunSupervisorMsg::Start { run, start } => keeper.start(myself.get_cell(), &run, start).await,
            RunSupervisorMsg::Activate(run) => keeper.activate(myself.get_cell(), &run).await,
            RunSupervisorMsg::Crash => return Err("crashed on request".into()),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<Self::Msg>,
        event: SupervisionEvent,
        keeper: &mut Keeper,
    ) -> Result<(), ActorProcessingErr> {
        keeper.supervise(myself.get_cell(), event).await;
        Ok(())
    }
}
