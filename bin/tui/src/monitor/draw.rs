//! Draws the screen of the monitor: header, alarms, tree, pane, footer, and dialogs on top of them.
//!
//! It fits any window size: parts without room are dropped, the least important first. Everything
//! is written with [`CellWriter::put`]. Elsewhere: the state (`state.rs`), output to the terminal
//! (`crate::tty`).

pub(super) mod columns;
mod dialog;
mod tree;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
};
use soong_protocol::Timestamp;

use super::{
    actor::Alert,
    cells::CellWriter,
    dialog::Dialog,
    pane::{self, Pane, PaneContext},
    state::{Connection, Monitor},
};
use crate::{format, spent::Spent, styled_line::StyledLine, terminal::TextStyle, text};

/// Minimum number of rows to show the tree and a pane one above the other.
const SPLIT_MIN_ROWS: u16 = 17;
/// Minimum number of columns to show them side by side.
const SIDE_BY_SIDE_COLUMNS: u16 = 140;
/// Minimum number of columns to name all panes, those with digits, and those with digits briefly.
const TAB_COLUMNS: (u16, u16, u16) = (138, 108, 80);
/// Minimum size of the window: columns and rows.
const MIN_SIZE: (u16, u16) = (30, 6);
/// Minimum number of columns to name an actor in the alarm line.
const SHORTEST_NAME: usize = 16;
/// Number of seconds over which rates are averaged.
const RATE_SECONDS: usize = 5;

/// Layout of the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Areas {
    head: Rect,
    alarm: Rect,
    filter: Rect,
    tree: Rect,
    /// Its height is 0 if there is no room.
    pane: Rect,
    foot: Rect,
}

fn areas(monitor: &Monitor, area: Rect, has_alarm: bool, has_filter: bool) -> Areas {
    let row = |y: u16, height: u16| Rect {
        x: area.x,
        y: area.y + y,
        width: area.width,
        height,
    };
    let head = if area.height >= SPLIT_MIN_ROWS { 2 } else { 1 };
    let alarm = u16::from(has_alarm);
    let filter = u16::from(has_filter);
    let top = head + alarm + filter;
    let body = area.height.saturating_sub(top + 1);
    let is_large = area.height >= SPLIT_MIN_ROWS;
    let is_pane_alone = monitor.detail.has_focus && (monitor.detail.is_zoomed || !is_large);
    if is_large && !is_pane_alone && area.width >= SIDE_BY_SIDE_COLUMNS {
        let left = area.width * 11 / 20;
        let body = row(top, body);
        return Areas {
            head: row(0, head),
            alarm: row(head, alarm),
            filter: row(head + alarm, filter),
            tree: Rect {
                width: left,
                ..body
            },
            // One column stays free between them.
            pane: Rect {
                x: body.x + left + 1,
                width: area.width - left - 1,
                ..body
            },
            foot: row(top + body.height, 1),
        };
    }
    let pane = if is_pane_alone {
        body
    } else if is_large {
        // Rows that the tree does not need belong to the pane, up to two thirds.
        let needed = u16::try_from(monitor.list.rows().len() + 2).unwrap_or(u16::MAX);
        let most = (body * 2 / 3).max(6);
        let least = (body * 9 / 20).max(6);
        body.saturating_sub(needed).clamp(least, most)
    } else {
        0
    };
    Areas {
        head: row(0, head),
        alarm: row(head, alarm),
        filter: row(head + alarm, filter),
        tree: row(top, body - pane),
        pane: row(top + body - pane, pane),
        foot: row(top + body, 1),
    }
}

