//! The second layer of the matcher: compares both texts in normalized form, and maps the match back
//! to the original (ART-7).
//!
//! A text is split into clusters, the smallest sequences of characters that can be normalized
//! independently. Most clusters are unchanged by normalization; adjacent unchanged clusters form a
//! single piece of the map. Every other cluster is a separate piece, which a match must contain
//! completely or not at all. The size of the map therefore depends on the number of changes, not on
//! the length of the text.
//!
//! Invariant: the pieces cover the normalized text in the order of the original, without overlap.

mod cluster;

use std::ops::Range;

use self::cluster::{Cluster, ClusterRole};
use super::{Layer, Match, MatchError, WorkBudget, find_unique};

pub(super) fn find(
    content: &str,
    old: &str,
    budget: &mut WorkBudget<'_>,
) -> Result<Option<Match>, MatchError> {
    let needle = NormalizedText::of(old, budget)?.text;
    if needle.is_empty() {
        return Ok(None);
    }
    let text = NormalizedText::of(content, budget)?;
    let Some(start) = find_unique(&text.text, &needle, Layer::Normalized, budget)? else {
        return Ok(None);
    };
    Ok(text
        .original_range(start..start + needle.len())
        .map(|range| Match {
            layer: Layer::Normalized,
            similarity: similarity(&content[range.clone()], old),
            range,
        }))
}

/// Returns the similarity of two texts, based on their lengths only.
fn similarity(matched: &str, old: &str) -> f64 {
    let matched = matched.chars().count();
    let old = old.chars().count();
    1.0 - matched.abs_diff(old) as f64 / matched.max(old).max(1) as f64
}

/// Piece of the normalized text.
#[derive(Debug, Clone)]
struct Piece {
    /// Start in the normalized text. The piece ends where the next one starts.
    start: usize,
    /// Byte range in the original.
    original: Range<usize>,
    /// Whether it is equal to the original, so that a match may contain a part of it.
    is_verbatim: bool,
}

/// A normalized text with its map to the original.
#[derive(Debug)]
pub(super) struct NormalizedText {
    pub(super) text: String,
    pieces: Vec<Piece>,
}

impl NormalizedText {
    pub(super) fn of(original: &str, budget: &mut WorkBudget<'_>) -> Result<Self, MatchError> {
        let mut writer = Writer::new(original);
        let mut cluster = Cluster::default();
        let mut rest = original;
        while let Some(first) = rest.chars().next() {
            let at = original.len() - rest.len();
            budget.spend(4)?;
            let ascii = rest
                .bytes()
                .position(|byte| !byte.is_ascii())
                .unwrap_or(rest.len());
            let plain = if ascii > 0 {
                ascii
            } else {
                cluster::plain_len(rest)
            };
            budget.spend(plain / 2)?;
            // The next character may combine with the last one.
            let is_joined = rest[plain..]
                .chars()
                .next()
                .is_some_and(|next| ClusterRole::of(next) == ClusterRole::Joining);
            let last = rest[..plain].chars().next_back().map_or(0, char::len_utf8);
            let alone = if is_joined { plain - last } else { plain };
            let end = if alone > 0 {
                writer.append_unchanged(at..at + alone);
                at + alone
            } else {
                let joined = cluster::joining_len(&rest[first.len_utf8()..], budget)?;
                let end = at + first.len_utf8() + joined;
                cluster.normalize(original, at..end, budget)?;
                cluster
                    .parts()
                    .for_each(|(ch, from)| writer.append_normalized(ch, from));
                end
            };
            rest = &original[end..];
        }
        Ok(writer.finish())
    }

    /// Returns the range of the original for a range of the normalized text. Returns `None` if the
    /// range cuts through a piece that is not verbatim.
    pub(super) fn original_range(&self, range: Range<usize>) -> Option<Range<usize>> {
        let first = self.piece_at(range.start)?;
        let last = self.piece_at(range.end.checked_sub(1)?)?;
        let head = &self.pieces[first];
        let tail = &self.pieces[last];
        let end_of_tail = self
            .pieces
            .get(last + 1)
            .map_or(self.text.len(), |next| next.start);
        let start = if head.is_verbatim {
            head.original.start + (range.start - head.start)
        } else if range.start == head.start {
            head.original.start
        } else {
            return None;
        };
        let end = if tail.is_verbatim {
            tail.original.start + (range.end - tail.start)
        } else if range.end == end_of_tail {
            tail.original.end
        } else {
            return None;
        };
        Some(start..end)
    }

    fn piece_at(&self, at: usize) -> Option<usize> {
        self.pieces
            .partition_point(|piece| piece.start <= at)
            .checked_sub(1)
    }
}

/// Builds the normalized text, and drops insignificant spaces.
struct Writer<'a> {
    original: &'a str,
    text: String,
    pieces: Vec<Piece>,
    /// Range of the original to be appended unchanged.
    pending_verbatim: Range<usize>,
    /// Spaces that are kept or dropped depending on the next character, each with whether it is
    /// unchanged.
    pending_spaces: Vec<(Range<usize>, bool)>,
    /// Character before the spaces.
    last: Option<char>,
}

