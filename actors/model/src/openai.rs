//! Provider for OpenAI-compatible services with a chat completions API: OpenAI, OpenRouter, Ollama, vLLM and others.
//!
//! One call is one attempt and always streams. Architecture invariant: this module does not retry failures. A request
//! is only repeated if the model rejects one of its parameters, in a dialect without that parameter.
//!
//! Parts: `request` writes the body (with tool names from `names`, the `content` of messages, and the data of earlier
//! answers that is `returned`), `http` sends it with the `headers` of the profile, `answer` reads the response (`events` →
//! `wire` → `assemble`), `failure` builds the errors.
//!
//! Elsewhere: waiting, limits and backoff (`gateway.rs`, `retry.rs`).

mod answer;
mod assemble;
mod content;
pub(crate) mod request;
mod returned;
mod wire;

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use futures::future::BoxFuture;
use reqwest::{Response, header::HeaderValue};
use serde_json::{Map, Value};
use soong_protocol::{InputKind, ModelConfig, ModelSource, ProviderData};
use soong_text::{Environment, Redactor};

use self::request::{Dialect, RequestBody};
use super::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest, limits::AnswerLimits};
pub use crate::service::http::DEFAULT_BASE_URL;
use crate::service::{
    failure::{ErrorBody, ServiceInfo},
    headers::Headers,
    http::{self, HttpClient},
    names::ToolNames,
};

/// Maximum number of dialect changes in one call: one per parameter that can differ.
const MAX_DIALECT_CHANGES: usize = 4;
/// Name of the format of requests.
const DIALECT: &str = "openai";
/// Maximum number of bytes read from an error body.
const MAX_ERROR_BYTES: usize = 64 * 1024;

/// Provider for an OpenAI-compatible service.
pub struct OpenAi {
    name: String,
    max_output_tokens: u64,
    temperature: Option<f64>,
    /// Parameters of the profile, without `temperature`.
    params: Map<String, Value>,
    limits: AnswerLimits,
    inputs: Vec<InputKind>,
    /// The service, without a model.
    source: ModelSource,
    http: HttpClient,
    origin: ServiceInfo,
    /// Dialects by model name: one service may serve different kinds of models.
    dialects: Mutex<HashMap<String, Dialect>>,
}

impl OpenAi {
    /// Creates the provider of a profile. Does not connect.
    ///
    /// Without a `key`, the key `none` is sent, which local servers accept. The base URL is the profile's `base_url`,
    /// else the argument, else OpenAI's.
    ///
    /// # Errors
    /// An address, key or header that cannot be sent; a profile with `header_env`, whose variables require
    /// [`from_environment`](Self::from_environment).
    pub fn new(config: &ModelConfig, key: Option<String>, base_url: Option<String>) -> Result<Self, ModelError> {
        Self::with(config, key, base_url, &Environment::default())
    }

    /// Creates the provider of a profile with the key, `OPENAI_BASE_URL` and `header_env` of an environment.
    ///
    /// # Errors
    /// Those of [`new`](Self::new); a variable of `header_env` that is not set.
    pub fn from_environment(config: &ModelConfig, environment: &Environment) -> Result<Self, ModelError> {
        let get = |name: &str| environment.get(name).map(str::to_owned);
        Self::with(config, get(&config.api_key_env), get("OPENAI_BASE_URL"), environment)
    }

