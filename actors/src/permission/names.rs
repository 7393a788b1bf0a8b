//! Checks that the tools named in the configuration exist.
//!
//! MCP tools are known only after their server has started, so an unknown MCP tool causes only a
//! warning in the log at that time.

use soong_protocol::{Config, McpConfig};

use super::grant::{Grant, GrantError, check_tool};

/// Returns the errors in the tool names of a configuration, each with its configuration key. Names
/// of MCP tools are not checked.
pub fn unknown_tools(config: &Config, tools: &[String]) -> Vec<String> {
    let unknown = |(key, name): (String, Result<String, GrantError>)| {
        let checked = name.and_then(|name| check_tool(&name, tools));
        checked.err().map(|error| format!("{key}: {error}"))
    };
    configured_names(config).filter_map(unknown).collect()
}

/// Returns the configured tool names of an MCP server that the server does not offer. `tools` are
/// the offered ones.
#[cfg_attr(
    not(feature = "mcp"),
    allow(dead_code, reason = "no server is ever started")
)]
pub(crate) fn missing_mcp_tools(config: &Config, server: &str, tools: &[String]) -> Vec<String> {
    let missing = |(key, name): (String, Result<String, GrantError>)| {
        let name = name
            .ok()
            .filter(|name| McpConfig::server_of(name) == Some(server))?;
        let is_there = tools.iter().any(|tool| match name.strip_suffix('*') {
            Some(beginning) => tool.starts_with(beginning),
            None => *tool == name,
        });
        (!is_there).then(|| format!("{key}: {name}"))
    };
    configured_names(config).filter_map(missing).collect()
}

/// Lists all tool names of the configuration, each with its key.
fn configured_names(config: &Config) -> impl Iterator<Item = (String, Result<String, GrantError>)> {
    let of_grants =
        |key: &'static str, texts: &'_ [String]| -> Vec<(String, Result<String, GrantError>)> {
            let tool = |text: &String| Grant::parse(text).map(|grant| grant.tool().to_owned());
            texts
                .iter()
                .map(|text| (key.to_owned(), tool(text)))
                .collect()
        };
    let plain = |key: String, names: &'_ [String]| -> Vec<(String, Result<String, GrantError>)> {
        names
            .iter()
            .map(|name| (key.clone(), Ok(name.clone())))
            .collect()
    };
    let mut all = of_grants("permissions.allow", &config.permissions.allow);
    all.extend(of_grants("permissions.deny", &config.permissions.deny));
    all.extend(plain("tools.disabled".to_owned(), &config.tools.disabled));
    for (name, preset) in &config.presets {
        let allowed = preset.allowed_tools.as_deref().unwrap_or_default();
        all.extend(plain(format!("presets.{name}.allowed_tools"), allowed));
        all.extend(plain(
            format!("presets.{name}.denied_tools"),
            &preset.denied_tools,
        ));
    }
    all.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn unknown_tool_names_are_reported_with_their_setting() {
        let config = Config::parse(
            "c",
            "[tools]\ndisabled = [\"grep\", \"grepp\", \"mcp.demo.x\"]\n\
             [permissions]\nallow = [\"bash(git status)\", \"wirte:src\", \"mcp.demo.*\"]\ndeny = [\"raed\"]\n\
             [presets.p]\nallowed_tools = [\"read\", \"raed\"]\ndenied_tools = [\"zzzzzz\"]\n",
        )
        .unwrap();
        let found = unknown_tools(&config, &texts(&["bash", "grep", "read", "write"]));
        let starts = [
            "permissions.allow: there is no tool \"wirte\", did you mean \"write\"?",
            "permissions.deny: there is no tool \"raed\", did you mean \"read\"?",
            "tools.disabled: there is no tool \"grepp\", did you mean \"grep\"?",
            "presets.p.allowed_tools: there is no tool \"raed\"",
            "presets.p.denied_tools: there is no tool \"zzzzzz\" (",
        ];
        assert_eq!(found.len(), starts.len(), "{found:#?}");
        assert!(
            found
                .iter()
                .zip(starts)
                .all(|(found, start)| found.starts_with(start)),
            "{found:#?}"
        );
        assert_eq!(
            missing_mcp_tools(&config, "demo", &texts(&["mcp.demo.add"])),
            ["tools.disabled: mcp.demo.x"]
        );
        assert_eq!(missing_mcp_tools(&config, "demo", &[]).len(), 2);
        assert!(missing_mcp_tools(&config, "other", &[]).is_empty());
    }
}
