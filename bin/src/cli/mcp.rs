//! Options of `mcp`.

use clap::Subcommand;

/// Options of `mcp`.
#[derive(Debug, Subcommand)]
pub(crate) enum Mcp {
    /// List the MCP servers of config.toml without starting them
    List,
    /// Connect to each server and list its tools as agents see them
    #[command(after_help = "\
A server that is a program is started, asked, and ended again. What agents may do with its tools is
another matter: every call asks for permission. Exit codes: 0 all work, 1 at least one does not,
2 no server has that name, 130 interrupted.

Examples:
  soong mcp test
  soong mcp test files --json")]
    Test {
        /// Only this server: the NAME of its table [mcp.NAME]
        name: Option<String>,
    },
}
