//! Makes untrusted text safe for a terminal: text of models, tools and file names must not control
//! it.
//!
//! Pure.
//!
//! Invariants:
//! - Escaped text contains no control characters, except line breaks in blocks (and tabs in
//!   [`safe_piped`]), and no invisible or direction-changing characters.
//! - `cut` and `broken` never return lines wider than requested.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Replacement for a harmful character.
const REPLACEMENT: char = '\u{fffd}';

/// Makes multi-line text safe. A tab becomes four spaces.
pub fn safe_block(text: &str) -> String {
    replace_harmful(text, "    ")
}

/// Makes text safe that is piped or written to a file: tabs are kept.
pub fn safe_piped(text: &str) -> String {
    replace_harmful(text, "\t")
}

fn replace_harmful(text: &str, tab: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let text = text.replace("\r\n", "\n");
    for c in text.chars() {
        match c {
            '\n' => safe.push('\n'),
            '\t' => safe.push_str(tab),
            c if is_harmful(c) => safe.push(REPLACEMENT),
            c => safe.push(c),
        }
    }
    safe
}

/// Makes text safe on one line: each run of white space becomes one space.
pub fn safe_line(text: &str) -> String {
    let words: Vec<String> = text
        .split_whitespace()
        .map(|word| {
            word.chars()
                .map(|c| if is_harmful(c) { REPLACEMENT } else { c })
                .collect()
        })
        .collect();
    words.join(" ")
}

/// Makes text safe on one line and keeps its spaces.
pub fn safe_line_keep_spaces(text: &str) -> String {
    safe_block(text).replace('\n', " ")
}

/// Maximum number of successive combining marks that are not escaped.
const MAX_COMBINING_MARKS: usize = 2;

/// Escapes model text on one line: control characters, invisible characters and excess combining
/// marks become `\u{…}`, and words of mixed scripts are marked.
pub fn escaped(text: &str) -> String {
    let words: Vec<String> = text.split(' ').map(escaped_word).collect();
    words.join(" ")
}

/// Like [`escaped`], with each run of white space as one space.
pub fn escaped_line(text: &str) -> String {
    escaped(&text.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn escaped_word(word: &str) -> String {
    let mut shown = String::with_capacity(word.len());
    let mut marks = 0;
    for c in word.chars() {
        let is_mark = !c.is_control() && UnicodeWidthChar::width(c) == Some(0);
        marks = if is_mark { marks + 1 } else { 0 };
        let is_invisible =
            matches!(c, '\u{34f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}');
        match c {
            '\t' => shown.push_str("    "),
            c if is_harmful(c) || is_invisible || marks > MAX_COMBINING_MARKS => {
                shown.push_str(&format!("\\u{{{:x}}}", u32::from(c)));
            }
            c => shown.push(c),
        }
    }
    if is_of_mixed_scripts(word) {
        shown.push_str("[mixed scripts]");
    }
    shown
}

/// Whether a word mixes Latin letters with letters of scripts that look similar.
fn is_of_mixed_scripts(word: &str) -> bool {
    let looks_alike = |c: char| matches!(c, '\u{370}'..='\u{52f}' | '\u{530}'..='\u{58f}' | '\u{13a0}'..='\u{13ff}');
    word.chars().any(|c| c.is_ascii_alphabetic()) && word.chars().any(looks_alike)
}

/// Splits a line into pieces of at most `columns`. An empty line gives one piece.
pub fn split_columns(line: &str, columns: usize) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    let mut used = 0;
    for (cluster, width) in clusters(line) {
        if used + width > columns && used > 0 {
            pieces.push(std::mem::take(&mut piece));
            used = 0;
        }
        used += width;
        piece.push_str(cluster);
    }
    pieces.push(piece);
    pieces
}

/// Splits a line into the part that fits in `columns` and the rest, after a space if there is one
/// in the second half. The first part has at least one character.
pub fn first_row(line: &str, columns: usize) -> (&str, &str) {
    let mut used = 0;
    let mut end = 0;
    let mut space = None;
    for (cluster, width) in clusters(line) {
        if used + width > columns && used > 0 {
            return line.split_at(space.unwrap_or(end));
        }
        used += width;
        end += cluster.len();
        if cluster == " " && used > columns / 2 {
            space = Some(end);
        }
    }
    (line, "")
}

/// Returns whether a character could control a terminal or mislead a reader.
fn is_harmful(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{061c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the width of a line in columns.
pub fn width(line: &str) -> usize {
    line.width()
}

/// Cuts a line to at most `columns`. `ellipsis` replaces the rest if it fits.
pub fn cut(line: &str, columns: usize, ellipsis: &str) -> String {
    if line.width() <= columns {
        return line.to_owned();
    }
    let ellipsis = if ellipsis.width() <= columns {
        ellipsis
    } else {
        ""
    };
    let room = columns - ellipsis.width();
    let mut cut = String::new();
    let mut used = 0;
    for c in line.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > room {
            break;
        }
        used += width;
        cut.push(c);
    }
    cut + ellipsis
}

/// Splits a line into clusters, each shown as one character, with their widths in columns.
///
/// Combining marks stay with their base letter, and joined emoji stay together. The sum of the
/// widths is never less than the width of the line.
pub fn clusters(line: &str) -> impl Iterator<Item = (&str, usize)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (cluster, after) = rest.split_at(cluster_end(rest));
        rest = after;
        Some((cluster, cluster.width()))
    })
}

