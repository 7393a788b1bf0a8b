//! `soong mcp`: lists and tests the MCP servers of the configuration.
//!
//! Environment variables are shown by name and whether they are set, never by value.

use std::{collections::BTreeMap, time::Duration};

use futures::future::join_all;
use serde::Serialize;
use soong::{
    Config, Environment, ErrorCode, ErrorInfo,
    mcp::{self, Probe},
    protocol::{McpConfig, ToolEffect},
};
use soong_tui::{format, table::Column, text};

use super::block_on_multi_thread;
use crate::{
    cli,
    context::Context,
    exit::{Exit, Failure},
    interrupt::Interrupt,
    print, secret,
};

/// Message if no server is configured.
const NO_SERVERS: &str = "No MCP server is configured. Add one to config.toml:\n\n  [mcp.NAME]\n  command = \"PROGRAM\"   # or \
                    url = \"https://HOST/mcp\"";

/// Printed form of a server.
#[derive(Debug, Serialize)]
struct ServerRow {
    name: String,
    /// Absent for a server with a URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    command: Option<String>,
    args: Vec<String>,
    /// Absent for a server that is started as a program.
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    /// Environment variables that the server needs, and whether each is set.
    variables: BTreeMap<String, bool>,
    timeout_ms: u64,
    start_timeout_ms: u64,
    disabled_tools: Vec<String>,
    /// Absent with `--no-start`.
    #[serde(flatten)]
    status: Option<ServerStatus>,
}

/// Result of the test of a server.
#[derive(Debug, Serialize)]
struct ServerTest {
    name: String,
    #[serde(flatten)]
    status: ServerStatus,
}

/// Result of a connection to a server.
#[derive(Debug, Serialize)]
struct ServerStatus {
    is_usable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    took_ms: Option<u64>,
    tools: Vec<ToolRow>,
    /// Reasons why other tools of the server are not offered.
    left_out: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorInfo>,
    /// Advice on the error.
    #[serde(skip_serializing_if = "Option::is_none")]
    advice: Option<&'static str>,
}

/// A tool as agents see it.
#[derive(Debug, Serialize)]
struct ToolRow {
    name: String,
    title: String,
    effect: ToolEffect,
    description: String,
}

pub(super) fn mcp(context: &Context<'_>, options: &cli::Mcp) -> Result<Exit, Failure> {
    let config = context.settings()?.config;
    match options {
        cli::Mcp::List { no_start } => list(context, &config, *no_start),
        cli::Mcp::Test { name } => test(context, &config, name.as_deref()),
    }
}

fn list(context: &Context<'_>, config: &Config, no_start: bool) -> Result<Exit, Failure> {
    let mut shown: Vec<ServerRow> = config
        .mcp
        .iter()
        .map(|(name, server)| shown(name, server, &context.environment))
        .collect();
    if !no_start {
        let tested = probe_all(
            context,
            config,
            &config.mcp.iter().collect::<Vec<_>>(),
            |server| Duration::from_millis(server.start_timeout_ms),
        )?;
        for (row, ServerTest { status, .. }) in shown.iter_mut().zip(tested) {
            row.status = Some(status);
        }
    }
    if context.global.json {
        print::json(&shown)?;
        return Ok(Exit::Success);
    }
    if shown.is_empty() {
        print::line(NO_SERVERS)?;
        return Ok(Exit::Success);
    }
    let rows: Vec<Vec<String>> = shown.iter().map(row).collect();
    print::table(
        context.terminal,
        &[
            Column::whole("SERVER"),
            Column::text("STATUS", 12),
            Column::text("VARIABLES", 10).drops(2),
            Column::text("DISABLED TOOLS", 10).drops(1),
            Column::text("COMMAND OR URL", 16),
        ],
        &rows,
    )?;
    let tested = shown
        .iter()
        .filter_map(|row| Some((&row.name, row.status.as_ref()?)));
    for (name, status) in tested {
        print_failure(name, status)?;
        for why in &status.left_out {
            print::line(&format!("{name}: skipped: {}", text::safe_line(why)))?;
        }
    }
    Ok(Exit::Success)
}

