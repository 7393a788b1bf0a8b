//! Writes lines into the cells of the screen.
//!
//! Everything that is drawn passes through [`CellWriter::put`], because texts of models, tools and
//! files are not trusted. It removes control characters, marks that change the reading direction,
//! and characters whose width a terminal may measure differently. Invariant: a line never takes
//! more columns than it is given. Elsewhere: the content of the screen.

use ratatui::{
    buffer::Buffer,
    style::{Color, Modifier, Style},
};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use crate::{
    styled_line::StyledLine,
    terminal::{Paint, Terminal, TextStyle},
    text,
};

/// Maximum number of combining marks shown per character.
const MAX_COMBINING_MARKS: usize = 2;
/// Additional number of zero-width characters that are processed per line.
const EXTRA_ZERO_WIDTH: usize = 256;

/// Capabilities of the terminal.
#[derive(Debug, Clone, Copy)]
pub struct CellWriter {
    pub(crate) color: bool,
    pub(crate) unicode: bool,
}

impl CellWriter {
    /// Returns the capabilities of a stream of the terminal.
    pub fn of(stream: Paint, terminal: &Terminal) -> Self {
        Self {
            color: stream.on,
            unicode: terminal.unicode,
        }
    }

    fn style(self, style: TextStyle) -> Style {
        let plain = Style::new();
        let tinted = |color| if self.color { plain.fg(color) } else { plain };
        match style {
            TextStyle::Plain => plain,
            TextStyle::Bold => plain.add_modifier(Modifier::BOLD),
            TextStyle::Dim => plain.add_modifier(Modifier::DIM),
            TextStyle::Italic => plain.add_modifier(Modifier::ITALIC),
            TextStyle::Strikethrough => plain.add_modifier(Modifier::CROSSED_OUT),
            TextStyle::Red => tinted(Color::Red),
            TextStyle::Green => tinted(Color::Green),
            TextStyle::Yellow => tinted(Color::Indexed(172)),
            TextStyle::Blue => tinted(Color::Indexed(33)),
            TextStyle::Cyan => tinted(Color::Cyan),
        }
    }

    /// Writes a line into the cells from `(x, y)` on, at most `columns` of them; returns the number
    /// of cells used.
    pub(crate) fn put(
        self,
        buffer: &mut Buffer,
        x: u16,
        y: u16,
        columns: usize,
        line: &StyledLine,
    ) -> u16 {
        let area = *buffer.area();
        if y < area.top() || y >= area.bottom() || x < area.left() {
            return 0;
        }
        let end = area
            .right()
            .min(x.saturating_add(u16::try_from(columns).unwrap_or(u16::MAX)));
        let mut at = x;
        for (style, piece) in line.pieces() {
            let style = self.style(style);
            // Only the part of a long text that could be drawn is processed.
            let most =
                usize::from(end.saturating_sub(at)) * (1 + MAX_COMBINING_MARKS) + EXTRA_ZERO_WIDTH;
            let piece: String = piece.chars().take(most).collect();
            for (symbol, wide) in self.symbols(&piece) {
                if at.saturating_add(wide) > end {
                    return at - x;
                }
                buffer[(at, y)].set_symbol(&symbol).set_style(style);
                for rest in 1..wide {
                    // Covered by the wide character.
                    buffer[(at + rest, y)].reset();
                }
                at += wide;
            }
        }
        at - x
    }

    /// Reads a row of cells as a line. Only the styles of [`TextStyle`] are kept.
    pub(crate) fn line(self, buffer: &Buffer, y: u16) -> StyledLine {
        let area = *buffer.area();
        let mut line = StyledLine::default();
        let mut x = area.left();
        while x < area.right() {
            let cell = &buffer[(x, y)];
            let is_written_as = |style: &TextStyle| {
                let style = self.style(*style);
                style.fg.unwrap_or(Color::Reset) == cell.fg && style.add_modifier == cell.modifier
            };
            let style = TextStyle::ALL
                .into_iter()
                .find(is_written_as)
                .unwrap_or(TextStyle::Plain);
            line.push(style, cell.symbol());
            x += u16::try_from(cell.symbol().width()).unwrap_or(1).max(1);
        }
        line
    }

    /// Splits a text into symbols of one or two cells: a character with its combining marks each.
    fn symbols(self, piece: &str) -> Vec<(String, u16)> {
        let mut symbols: Vec<(String, u16)> = Vec::with_capacity(piece.len());
        let mut marks = 0;
        for c in text::safe_line_keep_spaces(piece).chars() {
            // The replacement character may be two columns wide on some terminals.
            if c == '\u{fffd}' || (!self.unicode && !c.is_ascii()) {
                if c.width() != Some(0) {
                    symbols.push(("?".to_owned(), 1));
                }
                continue;
            }
            match c.width() {
                // Joiners, variation selectors and skin tones are dropped: terminals disagree on
                // the resulting width.
                _ if matches!(c, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' | '\u{1f3fb}'..='\u{1f3ff}') =>
                    {}
                Some(wide @ 1..=2) => {
                    symbols.push((c.to_string(), if wide == 1 { 1 } else { 2 }));
                    marks = 0;
                }
                _ if marks < MAX_COMBINING_MARKS => {
                    if let Some((symbol, _)) = symbols.last_mut() {
                        symbol.push(c);
                        marks += 1;
                    }
                }
                _ => {}
            }
        }
        symbols
    }

    pub(crate) const fn ellipsis(self) -> &'static str {
        if self.unicode { "…" } else { "..." }
    }

