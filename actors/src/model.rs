//! Models: the trait that providers implement, and what passes through it (MOD-1).
//!
//! Free of actors: a provider gets a request and answers with deltas and one completion. Retries,
//! limits and cancelling are the gateway's (`gateway.rs`): a provider makes one attempt, and is
//! cancelled by dropping its future.

pub(crate) mod breaker;
pub(crate) mod gateway;
pub(crate) mod gateways;
pub(crate) mod limiter;
pub(crate) mod limits;
#[cfg(feature = "openai")]
pub mod openai;
pub(crate) mod params;
pub mod retry;
pub(crate) mod tokens;

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use soong_protocol::{Delta, ErrorCode, ErrorInfo, Message, ToolCall, ToolSpec, Usage};
pub use tokens::TokenDeviation;

/// What a provider is asked to complete; neutral of any provider.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// Blocks of the system prompt, in order.
    pub system: Vec<Arc<str>>,
    /// The conversation in OpenAI form, without system messages. Every tool call is answered.
    pub messages: Vec<Arc<Message>>,
    /// The tools offered.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Sampling temperature; `None` = the profile's.
    pub temperature: Option<f64>,
    /// Further sampling parameters of the caller's, sent as they are: `top_p`, `seed`, `stop`, …
    pub params: Map<String, Value>,
    /// The model's name; `None` = the profile's.
    pub model: Option<String>,
    /// Most tokens of the answer; `None` = the profile's. Never more than that.
    pub max_output_tokens: Option<u64>,
}

/// What a model answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The text; empty where it only calls tools.
    pub text: String,
    /// The reasoning, where the provider tells it.
    pub reasoning: Option<String>,
    /// The tools it asks for, in order, with unique ids.
    pub tool_calls: Vec<ToolCall>,
    /// What it used, where the provider tells it.
    pub usage: Option<Usage>,
    /// Why it stopped, in OpenAI's words where one fits: `stop`, `tool_calls`, `length`.
    pub finish_reason: String,
}

/// What went wrong with an attempt; decides whether there is another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The service could not be reached, or answered with a server error.
    Unavailable,
    /// The stream broke off, or made no sense.
    Broken,
    /// The service stayed silent too long.
    Timeout,
    /// The service limits the rate; it may say for how long.
    RateLimited {
        /// What `Retry-After` said, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The key is missing or was refused.
    Auth,
    /// The request was refused; sending it again does not help.
    Refused,
    /// The prompt does not fit the model's window.
    PromptTooLong,
    /// The answer is larger than it may be.
    AnswerTooLarge,
    /// The service lacks what the request needs.
    Unsupported,
}

/// A failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// What kind of failure.
    pub failure: Failure,
    /// What happened, with the service's own words, and what to do. Never holds a key.
    pub message: String,
    /// The HTTP status of the answer, where there was one.
    pub status: Option<u16>,
}

impl ModelError {
    /// Makes an error.
    pub fn new(failure: Failure, message: impl Into<String>) -> Self {
        Self { failure, message: message.into(), status: None }
    }

    /// Returns whether another attempt may succeed (MOD-3).
    pub fn is_retryable(&self) -> bool {
        matches!(self.failure, Failure::Unavailable | Failure::Broken | Failure::Timeout | Failure::RateLimited { .. })
    }
}

impl From<&ModelError> for ErrorInfo {
    fn from(error: &ModelError) -> Self {
        let code = match error.failure {
            Failure::Unavailable | Failure::Broken | Failure::Refused => ErrorCode::ProviderError,
            Failure::Timeout => ErrorCode::ProviderTimeout,
            Failure::RateLimited { .. } => ErrorCode::ProviderRateLimited,
            Failure::Auth => ErrorCode::ProviderAuthFailed,
            Failure::PromptTooLong => ErrorCode::PromptTooLong,
            Failure::AnswerTooLarge => ErrorCode::ModelAnswerTooLarge,
            Failure::Unsupported => ErrorCode::UnsupportedCapability,
        };
        let details = error.status.map_or(Value::Null, |status| json!({ "status": status }));
        Self { code, message: error.message.clone(), retryable: error.is_retryable(), details }
    }
}

/// Takes streamed text while a model answers; must not block.
pub trait DeltaSink: Send {
    /// Takes the next piece.
    fn push(&mut self, delta: Delta);
}

/// A model provider.
///
/// One call is one attempt. The future may be dropped at any moment; the provider must then stop
/// working on it.
pub trait Model: Send + Sync + 'static {
    /// Returns the name of the model, for people and price tables.
    fn name(&self) -> &str;

    /// Returns whether requests may offer tools.
    fn supports_tools(&self) -> bool {
        true
    }

    /// Completes a request, streaming text as it comes.
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;
}
