//! How much models can be asked to reason: by level, by tokens, or not at all.
//!
//! Elsewhere: the levels of each family of models (in the module of its API).

use soong_protocol::Effort;

/// The levels and numbers of tokens by which a model can be asked to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReasoningSupport {
    /// The levels, in ascending order. `None`: unknown. Empty: it takes no level.
    pub levels: Option<&'static [Effort]>,
    /// Whether it takes a number of tokens. `None`: unknown.
    pub takes_budget: Option<bool>,
}

impl ReasoningSupport {
    /// Nothing is known about the model.
    pub const UNKNOWN: Self = Self {
        levels: None,
        takes_budget: None,
    };
    /// The model does not reason.
    pub const NONE: Self = Self {
        levels: Some(&[]),
        takes_budget: Some(false),
    };

    /// The model takes these levels, but no number of tokens.
    pub const fn levels(levels: &'static [Effort]) -> Self {
        Self {
            levels: Some(levels),
            takes_budget: Some(false),
        }
    }

    /// Returns the level to send for the one that is wanted: the nearest lower one that the model
    /// has, else its lowest. `None` if the model takes no level.
    pub fn nearest(&self, wanted: Effort) -> Option<Effort> {
        match self.levels {
            None => Some(wanted),
            Some(levels) => levels
                .iter()
                .rev()
                .find(|level| **level <= wanted)
                .or(levels.first())
                .copied(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_level_becomes_the_nearest_lower_one_else_the_lowest() {
        use Effort::{High, Low, Max, Medium, Minimal, None as No, Xhigh};
        let support = ReasoningSupport::levels(&[Low, Medium, High]);
        for (wanted, expected) in [
            (No, Low),
            (Minimal, Low),
            (Low, Low),
            (Medium, Medium),
            (High, High),
            (Xhigh, High),
            (Max, High),
        ] {
            assert_eq!(support.nearest(wanted), Some(expected), "{wanted:?}");
        }
        assert_eq!(ReasoningSupport::UNKNOWN.nearest(Max), Some(Max));
        assert_eq!(ReasoningSupport::NONE.nearest(Max), None);
    }
}
