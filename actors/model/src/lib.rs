//! Models: the trait that providers implement, with its request, result and error types (MOD-1).
//!
//! Independent of actors: a provider receives a request, streams deltas, and returns one
//! completion. A provider makes one attempt and is cancelled by dropping its future. Retries,
//! limits and cancellation are handled by the gateway (module `gateway` of `soong`).

#[cfg(feature = "openai")]
mod anthropic;
pub mod breaker;
pub mod catalog;
pub mod endless_text;
mod exchange;
#[cfg(feature = "openai")]
mod gemini;
pub mod limiter;
pub mod limits;
#[cfg(feature = "openai")]
mod openai;
pub mod params;
pub mod reasoning;
mod registry;
#[cfg(feature = "openai")]
mod responses;
pub mod retry;
pub mod selection;
mod server_facts;
#[cfg(feature = "openai")]
mod service;
pub mod text_calls;
pub mod tokens;

use std::{collections::HashMap, sync::Arc};

pub use catalog::ModelCatalog;
pub use exchange::{Exchange, ExchangeLog};
use futures::future::BoxFuture;
#[cfg(feature = "openai")]
pub use openai::{
    served_models::{ServedModel, served_models},
    server_routes::{server_address, server_facts},
};
pub use reasoning::ReasoningSupport;
pub use registry::create_model;
use serde_json::{Map, Value, json};
pub use server_facts::{ServerFacts, ServerProgram};
#[cfg(not(feature = "openai"))]
pub use server_facts::{server_address, server_facts};
use soong_protocol::{
    ArtifactId, Delta, Effort, ErrorCode, ErrorInfo, InputKind, Message, ProviderData, ToolCall,
    ToolSpec, Usage,
};
pub use tokens::TokenDeviation;

/// Provider-neutral request for a completion.
#[derive(Debug, Clone, Default)]
pub struct ModelRequest {
    /// Blocks of the system prompt, in order.
    pub system: Vec<Arc<str>>,
    /// The conversation in OpenAI's form, without system messages. Every tool call has a result.
    pub messages: Vec<Arc<Message>>,
    /// Context that follows the newest message. That of earlier requests is in the answers to them
    /// ([`Message::context_update`]), and precedes them.
    pub context_update: Option<Arc<str>>,
    /// Bytes of the images and files of the messages, in base64, by artifact. A file that is not
    /// included is described in text.
    pub files: HashMap<ArtifactId, Arc<str>>,
    /// Tools that the model may call.
    pub tools: Arc<[Arc<ToolSpec>]>,
    /// Sampling temperature. Default: the profile's.
    pub temperature: Option<f64>,
    /// Additional sampling parameters of the caller, sent unchanged: `top_p`, `seed`, `stop`, …
    pub params: Map<String, Value>,
    /// Model name. Default: the profile's.
    pub model: Option<String>,
    /// Maximum number of tokens of the answer. Default, and upper limit: the profile's.
    pub max_output_tokens: Option<u64>,
    /// How much the model reasons. Default: the service's.
    pub effort: Option<Effort>,
    /// Maximum number of tokens of the reasoning, for models that take one instead of a level.
    pub reasoning_budget_tokens: Option<u64>,
    /// JSON schema of the answer.
    pub output_schema: Option<Arc<Value>>,
    /// How the service can cache the prompt.
    pub cache: CacheHints,
    /// Records what is sent to the service and what it answers. Default: nothing is recorded.
    pub exchanges: Option<Arc<ExchangeLog>>,
}

/// Facts about a prompt that help its service to cache it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CacheHints {
    /// Key of requests whose prompts begin alike, at most 64 characters. A service with several
    /// caches sends requests with the same key to the same one.
    pub key: Option<Arc<str>>,
    /// Number of messages at the beginning that requests of other runs contain too.
    pub shared_messages: usize,
    /// Whether the service should keep the prompt for longer, if it can. That costs more.
    pub is_long_lived: bool,
}

impl ModelRequest {
    /// Returns the system prompt and all context of the run as one text, the newest last.
    pub fn system_and_context(&self) -> String {
        let earlier = self
            .messages
            .iter()
            .filter_map(|message| message.context_update.as_deref());
        let texts = self
            .system
            .iter()
            .map(AsRef::as_ref)
            .chain(earlier)
            .chain(self.context_update.as_deref());
        texts.collect::<Vec<_>>().join("\n\n")
    }
}

