//! Panes: the views of the selected actor, one file each.
//!
//! Each pane converts records into lines of any width; lines that are too long are cut when they
//! are drawn. Elsewhere: reading the records (`bin/src/monitor/feed.rs`), the open pane
//! (`detail.rs`).

mod artifacts;
mod cost;
mod diff;
mod events;
mod facts;
mod goals;
mod messages;
mod prompt;
mod team;
mod timeline;
mod transcript;

pub(crate) use facts::used_fraction;
use soong_protocol::{
    Artifact, EventRecord, Message, Timestamp, Trace,
    api::{RunWithOutcome, TraceView},
};

use super::{actor::Actor, actor_index::ActorIndex, cells::CellWriter};
use crate::{spent::Spent, styled_line::StyledLine, terminal::TextStyle, text};

/// A pane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Pane {
    Facts,
    Goals,
    Team,
    Events,
    Messages,
    Artifacts,
    Timeline,
    Transcript,
    Diff,
    Cost,
    Prompt,
}

impl Pane {
    pub(crate) const ALL: [Self; 11] = [
        Self::Facts,
        Self::Goals,
        Self::Team,
        Self::Events,
        Self::Messages,
        Self::Artifacts,
        Self::Timeline,
        Self::Transcript,
        Self::Diff,
        Self::Cost,
        Self::Prompt,
    ];

    /// Returns the key that shows the pane.
    pub(crate) const fn key(self) -> char {
        match self {
            Self::Facts => '1',
            Self::Goals => '2',
            Self::Team => '3',
            Self::Events => '4',
            Self::Messages => '5',
            Self::Artifacts => '6',
            Self::Timeline => '7',
            Self::Transcript => '8',
            Self::Diff => 'd',
            Self::Cost => '$',
            Self::Prompt => 'p',
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Facts => "Facts",
            Self::Goals => "Goals",
            Self::Team => "Team",
            Self::Events => "Events",
            Self::Messages => "Messages",
            Self::Artifacts => "Artifacts",
            Self::Timeline => "Timeline",
            Self::Transcript => "Transcript",
            Self::Diff => "Diff",
            Self::Cost => "Cost",
            Self::Prompt => "Prompt",
        }
    }

    /// Returns a name of at most five characters.
    pub(crate) const fn short_name(self) -> &'static str {
        match self {
            Self::Events => "Evts",
            Self::Messages => "Msgs",
            Self::Artifacts => "Files",
            Self::Timeline => "Time",
            Self::Transcript => "Steps",
            other => other.name(),
        }
    }

    /// Returns the kind of records that the pane shows.
    pub(crate) const fn needs(self) -> RecordKind {
        match self {
            Self::Facts | Self::Goals | Self::Team | Self::Cost => RecordKind::Facts,
            Self::Events | Self::Timeline | Self::Transcript | Self::Diff => RecordKind::Events,
            Self::Messages | Self::Prompt => RecordKind::Messages,
            Self::Artifacts => RecordKind::Artifacts,
        }
    }

    /// Returns whether the pane shows only records: no durations and no state of an actor.
    pub(crate) const fn is_recorded(self) -> bool {
        matches!(
            self,
            Self::Events
                | Self::Messages
                | Self::Artifacts
                | Self::Transcript
                | Self::Diff
                | Self::Prompt
        )
    }

    /// Returns whether the pane grows at its end, which is then the default position.
    pub(crate) const fn grows(self) -> bool {
        matches!(
            self,
            Self::Events | Self::Messages | Self::Timeline | Self::Transcript
        )
    }
}

/// Kinds of records that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Run and trace.
    Facts,
    /// Events of the trace.
    Events,
    /// Messages of the trace.
    Messages,
    /// Artifacts of the session.
    Artifacts,
    /// Content of one artifact.
    Preview,
}

/// Records that were read for a run.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// Number of changes so far.
    pub(crate) version: u64,
    pub(crate) facts: Option<Box<RunFacts>>,
    /// The newest events of the run's trace.
    pub(crate) events: Option<Vec<EventRecord>>,
    /// Messages of the run's trace, each with its position mark.
    pub(crate) messages: Option<Vec<(Message, String)>>,
    /// Artifacts of the run's session.
    pub(crate) artifacts: Option<Vec<Artifact>>,
    pub(crate) preview: Option<Preview>,
}

