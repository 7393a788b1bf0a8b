//! Pictures on a test terminal: the visible rows, the scrollback, and the bytes sent.

use std::num::NonZeroU16;

use proptest::prelude::*;

use super::*;
use crate::terminal::TextStyle;

/// A terminal emulator fed by a painter.
struct TestTerminal {
    parser: vt100::Parser,
    painter: Painter,
    size: Size,
}

fn parser(size: Size) -> vt100::Parser {
    let cells = |n: usize| NonZeroU16::new(u16::try_from(n).unwrap()).unwrap();
    vt100::Parser::new(cells(size.rows), cells(size.columns), 10_000)
}

impl TestTerminal {
    fn new(columns: usize, rows: usize) -> Self {
        let size = Size { columns, rows };
        Self {
            parser: parser(size),
            painter: Painter::new(Paint { on: false }),
            size,
        }
    }

    /// Prints lines and draws a picture; returns the output.
    fn paint(&mut self, above: &[&str], picture: &[&str]) -> String {
        let lines = |texts: &[&str]| -> Vec<StyledLine> {
            texts
                .iter()
                .map(|text| StyledLine::of(TextStyle::Plain, *text))
                .collect()
        };
        let sent = self
            .painter
            .paint(&lines(above), &lines(picture), self.size);
        self.parser.process(sent.as_bytes());
        sent
    }

    /// Resizes like a terminal that does not rewrap lines.
    fn crop(&mut self, columns: usize, rows: usize) {
        self.size = Size { columns, rows };
        let cells = |n: usize| NonZeroU16::new(u16::try_from(n).unwrap()).unwrap();
        self.parser.set_size(cells(rows), cells(columns));
    }

    /// Resizes like a terminal that rewraps lines: all visible text is written again.
    fn reflow(&mut self, columns: usize, rows: usize) {
        let lines = self.lines();
        self.size = Size { columns, rows };
        self.parser = parser(self.size);
        self.parser.process(
            lines
                .iter()
                .map(|line| format!("{line}\r\n"))
                .collect::<String>()
                .as_bytes(),
        );
    }

    /// Returns all lines above the cursor, including the scrollback, with wrapped lines joined.
    fn lines(&mut self) -> Vec<String> {
        let screen = self.parser.screen_mut();
        screen.set_scrollback(usize::MAX);
        let hidden = screen.scrollback();
        let above_cursor = hidden + usize::from(screen.cursor_position().0);
        let mut lines = vec![String::new()];
        for row in 0..above_cursor {
            // Moves the scrollback view to the row before reading it.
            let offset = hidden.saturating_sub(row);
            screen.set_scrollback(offset);
            let at = row - (hidden - offset);
            let text = screen.rows(0, u16::MAX).nth(at).unwrap();
            lines.last_mut().unwrap().push_str(text.trim_end());
            if !screen.row_wrapped(u16::try_from(at).unwrap()) {
                lines.push(String::new());
            }
        }
        screen.set_scrollback(0);
        let below = screen
            .rows(0, u16::MAX)
            .skip(above_cursor - hidden)
            .collect::<String>();
        assert_eq!(below.trim(), "", "nothing stands below the picture");
        assert_eq!(
            lines.pop().unwrap(),
            "",
            "the cursor is on a line of its own"
        );
        lines
    }

    /// Returns the visible rows, without empty ones at the end.
    fn rows(&self) -> Vec<String> {
        let mut rows: Vec<String> = self
            .parser
            .screen()
            .rows(0, u16::MAX)
            .map(|row| row.trim_end().to_owned())
            .collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }
}

#[test]
fn frame_replaces_the_previous_one() {
    for (first, second) in [
        (vec!["a", "b", "c"], vec!["a", "x", "c"]),
        (vec!["a", "b", "c"], vec!["a"]),
        (vec!["a"], vec!["a", "b", "c"]),
        (vec!["a", "b"], vec!["x", "b", "c"]),
        (vec!["a long line", "b"], vec!["short", "b"]),
        (vec!["a", "b", "c"], vec!["b", "c"]),
        (vec!["a", "b"], vec![]),
        (vec![], vec!["a", ""]),
    ] {
        for rows in [4, 6, 20] {
            let mut glass = TestTerminal::new(20, rows);
            glass.parser.process(b"$ soong\r\n");
            glass.paint(&[], &first);
            glass.paint(&[], &second);
            assert_eq!(
                glass.lines(),
                [&["$ soong"], second.as_slice()].concat(),
                "{first:?} on {rows} rows"
            );
        }
    }
}

