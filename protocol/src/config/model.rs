//! Model profiles: where a model is, its limits, how failed calls are repeated, and prices.

use serde::{Deserialize, Serialize};

use crate::{Prices, Usd};

/// Which kind of service completes prompts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provider {
    /// Any OpenAI-compatible server.
    #[default]
    Openai,
    /// The built-in rule-based stand-in: no key, no network, no language model.
    Offline,
}

/// A model profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// Which kind of service.
    pub provider: Provider,
    /// Where it is; absent = `OPENAI_BASE_URL`, else OpenAI's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the environment variable that holds the key.
    pub api_key_env: String,
    /// The model's name at the service.
    pub name: String,
    /// How many tokens the model can take in and give out in one call.
    pub context_window: u64,
    /// Most tokens of one answer.
    pub max_output_tokens: u64,
    /// Most bytes of the arguments of all tool calls of one answer.
    pub max_argument_bytes: usize,
    /// Most bytes of one answer: text, reasoning and tool calls.
    pub max_answer_bytes: usize,
    /// Most tool calls of one answer.
    pub max_tool_calls: usize,
    /// Sampling temperature; absent = the service's default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// How long the service may stay silent, in milliseconds.
    pub timeout_ms: u64,
    /// Most calls at the same time, over all runs.
    pub max_concurrency: usize,
    /// Most calls begun in any minute, over all runs; 0 = no limit.
    pub requests_per_minute: u64,
    /// Most tokens of the calls begun in any minute, request and answer; 0 = no limit.
    pub tokens_per_minute: u64,
    /// How failed calls are repeated.
    pub retry: RetryConfig,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            provider: Provider::Openai,
            base_url: None,
            api_key_env: "OPENAI_API_KEY".to_owned(),
            name: "gpt-4.1-mini".to_owned(),
            context_window: 128_000,
            max_output_tokens: 4096,
            max_argument_bytes: 1_048_576,
            max_answer_bytes: 16_777_216,
            max_tool_calls: 256,
            temperature: None,
            timeout_ms: 120_000,
            max_concurrency: 16,
            requests_per_minute: 0,
            tokens_per_minute: 0,
            retry: RetryConfig::default(),
        }
    }
}

/// How failed calls are repeated (MOD-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Most tries of one call, the first included.
    pub max_attempts: u32,
    /// Wait before the second try, in milliseconds; doubles from try to try.
    pub initial_backoff_ms: u64,
    /// Longest wait, in milliseconds; a longer `Retry-After` ends the call instead.
    pub max_backoff_ms: u64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { max_attempts: 5, initial_backoff_ms: 500, max_backoff_ms: 30_000 }
    }
}

/// What a further profile sets; the rest comes from `[model]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of ModelConfig")]
pub struct ModelOverride {
    pub provider: Option<Provider>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub name: Option<String>,
    pub context_window: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub max_argument_bytes: Option<usize>,
    pub max_answer_bytes: Option<usize>,
    pub max_tool_calls: Option<usize>,
    pub temperature: Option<f64>,
    pub timeout_ms: Option<u64>,
    pub max_concurrency: Option<usize>,
    pub requests_per_minute: Option<u64>,
    pub tokens_per_minute: Option<u64>,
    pub retry: Option<RetryConfig>,
}

impl ModelOverride {
    /// Returns the profile that results over `base`.
    pub fn over(&self, base: &ModelConfig) -> ModelConfig {
        ModelConfig {
            provider: self.provider.unwrap_or(base.provider),
            base_url: self.base_url.clone().or_else(|| base.base_url.clone()),
            api_key_env: self.api_key_env.clone().unwrap_or_else(|| base.api_key_env.clone()),
            name: self.name.clone().unwrap_or_else(|| base.name.clone()),
            context_window: self.context_window.unwrap_or(base.context_window),
            max_output_tokens: self.max_output_tokens.unwrap_or(base.max_output_tokens),
            max_argument_bytes: self.max_argument_bytes.unwrap_or(base.max_argument_bytes),
            max_answer_bytes: self.max_answer_bytes.unwrap_or(base.max_answer_bytes),
            max_tool_calls: self.max_tool_calls.unwrap_or(base.max_tool_calls),
            temperature: self.temperature.or(base.temperature),
            timeout_ms: self.timeout_ms.unwrap_or(base.timeout_ms),
            max_concurrency: self.max_concurrency.unwrap_or(base.max_concurrency),
            requests_per_minute: self.requests_per_minute.unwrap_or(base.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.unwrap_or(base.tokens_per_minute),
            retry: self.retry.unwrap_or(base.retry),
        }
    }
}

/// Prices of one model, in USD per million tokens, as decimal strings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Request tokens.
    pub prompt_per_mtok: Usd,
    /// Answer tokens.
    pub completion_per_mtok: Usd,
    /// Request tokens from the provider's cache; absent = as `prompt_per_mtok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_per_mtok: Option<Usd>,
}

impl PriceConfig {
    /// Returns the prices to reckon with.
    pub fn prices(&self) -> Prices {
        Prices {
            prompt: self.prompt_per_mtok,
            completion: self.completion_per_mtok,
            cached: self.cached_per_mtok.unwrap_or(self.prompt_per_mtok),
        }
    }
}
