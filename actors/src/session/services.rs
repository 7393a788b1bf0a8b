//! The handles that sessions and their supervisor use.

use std::sync::Arc;

use soong_protocol::Config;

use super::{SessionDeleter, SessionRegistry};
use crate::{
    actor_base::Lifetime,
    actor_tree::ActorTree,
    artifact::ArtifactStore,
    events::EventBus,
    journal::JournalHandle,
    run::{Finalizer, RunRegistry, RunResolver, RunServices},
    store_reader::StoreReader,
};

/// The handles that sessions and their supervisor use.
pub(crate) struct SessionServices {
    pub(crate) sessions: Arc<SessionRegistry>,
    pub(crate) run_services: Arc<RunServices>,
    pub(crate) runs: Arc<RunRegistry>,
    pub(crate) resolver: Arc<RunResolver>,
    pub(crate) finalizer: Arc<Finalizer>,
    pub(crate) journal: JournalHandle,
    pub(crate) reader: StoreReader,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) bus: Arc<EventBus>,
    pub(crate) actor_tree: Arc<ActorTree>,
    pub(crate) deleter: Arc<SessionDeleter>,
    pub(crate) config: Arc<Config>,
    pub(crate) lifetime: Lifetime,
}
