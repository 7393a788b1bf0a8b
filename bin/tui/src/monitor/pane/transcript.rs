//! The Transcript pane: the messages of the run, and what its tools did, with diffs and the ends of
//! outputs.
//!
//! Elsewhere: the content of a step (`crate::transcript`).

use soong_protocol::{Event, EventRecord, MessageEvent, Role};

use super::{PaneContext, paragraph};
use crate::{
    markdown::{self, PageFormat},
    styled_line::StyledLine,
    terminal::TextStyle,
    transcript::Transcript,
};

/// Maximum number of lines of a user message.
const MESSAGE_LINES: usize = 12;

pub(super) fn lines(events: &[EventRecord], page: &PaneContext<'_>) -> Vec<StyledLine> {
    let Some(run) = page.actor.run_id() else {
        return Vec::new();
    };
    let width = page.columns;
    let unicode = page.cells.unicode;
    let mut transcript = Transcript::new(run.clone());
    let mut lines: Vec<StyledLine> = Vec::new();
    for record in events
        .iter()
        .filter(|record| record.run_id.as_ref() == Some(&run))
    {
        for step in transcript.apply(record) {
            lines.extend(step.lines(width, unicode));
        }
        let Event::Message(MessageEvent::Added {
            role,
            content: Some(content),
            ..
        }) = &record.event
        else {
            continue;
        };
        match role {
            Role::User => lines.extend(paragraph(
                TextStyle::Cyan,
                content.as_str(),
                0,
                page,
                MESSAGE_LINES,
            )),
            Role::Assistant if !content.is_empty() => {
                lines.extend(markdown::render(
                    content.as_str(),
                    &PageFormat { width, unicode },
                ));
            }
            Role::Assistant | Role::System | Role::Tool => {}
        }
    }
    for step in transcript.flush() {
        lines.extend(step.lines(width, unicode));
    }
    if lines.is_empty() {
        lines.push(StyledLine::of(TextStyle::Dim, "no messages yet"));
    }
    lines
}
