//! The supervision tree.

use serde::{Deserialize, Serialize};

/// An actor that was made to crash.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Killed {
    /// Id of the actor.
    pub actor_id: String,
}