/// Answer of a model.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Completion {
    /// The text. Empty if the answer only calls tools.
    pub text: String,
    /// The reasoning, if the provider reports it.
    pub reasoning: Option<String>,
    /// The requested tool calls, in order, with unique ids.
    pub tool_calls: Vec<ToolCall>,
    /// Data for the service that made the answer, which is returned in later requests.
    pub provider_data: Option<Box<ProviderData>>,
    /// Whether the service rejected the data that it had sent with earlier answers, so that the
    /// request was repeated without them.
    pub provider_data_rejected: bool,
    /// The usage, if the provider reports it.
    pub usage: Option<Usage>,
    /// Why the model stopped: `stop`, `tool_calls` or `length` if one of them applies, else the
    /// provider's own word.
    pub finish_reason: String,
}

impl Completion {
    /// Creates an answer that consists of this text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            finish_reason: "stop".to_owned(),
            ..Self::default()
        }
    }

    /// Returns the size of the arguments of all tool calls, in bytes.
    pub fn argument_bytes(&self) -> usize {
        self.tool_calls
            .iter()
            .map(|call| call.arguments.len())
            .sum()
    }

    /// Returns whether the model or its provider refused to answer; see [`is_refusal`].
    pub fn is_refused(&self) -> bool {
        is_refusal(&self.finish_reason)
    }

    /// Adds the continuation of the answer.
    #[cfg(feature = "openai")]
    fn append(&mut self, rest: Self) {
        self.text.push_str(&rest.text);
        if let Some(reasoning) = rest.reasoning {
            self.reasoning.get_or_insert_default().push_str(&reasoning);
        }
        self.tool_calls.extend(rest.tool_calls);
        match (&mut self.provider_data, rest.provider_data) {
            (Some(data), Some(rest)) => data.items.extend(rest.items),
            // Without the data of all parts, the data does not fit the answer.
            (data, _) => *data = None,
        }
        self.provider_data_rejected |= rest.provider_data_rejected;
        self.usage = match (self.usage, rest.usage) {
            (Some(usage), Some(rest)) => Some(usage.plus(rest)),
            (usage, rest) => usage.or(rest),
        };
        self.finish_reason = rest.finish_reason;
    }

    /// Creates an answer that calls these tools.
    pub fn tool_calls(tool_calls: Vec<ToolCall>) -> Self {
        Self {
            tool_calls,
            finish_reason: "tool_calls".to_owned(),
            ..Self::default()
        }
    }
}

/// Returns whether a finish reason says that the model or its provider refused to answer: a content
/// filter, a refusal, or one of Gemini's safety stops.
pub fn is_refusal(finish_reason: &str) -> bool {
    const REASONS: [&str; 8] = [
        "content_filter",
        "refusal",
        "safety",
        "blocklist",
        "prohibited_content",
        "spii",
        "recitation",
        "image_safety",
    ];
    REASONS
        .iter()
        .any(|reason| finish_reason.eq_ignore_ascii_case(reason))
}

/// Kind of failure of an attempt. Determines whether the call is retried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The service could not be reached, or answered with a server error.
    Unavailable,
    /// The stream ended early, or could not be parsed.
    InvalidResponse,
    /// The service sent nothing for too long.
    Timeout,
    /// The service limits the request rate. It may say how long to wait.
    RateLimited {
        /// Value of `Retry-After`, in milliseconds.
        retry_after_ms: Option<u64>,
    },
    /// The API key is missing or was rejected.
    Unauthorized,
    /// The request was rejected; a retry does not help.
    Rejected,
    /// The prompt does not fit into the model's context window.
    PromptTooLong,
    /// The answer exceeds the configured size limits.
    AnswerTooLarge,
    /// The answer repeats a passage without an end, and was stopped.
    EndlessAnswer,
    /// The service does not support a feature that the request needs.
    Unsupported,
}

