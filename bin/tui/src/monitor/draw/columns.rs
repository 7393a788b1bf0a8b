//! Columns of the tree: which fit, their titles, and the row of an actor.
//!
//! Elsewhere: which actors are shown (`rows.rs`), scrolling and selection (`draw/tree.rs`).

use ratatui::{buffer::Buffer, layout::Rect};
use soong_protocol::{Timestamp, tree::ActorKind};

use super::{put, put_right};
use crate::monitor::{
    actor::{Actor, kind_name},
    cells::CellWriter,
    pane::used_fraction,
    rows::ActorRow,
};
use crate::{format, styled_line::StyledLine, terminal::TextStyle, text};

/// Window width from which extra columns are shared with the activity column.
const WIDE_WINDOW: u16 = 120;
/// Maximum width of an id that is not a run's, in columns.
const MAX_ID_COLUMNS: usize = 19;

/// A column to the right of the names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::monitor) enum Column {
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
        matches!(
            self,
            Self::State | Self::Activity | Self::Budget | Self::Events
        )
    }
}

/// The columns that fit.
pub(in crate::monitor) struct TreeColumns {
    /// Width of the names.
    names: u16,
    /// Each column with its title, its position and its width.
    columns: Vec<(Column, &'static str, u16, u16)>,
}

impl TreeColumns {
    /// Selects the columns for a width. `omitted` columns are left out.
    pub(in crate::monitor) fn fitting(width: u16, omitted: &[Column]) -> Self {
        // The activity column grows with the window, as the names do.
        let more = width.saturating_sub(WIDE_WINDOW) / 3;
        let fitting = Column::ALL
            .into_iter()
            .filter(|(column, _, _, from)| width >= *from && !omitted.contains(column));
        let fitting: Vec<_> = fitting
            .map(|(column, title, wide, _)| {
                (
                    column,
                    title,
                    if column == Column::Activity {
                        wide + more
                    } else {
                        wide
                    },
                )
            })
            .collect();
        let names = width.saturating_sub(fitting.iter().map(|(_, _, wide)| wide + 1).sum());
        let mut x = names + 1;
        let positioned = |(column, title, wide)| {
            let at = x;
            x += wide + 1;
            (column, title, at, wide)
        };
        Self {
            names,
            columns: fitting.into_iter().map(positioned).collect(),
        }
    }

    /// Draws the titles into the first row of an area; `names` is the title of the names.
    pub(in crate::monitor) fn draw_titles(
        &self,
        cells: CellWriter,
        buffer: &mut Buffer,
        area: Rect,
        names: &StyledLine,
    ) {
        put(
            cells,
            buffer,
            Rect {
                width: self.names,
                ..area
            },
            0,
            names,
        );
        for (column, title, x, wide) in &self.columns {
            let cell = Rect {
                x: area.x + x,
                y: area.y,
                width: *wide,
                height: 1,
            };
            let title = StyledLine::of(TextStyle::Dim, *title);
            if column.is_text() {
                put(cells, buffer, cell, 0, &title)
            } else {
                put_right(cells, buffer, cell, 0, &title)
            }
        }
    }

