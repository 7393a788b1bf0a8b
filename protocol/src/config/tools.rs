//! `[tools]`, `[permissions]`, `[mcp.NAME]` and `[hooks]`: what may act, and with whose leave.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Limits on tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolsConfig {
    /// Tools that no run may use.
    pub disabled: Vec<String>,
    /// Directories beside the project in which tools may read and write; absolute.
    pub allowed_write_roots: Vec<String>,
    /// How long one call may take, in milliseconds, where the tool sets nothing.
    pub default_timeout_ms: u64,
    /// How long a call may ask to take at most, in milliseconds.
    pub max_timeout_ms: u64,
    /// Largest output of one call, in bytes; longer ones are cut, and say so.
    pub output_limit_bytes: usize,
    /// Names of the environment variables that commands are given; all others are kept from them.
    pub env_allowlist: Vec<String>,
    /// Patterns of paths that are asked for even where nothing else is: `~/` is the user's home, a pattern without a
    /// slash matches a name anywhere.
    pub sensitive_paths: Vec<String>,
    /// Who searches the web.
    pub web_search: WebSearchConfig,
    /// Limits on commands.
    pub bash: BashConfig,
}

/// Limits on one command of the tool `bash` and everything that it starts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BashConfig {
    /// Most processes at once.
    pub max_processes: u32,
    /// Most memory of all processes together, in MiB. Default: half of the machine's memory.
    pub max_memory_mb: Option<u64>,
    /// Largest file that it can write, in MiB.
    pub max_file_mb: u64,
    /// Where package managers keep what they download.
    pub cache: PackageCache,
    /// Folders that commands may change in addition to the project and `tools.allowed_write_roots`; absolute, or
    /// below `~/`.
    pub writable: Vec<String>,
}

/// Where package managers keep what they download while a command runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackageCache {
    /// In a folder of the home, one for each project.
    #[default]
    Project,
    /// In the user's own caches, which commands can read but not change.
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

/// Which paths are sensitive unless the configuration says otherwise.
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
            env_allowlist: ["PATH", "HOME", "TMPDIR", "LANG"].map(str::to_owned).to_vec(),
            sensitive_paths: SENSITIVE.iter().map(|pattern| (*pattern).to_owned()).collect(),
            web_search: WebSearchConfig::default(),
            bash: BashConfig::default(),
        }
    }
}

/// Which service searches the web.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchProvider {
    /// None: `web_search` is not offered.
    #[default]
    None,
    /// A SearXNG instance.
    Searxng,
    /// Tavily.
    Tavily,
    /// Brave Search.
    Brave,
}

/// Who searches the web.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WebSearchConfig {
    /// Which service.
    pub provider: SearchProvider,
    /// Where it is; needed for SearXNG, and the service's own otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
    /// Name of the environment variable that holds its key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key_env: Option<String>,
}

/// What is done where a tool uses the network: the web tools, servers of tools, and those of programs that say so.
/// Commands ask in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NetworkPolicy {
    /// Somebody is asked, but for `allowed_hosts`.
    #[default]
    Ask,
    /// What only reads runs.
    Allow,
    /// It does not run, but for `allowed_hosts`.
    Deny,
}

/// How long leave is remembered that is given for a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Remember {
    /// As long as the process that owns the home lives.
    #[default]
    Session,
    /// Not at all: it counts for the one call.
    Never,
}

/// Who may do what (PERM-1).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PermissionsConfig {
    /// What is done where a tool uses the network.
    pub network: NetworkPolicy,
    /// Hosts that need no leave; `*.example.org` stands for all below.
    pub allowed_hosts: Vec<String>,
    /// What every run may do without asking: `TOOL` or `TOOL:SCOPE`.
    pub allow: Vec<String>,
    /// What no run may do, whatever else allows it: `TOOL`, `TOOL:SCOPE` or `bash(PATTERN)`.
    pub deny: Vec<String>,
    /// How long leave is remembered that is given for a session.
    pub remember: Remember,
    /// After how many seconds a question that nobody answers is denied; 0 = never.
    pub timeout_s: u64,
}

