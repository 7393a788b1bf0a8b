//! The third layer of the matcher: finds the one region of a text that is nearest to the passage
//! searched for (ART-7).
//!
//! First, a pass over the text finds the ends of all spans with the smallest distance. Then, a
//! search backwards from each end finds the starts of the spans. Spans with the same end overlap,
//! so the longest span of each end is enough to separate regions.

use std::ops::Range;

use super::{
    Layer, Match, MatchError, WorkBudget,
    columns::{Alphabet, Columns, Pattern},
};

/// Minimum length of the passage, in characters. Shorter passages are similar to almost any text.
const MIN_LEN: usize = 6;

/// Returns the largest distance of interest.
fn max_distance(len: usize) -> usize {
    (len * 3 / 10).max(5)
}

pub(super) fn find(
    content: &str,
    old: &str,
    budget: &mut WorkBudget<'_>,
) -> Result<Match, MatchError> {
    budget.spend(content.len() + old.len())?;
    let alphabet = Alphabet::of(old);
    let text = alphabet.encode(content);
    let old = alphabet.encode(old);
    if old.len() < MIN_LEN {
        return Err(MatchError::NoMatch);
    }
    let (distance, ends) = nearest(&text, &old, budget)?.ok_or(MatchError::NoMatch)?;
    let mut spans = Spans {
        text: &text,
        old: &old,
        backwards: Pattern::new(old.iter().rev().copied()),
        distance,
        starts: vec![NOT_COMPUTED; ends.len()],
        ends,
    };
    match spans.count_regions(budget)? {
        1 => {}
        count => {
            return Err(MatchError::Ambiguous {
                layer: Layer::Fuzzy,
                count,
            });
        }
    }
    let similarity = 1.0 - distance as f64 / old.len() as f64;
    if distance * 10 > old.len() * 3 {
        return Err(MatchError::TooDifferent { similarity });
    }
    let span = spans.preferred_span(budget)?;
    Ok(Match {
        layer: Layer::Fuzzy,
        similarity,
        range: bytes_of(content, span),
    })
}

/// Returns the smallest distance of any span, and the ends of the spans with that distance, in
/// ascending order.
fn nearest(
    text: &[u32],
    old: &[u32],
    budget: &mut WorkBudget<'_>,
) -> Result<Option<(usize, Vec<usize>)>, MatchError> {
    let limit = max_distance(old.len());
    let pattern = Pattern::new(old.iter().copied());
    let mut columns = Columns::new(&pattern, limit, false);
    let mut best = limit;
    let mut ends = Vec::new();
    for (before, &symbol) in text.iter().enumerate() {
        budget.spend(columns.width())?;
        let Some(distance) = columns.push(symbol) else {
            continue;
        };
        if distance < best {
            best = distance;
            columns.tighten(best);
            ends.clear();
        }
        ends.push(before + 1);
    }
    Ok(if ends.is_empty() {
        None
    } else {
        Some((best, ends))
    })
}

/// Marks a start that has not been computed yet.
const NOT_COMPUTED: usize = usize::MAX;

/// The spans with the smallest distance.
struct Spans<'a> {
    text: &'a [u32],
    old: &'a [u32],
    backwards: Pattern,
    /// Distance of each span to `old`; no span is nearer.
    distance: usize,
    /// Ends of the spans, ascending.
    ends: Vec<usize>,
    /// Start of the longest span of each end, or `NOT_COMPUTED`.
    starts: Vec<usize>,
}

