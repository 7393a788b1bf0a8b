//! The text matcher: finds the passage of a text that an edit replaces (ART-7).
//!
//! Three layers are tried in order, each only if the previous one found nothing: the exact text;
//! both texts normalized (`normalised.rs`); the nearest text by Levenshtein distance
//! (`approximate.rs`). If several passages match, the search fails instead of guessing. Lengths and
//! distances are in Unicode code points, ranges in bytes. The result depends only on the arguments:
//! elapsed time is known only through `is_over`, which is called about once per millisecond.
//!
//! Elsewhere: the replacement, storage, and the value of the time limit.

mod approximate;
mod columns;
mod normalised;
#[cfg(test)]
mod tests;

use std::ops::Range;

use soong_protocol::{ErrorCode, MatchLayer as Layer};

/// The single passage that matches.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// Layer that found it.
    pub layer: Layer,
    /// Similarity to the text searched for; 1.0 if they are equal.
    pub similarity: f64,
    /// Byte range in the content, on character boundaries.
    pub range: Range<usize>,
}

/// Reason why no passage was selected. The message tells the caller how to fix it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// The text to search for is empty.
    #[error("the old text is empty: give the text to replace, or rewrite the whole document")]
    EmptyOld,
    /// Several passages match.
    #[error("{}", ambiguous(*layer, *count))]
    Ambiguous {
        /// The layer that found them.
        layer: Layer,
        /// Number of matches, at least two. It is too low if time ran out while counting.
        count: usize,
    },
    /// No passage is close enough.
    #[error(
        "the old text was not found, nor a similar passage: read the current text again, and give the exact passage"
    )]
    NoMatch,
    /// The nearest passage is less similar than required.
    #[error(
        "the old text was not found, and the most similar passage matches only {:.0} % (at least 70 % is required): \
         read the current text again, and give the exact passage", similarity * 100.0
    )]
    TooDifferent {
        /// Similarity of the nearest passage.
        similarity: f64,
    },
    /// The time limit was exceeded.
    #[error(
        "the exact old text was not found, and the search for a similar passage timed out: \
         read the current text again, and give a shorter exact passage"
    )]
    OutOfTime,
}

impl MatchError {
    /// Returns the error code for clients.
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::EmptyOld => ErrorCode::ValidationError,
            Self::Ambiguous { .. } => ErrorCode::AmbiguousMatch,
            Self::NoMatch => ErrorCode::NoMatch,
            Self::TooDifferent { .. } => ErrorCode::MatchTooDifferent,
            Self::OutOfTime => ErrorCode::MatchBudgetExceeded,
        }
    }
}

fn ambiguous(layer: Layer, count: usize) -> String {
    let reason = match layer {
        Layer::Exact => "the old text occurs",
        Layer::Normalized => {
            "apart from quotes, dashes, spaces and character forms, the old text occurs"
        }
        Layer::Fuzzy => "the old text was not found, but equally similar passages occur",
    };
    format!("{reason} in {count} places: add text before or after it until only one place matches")
}

/// Finds the single passage of `content` that matches `old`.
///
/// The search ends with [`MatchError::OutOfTime`] when `is_over` returns `true`.
///
/// # Errors
///
/// Fails if `old` is empty, matches several passages or none, or if time runs out.
///
/// # Examples
///
/// ```
/// use soong_match::find;
/// use soong_protocol::MatchLayer;
///
/// let found = find("She said “yes”.", "said \"yes\"", &mut || false)?;
/// assert_eq!((found.layer, found.range), (MatchLayer::Normalized, 4..18));
/// # Ok::<(), soong_match::MatchError>(())
/// ```
pub fn find(
    content: &str,
    old: &str,
    is_over: &mut dyn FnMut() -> bool,
) -> Result<Match, MatchError> {
    if old.is_empty() {
        return Err(MatchError::EmptyOld);
    }
    let mut budget = WorkBudget::new(is_over);
    if let Some(range) = find_exact(content, old, &mut budget)? {
        return Ok(Match {
            layer: Layer::Exact,
            similarity: 1.0,
            range,
        });
    }
    if let Some(found) = normalised::find(content, old, &mut budget)? {
        return Ok(found);
    }
    approximate::find(content, old, &mut budget)
}

fn find_exact(
    content: &str,
    old: &str,
    budget: &mut WorkBudget<'_>,
) -> Result<Option<Range<usize>>, MatchError> {
    let found = find_unique(content, old, Layer::Exact, budget)?;
    Ok(found.map(|start| start..start + old.len()))
}

/// Returns the position of `wanted` if it occurs exactly once. Overlapping occurrences are not
/// counted.
fn find_unique(
    text: &str,
    needle: &str,
    layer: Layer,
    budget: &mut WorkBudget<'_>,
) -> Result<Option<usize>, MatchError> {
    let mut positions = text.match_indices(needle).map(|(start, _)| start);
    let first = positions.next();
    budget.spend(text.len() / 8)?;
    match positions.count() {
        0 => Ok(first),
        more => Err(MatchError::Ambiguous {
            layer,
            count: more + 1,
        }),
    }
}

/// Counts work, and regularly calls `is_over`.
struct WorkBudget<'a> {
    is_over: &'a mut dyn FnMut() -> bool,
    left: usize,
}

/// Amount of work between two calls of `is_over`. A unit takes one or two nanoseconds.
const WORK_PER_TIME_CHECK: usize = 1 << 19;

impl<'a> WorkBudget<'a> {
    fn new(is_over: &'a mut dyn FnMut() -> bool) -> Self {
        // Start with no budget, so that the first unit of work calls `is_over`.
        Self { is_over, left: 0 }
    }

    /// Records work. Fails if the time is over.
    #[inline]
    fn spend(&mut self, work: usize) -> Result<(), MatchError> {
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.check_time(),
        }
    }

    #[cold]
    fn check_time(&mut self) -> Result<(), MatchError> {
        self.left = WORK_PER_TIME_CHECK;
        if (self.is_over)() {
            Err(MatchError::OutOfTime)
        } else {
            Ok(())
        }
    }
}
