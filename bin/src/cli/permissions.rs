//! Options of `permissions`.

use clap::Subcommand;
use soong::protocol::PermissionMode;

use super::values::permission_mode;

/// Options of `permissions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Permissions {
    /// List the tool calls that wait for permission, oldest first
    #[command(after_help = "\
Examples:
  soong permissions list
  soong permissions list --all --json")]
    List {
        /// Also list requests that were decided or withdrawn
        #[arg(long)]
        all: bool,
    },
    /// Allow a tool call and resume its run
    #[command(after_help = "\
The decision covers only the listed call with its arguments. The first decision counts; a second one
is refused (already_decided, exit code 4). Without an owner process, a background process resumes
the run until it ends or waits again.

Examples:
  soong permissions allow ID
  soong permissions allow ID --session")]
    Allow {
        /// Id of the request, from `soong permissions list`
        id: String,
        /// Also allow similar calls in this session (the list shows which) until the owner process
        /// exits
        #[arg(long)]
        session: bool,
    },
    /// Deny a tool call and resume its run
    #[command(after_help = "\
Examples:
  soong permissions deny ID
  soong permissions deny ID --reason \"Ask the team first\"")]
    Deny {
        /// Id of the request, from `soong permissions list`
        id: String,
        /// Reason for the denial, which the agent reads
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Set the permission mode of an active run, from its next tool call on
    #[command(after_help = "\
The mode applies to the sub-agents of the run too. Later runs do not inherit it; set it with
--permission-mode or permissions.mode.

Examples:
  soong permissions mode plan ID
  soong permissions mode edits ID")]
    Mode {
        /// The mode: plan (refuse changes), ask, edits (allow writes in the project) or all
        #[arg(value_parser = permission_mode)]
        mode: PermissionMode,
        /// Session of the run
        session: String,
    },
}
