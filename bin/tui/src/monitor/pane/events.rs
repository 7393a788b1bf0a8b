//! The Events pane: the newest events of the run's trace, one line each.

use soong_protocol::{EventRecord, Level};

use super::{PaneContext, paragraph};
use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// Maximum number of bytes shown of an event's data.
const MOST_BYTES: usize = 2_000;

/// Maximum number of lines shown of an event in full.
const MOST_LINES: usize = 40;

pub(super) fn lines(events: &[EventRecord], page: &PaneContext<'_>) -> Vec<StyledLine> {
    if !page.show_full {
        return events
            .iter()
            .map(|record| line(record, MOST_BYTES))
            .collect();
    }
    let full = |record: &EventRecord| {
        let data = paragraph(
            TextStyle::Plain,
            &record.event.data_json(),
            8,
            page,
            MOST_LINES,
        );
        std::iter::once(line(record, 0))
            .chain(data)
            .collect::<Vec<_>>()
    };
    events.iter().flat_map(full).collect()
}

fn line(record: &EventRecord, most: usize) -> StyledLine {
    let ts = record.ts.to_string();
    let time = ts.split_once('T').map_or(ts.as_str(), |(_, time)| time);
    let style = match record.event.level() {
        Level::Error => TextStyle::Red,
        Level::Warn => TextStyle::Yellow,
        _ => TextStyle::Cyan,
    };
    let mut data = record.event.data_json();
    if data.len() > most {
        let end = (0..=most)
            .rev()
            .find(|at| data.is_char_boundary(*at))
            .unwrap_or(0);
        data.truncate(end);
    }
    StyledLine::of(TextStyle::Dim, format!("{:>6}  {time}  ", record.event_id))
        .and(
            style,
            format!("{:<22}", text::safe_line(record.event.kind())),
        )
        .and(TextStyle::Plain, format!("  {}", text::safe_line(&data)))
}
