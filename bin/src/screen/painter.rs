//! The painter: what a terminal has to be sent so that it shows a picture in the place of the last one.
//!
//! Pure: what to send comes out. It remembers the lines that stand above the cursor, which waits below them
//! at the start of a line. Invariants: a picture is never higher than the screen's rows less one, nor
//! wider than its columns less one (some terminals wrap when the last one is written); what stands
//! there already is not sent again. Not here: who sends it (`screen`).

#[cfg(test)]
mod tests;

use crossterm::{
    Command,
    cursor::{Hide, MoveDown, MoveToColumn, MoveUp},
    terminal::{BeginSynchronizedUpdate, Clear, ClearType, DisableLineWrap, EnableLineWrap, EndSynchronizedUpdate},
};

use crate::{line::Line, terminal::Paint};

/// The size of a screen. Pictures are left out of one that has no room for them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) rows: usize,
}

impl Size {
    /// Returns the columns and rows that a picture may have.
    pub(super) const fn room(self) -> (usize, usize) {
        (self.columns.saturating_sub(1), self.rows.saturating_sub(1))
    }
}

/// Draws pictures in place.
#[derive(Debug)]
pub(super) struct Painter {
    paint: Paint,
    /// The lines of the picture that stands there, from the top.
    drawn: Vec<Line>,
    /// How large the screen was then.
    size: Size,
    /// Rows of older pictures that a screen which became smaller has pushed out at its top. They
    /// come back into view when it grows.
    pushed_out: usize,
    is_cursor_hidden: bool,
    /// Whether the cursor may stand behind something that is not ours.
    is_astray: bool,
}

impl Painter {
    pub(super) fn new(paint: Paint) -> Self {
        Self {
            paint,
            drawn: Vec::new(),
            size: Size::default(),
            pushed_out: 0,
            is_cursor_hidden: false,
            is_astray: false,
        }
    }

    /// Returns what stands there.
    pub(super) fn drawn(&self) -> &[Line] {
        &self.drawn
    }

    pub(super) fn is_cursor_hidden(&self) -> bool {
        self.is_cursor_hidden
    }

    /// Leaves what stands there to itself: the next picture begins below whatever the screen shows.
    pub(super) fn forget(&mut self) {
        *self = Self { is_astray: true, ..Self::new(self.paint) };
    }

    /// Returns what prints lines for good, and the picture below them; nothing where all of it
    /// stands there already.
    pub(super) fn paint(&mut self, above: &[Line], picture: &[Line], size: Size) -> String {
        let picture = fitting(picture, size);
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

    /// Brings the cursor to the start of a line that holds nothing of others.
    fn find_line_start(&mut self, out: &mut String, size: Size) {
        if std::mem::take(&mut self.is_astray) {
            // At the start of a line this just fills it; behind anything it goes on to the next.
            out.push_str(&" ".repeat(size.columns));
        }
        add(out, MoveToColumn(0));
    }

    /// Writes everything anew from the top of what stands there.
    fn redraw(&mut self, out: &mut String, above: &[Line], picture: &[Line], size: Size, is_resized: bool) {
        // A terminal that became narrower has broken the old lines into several.
        let broken = |line: &Line| line.width().div_ceil(size.columns.max(1)).max(1);
        let up = self.drawn.iter().map(broken).sum::<usize>() + self.pushed_out;
        move_up(out, up);
        self.pushed_out = if above.is_empty() { up.saturating_sub(size.room().1) } else { 0 };
        if is_resized {
            add(out, Clear(ClearType::FromCursorDown));
        }
        for line in above {
            if line.width() >= size.columns {
                // It may end in the last column: clearing behind it would take its last character.
                add(out, Clear(ClearType::FromCursorDown));
                out.push_str(&line.painted(self.paint));
                out.push_str("\r\n");
            } else {
                self.write(out, line);
            }
        }
        add(out, DisableLineWrap);
        picture.iter().for_each(|line| self.write(out, line));
        add(out, EnableLineWrap);
    }

    /// Writes the lines that are not what stands there.
    fn redraw_changed(&self, out: &mut String, picture: &[Line]) {
        let same = self.drawn.iter().zip(picture).take_while(|(old, new)| old == new).count();
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

    /// Writes a line over whatever stands in its row.
    fn write(&self, out: &mut String, line: &Line) {
        out.push_str(&line.painted(self.paint));
        add(out, Clear(ClearType::UntilNewLine));
        out.push_str("\r\n");
    }
}

/// Cuts a picture to what the screen has room for. White space at the end of a line is no part of
/// it: a terminal that breaks lines would count it or not.
fn fitting(picture: &[Line], size: Size) -> Vec<Line> {
    let (columns, rows) = size.room();
    let fit = |line: &Line| {
        let mut line = line.cut(columns, "");
        line.trim_end();
        line
    };
    picture.iter().take(if columns == 0 { 0 } else { rows }).map(fit).collect()
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

/// Adds what a terminal obeys. A string takes everything.
fn add(out: &mut String, command: impl Command) {
    let _ = command.write_ansi(out);
}