/// Error of a failed attempt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Kind of failure.
    pub failure: Failure,
    /// Description with the service's own message and advice. Never contains a key.
    pub message: String,
    /// HTTP status of the response, if there was one.
    pub status: Option<u16>,
    /// Context window in tokens, if the service has stated it: with [`Failure::PromptTooLong`].
    pub context_window: Option<u64>,
    /// Whether the service has rejected an image or a file of the request.
    pub is_about_file: bool,
    /// Whether the server is still loading the model.
    pub is_loading: bool,
}

impl ModelError {
    /// Creates an error without an HTTP status and other details.
    pub fn new(failure: Failure, message: impl Into<String>) -> Self {
        Self {
            failure,
            message: message.into(),
            status: None,
            context_window: None,
            is_about_file: false,
            is_loading: false,
        }
    }

    /// Returns whether a retry may succeed (MOD-3).
    pub fn is_retryable(&self) -> bool {
        matches!(
            self.failure,
            Failure::Unavailable
                | Failure::InvalidResponse
                | Failure::Timeout
                | Failure::RateLimited { .. }
        )
    }
}

impl From<&ModelError> for ErrorInfo {
    fn from(error: &ModelError) -> Self {
        let code = match error.failure {
            Failure::Unavailable
            | Failure::InvalidResponse
            | Failure::Rejected
            | Failure::EndlessAnswer => ErrorCode::ProviderError,
            Failure::Timeout => ErrorCode::ProviderTimeout,
            Failure::RateLimited { .. } => ErrorCode::ProviderRateLimited,
            Failure::Unauthorized => ErrorCode::ProviderAuthFailed,
            Failure::PromptTooLong => ErrorCode::PromptTooLong,
            Failure::AnswerTooLarge => ErrorCode::ModelAnswerTooLarge,
            Failure::Unsupported => ErrorCode::UnsupportedCapability,
        };
        let mut details = error
            .status
            .map_or(Value::Null, |status| json!({ "status": status }));
        if let Some(context_window) = error.context_window {
            details["context_window"] = context_window.into();
        }
        if error.is_about_file {
            details["is_about_file"] = true.into();
        }
        if error.is_loading {
            details["is_loading"] = true.into();
        }
        if error.failure == Failure::Unavailable && error.status.is_none() {
            details["is_unreachable"] = true.into();
        }
        Self {
            code,
            message: error.message.clone(),
            retryable: error.is_retryable(),
            details,
        }
    }
}

/// Progress of an answer, besides its text and reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AnswerProgress {
    /// Size of the arguments of all tool calls, in bytes.
    pub argument_bytes: usize,
    /// The usage that the service has reported last.
    pub usage: Option<Usage>,
    /// Whether the answer is complete, so that the reported usage is that of the whole call.
    pub is_complete: bool,
}

/// Receiver of streamed text while a model answers. Must not block.
pub trait DeltaSink: Send {
    /// Receives the next piece.
    fn push(&mut self, delta: Delta);

    /// Receives how much of the answer has arrived; the last value counts. A call that is cut off
    /// is charged accordingly. Default: ignored.
    fn progress(&mut self, progress: AnswerProgress) {
        let _ = progress;
    }
}

/// A model provider.
///
/// One call is one attempt. The future may be dropped at any time; the provider must then stop
/// working on the request.
pub trait Model: Send + Sync + 'static {
    /// Returns the name of the model, for display and price tables.
    fn name(&self) -> &str;

    /// Returns the kinds of content that messages may have. Default: only text.
    fn inputs(&self) -> &[InputKind] {
        &[InputKind::Text]
    }

    /// Returns whether requests may offer tools.
    fn supports_tools(&self) -> bool {
        true
    }

    /// Returns what a model of this provider accepts about its reasoning. Default: unknown.
    fn reasoning(&self, _model: &str) -> ReasoningSupport {
        ReasoningSupport::UNKNOWN
    }

    /// Completes a request, and streams text as it arrives.
    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>>;
}

impl<T: Model + ?Sized> Model for Arc<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn inputs(&self) -> &[InputKind] {
        (**self).inputs()
    }

    fn supports_tools(&self) -> bool {
        (**self).supports_tools()
    }

    fn reasoning(&self, model: &str) -> ReasoningSupport {
        (**self).reasoning(model)
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        (**self).complete(request, deltas)
    }
}
