//! Draws the tree: a row for each actor, with as many columns as fit.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};
use soong_protocol::{Timestamp, tree::ActorKind};

use super::{put, put_right};
use crate::monitor::{
    actor::Actor,
    cells::CellWriter,
    pane::used_fraction,
    rows::{ActorRow, Sort},
    state::{Connection, Monitor},
};
use crate::{format, screen::totals::format_usd, styled_line::StyledLine, terminal::TextStyle, text};

/// Window width from which extra columns are shared with the activity column.
const WIDE_WINDOW: u16 = 120;
/// Maximum width of an id that is not a run's, in columns.
const MAX_ID_COLUMNS: usize = 19;

/// A column to the right of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Column {
    State,
    Activity,
    Age,
    Turn,
    Tokens,
    Cost,
    Restarts,
    Mailbox,
    Budget,
    Events,
}

impl Column {
    /// All columns: title, width, and minimum width of the window.
    const ALL: [(Self, &str, u16, u16); 10] = [
        (Self::State, "STATE", 10, 0),
        (Self::Activity, "ACTIVITY", 24, 84),
        (Self::Age, "AGE", 5, 0),
        (Self::Turn, "TURN", 4, 92),
        (Self::Tokens, "TOKENS", 7, 0),
        (Self::Cost, "COST", 8, 70),
        (Self::Restarts, "RESTARTS", 8, 104),
        (Self::Mailbox, "MAIL", 4, 110),
        (Self::Budget, "BUDGET", 10, 124),
        (Self::Events, "EVENTS/S", 10, 138),
    ];

    const fn is_text(self) -> bool {
        matches!(self, Self::State | Self::Activity | Self::Budget | Self::Events)
    }
}

/// Draws the column titles and the visible rows.
pub(super) fn draw(monitor: &mut Monitor, buffer: &mut Buffer, area: Rect, now: Timestamp) {
    let cells = monitor.cells;
    let has_budgets = monitor.actors.summary().has_budgets;
    let has_room = |from: u16| area.width >= from;
    let columns = Column::ALL
        .into_iter()
        .filter(|(column, _, _, from)| has_room(*from) && (*column != Column::Budget || has_budgets));
    // The activity column grows with the window, as the names do.
    let more = area.width.saturating_sub(WIDE_WINDOW) / 3;
    let columns: Vec<_> = columns
        .map(|(column, title, wide, from)| {
            (column, title, if column == Column::Activity { wide + more } else { wide }, from)
        })
        .collect();
    let beside: u16 = columns.iter().map(|(_, _, wide, _)| wide + 1).sum();
    let names = area.width.saturating_sub(beside);
    let room = usize::from(area.height.saturating_sub(1));
    let top = monitor.list.scroll(room);
    head(monitor, buffer, area, &columns, names);
    if monitor.list.rows().is_empty() {
        let why = match &monitor.connection {
            Connection::Lost(_) => "no actors: not connected",
            Connection::Searching | Connection::Connected { .. } => "waiting for the actor tree",
        };
        put(cells, buffer, area, 1, &StyledLine::of(TextStyle::Dim, why));
    }
    if !monitor.list.view.is_unfiltered() && monitor.list.rows().len() == 1 {
        put(cells, buffer, area, 2, &StyledLine::of(TextStyle::Yellow, "no matches: press Esc to show all"));
    }
    for (at, row) in monitor.list.rows().iter().skip(top).take(room).enumerate() {
        let Some(actor) = monitor.actors.get(&row.key) else { continue };
        let y = area.y + 1 + u16::try_from(at).unwrap_or(0);
        let name = label(row, actor, cells).cut(usize::from(names), cells.ellipsis());
        cells.put(buffer, (area.x, y), usize::from(names), &name);
        let mut x = area.x + names + 1;
        for (column, _, wide, _) in &columns {
            let cell = cell(*column, usize::from(*wide), actor, cells, now).cut(usize::from(*wide), cells.ellipsis());
            let indent = if column.is_text() { 0 } else { wide - u16::try_from(cell.width()).unwrap_or(*wide) };
            cells.put(buffer, (x + indent, y), usize::from(wide - indent), &cell);
            x += wide + 1;
        }
        let line = Rect { x: area.x, y, width: area.width, height: 1 };
        if row.is_context || actor.has_ended {
            buffer.set_style(line, Style::new().add_modifier(Modifier::DIM));
        }
        if Some(&row.key) == monitor.list.selected() {
            let style = if monitor.detail.has_focus { Modifier::UNDERLINED } else { Modifier::REVERSED };
            buffer.set_style(line, Style::new().add_modifier(style));
        }
    }
}

fn head(monitor: &Monitor, buffer: &mut Buffer, area: Rect, columns: &[(Column, &str, u16, u16)], names: u16) {
    let cells = monitor.cells;
    let view = &monitor.list.view;
    let mut said = format!("{} of {}", monitor.list.display_position(), monitor.list.rows().len());
    let parts = [
        (view.group_by_supervisor, "by supervision".to_owned()),
        (view.sort != Sort::Started, format!("by {}", view.sort.name())),
        (view.only_urgent, "only urgent".to_owned()),
        (!view.with_ended, "without ended".to_owned()),
        (monitor.list.follows, "following".to_owned()),
        (!view.filter.is_empty(), format!("with {:?}", view.filter)),
    ];
    for (_, part) in parts.iter().filter(|(is, _)| *is) {
        said.push_str(", ");
        said.push_str(part);
    }
    let name = Rect { width: names, ..area };
    put(cells, buffer, name, 0, &StyledLine::of(TextStyle::Dim, "NAME ").and(TextStyle::Cyan, said));
    let mut x = area.x + names + 1;
    for (column, title, wide, _) in columns {
        let cell = Rect { x, y: area.y, width: *wide, height: 1 };
        let title = StyledLine::of(TextStyle::Dim, *title);
        if column.is_text() {
            put(cells, buffer, cell, 0, &title)
        } else {
            put_right(cells, buffer, cell, 0, &title)
        }
        x += wide + 1;
    }
}

