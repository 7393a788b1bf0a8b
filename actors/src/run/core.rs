//! The handles that sessions, runs and tasks have in common.

use std::sync::Arc;

use soong_protocol::Config;
use soong_text::Redactor;

use crate::{
    actor_base::Lifetime, artifact::ArtifactHandle, events::EventBus, journal::JournalHandle,
    run::registry::RunRegistry, store_reader::StoreReader,
};

/// The handles that sessions, runs and tasks have in common: the configuration, the store and the
/// artifacts of the home, the event bus, the live runs, and the lifetime of the runtime.
pub(crate) struct Core {
    pub(crate) config: Arc<Config>,
    /// Removes the secrets of the configuration and the environment from texts.
    pub(crate) redactor: Redactor,
    /// Writes to the store.
    pub(crate) journal: JournalHandle,
    /// Reads from the store.
    pub(crate) reader: StoreReader,
    /// Delivers stored events.
    pub(crate) bus: Arc<EventBus>,
    /// The artifacts; a change of them is completed before the runtime closes.
    pub(crate) artifacts: ArtifactHandle,
    pub(crate) runs: Arc<RunRegistry>,
    pub(crate) lifetime: Lifetime,
}
