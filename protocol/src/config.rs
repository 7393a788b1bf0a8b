//! Configuration file: all settings with their units and defaults.
//!
//! A missing file means default values. An unknown key or an invalid value is an error that names
//! file, line and key.
//!
//! Elsewhere: the list of keys with their lines (`setting.rs`), the location of the file, and the
//! environment.

mod context;
mod excerpt;
mod fallback;
mod memory;
mod model;
mod provider;
mod server;
mod setting;
mod tools;

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, Deserializer, Serialize};

pub use self::{
    context::ContextConfig,
    fallback::{ConditionalFallback, FallbackConfig, FallbackReason},
    memory::MemoryConfig,
    model::{ModelConfig, ModelOverride, PriceConfig, RetryConfig},
    provider::Provider,
    server::ServerConfig,
    setting::ConfigSetting,
    tools::{
        BashConfig, HooksConfig, McpConfig, NetworkPolicy, PackageCache, PermissionsConfig,
        RememberPolicy, SearchProvider, ToolsConfig, WebSearchConfig,
    },
};
use crate::{Budget, Effort, Preset};

/// Error for a value that is not the name of an environment variable. The message never repeats the
/// value, because it may be the key itself.
const NOT_A_VARIABLE_NAME: &str =
    "must be the name of an environment variable (letters, digits, _), never the key itself";

fn is_variable_name(text: &str) -> bool {
    !text.is_empty()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// An invalid configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {}{message}", key.as_ref().map(|key| format!("`{key}`: ")).unwrap_or_default())]
pub struct ConfigError {
    /// Name of the configuration file.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Dotted key. `None` if the error concerns no single key.
    pub key: Option<String>,
    /// Description of the error.
    pub message: String,
    /// The line with a marker below the error. Quoted text is hidden, because it may be a secret.
    pub excerpt: String,
}

/// The complete configuration.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Settings of runs.
    pub runtime: RuntimeConfig,
    /// Settings of the store.
    pub storage: StorageConfig,
    /// Default model profile.
    pub model: ModelConfig,
    /// Additional model profiles. Each overrides a subset of `[model]`.
    pub model_profiles: BTreeMap<String, ModelOverride>,
    /// Prices by model name.
    pub prices: BTreeMap<String, PriceConfig>,
    /// Limits on sub-agents.
    pub agents: AgentsConfig,
    /// Default budget of a user's run and its descendants.
    pub budget: Budget,
    /// Settings that determine which part of a conversation is sent to the model.
    pub context: ContextConfig,
    /// Additional agent types. An entry with the name of a built-in preset replaces it.
    pub presets: BTreeMap<String, PresetConfig>,
    /// Limits on artifacts.
    pub artifacts: ArtifactsConfig,
    /// Limits on tools.
    pub tools: ToolsConfig,
    /// Permission rules.
    pub permissions: PermissionsConfig,
    /// MCP servers.
    pub mcp: BTreeMap<String, McpConfig>,
    /// Settings of hooks: commands that are notified of events and can deny them.
    pub hooks: HooksConfig,
    /// Settings of experiences: what runs have learned.
    pub memory: MemoryConfig,
    /// Settings of the HTTP server.
    pub server: ServerConfig,
}

/// Settings of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuntimeConfig {
    /// How long `cancel()` waits for a run to end, in milliseconds. Default: 10000.
    pub cancel_timeout_ms: u64,
    /// How long `close()` waits for running work, in milliseconds. Default: 10000.
    pub close_timeout_ms: u64,
    /// Maximum number of turns of a run that sets no limit itself. Default: 200.
    pub max_turns: u32,
    /// Number of identical tool calls with identical results in a row after which the model gets a
    /// note. 0: never. Default: 3.
    pub repeated_calls_note: u32,
    /// Number of such calls after which the run fails with `repeated_calls`. Calls that waited do
    /// not count, and identical answers that a `Stop` hook denies do. 0: never. Default: 8.
    pub repeated_calls_limit: u32,
    /// Whether requests to models and their answers, calls of hooks, and crashes of actors are
    /// stored as debug artifacts. Default: false.
    pub debug_artifacts: bool,
    /// Treatment of runs that an earlier process left unfinished. Default: they resume; `soong
    /// serve` at a terminal asks.
    pub recovery: Option<RecoveryMode>,
    /// Idle time after which a session is passivated, in seconds. Default: 300.
    pub idle_session_s: u64,
    /// Maximum number of idle sessions that are not passivated. If there are more, those that have
    /// been idle longest are passivated. Default: 64.
    pub max_idle_sessions: usize,
    /// Time without progress after which a run is reported as stuck, in seconds (RUN-7). Default:
    /// 120.
    pub stuck_after_s: u64,
}

