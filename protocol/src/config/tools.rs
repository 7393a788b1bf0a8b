//! `[tools]`, `[permissions]`, `[mcp.NAME]` and `[hooks]`: which tools exist, and which calls
//! require permission.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::PermissionMode;

/// Limits on tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// Tools that no run may use. Default: none.
    pub disabled: Vec<String>,
    /// Directories in addition to the project in which tools may read and write. Absolute, or
    /// starting with `~/`.
    pub allowed_write_roots: Vec<String>,
    /// Time limit of a call whose tool sets none, in milliseconds. Default: 120000.
    pub default_timeout_ms: u64,
    /// Maximum time limit that a call may request, in milliseconds. Default: 600000.
    pub max_timeout_ms: u64,
    /// Maximum output of one call, in bytes. A longer output is truncated with a notice. Default:
    /// 65536.
    pub output_limit_bytes: usize,
    /// Names of the environment variables that are passed to commands. All others are removed.
    pub env_allowlist: Vec<String>,
    /// Patterns of sensitive paths. Access to them requires permission, even for calls that
    /// otherwise need none. `~/` is the user's home directory. A pattern without a slash matches a
    /// name in any directory.
    pub sensitive_paths: Vec<String>,
    /// Web search service.
    pub web_search: WebSearchConfig,
    /// Limits on commands.
    pub bash: BashConfig,
}

/// Limits on one command of the tool `bash`, including all processes that it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BashConfig {
    /// Maximum number of processes at the same time. Default: 512.
    pub max_processes: u32,
    /// Maximum memory of all processes together, in MiB. Default: half of the machine's memory.
    pub max_memory_mb: Option<u64>,
    /// Maximum size of a file that the command writes, in MiB. Default: 10240.
    pub max_file_mb: u64,
    /// Cache location of package managers. Default: `project`.
    pub cache: PackageCache,
    /// Folders that commands may change in addition to the project and `tools.allowed_write_roots`.
    /// Absolute, or starting with `~/`.
    pub writable: Vec<String>,
}

/// Cache location of package managers while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageCache {
    /// A folder in Soong's home, one per project.
    #[default]
    Project,
    /// The user's own caches, which commands can read but not change.
    Off,
}

impl Default for BashConfig {
    fn default() -> Self {
        Self {
            max_processes: 512,
            max_memory_mb: None,
            max_file_mb: 10_240,
            cache: PackageCache::default(),
            writable: Vec::new(),
        }
    }
}

/// Default patterns of sensitive paths.
const SENSITIVE: &[&str] = &[
    "~/.ssh/**",
    "~/.gnupg/**",
    "~/.pki/**",
    "~/.config/sops/**",
    "~/.netrc",
    "~/.authinfo*",
    "~/.git-credentials",
    "~/.config/git/credentials",
    "~/.config/gh/**",
    "~/.config/hub",
    "~/.config/glab-cli/**",
    "~/.aws/**",
    "~/.azure/**",
    "~/.config/gcloud/**",
    "~/.config/doctl/**",
    "~/.config/hcloud/**",
    "~/.fly/**",
    "~/.config/heroku/**",
    "~/.config/netlify/**",
    "~/.wrangler/config/**",
    "~/.config/.wrangler/**",
    "~/.terraform.d/credentials.tfrc.json",
    "~/.pulumi/credentials.json",
    "~/.vault-token",
    "~/.kube/**",
    "~/.docker/config.json",
    "~/.config/containers/auth.json",
    "~/.config/rclone/**",
    "~/.s3cfg",
    "~/.npmrc",
    "~/.config/pnpm/auth.ini",
    "~/.yarnrc",
    "~/.yarnrc.yml",
    "~/.pypirc",
    "~/.local/share/uv/credentials/**",
    "~/.config/pypoetry/auth.toml",
    "~/.config/composer/auth.json",
    "~/.composer/auth.json",
    "~/.cargo/credentials*",
    "~/.gem/credentials",
    "~/.local/share/gem/credentials",
    "~/.m2/settings.xml",
    "~/.m2/settings-security.xml",
    "~/.gradle/gradle.properties",
    "~/.pgpass",
    "~/.my.cnf",
    "~/.bash_history*",
    "~/.bash_sessions/**",
    "~/.zsh_history*",
    "~/.zsh_sessions/**",
    "~/.local/share/fish/fish_history*",
    "~/.python_history*",
    "~/.node_repl_history*",
    "~/.psql_history*",
    "~/.mysql_history*",
    "~/.sqlite_history*",
    "~/.rediscli_history*",
    "~/.lesshst*",
    "~/.mozilla/**",
    "~/.config/mozilla/**",
    "~/.librewolf/**",
    "~/.config/google-chrome/**",
    "~/.config/chromium/**",
    "~/.config/BraveSoftware/**",
    "~/.config/microsoft-edge/**",
    "~/.config/opera/**",
    "~/.config/vivaldi/**",
    "~/snap/firefox/**",
    "~/snap/chromium/**",
    "~/snap/thunderbird/**",
    "~/Library/Application Support/Firefox/**",
    "~/Library/Application Support/Google/Chrome/**",
    "~/Library/Application Support/BraveSoftware/**",
    "~/Library/Application Support/Microsoft Edge/**",
    "~/Library/Safari/**",
    "~/Library/Cookies/**",
    "~/.password-store/**",
    "~/.local/share/gopass/**",
    "~/.config/keepassxc/**",
    "~/.config/Bitwarden/**",
    "~/.config/Bitwarden CLI/**",
    "~/.config/1Password/**",
    "~/.config/op/**",
    "~/.local/share/keyrings/**",
    "~/.local/share/kwalletd/**",
    "~/Library/Keychains/**",
    "~/.thunderbird/**",
    "~/.msmtprc",
    "~/.config/Signal/**",
    "~/.config/Slack/**",
    "~/.local/share/TelegramDesktop/**",
    "~/.config/discord/**",
    "~/.bitcoin/**",
    "~/.ethereum/**",
    "~/.claude/.credentials.json",
    "~/.claude.json",
    "~/.codex/auth.json",
    "~/.gemini/oauth_creds.json",
    "~/.config/github-copilot/**",
    "~/.copilot/config.json",
    "~/.cache/huggingface/token",
    "~/.cache/huggingface/stored_tokens",
    ".env",
    ".env.*",
    ".envrc",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.keystore",
    "id_rsa*",
    "id_ed25519*",
    ".git-credentials",
    "credentials.json",
];