/// Returns the end of the first cluster in bytes.
fn cluster_end(text: &str) -> usize {
    /// Maximum length in bytes of a joined emoji sequence; the cost of the check grows with it.
    const MAX_JOINED_BYTES: usize = 128;
    let mut joiner = false;
    for (at, c) in text.char_indices().skip(1) {
        let is_mark = c.width() == Some(0);
        let is_joinable = joiner || matches!(c, '\u{1f3fb}'..='\u{1f3ff}');
        let joins = || text[..at + c.len_utf8()].width() <= text[..at].width();
        let belongs = is_mark || (is_joinable && at < MAX_JOINED_BYTES && joins());
        if !belongs {
            return at;
        }
        joiner = c == '\u{200d}';
    }
    text.len()
}

/// Returns the cluster if it fits `columns`, else a replacement of one column.
pub fn fit_cluster(cluster: &str, wide: usize, columns: usize) -> (&str, usize) {
    if wide <= columns.max(1) {
        (cluster, wide)
    } else {
        ("\u{fffd}", 1)
    }
}

/// Breaks a line into one or more parts of at most `columns`.
pub fn break_line(line: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for (cluster, width) in clusters(line) {
        let (cluster, width) = fit_cluster(cluster, width, columns);
        if used + width > columns.max(1) {
            parts.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(part) = parts.last_mut() {
            part.push_str(cluster);
        }
    }
    parts
}

/// Wraps a safe line between words into lines of at most `columns`. Longer words are broken.
pub fn wrap(line: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = vec![String::new()];
    for word in line.split(' ') {
        let Some(open) = lines.last_mut() else { break };
        if !open.is_empty() && width(open) + 1 + width(word) <= columns {
            open.push(' ');
            open.push_str(word);
            continue;
        }
        let mut parts = break_line(word, columns).into_iter();
        if open.is_empty() {
            open.extend(parts.next());
        }
        lines.extend(parts);
    }
    lines
}

/// Pads a line with spaces to `columns`.
pub fn pad(line: &str, columns: usize) -> String {
    format!("{line}{}", " ".repeat(columns.saturating_sub(line.width())))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn terminal_control_characters_are_replaced() {
        for (foreign, on_one_line, as_block) in [
            ("plain", "plain", "plain"),
            ("two\nlines", "two lines", "two\nlines"),
            ("a\r\nb", "a b", "a\nb"),
            ("back\rover", "back over", "back\u{fffd}over"),
            ("\u{1b}[2Jgone", "\u{fffd}[2Jgone", "\u{fffd}[2Jgone"),
            ("\u{9b}31m", "\u{fffd}31m", "\u{fffd}31m"),
            (
                "\u{1b}]0;title\u{7}",
                "\u{fffd}]0;title\u{fffd}",
                "\u{fffd}]0;title\u{fffd}",
            ),
            (
                "abc\u{202e}txt.exe",
                "abc\u{fffd}txt.exe",
                "abc\u{fffd}txt.exe",
            ),
            (
                "zero\u{200b}width",
                "zero\u{fffd}width",
                "zero\u{fffd}width",
            ),
            ("a\tb", "a b", "a    b"),
            ("nul\0", "nul\u{fffd}", "nul\u{fffd}"),
            ("好 👩\u{200d}🔬", "好 👩\u{200d}🔬", "好 👩\u{200d}🔬"),
        ] {
            assert_eq!(safe_line(foreign), on_one_line, "{foreign:?}");
            assert_eq!(safe_block(foreign), as_block, "{foreign:?}");
        }
        assert_eq!(
            safe_piped("all:\n\techo \u{1b}[1m"),
            "all:\n\techo \u{fffd}[1m"
        );
    }

    #[test]
    fn cut_counts_columns_not_characters() {
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

    #[test]
    fn line_breaks_between_grapheme_clusters() {
        for (text, columns, want) in [
            ("abcdef", 4, vec!["abcd", "ef"]),
            ("", 4, vec![""]),
            ("好好好", 5, vec!["好好", "好"]),
            ("好a", 1, vec!["\u{fffd}", "a"]),
            ("ae\u{301}b", 2, vec!["ae\u{301}", "b"]),
            ("👩\u{200d}🔬👍🏽!", 2, vec!["👩\u{200d}🔬", "👍🏽", "!"]),
            ("x\u{200d}y", 1, vec!["x\u{200d}", "y"]), // only emoji are joined
            ("❤\u{fe0f}❤\u{fe0f}", 3, vec!["❤\u{fe0f}", "❤\u{fe0f}"]),
        ] {
            assert_eq!(break_line(text, columns), want, "{text} to {columns}");
        }
    }

    #[test]
    fn line_is_wrapped_between_words() {
        for (text, columns, want) in [
            ("one two three", 7, vec!["one two", "three"]),
            ("one", 7, vec!["one"]),
            ("", 7, vec![""]),
            ("a verylongword b", 6, vec!["a", "verylo", "ngword", "b"]),
            ("好好 好", 4, vec!["好好", "好"]),
        ] {
            assert_eq!(wrap(text, columns), want, "{text} to {columns}");
        }
    }

    #[test]
    fn long_combining_sequence_is_broken_in_linear_time() {
        let joined = "👩\u{200d}".repeat(100_000);
        let marked = "e".to_owned() + &"\u{301}\u{200d}".repeat(100_000);
        for text in [&joined, &marked] {
            assert_eq!(break_line(text, 10).concat(), *text);
        }
    }

    /// Arbitrary text with a high share of joined, combining and wide characters.
    fn texts() -> impl Strategy<Value = String> {
        let odd = "[ab❤👩👍🔬🏽🏻好لا\u{200d}\u{fe0f}\u{fe0e}\u{301}\u{1f1e6}\u{1f1e7}\u{17d2}ក\u{201c}]{0,40}";
        prop_oneof![any::<String>(), odd]
    }

    proptest! {
        #[test]
        fn broken_lines_fit_and_keep_all_text(text in texts(), columns in 2usize..40) {
            let safe = safe_line_keep_spaces(&text);
            let parts = break_line(&safe, columns);
            prop_assert_eq!(parts.concat(), safe.as_str());
            for part in &parts {
                prop_assert!(part.width() <= columns, "{part:?}");
            }
            prop_assert!(clusters(&safe).map(|(_, width)| width).sum::<usize>() >= safe.width());
            for part in wrap(&safe, columns) {
                prop_assert!(part.width() <= columns, "{part:?}");
            }
            prop_assert!(break_line(&safe, 1).iter().all(|part| part.width() <= 1));
        }

        #[test]
        fn any_text_is_sanitized_and_fits(text in any::<String>(), columns in 0usize..60) {
            let safe = safe_line(&text);
            prop_assert!(!safe.chars().any(is_harmful));
            prop_assert!(!safe_block(&text).chars().any(|c| c != '\n' && is_harmful(c)));
            prop_assert!(cut(&safe, columns, "…").width() <= columns);
        }
    }
}
