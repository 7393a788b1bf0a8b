//! Draws dialogs on top of the screen.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    symbols::border,
    widgets::{Block, Clear, Widget},
};
use soong_protocol::Session;

use super::{push_key_hint, put};
use crate::{
    monitor::{actor_index::ActorIndex, cells::CellWriter, dialog::Dialog, keys, state::Monitor},
    request::{UserRequest, permission_rows, question_rows, wrap_rows},
};
use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// Maximum width of a dialog.
const WIDEST: u16 = 100;

pub(super) fn draw(monitor: &mut Monitor, buffer: &mut Buffer, area: Rect) {
    let columns = usize::from(area.width.min(WIDEST).saturating_sub(4));
    let rows = usize::from(area.height.saturating_sub(2));
    let (title, lines) = match &mut monitor.dialog {
        Dialog::None | Dialog::Filter(_) => return,
        Dialog::Help(at) => {
            let lines: Vec<StyledLine> = keys::help()
                .map(|(keys, help)| {
                    StyledLine::of(TextStyle::Bold, format!("{keys:<11}"))
                        .and(TextStyle::Plain, help)
                })
                .collect();
            *at = (*at).min(lines.len().saturating_sub(rows));
            let title = if lines.len() > rows {
                "Keys (Up and Down: more)"
            } else {
                "Keys"
            };
            (title.to_owned(), lines.into_iter().skip(*at).collect())
        }
        Dialog::Confirm { question, .. } => {
            let mut lines = wrapped(TextStyle::Plain, question, columns);
            lines.push(StyledLine::default());
            lines.push(hints(&[("y", "yes"), ("n", "no")]));
            ("Are you sure?".to_owned(), lines)
        }
        Dialog::Folder { trace, typed } => {
            let mut lines = wrapped(
                TextStyle::Plain,
                &format!(
                    "Export trace {trace} and its sub-traces to this folder, which must be empty or not exist:"
                ),
                columns,
            );
            lines.push(typing(&typed.text, columns));
            lines.push(StyledLine::of(
                TextStyle::Dim,
                "Enter: export, Ctrl-U: clear the line, Esc: cancel",
            ));
            ("Export".to_owned(), lines)
        }
        Dialog::Request {
            id,
            typed,
            from,
            is_read,
            ..
        } => {
            let asks = monitor.asks.list();
            let Some(at) = asks.iter().position(|ask| ask.id() == id.as_str()) else {
                let more = if asks.is_empty() {
                    "close"
                } else {
                    "next request"
                };
                let lines = vec![
                    StyledLine::of(
                        TextStyle::Yellow,
                        "No longer pending: decided elsewhere, or its run has ended.",
                    ),
                    StyledLine::default(),
                    hints(&[("Enter", more), ("Esc", "close")]),
                ];
                frame(monitor.cells, buffer, area, "Not pending", &lines);
                return;
            };
            let title = format!("Request {} of {}", at + 1, asks.len());
            let typed = typed.as_ref().map(|typed| typed.text.as_str());
            let session = monitor
                .actors
                .session(asks[at].session_id())
                .and_then(|actor| actor.session_record.as_deref());
            let mut lines = asker(&monitor.actors, &asks[at], session, columns);
            let rows = rows.saturating_sub(lines.len());
            let project = session.map(|session| session.project_dir.as_str());
            let has_others = asks.len() > 1;
            lines.extend(self::ask(
                &asks[at], project, typed, from, is_read, columns, rows, has_others,
            ));
            (title, lines)
        }
    };
    frame(monitor.cells, buffer, area, &title, &lines);
}

/// Renders who asks: the run, its session, and the project, because paths of the request are
/// relative to it.
fn asker(
    actors: &ActorIndex,
    ask: &UserRequest,
    session: Option<&Session>,
    columns: usize,
) -> Vec<StyledLine> {
    let run = actors.run(ask.run_id());
    let agent = run
        .map(|run| format!("{}, ", run.name()))
        .unwrap_or_default();
    let name = text::safe_line(session.map_or(ask.session_id().as_str(), Session::short_name));
    let folder = session.map(|session| format!("in {}", text::safe_line(&session.project_dir)));
    let lines = [Some(format!("{agent}session {name}")), folder];
    lines
        .into_iter()
        .flatten()
        .map(|line| StyledLine::of(TextStyle::Dim, text::cut(&line, columns, "...")))
        .collect()
}

