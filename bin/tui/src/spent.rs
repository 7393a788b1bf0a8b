//! Tokens and cost for display. Amounts that are partly estimated are marked with `~`.

use soong_protocol::{
    Stats, Trace, UsageSum, Usd,
    tree::{ActorRun, RunEnd},
};

use crate::format;

/// Tokens and cost of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spent {
    /// Tokens used.
    pub tokens: u64,
    /// Cost of the tokens; `None` if a price is unknown.
    pub cost: Option<Usd>,
    /// Whether some counts are estimates.
    pub estimated: bool,
}

impl Spent {
    /// No tokens, at a known cost of zero.
    pub const NOTHING: Self = Self {
        tokens: 0,
        cost: Some(Usd::from_nanos(0)),
        estimated: false,
    };

    /// Returns the sum. Its cost is known if both are.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            tokens: self.tokens.saturating_add(other.tokens),
            cost: [self.cost, other.cost].into_iter().sum(),
            estimated: self.estimated || other.estimated,
        }
    }

    /// Formats the number of tokens: `5.1k`, `~5.1k`.
    pub fn tokens(&self) -> String {
        marked(self.estimated, format::count(self.tokens))
    }

    /// Formats the cost: `$0.0123`, `~$0.0123`; or `unknown` if it is unknown.
    pub fn usd_or(&self, unknown: &str) -> String {
        match self.cost {
            Some(cost) => marked(self.estimated, format::usd(cost)),
            None => unknown.to_owned(),
        }
    }

    /// Formats the cost with its name: `cost $0.0123`, `cost ~$0.0123`, `cost unknown`.
    pub fn cost(&self) -> String {
        format!("cost {}", self.usd_or("unknown"))
    }
}

impl Default for Spent {
    fn default() -> Self {
        Self::NOTHING
    }
}

/// Marks an amount that is partly estimated.
pub fn marked(estimated: bool, amount: String) -> String {
    if estimated {
        format!("~{amount}")
    } else {
        amount
    }
}

impl From<&Stats> for Spent {
    fn from(stats: &Stats) -> Self {
        Self {
            tokens: stats.total_tokens,
            cost: stats.cost,
            estimated: stats.estimated,
        }
    }
}

impl From<&Trace> for Spent {
    fn from(trace: &Trace) -> Self {
        Self {
            tokens: trace.total_tokens,
            cost: trace.total_cost,
            estimated: trace.estimated,
        }
    }
}

impl From<&ActorRun> for Spent {
    fn from(run: &ActorRun) -> Self {
        Self {
            tokens: run.tokens,
            cost: run.cost,
            estimated: run.estimated,
        }
    }
}

impl From<&RunEnd> for Spent {
    fn from(end: &RunEnd) -> Self {
        Self {
            tokens: end.tokens,
            cost: end.cost,
            estimated: end.estimated,
        }
    }
}

impl From<&UsageSum> for Spent {
    fn from(sum: &UsageSum) -> Self {
        Self {
            tokens: sum.total_tokens,
            cost: sum.cost,
            estimated: sum.estimated,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimated_amounts_are_marked() {
        let exact = Spent {
            tokens: 5_100,
            cost: Some(Usd::from_nanos(12_300_000)),
            estimated: false,
        };
        let estimate = Spent {
            estimated: true,
            ..exact
        };
        assert_eq!(
            (exact.tokens(), exact.cost()),
            ("5.1k".to_owned(), "cost $0.0123".to_owned())
        );
        assert_eq!(
            (estimate.tokens(), estimate.cost()),
            ("~5.1k".to_owned(), "cost ~$0.0123".to_owned())
        );
        let sum = exact.plus(Spent {
            cost: None,
            ..estimate
        });
        assert_eq!(
            (sum.tokens(), sum.cost()),
            ("~10.2k".to_owned(), "cost unknown".to_owned())
        );
        assert_eq!(Spent::NOTHING.plus(exact), exact);
    }
}
