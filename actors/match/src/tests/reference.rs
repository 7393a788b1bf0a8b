//! Naive implementation of the rules of the first and third layer: obviously correct, but slow.

use std::ops::Range;

use unicode_normalization::UnicodeNormalization as _;

/// Result of the third layer.
#[derive(Debug, PartialEq)]
pub(super) enum Nearest {
    NoMatch,
    Ambiguous(usize),
    TooDifferent(usize),
    /// The distance, and the span in characters.
    Found(usize, Range<usize>),
}

/// Returns the distance from each start in `text`, including the empty suffix, to the whole of
/// `old`.
fn distances(text: &[char], old: &[char]) -> Vec<usize> {
    let mut column: Vec<usize> = (0..=old.len()).collect();
    let mut bottoms = vec![old.len()];
    for (at, ch) in text.iter().enumerate() {
        let mut next = vec![at + 1];
        for (row, other) in old.iter().enumerate() {
            let diagonal = column[row] + usize::from(ch != other);
            next.push(diagonal.min(column[row + 1] + 1).min(next[row] + 1));
        }
        bottoms.push(next[old.len()]);
        column = next;
    }
    bottoms
}

fn distance(text: &[char], old: &[char]) -> usize {
    distances(text, old)[text.len()]
}

/// Returns whether the first character is aligned with an equal one in some best alignment.
fn starts_equal(span: &[char], old: &[char], best: usize) -> bool {
    (0..old.len()).any(|skipped| {
        span[0] == old[skipped] && skipped + distance(&span[1..], &old[skipped + 1..]) == best
    })
}

pub(super) fn nearest(content: &str, old: &str) -> Nearest {
    let text: Vec<char> = content.chars().collect();
    let old: Vec<char> = old.chars().collect();
    let m = old.len();
    let k = 5.max(old.len() * 3 / 10);
    if m <= 5 {
        return Nearest::NoMatch;
    }
    let mut spans: Vec<(usize, Range<usize>)> = Vec::new();
    for start in 0..text.len() {
        for (len, distance) in distances(&text[start..], &old)
            .into_iter()
            .enumerate()
            .skip(1)
        {
            spans.push((distance, start..start + len));
        }
    }
    let Some(best) = spans
        .iter()
        .map(|span| span.0)
        .min()
        .filter(|best| *best <= k)
    else {
        return Nearest::NoMatch;
    };
    let spans: Vec<Range<usize>> = spans
        .into_iter()
        .filter(|span| span.0 == best)
        .map(|span| span.1)
        .collect();
    // In order of the start: a region extends as long as the next span starts before its end.
    let mut regions = 0;
    let mut end = 0;
    for span in &spans {
        regions += usize::from(span.start >= end);
        end = end.max(span.end);
    }
    if regions > 1 {
        return Nearest::Ambiguous(regions);
    }
    if best as f64 > 0.3 * m as f64 + 1e-9 {
        return Nearest::TooDifferent(best);
    }
    let prefers = m / (k + 1) < 3;
    let key = |span: &Range<usize>| {
        let is_equal = prefers && starts_equal(&text[span.clone()], &old, best);
        (!is_equal, std::cmp::Reverse(span.len()), span.start)
    };
    Nearest::Found(best, spans.into_iter().min_by_key(key).unwrap())
}

/// Maps quotes, dashes and spaces one by one, from the lists in the rules.
fn mapped(ch: char) -> char {
    match ch as u32 {
        0x2018 | 0x2019 | 0x201A | 0x2039 | 0x203A => '\'',
        0x201C | 0x201D | 0x201E | 0xAB | 0xBB => '"',
        0x2012 | 0x2013 | 0x2014 | 0x2015 | 0x2212 | 0xFE58 | 0xFE63 | 0xFF0D => '-',
        0xA0 | 0x2000..=0x200A | 0x202F | 0x205F | 0x3000 => ' ',
        _ => ch,
    }
}

fn is_cjk(ch: char) -> bool {
    let ranges = [
        (0x2E80, 0x2FDF),
        (0x3000, 0x303F),
        (0x3040, 0x30FF),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0xFE30, 0xFE4F),
        (0xFF00, 0xFFEF),
        (0x20000, 0x2A6DF),
    ];
    ranges
        .iter()
        .any(|&(first, last)| (first..=last).contains(&(ch as u32)))
}

/// Normalizes a text, step by step over the whole text.
pub(super) fn normalised(text: &str) -> String {
    let text: String = text.chars().map(mapped).nfkc().collect();
    let lines: Vec<&str> = text
        .split('\n')
        .map(|line| line.trim_end_matches(' '))
        .collect();
    let chars: Vec<char> = lines.join("\n").chars().collect();
    let is_latin = |ch: char| ch.is_ascii_alphanumeric();
    let mut result = String::new();
    let mut at = 0;
    while at < chars.len() {
        let end = at + chars[at..].iter().take_while(|ch| **ch == ' ').count();
        if end > at {
            let last = at.checked_sub(1).map(|last| chars[last]);
            let is_seam = match (last, chars.get(end)) {
                (Some(a), Some(&b)) => is_cjk(a) && is_latin(b) || is_latin(a) && is_cjk(b),
                _ => false,
            };
            if !is_seam {
                result.extend(&chars[at..end]);
            }
            at = end;
        } else {
            result.push(chars[at]);
            at += 1;
        }
    }
    result
}
