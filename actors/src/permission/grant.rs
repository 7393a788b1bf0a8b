//! Grants: rules for calls that run without asking, as configuration and command line write them.
//! Deny rules have the same syntax.
//!
//! - `TOOL` covers every call of a tool; its name may end in `*`.
//! - `TOOL:SCOPE` covers calls within a directory, to a host, or of a program.
//! - `bash(PATTERN)` covers commands whose words are those of the pattern; ` *` at its end allows
//!   any further words.
//! - `TOOL:unconfined` covers calls that cannot be fully confined. No other grant covers these.
//!
//! Pure. Elsewhere: which commands a pattern covers (`actors/tool/src/command.rs`).

use std::{
    collections::BTreeMap,
    path::{Component, Path, PathBuf},
};

use soong_protocol::{AccessRequest, McpConfig, PermissionMode, Scope};
use soong_tool::command::{CommandPattern, exact_patterns};

use super::BASH;
use crate::suggestion;

/// Scope of a grant for unconfined calls.
pub(crate) const UNCONFINED: &str = "unconfined";
/// Prefix of the names of MCP tools. These are known only after their server has started.
const MCP_PREFIX: &str = "mcp.";

/// A permission that is given before the run starts, or a deny rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    tool: String,
    scope: Option<GrantScope>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum GrantScope {
    /// A directory, a host, a program, or `unconfined`.
    Named(String),
    /// Pattern of a command.
    Pattern(CommandPattern),
}

/// Why a text is not a valid grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrantError {
    /// The syntax is invalid.
    #[error(
        "{0:?} is not a permission rule: use TOOL, TOOL:SCOPE or bash(PATTERN), such as `write:src`, `bash:cargo`, \
         `bash(git push *)`, `webfetch:example.org`"
    )]
    Unreadable(String),
    /// The tool does not exist.
    #[error("there is no tool {tool:?}{suggestion} (`soong tools list` shows them all)")]
    UnknownTool {
        /// The name.
        tool: String,
        /// Text that suggests a similar name; may be empty.
        suggestion: String,
    },
}

