//! Draws the tree: the column titles and a row for each visible actor.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Color, Modifier, Style},
};
use soong_protocol::Timestamp;

use super::{
    columns::{Column, TreeColumns},
    put,
};
use crate::monitor::{
    rows::Sort,
    state::{Connection, Monitor},
};
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// Draws the column titles and the visible rows.
pub(super) fn draw(monitor: &mut Monitor, buffer: &mut Buffer, area: Rect, now: Timestamp) {
    let cells = monitor.cells;
    let has_budgets = monitor.actors.summary().has_budgets;
    let columns = TreeColumns::fitting(
        area.width,
        if has_budgets { &[] } else { &[Column::Budget] },
    );
    let room = usize::from(area.height.saturating_sub(1));
    let top = monitor.list.scroll(room);
    columns.draw_titles(cells, buffer, area, &title(monitor));
    if monitor.list.rows().is_empty() {
        let why = match &monitor.connection {
            Connection::Lost(_) => "no actors: not connected",
            Connection::Searching | Connection::Connected { .. } => "waiting for the actor tree",
        };
        put(cells, buffer, area, 1, &StyledLine::of(TextStyle::Dim, why));
    }
    if !monitor.list.view.is_unfiltered() && monitor.list.rows().len() == 1 {
        put(
            cells,
            buffer,
            area,
            2,
            &StyledLine::of(TextStyle::Yellow, "no matches: press Esc to show all"),
        );
    }
    for (at, row) in monitor.list.rows().iter().skip(top).take(room).enumerate() {
        let Some(actor) = monitor.actors.get(&row.key) else {
            continue;
        };
        let y = area.y + 1 + u16::try_from(at).unwrap_or(0);
        columns.draw_row(cells, buffer, area.x, y, row, actor, now);
        let line = Rect {
            x: area.x,
            y,
            width: area.width,
            height: 1,
        };
        if row.is_context || actor.has_ended {
            buffer.set_style(line, Style::new().add_modifier(Modifier::DIM));
        }
        if Some(&row.key) == monitor.list.selected() {
            let style = if monitor.detail.has_focus {
                Style::new().add_modifier(Modifier::UNDERLINED)
            } else {
                // In one color, so that the row is one bar.
                Style::new()
                    .fg(Color::Reset)
                    .remove_modifier(Modifier::DIM)
                    .add_modifier(Modifier::REVERSED)
            };
            buffer.set_style(line, style);
        }
    }
}

/// Returns the title of the names: the position, and how the rows are arranged and filtered.
fn title(monitor: &Monitor) -> StyledLine {
    let view = &monitor.list.view;
    let mut arrangement = format!(
        "{} of {}",
        monitor.list.display_position(),
        monitor.list.rows().len()
    );
    let parts = [
        (view.group_by_supervisor, "by supervision".to_owned()),
        (
            view.sort != Sort::Started,
            format!("by {}", view.sort.name()),
        ),
        (view.only_urgent, "only urgent".to_owned()),
        (!view.with_ended, "without ended".to_owned()),
        (monitor.list.follows, "following".to_owned()),
    ];
    for (_, part) in parts.iter().filter(|(is, _)| *is) {
        arrangement.push_str(", ");
        arrangement.push_str(part);
    }
    StyledLine::of(TextStyle::Dim, "NAME ").and(TextStyle::Cyan, arrangement)
}
