//! Options of `mcp`.

use clap::Subcommand;

/// Options of `mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the MCP servers in config.toml without starting them
    List,
    /// Connect to each server and list the tools that it offers to agents
    #[command(after_help = "\
A server that is a program is started for the test, and ended afterwards. The test permits nothing:
calls of agents still require permission. Exit codes: 0 all servers work, 1 at least one does not
work, 2 no server has this name, 130 interrupted.

Examples:
  soong mcp test
  soong mcp test files --json")]
    Test {
        /// Name of the server, from [mcp.NAME] in config.toml [default: all servers]
        name: Option<String>,
    },
}