impl Spans<'_> {
    fn max_len(&self) -> usize {
        self.old.len() + self.distance
    }

    /// Returns the start of the longest span with the end number `at`.
    fn start(&mut self, at: usize, budget: &mut WorkBudget<'_>) -> Result<usize, MatchError> {
        budget.spend(1)?;
        if self.starts[at] == NOT_COMPUTED {
            self.starts[at] = self.longest_start(self.ends[at], budget)?;
        }
        Ok(self.starts[at])
    }

    fn longest_start(&self, end: usize, budget: &mut WorkBudget<'_>) -> Result<usize, MatchError> {
        let mut columns = Columns::new(&self.backwards, self.distance, true);
        budget.spend(self.old.len() / 16)?;
        let mut start = end;
        for (at, &symbol) in self.text[..end]
            .iter()
            .enumerate()
            .rev()
            .take(self.max_len())
        {
            if columns.width() == 0 {
                break;
            }
            budget.spend(columns.width())?;
            if columns.push(symbol).is_some() {
                start = at;
            }
        }
        Ok(start)
    }

    /// Counts the regions, which are groups of overlapping spans.
    ///
    /// If time runs out after the second region was found, returns the count so far, because two
    /// are enough to reject the edit.
    fn count_regions(&mut self, budget: &mut WorkBudget<'_>) -> Result<usize, MatchError> {
        let mut count = 0;
        let mut rest = self.ends.len();
        while rest > 0 {
            match self.before_last_region(rest, budget) {
                Ok(before) => rest = before,
                Err(_) if count >= 2 => break,
                Err(over) => return Err(over),
            }
            count += 1;
        }
        Ok(count)
    }

    /// Returns how many of the first `known` ends are before the last of their regions.
    fn before_last_region(
        &mut self,
        known: usize,
        budget: &mut WorkBudget<'_>,
    ) -> Result<usize, MatchError> {
        let mut region_start = self.start(known - 1, budget)?;
        loop {
            let inside = self.ends[..known].partition_point(|&end| end <= region_start);
            let Some(before) = inside.checked_sub(1) else {
                return Ok(0);
            };
            // Check whether a span that ends in the region extends beyond this end. Earlier ends
            // are more likely to.
            let next = self.ends[before];
            let mut extended = None;
            for at in inside..known {
                if self.ends[at] >= next + self.max_len() {
                    break;
                }
                let start = self.start(at, budget)?;
                if start < next {
                    extended = Some(start);
                    break;
                }
            }
            match extended {
                Some(start) => region_start = start,
                None => return Ok(inside),
            }
        }
    }

    /// Returns the span to be replaced, among those of one region.
    fn preferred_span(&mut self, budget: &mut WorkBudget<'_>) -> Result<Range<usize>, MatchError> {
        let prefers_equal_start = self.old.len() / (max_distance(self.old.len()) + 1) < 3;
        let mut best = (false, 0..0);
        for at in 0..self.ends.len() {
            let end = self.ends[at];
            let (is_equal, start) = if prefers_equal_start {
                self.start_by_preference(end, budget)?
            } else {
                (true, self.start(at, budget)?)
            };
            // Among spans of equal length the first is kept, which is the earliest because ends
            // ascend.
            if (is_equal, end - start) > (best.0, best.1.len()) {
                best = (is_equal, start..end);
            }
            if best.0 && best.1.len() == self.max_len() {
                break;
            }
        }
        Ok(best.1)
    }

    /// Returns the preferred start among the spans that end at `end`, and whether the first
    /// character of that span is aligned with an equal character in some best alignment.
    ///
    /// Only for short texts, because the whole matrix is computed, backwards from the end.
    fn start_by_preference(
        &self,
        end: usize,
        budget: &mut WorkBudget<'_>,
    ) -> Result<(bool, usize), MatchError> {
        let rows = self.old.len() + 1;
        let mut best = (false, 0);
        // Distances between the last 0, 1, … characters of `old` and the text from here to `end`.
        let mut column: Vec<usize> = (0..rows).collect();
        for (len, &symbol) in (1..=self.max_len()).zip(self.text[..end].iter().rev()) {
            budget.spend(rows)?;
            let shorter = column.clone();
            column[0] = len;
            for row in 1..rows {
                let differs = usize::from(self.old[rows - 1 - row] != symbol);
                column[row] = (shorter[row - 1] + differs)
                    .min(shorter[row] + 1)
                    .min(column[row - 1] + 1);
            }
            if column[rows - 1] == self.distance {
                let aligned =
                    |skipped: usize| skipped + shorter[rows - 2 - skipped] == self.distance;
                let is_equal =
                    (0..rows - 1).any(|skipped| self.old[skipped] == symbol && aligned(skipped));
                best = best.max((is_equal, len));
            }
        }
        Ok((best.0, end - best.1))
    }
}

/// Converts a range of characters into a range of bytes.
fn bytes_of(content: &str, chars: Range<usize>) -> Range<usize> {
    let mut starts = content.char_indices().map(|(at, _)| at);
    let start = starts.nth(chars.start).unwrap_or(content.len());
    let end = match chars.len().checked_sub(1) {
        Some(between) => starts.nth(between).unwrap_or(content.len()),
        None => start,
    };
    start..end
}
