//! Usage of runs, summed.

use axum::Json;
use serde::{Deserialize, Serialize};
use soong::{
    UsageFilter,
    protocol::{Timestamp, UsageBy, UsageReport},
};

use super::{caller::Access, error::ApiError, request::Query};

/// Grouping and period of the sums.
#[derive(Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", into_params(parameter_in = Query))]
pub(crate) struct UsageQuery {
    /// Grouping of the sums.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", param(inline))]
    pub by: UsageBy,
    /// Include only runs that started at this time or later.
    pub since: Option<Timestamp>,
}

/// Sums up the usage and cost of runs.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/usage", tag = "home", params(UsageQuery), responses((status = OK, body = UsageReport))))]
pub(super) async fn show(
    access: Access,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageReport>, ApiError> {
    let filter = UsageFilter {
        since: query.since,
        uid: access.caller.visible_uid(),
    };
    Ok(Json(
        access.runtime().traces().usage(query.by, filter).await?,
    ))
}