/// Renders a pending request from a line on, as far as it fits; records whether its end has been
/// visible. Paths in `project`, a folder, are shown relative to it.
fn ask(
    ask: &UserRequest,
    project: Option<&str>,
    typed: Option<&str>,
    from: &mut usize,
    is_read: &mut bool,
    columns: usize,
    rows: usize,
    has_others: bool,
) -> Vec<StyledLine> {
    let request_rows = match ask {
        UserRequest::Question(question) => question_rows(question),
        UserRequest::Permission(permission) => permission_rows(permission, project),
    };
    let text_lines: Vec<StyledLine> = wrap_rows(request_rows, columns)
        .into_iter()
        .map(|row| StyledLine::of(row.style, row.text))
        .collect();
    // Five rows are kept free for the position, the typed text and the keys, however long the
    // request is.
    let room = rows.saturating_sub(5).max(1);
    *from = (*from).min(text_lines.len().saturating_sub(room));
    *is_read |= *from + room >= text_lines.len();
    let count = text_lines.len();
    let mut lines: Vec<StyledLine> = text_lines.into_iter().skip(*from).take(room).collect();
    lines.push(if count > room {
        StyledLine::of(
            TextStyle::Yellow,
            format!(
                "(lines {} to {} of {count}: v, PgUp, PgDn)",
                *from + 1,
                *from + room
            ),
        )
    } else {
        StyledLine::default()
    });
    lines.extend(typed.map(|typed| typing(typed, columns)));
    let is_once_only = matches!(ask, UserRequest::Permission(permission) if !permission.demand.is_grantable_for_session());
    let keys = match (ask, typed) {
        (UserRequest::Question(_), Some(_)) => vec![("Enter", "send answer"), ("Esc", "back")],
        (UserRequest::Permission(_), Some(_)) => {
            vec![("Enter", "deny with this reason"), ("Esc", "back")]
        }
        (UserRequest::Question(_), None) => vec![("Enter", "answer")],
        (UserRequest::Permission(_), None) if !*is_read => {
            vec![("v", "read on"), ("n", "deny"), ("e", "deny with reason")]
        }
        (UserRequest::Permission(_), None) if is_once_only => {
            vec![
                ("y", "allow once"),
                ("n", "deny"),
                ("e", "deny with reason"),
            ]
        }
        (UserRequest::Permission(_), None) => {
            vec![
                ("y", "allow once"),
                ("a", "allow for session"),
                ("n", "deny"),
                ("e", "deny with reason"),
            ]
        }
    };
    let others = has_others.then_some(("Up Down", "others"));
    let more = if typed.is_some() {
        Vec::new()
    } else {
        others.into_iter().chain([("l", "later")]).collect()
    };
    let mut line = StyledLine::default();
    for (key, what) in [keys, more].concat() {
        if line.width() > 0 && line.width() + key.len() + what.len() + 3 > columns {
            lines.push(std::mem::take(&mut line));
        }
        push_key_hint(&mut line, key, TextStyle::Plain, what);
    }
    lines.push(line);
    lines
}

fn hints(keys: &[(&str, &str)]) -> StyledLine {
    let mut line = StyledLine::default();
    keys.iter()
        .for_each(|(key, what)| push_key_hint(&mut line, key, TextStyle::Plain, what));
    line
}

/// Renders the end of the typed text, with a cursor.
fn typing(typed: &str, columns: usize) -> StyledLine {
    let end: String = typed.chars().rev().take(columns).collect();
    let mut shown = text::safe_line_keep_spaces(&end.chars().rev().collect::<String>());
    while text::width(&shown) + 3 > columns {
        shown.remove(0);
    }
    StyledLine::of(TextStyle::Cyan, "> ")
        .and(TextStyle::Plain, shown)
        .and(TextStyle::Cyan, "_")
}

fn wrapped(style: TextStyle, foreign: &str, columns: usize) -> Vec<StyledLine> {
    text::wrap(&text::safe_line_keep_spaces(foreign), columns)
        .into_iter()
        .map(|part| StyledLine::of(style, part))
        .collect()
}

/// Draws a centered box with lines in it.
fn frame(cells: CellWriter, buffer: &mut Buffer, area: Rect, title: &str, lines: &[StyledLine]) {
    let widest = lines
        .iter()
        .map(StyledLine::width)
        .max()
        .unwrap_or(0)
        .max(text::width(title))
        + 4;
    let width = u16::try_from(widest)
        .unwrap_or(u16::MAX)
        .min(area.width.min(WIDEST));
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let dialog_area = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    Clear.render(dialog_area, buffer);
    let set = if cells.unicode {
        border::ROUNDED
    } else {
        ASCII
    };
    Block::bordered()
        .border_set(set)
        .style(Style::new())
        .render(dialog_area, buffer);
    let head = Rect {
        x: dialog_area.x + 2,
        width: width.saturating_sub(4),
        height: 1,
        ..dialog_area
    };
    put(
        cells,
        buffer,
        head,
        0,
        &StyledLine::of(TextStyle::Bold, format!(" {title} ")),
    );
    let inner = Rect {
        x: dialog_area.x + 2,
        y: dialog_area.y + 1,
        width: width.saturating_sub(4),
        height: height.saturating_sub(2),
    };
    for (at, line) in lines.iter().take(usize::from(inner.height)).enumerate() {
        put(cells, buffer, inner, u16::try_from(at).unwrap_or(0), line);
    }
    buffer.set_style(
        Rect {
            height: 1,
            ..dialog_area
        },
        Style::new().add_modifier(Modifier::BOLD),
    );
}

const ASCII: border::Set<'static> = border::Set {
    top_left: "+",
    top_right: "+",
    bottom_left: "+",
    bottom_right: "+",
    vertical_left: "|",
    vertical_right: "|",
    horizontal_top: "-",
    horizontal_bottom: "-",
};
