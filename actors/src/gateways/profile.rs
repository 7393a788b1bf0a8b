//! The profile of a model: its settings, and the server that is asked about its models.

use soong_model::server_address;
use soong_protocol::{Config, ModelConfig, Provider};
use soong_text::Environment;

use crate::model_facts::ServedModelKey;

/// A model profile. It is computed once, because each model call needs it.
#[derive(Debug)]
pub(crate) struct ModelProfile {
    pub(crate) name: String,
    /// Whether the configuration has the profile.
    pub(crate) is_configured: bool,
    /// Settings of the profile. A profile that only the embedding program knows has those of
    /// `[model]`.
    pub(crate) settings: ModelConfig,
    /// Address of the server that is asked about a model of the table of models.
    address_for_known_models: Option<String>,
    /// Address of the server that is asked about any other model.
    address_for_unknown_models: Option<String>,
}

impl ModelProfile {
    pub(super) fn new(name: &str, config: &Config, environment: &Environment) -> Self {
        let configured = config.profile(name);
        let is_configured = configured.is_some();
        let settings = configured.unwrap_or_else(|| config.model.clone());
        Self {
            name: name.to_owned(),
            is_configured,
            address_for_known_models: server_address(&settings, environment, true),
            address_for_unknown_models: server_address(&settings, environment, false),
            settings,
        }
    }

    pub(super) fn is_offline(&self) -> bool {
        self.name == Provider::Offline.as_str()
    }

    /// Returns the name of the configured model; empty if the profile is not configured.
    pub(super) fn model_name(&self) -> &str {
        if self.is_configured {
            self.settings.model_name()
        } else {
            ""
        }
    }

    /// Returns the key of a model, if its server is asked about it. `is_known`: the model is in the
    /// table of models.
    pub(super) fn server_key(&self, model: &str, is_known: bool) -> Option<ServedModelKey> {
        let address = if is_known {
            &self.address_for_known_models
        } else {
            &self.address_for_unknown_models
        };
        Some(ServedModelKey {
            address: address.clone()?,
            model: model.to_owned(),
        })
    }
}