/// Treatment of runs that an earlier process left unfinished (DUR-3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryMode {
    /// A user decides. Where nobody can be asked, like [`RecoveryMode::None`].
    Ask,
    /// They resume.
    #[default]
    Resume,
    /// They stay interrupted until their session is used.
    None,
    /// They end as `failed` with the end reason `interrupted`.
    Fail,
}

impl Default for RuntimeConfig {
    fn default() -> Self {
        Self {
            cancel_timeout_ms: 10_000,
            close_timeout_ms: 10_000,
            max_turns: 200,
            repeated_calls_note: 3,
            repeated_calls_limit: 8,
            debug_artifacts: false,
            recovery: None,
            idle_session_s: 300,
            max_idle_sessions: 64,
            stuck_after_s: 120,
        }
    }
}

/// Failures that a commit survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Power loss: every commit reaches the disk before it is acknowledged.
    #[default]
    Full,
    /// `kill -9`. A power loss may undo the last commits.
    Normal,
}

/// Settings of the store.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StorageConfig {
    /// Failures that a commit survives. Default: `full`.
    pub durability: Durability,
}

/// Limits on sub-agents (SUB-7).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentsConfig {
    /// Depth below which runs may start children. Default: 1, so only a user's run may start
    /// children.
    pub max_depth: u32,
    /// Maximum number of children of one run over its lifetime. Default: 256.
    pub max_children_per_run: usize,
    /// Maximum number of children of a session that run concurrently. Others wait in a fair queue.
    /// Default: 16.
    pub max_concurrent_children_per_session: usize,
    /// Time limit of a child, in milliseconds. Time in the queue does not count. Default: 600000.
    pub child_timeout_ms: u64,
    /// Whether the first of at least four children whose prompts begin alike starts alone, so that
    /// the others read the common part from the cache of the service. Only with models whose cache
    /// is known. Default: true.
    pub warm_prefix: bool,
}

impl Default for AgentsConfig {
    fn default() -> Self {
        Self {
            max_depth: 1,
            max_children_per_run: 256,
            max_concurrent_children_per_session: 16,
            child_timeout_ms: 600_000,
            warm_prefix: true,
        }
    }
}

/// An agent type that the user defines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(missing_docs, reason = "the fields are those of Preset")]
pub struct PresetConfig {
    #[serde(default, deserialize_with = "null_as_default")]
    pub description: String,
    #[serde(default, deserialize_with = "null_as_default")]
    pub instructions: String,
    pub allowed_tools: Option<Vec<String>>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub denied_tools: Vec<String>,
    #[serde(rename = "max_iterations")]
    pub max_turns: Option<u32>,
    pub temperature: Option<f64>,
    pub effort: Option<Effort>,
    pub reasoning_budget_tokens: Option<u64>,
    pub skills: Option<Vec<String>>,
    pub model: Option<String>,
    #[serde(default, deserialize_with = "null_as_default")]
    pub coordinates: bool,
}

/// Reads a value that JSON may give as `null`.
fn null_as_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    from: D,
) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl PresetConfig {
    /// Returns the preset with the given name.
    pub fn preset(&self, name: &str) -> Preset {
        Preset {
            name: name.to_owned(),
            description: self.description.clone(),
            allowed_tools: self.allowed_tools.clone(),
            denied_tools: self.denied_tools.clone(),
            max_turns: self.max_turns,
            temperature: self.temperature,
            effort: self.effort,
            reasoning_budget_tokens: self.reasoning_budget_tokens,
            skills: self.skills.clone(),
            model: self.model.clone(),
            instructions: self.instructions.clone(),
            coordinates: self.coordinates,
        }
    }
}

