//! Clusters: the smallest sequences of characters that quote mapping and NFKC can normalize
//! independently.
//!
//! NFKC is computed step by step (decompose, order, compose), because each resulting character must
//! be mapped to its original characters.
//!
//! Elsewhere: spaces and the text as a whole (`normalised.rs`).

use std::{ops::Range, sync::LazyLock};

use unicode_normalization::{
    IsNormalized,
    char::{canonical_combining_class, compose, decompose_compatible},
    is_nfkc_quick,
};

use super::super::{MatchError, WorkBudget};

/// Role of a character in clusters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClusterRole {
    /// Starts a cluster, and is unchanged if no character joins it.
    Plain,
    /// Starts a cluster, and is changed.
    Changed,
    /// May combine with the previous character.
    Joining,
}

/// Bit set of the characters below U+10000 that are plain. Computing the property for each
/// character is too slow.
static PLAIN: LazyLock<Vec<u64>> = LazyLock::new(|| {
    let is_plain = |code: u32| {
        char::from_u32(code).is_some_and(|ch| ClusterRole::look_up(ch) == ClusterRole::Plain)
    };
    (0..0x1_0000 / u64::BITS)
        .map(|word| {
            (0..u64::BITS)
                .filter(|bit| is_plain(word * u64::BITS + bit))
                .fold(0, |bits, bit| bits | 1 << bit)
        })
        .collect()
});

impl ClusterRole {
    pub(super) fn of(ch: char) -> Self {
        let code = ch as usize;
        let is_plain = PLAIN
            .get(code / 64)
            .is_some_and(|bits| (bits >> (code % 64)) & 1 == 1);
        if is_plain {
            Self::Plain
        } else {
            Self::look_up(ch)
        }
    }

    fn look_up(ch: char) -> Self {
        if map_punctuation(ch) != ch {
            return Self::Changed;
        }
        match nfkc_quick_check(ch) {
            IsNormalized::Yes if canonical_combining_class(ch) == 0 => Self::Plain,
            IsNormalized::Yes | IsNormalized::Maybe => Self::Joining,
            IsNormalized::No => {
                let mut first = None;
                decompose_compatible(ch, |ch| first = first.or(Some(ch)));
                if first.is_some_and(is_starter) {
                    Self::Changed
                } else {
                    Self::Joining
                }
            }
        }
    }
}

/// Returns whether NFKC keeps a character and never composes it with a previous one.
fn is_starter(ch: char) -> bool {
    nfkc_quick_check(ch) == IsNormalized::Yes && canonical_combining_class(ch) == 0
}

fn nfkc_quick_check(ch: char) -> IsNormalized {
    is_nfkc_quick(std::iter::once(ch))
}

/// Replaces typographic quotes, dashes and spaces by their ASCII forms.
pub(super) fn map_punctuation(ch: char) -> char {
    match ch {
        '\u{2018}' | '\u{2019}' | '\u{201A}' | '\u{2039}' | '\u{203A}' => '\'',
        '\u{201C}' | '\u{201D}' | '\u{201E}' | '\u{00AB}' | '\u{00BB}' => '"',
        '\u{2012}'..='\u{2015}' | '\u{2212}' | '\u{FE58}' | '\u{FE63}' | '\u{FF0D}' => '-',
        '\u{00A0}' | '\u{2000}'..='\u{200A}' | '\u{202F}' | '\u{205F}' | '\u{3000}' => ' ',
        _ => ch,
    }
}

/// Returns the length in bytes of the plain characters at the start of `rest`, up to the first
/// ASCII character.
pub(super) fn plain_len(rest: &str) -> usize {
    let is_other =
        |&(_, ch): &(usize, char)| ch.is_ascii() || ClusterRole::of(ch) != ClusterRole::Plain;
    rest.char_indices()
        .find(is_other)
        .map_or(rest.len(), |(at, _)| at)
}

/// Returns the length in bytes of the characters at the start of `rest` that join the character
/// before it.
pub(super) fn joining_len(rest: &str, budget: &mut WorkBudget<'_>) -> Result<usize, MatchError> {
    for (at, ch) in rest.char_indices() {
        if ClusterRole::of(ch) != ClusterRole::Joining {
            return Ok(at);
        }
        budget.spend(8)?;
    }
    Ok(rest.len())
}

/// A character being normalized, with its canonical combining class and its byte range in the
/// original.
#[derive(Debug, Clone, Copy)]
struct Item {
    ch: char,
    class: u8,
    start: usize,
    end: usize,
}

/// Normalizes clusters, one at a time; the buffer is reused.
#[derive(Debug, Default)]
pub(super) struct Cluster {
    items: Vec<Item>,
}

impl Cluster {
    /// Normalizes a cluster of the original.
    pub(super) fn normalize(
        &mut self,
        original: &str,
        range: Range<usize>,
        budget: &mut WorkBudget<'_>,
    ) -> Result<(), MatchError> {
        self.items.clear();
        for (at, ch) in original[range.clone()].char_indices() {
            budget.spend(32)?;
            let start = range.start + at;
            decompose_compatible(map_punctuation(ch), |part| {
                let class = canonical_combining_class(part);
                self.items.push(Item {
                    ch: part,
                    class,
                    start,
                    end: start + ch.len_utf8(),
                });
            });
        }
        self.order();
        self.compose(budget)?;
        self.merge_origins();
        Ok(())
    }

    /// Returns the characters with their ranges in the original. Characters with inseparable
    /// origins share one range.
    pub(super) fn parts(&self) -> impl Iterator<Item = (char, Range<usize>)> {
        self.items
            .iter()
            .map(|item| (item.ch, item.start..item.end))
    }

    /// Sorts combining marks by class, within sequences without a character of class 0.
    fn order(&mut self) {
        for marks in self.items.split_mut(|item| item.class == 0) {
            marks.sort_by_key(|item| item.class);
        }
    }

    /// Composes each starter with the marks after it, in place.
    fn compose(&mut self, budget: &mut WorkBudget<'_>) -> Result<(), MatchError> {
        let mut starter = None;
        let mut length = 0;
        for at in 0..self.items.len() {
            budget.spend(16)?;
            let item = self.items[at];
            if let Some(starter) = starter {
                // A mark is blocked if a character between it and the starter has an equal or
                // higher class.
                let is_next = starter + 1 == length;
                let is_free = is_next || self.items[length - 1].class < item.class;
                let base: &mut Item = &mut self.items[starter];
                if let Some(ch) = compose(base.ch, item.ch).filter(|_| is_free) {
                    base.ch = ch;
                    base.start = base.start.min(item.start);
                    base.end = base.end.max(item.end);
                    continue;
                }
            }
            if item.class == 0 {
                starter = Some(length);
            }
            self.items[length] = item;
            length += 1;
        }
        self.items.truncate(length);
        Ok(())
    }

    /// Assigns a common origin to all items whose origins overlap or are out of order.
    fn merge_origins(&mut self) {
        if self.items.len() < 2 {
            return;
        }
        // Computed from the end: the smallest start among each item and its successors.
        let mut firsts: Vec<usize> = self
            .items
            .iter()
            .rev()
            .scan(usize::MAX, |first, item| {
                *first = item.start.min(*first);
                Some(*first)
            })
            .collect();
        firsts.reverse();
        let mut from = 0;
        let mut end = 0;
        for at in 0..self.items.len() {
            end = self.items[at].end.max(end);
            if firsts.get(at + 1).is_none_or(|&next| end <= next) {
                let start = firsts[from];
                for item in &mut self.items[from..=at] {
                    item.start = start;
                    item.end = end;
                }
                from = at + 1;
            }
        }
    }
}
