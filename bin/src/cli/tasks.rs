//! Options of `tasks`.

use std::{path::PathBuf, time::Duration};

use clap::{Args, Subcommand};

use super::duration;

/// Project whose task journals a command uses.
#[derive(Debug, Args)]
pub(crate) struct ProjectArg {
    /// Project folder; for a file, the folder that contains it
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) path: PathBuf,
}

/// Options of `tasks`.
#[derive(Debug, Subcommand)]
#[command(after_help = "\
Each orchestrator run writes its plan to the project as it goes: a file in .soong-agent/tasks/, a
line for each goal that changes and each sub-agent that starts or ends. Where the project cannot be
written, and for `demo`, the file lies in tasks/ of the home. Nobody needs to own the home.")]
pub(crate) enum Tasks {
    /// List the task journals of a project, newest first
    #[command(after_help = "\
Examples:
  soong tasks list
  soong tasks list --path ~/src/project --json")]
    List {
        #[command(flatten)]
        of: ProjectArg,
    },
    /// List the task journals that can be deleted, and delete them with --yes
    #[command(after_help = "\
Those of completed tasks may go, others by their option. A journal whose last line does not say that
its task is over stays: its run is at work, or was cut off.

Examples:
  soong tasks cleanup
  soong tasks cleanup --failed --cancelled --older-than 7d --yes")]
    Cleanup {
        /// Delete the listed journals
        #[arg(long)]
        yes: bool,
        /// Also include journals of failed tasks
        #[arg(long)]
        failed: bool,
        /// Also include journals of cancelled tasks
        #[arg(long)]
        cancelled: bool,
        /// Only journals that have not been written for this long: 90s, 30m, 2h, 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Option<Duration>,
        #[command(flatten)]
        of: ProjectArg,
    },
}
