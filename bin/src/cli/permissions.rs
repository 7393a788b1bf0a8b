//! Options of `permissions`.

use clap::Subcommand;

/// Options of `permissions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Permissions {
    /// List the tool calls that wait for permission, oldest first
    #[command(after_help = "\
Examples:
  soong permissions list
  soong permissions list --all --json")]
    List {
        /// Also list permissions that were decided or withdrawn
        #[arg(long)]
        all: bool,
    },
    /// Allow a tool call and resume its run
    #[command(after_help = "\
The first decision counts; a second one is refused (already_decided, exit code 4). It holds for the
call as it is listed, with these arguments. Where nobody owns the home, a process in the background
takes the run up and works until it has ended, or asks again.

Examples:
  soong permissions allow ID
  soong permissions allow ID --session")]
    Allow {
        /// Id of the permission, as `soong permissions list` shows it
        id: String,
        /// Also allow similar calls in this session (scope as listed), until the owner process exits
        #[arg(long)]
        session: bool,
    },
    /// Deny a tool call; its run resumes without it
    #[command(after_help = "\
Examples:
  soong permissions deny ID
  soong permissions deny ID --reason \"Ask the team first\"")]
    Deny {
        /// Id of the permission, as `soong permissions list` shows it
        id: String,
        /// Reason for the denial; the agent reads it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}
