//! Usage of runs, summed.

use soong::{
    UsageFilter,
    protocol::{UsageReport, api::operation::ReadUsage},
};

use super::{caller::Access, error::ApiError};

pub(super) async fn show(access: &Access, request: ReadUsage) -> Result<UsageReport, ApiError> {
    let ReadUsage { query } = request;
    let filter = UsageFilter {
        since: query.since,
        uid: access.caller.visible_uid(),
    };
    Ok(access.runtime().traces().usage(query.by, filter).await?)
}
