//! Options of `usage`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::duration;

/// Options of `usage`.
#[derive(Debug, Args)]
#[command(after_help = "\
A run counts for the day on which it started, without its sub-agents: these are runs of their own.
With --by model, it counts for the last model of its trace. Deleted sessions and runs that never
started are not counted. If a price is unknown, the cost is unknown.

Examples:
  soong usage
  soong usage --by model --since 7d
  soong usage --by session --json
  soong usage --session last")]
pub(crate) struct Usage {
    /// Grouping of the totals
    #[arg(long, value_enum, default_value_t = UsageBy::Day)]
    pub(crate) by: UsageBy,
    /// Only this session with its sub-agents: its id or slug, last, - or @N
    #[arg(long, value_name = "SESSION", conflicts_with = "by")]
    pub(crate) session: Option<String>,
    /// Only runs that started within this time, such as 30m, 2h or 7d [default: all]
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
