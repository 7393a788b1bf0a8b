//! Model profiles: provider, limits, retries and prices.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{FallbackConfig, Provider, is_variable_name};
use crate::{Effort, InputKind, Prices, Usd};

/// Request parameters that `params` cannot set, each with an error that names the setting to use
/// instead.
const RESERVED_PARAMS: [(&str, &str); 7] = [
    (
        "model",
        "params cannot set `model`: use `name` of the profile",
    ),
    (
        "messages",
        "params cannot set `messages`: they are the conversation",
    ),
    (
        "stream",
        "params cannot set `stream`: answers are always streamed",
    ),
    (
        "tools",
        "params cannot set `tools`: use `tools` of a run or a preset",
    ),
    (
        "max_tokens",
        "params cannot set `max_tokens`: use `max_output_tokens` of the profile",
    ),
    (
        "max_output_tokens",
        "params cannot set `max_output_tokens`: use `max_output_tokens` of the profile",
    ),
    (
        "max_completion_tokens",
        "params cannot set `max_completion_tokens`: use `max_output_tokens` of the profile",
    ),
];
/// Maximum of the times of fallbacks, in seconds: one day.
const MAX_FALLBACK_S: u64 = 86_400;
/// Key by which the TOML parser marks a date in a value of another format.
const TOML_DATE: &str = "$__toml_private_datetime";

/// A model profile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelConfig {
    /// API of the service. Default: that of the model `name`, else of the first vendor whose key is
    /// set, else `openai`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<Provider>,
    /// Base URL of the service. Default: the provider's environment variable, such as
    /// `OPENAI_BASE_URL`, else the vendor's own service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the environment variable that holds the API key. Default: the provider's, such as
    /// `OPENAI_API_KEY`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
    /// Name of the model at the service. Default: the provider's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How much the model reasons. Default: the service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Effort>,
    /// Maximum number of tokens of the reasoning, for models that take one instead of a level.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_budget_tokens: Option<u64>,
    /// Context window of the model, in tokens of the request and the answer together. Default: that
    /// of the table of models, else 128000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_window: Option<u64>,
    /// Maximum number of tokens of one answer. Default: the service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Maximum size of the arguments of all tool calls of one answer, in bytes. Default: 1048576 (1
    /// MiB).
    pub max_argument_bytes: usize,
    /// Maximum size of one answer, including reasoning and tool calls, in bytes. Default: 16777216
    /// (16 MiB).
    pub max_answer_bytes: usize,
    /// Maximum number of tool calls of one answer. Default: 256.
    pub max_tool_calls: usize,
    /// Kinds of content that the model takes. Default: those of the table of models, else text and
    /// images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Vec<InputKind>>,
    /// Maximum size of an image, in bytes. Larger images are scaled down. Default: 5000000.
    pub max_image_bytes: u64,
    /// Maximum width and height of an image, in pixels. Larger images are scaled down. Default:
    /// 2000.
    pub max_image_side: u32,
    /// Maximum size of a PDF document or audio, in bytes. Default: 20000000.
    pub max_file_bytes: u64,
    /// Sampling temperature. Default: the service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// Whether the service keeps the prompts of user runs in its cache for longer: one hour with
    /// `anthropic`, twelve hours with `openai-responses` (GPT 5.6 and later). Writing them then
    /// costs more. Default: false.
    pub long_cache: bool,
    /// Whether text between `<think>` and `</think>` at the beginning of an answer is reasoning.
    /// Default: true.
    pub think_tags: bool,
    /// Models that answer when this one cannot, in order. Default: none.
    pub fallback: Vec<FallbackConfig>,
    /// Maximum time that a call with a fallback waits for a service that is overloaded, limits the
    /// rate or is down, in seconds. Default: 20.
    pub fallback_after_s: u64,
    /// Time for which calls are not made with a model that has failed, in seconds. Default: 60.
    pub fallback_cooldown_s: u64,
    /// Maximum time without data from the service, in milliseconds. Default: 120000.
    pub timeout_ms: u64,
    /// Maximum time until the first data of an answer, in milliseconds: a server may work on other
    /// calls, and read the prompt, before it answers. Default: five times `timeout_ms` for a server
    /// in this network, else `timeout_ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte_timeout_ms: Option<u64>,
    /// Maximum number of concurrent calls of all runs. Default: the slots that a llama.cpp server
    /// states, 2 for Ollama and LM Studio, else 16.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<usize>,
    /// Maximum number of calls of all runs that start in any minute. 0 means no limit. Default: 0.
    pub requests_per_minute: u64,
    /// Maximum number of tokens, in requests and answers, of the calls that start in any minute. 0
    /// means no limit. Default: 0.
    pub tokens_per_minute: u64,
    /// Retries of failed calls.
    pub retry: RetryConfig,
    /// HTTP headers of each request.
    pub headers: BTreeMap<String, String>,
    /// HTTP headers of each request whose values are secret. Each name maps to the environment
    /// variable that holds the value.
    pub header_env: BTreeMap<String, String>,
    /// Query parameters of the URL.
    pub query: BTreeMap<String, String>,
    /// Parameters that are merged into the body of each request. A run's `llm_params` take
    /// precedence.
    pub params: Map<String, Value>,
}