impl Grant {
    /// Parses a grant.
    ///
    /// # Errors
    /// The tool is missing or not a valid name, the text after the colon is empty, or the words of
    /// the pattern cannot be determined statically.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let unreadable = || GrantError::Unreadable(text.to_owned());
        let pattern = text
            .trim()
            .strip_suffix(')')
            .and_then(|text| text.split_once('('));
        let (tool, scope) = match (pattern, text.split_once(':')) {
            (Some((tool, words)), _) if tool == BASH => {
                let pattern = CommandPattern::parse(words).ok_or_else(unreadable)?;
                (tool, Some(GrantScope::Pattern(pattern)))
            }
            (_, Some((tool, scope))) if !scope.trim().is_empty() => (
                tool.trim(),
                Some(GrantScope::Named(scope.trim().to_owned())),
            ),
            (_, Some(_)) => return Err(unreadable()),
            (_, None) => (text.trim(), None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name = tool.strip_suffix('*').unwrap_or(tool);
        if name.is_empty() || !name.chars().all(is_name) {
            return Err(unreadable());
        }
        Ok(Self {
            tool: tool.to_owned(),
            scope,
        })
    }

    /// Returns the rules that a permission mode adds (PERM-2).
    pub(super) fn of_mode(mode: PermissionMode) -> Vec<Self> {
        let in_project = |tool: &str| Self {
            tool: tool.to_owned(),
            scope: Some(GrantScope::Named(".".to_owned())),
        };
        match mode {
            PermissionMode::Plan | PermissionMode::Ask => Vec::new(),
            PermissionMode::Edits => ["write", "edit"].map(in_project).to_vec(),
            PermissionMode::All => vec![Self {
                tool: "*".to_owned(),
                scope: None,
            }],
        }
    }

    /// Checks that its tool exists. MCP tools are not checked, because they are known only after
    /// their server has started.
    pub(crate) fn check(&self, tools: &[String]) -> Result<(), GrantError> {
        check_tool(&self.tool, tools)
    }

    /// Returns the MCP server that it names, if that server is not configured.
    pub(crate) fn missing_server<'a>(
        &'a self,
        servers: &BTreeMap<String, McpConfig>,
    ) -> Option<&'a str> {
        McpConfig::server_of(&self.tool).filter(|server| !servers.contains_key(*server))
    }

    /// Whether it names a tool that its MCP server does not offer, although the server has started.
    pub(crate) fn is_of_missing_mcp_tool(&self, tools: &[String]) -> bool {
        let server = McpConfig::server_of(&self.tool);
        server.is_some()
            && tools
                .iter()
                .any(|tool| McpConfig::server_of(tool) == server)
            && !tools.iter().any(|tool| self.applies_to(tool))
    }

    /// Returns the name of its tool, which may end in `*`.
    pub(super) fn tool(&self) -> &str {
        &self.tool
    }

    /// Whether it applies to a tool.
    pub(crate) fn applies_to(&self, tool: &str) -> bool {
        matches_name(&self.tool, tool)
    }

    /// Whether it covers every call of its tool.
    pub(crate) fn covers_whole_tool(&self) -> bool {
        self.scope.is_none()
    }

    /// Returns the program that it names, if it is a grant for commands.
    pub(crate) fn program(&self) -> Option<&str> {
        match &self.scope {
            Some(GrantScope::Named(name)) if self.applies_to(BASH) => Some(name),
            _ => None,
        }
    }

    /// Returns its pattern, if it is a grant for commands that has one.
    pub(crate) fn pattern(&self) -> Option<&CommandPattern> {
        match &self.scope {
            Some(GrantScope::Pattern(pattern)) => Some(pattern),
            _ => None,
        }
    }

    /// Whether, as a deny rule, it forbids every call of a tool.
    pub(crate) fn denies_tool(&self, tool: &str) -> bool {
        self.applies_to(tool) && self.covers_whole_tool()
    }

    /// Whether, as a deny rule, it forbids a call. A directory forbids everything in it, including
    /// sensitive paths.
    pub(crate) fn denies(&self, tool: &str, access: &AccessRequest, project: &Path) -> bool {
        let Some(GrantScope::Named(scope)) = &self.scope else {
            return self.denies_tool(tool);
        };
        self.applies_to(tool)
            && match &access.scope {
                Scope::Host { host } => matches_host(scope, host),
                _ => self.denies_path(tool, Path::new(&access.target), project),
            }
    }

    /// Whether, as a deny rule, it forbids a tool to open a file or folder. Symlinks in `path` are
    /// resolved.
    pub(crate) fn denies_path(&self, tool: &str, path: &Path, project: &Path) -> bool {
        let Some(GrantScope::Named(scope)) = &self.scope else {
            return self.denies_tool(tool);
        };
        let folder = project.join(scope);
        self.applies_to(tool)
            && (path.starts_with(normalize_lexically(&folder))
                || path.starts_with(crate::hook::canonicalize_existing(&folder)))
    }

    /// Returns whether it permits a call. A relative directory is resolved against the project.
    ///
    /// A sensitive path is covered only by a grant whose scope is exactly that path. Commands are
    /// decided in `command.rs`.
    pub(crate) fn covers(&self, tool: &str, access: &AccessRequest, project: &Path) -> bool {
        if !self.applies_to(tool) {
            return false;
        }
        let scope = match &self.scope {
            None => return !access.is_sensitive && access.scope != Scope::Unconfined,
            Some(GrantScope::Named(scope)) => scope.as_str(),
            Some(GrantScope::Pattern(_)) => return false,
        };
        if access.scope == Scope::Unconfined {
            return scope == UNCONFINED;
        }
        if access.is_sensitive {
            return normalize_lexically(&project.join(scope)) == Path::new(&access.target);
        }
        match &access.scope {
            Scope::Directory { path } => {
                let named = normalize_lexically(&project.join(scope));
                Path::new(path).starts_with(&named) || Path::new(&access.target) == named
            }
            Scope::Host { host } => matches_host(scope, host),
            Scope::Tool
            | Scope::Call
            | Scope::Unconfined
            | Scope::Command { .. }
            | Scope::CommandLine { .. } => false,
        }
    }
}

