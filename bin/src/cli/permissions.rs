//! The options of `permissions`.

use clap::Subcommand;

/// Options of `permissions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Permissions {
    /// List the tool calls that wait for leave, the oldest first
    #[command(after_help = "\
Examples:
  soong permissions list
  soong permissions list --all --json")]
    List {
        /// Those that are decided or withdrawn, too
        #[arg(long)]
        all: bool,
    },
    /// Allow a call: its run goes on
    #[command(after_help = "\
The first decision counts; a second one is refused (already_decided, exit code 4). It holds for the
call as it is listed, with these arguments. Where nobody owns the home, a process in the background
takes the run up and works until it has ended, or asks again.

Examples:
  soong permissions allow ID
  soong permissions allow ID --session")]
    Allow {
        /// The permission, as `soong permissions list` shows it
        id: String,
        /// What is like it too, as the list says, until the process that owns the home ends
        #[arg(long)]
        session: bool,
    },
    /// Refuse a call: its run goes on without it
    #[command(after_help = "\
Examples:
  soong permissions deny ID
  soong permissions deny ID --reason \"Ask the team first\"")]
    Deny {
        /// The permission, as `soong permissions list` shows it
        id: String,
        /// Why; the agent reads it
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
}