impl Default for ModelConfig {
    fn default() -> Self {
        Self {
            provider: None,
            base_url: None,
            api_key_env: None,
            name: None,
            effort: None,
            reasoning_budget_tokens: None,
            context_window: None,
            max_output_tokens: None,
            max_argument_bytes: 1_048_576,
            max_answer_bytes: 16_777_216,
            max_tool_calls: 256,
            input: None,
            max_image_bytes: 5_000_000,
            max_image_side: 2_000,
            max_file_bytes: 20_000_000,
            temperature: None,
            long_cache: false,
            think_tags: true,
            fallback: Vec::new(),
            fallback_after_s: 20,
            fallback_cooldown_s: 60,
            timeout_ms: 120_000,
            first_byte_timeout_ms: None,
            max_concurrency: None,
            requests_per_minute: 0,
            tokens_per_minute: 0,
            retry: RetryConfig::default(),
            headers: BTreeMap::new(),
            header_env: BTreeMap::new(),
            query: BTreeMap::new(),
            params: Map::new(),
        }
    }
}

/// Maximum number of concurrent calls of a profile that sets none, at a service that does not state
/// its own.
const DEFAULT_MAX_CONCURRENCY: usize = 16;

impl ModelConfig {
    /// Maximum time until the first data of an answer, in `timeout_ms`, for a server in this
    /// network without a configured one: it may have few slots, and read a long prompt slowly.
    pub const LOCAL_FIRST_BYTE_TIMEOUTS: u32 = 5;

    /// Returns the longest time without data that no kind of service exceeds, in milliseconds.
    pub fn max_silence_ms(&self) -> u64 {
        let local = self
            .timeout_ms
            .saturating_mul(u64::from(Self::LOCAL_FIRST_BYTE_TIMEOUTS));
        self.first_byte_timeout_ms
            .unwrap_or(local)
            .max(self.timeout_ms)
    }

    /// Returns the maximum number of concurrent calls, unless the server states another one.
    pub fn max_concurrency(&self) -> usize {
        self.max_concurrency.unwrap_or(DEFAULT_MAX_CONCURRENCY)
    }

    /// Returns the API of the service.
    pub fn provider(&self) -> Provider {
        self.provider.unwrap_or_default()
    }

    /// Returns the name of the environment variable that holds the API key. Empty for the offline
    /// model.
    pub fn api_key_env(&self) -> &str {
        self.api_key_env
            .as_deref()
            .unwrap_or_else(|| self.provider().api_key_env())
    }

    /// Returns the name of the model at the service.
    pub fn model_name(&self) -> &str {
        self.name
            .as_deref()
            .unwrap_or_else(|| self.provider().default_model())
    }