/// Draws the current state of the monitor.
pub fn draw(monitor: &mut Monitor, buffer: &mut Buffer, now: Timestamp) {
    monitor.update_rows();
    let area = *buffer.area();
    let cells = monitor.cells;
    if area.width < MIN_SIZE.0 || area.height < MIN_SIZE.1 {
        let text = format!("too small: needs {} x {}", MIN_SIZE.0, MIN_SIZE.1);
        cells.put(
            buffer,
            area.x,
            area.y,
            usize::from(area.width),
            &StyledLine::of(TextStyle::Yellow, text),
        );
        return;
    }
    let alarm = alarm(monitor, now, usize::from(area.width));
    let filter = filter_line(monitor);
    let areas = areas(monitor, area, alarm.is_some(), filter.is_some());
    head(monitor, buffer, areas.head, now);
    if let Some(alarm) = alarm {
        put(cells, buffer, areas.alarm, 0, &alarm);
    }
    if let Some(filter) = filter {
        put(cells, buffer, areas.filter, 0, &filter);
    }
    monitor.visible_rows = (
        usize::from(areas.tree.height.saturating_sub(1)),
        usize::from(areas.pane.height.saturating_sub(1)),
    );
    if areas.tree.height > 0 {
        tree::draw(monitor, buffer, areas.tree, now);
    }
    if areas.pane.height > 0 {
        if areas.pane.x > area.x {
            let rule = StyledLine::of(TextStyle::Dim, if cells.unicode { "│" } else { "|" });
            (areas.pane.top()..areas.pane.bottom()).for_each(|y| {
                cells.put(buffer, areas.pane.x - 1, y, 1, &rule);
            });
        }
        self::pane(monitor, buffer, areas.pane, now);
    }
    put(
        cells,
        buffer,
        areas.foot,
        0,
        &footer(monitor, now, usize::from(area.width)),
    );
    if let Dialog::Filter(_) | Dialog::None = monitor.dialog {
        return;
    }
    dialog::draw(monitor, buffer, area);
}

/// Writes a line into a row of an area.
fn put(cells: CellWriter, buffer: &mut Buffer, area: Rect, row: u16, line: &StyledLine) {
    if row < area.height {
        cells.put(buffer, area.x, area.y + row, usize::from(area.width), line);
    }
}

/// Writes a line right-aligned.
fn put_right(cells: CellWriter, buffer: &mut Buffer, area: Rect, row: u16, line: &StyledLine) {
    let wide = u16::try_from(line.width())
        .unwrap_or(u16::MAX)
        .min(area.width);
    let x = area.x + area.width - wide;
    cells.put(buffer, x, area.y + row, usize::from(wide), line);
}

fn head(monitor: &Monitor, buffer: &mut Buffer, area: Rect, now: Timestamp) {
    let cells = monitor.cells;
    let title = StyledLine::of(TextStyle::Bold, "soong monitor")
        .and(TextStyle::Dim, format!("  {}", monitor.title));
    put(cells, buffer, area, 0, &title);
    put_right(
        cells,
        buffer,
        area,
        0,
        &connection(&monitor.connection, area.width),
    );
    if area.height < 2 {
        return;
    }
    let mut line = StyledLine::default();
    for part in activity(monitor, now) {
        // A part without enough room is dropped completely.
        if line.width() > 0 && line.width() + 3 + part.width() > usize::from(area.width) {
            break;
        }
        if line.width() > 0 {
            line.push(TextStyle::Dim, if cells.unicode { " · " } else { " | " });
        }
        line.append(&part);
    }
    put(cells, buffer, area, 1, &line);
}

/// Describes the connection, briefly if the window has few columns.
fn connection(connection: &Connection, columns: u16) -> StyledLine {
    match connection {
        Connection::Searching => StyledLine::of(TextStyle::Yellow, " connecting"),
        Connection::Connected { .. } if columns < 50 => StyledLine::of(TextStyle::Green, " live"),
        Connection::Lost(_) if columns < 50 => StyledLine::of(TextStyle::Red, " offline"),
        Connection::Connected { pid, version } => StyledLine::of(TextStyle::Green, " live").and(
            TextStyle::Dim,
            format!(" {pid} ({})", text::safe_line(version)),
        ),
        Connection::Lost(_) => StyledLine::of(TextStyle::Red, " offline, reconnecting"),
    }
}

