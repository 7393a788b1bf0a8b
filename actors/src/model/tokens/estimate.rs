//! The one estimate of tokens, where no tokenizer fits or none is loaded.
//!
//! Pure. It walks over a text as tokenizers split it: words, numbers in groups of three, signs, runs of
//! blanks; CJK characters count by themselves. The weights were fitted to `o200k_base`; the table in
//! the tests says how far it is off. Invariants: it grows with the text; it is never more than the
//! bytes of the text.

/// Weights are in hundredths of a token.
const SCALE: u64 = 100;

/// What the character before belongs to.
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

/// Estimates the tokens of a text; 0 for an empty one.
pub(crate) fn estimate_tokens(text: &str) -> u64 {
    let mut run = Run::Start;
    let mut weight = 0;
    for c in text.chars() {
        let cost;
        (run, cost) = step(run, c);
        weight += cost;
    }
    u64::div_ceil(weight, SCALE)
}

/// Takes the next character: what it belongs to, and what it adds.
fn step(run: Run, c: char) -> (Run, u64) {
    match c {
        'a'..='z' => match run {
            Run::Lower(n) => (Run::Lower(n + 1), longer(n + 1)),
            Run::Upper(n) => (Run::Lower(n + 1), longer(n + 1)),
            _ => (Run::Lower(1), 100),
        },
        'A'..='Z' => match run {
            Run::Upper(n) => (Run::Upper(n + 1), 45),
            _ => (Run::Upper(1), 100),
        },
        '0'..='9' => match run {
            Run::Digits(n) if n % 3 != 0 => (Run::Digits(n + 1), 0),
            Run::Digits(n) => (Run::Digits(n + 1), 100),
            Run::Space => (Run::Digits(1), 200), // a blank is no part of a number
            _ => (Run::Digits(1), 100),
        },
        // The blank before a word is part of it.
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

/// What letter number `n` of a word adds: words of up to eight letters are one token as a rule.
const fn longer(n: u32) -> u64 {
    if n > 8 { 12 } else { 0 }
}

const fn is_cjk(c: char) -> bool {
    matches!(c as u32, 0x2e80..=0x9fff | 0xac00..=0xd7af | 0xf900..=0xfaff | 0xff00..=0xffef | 0x20000..=0x2fa1f)
}