    /// Returns why the profile cannot be used for requests, if it cannot.
    pub(super) fn check(&self) -> Result<(), &'static str> {
        let is_header = |name: &String| {
            let is_allowed =
                |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
            !name.is_empty() && name.bytes().all(is_allowed)
        };
        let is_value = |text: &String| {
            text.bytes()
                .all(|byte| byte == b'\t' || (byte >= b' ' && byte != 0x7f))
        };
        if !self
            .headers
            .keys()
            .chain(self.header_env.keys())
            .all(is_header)
        {
            return Err("headers and header_env: a key is not a valid HTTP header name");
        }
        if !self.headers.values().all(is_value) {
            return Err("headers: a value contains a control character");
        }
        if !self.header_env.values().all(|name| is_variable_name(name)) {
            return Err(
                "header_env must contain names of environment variables, never the values themselves",
            );
        }
        if self.max_image_bytes == 0 || self.max_image_side == 0 || self.max_file_bytes == 0 {
            return Err("max_image_bytes, max_image_side and max_file_bytes must be at least 1");
        }
        let names: BTreeSet<&str> = self.fallback.iter().map(FallbackConfig::name).collect();
        if names.len() < self.fallback.len() || names.iter().any(|name| name.trim().is_empty()) {
            return Err("fallback: each entry needs a name of its own");
        }
        if self
            .fallback
            .iter()
            .any(|fallback| fallback.reasons().is_empty())
        {
            return Err("fallback: `on` must name a reason");
        }
        if self.fallback_after_s > MAX_FALLBACK_S || self.fallback_cooldown_s > MAX_FALLBACK_S {
            return Err("fallback_after_s and fallback_cooldown_s must be at most 86400 (one day)");
        }
        if self.effort.is_some() && self.reasoning_budget_tokens.is_some() {
            return Err("effort and reasoning_budget_tokens exclude each other");
        }
        if let Some((_, why)) = RESERVED_PARAMS
            .iter()
            .find(|(name, _)| self.params.contains_key(*name))
        {
            return Err(why);
        }
        if Value::Object(self.params.clone())
            .to_string()
            .contains(TOML_DATE)
        {
            return Err(
                "params contains a date, which JSON cannot represent: write it as a string",
            );
        }
        Ok(())
    }
}

/// Retries of failed calls (MOD-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// Maximum number of attempts per call, including the first. Default: 5.
    pub max_attempts: u32,
    /// Delay before the second attempt, in milliseconds. Doubles with each attempt. Default: 500.
    pub initial_backoff_ms: u64,
    /// Maximum delay between two attempts, in milliseconds. Default: 30000. A longer `Retry-After`
    /// is still honored up to the profile's `timeout_ms`; beyond both limits, the call fails.
    pub max_backoff_ms: u64,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            max_attempts: 5,
            initial_backoff_ms: 500,
            max_backoff_ms: 30_000,
        }
    }
}

/// Settings of an additional profile. Missing settings come from `[model]`.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of ModelConfig")]
pub struct ModelOverride {
    pub provider: Option<Provider>,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub name: Option<String>,
    pub effort: Option<Effort>,
    pub reasoning_budget_tokens: Option<u64>,
    pub context_window: Option<u64>,
    pub max_output_tokens: Option<u64>,
    pub max_argument_bytes: Option<usize>,
    pub max_answer_bytes: Option<usize>,
    pub max_tool_calls: Option<usize>,
    pub input: Option<Vec<InputKind>>,
    pub max_image_bytes: Option<u64>,
    pub max_image_side: Option<u32>,
    pub max_file_bytes: Option<u64>,
    pub temperature: Option<f64>,
    pub long_cache: Option<bool>,
    pub think_tags: Option<bool>,
    pub fallback: Option<Vec<FallbackConfig>>,
    pub fallback_after_s: Option<u64>,
    pub fallback_cooldown_s: Option<u64>,
    pub timeout_ms: Option<u64>,
    pub first_byte_timeout_ms: Option<u64>,
    pub max_concurrency: Option<usize>,
    pub requests_per_minute: Option<u64>,
    pub tokens_per_minute: Option<u64>,
    pub retry: Option<RetryConfig>,
    pub headers: Option<BTreeMap<String, String>>,
    pub header_env: Option<BTreeMap<String, String>>,
    pub query: Option<BTreeMap<String, String>>,
    pub params: Option<Map<String, Value>>,
}

