//! The handles that sessions and their supervisor use.

use std::sync::Arc;

use super::{SessionDeleter, SessionRegistry};
use crate::{
    actor_tree::ActorTree,
    run::{Core, Finalizer, RunResolver, RunServices},
};

/// The handles that sessions and their supervisor use.
pub(crate) struct SessionServices {
    pub(crate) core: Arc<Core>,
    pub(crate) sessions: Arc<SessionRegistry>,
    pub(crate) run_services: Arc<RunServices>,
    pub(crate) resolver: Arc<RunResolver>,
    pub(crate) finalizer: Arc<Finalizer>,
    pub(crate) actor_tree: Arc<ActorTree>,
    pub(crate) deleter: Arc<SessionDeleter>,
}