    /// Draws the row of an actor from a position on.
    pub(in crate::monitor) fn draw_row(
        &self,
        cells: CellWriter,
        buffer: &mut Buffer,
        x: u16,
        y: u16,
        row: &ActorRow,
        actor: &Actor,
        now: Timestamp,
    ) {
        let name = label(row, actor, cells).cut(usize::from(self.names), cells.ellipsis());
        cells.put(buffer, x, y, usize::from(self.names), &name);
        for (column, _, at, wide) in &self.columns {
            let cell = cell(*column, usize::from(*wide), actor, cells, now)
                .cut(usize::from(*wide), cells.ellipsis());
            let indent = if column.is_text() {
                0
            } else {
                wide - u16::try_from(cell.width()).unwrap_or(*wide)
            };
            cells.put(
                buffer,
                x + at + indent,
                y,
                usize::from(wide - indent),
                &cell,
            );
        }
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
    let mut line = StyledLine::of(
        TextStyle::Dim,
        format!("{}{fold}", cells.rails(&row.branches)),
    );
    let view = &actor.view;
    match &view.run {
        Some(run) => {
            line.push(TextStyle::Bold, &text::safe_line(&run.agent_type));
            line.push(
                TextStyle::Plain,
                &format!(" {}", text::safe_line(&run.task)),
            );
        }
        None if view.kind == ActorKind::RuntimeSupervisor => line.push(TextStyle::Plain, "runtime"),
        // There is only one actor of this kind, globally or per session.
        None if view.id == "0"
            || matches!(
                view.kind,
                ActorKind::RunSupervisor | ActorKind::SubAgentSupervisor
            ) =>
        {
            line.push(TextStyle::Plain, &kind_name(view.kind));
        }
        None if actor.slug().is_some() => line.push(TextStyle::Plain, &actor.name()),
        // Generated ids begin with their time, so the cut id is still useful; the full id is in the
        // Facts pane.
        None => {
            let id = text::cut(&text::safe_line(&view.id), MAX_ID_COLUMNS, cells.ellipsis());
            line.push(TextStyle::Plain, &format!("{} {id}", kind_name(view.kind)));
        }
    }
    if row.hidden > 0 {
        line.push(TextStyle::Yellow, &format!(" (+{})", row.hidden));
    }
    line
}

fn cell(
    column: Column,
    wide: usize,
    actor: &Actor,
    cells: CellWriter,
    now: Timestamp,
) -> StyledLine {
    let view = &actor.view;
    let run = view.run.as_ref();
    let plain = |text: String| StyledLine::of(TextStyle::Plain, text);
    match column {
        Column::State => StyledLine::of(actor.style(), actor.state().to_owned()),
        Column::Activity if actor.has_ended => {
            let error = actor
                .record
                .as_ref()
                .and_then(|record| record.error.as_ref());
            StyledLine::of(
                TextStyle::Red,
                error.map_or_else(String::new, |error| text::safe_line(error)),
            )
        }
        Column::Activity => {
            let since = if view.activity.is_empty() {
                String::new()
            } else {
                format!(" {}", format::age(now.millis_since(view.since)))
            };
            // If the activity is too long, it is cut, and the duration is kept.
            let room = wide.saturating_sub(since.len());
            plain(text::cut(
                &text::safe_line(&view.activity),
                room,
                cells.ellipsis(),
            ))
            .and(TextStyle::Dim, since)
        }
        Column::Age => {
            let ended = actor.record.as_ref().and_then(|record| record.completed_at);
            match ended {
                None if actor.has_ended => StyledLine::default(),
                end => StyledLine::of(
                    TextStyle::Dim,
                    format::age(end.unwrap_or(now).millis_since(view.started_at)),
                ),
            }
        }
        Column::Turn => plain(run.map_or_else(String::new, |_| actor.turn().to_string())),
        Column::Tokens => plain(run.map_or_else(String::new, |_| actor.spent().tokens())),
        Column::Cost => plain(run.map_or_else(String::new, |_| actor.spent().usd_or("?"))),
        Column::Restarts => match (view.restarts, view.restart_limit.split_once('/')) {
            (0, Some((most, _))) if !actor.has_ended => {
                StyledLine::of(TextStyle::Dim, format!("0/{most}"))
            }
            (0, _) => StyledLine::default(),
            (restarts, Some((most, _))) => {
                StyledLine::of(TextStyle::Yellow, format!("{restarts}/{most}"))
            }
            (restarts, None) => StyledLine::of(TextStyle::Yellow, restarts.to_string()),
        },
        Column::Mailbox if view.mailbox == 0 => StyledLine::default(),
        Column::Mailbox => plain(view.mailbox.to_string()),
        Column::Budget => {
            let fullest =
                run.and_then(|run| run.budget.iter().map(used_fraction).max_by(f64::total_cmp));
            fullest.map_or_else(StyledLine::default, |share| {
                let style = if share < 0.8 {
                    TextStyle::Green
                } else {
                    TextStyle::Red
                };
                StyledLine::of(style, cells.bar(share, 5))
                    .and(TextStyle::Plain, format!("{:>4.0}%", share * 100.0))
            })
        }
        Column::Events => {
            let beats: Vec<u64> = actor
                .pulse
                .samples(now, 10)
                .into_iter()
                .map(|(_, events)| events)
                .collect();
            StyledLine::of(TextStyle::Cyan, cells.spark(&beats))
        }
    }
}