/// Limits on artifacts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ArtifactsConfig {
    /// Maximum size of a tool output that is sent to the model in full, in bytes. A larger output
    /// is stored as an artifact. Default: 65536.
    pub max_inline_bytes: usize,
    /// The same limit in estimated tokens. The limit that is reached first applies. Default: 16384.
    pub max_inline_tokens: u64,
    /// Maximum size of a text artifact, in bytes. Default: 20971520 (20 MiB).
    pub max_text_bytes: u64,
    /// Maximum size of any other artifact, in bytes. Default: 209715200 (200 MiB).
    pub max_blob_bytes: u64,
    /// Maximum size of all contents of project files that a session keeps so that changes can be
    /// reverted, in bytes. 0: none are kept. Default: 67108864 (64 MiB).
    pub max_undo_bytes: u64,
    /// Storage of artifact bytes: `file` (in the home), `memory`, `s3://bucket/prefix` or
    /// `gs://bucket/prefix`. Default: `file`.
    pub store: String,
}

impl Default for ArtifactsConfig {
    fn default() -> Self {
        Self {
            max_inline_bytes: 65_536,
            max_inline_tokens: 16_384,
            max_text_bytes: 20_971_520,
            max_blob_bytes: 209_715_200,
            max_undo_bytes: 67_108_864,
            store: "file".to_owned(),
        }
    }
}

/// Environment variables that always hold secrets of Soong, even if the configuration does not name
/// them.
const OWN_SECRETS: [&str; 3] = ["OPENAI_API_KEY", "SOONG_TOKEN", "SOONG_SERVER_TOKEN"];

