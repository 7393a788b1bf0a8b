//! Options of `traces`.

use std::path::PathBuf;

use clap::Subcommand;

use super::{ColumnsArg, number_parser};

/// Options of `traces`.
#[derive(Debug, Subcommand)]
pub(crate) enum Traces {
    /// List the traces of all agents, newest first
    #[command(after_help = "\
Examples:
  soong traces list
  soong traces list --all")]
    List {
        /// Also list single calls (`soong call`)
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        columns: ColumnsArg,
    },
    /// Show a trace: its result, goals and sub-agents
    #[command(after_help = "\
Examples:
  soong traces show ID")]
    Show {
        /// Trace: its id, a session (last, @N, …) for its main trace, or SESSION#N for a sub-agent
        #[arg(value_name = "TRACE")]
        id: String,
    },
    /// Print the messages of a trace with their numbers
    #[command(after_help = "\
`run --after`, `sessions switch` and `sessions fork --at` take these numbers. The head is the
message after which the conversation continues. With --all, messages that are not part of the
current conversation are printed and marked too: earlier branches, and messages replaced by a
summary. A terminal shows only the beginning of system prompts; a pipe and --json get all of them.

Examples:
  soong traces messages ID
  soong traces messages ID --last 4
  soong traces messages ID --all
  soong traces messages ID --json")]
    Messages {
        /// Trace: its id, a session (last, @N, …) for its main trace, or SESSION#N for a sub-agent
        #[arg(value_name = "TRACE")]
        id: String,
        /// Also print messages that are off the main path
        #[arg(long)]
        all: bool,
        /// Only the last N messages
        #[arg(long, value_name = "N", value_parser = number_parser::<usize>(1..=u64::MAX))]
        last: Option<usize>,
    },
    /// Print the events of a trace as sentences; with --json one JSON record per line
    #[command(after_help = "\
Events are numbered from 1, without gaps. With --follow, new events are printed as they happen, also
if the run is active in another terminal; if its process dies, the command fails (exit code 1).

Examples:
  soong traces events ID
  soong traces events ID --follow --json
  soong traces events ID --since 41")]
    Events {
        /// Trace: its id, a session (last, @N, …) for its main trace, or SESSION#N for a sub-agent
        #[arg(value_name = "TRACE")]
        id: String,
        /// Only events after the event with this number
        #[arg(long, value_name = "N", default_value_t = 0, value_parser = number_parser::<u64>(0..=u64::MAX))]
        since: u64,
        /// Print new events too, until the last run of the trace has ended or you press Ctrl-C
        #[arg(long)]
        follow: bool,
    },
    /// Stop the active run of a trace and all its sub-agents
    #[command(after_help = "\
Returns when the run has ended. If there is no run to stop, the exit code is 4.

Examples:
  soong traces stop ID")]
    Stop {
        /// Trace: its id, a session, or SESSION#N, which stops only that sub-agent and its
        /// descendants
        #[arg(value_name = "TRACE")]
        id: String,
    },
    /// Review a session and record experiences for later runs
    #[command(after_help = "\
A model reads the conversation and returns lessons for later work, which are added to the
experiences. It also rates the experiences that the conversation used. The conversation does not
change. A session with an unfinished run is refused (exit code 4). The model is that of
context.utility_profile, else that of the last run.

Examples:
  soong traces reflect ID
  soong traces reflect ID --focus \"how the tests were run\"")]
    Reflect {
        /// Trace: its id, a session (last, @N, …) for its main trace, or SESSION#N for a sub-agent
        #[arg(value_name = "TRACE")]
        id: String,
        /// Topic to focus on
        #[arg(long, value_name = "TEXT")]
        focus: Option<String>,
    },
    /// Export a trace and its sub-traces to files that can be read without soong
    #[command(after_help = "\
DIR gets one folder for the trace and one for each sub-trace, named by id: meta.json (properties,
runs and main path), goal.json, events.jsonl (one event per line, as in `traces events --json`) and
messages/TRACE-NNNN.json (all messages, also off the main path). Artifacts are not exported; use
`soong artifacts get`.

DIR must be empty or missing (otherwise exit code 4). It appears when the export is complete.

--html writes one page instead, with the tree, a timeline, the cost, and the messages and tool calls
of each agent. It needs no other file and no script. An existing FILE is replaced.

Examples:
  soong traces export ID review
  soong traces export ID --html review.html")]
    Export {
        /// Trace: its id, a session (last, @N, …) for its main trace, or SESSION#N for a sub-agent
        #[arg(value_name = "TRACE")]
        id: String,
        /// Folder to write to
        #[arg(required_unless_present = "html", conflicts_with = "html")]
        dir: Option<PathBuf>,
        /// Write one HTML page to this file
        #[arg(long, value_name = "FILE")]
        html: Option<PathBuf>,
    },
}