/// Describes the activity of all actors: the parts of a line, the most important first.
fn activity(monitor: &Monitor, now: Timestamp) -> Vec<StyledLine> {
    let cells = monitor.cells;
    let actors = &monitor.actors;
    let at_work = actors.summary();
    let mut runs = StyledLine::of(
        TextStyle::Plain,
        format::plural(at_work.runs - at_work.children, "run", "runs"),
    );
    if at_work.children > 0 {
        runs.push(
            TextStyle::Plain,
            &format!(
                " + {}",
                format::plural(at_work.children, "child", "children")
            ),
        );
    }
    let states: Vec<String> = at_work
        .states
        .iter()
        .map(|(state, count)| format!("{count} {state}"))
        .collect();
    if !states.is_empty() {
        runs.push(TextStyle::Dim, &format!(": {}", states.join(", ")));
    }
    let used = |spent: Spent| format!("{} tokens {}", spent.tokens(), spent.usd_or("cost unknown"));
    let active = StyledLine::of(TextStyle::Plain, format!("{} active", used(at_work.spent)));
    let mut parts = vec![runs, active];
    if at_work.ended > 0 {
        let used = used(at_work.ended_spent);
        parts.push(StyledLine::of(
            TextStyle::Dim,
            format!("{} ended: {used}", at_work.ended),
        ));
    }
    let (tokens, events) = actors.usage_history.rate(now, RATE_SECONDS);
    for (rate, unit, pick) in [
        (tokens, "tok/s", (|beat| beat.0) as fn((u64, u64)) -> u64),
        (events, "ev/s", |beat| beat.1),
    ] {
        let beats: Vec<u64> = actors
            .usage_history
            .samples(now, 16)
            .into_iter()
            .map(pick)
            .collect();
        parts.push(
            StyledLine::of(TextStyle::Plain, format!("{} {unit} ", format::count(rate)))
                .and(TextStyle::Cyan, cells.spark(&beats)),
        );
    }
    parts.push(StyledLine::of(
        TextStyle::Dim,
        format::plural(at_work.runs + at_work.others, "actor", "actors"),
    ));
    if actors.dropped > 0 {
        parts.push(StyledLine::of(
            TextStyle::Yellow,
            format!("{} changes dropped", actors.dropped),
        ));
    }
    parts
}

/// Returns the line about actors that need attention, the most urgent first; `None` if there are
/// none.
fn alarm(monitor: &Monitor, now: Timestamp, columns: usize) -> Option<StyledLine> {
    if let Connection::Lost(why) = &monitor.connection {
        return Some(StyledLine::of(
            TextStyle::Red,
            format!("! {}", text::safe_line(why)),
        ));
    }
    let actors = &monitor.actors;
    let mut line = StyledLine::default();
    if let Some(state) = monitor.own_has_ended() {
        line = StyledLine::of(TextStyle::Bold, format!("The run has ended: {state}."))
            .and(TextStyle::Plain, " Press q to see its answer");
    }
    let Some((worst, first)) = actors.alerts().next() else {
        return (line.width() > 0).then_some(line);
    };
    let first = actors.get(first)?;
    for (alarm, style, one, many) in [
        (Alert::Stuck, TextStyle::Red, "is stuck", "are stuck"),
        (
            Alert::NeedsInput,
            TextStyle::Yellow,
            "needs input",
            "need input",
        ),
        (Alert::Failed, TextStyle::Red, "has failed", "have failed"),
        (
            Alert::Restarted,
            TextStyle::Yellow,
            "was restarted",
            "were restarted",
        ),
    ] {
        let count = actors.alerts().filter(|(other, _)| *other == alarm).count();
        if count > 0 {
            line.push(TextStyle::Plain, if line.width() > 0 { ", " } else { "! " });
            line.push(style, &format::plural(count, one, many));
        }
    }
    let since = match worst {
        Alert::Stuck => first.view.run.as_ref().and_then(|run| run.last_progress),
        Alert::NeedsInput => Some(first.view.since),
        _ => None,
    };
    let since = since.map_or_else(String::new, |at| {
        format!(" for {}", format::age(now.millis_since(at)))
    });
    let key = if worst == Alert::NeedsInput {
        "  (a: answer)"
    } else {
        "  (n: select)"
    };
    let room = columns.saturating_sub(line.width() + 2 + since.len() + key.len());
    if room >= SHORTEST_NAME {
        line.push(
            TextStyle::Plain,
            &format!(
                ": {}{since}",
                text::cut(&first.name(), room, monitor.cells.ellipsis())
            ),
        );
    }
    line.push(
        TextStyle::Dim,
        if line.width() + key.len() <= columns {
            key
        } else {
            ""
        },
    );
    Some(line)
}