impl<'a> Writer<'a> {
    fn new(original: &'a str) -> Self {
        Self {
            original,
            text: String::new(),
            pieces: Vec::new(),
            pending_verbatim: 0..0,
            pending_spaces: Vec::new(),
            last: None,
        }
    }

    /// Appends a range of unchanged characters, which must be all ASCII or all non-ASCII.
    fn append_unchanged(&mut self, range: Range<usize>) {
        let original = self.original;
        let body = original[range.clone()].trim_start_matches(' ');
        let start = range.end - body.len();
        if start > range.start {
            self.space(range.start..start, true);
        }
        let body = body.trim_end_matches(' ');
        let end = start + body.len();
        if let (Some(first), Some(last)) = (body.chars().next(), body.chars().next_back()) {
            self.resolve_spaces(first);
            self.last = Some(last);
        }
        let mut at = start;
        for line in body.split_inclusive('\n') {
            let next = at + line.len();
            // Within such a range, only the spaces at the end of a line are insignificant.
            let trimmed_length = line
                .strip_suffix('\n')
                .map_or(line.len(), |text| text.trim_end_matches(' ').len());
            if trimmed_length + 1 < line.len() {
                self.extend_verbatim(at..at + trimmed_length);
                self.extend_verbatim(next - 1..next);
            } else {
                self.extend_verbatim(at..next);
            }
            at = next;
        }
        if end < range.end {
            self.space(end..range.end, true);
        }
    }

    /// Appends a character produced by normalization.
    fn append_normalized(&mut self, ch: char, from: Range<usize>) {
        let mut before = self.original[from.clone()].chars();
        let is_verbatim = before.next() == Some(ch) && before.next().is_none();
        match ch {
            ' ' => self.space(from, is_verbatim),
            _ => {
                self.resolve_spaces(ch);
                if is_verbatim {
                    self.extend_verbatim(from)
                } else {
                    self.push_changed(ch, from)
                }
            }
        }
    }

    fn space(&mut self, from: Range<usize>, is_verbatim: bool) {
        match self.pending_spaces.last_mut() {
            Some((before, true)) if is_verbatim && before.end == from.start => {
                before.end = from.end
            }
            _ => self.pending_spaces.push((from, is_verbatim)),
        }
    }

    /// Keeps the pending spaces before `next`, or drops them at the end of a line and between CJK
    /// and Latin characters.
    fn resolve_spaces(&mut self, next: char) {
        let last = self.last.replace(next);
        if self.pending_spaces.is_empty() {
            return;
        }
        let is_cjk_latin_boundary =
            |last: char| is_cjk(last) && is_latin(next) || is_latin(last) && is_cjk(next);
        let mut spaces = std::mem::take(&mut self.pending_spaces);
        if next != '\n' && !last.is_some_and(is_cjk_latin_boundary) {
            for (from, is_verbatim) in spaces.iter().cloned() {
                if is_verbatim {
                    self.extend_verbatim(from)
                } else {
                    self.push_changed(' ', from)
                }
            }
        }
        spaces.clear();
        self.pending_spaces = spaces;
    }

    fn extend_verbatim(&mut self, from: Range<usize>) {
        if self.pending_verbatim.end != from.start {
            self.flush();
            self.pending_verbatim.start = from.start;
        }
        self.pending_verbatim.end = from.end;
    }

    fn push_changed(&mut self, ch: char, from: Range<usize>) {
        self.flush();
        self.pending_verbatim = from.end..from.end;
        if self
            .pieces
            .last()
            .is_none_or(|piece| piece.is_verbatim || piece.original != from)
        {
            self.pieces.push(Piece {
                start: self.text.len(),
                original: from,
                is_verbatim: false,
            });
        }
        self.text.push(ch);
    }

    fn flush(&mut self) {
        if !self.pending_verbatim.is_empty() {
            self.pieces.push(Piece {
                start: self.text.len(),
                original: self.pending_verbatim.clone(),
                is_verbatim: true,
            });
            self.text
                .push_str(&self.original[self.pending_verbatim.clone()]);
        }
    }

    fn finish(mut self) -> NormalizedText {
        // Pending spaces are at the end of the last line and are dropped.
        self.flush();
        NormalizedText {
            text: self.text,
            pieces: self.pieces,
        }
    }
}

fn is_cjk(ch: char) -> bool {
    matches!(ch,
        '\u{2E80}'..='\u{2FDF}'
        | '\u{3000}'..='\u{303F}'
        | '\u{3040}'..='\u{30FF}'
        | '\u{3400}'..='\u{4DBF}'
        | '\u{4E00}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}'
        | '\u{FE30}'..='\u{FE4F}'
        | '\u{FF00}'..='\u{FFEF}'
        | '\u{20000}'..='\u{2A6DF}')
}

fn is_latin(ch: char) -> bool {
    ch.is_ascii_alphanumeric()
}
