//! Options of `sessions`.

use std::time::Duration;

use clap::Subcommand;

use super::{duration, number_parser};

/// Options of `sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List sessions, newest first
    List,
    /// Show a session: its traces and artifacts
    #[command(after_help = "\
Examples:
  soong sessions show ID")]
    Show {
        /// Id of the session, as `soong sessions list` shows it
        id: String,
    },
    /// Copy a session to a new one, up to one of its messages
    #[command(after_help = "\
The copy has the messages up to SEQ with their numbers (where that one makes or answers tool calls,
up to their last result), the goals, and the session's artifacts as they were then; sub-traces are
linked. Without --at it is all of it, as it is now. The source does not change, and may be at work:
what waits or runs there does not come along. `soong traces messages ID --all` shows the numbers.

Examples:
  soong sessions fork ID
  soong sessions fork ID --at 5 --session other --name \"Another way\"")]
    Fork {
        /// Id of the session, as `soong sessions list` shows it
        id: String,
        /// Last message to copy, on the main path or off it [default: the head]
        #[arg(long, value_name = "SEQ", value_parser = number_parser::<u64>(0..=u64::MAX))]
        at: Option<u64>,
        /// Id of the copy [default: a new id]
        #[arg(long = "session", value_name = "NEWID")]
        session_id: Option<String>,
        /// Display name of the copy [default: the name of the source]
        #[arg(long)]
        name: Option<String>,
    },
    /// Continue a session from another message, which may be off its main path
    #[command(after_help = "\
Goals and documents are as they were at that message; what somebody else has changed since stays as
it is. Nothing is lost: what came behind stays, off the path, and one can switch back to it. A
session that is at work is refused (exit code 4). No run is started.

Examples:
  soong sessions switch ID 5
  soong run --session ID \"Rather in French\"")]
    Switch {
        /// Id of the session, as `soong sessions list` shows it
        id: String,
        /// Number of the message, as `soong traces messages ID --all` shows it
        #[arg(value_name = "SEQ", value_parser = number_parser::<u64>(0..=u64::MAX))]
        sequence: u64,
    },
    /// Delete a session: its traces, messages, events and artifacts
    #[command(after_help = "\
What belongs to the user stays (artifacts under `user:`, also those that its runs made), and so do
files in projects. A session that is at work is refused (exit code 4); one whose files cannot be
removed stays as it is. There is no way back.

Examples:
  soong sessions delete ID")]
    Delete {
        /// Id of the session, as `soong sessions list` shows it
        id: String,
    },
    /// List the sessions that have been inactive for a given time, and delete them with --yes
    #[command(after_help = "\
Each goes as `sessions delete` would have it. One that is at work stays, and so does one in which
something happens meanwhile. Where one cannot be deleted, the others go on (exit code 1).

Examples:
  soong sessions cleanup --older-than 30d
  soong sessions cleanup --older-than 30d --yes")]
    Cleanup {
        /// Minimum time without activity: 90s, 30m, 2h, 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Duration,
        /// Delete the listed sessions
        #[arg(long)]
        yes: bool,
    },
}