fn pane(monitor: &mut Monitor, buffer: &mut Buffer, area: Rect, now: Timestamp) {
    let cells = monitor.cells;
    tabs(monitor, buffer, area);
    let rows = usize::from(area.height.saturating_sub(1));
    let Some(actor) = monitor
        .list
        .selected()
        .and_then(|key| monitor.actors.get(key))
    else {
        return;
    };
    let page = PaneContext {
        actors: &monitor.actors,
        actor,
        records: &monitor.detail.records,
        chosen: monitor.detail.chosen(),
        show_full: monitor.detail.show_full,
        columns: usize::from(area.width),
        cells,
        now,
    };
    let why = monitor.detail.error().map(|why| {
        StyledLine::of(
            TextStyle::Red,
            format!("read failed: {}", text::safe_line(why)),
        )
    });
    let look = (
        monitor.detail.records.version,
        monitor.detail.pane,
        monitor.detail.show_full,
        area.width,
    );
    let lines: Vec<StyledLine> = match monitor.cached_lines.take() {
        // Lines rendered from records alone are reused until the records change.
        Some((before, lines)) if before == look && monitor.detail.pane.is_recorded() => lines,
        _ => match pane::lines(monitor.detail.pane, &page) {
            Some(lines) => why.into_iter().chain(lines).collect(),
            None => vec![why.unwrap_or_else(|| StyledLine::of(TextStyle::Dim, "reading"))],
        },
    };
    let last = lines.len().saturating_sub(rows);
    let stays = monitor.detail.at_end && monitor.detail.pane.grows();
    let is_list = monitor.detail.is_list();
    let scroll = match () {
        () if is_list => (monitor.detail.chosen() + 1).saturating_sub(rows).min(last),
        () if stays => last,
        () => monitor.detail.scroll.min(last),
    };
    monitor.detail.scroll = scroll;
    for (at, line) in lines.iter().skip(scroll).take(rows).enumerate() {
        let line = line.cut(usize::from(area.width), cells.ellipsis());
        put(
            cells,
            buffer,
            area,
            u16::try_from(at + 1).unwrap_or(u16::MAX),
            &line,
        );
    }
    let count = lines.len();
    monitor.cached_lines = Some((look, lines));
    if count > rows {
        let position = format!(
            " {} to {} of {} ",
            scroll + 1,
            (scroll + rows).min(count),
            count
        );
        put_right(
            cells,
            buffer,
            area,
            0,
            &StyledLine::of(TextStyle::Dim, position),
        );
    }
}

