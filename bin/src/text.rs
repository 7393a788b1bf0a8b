//! Foreign text, made harmless: what models, tools and file names say must not steer a terminal.
//!
//! Pure. Invariants: what leaves here holds no control character but, in blocks, the line break;
//! no mark that turns the reading direction and none that is invisible; and `cut` never returns
//! more columns than asked for.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Stands for a character that could do harm.
const BLANK: char = '\u{fffd}';

/// Makes text harmless that may have several lines; a tab becomes spaces.
pub(crate) fn block(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let text = text.replace("\r\n", "\n");
    for c in text.chars() {
        match c {
            '\n' => safe.push('\n'),
            '\t' => safe.push_str("    "),
            c if is_harmful(c) => safe.push(BLANK),
            c => safe.push(c),
        }
    }
    safe
}

/// Makes text harmless on one line: white space of any kind becomes one space.
pub(crate) fn line(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| word.chars().map(|c| if is_harmful(c) { BLANK } else { c }).collect())
        .collect();
    words.join(" ")
}

/// Makes one line harmless and keeps its spaces.
pub(crate) fn line_as_is(text: &str) -> String {
    block(text).replace('\n', " ")
}

/// Returns whether a terminal would obey a character, or a reader be misled by it.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns how many columns a line takes.
pub(crate) fn width(line: &str) -> usize {
    line.width()
}

/// Cuts a line to at most `columns`; `ellipsis` stands for the rest where there is room for it.
pub(crate) fn cut(line: &str, columns: usize, ellipsis: &str) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    let ellipsis = if ellipsis.width() <= columns { ellipsis } else { "" };
    let room = columns - ellipsis.width();
    let mut kept = String::new();
    let mut used = 0;
    for c in line.chars() {
        let wide = c.width().unwrap_or(0);
        if used + wide > room {
            break;
        }
        used += wide;
        kept.push(c);
    }
    kept + ellipsis
}

/// Fills a line with spaces up to `columns`.
pub(crate) fn pad(line: &str, columns: usize) -> String {
    format!("{line}{}", " ".repeat(columns.saturating_sub(line.width())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_gets_through() {
        for (foreign, on_one_line, as_block) in [
            ("plain", "plain", "plain"),
            ("two\nlines", "two lines", "two\nlines"),
            ("a\r\nb", "a b", "a\nb"),
            ("back\rover", "back over", "back\u{fffd}over"),
            ("\u{1b}[2Jgone", "\u{fffd}[2Jgone", "\u{fffd}[2Jgone"),
            ("\u{9b}31m", "\u{fffd}31m", "\u{fffd}31m"),
            ("\u{1b}]0;title\u{7}", "\u{fffd}]0;title\u{fffd}", "\u{fffd}]0;title\u{fffd}"),
            ("abc\u{202e}txt.exe", "abc\u{fffd}txt.exe", "abc\u{fffd}txt.exe"),
            ("zero\u{200b}width", "zero\u{fffd}width", "zero\u{fffd}width"),
            ("a\tb", "a b", "a    b"),
            ("nul\0", "nul\u{fffd}", "nul\u{fffd}"),
            ("好 👩\u{200d}🔬", "好 👩\u{200d}🔬", "好 👩\u{200d}🔬"),
        ] {
            assert_eq!(line(foreign), on_one_line, "{foreign:?}");
            assert_eq!(block(foreign), as_block, "{foreign:?}");
        }
    }

    #[test]
    fn a_cut_counts_columns_and_not_characters() {
        for (text, columns, want) in [
            ("abcdef", 6, "abcdef"),
            ("abcdef", 4, "abc…"),
            ("好好好", 6, "好好好"),
            ("好好好", 5, "好好…"),
            ("好好好", 4, "好…"),
            ("abc", 0, ""),
            ("abc", 1, "…"),
        ] {
            assert_eq!(cut(text, columns, "…"), want, "{text} to {columns}");
        }
        assert_eq!(cut("abcdef", 2, "..."), "ab");
    }

    proptest! {
        #[test]
        fn any_text_is_harmless_and_fits(text in any::<String>(), columns in 0usize..60) {
            let safe = line(&text);
            prop_assert!(!safe.chars().any(is_harmful));
            prop_assert!(!block(&text).chars().any(|c| c != '\n' && is_harmful(c)));
            prop_assert!(cut(&safe, columns, "…").width() <= columns);
        }
    }
}