impl ModelOverride {
    /// Returns the profile with missing settings taken from `base`.
    ///
    /// A profile that sets `base_url`, or a provider of another vendor, uses another service. It
    /// does not inherit the key, `headers`, `header_env`, `query`, `params` and `fallback`. With
    /// another vendor, it does not inherit the model either.
    pub fn merged_over(&self, base: &ModelConfig) -> ModelConfig {
        let defaults = ModelConfig::default();
        let is_same_vendor = self
            .provider
            .is_none_or(|provider| provider.is_same_vendor(base.provider()));
        let of_vendor = if is_same_vendor { base } else { &defaults };
        let inherited = if self.base_url.is_some() {
            &defaults
        } else {
            of_vendor
        };
        let is_own_model = self.name.is_some() || !is_same_vendor;
        let of_model = if is_own_model { &defaults } else { base };
        let has_reasoning = self.effort.is_some() || self.reasoning_budget_tokens.is_some();
        let of_reasoning = if has_reasoning { &defaults } else { of_model };
        ModelConfig {
            provider: self.provider.or(base.provider),
            base_url: self.base_url.clone().or_else(|| of_vendor.base_url.clone()),
            api_key_env: self
                .api_key_env
                .clone()
                .or_else(|| inherited.api_key_env.clone()),
            name: self.name.clone().or_else(|| of_vendor.name.clone()),
            effort: self.effort.or(of_reasoning.effort),
            reasoning_budget_tokens: self
                .reasoning_budget_tokens
                .or(of_reasoning.reasoning_budget_tokens),
            context_window: self.context_window.or(of_vendor.context_window),
            max_output_tokens: self.max_output_tokens.or(of_vendor.max_output_tokens),
            max_argument_bytes: self.max_argument_bytes.unwrap_or(base.max_argument_bytes),
            max_answer_bytes: self.max_answer_bytes.unwrap_or(base.max_answer_bytes),
            max_tool_calls: self.max_tool_calls.unwrap_or(base.max_tool_calls),
            input: self.input.clone().or_else(|| of_vendor.input.clone()),
            max_image_bytes: self.max_image_bytes.unwrap_or(base.max_image_bytes),
            max_image_side: self.max_image_side.unwrap_or(base.max_image_side),
            max_file_bytes: self.max_file_bytes.unwrap_or(base.max_file_bytes),
            temperature: self.temperature.or(base.temperature),
            long_cache: self.long_cache.unwrap_or(base.long_cache),
            think_tags: self.think_tags.unwrap_or(base.think_tags),
            fallback: self
                .fallback
                .clone()
                .unwrap_or_else(|| inherited.fallback.clone()),
            fallback_after_s: self.fallback_after_s.unwrap_or(base.fallback_after_s),
            fallback_cooldown_s: self.fallback_cooldown_s.unwrap_or(base.fallback_cooldown_s),
            timeout_ms: self.timeout_ms.unwrap_or(base.timeout_ms),
            first_byte_timeout_ms: self.first_byte_timeout_ms.or(base.first_byte_timeout_ms),
            max_concurrency: self.max_concurrency.or(base.max_concurrency),
            requests_per_minute: self.requests_per_minute.unwrap_or(base.requests_per_minute),
            tokens_per_minute: self.tokens_per_minute.unwrap_or(base.tokens_per_minute),
            retry: self.retry.unwrap_or(base.retry),
            headers: self
                .headers
                .clone()
                .unwrap_or_else(|| inherited.headers.clone()),
            header_env: self
                .header_env
                .clone()
                .unwrap_or_else(|| inherited.header_env.clone()),
            query: self
                .query
                .clone()
                .unwrap_or_else(|| inherited.query.clone()),
            params: self
                .params
                .clone()
                .unwrap_or_else(|| inherited.params.clone()),
        }
    }
}

/// Prices of one model, in USD per million tokens, as decimal strings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceConfig {
    /// Price of request tokens.
    pub prompt_per_mtok: Usd,
    /// Price of answer tokens.
    pub completion_per_mtok: Usd,
    /// Price of request tokens from the provider's cache. Default: `prompt_per_mtok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_per_mtok: Option<Usd>,
    /// Price of request tokens that are written to the provider's cache. Default:
    /// `prompt_per_mtok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_per_mtok: Option<Usd>,
    /// Price of request tokens that are written to the cache for longer. Default:
    /// `cache_write_per_mtok`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub long_cache_write_per_mtok: Option<Usd>,
}

