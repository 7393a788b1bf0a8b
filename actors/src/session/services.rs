//! The handles that sessions and their supervisor use.

use std::sync::Arc;

use soong_protocol::Config;

use super::{Deleter, SessionRegistry};
use crate::{
    actor_base::Lifetime,
    artifact::ArtifactStore,
    events::Hub,
    journal::JournalHandle,
    observatory::Observatory,
    reading::Reading,
    run::{Finalizer, RunRegistry, RunResolver, RunServices},
};

/// The handles that sessions and their supervisor use.
pub(crate) struct SessionServices {
    pub(crate) sessions: Arc<SessionRegistry>,
    pub(crate) run_services: Arc<RunServices>,
    pub(crate) runs: Arc<RunRegistry>,
    pub(crate) resolver: Arc<RunResolver>,
    pub(crate) finalizer: Arc<Finalizer>,
    pub(crate) journal: JournalHandle,
    pub(crate) reader: Reading,
    pub(crate) artifacts: Arc<ArtifactStore>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) observatory: Arc<Observatory>,
    pub(crate) deleter: Arc<Deleter>,
    pub(crate) config: Arc<Config>,
    pub(crate) lifetime: Lifetime,
}
