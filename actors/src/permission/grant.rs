//! Grants: what may be done without asking, as configuration and command line write it.
//!
//! `TOOL` covers every call of a tool, `TOOL:SCOPE` those within a directory, at a host, or of a program. A tool's name
//! may end in `*`. `TOOL:unconfined` covers calls that act where nothing confines them, and nothing else does. Pure.

use std::path::{Component, Path, PathBuf};

use soong_protocol::{Demand, Scope};

/// What a grant says that is meant for calls that nothing confines.
pub(crate) const UNCONFINED: &str = "unconfined";

/// Leave that was given before anybody asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    tool: String,
    scope: Option<String>,
}

/// Why a text is no grant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} allows nothing: write TOOL or TOOL:SCOPE, such as `write:src`, `bash:cargo`, `webfetch:example.org`")]
pub struct GrantError(String);

impl Grant {
    /// Reads a grant.
    ///
    /// # Errors
    /// Where there is no tool, or nothing behind the colon.
    pub fn parse(text: &str) -> Result<Self, GrantError> {
        let (tool, scope) = match text.split_once(':') {
            Some((tool, scope)) => (tool.trim(), Some(scope.trim())),
            None => (text.trim(), None),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name = tool.strip_suffix('*').unwrap_or(tool);
        if name.is_empty() || !name.chars().all(is_name) || scope == Some("") {
            return Err(GrantError(text.to_owned()));
        }
        Ok(Self { tool: tool.to_owned(), scope: scope.map(str::to_owned) })
    }

    /// Returns whether a call needs no further leave. Relative directories are meant within the project.
    ///
    /// What is sensitive is covered only by a grant whose scope is the path itself.
    pub(crate) fn covers(&self, tool: &str, demand: &Demand, project: &Path) -> bool {
        let is_tool = match self.tool.strip_suffix('*') {
            Some(prefix) => tool.starts_with(prefix),
            None => tool == self.tool,
        };
        if !is_tool {
            return false;
        }
        if demand.scope == Scope::Unconfined {
            return self.scope.as_deref() == Some(UNCONFINED);
        }
        let Some(scope) = self.scope.as_deref() else { return !demand.is_sensitive };
        if demand.is_sensitive {
            return plain(&project.join(scope)) == Path::new(&demand.target);
        }
        match &demand.scope {
            Scope::Directory { path } => Path::new(path).starts_with(plain(&project.join(scope))),
            Scope::Host { host } => is_host(scope, host),
            Scope::Command { executable, .. } => executable == scope,
            Scope::Tool | Scope::Call | Scope::Unconfined => false,
        }
    }
}

/// Returns whether a host is the one that is named, or below it where `*.` stands in front.
pub(crate) fn is_host(named: &str, host: &str) -> bool {
    let named = named.to_ascii_lowercase();
    match named.strip_prefix("*.") {
        Some(above) => host.strip_suffix(above).is_some_and(|below| below.ends_with('.')),
        None => named == host,
    }
}

/// Takes `.` and `..` out of a path, by its words alone.
fn plain(path: &Path) -> PathBuf {
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

    fn demand(target: &str, scope: Scope) -> Demand {
        Demand { scope, ..Demand::tool(target) }
    }

    fn directory(path: &str) -> Demand {
        demand(&format!("{path}/f"), Scope::Directory { path: path.into() })
    }

    #[test]
    fn perm_1_a_grant_covers_what_it_says_and_nothing_else() {
        let host = |host: &str| demand("u", Scope::Host { host: host.into() });
        let command = |executable: &str| {
            let (executable, directory) = (executable.to_owned(), "/p".to_owned());
            demand("c", Scope::Command { executable, directory })
        };
        let secret = Demand { is_sensitive: true, ..demand("/p/.env", Scope::Call) };
        let unconfined = Demand { is_sensitive: true, ..demand("cargo", Scope::Unconfined) };
        for (grant, tool, demand, covered) in [
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
            ("webfetch:example.org", "webfetch", host("example.org"), true),
            ("webfetch:Example.org", "webfetch", host("example.org"), true),
            ("webfetch:example.org", "webfetch", host("a.example.org"), false),
            ("webfetch:*.example.org", "webfetch", host("a.example.org"), true),
            ("webfetch:*.example.org", "webfetch", host("example.org"), false),
            ("webfetch:*.example.org", "webfetch", host("badexample.org"), false),
            ("bash:cargo", "bash", command("cargo"), true),
            ("bash:cargo", "bash", command("cargo-x"), false),
            ("bash:cargo", "bash", demand("cargo x; rm y", Scope::Call), false),
            ("bash", "bash", demand("cargo x; rm y", Scope::Call), true),
            ("bash", "bash", unconfined.clone(), false),
            ("bash:cargo", "bash", unconfined.clone(), false),
            ("bash:unconfined", "bash", unconfined.clone(), true),
            ("b*:unconfined", "bash", unconfined.clone(), true),
            ("write:unconfined", "bash", unconfined, false),
            ("bash:unconfined", "bash", command("cargo"), false),
            ("bash:unconfined", "bash", demand("cargo x; rm y", Scope::Call), false),
            ("mcp.files.*", "mcp.files.list", Demand::tool("x"), true),
            ("mcp.files.*", "mcp.other.list", Demand::tool("x"), false),
            ("mcp.files.list:x", "mcp.files.list", Demand::tool("x"), false),
        ] {
            let known = Grant::parse(grant).unwrap();
            assert_eq!(known.covers(tool, &demand, Path::new("/p")), covered, "{grant} against {tool} {demand:?}");
        }
    }

    #[test]
    fn what_allows_nothing_is_refused() {
        for text in ["", ":", "write:", ":src", "wri te", "*x", "a/b"] {
            assert!(Grant::parse(text).is_err(), "{text:?}");
        }
        assert!(Grant::parse("*").is_err(), "everything is no tool");
    }
}
