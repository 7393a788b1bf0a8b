//! Digests of settings, and their comparison.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Digests of effective settings, by key, and of the environment variables with keys and addresses,
/// by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SettingsDigests {
    /// Digest of the value of each setting, by its dotted key.
    pub settings: BTreeMap<String, String>,
    /// Digest of each variable that is set, by its name.
    pub environment: BTreeMap<String, String>,
}

impl SettingsDigests {
    /// Returns the keys of the settings that differ: their values differ, or only one side has one.
    pub fn changed_settings(&self, other: &Self) -> Vec<String> {
        let keys = self.settings.keys().chain(other.settings.keys());
        let mut changed: Vec<String> = keys
            .filter(|key| self.settings.get(*key) != other.settings.get(*key))
            .cloned()
            .collect();
        changed.sort_unstable();
        changed.dedup();
        changed
    }

    /// Returns the names of the variables that are set here and have another value, or none, in
    /// `other`.
    pub fn changed_variables(&self, other: &Self) -> Vec<String> {
        let is_changed =
            |(name, digest): &(&String, &String)| other.environment.get(*name) != Some(*digest);
        self.environment
            .iter()
            .filter(is_changed)
            .map(|(name, _)| name.clone())
            .collect()
    }
}
