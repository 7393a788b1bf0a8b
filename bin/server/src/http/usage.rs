//! Usage of runs, summed.

use axum::Json;
use soong::{
    UsageFilter,
    protocol::{UsageReport, api::UsageQuery},
};

use super::{caller::Access, error::ApiError, request::Query};

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