fn shown(name: &str, server: &McpConfig, environment: &Environment) -> ServerRow {
    let variables = server.env.values().chain(server.header_env.values());
    ServerRow {
        name: name.to_owned(),
        command: server.command.clone(),
        args: server.args.clone(),
        url: server.url.as_deref().map(secret::hide_in_address),
        variables: variables
            .map(|name| (name.clone(), environment.get(name).is_some()))
            .collect(),
        timeout_ms: server.timeout_ms,
        start_timeout_ms: server.start_timeout_ms,
        disabled_tools: server.disabled_tools.clone(),
        status: None,
    }
}

fn row(shown: &ServerRow) -> Vec<String> {
    let or_none = |list: Vec<String>| {
        if list.is_empty() {
            "-".to_owned()
        } else {
            list.join(", ")
        }
    };
    let variable = |(name, is_set): (&String, &bool)| {
        format!("{name} ({})", if *is_set { "set" } else { "not set" })
    };
    let how = match (&shown.command, &shown.url) {
        (Some(command), _) => [std::slice::from_ref(command), &shown.args]
            .concat()
            .join(" "),
        (None, url) => url.clone().unwrap_or_default(),
    };
    vec![
        shown.name.clone(),
        shown
            .status
            .as_ref()
            .map_or_else(|| "-".to_owned(), short_status),
        or_none(shown.variables.iter().map(variable).collect()),
        or_none(shown.disabled_tools.clone()),
        how,
    ]
}

fn test(context: &Context<'_>, config: &Config, name: Option<&str>) -> Result<Exit, Failure> {
    if let Some(name) = name.filter(|name| !config.mcp.contains_key(*name)) {
        let known: Vec<&str> = config.mcp.keys().map(String::as_str).collect();
        let known = if known.is_empty() {
            "none".to_owned()
        } else {
            known.join(", ")
        };
        let what = format!("no MCP server {name:?} in the configuration; configured: {known}");
        return Err(Failure::usage(what, "See `soong mcp list`."));
    }
    let wanted: Vec<(&String, &McpConfig)> = config
        .mcp
        .iter()
        .filter(|(other, _)| name.is_none_or(|name| name == *other))
        .collect();
    if wanted.is_empty() && !context.global.json {
        print::line(NO_SERVERS)?;
        return Ok(Exit::Success);
    }
    let tested = probe_all(context, config, &wanted, |_| Duration::MAX)?;
    if context.global.json {
        print::json(&tested)?;
    } else {
        tested
            .iter()
            .try_for_each(|test| print_test(context, test))?;
    }
    let all_work = tested.iter().all(|tested| tested.status.is_usable);
    Ok(if all_work {
        Exit::Success
    } else {
        Exit::Failed
    })
}

fn short_status(status: &ServerStatus) -> String {
    if status.error.is_some() {
        return "failed".to_owned();
    }
    let tools = format::plural(status.tools.len(), "tool", "tools");
    if status.left_out.is_empty() {
        tools
    } else {
        format!("{tools}, {} skipped", status.left_out.len())
    }
}

/// Connects to servers at the same time, to each for at most `limit`. Results are in the order of
/// `servers`.
fn probe_all(
    context: &Context<'_>,
    config: &Config,
    servers: &[(&String, &McpConfig)],
    limit: impl Fn(&McpConfig) -> Duration,
) -> Result<Vec<ServerTest>, Failure> {
    block_on_multi_thread(async {
        let interrupt = Interrupt::listen();
        let each = servers.iter().map(|(name, server)| {
            let limit = limit(server);
            async move {
                let probed = mcp::probe(name, server, &config.tools, &context.environment);
                let probed = tokio::time::timeout(limit, probed)
                    .await
                    .unwrap_or_else(|_| {
                        let what = format!(
                            "it did not start within {} ms (mcp.{name}.start_timeout_ms)",
                            limit.as_millis()
                        );
                        Err(ErrorInfo::new(ErrorCode::Timeout, what))
                    });
                ServerTest {
                    name: (*name).clone(),
                    status: status(probed),
                }
            }
        });
        tokio::select! {
            tested = join_all(each) => Ok(tested),
            () = interrupt.first() => Err(Failure::new(Exit::Interrupted, "the test was cancelled", "")),
        }
    })
}