/// Returns the name of an actor with its tree lines.
fn label(row: &ActorRow, actor: &Actor, cells: CellWriter) -> StyledLine {
    let fold = match (row.has_children, row.hidden, cells.unicode) {
        (false, ..) => "",
        (true, 0, true) => "▾ ",
        (true, _, true) => "▸ ",
        (true, 0, false) => "- ",
        (true, _, false) => "+ ",
    };
    let mut line = StyledLine::of(TextStyle::Dim, format!("{}{fold}", cells.rails(&row.branches)));
    let view = &actor.view;
    match &view.run {
        Some(run) => {
            line.push(TextStyle::Bold, &text::safe_line(&run.agent_type));
            line.push(TextStyle::Plain, &format!(" {}", text::safe_line(&run.task)));
        }
        None if view.kind == ActorKind::RuntimeSupervisor => line.push(TextStyle::Plain, "runtime"),
        // There is only one actor of this kind, globally or per session.
        None if view.id == "0" || matches!(view.kind, ActorKind::RunSupervisor | ActorKind::SubAgentSupervisor) => {
            line.push(TextStyle::Plain, &words(view.kind));
        }
        // Generated ids begin with their time, so the cut id is still useful; the full id is in the Facts pane.
        None => {
            let id = text::cut(&text::safe_line(&view.id), MAX_ID_COLUMNS, cells.ellipsis());
            line.push(TextStyle::Plain, &format!("{} {id}", words(view.kind)));
        }
    }
    if row.hidden > 0 {
        line.push(TextStyle::Yellow, &format!(" (+{})", row.hidden));
    }
    line
}

fn words(kind: ActorKind) -> String {
    kind.as_str().replace('_', " ")
}

fn cell(column: Column, wide: usize, actor: &Actor, cells: CellWriter, now: Timestamp) -> StyledLine {
    let view = &actor.view;
    let run = view.run.as_ref();
    let plain = |text: String| StyledLine::of(TextStyle::Plain, text);
    match column {
        Column::State => StyledLine::of(actor.style(), actor.state().to_owned()),
        Column::Activity if actor.has_ended => {
            let error = actor.record.as_ref().and_then(|record| record.error.as_ref());
            StyledLine::of(TextStyle::Red, error.map_or_else(String::new, |error| text::safe_line(error)))
        }
        Column::Activity => {
            let since = match view.activity.is_empty() {
                true => String::new(),
                false => format!(" {}", format::age(now.millis_since(view.since))),
            };
            // If the activity is too long, it is cut, and the duration is kept.
            let room = wide.saturating_sub(since.len());
            plain(text::cut(&text::safe_line(&view.activity), room, cells.ellipsis())).and(TextStyle::Dim, since)
        }
        Column::Age => {
            let ended = actor.record.as_ref().and_then(|record| record.completed_at);
            match ended {
                None if actor.has_ended => StyledLine::default(),
                end => StyledLine::of(TextStyle::Dim, format::age(end.unwrap_or(now).millis_since(view.started_at))),
            }
        }
        Column::Turn => plain(run.map_or_else(String::new, |_| actor.turn().to_string())),
        Column::Tokens => plain(run.map_or_else(String::new, |_| format::count(actor.used().0))),
        Column::Cost => {
            plain(run.map_or_else(String::new, |_| actor.used().1.map_or_else(|| "?".to_owned(), format_usd)))
        }
        Column::Restarts => match (view.restarts, view.restart_limit.split_once('/')) {
            (0, Some((most, _))) if !actor.has_ended => StyledLine::of(TextStyle::Dim, format!("0/{most}")),
            (0, _) => StyledLine::default(),
            (restarts, Some((most, _))) => StyledLine::of(TextStyle::Yellow, format!("{restarts}/{most}")),
            (restarts, None) => StyledLine::of(TextStyle::Yellow, restarts.to_string()),
        },
        Column::Mailbox if view.mailbox == 0 => StyledLine::default(),
        Column::Mailbox => plain(view.mailbox.to_string()),
        Column::Budget => {
            let fullest = run.and_then(|run| run.budget.iter().map(used_fraction).max_by(f64::total_cmp));
            fullest.map_or_else(StyledLine::default, |share| {
                let style = if share < 0.8 { TextStyle::Green } else { TextStyle::Red };
                StyledLine::of(style, cells.bar(share, 5)).and(TextStyle::Plain, format!("{:>4.0}%", share * 100.0))
            })
        }
        Column::Events => {
            let beats: Vec<u64> = actor.pulse.samples(now, 10).into_iter().map(|(_, events)| events).collect();
            StyledLine::of(TextStyle::Cyan, cells.spark(&beats))
        }
    }
}
