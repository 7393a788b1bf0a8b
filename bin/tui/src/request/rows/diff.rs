//! Formats a unified diff as rows with line numbers: removed lines red, added lines green.

use std::fmt;

use crate::{terminal::TextStyle, text};

use super::{DEFAULT_COLUMNS, MARGIN_MARK, Row};

/// Width of one line number in columns.
const NUMBER_COLUMNS: usize = 5;
/// Width of both line numbers in columns.
const NUMBERS_COLUMNS: usize = 2 * NUMBER_COLUMNS + 1;
/// Column in which the text of a line starts, after the margin.
const TEXT_COLUMN: usize = NUMBERS_COLUMNS + 3;

/// Returns the rows of a unified diff, or `None` if the text is not one.
pub(crate) fn diff_rows(diff: &str) -> Option<Vec<Row>> {
    let mut rows = Vec::new();
    // Numbers of the next line in the old file and in the new file.
    let mut old = 0;
    let mut new = 0;
    let lines = diff.strip_suffix('\n').unwrap_or(diff).split('\n');
    let mut lines = lines.skip_while(|line| !line.starts_with("@@ ")).peekable();
    lines.peek()?;
    for line in lines {
        if let Some(hunk) = line.strip_prefix("@@ -") {
            let begin = parse_hunk_header(hunk)?;
            if begin.0 > old.max(1) {
                rows.push(Row::plain(format!("{MARGIN_MARK}...")));
            }
            (old, new) = begin;
            continue;
        }
        // "\ No newline at end of file" gets no line number.
        let (mark, content) = line.split_at_checked(1).unwrap_or((" ", ""));
        let (style, at) = match mark {
            "-" => (TextStyle::Red, numbers(&old, &"")),
            "+" => (TextStyle::Green, numbers(&"", &new)),
            " " => (TextStyle::Plain, numbers(&old, &new)),
            _ => (TextStyle::Plain, numbers(&"", &"")),
        };
        old += usize::from(matches!(mark, "-" | " "));
        new += usize::from(matches!(mark, "+" | " "));
        // A row that continues a line has no number, so that a long line cannot imitate several
        // lines.
        let pieces = text::split_columns(&text::escaped(content), DEFAULT_COLUMNS - TEXT_COLUMN);
        for (index, piece) in pieces.iter().enumerate() {
            let (at, mark) = if index == 0 {
                (at.as_str(), mark)
            } else {
                ("", ">")
            };
            rows.push(Row {
                style,
                text: format!("{MARGIN_MARK}{at:NUMBERS_COLUMNS$} {mark} {piece}"),
            });
        }
    }
    Some(rows)
}

/// Parses the first lines of a hunk in both files: `1,3 +1,4 @@`.
fn parse_hunk_header(hunk: &str) -> Option<(usize, usize)> {
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
    fn diff_lines_have_line_numbers_and_colors() {
        let diff = "--- original\n+++ modified\n@@ -1,3 +1,3 @@\n one\n-two\n+zwei\u{1b}[2J\n three\n@@ -20,2 +20,3 @@\n a\n+\n b\n\
                    \\ No newline at end of file\n";
        let rows = diff_rows(diff).unwrap();
        let shown: Vec<(TextStyle, &str)> = rows
            .iter()
            .map(|row| (row.style, row.text.as_str()))
            .collect();
        assert_eq!(
            shown,
            [
                (TextStyle::Plain, "|     1     1   one"),
                (TextStyle::Red, "|     2       - two"),
                (TextStyle::Green, "|           2 + zwei\\u{1b}[2J"),
                (TextStyle::Plain, "|     3     3   three"),
                (TextStyle::Plain, "| ..."),
                (TextStyle::Plain, "|    20    20   a"),
                (TextStyle::Green, "|          21 + "),
                (TextStyle::Plain, "|    21    22   b"),
                (
                    TextStyle::Plain,
                    "|             \\  No newline at end of file"
                ),
            ]
        );
        // A context line may lack its leading space if it is empty. A continued row has no number.
        let long = format!(
            "@@ -1,2 +1,3 @@\n\n+{}    13       - harmless\n",
            "x".repeat(86)
        );
        let shown: Vec<String> = super::diff_rows(&long)
            .unwrap()
            .into_iter()
            .map(|row| row.text)
            .collect();
        assert_eq!((shown.len(), shown[0].trim_end()), (3, "|     1     1"));
        assert!(
            shown[2].starts_with("|             >     13       - harmless"),
            "{shown:#?}"
        );
        assert!(super::diff_rows("no diff").is_none());
    }
}
