//! Options of `usage`.

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
    /// Group the totals by
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// Only runs that started within this time: 90s, 30m, 2h, 7d [default: all]
    #[arg(long, value_name = "D", value_parser = duration)]
    pub(crate) since: Option<Duration>,
}

/// Grouping of the usage report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum UsageBy {
    /// By day, in UTC
    Day,
    /// By model
    Model,
    /// By session
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