#[test]
fn unchanged_lines_are_not_sent_again() {
    let mut glass = TestTerminal::new(20, 10);
    glass.paint(&[], &["first", "second", "third"]);
    assert_eq!(glass.paint(&[], &["first", "second", "third"]), "");
    let sent = glass.paint(&[], &["first", "2nd", "third"]);
    assert!(
        sent.contains("2nd") && !sent.contains("first") && !sent.contains("third"),
        "{sent:?}"
    );
    let sent = glass.paint(&[], &["1st", "2nd", "3rd"]);
    assert!(
        sent.contains("1st") && sent.contains("3rd") && !sent.contains("2nd"),
        "{sent:?}"
    );
    assert_eq!(glass.rows(), ["1st", "2nd", "3rd"]);
    glass.crop(30, 10);
    assert!(
        glass.paint(&[], &["1st", "2nd", "3rd"]).contains("2nd"),
        "another size is drawn anew"
    );
}

#[test]
fn printed_lines_scroll_above_the_frame() {
    let mut glass = TestTerminal::new(12, 5);
    glass.paint(&[], &["p1", "p2"]);
    let lines: Vec<String> = (0..9).map(|n| format!("said {n}")).collect();
    glass.paint(
        &lines[..3].iter().map(String::as_str).collect::<Vec<_>>(),
        &["p1", "p2"],
    );
    glass.paint(
        &lines[3..].iter().map(String::as_str).collect::<Vec<_>>(),
        &["q1", "q2"],
    );
    assert_eq!(glass.rows(), ["said 7", "said 8", "q1", "q2"]);
    glass.paint(
        &["as wide as it", "wider than the screen is"],
        &["q1", "q2"],
    );
    glass.paint(&[], &[]);
    glass.paint(&["end"], &[]);
    let last = [
        "as wide as it".to_owned(),
        "wider than the screen is".to_owned(),
        "end".to_owned(),
    ];
    assert_eq!(glass.lines(), [lines.as_slice(), &last].concat());
}

#[test]
fn frame_is_one_synchronized_update_and_hides_cursor_once() {
    let mut glass = TestTerminal::new(20, 10);
    let begin = "\u{1b}[?2026h";
    let end = "\u{1b}[?2026l";
    for (above, picture, hides) in [
        (&["a"][..], &["p"][..], true),
        (&[], &["q"], false),
        (&["b"], &["q"], false),
    ] {
        let sent = glass.paint(above, picture);
        assert!(sent.starts_with(begin) && sent.ends_with(end), "{sent:?}");
        assert_eq!(
            (sent.matches(begin).count(), sent.contains("\u{1b}[?25l")),
            (1, hides),
            "{sent:?}"
        );
    }
    assert!(glass.parser.screen().hide_cursor());
}

#[test]
fn forget_hides_cursor_again_and_starts_on_a_new_line() {
    for (between, want) in [
        ("", vec!["p1", "p2", "q1"]),
        ("^Z", vec!["p1", "p2", "^Z", "q1"]),
        (
            "^Z\r\nstopped\r\n$ fg\r\n",
            vec!["p1", "p2", "^Z", "stopped", "$ fg", "q1"],
        ),
        (
            "a line that is just 20",
            vec!["p1", "p2", "a line that is just", "20", "q1"],
        ),
    ] {
        let mut glass = TestTerminal::new(20, 10);
        glass.paint(&[], &["p1", "p2"]);
        glass.parser.process(b"\x1b[?25h"); // the terminal was restored in between
        glass.painter.keep_picture();
        glass.parser.process(between.as_bytes());
        glass.paint(&[], &["q1"]);
        assert!(glass.parser.screen().hide_cursor());
        assert_eq!(glass.rows(), want, "{between:?}");
    }
}

