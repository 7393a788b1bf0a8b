//! Target of a connection to a server: the program and its environment variables, or the URL and
//! the headers of its requests.
//!
//! This module performs no I/O. The configuration names the environment variables that hold
//! credentials; their values are looked up here. If a variable is not set, the error names the
//! variable, the server and the configuration key.
//!
//! Invariant: a server program gets only variables that the configuration names, in
//! `mcp.SERVER.env` or in `tools.env_allowlist`.

use std::{collections::HashMap, str::FromStr};

use reqwest::{
    Url,
    header::{HeaderName, HeaderValue},
};
use soong_protocol::{ErrorCode, ErrorInfo, McpConfig, ToolsConfig};
use soong_text::Environment;

/// How to reach a server, with all values looked up.
pub(super) enum Target {
    /// Program to start as a child process, which communicates over stdin and stdout.
    Program {
        command: String,
        args: Vec<String>,
        /// Names and values of the environment variables of the program.
        variables: Vec<(String, String)>,
    },
    /// Server that is reached over HTTP.
    Http {
        url: Url,
        headers: HashMap<HeaderName, HeaderValue>,
    },
}

impl Target {
    /// Looks up the values of all variables, and checks the URL and the headers. Errors name the
    /// configuration key.
    pub(super) fn resolve(
        server: &str,
        config: &McpConfig,
        tools: &ToolsConfig,
        environment: &Environment,
    ) -> Result<Self, ErrorInfo> {
        let refuse = |message: String| ErrorInfo::new(ErrorCode::ConfigError, message);
        let lookup = |table: &str, name: &str, variable: &str| {
            environment.get(variable).map(str::to_owned).ok_or_else(|| {
                refuse(format!(
                    "the environment variable {variable} (mcp.{server}.{table}.{name}) is not set: set \
                     it, or change that key"
                ))
            })
        };
        match (&config.command, &config.url) {
            (Some(command), _) => {
                let allowed = tools.env_allowlist.iter();
                let mut variables: Vec<(String, String)> = allowed
                    .filter_map(|name| Some((name.clone(), environment.get(name)?.to_owned())))
                    .collect();
                for (name, variable) in &config.env {
                    let value = lookup("env", name, variable)?;
                    // A variable of the server replaces one of the allowlist.
                    variables.retain(|(other, _)| other != name);
                    variables.push((name.clone(), value));
                }
                Ok(Self::Program {
                    command: command.clone(),
                    args: config.args.clone(),
                    variables,
                })
            }
            (None, Some(url)) => {
                let address = Url::parse(url).ok();
                let url = address.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host()).ok_or_else(
                    // The URL is not repeated, because it may contain a password.
                    || {
                        refuse(format!(
                            "mcp.{server}.url is not an http or https URL: use one such as https://host/mcp"
                        ))
                    },
                )?;
                let mut headers = HashMap::new();
                for (name, variable) in &config.header_env {
                    let value = lookup("header_env", name, variable)?;
                    let header = HeaderName::from_str(name).map_err(|_| {
                        refuse(format!(
                            "mcp.{server}.header_env: {name:?} is not a valid header name"
                        ))
                    })?;
                    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| {
                        refuse(format!(
                            "the environment variable {variable} (mcp.{server}.header_env.{name}) contains characters that \
                             are not allowed in a header: set another value"
                        ))
                    })?;
                    value.set_sensitive(true);
                    headers.insert(header, value);
                }
                Ok(Self::Http { url, headers })
            }
            (None, None) => Err(refuse(format!(
                "mcp.{server} has neither command nor url: set one of them"
            ))),
        }
    }
}
