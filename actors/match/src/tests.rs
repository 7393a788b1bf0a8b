//! Tests of the matcher: shared cases, the rules as properties, and limits.
//!
//! The expected results come from `reference`, a naive implementation of the rules.

mod cases;
mod layers;
mod limits;
mod reference;

use proptest::prelude::*;

use super::{Layer, Match, MatchError, WorkBudget, find};

/// Matches without a time limit.
fn matched(content: &str, old: &str) -> Result<Match, MatchError> {
    find(content, old, &mut || false)
}

/// Runs work that needs a budget, with an unlimited one.
fn with_unlimited_budget<T>(work: impl FnOnce(&mut WorkBudget<'_>) -> Result<T, MatchError>) -> T {
    work(&mut WorkBudget::new(&mut || false)).unwrap()
}

/// Generates texts of few different characters, so that similar and equal passages are common.
fn small_text(
    chars: &'static [char],
    len: std::ops::Range<usize>,
) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(chars), len)
        .prop_map(|chars| chars.into_iter().collect())
}

const FEW: &[char] = &['a', 'b'];
const LETTERS: &[char] = &['a', 'b', 'c', ' ', 'd'];
const MIXED: &[char] = &[
    'a', 'b', '中', '文', ' ', '\n', '😀', '👍', '\u{301}', '\u{323}', 'é', '-', '—', '“', '"',
    '１', '가', 'ㅏ',
];
/// Characters that are affected by quote mapping, NFKC or the rules for spaces.
const ODD: &[char] = &[
    'a',
    'b',
    'A',
    '1',
    ' ',
    ' ',
    '\n',
    '中',
    '文',
    '」',
    '\u{A0}',
    '\u{3000}',
    '“',
    '”',
    '\'',
    '’',
    '—',
    '-',
    '－',
    '㎏',
    'ﬁ',
    '½',
    '²',
    'Ⅳ',
    '①',
    'Ａ',
    '１',
    '\u{FDFA}',
    '\u{301}',
    '\u{323}',
    '\u{308}',
    '\u{327}',
    '\u{344}',
    'é',
    'ạ',
    'ü',
    '\u{1100}',
    '\u{1161}',
    '\u{11A8}',
    '가',
    '각',
    'ㄱ',
    'ㅏ',
    'か',
    'ｶ',
    '\u{3099}',
    '\u{FF9E}',
    '゛',
    '¨',
    'が',
    '\u{9C7}',
    '\u{9BE}',
    '\u{1E9B}',
    '\u{212B}',
    '\u{F900}',
    '😀',
    '\u{200B}',
    '\u{1D160}',
    '\u{2260}',
    '=',
    '\u{338}',
];

/// Generates a text and an edited copy of one of its passages.
fn text_with_edited_passage(
    chars: &'static [char],
    len: std::ops::Range<usize>,
    passage: std::ops::Range<usize>,
    edits: usize,
) -> impl Strategy<Value = (String, String)> {
    let edit = (
        any::<prop::sample::Index>(),
        0..3_u8,
        prop::sample::select(chars),
    );
    let text = prop::collection::vec(prop::sample::select(chars), len);
    (
        text,
        passage,
        any::<prop::sample::Index>(),
        prop::collection::vec(edit, 0..=edits),
    )
        .prop_map(|(text, len, start, edits)| {
            let len = len.min(text.len());
            let start = start.index(text.len() - len + 1);
            let mut old = text[start..start + len].to_vec();
            for (at, kind, ch) in edits {
                let at = at.index(old.len().max(1)).min(old.len());
                match kind {
                    0 => old.insert(at, ch),
                    1 if at < old.len() => old[at] = ch,
                    _ if at < old.len() => drop(old.remove(at)),
                    _ => {}
                }
            }
            (text.into_iter().collect(), old.into_iter().collect())
        })
}
