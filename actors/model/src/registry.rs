//! The providers of models, and the API of each.

use std::sync::Arc;

use soong_protocol::ModelConfig;
#[cfg(feature = "openai")]
use soong_protocol::Provider;
use soong_text::Environment;

use crate::{Failure, Model, ModelError};
#[cfg(feature = "openai")]
use crate::{
    anthropic::Messages, gemini::Gemini, openai::ChatCompletions, responses::Responses,
    service::Service,
};

/// Creates the model of a profile. Does not connect.
///
/// The key, the base URL if the profile has none, and the values of `header_env` come from the
/// environment. Without a key, the key `none` is sent, which local servers accept.
///
/// # Errors
/// An address, key or header that cannot be sent; a variable of `header_env` that is not set; a
/// provider that is not a service (`offline`), or that this build does not include.
#[cfg(feature = "openai")]
pub fn create_model(
    config: &ModelConfig,
    environment: &Environment,
) -> Result<Arc<dyn Model>, ModelError> {
    match config.provider() {
        Provider::Openai => Ok(Arc::new(Service::<ChatCompletions>::new(
            config,
            environment,
        )?)),
        Provider::Anthropic => Ok(Arc::new(Service::<Messages>::new(config, environment)?)),
        Provider::Gemini => Ok(Arc::new(Service::<Gemini>::new(config, environment)?)),
        Provider::OpenaiResponses => Ok(Arc::new(Service::<Responses>::new(config, environment)?)),
        Provider::Offline => Err(ModelError::new(
            Failure::Rejected,
            "the provider `offline` is not a service",
        )),
    }
}

/// Fails, because this build includes no service.
#[cfg(not(feature = "openai"))]
pub fn create_model(config: &ModelConfig, _: &Environment) -> Result<Arc<dyn Model>, ModelError> {
    let provider = config.provider().as_str();
    let message = format!("this build has no provider `{provider}` (feature `openai`)");
    Err(ModelError::new(Failure::Rejected, message))
}
