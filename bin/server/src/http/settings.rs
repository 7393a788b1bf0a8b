//! Digests of the settings of the owner.

use soong::protocol::api::{SettingsDigests, operation::ReadSettingsDigests};

use super::{caller::Access, error::ApiError};

/// Reads digests of the settings that the owner of the home uses, and of its keys and addresses. A
/// process compares them with its own settings. Only for the user of the home.
#[cfg_attr(feature = "openapi", utoipa::path(get, path = "/api/settings", tag = "home", responses((status = OK, body = SettingsDigests))))]
pub(super) async fn show(
    access: &Access,
    _: ReadSettingsDigests,
) -> Result<SettingsDigests, ApiError> {
    access.require_operator("the settings of the owner")?;
    Ok(access.runtime().info().settings_digests().clone())
}