/// Returns the narrowest grants that would allow a call. Empty if no grant can, or if only a grant
/// for all commands would.
pub(crate) fn exact_grants(tool: &str, access: &AccessRequest) -> Vec<String> {
    match &access.scope {
        Scope::Unconfined => vec![format!("{tool}:{UNCONFINED}")],
        Scope::Command { .. } | Scope::CommandLine { .. } | Scope::Call if tool == BASH => {
            let patterns = exact_patterns(&access.target);
            let of_pattern = |pattern: String| format!("{tool}({pattern})");
            patterns.into_iter().flatten().map(of_pattern).collect()
        }
        Scope::Directory { .. } => vec![format!("{tool}:{}", access.target)],
        Scope::Host { host } => vec![format!("{tool}:{host}")],
        Scope::Call if access.is_sensitive => Vec::new(),
        Scope::Call | Scope::Tool | Scope::Command { .. } | Scope::CommandLine { .. } => {
            vec![tool.to_owned()]
        }
    }
}

/// Whether a name, which may end in `*`, matches a tool.
fn matches_name(name: &str, tool: &str) -> bool {
    match name.strip_suffix('*') {
        Some(prefix) => tool.starts_with(prefix),
        None => tool == name,
    }
}

/// Checks that a tool exists; the name may end in `*`. Names of MCP tools are accepted unchecked.
pub(crate) fn check_tool(name: &str, tools: &[String]) -> Result<(), GrantError> {
    if name.starts_with(MCP_PREFIX) || tools.iter().any(|tool| matches_name(name, tool)) {
        return Ok(());
    }
    let similar = suggestion::nearest(name, tools.iter().map(String::as_str));
    let suggestion = similar
        .map(|tool| format!(", did you mean {tool:?}?"))
        .unwrap_or_default();
    Err(GrantError::UnknownTool {
        tool: name.to_owned(),
        suggestion,
    })
}

/// Returns whether a host has the given name, or is a subdomain of it if the name starts with `*.`.
pub(crate) fn matches_host(named: &str, host: &str) -> bool {
    let named = named.to_ascii_lowercase();
    match named.strip_prefix("*.") {
        Some(above) => host
            .strip_suffix(above)
            .is_some_and(|below| below.ends_with('.')),
        None => named == host,
    }
}