fn tabs(monitor: &Monitor, buffer: &mut Buffer, area: Rect) {
    let cells = monitor.cells;
    put(
        cells,
        buffer,
        area,
        0,
        &StyledLine::of(TextStyle::Dim, cells.rule(usize::from(area.width))),
    );
    let mut x = area.x + 1;
    // Panes with a letter are named only if there is room for all names, or while they are shown.
    let has_room = area.width >= TAB_COLUMNS.0;
    let is_listed =
        |pane: &Pane| has_room || pane.key().is_ascii_digit() || *pane == monitor.detail.pane;
    let is_letter_shown = !monitor.detail.pane.key().is_ascii_digit();
    for pane in Pane::ALL.into_iter().filter(is_listed) {
        let is_shown = pane == monitor.detail.pane;
        let key = pane.key();
        // If there is no room for all names, they are short, or only the selected tab shows its
        // name.
        let (name, gap) = match area.width {
            columns if columns >= TAB_COLUMNS.0 => (format!(" {key} {} ", pane.name()), 1),
            columns if columns >= TAB_COLUMNS.1 && !is_letter_shown => {
                (format!(" {key} {} ", pane.name()), 1)
            }
            columns if columns >= TAB_COLUMNS.2 && !is_letter_shown => {
                (format!(" {key} {}", pane.short_name()), 0)
            }
            _ if is_shown => (format!(" {key} {} ", pane.name()), 1),
            _ => (format!(" {key} "), 1),
        };
        let style = if is_shown {
            TextStyle::Bold
        } else {
            TextStyle::Dim
        };
        let room = usize::from(area.right().saturating_sub(x));
        let took = cells.put(buffer, x, area.y, room, &StyledLine::of(style, name));
        if is_shown {
            let style = if monitor.detail.has_focus {
                Modifier::REVERSED
            } else {
                Modifier::UNDERLINED
            };
            buffer.set_style(
                Rect {
                    x,
                    y: area.y,
                    width: took,
                    height: 1,
                },
                Style::new().add_modifier(style),
            );
        }
        x = x.saturating_add(took + gap).min(area.right());
    }
}

/// Returns the line with the filter while it is typed or applied.
fn filter_line(monitor: &Monitor) -> Option<StyledLine> {
    let (text, cursor, keys) = match &monitor.dialog {
        Dialog::Filter(typed) => (&typed.text, "_", "Enter: keep filter, Esc: show all"),
        _ => (&monitor.list.view.filter, "", "/: change, Esc: show all"),
    };
    if text.is_empty() && cursor.is_empty() {
        return None;
    }
    let line = StyledLine::of(TextStyle::Cyan, "filter: ")
        .and(TextStyle::Bold, text::safe_line_keep_spaces(text));
    Some(
        line.and(TextStyle::Cyan, cursor)
            .and(TextStyle::Dim, format!("  ({keys})")),
    )
}

fn footer(monitor: &Monitor, now: Timestamp, columns: usize) -> StyledLine {
    if let Some((style, note)) = monitor.note(now) {
        return StyledLine::of(style, text::safe_line(note)).cut(columns, monitor.cells.ellipsis());
    }
    let asks = monitor.asks.list().len();
    let answer = format!("answer ({asks})");
    let mut hints = vec![("q", "exit"), ("?", "help")];
    if asks > 0 {
        hints.push(("a", &answer));
    }
    if monitor.detail.has_focus {
        hints.extend([
            ("Tab", "tree"),
            ("Left Right", "pane"),
            ("Up Down", "scroll"),
        ]);
        match monitor.detail.pane {
            Pane::Artifacts if monitor.detail.is_list() => hints.push(("Enter", "preview")),
            Pane::Artifacts => hints.push(("Esc", "list")),
            Pane::Events | Pane::Messages if monitor.detail.show_full => {
                hints.push(("Enter", "summary"))
            }
            Pane::Events | Pane::Messages => hints.push(("Enter", "details")),
            _ => {}
        }
        if monitor.detail.pane.grows() {
            hints.push((
                "f",
                if monitor.detail.at_end {
                    "stop following"
                } else {
                    "follow"
                },
            ));
        }
    } else {
        hints.extend([
            ("Tab", "pane"),
            ("n", "next alert"),
            ("/", "filter"),
            ("s", "sort"),
            ("c", "cancel"),
            ("x", "export"),
            ("K", "kill"),
            ("t", "tree"),
        ]);
    }
    let mut line = StyledLine::default();
    for (key, what) in hints {
        if line.width() + key.len() + what.len() + 3 > columns {
            break;
        }
        push_key_hint(&mut line, key, TextStyle::Dim, what);
    }
    line
}

/// Appends the description of a key to a line.
fn push_key_hint(line: &mut StyledLine, key: &str, style: TextStyle, what: &str) {
    line.push(TextStyle::Plain, if line.width() > 0 { "  " } else { "" });
    line.push(TextStyle::Bold, key);
    line.push(style, &format!(" {what}"));
}
