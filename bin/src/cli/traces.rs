//! Options of `traces`.

use std::path::PathBuf;

use clap::Subcommand;

use super::number_parser;

/// Options of `traces`.
#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// List traces, newest first
    List,
    /// Show a trace: its goals and sub-traces
    #[command(after_help = "\
Examples:
  soong traces show ID")]
    Show {
        /// Id of the trace; a session id means its main trace
        id: String,
    },
    /// Print the messages of a trace with their numbers
    #[command(after_help = "\
The numbers are those that `run --after`, `sessions switch` and `sessions fork --at` take. The head
is where the conversation goes on. With --all, what is not on the main path is there too, and says
so: messages that somebody went back behind, and those that a summary stands for.

Examples:
  soong traces messages ID
  soong traces messages ID --all
  soong traces messages ID --json")]
    Messages {
        /// Id of the trace; a session id means its main trace
        id: String,
        /// Also print messages that are off the main path
        #[arg(long)]
        all: bool,
    },
    /// Print the events of a trace; with --json one per line
    #[command(after_help = "\
Each event has a number, its id, from 1 on without gaps. With --follow, events of a run that is at
work in another terminal come as they happen; if its process dies, that is said (exit code 1).

Examples:
  soong traces events ID
  soong traces events ID --follow --json
  soong traces events ID --since 41")]
    Events {
        /// Id of the trace; a session id means its main trace
        id: String,
        /// Only events after this event id
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = number_parser::<u64>(0..=u64::MAX))]
        since: u64,
        /// Keep printing new events until the trace's last run has ended; Ctrl-C stops
        #[arg(long)]
        follow: bool,
    },
    /// Stop the active run of a trace and all its sub-agents
    #[command(after_help = "\
The command returns when the run has ended. Where nothing is at work, it is refused (exit code 4).

Examples:
  soong traces stop ID")]
    Stop {
        /// Id of the trace; for the trace of a sub-agent, stop only that sub-agent and its descendants
        id: String,
    },
    /// Review a session and record what it teaches as experiences for later runs
    #[command(after_help = "\
A model is shown the conversation, and asked what later work can use; that is added to the
experiences, and those that the conversation was told are counted for or against. It happens on a
side branch: the conversation goes on where it was. Refused while a run of the session has not
ended (exit code 4). The model is that of context.utility_profile, else the one of the last run.

Examples:
  soong traces reflect ID
  soong traces reflect ID --focus \"how the tests were run\"")]
    Reflect {
        /// Id of the session, which is that of its main trace
        id: String,
        /// Topic to focus on
        #[arg(long, value_name = "TEXT")]
        focus: Option<String>,
    },
    /// Export a trace and its sub-traces to files that can be read without soong
    #[command(after_help = "\
DIR gets a folder for the trace and one for each sub-trace, by its id: meta.json (its record, its
runs, which messages are on the main path), goal.json, events.jsonl (an event a line, as
`traces events --json` prints them) and messages/NNNN.json, those off the main path too. Artifacts
are not among it: `soong artifacts get` writes them.

DIR is whole or not there. It is refused unless it is empty or not there (exit code 4).

Examples:
  soong traces export ID review")]
    Export {
        /// Id of the trace; a session id means its main trace
        id: String,
        /// Folder to write to
        dir: PathBuf,
    },
}