/// A server of tools (MCP): a program that is started, or an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct McpConfig {
    /// The program that is started, which speaks over its standard input and output.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment beside `tools.env_allowlist`: each name with the name of the variable whose value it gets.
    pub env: BTreeMap<String, String>,
    /// Where a server answers over streamable HTTP, instead of a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Headers of its requests: each name with the name of the variable whose value it gets.
    pub header_env: BTreeMap<String, String>,
    /// How long a request may take, in milliseconds.
    pub timeout_ms: u64,
    /// How long a run waits for the server when the server starts or comes back, in milliseconds.
    pub start_timeout_ms: u64,
    /// Its tools that no run may use.
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

/// Whether and how long the commands of `hooks.json` run (HOOK-1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HooksConfig {
    /// Whether they run at all.
    pub enabled: bool,
    /// How long one may take that sets nothing, in milliseconds.
    pub timeout_ms: u64,
}

impl Default for HooksConfig {
    fn default() -> Self {
        Self { enabled: true, timeout_ms: 30_000 }
    }
}

impl ToolsConfig {
    /// Finds the first value that cannot be, with its key and why.
    pub(super) fn check(&self) -> Result<(), (&'static str, &'static str)> {
        if self.default_timeout_ms == 0 {
            return Err(("tools.default_timeout_ms", "must be at least 1"));
        }
        if self.max_timeout_ms < self.default_timeout_ms {
            return Err(("tools.max_timeout_ms", "must not be less than tools.default_timeout_ms"));
        }
        for (key, folders) in
            [("tools.allowed_write_roots", &self.allowed_write_roots), ("tools.bash.writable", &self.bash.writable)]
        {
            if folders.iter().any(|folder| !folder.starts_with('/') && !folder.starts_with("~/")) {
                return Err((key, "must be absolute paths, or begin with ~/"));
            }
        }
        for (key, limit) in [
            ("tools.bash.max_processes", u64::from(self.bash.max_processes)),
            ("tools.bash.max_memory_mb", self.bash.max_memory_mb.unwrap_or(1)),
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
                return Err(("tools.web_search", "a SearXNG instance needs base_url"));
            }
            SearchProvider::Tavily | SearchProvider::Brave if search.api_key_env.is_none() => {
                return Err(("tools.web_search", "this provider needs api_key_env"));
            }
            SearchProvider::Searxng | SearchProvider::Tavily | SearchProvider::Brave => {}
        }
        if search.api_key_env.as_deref().is_some_and(|name| !super::is_variable(name)) {
            return Err(("tools.web_search", super::NO_VARIABLE));
        }
        Ok(())
    }
}

impl McpConfig {
    /// Returns the server whose tool a name would be: tools of servers are called `mcp.SERVER.TOOL`.
    pub fn server_of(tool: &str) -> Option<&str> {
        tool.strip_prefix("mcp.")?.split_once('.').map(|(server, _)| server)
    }

    /// Finds what cannot be of a server.
    pub(super) fn check(&self, name: &str) -> Result<(), (&'static str, &'static str)> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
            return Err(("mcp", "a server's name has 1 to 32 ASCII letters, digits, '_' or '-'"));
        }
        match (&self.command, &self.url) {
            (Some(_), None) | (None, Some(_)) => {}
            _ => return Err(("mcp", "a server has either command or url")),
        }
        if !self.env.values().chain(self.header_env.values()).all(|name| super::is_variable(name)) {
            return Err(("mcp", "env and header_env hold names of environment variables, never the values themselves"));
        }
        if self.timeout_ms == 0 || self.start_timeout_ms == 0 {
            return Err(("mcp", "timeout_ms and start_timeout_ms must be at least 1"));
        }
        Ok(())
    }
}
