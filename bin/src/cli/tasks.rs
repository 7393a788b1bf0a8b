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
A task journal is the plan of an orchestrator run: a file in .soong-agent/tasks/ of the project,
with one line for each changed goal and each sub-agent that starts or ends. If the project cannot be
written, and for `demo`, it is in tasks/ in the home. The commands need no owner process.")]
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
Without options, lists the journals of completed tasks. A journal without a final status is never
deleted: its run is active or interrupted.

Examples:
  soong tasks cleanup
  soong tasks cleanup --failed --cancelled --older-than 7d --yes")]
    Cleanup {
        /// Delete the listed journals
        #[arg(long)]
        yes: bool,
        /// Also list journals of failed tasks
        #[arg(long)]
        failed: bool,
        /// Also list journals of cancelled tasks
        #[arg(long)]
        cancelled: bool,
        /// Only journals that have not changed for this long, such as 90s, 30m, 2h or 7d
        #[arg(long, value_name = "D", value_parser = duration)]
        older_than: Option<Duration>,
        #[command(flatten)]
        of: ProjectArg,
    },
}
