//! Usage: what runs have used, summed.

use axum::{
    Json,
    extract::{Query, State, rejection::QueryRejection},
};
use serde::{Deserialize, Serialize};
use soong::protocol::{Timestamp, UsageBy, UsageReport};

use super::{Api, error::ApiError};

/// How to sum, and from when on.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct UsageQuery {
    #[serde(default)]
    pub(crate) by: UsageBy,
    pub(crate) since: Option<Timestamp>,
}

/// GET `/api/usage`
pub(super) async fn show(
    State(api): State<Api>,
    query: Result<Query<UsageQuery>, QueryRejection>,
) -> Result<Json<UsageReport>, ApiError> {
    let Query(query) = query?;
    Ok(Json(api.runtime.usage(query.by, query.since).await?))
}