impl Default for ToolsConfig {
    fn default() -> Self {
        Self {
            disabled: Vec::new(),
            allowed_write_roots: Vec::new(),
            default_timeout_ms: 120_000,
            max_timeout_ms: 600_000,
            output_limit_bytes: 65_536,
            env_allowlist: ["PATH", "HOME", "TMPDIR", "LANG"]
                .map(str::to_owned)
                .to_vec(),
            sensitive_paths: SENSITIVE
                .iter()
                .map(|pattern| (*pattern).to_owned())
                .collect(),
            web_search: WebSearchConfig::default(),
            bash: BashConfig::default(),
        }
    }
}

/// Web search service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    /// None. The tool `web_search` is not available.
    #[default]
    None,
    /// A SearXNG instance.
    Searxng,
    /// Tavily.
    Tavily,
    /// Brave Search.
    Brave,
}

/// Settings of web search.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSearchConfig {
    /// Search service. Default: none.
    pub provider: SearchProvider,
    /// Base URL of the service. Required for SearXNG. Default: the public URL of the service.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the environment variable that holds the API key. Required for Tavily and Brave
    /// Search.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
}

/// Policy for tools that use the network: the web tools, MCP servers, and tools that a program
/// registers with the tag [`NETWORK_TAG`](crate::NETWORK_TAG). Commands are not covered: they
/// request permission under any policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Calls request permission, except for `allowed_hosts`.
    #[default]
    Ask,
    /// Calls that only read run without a request, unless they touch something sensitive.
    Allow,
    /// Calls are denied, except for `allowed_hosts`.
    Deny,
}

/// How long a permission that was granted for a session is remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RememberPolicy {
    /// Until the process that owns the home exits.
    #[default]
    Session,
    /// Not at all: the permission covers only the one call.
    Never,
}

/// Permission rules (PERM-1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsConfig {
    /// Permission mode of runs that set none. Default: `ask`.
    pub mode: PermissionMode,
    /// Policy for tools that use the network. Default: `ask`.
    pub network: NetworkPolicy,
    /// Hosts that require no permission. `*.example.org` matches all hosts below that domain.
    pub allowed_hosts: Vec<String>,
    /// Calls that every run may make without a request, as `TOOL` or `TOOL:SCOPE`.
    pub allow: Vec<String>,
    /// Calls that no run may make, even if another rule allows them, as `TOOL`, `TOOL:SCOPE` or
    /// `bash(PATTERN)`.
    pub deny: Vec<String>,
    /// How long a permission that was granted for a session is remembered. Default: `session`.
    pub remember: RememberPolicy,
    /// Time after which an unanswered permission request is denied, in seconds. 0 means never.
    /// Default: 0.
    pub timeout_s: u64,
}