/// Removes `.` and `..` from a path without accessing the file system.
fn normalize_lexically(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(target: &str, scope: Scope) -> AccessRequest {
        AccessRequest {
            scope,
            ..AccessRequest::whole_tool(target)
        }
    }

    fn directory(path: &str) -> AccessRequest {
        access(&format!("{path}/f"), Scope::Directory { path: path.into() })
    }

    #[test]
    fn grant_covers_only_matching_requests() {
        let host = |host: &str| access("u", Scope::Host { host: host.into() });
        let secret = AccessRequest {
            is_sensitive: true,
            ..access("/p/.env", Scope::Call)
        };
        let unconfined = AccessRequest {
            is_sensitive: true,
            ..access("cargo", Scope::Unconfined)
        };
        for (grant, tool, access, covered) in [
            ("write", "write", directory("/p/src"), true),
            ("write", "edit", directory("/p/src"), false),
            ("write:src", "write", directory("/p/src"), true),
            ("write:src", "write", directory("/p/src/deep"), true),
            ("write:src", "write", directory("/p/srcs"), false),
            ("write:src/../other", "write", directory("/p/src"), false),
            ("write:src/../other", "write", directory("/p/other"), true),
            ("write:.", "write", directory("/p"), true),
            ("write:/tmp/x", "write", directory("/tmp/x/y"), true),
            ("write", "write", secret.clone(), false),
            ("write:.", "write", secret.clone(), false),
            ("write:.env", "write", secret.clone(), true),
            ("write:.env", "read", secret, false),
            (
                "webfetch:example.org",
                "webfetch",
                host("example.org"),
                true,
            ),
            (
                "webfetch:Example.org",
                "webfetch",
                host("example.org"),
                true,
            ),
            (
                "webfetch:example.org",
                "webfetch",
                host("a.example.org"),
                false,
            ),
            (
                "webfetch:*.example.org",
                "webfetch",
                host("a.example.org"),
                true,
            ),
            (
                "webfetch:*.example.org",
                "webfetch",
                host("example.org"),
                false,
            ),
            (
                "webfetch:*.example.org",
                "webfetch",
                host("badexample.org"),
                false,
            ),
            ("bash", "bash", unconfined.clone(), false),
            ("bash:cargo", "bash", unconfined.clone(), false),
            ("bash:unconfined", "bash", unconfined.clone(), true),
            ("b*:unconfined", "bash", unconfined.clone(), true),
            ("write:unconfined", "bash", unconfined, false),
            (
                "mcp.files.*",
                "mcp.files.list",
                AccessRequest::whole_tool("x"),
                true,
            ),
            (
                "mcp.files.*",
                "mcp.other.list",
                AccessRequest::whole_tool("x"),
                false,
            ),
            (
                "mcp.files.list:x",
                "mcp.files.list",
                AccessRequest::whole_tool("x"),
                false,
            ),
        ] {
            let known = Grant::parse(grant).unwrap();
            assert_eq!(
                known.covers(tool, &access, Path::new("/p")),
                covered,
                "{grant} against {tool} {access:?}"
            );
        }
    }

    #[test]
    fn invalid_grant_is_rejected() {
        for text in [
            "",
            ":",
            "write:",
            ":src",
            "wri te",
            "*x",
            "a/b",
            "bash()",
            "bash(a $b)",
            "bash(a; b)",
            "write(a)",
        ] {
            assert!(Grant::parse(text).is_err(), "{text:?}");
        }
        assert!(Grant::parse("*").is_err(), "everything is no tool");
    }

    #[test]
    fn unknown_tool_is_reported_with_similar_name() {
        let tools = ["bash", "write", "webfetch"].map(str::to_owned);
        for (name, want) in [
            ("bash", None),
            ("web*", None),
            ("mcp.x.y", None),
            ("bsh", Some("did you mean \"bash\"?")),
            ("Write", Some("did you mean \"write\"?")),
            ("surely-not", Some("there is no tool \"surely-not\" (")),
            ("x*", Some("there is no tool \"x*\"")),
        ] {
            let found = check_tool(name, &tools)
                .err()
                .map(|error| error.to_string());
            assert_eq!(found.is_some(), want.is_some(), "{name}: {found:?}");
            assert!(
                found.unwrap_or_default().contains(want.unwrap_or_default()),
                "{name}"
            );
        }
    }

    #[test]
    fn grant_for_missing_mcp_tool_is_detected() {
        let tools = ["bash", "mcp.demo.add"].map(str::to_owned);
        for (grant, is_missing) in [
            ("mcp.demo.add", false),
            ("mcp.demo.*", false),
            ("mcp.demo.ad", true),
            ("mcp.demo.sub*", true),
            ("mcp.other.add", false),
            ("bash", false),
        ] {
            assert_eq!(
                Grant::parse(grant).unwrap().is_of_missing_mcp_tool(&tools),
                is_missing,
                "{grant}"
            );
        }
    }

    #[test]
    fn a_deny_rule_forbids_tools_directories_and_hosts() {
        let secret = AccessRequest {
            is_sensitive: true,
            ..access("/p/src/.env", Scope::Call)
        };
        for (rule, tool, access, is_denied) in [
            ("write", "write", directory("/p/src"), true),
            ("w*", "write", secret.clone(), true),
            ("write:src", "write", directory("/p/src/deep"), true),
            ("write:src", "write", secret, true),
            ("write:src", "write", directory("/p/other"), false),
            ("write:src", "edit", directory("/p/src"), false),
            (
                "webfetch:*.x.org",
                "webfetch",
                access(
                    "u",
                    Scope::Host {
                        host: "a.x.org".into(),
                    },
                ),
                true,
            ),
        ] {
            let rule = Grant::parse(rule).unwrap();
            assert_eq!(
                rule.denies(tool, &access, Path::new("/p")),
                is_denied,
                "{rule:?} {access:?}"
            );
        }
    }
}
