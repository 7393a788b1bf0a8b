//! The tree of the monitor as lines, for output that is not redrawn.

use ratatui::{buffer::Buffer, layout::Rect};
use soong_protocol::{
    Session, Timestamp,
    tree::{ActorView, TreeEvent},
};

use super::{
    actor_index::ActorIndex,
    cells::CellWriter,
    draw::columns::{Column, TreeColumns},
    rows::{TreeView, rows},
};
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// Returns the column titles and a line for each actor, as the monitor shows them. Each line is at
/// most `width` columns wide.
///
/// With `by_supervision`, each actor is below its supervisor. Otherwise, sub-agents are below their
/// parent runs, and supervisors are left out unless they have crashed. `sessions` are the stored
/// sessions that are known. A session of the tree that is not among them is shown by its id.
pub fn tree_lines(
    tree: ActorView,
    sessions: Vec<Session>,
    by_supervision: bool,
    cells: CellWriter,
    width: u16,
    now: Timestamp,
) -> Vec<StyledLine> {
    let mut actors = ActorIndex::default();
    actors.apply(
        TreeEvent::Snapshot {
            tree: Box::new(tree),
            dropped: 0,
        },
        now,
    );
    sessions
        .iter()
        .for_each(|session| actors.store_session(session));
    // The column of events shows a rate, which needs two snapshots.
    let omitted = [Column::Events, Column::Budget];
    let omitted = if actors.summary().has_budgets {
        &omitted[..1]
    } else {
        &omitted[..]
    };
    let columns = TreeColumns::fitting(width, omitted);
    let area = Rect::new(0, 0, width, 1);
    let line = |draw: &dyn Fn(&mut Buffer)| {
        let mut buffer = Buffer::empty(area);
        draw(&mut buffer);
        let mut line = cells.line(&buffer, 0);
        line.trim_end();
        line
    };
    let titles = line(&|buffer| {
        columns.draw_titles(cells, buffer, area, &StyledLine::of(TextStyle::Dim, "NAME"))
    });
    let view = TreeView {
        group_by_supervisor: by_supervision,
        ..TreeView::default()
    };
    let mut lines = vec![titles];
    for row in rows(&actors, &view) {
        let Some(actor) = actors.get(&row.key) else {
            continue;
        };
        lines.push(line(&|buffer| {
            columns.draw_row(cells, buffer, 0, 0, &row, actor, now)
        }));
    }
    lines
}
