//! Options of `sessions`.

use std::time::Duration;

use clap::Subcommand;

use super::{ColumnsArg, duration, number_parser};

/// Options of `sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Sessions {
    /// List sessions, newest first
    #[command(after_help = "\
Examples:
  soong sessions list
  soong sessions list --all")]
    List {
        /// Also list single calls (`soong call`)
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        columns: ColumnsArg,
    },
    /// Show a session: its traces and artifacts
    #[command(after_help = "\
Examples:
  soong sessions show ID")]
    Show {
        /// Session: its id or slug, last, -, @N, or the beginning or end of its id or slug
        #[arg(value_name = "SESSION")]
        id: String,
    },
    /// Copy a session to a new one, completely or up to a message
    #[command(after_help = "\
The copy has the messages up to SEQ with the same numbers, and the goals and artifacts as they were
then. If message SEQ makes or answers tool calls, the copy includes all their results. Without --at,
the current state is copied. The source does not change, and may have an active run; queued and
active runs are not copied. The traces of sub-agents are linked, not copied.
`soong traces messages ID --all` shows the numbers.

Examples:
  soong sessions fork ID
  soong sessions fork ID --at 5 --session other --name \"Another way\"")]
    Fork {
        /// Session: its id or slug, last, -, @N, or the beginning or end of its id or slug
        #[arg(value_name = "SESSION")]
        id: String,
        /// Last message to copy, on or off the main path [default: where the session continues]
        #[arg(long, value_name = "SEQ", value_parser = number_parser::<u64>(0..=u64::MAX))]
        at: Option<u64>,
        /// Id of the copy [default: a new id]
        #[arg(long = "session", value_name = "NEWID")]
        session_id: Option<String>,
        /// Display name of the copy [default: the name of the source]
        #[arg(long)]
        name: Option<String>,
    },
    /// Set the message from which a session continues, without starting a run
    #[command(after_help = "\
Goals and documents return to their state at that message. Documents that were changed from outside
of the conversation since then stay unchanged. Later messages are kept, off the main path, and you
can switch back to them. A session with an active or queued run is refused (exit code 4).

Examples:
  soong sessions switch ID 5
  soong run --session ID \"In French, please\"")]
    Switch {
        /// Session: its id or slug, last, -, @N, or the beginning or end of its id or slug
        #[arg(value_name = "SESSION")]
        id: String,
        /// Number of the message, from `soong traces messages ID --all`
        #[arg(value_name = "SEQ", value_parser = number_parser::<u64>(0..=u64::MAX))]
        sequence: u64,
    },
    /// Delete a session: its traces, messages, events and artifacts
    #[command(after_help = "\
Artifacts of the user (`user:NAME`) are kept, even if a run of the session made them, and so are
files in projects. A session with an unfinished run is refused (exit code 4). If the files of a
session cannot be removed, it is not changed. A deleted session cannot be restored.

Examples:
  soong sessions delete ID")]
    Delete {
        /// Session: its id or slug, last, -, @N, or the beginning or end of its id or slug
        #[arg(value_name = "SESSION")]
        id: String,
    },
    /// List the sessions that have been inactive for a given time, and delete them with --yes
    #[command(after_help = "\
With --yes, deletes each listed session like `sessions delete`. Sessions with an unfinished run, or
with new activity in the meantime, are skipped. If a session cannot be deleted, the command
continues with the others (exit code 1).

Examples:
  soong sessions cleanup --older-than 30d
  soong sessions cleanup --older-than 30d --yes")]
    Cleanup {
        /// Minimum time without activity, such as 90s, 30m, 2h or 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Duration,
        /// Delete the listed sessions
        #[arg(long)]
        yes: bool,
    },
}
