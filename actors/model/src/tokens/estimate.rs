//! Estimate of token counts, used if no tokenizer fits or none is loaded.
//!
//! Pure. Splits a text as tokenizers do: into words, numbers in groups of three digits, punctuation
//! and runs of whitespace; CJK characters count individually. The weights were fitted to
//! `o200k_base`; the table in the tests shows the error.
//!
//! Invariants: the estimate grows with the text, and never exceeds the number of bytes.

/// Weights are in hundredths of a token.
const SCALE: u64 = 100;

/// Kind of the preceding character, with the length of its run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Run {
    Start,
    Lower(u32),
    Upper(u32),
    Digits(u32),
    Signs(u32),
    Space,
    Blank,
    Other(u32),
}

/// Estimates the number of tokens of a text. 0 for an empty text.
pub fn estimate_tokens(text: &str) -> u64 {
    let mut run = Run::Start;
    let mut weight = 0;
    for c in text.chars() {
        let cost;
        (run, cost) = step(run, c);
        weight += cost;
    }
    u64::div_ceil(weight, SCALE)
}

/// Processes the next character: returns its run and the weight that it adds.
fn step(run: Run, c: char) -> (Run, u64) {
    match c {
        'a'..='z' => match run {
            Run::Lower(n) => (Run::Lower(n + 1), long_word_weight(n + 1)),
            Run::Upper(n) => (Run::Lower(n + 1), long_word_weight(n + 1)),
            _ => (Run::Lower(1), 100),
        },
        'A'..='Z' => match run {
            Run::Upper(n) => (Run::Upper(n + 1), 45),
            _ => (Run::Upper(1), 100),
        },
        '0'..='9' => match run {
            Run::Digits(n) if n % 3 != 0 => (Run::Digits(n + 1), 0),
            Run::Digits(n) => (Run::Digits(n + 1), 100),
            Run::Space => (Run::Digits(1), 200), // a blank is not part of a number
            _ => (Run::Digits(1), 100),
        },
        // A blank before a word is part of the word.
        ' ' => match run {
            Run::Space => (Run::Blank, 100),
            Run::Blank => (Run::Blank, 0),
            _ => (Run::Space, 0),
        },
        '\n' | '\r' | '\t' => match run {
            Run::Blank => (Run::Blank, 0),
            Run::Signs(_) => (Run::Blank, 30),
            _ => (Run::Blank, 100),
        },
        _ if c.is_ascii() => match run {
            Run::Signs(n) => (Run::Signs(n + 1), 30),
            _ => (Run::Signs(1), 85),
        },
        _ if is_cjk(c) => (Run::Start, 75),
        _ if c.is_alphabetic() => match run {
            Run::Other(n) | Run::Lower(n) | Run::Upper(n) => (Run::Other(n + 1), 20),
            _ => (Run::Other(1), 100),
        },
        _ => (Run::Start, 150),
    }
}

/// Returns the weight of the `n`-th letter of a word: words of up to eight letters are usually one
/// token.
const fn long_word_weight(n: u32) -> u64 {
    if n > 8 { 12 } else { 0 }
}

const fn is_cjk(c: char) -> bool {
    matches!(c as u32, 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xff00..=0xffef | 0x20000..=0x2fa1f)
}
