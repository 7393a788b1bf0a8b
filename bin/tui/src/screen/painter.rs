//! Computes the terminal output that replaces the last picture by a new one.
//!
//! Pure: the output is returned. The painter remembers the lines above the cursor, which is at the
//! start of the line below them. Invariants: a picture has at most one row and one column less than
//! the screen (some terminals wrap when the last column is written); unchanged lines are not sent
//! again. Elsewhere: writing the output (`screen`).

#[cfg(test)]
mod tests;

use crossterm::{
    Command,
    cursor::{Hide, MoveDown, MoveToColumn, MoveUp},
    terminal::{
        BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap,
        EndSynchronizedUpdate,
    },
};

use crate::{styled_line::StyledLine, terminal::Paint};

/// Size of a screen. If it has no room for a picture, none is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Size {
    /// Returns the maximum width and height of a picture.
    pub(super) const fn picture_size(self) -> (usize, usize) {
        (self.columns.saturating_sub(1), self.rows.saturating_sub(1))
    }
}

/// Draws pictures in place.
#[derive(Debug)]
pub(super) struct Painter {
    paint: Paint,
    /// Lines of the picture on the screen, from the top.
    drawn: Vec<StyledLine>,
    /// Size of the screen when it was drawn.
    size: Size,
    /// Rows of older pictures that were pushed out at the top when the screen became smaller. They
    /// come back into view when it grows.
    scrolled_out_rows: usize,
    is_cursor_hidden: bool,
    /// Whether the cursor may be in a line with output of other programs.
    is_cursor_position_unknown: bool,
}

impl Painter {
    pub(super) fn new(paint: Paint) -> Self {
        Self {
            paint,
            drawn: Vec::new(),
            size: Size::default(),
            scrolled_out_rows: 0,
            is_cursor_hidden: false,
            is_cursor_position_unknown: false,
        }
    }

    /// Returns the lines of the picture on the screen.
    pub(super) fn drawn(&self) -> &[StyledLine] {
        &self.drawn
    }

    pub(super) fn is_cursor_hidden(&self) -> bool {
        self.is_cursor_hidden
    }

    /// Keeps the current picture on the screen: the next one begins below everything that is shown.
    pub(super) fn keep_picture(&mut self) {
        *self = Self {
            is_cursor_position_unknown: true,
            ..Self::new(self.paint)
        };
    }

    /// Returns the output that prints lines permanently, and the picture below them. Empty if the
    /// screen already shows both.
    pub(super) fn paint(
        &mut self,
        above: &[StyledLine],
        picture: &[StyledLine],
        size: Size,
    ) -> String {
        let picture = cut_to_size(picture, size);
        let is_resized = size != self.size && !self.drawn.is_empty();
        if above.is_empty() && !is_resized && picture == self.drawn {
            self.size = size;
            return String::new();
        }
        let mut out = String::new();
        add(&mut out, BeginSynchronizedUpdate);
        if !picture.is_empty() && !std::mem::replace(&mut self.is_cursor_hidden, true) {
            add(&mut out, Hide);
        }
        self.find_line_start(&mut out, size);
        if is_resized || !above.is_empty() {
            self.redraw(&mut out, above, &picture, size, is_resized);
        } else {
            self.redraw_changed(&mut out, &picture);
        }
        add(&mut out, Clear(ClearType::FromCursorDown));
        add(&mut out, EndSynchronizedUpdate);
        self.drawn = picture;
        self.size = size;
        out
    }

    /// Moves the cursor to the start of an empty line.
    fn find_line_start(&mut self, out: &mut String, size: Size) {
        if std::mem::take(&mut self.is_cursor_position_unknown) {
            // At the start of a line the spaces fill it; after other output they wrap to the next
            // line.
            out.push_str(&" ".repeat(size.columns));
        }
        add(out, MoveToColumn(0));
    }

    /// Writes everything again, from the top of the current picture.
    fn redraw(
        &mut self,
        out: &mut String,
        above: &[StyledLine],
        picture: &[StyledLine],
        size: Size,
        is_resized: bool,
    ) {
        // A terminal that became narrower has wrapped the old lines.
        let broken = |line: &StyledLine| line.width().div_ceil(size.columns.max(1)).max(1);
        let up = self.drawn.iter().map(broken).sum::<usize>() + self.scrolled_out_rows;
        move_up(out, up);
        self.scrolled_out_rows = if above.is_empty() {
            up.saturating_sub(size.picture_size().1)
        } else {
            0
        };
        if is_resized {
            add(out, Clear(ClearType::FromCursorDown));
        }
        for line in above {
            if line.width() >= size.columns {
                // It may cover several rows, and clearing after a full row would remove its last
                // character.
                add(out, Clear(ClearType::FromCursorDown));
                out.push_str(&line.to_ansi(self.paint));
                out.push_str("\r\n");
            } else {
                self.write(out, line);
            }
        }
        add(out, DisableLineWrap);
        picture.iter().for_each(|line| self.write(out, line));
        add(out, EnableLineWrap);
    }

    /// Writes only the lines that have changed.
    fn redraw_changed(&self, out: &mut String, picture: &[StyledLine]) {
        let same = self
            .drawn
            .iter()
            .zip(picture)
            .take_while(|(old, new)| old == new)
            .count();
        move_up(out, self.drawn.len() - same);
        add(out, DisableLineWrap);
        let mut passed = 0;
        for (at, line) in picture.iter().enumerate().skip(same) {
            if self.drawn.get(at) == Some(line) {
                passed += 1;
            } else {
                move_down(out, std::mem::take(&mut passed));
                self.write(out, line);
            }
        }
        move_down(out, passed);
        add(out, EnableLineWrap);
    }

    /// Replaces the content of the cursor's row by a line. The cursor is in the first column. The
    /// row is cleared before it is written: if only its end is cleared, tmux remembers the length
    /// of the old content, and wraps the row when the window becomes narrower.
    fn write(&self, out: &mut String, line: &StyledLine) {
        add(out, Clear(ClearType::UntilNewLine));
        out.push_str(&line.to_ansi(self.paint));
        out.push_str("\r\n");
    }
}

/// Cuts a picture to the size of the screen. Trailing white space is removed, because terminals
/// differ in whether they wrap it.
fn cut_to_size(picture: &[StyledLine], size: Size) -> Vec<StyledLine> {
    let (columns, rows) = size.picture_size();
    let fit = |line: &StyledLine| {
        let mut line = line.cut(columns, "");
        line.trim_end();
        line
    };
    picture
        .iter()
        .take(if columns == 0 { 0 } else { rows })
        .map(fit)
        .collect()
}

fn move_up(out: &mut String, rows: usize) {
    if rows > 0 {
        add(out, MoveUp(u16::try_from(rows).unwrap_or(u16::MAX)));
    }
}

fn move_down(out: &mut String, rows: usize) {
    if rows > 0 {
        add(out, MoveDown(u16::try_from(rows).unwrap_or(u16::MAX)));
    }
}

/// Adds a terminal command. Writing to a string cannot fail.
fn add(out: &mut String, command: impl Command) {
    let _ = command.write_ansi(out);
}