/// Records of a run and its trace.
#[derive(Debug)]
pub struct RunFacts {
    /// The run.
    pub run: RunWithOutcome,
    /// Its trace.
    pub trace: TraceView,
}

impl RunFacts {
    /// Returns the traces of the run's children. Children of earlier runs of the trace are left
    /// out.
    pub(crate) fn children(&self) -> Vec<&Trace> {
        let started = self.run.run.created_at;
        self.trace
            .sub_traces
            .iter()
            .filter(|child| child.created_at >= started)
            .collect()
    }

    /// Returns tokens and cost of the run with its sub-agents: of all of them once the run has
    /// ended, of its children before.
    pub(crate) fn with_sub_agents(&self) -> Spent {
        if let Some(stats) = &self.run.stats {
            return Spent::from(&stats.tree);
        }
        let own = Spent::from(&self.run.run.usage);
        self.children()
            .into_iter()
            .map(Spent::from)
            .fold(own, Spent::plus)
    }
}

/// The shown part of an artifact's content.
#[derive(Debug)]
pub struct Preview {
    /// Name of the artifact.
    pub name: String,
    /// Lines of its text.
    pub lines: Vec<String>,
}

/// Input for rendering a pane.
pub(crate) struct PaneContext<'a> {
    pub(crate) actors: &'a ActorIndex,
    pub(crate) actor: &'a Actor,
    pub(crate) records: &'a Records,
    /// Index of the selected artifact.
    pub(crate) chosen: usize,
    /// Whether events and messages are shown in full.
    pub(crate) show_full: bool,
    pub(crate) columns: usize,
    pub(crate) cells: CellWriter,
    pub(crate) now: Timestamp,
}

/// Renders a pane; `None` if its records have not been read yet.
pub(crate) fn lines(pane: Pane, page: &PaneContext<'_>) -> Option<Vec<StyledLine>> {
    if page.actor.view.run.is_none() && pane != Pane::Facts {
        return Some(vec![StyledLine::of(
            TextStyle::Dim,
            "available for runs only: select a run",
        )]);
    }
    match pane {
        Pane::Facts => Some(facts::lines(page)),
        Pane::Goals => Some(goals::lines(page.records.facts.as_ref()?, page)),
        Pane::Team => Some(team::lines(page.records.facts.as_ref()?, page)),
        Pane::Events => Some(events::lines(page.records.events.as_ref()?, page)),
        Pane::Messages => Some(messages::lines(page.records.messages.as_ref()?, page)),
        Pane::Artifacts => Some(artifacts::lines(page)?),
        Pane::Timeline => Some(timeline::lines(page.records.events.as_ref()?, page)),
        Pane::Transcript => Some(transcript::lines(page.records.events.as_ref()?, page)),
        Pane::Diff => Some(diff::lines(page.records.events.as_ref()?, page)),
        Pane::Cost => Some(cost::lines(page.records.facts.as_ref()?, page)),
        Pane::Prompt => Some(prompt::lines(page.records.messages.as_ref()?, page)),
    }
}

/// Wraps a text into at most `most` lines of a pane, indented by `indent` columns.
fn paragraph(
    style: TextStyle,
    foreign: &str,
    indent: usize,
    page: &PaneContext<'_>,
    most: usize,
) -> Vec<StyledLine> {
    let room = page.columns.saturating_sub(indent).max(8);
    // Text beyond the visible part is not processed.
    let shown = text::cut(&text::safe_line(foreign), room * (most + 1), "");
    let mut lines = text::wrap(&shown, room);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = format!(
                "{}{}",
                text::cut(last, room.saturating_sub(3), ""),
                page.cells.ellipsis()
            );
        }
    }
    let blank = " ".repeat(indent);
    lines
        .into_iter()
        .map(|line| StyledLine::of(TextStyle::Plain, blank.as_str()).and(style, line))
        .collect()
}
