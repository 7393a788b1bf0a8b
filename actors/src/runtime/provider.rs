//! Construction of the model of a profile, from its provider and API key.

use std::sync::Arc;

use soong_model::Model;
use soong_protocol::{Config, ErrorCode, ErrorInfo, Provider};
use soong_text::Environment;

use crate::offline::Offline;

/// Creates the model that a profile describes. If the key is missing, the error names its variable
/// and the profile.
pub(super) fn make_model(
    profile: &str,
    config: &Config,
    environment: &Environment,
) -> Result<Arc<dyn Model>, ErrorInfo> {
    if profile == "offline" {
        return Ok(Arc::new(Offline::new()));
    }
    let settings = config.profile(profile).ok_or_else(|| {
        let known: Vec<&str> = config.model_profiles.keys().map(String::as_str).collect();
        config_error(format!(
            "there is no model profile {profile:?}; available: default, offline {}",
            known.join(", ")
        ))
    })?;
    if settings.provider() == Provider::Offline {
        return Ok(Arc::new(Offline::new()));
    }
    let is_set = |name: &str| environment.get(name).is_some();
    let base_url_env = settings.provider().base_url_env();
    if !is_set(settings.api_key_env()) && !is_set(base_url_env) && settings.base_url.is_none() {
        return Err(config_error(format!(
            "model profile {profile:?} needs a key: set the environment variable {} (or name another one with \
             model.api_key_env), set a local server with model.base_url or {base_url_env}, or use the model `offline`, \
             which needs neither",
            settings.api_key_env()
        )));
    }
    soong_model::create_model(&settings, environment).map_err(|error| {
        match ErrorInfo::from(&error) {
            // An invalid address is a configuration error, not an error of the provider.
            info if info.code == ErrorCode::ProviderError => {
                config_error(format!("model profile {profile:?}: {}", info.message))
            }
            info => info,
        }
    })
}

pub(super) fn config_error(message: String) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::ConfigError, message)
}
