//! Draws a screen as SVG.

use std::fmt::Write as _;

use vt100::{Cell, Color, Screen};

/// Size of a cell in the picture, in pixels.
const CELL: (f64, f64) = (8.4, 17.0);
/// The sixteen colors of a terminal.
const COLORS: [&str; 16] = [
    "#1c1f26", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d7dae0",
    "#5c6370", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#ffffff",
];
const BACKGROUND: &str = "#1c1f26";
const FOREGROUND: &str = "#d7dae0";

/// Draws the rows of a screen up to the last one with text. Adjacent cells of the same style form
/// one text element.
pub(crate) fn draw(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let rows = rows.get();
    let columns = columns.get();
    let is_used = |row: &u16| {
        (0..columns).any(|column| screen.cell(*row, column).is_some_and(Cell::has_contents))
    };
    let used = (0..rows).rev().find(is_used).map_or(1, |last| last + 1);
    let width = f64::from(columns) * CELL.0 + 24.0;
    let height = f64::from(used) * CELL.1 + 24.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-size=\"14\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..used {
        let mut column = 0;
        while column < columns {
            let begin = column;
            let style = screen
                .cell(row, column)
                .map(CellStyle::of)
                .unwrap_or_default();
            let mut text = String::new();
            while let Some(cell) = screen
                .cell(row, column)
                .filter(|cell| CellStyle::of(cell) == style)
            {
                text.push_str(if cell.has_contents() {
                    cell.contents()
                } else {
                    " "
                });
                column += 1 + u16::from(cell.is_wide());
            }
            draw_text(&mut svg, (begin, row), column - begin, &text, &style);
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Style of a cell.
#[derive(Debug, Default, PartialEq)]
struct CellStyle {
    color: String,
    bold: bool,
    dim: bool,
    underlined: bool,
    inverse: bool,
}

impl CellStyle {
    fn of(cell: &Cell) -> Self {
        let color = match cell.fgcolor() {
            Color::Idx(color) => indexed(color),
            Color::Default | Color::Rgb(..) => FOREGROUND.to_owned(),
        };
        Self {
            color,
            bold: cell.bold(),
            dim: cell.dim(),
            underlined: cell.underline(),
            inverse: cell.inverse(),
        }
    }
}

/// Returns a color of the palette with 256 colors: sixteen of the terminal, a cube of 6 × 6 × 6,
/// and shades of gray.
fn indexed(color: u8) -> String {
    let level = |step: u8| if step == 0 { 0 } else { 55 + 40 * step };
    let (red, green, blue) = match color {
        ..16 => return COLORS[usize::from(color)].to_owned(),
        16..232 => (
            level((color - 16) / 36),
            level((color - 16) / 6 % 6),
            level((color - 16) % 6),
        ),
        232.. => [(color - 232) * 10 + 8; 3].into(),
    };
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn draw_text(
    svg: &mut String,
    (column, row): (u16, u16),
    columns: u16,
    text: &str,
    style: &CellStyle,
) {
    let x = f64::from(column) * CELL.0 + 12.0;
    let y = f64::from(row) * CELL.1 + 12.0;
    let wide = f64::from(columns) * CELL.0;
    if style.inverse {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"{}\" fill=\"{}\"/>",
            CELL.1, style.color
        );
    }
    if text.trim().is_empty() {
        return;
    }
    let color = if style.inverse {
        BACKGROUND
    } else {
        &style.color
    };
    let weight = if style.bold {
        " font-weight=\"bold\""
    } else {
        ""
    };
    let dim = if style.dim && !style.inverse {
        " opacity=\"0.6\""
    } else {
        ""
    };
    let line = if style.underlined {
        " text-decoration=\"underline\""
    } else {
        ""
    };
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    let base = y + CELL.1 * 0.76;
    let _ = writeln!(
        svg,
        "<text x=\"{x:.1}\" y=\"{base:.1}\" fill=\"{color}\" textLength=\"{wide:.1}\" xml:space=\"preserve\"{weight}{dim}{line}>{text}</text>"
    );
}
