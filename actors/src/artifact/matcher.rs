//! The text matcher: where in a text is the passage that somebody wants to replace (ART-7)?
//!
//! Three layers, each asked only when the one before found nothing: the exact text; both texts
//! normalised (`normalised.rs`); the nearest text by Levenshtein distance (`approximate.rs`). What is
//! in several places is refused, never guessed. Lengths and distances count Unicode code points;
//! ranges are in bytes. A pure function of its arguments: time is known through `is_over` alone,
//! which is asked about once a millisecond.
//!
//! Not here: replacing, storing, and what the time limit is.

mod approximate;
mod columns;
mod normalised;
#[cfg(test)]
mod tests;

use std::ops::Range;

use soong_protocol::{ErrorCode, MatchLayer as Layer};

/// The one passage that is meant.
#[derive(Debug, Clone, PartialEq)]
pub struct Match {
    /// How it was found.
    pub layer: Layer,
    /// How alike it is to what was looked for; 1.0 = the same.
    pub similarity: f64,
    /// Where it is: bytes of the content, on boundaries of characters.
    pub range: Range<usize>,
}

/// Why no passage is meant; the text says what to do about it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum MatchError {
    /// There is nothing to look for.
    #[error("the old text is empty: give the text to be replaced, or rewrite the whole")]
    EmptyOld,
    /// Several passages may be meant.
    #[error("{}", ambiguous(*layer, *count))]
    Ambiguous {
        /// The layer that found them.
        layer: Layer,
        /// How many there are, at least two; fewer than there are when time ran out in between.
        count: usize,
    },
    /// No passage is near enough.
    #[error(
        "the old text is not there, and nothing near it: read the current text again, and give the passage as it stands"
    )]
    NoMatch,
    /// The nearest passage shares too little with the text.
    #[error(
        "the old text is not there, and the nearest passage is only {:.0} % alike (at least 70 % is needed): \
         read the current text again, and give the passage as it stands", similarity * 100.0
    )]
    TooDifferent {
        /// How alike the nearest passage is.
        similarity: f64,
    },
    /// Time ran out.
    #[error(
        "the old text is not there as it was given, and looking for a near one took too long: \
         read the current text again, and give a shorter passage exactly as it stands"
    )]
    OutOfTime,
}

impl MatchError {
    /// Returns the code that clients see.
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
    let how = match layer {
        Layer::Exact => "the old text is",
        Layer::Normalized => "but for quotes, dashes, spaces and character forms, the old text is",
        Layer::Fuzzy => "the old text is not there, but passages equally near to it are",
    };
    format!("{how} in {count} places: add text before or after it until only one place can be meant")
}

/// Finds the one passage of `content` that `old` means.
///
/// `is_over` ends the search with [`MatchError::OutOfTime`] when it returns `true`.
///
/// # Errors
///
/// When `old` is empty, is in several places, or is not there, or time runs out.
///
/// # Examples
///
/// ```
/// use soong::{artifact::matcher::find, protocol::MatchLayer};
///
/// let found = find("She said “yes”.", "said \"yes\"", &mut || false)?;
/// assert_eq!((found.layer, found.range), (MatchLayer::Normalized, 4..18));
/// # Ok::<(), soong::artifact::matcher::MatchError>(())
/// ```
pub fn find(content: &str, old: &str, is_over: &mut dyn FnMut() -> bool) -> Result<Match, MatchError> {
    if old.is_empty() {
        return Err(MatchError::EmptyOld);
    }
    let mut patience = Patience::new(is_over);
    if let Some(range) = exact(content, old, &mut patience)? {
        return Ok(Match { layer: Layer::Exact, similarity: 1.0, range });
    }
    if let Some(found) = normalised::find(content, old, &mut patience)? {
        return Ok(found);
    }
    approximate::find(content, old, &mut patience)
}

fn exact(content: &str, old: &str, patience: &mut Patience<'_>) -> Result<Option<Range<usize>>, MatchError> {
    let found = only(content, old, Layer::Exact, patience)?;
    Ok(found.map(|start| start..start + old.len()))
}

/// Returns where `wanted` starts if it is there once, not counting what overlaps.
fn only(text: &str, wanted: &str, layer: Layer, patience: &mut Patience<'_>) -> Result<Option<usize>, MatchError> {
    let mut places = text.match_indices(wanted).map(|(start, _)| start);
    let first = places.next();
    patience.spend(text.len() / 8)?;
    match places.count() {
        0 => Ok(first),
        more => Err(MatchError::Ambiguous { layer, count: more + 1 }),
    }
}

/// Counts work, and asks now and then whether time is over.
struct Patience<'a> {
    is_over: &'a mut dyn FnMut() -> bool,
    left: usize,
}

/// How much is done between two questions; a unit of work takes one or two nanoseconds.
const WORK_PER_QUESTION: usize = 1 << 19;

impl<'a> Patience<'a> {
    fn new(is_over: &'a mut dyn FnMut() -> bool) -> Self {
        // Nothing left: the first work asks, so a time that is over from the start is noticed.
        Self { is_over, left: 0 }
    }

    /// Notes work; fails when time is over.
    #[inline]
    fn spend(&mut self, work: usize) -> Result<(), MatchError> {
        match self.left.checked_sub(work) {
            Some(left) => {
                self.left = left;
                Ok(())
            }
            None => self.ask(),
        }
    }

    #[cold]
    fn ask(&mut self) -> Result<(), MatchError> {
        self.left = WORK_PER_QUESTION;
        if (self.is_over)() { Err(MatchError::OutOfTime) } else { Ok(()) }
    }
}
