//! Digests of the settings of the owner.

use soong::protocol::api::{SettingsDigests, operation::ReadSettingsDigests};

use super::{caller::Access, error::ApiError};

pub(super) async fn show(
    access: &Access,
    _: ReadSettingsDigests,
) -> Result<SettingsDigests, ApiError> {
    Ok(access.runtime().info().settings_digests().clone())
}
