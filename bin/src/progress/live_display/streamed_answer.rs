//! Text and reasoning of the watched run while they are streamed.

use soong::protocol::{
    Event, EventRecord, MessageEvent, ModelEvent, Role, RunId, Timestamp, ToolEvent,
};
use soong_tui::{
    format,
    markdown::{self, PageFormat, streamed::Streamed},
    styled_line::StyledLine,
    terminal::{Terminal, TextStyle},
    text,
};

/// Maximum number of lines of streamed reasoning that are shown.
const MAX_REASONING_LINES: usize = 3;
/// Duration from which reasoning is named after it has ended, in milliseconds.
const MIN_REASONING_MS: u64 = 1_000;
/// Maximum size of the streamed reasoning that is kept, in bytes.
const MAX_REASONING_BYTES: usize = 2_000;

/// Streamed answer of the watched run.
pub(super) struct StreamedAnswer {
    pub(super) root: RunId,
    pub(super) streamed: Streamed,
    /// Text of the last message, if it is not printed. It is not the answer if tool calls follow.
    pub(super) unprinted: Option<String>,
    /// Whether the text is printed as it arrives. Otherwise only its tail is part of the display.
    pub(super) prints_stream: bool,
    /// Whether the complete answer was printed.
    pub(super) is_complete: bool,
    pub(super) page: PageFormat,
    pub(super) terminal: Terminal,
}

impl StreamedAnswer {
    /// Returns whether an event ends a model call of the watched run.
    pub(super) fn ends_call(&self, record: &EventRecord) -> bool {
        let is_end = matches!(
            &record.event,
            Event::Message(MessageEvent::Added {
                role: Role::Assistant,
                ..
            }) | Event::Model(ModelEvent::Retrying { .. } | ModelEvent::Fallback { .. })
        );
        is_end && record.run_id.as_ref() == Some(&self.root)
    }

    /// Replaces the streamed text by the complete message, or drops that of a failed call. Returns
    /// the lines that remain to be printed.
    pub(super) fn finish(&mut self, record: &EventRecord) -> Vec<StyledLine> {
        if let Event::Tool(ToolEvent::Started { .. }) = &record.event
            && record.run_id.as_ref() == Some(&self.root)
            && let Some(text) = self.unprinted.take()
        {
            let mut lines = markdown::render(&text, &self.page);
            lines.push(StyledLine::default());
            return lines;
        }
        if let Event::Model(ModelEvent::Retrying { .. } | ModelEvent::Fallback { .. }) =
            &record.event
        {
            return self.discard(record);
        }
        let Event::Message(MessageEvent::Added {
            role: Role::Assistant,
            content,
            ..
        }) = &record.event
        else {
            return Vec::new();
        };
        if record.run_id.as_ref() != Some(&self.root) {
            return Vec::new();
        }
        let mut streamed = std::mem::take(&mut self.streamed);
        if !self.prints_stream {
            let text = content.as_ref().map(|content| content.as_str().to_owned());
            self.unprinted = text.filter(|text| !text.trim().is_empty());
            return Vec::new();
        }
        let mut lines = match content {
            Some(whole) => streamed.finish(whole, &self.page),
            // The message is too long for an event, and deltas may have been lost: the full text is
            // only in the record.
            None => {
                self.is_complete = false;
                streamed.finish_unchecked(&self.page)
            }
        };
        if content
            .as_ref()
            .is_none_or(|content| !content.trim().is_empty())
        {
            lines.push(StyledLine::default());
        }
        lines
    }

    /// Drops the streamed text of a failed call of the watched run. Returns the lines that remain
    /// to be printed.
    fn discard(&mut self, record: &EventRecord) -> Vec<StyledLine> {
        if record.run_id.as_ref() != Some(&self.root)
            || !std::mem::take(&mut self.streamed).has_settled()
        {
            return Vec::new();
        }
        let note = "The text above is discarded: its model call failed.";
        vec![
            StyledLine::default(),
            StyledLine::of(TextStyle::Dim, note),
            StyledLine::default(),
        ]
    }
}

/// Reasoning of the watched run that is being streamed.
#[derive(Default)]
pub(super) struct Reasoning {
    since: Option<Timestamp>,
    /// Its end.
    text: String,
}

impl Reasoning {
    pub(super) fn push(&mut self, text: &str, at: Timestamp) {
        self.since.get_or_insert(at);
        self.text.push_str(text);
        if self.text.len() > 2 * MAX_REASONING_BYTES {
            let end = self
                .text
                .floor_char_boundary(self.text.len() - MAX_REASONING_BYTES);
            self.text.drain(..end);
        }
    }

    /// Returns the last lines.
    pub(super) fn tail(&self, page: &PageFormat) -> Vec<StyledLine> {
        let lines = self
            .text
            .lines()
            .flat_map(|line| text::wrap(&text::safe_line(line), page.width));
        let lines: Vec<String> = lines.filter(|line| !line.is_empty()).collect();
        let hidden = lines.len().saturating_sub(MAX_REASONING_LINES);
        lines[hidden..]
            .iter()
            .map(|line| StyledLine::of(TextStyle::Dim, line))
            .collect()
    }

    /// Ends the reasoning. Returns the line that stays of it, if it was not short.
    pub(super) fn end(&mut self, at: Timestamp) -> Option<StyledLine> {
        let millis = at.millis_since(std::mem::take(self).since?);
        let line = || {
            StyledLine::of(
                TextStyle::Dim,
                format!("thought for {}", format::duration(millis)),
            )
        };
        (millis >= MIN_REASONING_MS).then(line)
    }
}
