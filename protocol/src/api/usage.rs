//! Usage of runs, summed.

use serde::{Deserialize, Serialize};

use crate::{Timestamp, UsageBy};

/// Grouping and period of the sums.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub struct UsageQuery {
    /// Grouping of the sums.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub by: UsageBy,
    /// Include only runs that started at this time or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}