#[test]
fn cropped_screen_shows_no_old_lines() {
    let old = ["old 1 is so long", "old 2 is so long", "old 3"];
    let new = ["new 1", "new 2"];
    for (columns, rows) in [
        (40, 10),
        (8, 10),
        (20, 4),
        (20, 30),
        (8, 3),
        (40, 4),
        (40, 30),
    ] {
        let mut glass = TestTerminal::new(20, 10);
        glass.paint(&["said"], &old);
        glass.crop(columns, rows);
        glass.paint(&[], &new);
        let rows = glass.rows();
        assert!(rows.ends_with(&new.map(str::to_owned)), "{rows:?}");
        assert!(!rows.iter().any(|row| row.starts_with("old")), "{rows:?}");
        glass.crop(20, 10);
        glass.paint(&[], &old);
        assert!(
            glass.rows().ends_with(&old.map(str::to_owned)),
            "{:?}",
            glass.rows()
        );
    }
}

#[test]
fn lines_scrolled_out_by_shrinking_do_not_return() {
    let mut glass = TestTerminal::new(20, 10);
    let picture = ["p1", "p2", "p3", "p4", "p5", "p6", "p7"];
    glass.paint(&["said 1", "said 2"], &picture);
    glass.reflow(20, 4);
    glass.paint(&[], &["q1", "q2", "q3"]);
    glass.paint(&[], &["q1", "x2"]);
    glass.reflow(20, 10);
    glass.paint(&[], &["r1", "r2"]);
    assert_eq!(glass.lines(), ["said 1", "said 2", "r1", "r2"]);
}

/// An event of a screen.
#[derive(Debug, Clone)]
enum Step {
    Picture(Vec<usize>),
    Above(Vec<usize>),
    Resize(usize, usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        prop::collection::vec(0usize..40, 0..5).prop_map(Step::Picture),
        prop::collection::vec(0usize..70, 1..8).prop_map(Step::Above),
        (10usize..60, 24usize..40).prop_map(|(columns, rows)| Step::Resize(columns, rows)),
    ];
    prop::collection::vec(step, 1..16)
}

proptest! {
    #[test]
    fn screen_shows_all_output_and_last_frame_after_any_history(steps in steps()) {
        let mut glass = TestTerminal::new(40, 24);
        let mut printed = Vec::new();
        let mut picture = Vec::new();
        for (n, step) in steps.iter().enumerate() {
            let texts = |what: &str, widths: &[usize]| -> Vec<String> {
                widths.iter().enumerate().map(|(at, width)| format!("{what}{n}.{at} {}", "x".repeat(*width))).collect()
            };
            let mut above = Vec::new();
            match step {
                Step::Picture(widths) => picture = texts("p", widths),
                Step::Above(widths) => above = texts("said", widths),
                Step::Resize(columns, rows) => glass.reflow(*columns, *rows),
            }
            let strs = |texts: &[String]| -> Vec<String> { texts.to_vec() };
            let (above, now) = (strs(&above), strs(&picture));
            glass.paint(
                &above.iter().map(String::as_str).collect::<Vec<_>>(),
                &now.iter().map(String::as_str).collect::<Vec<_>>(),
            );
            printed.extend(above);
            let fits = |line: &String| line.chars().take(glass.size.columns - 1).collect::<String>().trim_end().to_owned();
            let want: Vec<String> =
                printed.iter().map(|line| line.trim_end().to_owned()).chain(picture.iter().map(fits)).collect();
            prop_assert_eq!(glass.lines(), want, "after {:?}", step);
        }
    }

    #[test]
    fn frame_fits_any_small_screen(
        sizes in prop::collection::vec((0usize..5, 0usize..5), 1..6), widths in prop::collection::vec(0usize..9, 0..6),
    ) {
        let mut painter = Painter::new(Paint { on: true });
        let lines: Vec<StyledLine> = widths.iter().map(|width| StyledLine::of(TextStyle::Bold, "好".repeat(*width))).collect();
        for (columns, rows) in sizes {
            painter.paint(&lines, &lines, Size { columns, rows });
            prop_assert!(painter.drawn().len() < rows.max(1));
            prop_assert!(painter.drawn().iter().all(|line| line.width() < columns.max(1)));
        }
    }
}

#[test]
fn rows_are_cleared_before_they_are_written() {
    let mut terminal = TestTerminal::new(40, 10);
    terminal.paint(&[], &["a long line of the picture"]);
    let sent = terminal.paint(&["short"], &["picture"]);
    assert!(
        sent.contains("\u{1b}[Kshort\r\n") && sent.contains("\u{1b}[Kpicture\r\n"),
        "{sent:?}"
    );
}
