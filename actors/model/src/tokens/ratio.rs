//! The ratio of the tokens that a service counts to the tokens that are estimated, as a running
//! mean (CTX-4).

use serde::{Deserialize, Serialize};

/// Ratios outside these bounds are not used: the service counts something else, such as tokens
/// outside its cache only.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 0.7..=2.5;
/// Minimum size of a prompt. In a shorter one, the frame that a service adds to each prompt
/// prevails.
const MIN_TOKENS: u64 = 200;
/// Number of prompts after which older ones are forgotten gradually.
const MEMORY: u32 = 16;

/// How many tokens the service of a model counts for each estimated token, in the prompts seen so
/// far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct TokenRatio {
    /// Mean of counted / estimated.
    mean: f64,
    /// Number of prompts, at most [`MEMORY`].
    prompts: u32,
}

impl Default for TokenRatio {
    fn default() -> Self {
        Self {
            mean: 1.0,
            prompts: 0,
        }
    }
}

impl TokenRatio {
    /// Adds a prompt: its tokens as they were estimated without this ratio, and as the service has
    /// counted them. A prompt that cannot be compared is ignored.
    pub fn add(&mut self, estimated: u64, counted: u64) {
        if estimated.min(counted) < MIN_TOKENS {
            return;
        }
        let ratio = counted as f64 / estimated as f64;
        if !PLAUSIBLE.contains(&ratio) {
            return;
        }
        self.prompts = self.prompts.min(MEMORY - 1) + 1;
        let mean = self.bounded_mean();
        self.mean = mean + (ratio - mean) / f64::from(self.prompts);
    }

    /// Returns the ratio in thousandths.
    pub fn permille(self) -> u64 {
        (self.bounded_mean() * 1_000.0).round() as u64
    }

    /// Returns the mean; a file can contain any number.
    fn bounded_mean(self) -> f64 {
        if self.mean.is_finite() {
            self.mean.clamp(*PLAUSIBLE.start(), *PLAUSIBLE.end())
        } else {
            1.0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratio_follows_the_counts_of_the_service() {
        let mut ratio = TokenRatio::default();
        assert_eq!(ratio.permille(), 1_000);
        ratio.add(1_000, 1_300);
        assert_eq!(ratio.permille(), 1_300);
        ratio.add(1_000, 1_100);
        assert_eq!(ratio.permille(), 1_200);
        for _ in 0..100 {
            ratio.add(1_000, 900);
        }
        assert_eq!(ratio.permille(), 900);
    }

    #[test]
    fn any_stored_ratio_recovers() {
        for mean in [f64::NAN, f64::NEG_INFINITY, 1e300, -1.0] {
            let mut ratio = TokenRatio {
                mean,
                prompts: u32::MAX,
            };
            for _ in 0..200 {
                ratio.add(1_000, 1_500);
            }
            assert_eq!(ratio.permille(), 1_500, "{mean}");
        }
    }

    #[test]
    fn prompts_that_cannot_be_compared_are_ignored() {
        let mut ratio = TokenRatio::default();
        for (estimated, counted) in [
            (0, 0),
            (1_000, 0),
            (0, 1_000),
            (199, 250),
            (1_000, 2_600),
            (1_000, 699),
        ] {
            ratio.add(estimated, counted);
        }
        assert_eq!(ratio, TokenRatio::default());
        for mean in [f64::NAN, f64::INFINITY, -1.0, 0.0, 99.0] {
            let permille = TokenRatio { mean, prompts: 1 }.permille();
            assert!((700..=2_500).contains(&permille), "{mean}: {permille}");
        }
    }
}