fn status(probed: Result<Probe, ErrorInfo>) -> ServerStatus {
    match probed {
        Ok(probe) => {
            let tool = |listed: mcp::ListedTool| ToolRow {
                name: without_secrets(&listed.spec.name),
                title: without_secrets(&listed.spec.title),
                effect: listed.spec.effect,
                description: without_secrets(&listed.spec.description),
            };
            let tools = probe.tools.into_iter().map(tool).collect();
            let left_out = probe
                .left_out
                .iter()
                .map(|why| without_secrets(why))
                .collect();
            let took_ms = Some(probe.took_ms);
            ServerStatus {
                is_usable: true,
                took_ms,
                tools,
                left_out,
                error: None,
                advice: None,
            }
        }
        Err(error) => ServerStatus {
            is_usable: false,
            took_ms: None,
            tools: Vec::new(),
            left_out: Vec::new(),
            advice: Some(advice(error.code)),
            error: Some(ErrorInfo {
                message: without_secrets(&error.message),
                ..error
            }),
        },
    }
}

/// Redacts secrets: a server knows the secrets that it was given and may repeat them.
fn without_secrets(text: &str) -> String {
    secret::redacted(text).into_owned()
}

/// Prints why a server does not work, with advice. Prints nothing if it works.
fn print_failure(name: &str, status: &ServerStatus) -> Result<(), Failure> {
    let Some(error) = &status.error else {
        return Ok(());
    };
    print::line(&format!(
        "{name}: failed: {}",
        text::safe_line(&error.message)
    ))?;
    print::line(&format!("  {}", status.advice.unwrap_or_default()))
}

fn print_test(
    context: &Context<'_>,
    ServerTest { name, status }: &ServerTest,
) -> Result<(), Failure> {
    if status.error.is_some() {
        print_failure(name, status)?;
        return print::line("");
    }
    let tools = format::plural(status.tools.len(), "tool", "tools");
    print::line(&format!(
        "{name}: {tools}, took {}",
        format::duration(status.took_ms.unwrap_or_default())
    ))?;
    let row = |tool: &ToolRow| {
        let effect = match tool.effect {
            ToolEffect::Read => "read-only (declared)",
            ToolEffect::Write | ToolEffect::Dangerous => "dangerous",
        };
        vec![
            tool.name.clone(),
            effect.to_owned(),
            first_line(&tool.description).to_owned(),
        ]
    };
    if !status.tools.is_empty() {
        print::table(
            context.terminal,
            &[
                Column::whole("TOOL"),
                Column::whole("EFFECT").drops(1),
                Column::text("DESCRIPTION", 16),
            ],
            &status.tools.iter().map(row).collect::<Vec<_>>(),
        )?;
    }
    for why in &status.left_out {
        print::line(&format!("skipped: {}", text::safe_line(why)))?;
    }
    print::line("")
}

/// Returns advice for a server that does not work.
pub(super) fn advice(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::ConfigError => {
            "Correct its table in config.toml, or set the missing variable; see `soong mcp list`."
        }
        ErrorCode::Timeout => {
            "Start it manually to see what it waits for, or raise its start_timeout_ms and timeout_ms."
        }
        _ => {
            "Start it manually to see its output; check its arguments or URL, its variables and the network."
        }
    }
}

fn first_line(text: &str) -> &str {
    let line = text.lines().next().unwrap_or_default();
    line.find(". ").map_or(line, |end| &line[..=end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_show_address_and_missing_variables() {
        let text = "[mcp.files]\ncommand = \"npx\"\nargs = [\"-y\", \"server\"]\nenv = { TOKEN = \"FILES_TOKEN\" }\n\
                    disabled_tools = [\"delete\"]\n[mcp.web]\nurl = \"https://me:s3cret@h/mcp\"\n\
                    header_env = { Authorization = \"WEB_AUTH\" }\n";
        let environment = Environment::of([("WEB_AUTH", "s3cret")]);
        let config = Config::parse("c", text).unwrap();
        let rows: Vec<String> = config
            .mcp
            .iter()
            .map(|(name, server)| row(&shown(name, server, &environment)).join(" | "))
            .collect();
        assert_eq!(
            rows,
            [
                "files | - | FILES_TOKEN (not set) | delete | npx -y server",
                "web | - | WEB_AUTH (set) | - | https://[hidden]@h/mcp",
            ]
        );
    }
}
