//! A unified diff as rows with line numbers: removed lines red, added lines green.

use std::fmt;

use super::{Row, margin};
use crate::terminal::Hue;

/// Columns of a line number.
const NUMBER_COLUMNS: usize = 5;

/// Returns the rows of a unified diff; `None` where it is none.
pub(super) fn rows(diff: &str) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    // The numbers that the next lines have, in the old file and in the new one.
    let (mut old, mut new) = (0, 0);
    let mut lines = diff.lines().skip_while(|line| !line.starts_with("@@ ")).peekable();
    lines.peek()?;
    for line in lines {
        if let Some(hunk) = line.strip_prefix("@@ -") {
            let begin = begin(hunk)?;
            if begin.0 > old.max(1) {
                rows.extend(margin("...").into_iter().map(Row::plain));
            }
            (old, new) = begin;
            continue;
        }
        // "\ No newline at end of file" has no number.
        let (mark, text) = line.split_at_checked(1)?;
        let (hue, at) = match mark {
            "-" => (Hue::Red, numbers(&old, &"")),
            "+" => (Hue::Green, numbers(&"", &new)),
            " " => (Hue::Plain, numbers(&old, &new)),
            _ => (Hue::Plain, numbers(&"", &"")),
        };
        old += usize::from(matches!(mark, "-" | " "));
        new += usize::from(matches!(mark, "+" | " "));
        // An empty line is a line here: nothing is folded.
        rows.extend(margin(&format!("{at} {mark} {text}")).into_iter().map(|text| Row { hue, text }));
    }
    Some(rows)
}

/// Reads where a hunk begins in both files: `1,3 +1,4 @@`.
fn begin(hunk: &str) -> Option<(usize, usize)> {
    let (old, new) = hunk.split_once(" +")?;
    let first = |range: &str| range.split([',', ' ']).next()?.parse().ok();
    Some((first(old)?, first(new)?))
}

fn numbers(old: &dyn fmt::Display, new: &dyn fmt::Display) -> String {
    format!("{old:>NUMBER_COLUMNS$} {new:>NUMBER_COLUMNS$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_its_numbers_and_its_colour() {
        let diff = "--- original\n+++ modified\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\u{1b}[2J\n three\n@@ -20,2 +20,3 @@\n a\n+\n b\n\
                    \\ No newline at end of file\n";
        let rows = rows(diff).unwrap();
        let shown: Vec<(Hue, &str)> = rows.iter().map(|row| (row.hue, row.text.as_str())).collect();
        assert_eq!(
            shown,
            [
                (Hue::Plain, "|     1     1   one"),
                (Hue::Red, "|     2       - two"),
                (Hue::Green, "|           2 + zwei\\u{1b}[2J"),
                (Hue::Plain, "|     3     3   three"),
                (Hue::Plain, "| ..."),
                (Hue::Plain, "|    20    20   a"),
                (Hue::Green, "|          21 + "),
                (Hue::Plain, "|    21    22   b"),
                (Hue::Plain, "|             \\  No newline at end of file"),
            ]
        );
        assert!(super::rows("no diff").is_none());
    }
}
