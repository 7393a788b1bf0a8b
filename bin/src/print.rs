//! Printing: to standard output, whose reader may close it, and to standard error, where write
//! errors are ignored.

use std::{
    io::{ErrorKind, IsTerminal, Write},
    process::ExitCode,
};

use serde::Serialize;
use soong::protocol::Timestamp;
use soong_tui::{
    format, screen,
    table::{self, Column},
    terminal::{Paint, Terminal, TextStyle},
    text,
};

use crate::{
    exit::{Exit, Failure},
    pager, secret,
};

/// Characters other than LF at which some readers split lines.
const LINE_ENDS: [char; 3] = ['\u{85}', '\u{2028}', '\u{2029}'];

/// Prints a line to standard output.
pub(crate) fn line(line: &str) -> Result<(), Failure> {
    pager::line(line).map_err(|error| stdout_failure(&error))
}

/// Prints a line that is not part of the answer: on standard output if that is a terminal, else on
/// standard error, so that a pipe receives only the answer.
pub(crate) fn line_or_stderr(
    terminal: &Terminal,
    style: TextStyle,
    line: &str,
) -> Result<(), Failure> {
    if terminal.has_stdout {
        return self::line(&terminal.stdout.paint(style, line));
    }
    error_line(&terminal.stderr.paint(style, line));
    Ok(())
}

/// Like [`line_or_stderr`], wrapped between words at a terminal. For text that contains no command
/// to copy.
pub(crate) fn text_or_stderr(
    terminal: &Terminal,
    style: TextStyle,
    text: &str,
) -> Result<(), Failure> {
    let is_terminal = terminal.has_stdout || std::io::stderr().is_terminal();
    wrap(text, is_terminal)
        .iter()
        .try_for_each(|line| line_or_stderr(terminal, style, line))
}

/// Prints a record as JSON on one line.
pub(crate) fn json_line<T: Serialize>(record: &T) -> Result<(), Failure> {
    let json = serde_json::to_string(record)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string(), ""))?;
    line(&escape_line_ends(json))
}

/// Escapes Unicode line ends, at which some line readers split. In JSON they can only occur within
/// strings.
fn escape_line_ends(json: String) -> String {
    if json.contains(LINE_ENDS) {
        json.replace('\u{2028}', "\\u2028")
            .replace('\u{2029}', "\\u2029")
            .replace('\u{85}', "\\u0085")
    } else {
        json
    }
}

/// Prints records as indented JSON.
pub(crate) fn json<T: Serialize>(records: &T) -> Result<(), Failure> {
    let json = serde_json::to_string_pretty(records)
        .map_err(|error| Failure::new(Exit::Failed, error.to_string(), ""))?;
    line(&json)
}

/// Returns the failure for a write error on standard output; a closed pipe is not an error.
pub(crate) fn stdout_failure(error: &std::io::Error) -> Failure {
    match error.kind() {
        ErrorKind::BrokenPipe => Failure::output_closed(),
        _ => Failure::new(
            Exit::Failed,
            format!("standard output cannot be written: {error}"),
            "Check where it is redirected.",
        ),
    }
}

/// Prints a line to standard error. Write errors are ignored.
pub(crate) fn error_line(line: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", secret::redacted(line));
}

/// Prints a note to standard error, wrapped between words at a terminal.
pub(crate) fn note(note: &str) {
    let unstyled = Paint { on: false };
    let on_terminal = std::io::stderr().is_terminal();
    for line in wrap_after(
        unstyled,
        TextStyle::Plain,
        "note:",
        &format!(" {note}"),
        on_terminal,
    ) {
        error_line(&line);
    }
}

/// Prints the failure to standard error and returns the exit code.
pub(crate) fn failure(failure: &Failure, terminal: &Terminal) -> ExitCode {
    if !failure.what.is_empty() {
        let paint = terminal.stderr;
        let (style, head) = match failure.exit {
            Exit::AwaitsInput => (TextStyle::Yellow, "waiting:"),
            _ => (TextStyle::Red, "error:"),
        };
        let what = format!(" {}", text::safe_line(&failure.what));
        let is_terminal = std::io::stderr().is_terminal();
        wrap_after(paint, style, head, &what, is_terminal)
            .iter()
            .for_each(|line| error_line(line));
        for line in failure.advice.lines().filter(|line| !line.is_empty()) {
            error_line(&format!("  {}", text::safe_line_keep_spaces(line)));
        }
    }
    failure.exit.into()
}

/// Prints a table that fits the terminal; complete if standard output is not one. Cells are
/// untrusted text.
pub(crate) fn table(
    terminal: &Terminal,
    columns: &[Column],
    rows: &[Vec<String>],
) -> Result<(), Failure> {
    table::lines(columns, rows, columns_of(terminal), terminal.ellipsis())
        .iter()
        .try_for_each(|row| line(row))
}

/// Prints the columns that the user has selected, or all of them if none is selected.
pub(crate) fn selected_table(
    terminal: &Terminal,
    columns: &[Column],
    rows: &[Vec<String>],
    selected: &[String],
) -> Result<(), Failure> {
    if selected.is_empty() {
        return table(terminal, columns, rows);
    }
    let (columns, rows) = table::select(columns, rows, selected).map_err(|unknown| {
        let keys: Vec<String> = columns.iter().map(Column::key).collect();
        let what = format!("there is no column {}", text::safe_line(&unknown));
        Failure::usage(what, format!("The columns are: {}", keys.join(", ")))
    })?;
    self::table(terminal, &columns, &rows)
}

/// Returns the lines of a safe text. On a terminal of known width, it is wrapped between words.
fn wrap(text: &str, on_terminal: bool) -> Vec<String> {
    let (columns, _) = crossterm::terminal::size().unwrap_or_default();
    if on_terminal && columns > 0 {
        text::wrap(text, usize::from(columns))
    } else {
        vec![text.to_owned()]
    }
}

/// Returns the lines of a safe text that begins with a styled word. On a terminal of known width,
/// it is wrapped between words.
pub(crate) fn wrap_after(
    paint: Paint,
    style: TextStyle,
    head: &str,
    rest: &str,
    on_terminal: bool,
) -> Vec<String> {
    let mut lines = wrap(&format!("{head}{rest}"), on_terminal);
    if let Some(first) = lines.first_mut()
        && let Some(rest) = first.strip_prefix(head)
    {
        *first = format!("{}{rest}", paint.paint(style, head));
    }
    lines
}

/// Returns the width of the terminal on standard output, if it is one and its width is known.
fn columns_of(terminal: &Terminal) -> Option<usize> {
    let (columns, _) = crossterm::terminal::size().unwrap_or_default();
    (terminal.has_stdout && columns > 0).then_some(usize::from(columns))
}

/// Returns a heading for times, and the function that formats them: relative on a terminal, else in
/// UTC.
pub(crate) fn times(
    terminal: &Terminal,
    [relative, absolute]: [&'static str; 2],
) -> (&'static str, impl Fn(Timestamp) -> String) {
    let is_relative = terminal.has_stdout;
    let now = screen::now();
    let format = move |at| {
        if is_relative {
            format::ago(at, now)
        } else {
            format::time(at)
        }
    };
    (if is_relative { relative } else { absolute }, format)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_record_contains_no_line_separators() {
        let text = "a\u{2028}b\u{2029}c\u{85}d\ne";
        let escaped = escape_line_ends(serde_json::to_string(text).unwrap());
        assert!(
            !escaped.contains(LINE_ENDS) && !escaped.contains('\n'),
            "{escaped:?}"
        );
        assert_eq!(serde_json::from_str::<String>(&escaped).unwrap(), text);
    }
}