    fn with(
        config: &ModelConfig,
        key: Option<String>,
        base_url: Option<String>,
        environment: &Environment,
    ) -> Result<Self, ModelError> {
        let base_url = http::base_url(config.base_url.as_deref().or(base_url.as_deref()))?;
        let key = key.map(|key| key.trim().to_owned()).filter(|key| !key.is_empty());
        if key.as_deref().is_some_and(|key| HeaderValue::from_str(key).is_err()) {
            let env = &config.api_key_env;
            let message = format!("the key contains invalid characters; check the environment variable {env}");
            return Err(ModelError::new(Failure::Unauthorized, message));
        }
        let headers = Headers::of(config, environment)?;
        let timeout = Duration::from_millis(config.timeout_ms);
        let host = base_url.host_str().unwrap_or("").to_owned();
        let mut params = config.params.clone();
        let own_temperature = params.remove("temperature").and_then(|value| value.as_f64());
        Ok(Self {
            name: config.name.clone(),
            max_output_tokens: config.max_output_tokens,
            temperature: config.temperature.or(own_temperature),
            params,
            limits: AnswerLimits::of(config),
            inputs: config.input.clone(),
            source: ModelSource {
                dialect: DIALECT.to_owned(),
                base_url: http::without_user(&base_url),
                api_key_env: config.api_key_env.clone(),
                model: String::new(),
            },
            origin: ServiceInfo {
                host: base_url.port().map_or(host.clone(), |port| format!("{host}:{port}")),
                is_local: http::is_loopback(&base_url),
                has_key: key.is_some() || headers.carries_key(),
                redactor: Redactor::from_keys(key.as_deref().into_iter().chain(headers.secrets())),
                key_env: config.api_key_env.clone(),
                timeout,
            },
            http: HttpClient::new(&base_url, &config.query, key.as_deref().unwrap_or("none"), &headers, timeout)?,
            dialects: Mutex::default(),
        })
    }

    async fn attempt(&self, request: &ModelRequest, deltas: &mut dyn DeltaSink) -> Result<Completion, ModelError> {
        let model = request.model.as_deref().unwrap_or(&self.name);
        let known = self.dialect(model);
        let names = ToolNames::of(request);
        let mut body = RequestBody {
            model,
            max_output_tokens: request.max_output_tokens.unwrap_or(u64::MAX).min(self.max_output_tokens),
            temperature: request.temperature.or(self.temperature),
            request,
            params: &self.params,
            names: &names,
            source: &self.source,
            dialect: known,
        };
        let mut changes = 0;
        loop {
            let response = self.http.send(body, &self.origin).await?;
            if response.status().is_success() {
                // Without calls, a service may reject data that it requires with calls.
                let has_calls = request.messages.iter().any(|message| !message.tool_calls.is_empty());
                let no_provider_data = body.dialect.no_provider_data && (has_calls || known.no_provider_data);
                let learned = Dialect { no_provider_data, ..body.dialect };
                if learned != known {
                    self.remember_dialect(model, learned);
                }
                let (mut completion, items) = answer::read(response, &self.origin, self.limits, deltas).await?;
                names.restore(&mut completion.tool_calls);
                completion.provider_data_rejected = body.dialect.no_provider_data && !known.no_provider_data;
                if !items.is_empty() {
                    let source = ModelSource { model: model.to_owned(), ..self.source.clone() };
                    completion.provider_data = Some(Box::new(ProviderData { source, items }));
                }
                return Ok(completion);
            }
            let status = response.status().as_u16();
            let headers = response.headers().clone();
            let answer = ErrorBody::read(&error_body(response).await);
            match answer.next_dialect(status, body.dialect, body.temperature.is_some()) {
                Some(dialect) if changes < MAX_DIALECT_CHANGES => body.dialect = dialect,
                _ => return Err(self.origin.status_error(status, &headers, &answer)),
            }
            changes += 1;
        }
    }

    fn dialect(&self, model: &str) -> Dialect {
        // The map stays valid even if another thread panicked while holding the lock.
        let dialects = self.dialects.lock().unwrap_or_else(PoisonError::into_inner);
        dialects.get(model).copied().unwrap_or_default()
    }

    fn remember_dialect(&self, model: &str, dialect: Dialect) {
        tracing::warn!(model, ?dialect, "the model rejects a parameter; later requests are adapted");
        self.dialects.lock().unwrap_or_else(PoisonError::into_inner).insert(model.to_owned(), dialect);
    }
}

/// Returns the beginning of an error body. Read errors are ignored.
async fn error_body(mut response: Response) -> Vec<u8> {
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        let room = MAX_ERROR_BYTES - body.len();
        body.extend_from_slice(&bytes[..bytes.len().min(room)]);
        if body.len() == MAX_ERROR_BYTES {
            break;
        }
    }
    body
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.name
    }

    fn inputs(&self) -> &[InputKind] {
        &self.inputs
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        Box::pin(self.attempt(request, deltas))
    }
}
