//! The Diff pane: the changes that the run made to files of the project.
//!
//! Elsewhere: the content of a step (`crate::transcript`).

use soong_protocol::EventRecord;

use super::PaneContext;
use crate::{format, styled_line::StyledLine, terminal::TextStyle, transcript::Transcript};

pub(super) fn lines(events: &[EventRecord], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let Some(run) = page.actor.run_id() else {
        return Vec::new();
    };
    let mut transcript = Transcript::new(run.clone());
    let of_run = events
        .iter()
        .filter(|record| record.run_id.as_ref() == Some(&run));
    let mut steps: Vec<_> = of_run.flat_map(|record| transcript.apply(record)).collect();
    steps.extend(transcript.flush());
    steps.retain(|step| step.changes_file());
    let mut lines = Vec::new();
    // Of a long run, only the newest events are read.
    if events.first().is_some_and(|first| first.event_id > 1) {
        let note = "only the newest events are read; there may be older changes";
        lines.push(StyledLine::of(TextStyle::Yellow, note));
    }
    lines.push(match steps.len() {
        0 => StyledLine::of(
            TextStyle::Dim,
            "no files changed by edit or write; commands may have changed some",
        ),
        count => StyledLine::of(TextStyle::Bold, format::plural(count, "change", "changes")),
    });
    for step in steps {
        lines.push(StyledLine::default());
        lines.extend(step.all_lines(page.columns, page.cells.unicode));
    }
    lines
}