    /// Draws numbers as a row of bars; the largest number has full height.
    pub(crate) fn spark(self, values: &[u64]) -> String {
        const FINE: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
        const PLAIN: [char; 9] = [' ', '.', '.', ':', ':', '-', '=', '+', '#'];
        let steps = if self.unicode { FINE } else { PLAIN };
        let most = values.iter().copied().max().unwrap_or(0).max(1);
        let step = |value: u64| {
            usize::try_from((u128::from(value) * 8).div_ceil(u128::from(most))).unwrap_or(8)
        };
        values
            .iter()
            .map(|value| steps[step(*value).min(8)])
            .collect()
    }

    /// Draws a fraction from 0 to 1 as a bar of `columns` columns.
    pub(crate) fn bar(self, share: f64, columns: usize) -> String {
        let (full, empty) = if self.unicode {
            ('█', '░')
        } else {
            ('#', '.')
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a few columns"
        )]
        let filled = (share.clamp(0.0, 1.0) * columns as f64).round() as usize;
        // A nonzero fraction shows at least one full column, and a fraction below 1 at least one
        // empty column.
        let filled = match filled {
            0 if share > 0.0 => 1.min(columns),
            all if all == columns && share < 1.0 => columns.saturating_sub(1),
            filled => filled,
        };
        (0..columns)
            .map(|at| if at < filled { full } else { empty })
            .collect()
    }

    /// Draws the tree lines in front of a row.
    pub(crate) fn rails(self, rails: &[bool]) -> String {
        let (down, more, last, none) = if self.unicode {
            ("│ ", "├ ", "└ ", "  ")
        } else {
            ("| ", "|-", "`-", "  ")
        };
        let Some((own, above)) = rails.split_last() else {
            return String::new();
        };
        let mut drawn: String = above
            .iter()
            .map(|follows| if *follows { down } else { none })
            .collect();
        drawn.push_str(if *own { more } else { last });
        drawn
    }

    pub(crate) fn rule(self, columns: usize) -> String {
        (if self.unicode { "─" } else { "-" }).repeat(columns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ratatui::layout::Rect;

    use super::*;

    const WRITERS: [CellWriter; 2] = [
        CellWriter {
            color: true,
            unicode: true,
        },
        CellWriter {
            color: false,
            unicode: false,
        },
    ];

    fn drawn(cells: CellWriter, columns: u16, text: &str) -> String {
        let mut buffer = Buffer::empty(Rect::new(0, 0, columns, 1));
        cells.put(
            &mut buffer,
            0,
            0,
            usize::from(columns),
            &StyledLine::of(TextStyle::Plain, text),
        );
        (0..columns)
            .map(|x| buffer[(x, 0)].symbol().to_owned())
            .collect::<Vec<_>>()
            .concat()
    }

    #[test]
    fn unsafe_or_ambiguous_characters_are_not_drawn() {
        for (text, fine, plain) in [
            ("plain", "plain   ", "plain   "),
            ("\u{1b}[2Jx", "?[2Jx   ", "?[2Jx   "),
            ("a\nb\tc", "a b    c", "a b    c"),
            ("ab\u{202e}cd", "ab?cd   ", "ab?cd   "),
            (
                "e\u{301}\u{302}\u{303}!",
                "e\u{301}\u{302}!      ",
                "e!      ",
            ),
            ("\u{301}x", "x       ", "x       "),
            ("👩\u{200d}🔬!", "👩 🔬 !   ", "??!     "),
            ("❤\u{fe0f}!", "❤!      ", "?!      "),
            ("好好好好好", "好 好 好 好 ", "?????   "),
        ] {
            assert_eq!(drawn(WRITERS[0], 8, text), fine, "{text:?}");
            assert_eq!(drawn(WRITERS[1], 8, text), plain, "{text:?}");
        }
    }

    #[test]
    fn sparklines_and_bars_are_drawn_to_scale() {
        let [fine, plain] = WRITERS;
        assert_eq!(fine.spark(&[0, 1, 4, 8]), " ▁▄█");
        assert_eq!(plain.spark(&[0, 0]), "  ");
        for (share, want) in [
            (0.0, "░░░░"),
            (0.01, "█░░░"),
            (0.5, "██░░"),
            (0.99, "███░"),
            (1.0, "████"),
            (7.0, "████"),
        ] {
            assert_eq!(fine.bar(share, 4), want, "{share}");
        }
        assert_eq!(plain.rails(&[true, false, true]), "|   |-");
        assert_eq!(fine.rails(&[]), "");
    }

    proptest! {
        #[test]
        fn any_text_is_drawn_within_its_columns(text: String, columns in 0u16..20, x in 0u16..12, cells in 0usize..2) {
            let mut buffer = Buffer::empty(Rect::new(0, 0, 10, 2));
            let before = buffer.clone();
            let took = WRITERS[cells].put(&mut buffer, x, 0, usize::from(columns), &StyledLine::of(TextStyle::Red, text));
            prop_assert!(took <= columns);
            for at in 0..10 {
                let symbol = buffer[(at, 0)].symbol();
                prop_assert!(!symbol.chars().any(char::is_control));
                if at < x || at >= x + columns {
                    prop_assert_eq!(&buffer[(at, 0)], &before[(at, 0)]);
                }
                prop_assert_eq!(&buffer[(at, 1)], &before[(at, 1)]);
            }
        }
    }
}