impl PriceConfig {
    /// Returns the prices with defaults applied.
    pub fn prices(&self) -> Prices {
        let cache_write = self.cache_write_per_mtok.unwrap_or(self.prompt_per_mtok);
        Prices {
            prompt: self.prompt_per_mtok,
            completion: self.completion_per_mtok,
            cached: self.cached_per_mtok.unwrap_or(self.prompt_per_mtok),
            cache_write,
            long_cache_write: self.long_cache_write_per_mtok.unwrap_or(cache_write),
            long: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn profile_inherits_headers_only_for_the_same_service() {
        let text = "[model]\nheaders = { x = \"1\" }\nheader_env = { y = \"Y\" }\nquery = { v = \"2\" }\n\
                    params = { seed = 7 }\n[model_profiles.same]\nname = \"b\"\n\
                    [model_profiles.own]\nparams = { top_k = 3 }\n[model_profiles.other]\nbase_url = \"http://l/v1\"\n";
        let config = Config::parse("c", text).unwrap();
        assert_eq!(
            config.secret_variables().into_iter().collect::<Vec<_>>(),
            ["ANTHROPIC_API_KEY", "GEMINI_API_KEY", "OPENAI_API_KEY", "Y"]
        );
        let shown = |name: &str| {
            let profile = config.profile(name).unwrap();
            let params = Value::Object(profile.params.clone()).to_string();
            (
                profile.headers.len() + profile.header_env.len() + profile.query.len(),
                params,
            )
        };
        assert_eq!(shown("default"), (3, "{\"seed\":7}".to_owned()));
        assert_eq!(shown("same"), (3, "{\"seed\":7}".to_owned()));
        assert_eq!(shown("own"), (3, "{\"top_k\":3}".to_owned()));
        assert_eq!(shown("other"), (0, "{}".to_owned()));
    }

    #[test]
    fn errors_of_fallbacks_name_the_wrong_part() {
        let parse =
            |fallback: &str| Config::parse("c", &format!("[model]\nfallback = [{fallback}]\n"));
        let config =
            parse("\"a\", { profile = \"b\", on = [\"refused\"] }, { profile = \"c\" }").unwrap();
        let found: Vec<_> = config
            .model
            .fallback
            .iter()
            .map(|one| (one.name(), one.reasons().len()))
            .collect();
        assert_eq!(found, [("a", 3), ("b", 1), ("c", 3)]);
        for (fallback, part) in [
            (
                "{ profile = \"b\", on = [\"tired\"] }",
                "unknown variant `tired`",
            ),
            ("{ on = [\"refused\"] }", "missing field `profile`"),
            ("{ profile = \"b\", when = 1 }", "unknown field `when`"),
            (
                "5",
                "expected the name of a profile or model, or a table with `profile` and `on`",
            ),
        ] {
            let error = parse(fallback).unwrap_err();
            assert!(error.message.contains(part), "{fallback}: {error}");
        }
    }

    #[test]
    fn invalid_request_settings_are_rejected() {
        for (setting, part) in [
            (
                "headers = { \"a b\" = \"1\" }",
                "not a valid HTTP header name",
            ),
            ("headers = { a = \"1\\n2\" }", "control character"),
            (
                "header_env = { a = \"sk-1\" }",
                "names of environment variables",
            ),
            ("params = { model = \"x\" }", "`name` of the profile"),
            ("params = { messages = [] }", "`messages`"),
            ("params = { stream = false }", "`stream`"),
            ("params = { tools = [] }", "`tools`"),
            ("params = { max_tokens = 5 }", "`max_output_tokens`"),
            ("params = { a = { b = [2026-01-01] } }", "a date"),
            (
                "fallback = [\"a\", { profile = \"a\", on = [\"refused\"] }]",
                "a name of its own",
            ),
            (
                "fallback = [{ profile = \"a\", on = [] }]",
                "must name a reason",
            ),
            ("fallback_cooldown_s = 100000", "at most 86400"),
        ] {
            for (table, key) in [("model", "model"), ("model_profiles.a", "model_profiles")] {
                let error = Config::parse("c", &format!("[{table}]\n{setting}\n")).unwrap_err();
                assert_eq!(error.key.as_deref(), Some(key), "{setting}");
                assert!(error.message.contains(part), "{setting}: {error}");
            }
        }
    }
}
