//! Renders tables: columns are aligned, and cut if the page is too narrow.
//!
//! Pure. The room is shared fairly: a column that needs less than its share leaves the rest to
//! wider columns. Invariant: no line is wider than the room.

use pulldown_cmark::Alignment;

use super::{PageFormat, flow::Flow};
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// The rows of a table so far; the first row is the header.
#[derive(Debug, Default)]
pub(super) struct Table {
    alignments: Vec<Alignment>,
    rows: Vec<Vec<Flow>>,
    row: Vec<Flow>,
}

impl Table {
    pub(super) fn new(alignments: Vec<Alignment>) -> Self {
        Self {
            alignments,
            ..Self::default()
        }
    }

    pub(super) fn end_cell(&mut self, cell: Flow) {
        self.row.push(cell);
    }

    pub(super) fn end_row(&mut self) {
        self.rows.push(std::mem::take(&mut self.row));
    }

    /// Renders the table with a width of at most `room` columns.
    pub(super) fn lines(&self, room: usize, page: &PageFormat) -> Vec<StyledLine> {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let mut natural = vec![1; columns];
        for row in &self.rows {
            for (cell, widest) in row.iter().zip(&mut natural) {
                *widest = cell.width().max(*widest);
            }
        }
        let (between, crossing) = separators(columns, room, page.unicode);
        let gaps = columns.saturating_sub(1) * between.chars().count();
        let widths = share(&natural, room.saturating_sub(gaps));
        let mut lines = Vec::with_capacity(self.rows.len() + 1);
        for (at, row) in self.rows.iter().enumerate() {
            lines.push(
                self.row_line(row, &widths, between, page)
                    .cut(room, page.ellipsis()),
            );
            if at == 0 {
                let dash = if page.unicode { "─" } else { "-" };
                let rule: Vec<String> = widths.iter().map(|width| dash.repeat(*width)).collect();
                lines.push(StyledLine::of(TextStyle::Dim, rule.join(crossing)).cut(room, ""));
            }
        }
        lines
    }

    fn row_line(
        &self,
        row: &[Flow],
        widths: &[usize],
        between: &str,
        page: &PageFormat,
    ) -> StyledLine {
        let mut line = StyledLine::default();
        for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
            if at > 0 {
                line.push(TextStyle::Dim, between);
            }
            let cell = cell.line().cut(*width, page.ellipsis());
            let spare = width.saturating_sub(cell.width());
            let before = match self.alignments.get(at) {
                Some(Alignment::Right) => spare,
                Some(Alignment::Center) => spare / 2,
                _ => 0,
            };
            line.push(TextStyle::Plain, &" ".repeat(before));
            line.append(&cell);
            line.push(TextStyle::Plain, &" ".repeat(spare - before));
        }
        line
    }
}

/// Returns the separators between cells and between their underlines: shorter ones if there is
/// little room.
fn separators(columns: usize, room: usize, unicode: bool) -> (&'static str, &'static str) {
    let is_roomy = columns * 4 <= room + 3;
    match (is_roomy, unicode) {
        (true, true) => (" │ ", "─┼─"),
        (true, false) => (" | ", "-+-"),
        (false, true) => ("│", "┼"),
        (false, false) => ("|", "+"),
    }
}

/// Distributes the room among columns with these natural widths: each column gets at least 1.
fn share(natural: &[usize], room: usize) -> Vec<usize> {
    let mut narrow_first: Vec<usize> = (0..natural.len()).collect();
    narrow_first.sort_by_key(|at| natural[*at]);
    let mut widths = vec![0; natural.len()];
    let mut left = room;
    for (served, at) in narrow_first.into_iter().enumerate() {
        let fair = left / (natural.len() - served);
        widths[at] = natural[at].min(fair.max(1));
        left = left.saturating_sub(widths[at]);
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_columns_give_space_to_wider_ones() {
        for (natural, room, want) in [
            (vec![3, 5], 20, vec![3, 5]),
            (vec![3, 50], 20, vec![3, 17]),
            (vec![50, 3, 50], 20, vec![8, 3, 9]),
            (vec![50, 50], 0, vec![1, 1]),
            (vec![], 9, vec![]),
        ] {
            assert_eq!(share(&natural, room), want, "{natural:?} in {room}");
        }
    }
}
