//! Options of `mcp`.

use clap::Subcommand;

/// Options of `mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the MCP servers in config.toml and whether each works
    #[command(after_help = "\
Each server is connected to, for at most its start_timeout_ms, and ended afterwards if it is a
program. Tools that it has and that agents are not offered are listed with the reason.
`soong mcp test` lists all tools.

Examples:
  soong mcp list
  soong mcp list --no-start --json")]
    List {
        /// Show the configuration only, without connecting to any server
        #[arg(long)]
        no_start: bool,
    },
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