impl Config {
    /// Parses a configuration. `file` is used only in error messages.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let error = |span: Option<Range<usize>>, key: Option<String>, message: &str| {
            let span = span.unwrap_or(0..0);
            let message = excerpt::without_value(message.lines().next().unwrap_or_default());
            let message = excerpt::plain_type_names(&message);
            let line = setting::line(text, span.clone());
            ConfigError {
                file: file.to_owned(),
                line,
                key,
                message,
                excerpt: excerpt::excerpt(text, span),
            }
        };
        let parsed =
            toml::Deserializer::parse(text).map_err(|e| error(e.span(), None, e.message()))?;
        let config = Self::deserialize(parsed).map_err(|e| {
            let key = e.span().and_then(|span| setting::key_at(text, &span));
            error(e.span(), key, e.message())
        })?;
        config.check().map_err(|(key, message)| {
            let path: Vec<&str> = key.split('.').collect();
            let line = Self::line(text, &path).unwrap_or(1);
            let begin = text
                .split_inclusive('\n')
                .take(line - 1)
                .map(str::len)
                .sum::<usize>();
            let length = text[begin..]
                .lines()
                .next()
                .unwrap_or_default()
                .trim_end()
                .len();
            ConfigError {
                line,
                ..error(Some(begin..begin + length), Some(key.to_owned()), message)
            }
        })?;
        Ok(config)
    }

    /// Rejects values with which no run could work.
    fn check(&self) -> Result<(), (&'static str, &'static str)> {
        let at_least_one = "must be at least 1";
        for (bad, key) in [
            (self.runtime.max_turns == 0, "runtime.max_turns"),
            (self.runtime.stuck_after_s == 0, "runtime.stuck_after_s"),
            (
                self.model.max_concurrency == Some(0),
                "model.max_concurrency",
            ),
            (self.model.context_window == Some(0), "model.context_window"),
            (
                self.model.max_output_tokens == Some(0),
                "model.max_output_tokens",
            ),
            (
                self.model.max_argument_bytes == 0,
                "model.max_argument_bytes",
            ),
            (self.model.max_answer_bytes == 0, "model.max_answer_bytes"),
            (self.model.max_tool_calls == 0, "model.max_tool_calls"),
            (self.model.timeout_ms == 0, "model.timeout_ms"),
            (
                self.model.first_byte_timeout_ms == Some(0),
                "model.first_byte_timeout_ms",
            ),
            (
                self.model.retry.max_attempts == 0,
                "model.retry.max_attempts",
            ),
            (
                self.agents.max_concurrent_children_per_session == 0,
                "agents.max_concurrent_children_per_session",
            ),
            (self.agents.child_timeout_ms == 0, "agents.child_timeout_ms"),
            (self.hooks.timeout_ms == 0, "hooks.timeout_ms"),
            (
                self.artifacts.max_inline_tokens == 0,
                "artifacts.max_inline_tokens",
            ),
        ] {
            if bad {
                return Err((key, at_least_one));
            }
        }
        self.context.check()?;
        self.tools.check()?;
        self.memory.check()?;
        self.server.check()?;
        self.mcp
            .iter()
            .try_for_each(|(name, server)| server.check(name))?;
        self.model.check().map_err(|why| ("model", why))?;
        for profile in self.model_profiles.values() {
            profile
                .merged_over(&self.model)
                .check()
                .map_err(|why| ("model_profiles", why))?;
        }
        if self
            .model
            .api_key_env
            .as_deref()
            .is_some_and(|name| !is_variable_name(name))
        {
            return Err(("model.api_key_env", NOT_A_VARIABLE_NAME));
        }
        let mut names = self
            .model_profiles
            .values()
            .filter_map(|profile| profile.api_key_env.as_deref());
        if !names.all(is_variable_name) {
            return Err((
                "model_profiles",
                "api_key_env must be the name of an environment variable, never the key itself",
            ));
        }
        if self.model_profiles.contains_key("default") {
            return Err((
                "model_profiles.default",
                "the profile `default` is [model]: set its keys there",
            ));
        }
        if self
            .model_profiles
            .values()
            .any(|profile| profile.max_concurrency == Some(0))
        {
            return Err(("model_profiles", "max_concurrency must be at least 1"));
        }
        let limits = |profile: &ModelOverride| {
            [
                profile.max_argument_bytes,
                profile.max_answer_bytes,
                profile.max_tool_calls,
            ]
            .contains(&Some(0))
        };
        if self.model_profiles.values().any(limits) {
            return Err((
                "model_profiles",
                "max_argument_bytes, max_answer_bytes and max_tool_calls must be at least 1",
            ));
        }
        Ok(())
    }

    /// Returns the names of all environment variables that the configuration names as holders of
    /// secrets.
    pub fn secret_variables(&self) -> std::collections::BTreeSet<&str> {
        let profiles = self
            .model_profiles
            .values()
            .filter_map(|profile| profile.api_key_env.as_deref());
        let header_env = self
            .model_profiles
            .values()
            .filter_map(|profile| profile.header_env.as_ref());
        let headers = header_env
            .chain([&self.model.header_env])
            .flat_map(|headers| headers.values());
        let servers = self
            .mcp
            .values()
            .flat_map(|server| server.env.values().chain(server.header_env.values()));
        let search = self.tools.web_search.api_key_env.as_deref();
        let users = self.server.tokens.values();
        // A run may use the service of each vendor, whatever the profiles say.
        let vendors = Provider::ALL
            .into_iter()
            .map(|provider| -> &str { provider.api_key_env() });
        let own = self.model.api_key_env.as_deref();
        let named = profiles
            .chain(servers.chain(users).chain(headers).map(String::as_str))
            .chain(search);
        named
            .chain(own)
            .chain(vendors.filter(|name| !name.is_empty()))
            .collect()
    }

    /// Returns the names of the environment variables that are passed to commands:
    /// `tools.env_allowlist` without the variables that hold Soong's own keys and tokens.
    pub fn command_variables(&self) -> Vec<String> {
        let keys = self.secret_variables();
        let is_key =
            |name: &&String| keys.contains(name.as_str()) || OWN_SECRETS.contains(&name.as_str());
        self.tools
            .env_allowlist
            .iter()
            .filter(|name| !is_key(name))
            .cloned()
            .collect()
    }

    /// Returns a model profile by name. `default` is `[model]`. The name of a provider is a profile
    /// of the vendor's own service, unless the configuration has a profile of that name.
    pub fn profile(&self, name: &str) -> Option<ModelConfig> {
        if name == "default" {
            return Some(self.model.clone());
        }
        if let Some(profile) = self.model_profiles.get(name) {
            return Some(profile.merged_over(&self.model));
        }
        let provider = Provider::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)?;
        Some(
            ModelOverride {
                provider: Some(provider),
                ..ModelOverride::default()
            }
            .merged_over(&self.model),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_file_gives_defaults() {
        assert_eq!(Config::parse("config.toml", "").unwrap(), Config::default());
    }

    #[test]
    fn error_names_file_line_and_key() {
        for (text, line, key, part) in [
            (
                "[runtime]\nmax_turn = 3\n",
                2,
                Some("runtime.max_turn"),
                "unknown field",
            ),
            (
                "[modle.small]\nname = \"x\"\n",
                1,
                Some("modle"),
                "unknown field",
            ),
            (
                "[agents.nope.x]\ny = 1\n",
                1,
                Some("agents.nope"),
                "unknown field",
            ),
            (
                "[model]\n\nname = 5\n",
                3,
                Some("model.name"),
                "invalid type",
            ),
            ("[model]\nname = \"x\n", 2, None, ""),
            (
                "[storage]\ndurability = \"fulll\"\n",
                2,
                Some("storage.durability"),
                "unknown variant",
            ),
            (
                "# x\n[runtime]\nmax_turns = 0\n",
                3,
                Some("runtime.max_turns"),
                "at least 1",
            ),
            (
                "[model_profiles.a]\ntimeout_ms = 5\n[model]\ntimeout_ms = 0\n",
                4,
                Some("model.timeout_ms"),
                "at least 1",
            ),
            (
                "[model]\napi_key_env = \"sk-1\"\n",
                2,
                Some("model.api_key_env"),
                "name of an environment variable",
            ),
            (
                "[server]\naddr = \"localhost\"\n",
                2,
                Some("server.addr"),
                "with a port",
            ),
            (
                "[server]\n\nallowed_origins = [\"*\"]\n",
                3,
                Some("server.allowed_origins"),
                "must be origins",
            ),
            (
                "[server]\nallowed_hosts = [\"http://a\"]\n",
                2,
                Some("server.allowed_hosts"),
                "host names",
            ),
            (
                "[server]\ntokens = { \"../a\" = \"A\" }\n",
                2,
                Some("server.tokens"),
                "name users",
            ),
            (
                "[server]\ntokens = { bob = \"sk-1\" }\n",
                2,
                Some("server.tokens"),
                "name of an environment variable",
            ),
            (
                "[server.tokens]\nlocal = \"A\"\n",
                1,
                Some("server.tokens"),
                "server.token",
            ),
            (
                "[model_profiles.a]\napi_key_env = \"sk-1\"\n",
                1,
                Some("model_profiles"),
                "never the key",
            ),
            (
                "[prices.m]\nprompt_per_mtok = \"a\"\ncompletion_per_mtok=\"1\"\n",
                2,
                Some("prices.m.prompt_per_mtok"),
                "USD",
            ),
        ] {
            let error = Config::parse("c.toml", text).unwrap_err();
            assert_eq!(
                (error.line, error.key.as_deref()),
                (line, key),
                "{text:?}: {error}"
            );
            assert!(error.message.contains(part), "{text:?}: {error}");
            assert!(
                error.to_string().starts_with(&format!("c.toml:{line}: ")),
                "{error}"
            );
            assert!(
                !error.to_string().contains("sk-1"),
                "a key is never repeated: {error}"
            );
        }
    }

    #[test]
    fn commands_never_get_keys_of_soong_even_if_allowlisted() {
        let config = Config::parse(
            "c",
            "[model]\napi_key_env = \"MY_KEY\"\n[server.tokens]\nbob = \"BOB\"\n[tools]\nenv_allowlist = [\"PATH\", \
             \"MY_KEY\", \"BOB\", \"OPENAI_API_KEY\", \"SOONG_TOKEN\", \"GITHUB_TOKEN\"]\n",
        );
        assert_eq!(
            config.unwrap().command_variables(),
            ["PATH", "GITHUB_TOKEN"]
        );
    }

    #[test]
    fn profile_overrides_only_named_settings() {
        let config = Config::parse(
            "c",
            "[model]\nname = \"big\"\ntimeout_ms = 9\n[model_profiles.small]\nname = \"little\"\n",
        )
        .unwrap();
        let small = config.profile("small").unwrap();
        assert_eq!((small.model_name(), small.timeout_ms), ("little", 9));
        assert_eq!(config.profile("default").unwrap().model_name(), "big");
        assert!(config.profile("none").is_none());
    }
}
