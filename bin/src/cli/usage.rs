//! The command line of `usage`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

/// Options of `usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
A run counts for the day on which it began, each with its own work: sub-agents are runs of their
own. The model is that of its trace, the last one where that changed. Sessions that were deleted,
and runs that never began, are not counted. Where a price is unknown, the cost is, and says so.

Examples:
  soong usage
  soong usage --by model --since 7d
  soong usage --by session --json")]
pub(crate) struct Usage {
    /// What to sum up by
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// Only runs that began so long ago at most: 90s, 30m, 2h, 7d [default: all]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) since: Option<Duration>,
}

/// What usage is summed up by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    /// The day, in UTC
    Day,
    /// The model
    Model,
    /// The session
    Session,
}

impl From<UsageBy> for soong::protocol::UsageBy {
    fn from(by: UsageBy) -> Self {
        match by {
            UsageBy::Day => Self::Day,
            UsageBy::Model => Self::Model,
            UsageBy::Session => Self::Session,
        }
    }
}
