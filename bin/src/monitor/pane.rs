//! The panes: what is told of the selected actor, a file each.
//!
//! Each turns records into lines, whatever the width; what is too long is cut where it is drawn. Not here: how records
//! come (`feed.rs`), which pane is open (`desk.rs`).

mod artifacts;
mod events;
mod facts;
mod goals;
mod messages;
mod team;
mod timeline;

pub(crate) use facts::share;
use soong::protocol::{Artifact, EventRecord, Message, Timestamp};

use super::{actor::Actor, forest::Forest, ink::Ink};
use crate::{line::Line, terminal::Hue, text};
use soong_server::http::{RunView, TraceView};

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
}

impl Pane {
    pub(crate) const ALL: [Self; 7] =
        [Self::Facts, Self::Goals, Self::Team, Self::Events, Self::Messages, Self::Artifacts, Self::Timeline];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Facts => "Facts",
            Self::Goals => "Goals",
            Self::Team => "Team",
            Self::Events => "Events",
            Self::Messages => "Messages",
            Self::Artifacts => "Artifacts",
            Self::Timeline => "Timeline",
        }
    }

    /// Returns which records it is made of.
    pub(crate) const fn needs(self) -> Need {
        match self {
            Self::Facts | Self::Goals | Self::Team => Need::Facts,
            Self::Events | Self::Timeline => Need::Events,
            Self::Messages => Need::Messages,
            Self::Artifacts => Need::Artifacts,
        }
    }

    /// Returns whether it shows records and nothing else: no time that passes, no state of an actor.
    pub(crate) const fn is_recorded(self) -> bool {
        matches!(self, Self::Events | Self::Messages | Self::Artifacts)
    }

    /// Returns whether it grows at its end, where one wants to be.
    pub(crate) const fn grows(self) -> bool {
        matches!(self, Self::Events | Self::Messages | Self::Timeline)
    }
}

/// Records that are read together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Need {
    Facts,
    Events,
    Messages,
    Artifacts,
    /// What one artifact holds.
    Preview,
}

/// What was read of a run.
#[derive(Debug, Default)]
pub(crate) struct Records {
    /// How often anything of it has changed.
    pub(crate) version: u64,
    pub(crate) facts: Option<Box<Facts>>,
    /// The newest of its trace.
    pub(crate) events: Option<Vec<EventRecord>>,
    /// Its trace's, with where each stands.
    pub(crate) messages: Option<Vec<(Message, String)>>,
    /// Its session's.
    pub(crate) artifacts: Option<Vec<Artifact>>,
    pub(crate) preview: Option<Preview>,
}

/// What is recorded of a run, and of its trace.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) run: RunView,
    pub(crate) trace: TraceView,
}

/// What an artifact holds, as far as it is shown.
#[derive(Debug)]
pub(crate) struct Preview {
    pub(crate) name: String,
    pub(crate) lines: Vec<String>,
}

/// What a pane is drawn of.
pub(crate) struct Page<'a> {
    pub(crate) forest: &'a Forest,
    pub(crate) actor: &'a Actor,
    pub(crate) records: &'a Records,
    /// Which artifact is pointed at.
    pub(crate) chosen: usize,
    /// Whether events and messages are shown in full.
    pub(crate) whole: bool,
    pub(crate) columns: usize,
    pub(crate) ink: Ink,
    pub(crate) now: Timestamp,
}

/// Draws a pane; `None` = what it is made of is not there yet.
pub(crate) fn lines(pane: Pane, page: &Page<'_>) -> Option<Vec<Line>> {
    if page.actor.view.run.is_none() && pane != Pane::Facts {
        return Some(vec![Line::of(Hue::Dim, "only runs have that: select one")]);
    }
    match pane {
        Pane::Facts => Some(facts::lines(page)),
        Pane::Goals => Some(goals::lines(page.records.facts.as_ref()?, page)),
        Pane::Team => Some(team::lines(page.records.facts.as_ref()?, page)),
        Pane::Events => Some(events::lines(page.records.events.as_ref()?, page)),
        Pane::Messages => Some(messages::lines(page.records.messages.as_ref()?, page)),
        Pane::Artifacts => Some(artifacts::lines(page)?),
        Pane::Timeline => Some(timeline::lines(page.records.events.as_ref()?, page)),
    }
}

/// Breaks a text of one paragraph into lines of a pane, `indent` columns in, at most `most` of them.
fn paragraph(hue: Hue, foreign: &str, indent: usize, page: &Page<'_>, most: usize) -> Vec<Line> {
    let room = page.columns.saturating_sub(indent).max(8);
    // More than that is not shown, however long it is.
    let shown = text::cut(&text::line(foreign), room * (most + 1), "");
    let mut lines = text::wrapped(&shown, room);
    if lines.len() > most {
        lines.truncate(most);
        if let Some(last) = lines.last_mut() {
            *last = format!("{}{}", text::cut(last, room.saturating_sub(3), ""), page.ink.ellipsis());
        }
    }
    let blank = " ".repeat(indent);
    lines.into_iter().map(|line| Line::of(Hue::Plain, blank.as_str()).and(hue, line)).collect()
}