/// An MCP server: either a program that is started or a URL.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// Program to start. The server communicates over its standard input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Arguments of the program.
    pub args: Vec<String>,
    /// Environment variables in addition to `tools.env_allowlist`. Each name maps to the name of
    /// the variable that holds the value.
    pub env: BTreeMap<String, String>,
    /// URL of a server that uses streamable HTTP, instead of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of each HTTP request. Each name maps to the name of the environment variable that
    /// holds the value.
    pub header_env: BTreeMap<String, String>,
    /// Time limit of a request, in milliseconds. Default: 60000.
    pub timeout_ms: u64,
    /// How long a run waits for a server that is starting or reconnecting, in milliseconds.
    /// Default: 10000.
    pub start_timeout_ms: u64,
    /// Tools of the server that no run may use.
    pub disabled_tools: Vec<String>,
}

impl Default for McpConfig {
    fn default() -> Self {
        Self {
            command: None,
            args: Vec::new(),
            env: BTreeMap::new(),
            url: None,
            header_env: BTreeMap::new(),
            timeout_ms: 60_000,
            start_timeout_ms: 10_000,
            disabled_tools: Vec::new(),
        }
    }
}

/// Settings of the commands in `hooks.json` (HOOK-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// Whether hooks run. Default: true.
    pub enabled: bool,
    /// Time limit of a hook that sets none, in milliseconds. Default: 30000.
    pub timeout_ms: u64,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            timeout_ms: 30_000,
        }
    }
}

impl ToolsConfig {
    /// Returns the first invalid key and the reason.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.default_timeout_ms == 0 {
            return Err(("tools.default_timeout_ms", "must be at least 1"));
        }
        if self.max_timeout_ms < self.default_timeout_ms {
            return Err((
                "tools.max_timeout_ms",
                "must not be less than tools.default_timeout_ms",
            ));
        }
        for (key, folders) in [
            ("tools.allowed_write_roots", &self.allowed_write_roots),
            ("tools.bash.writable", &self.bash.writable),
        ] {
            if folders
                .iter()
                .any(|folder| !folder.starts_with('/') && !folder.starts_with("~/"))
            {
                return Err((key, "must be absolute paths, or begin with ~/"));
            }
        }
        for (key, limit) in [
            (
                "tools.bash.max_processes",
                u64::from(self.bash.max_processes),
            ),
            (
                "tools.bash.max_memory_mb",
                self.bash.max_memory_mb.unwrap_or(1),
            ),
            ("tools.bash.max_file_mb", self.bash.max_file_mb),
        ] {
            if limit == 0 {
                return Err((key, "must be at least 1"));
            }
        }
        let search = &self.web_search;
        match search.provider {
            SearchProvider::None => {}
            SearchProvider::Searxng if search.base_url.is_none() => {
                return Err(("tools.web_search", "a SearXNG instance requires base_url"));
            }
            SearchProvider::Tavily | SearchProvider::Brave if search.api_key_env.is_none() => {
                return Err(("tools.web_search", "this provider requires api_key_env"));
            }
            SearchProvider::Searxng | SearchProvider::Tavily | SearchProvider::Brave => {}
        }
        if search
            .api_key_env
            .as_deref()
            .is_some_and(|name| !super::is_variable_name(name))
        {
            return Err(("tools.web_search", super::NOT_A_VARIABLE_NAME));
        }
        Ok(())
    }
}

impl McpConfig {
    /// Returns the server part of a tool name of the form `mcp.SERVER.TOOL`.
    pub fn server_of(tool: &str) -> Option<&str> {
        tool.strip_prefix("mcp.")?
            .split_once('.')
            .map(|(server, _)| server)
    }

    /// Returns the first invalid key of a server and the reason.
    pub(super) fn check(&self, name: &str) -> Result<(), (&'static str, &'static str)> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
            return Err((
                "mcp",
                "a server name must have 1 to 32 ASCII letters, digits, '_' or '-'",
            ));
        }
        match (&self.command, &self.url) {
            (Some(_), None) | (None, Some(_)) => {}
            _ => {
                return Err((
                    "mcp",
                    "a server must set either command or url, but not both",
                ));
            }
        }
        if !self
            .env
            .values()
            .chain(self.header_env.values())
            .all(|name| super::is_variable_name(name))
        {
            return Err((
                "mcp",
                "env and header_env must contain names of environment variables, never the values themselves",
            ));
        }
        if self.timeout_ms == 0 || self.start_timeout_ms == 0 {
            return Err(("mcp", "timeout_ms and start_timeout_ms must be at least 1"));
        }
        Ok(())
    }
}
