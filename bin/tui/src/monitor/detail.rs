//! Detail view of the selected actor: the current pane, its data, and what must be read for it.
//!
//! Pure. Data is read again once its actor has changed, at most twice a second. Data that also
//! changes with other actors (children, the session's artifacts) is read less often.
//!
//! Invariants:
//! - Responses to requests from before [`Detail::clear`] are dropped.
//! - At most one read of each kind is in progress.

use std::collections::HashMap;

use soong_protocol::{
    Artifact, ErrorInfo, EventRecord, Message, RunId, SessionId, Timestamp, TraceId,
};

use super::{
    actor::{Actor, Key},
    actor_index::ActorIndex,
    keys::RowMove,
    pane::{Pane, Preview, RecordKind, Records, RunFacts},
};

/// Minimum interval between two reads of the same data, in milliseconds.
const MIN_REFRESH_MS: u64 = 500;
/// Minimum interval if only other actors have changed, for messages, and after a failure, in
/// milliseconds.
const SLOW_REFRESH_MS: u64 = 2_000;
/// Maximum number of events that are kept.
const MAX_EVENTS: usize = 2_000;

/// A read that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadRequest {
    /// Kind of the records.
    pub need: RecordKind,
    /// The selected run.
    pub run: RunId,
    /// Trace of the run.
    pub trace: TraceId,
    /// Session of the run.
    pub session: SessionId,
    /// Read events after this one; `None`: the newest events.
    pub since: Option<u64>,
    /// The artifact to preview.
    pub artifact: Option<String>,
    /// Value of [`Detail::generation`] when the read was requested.
    generation: u64,
}

/// Data that was read.
#[derive(Debug)]
pub enum ReadContent {
    /// Run and trace.
    Facts(Box<RunFacts>),
    /// Events of the trace.
    Events {
        /// The events, oldest first.
        records: Vec<EventRecord>,
        /// Whether they follow the known events; otherwise they replace them.
        follow: bool,
    },
    /// Messages of the trace, each with its mark.
    Messages(Vec<(Message, String)>),
    /// Artifacts of the session.
    Artifacts(Vec<Artifact>),
    /// Beginning of an artifact.
    Preview(Preview),
}

/// State of reading one kind of record.
#[derive(Debug, Default)]
struct LoadState {
    /// State of the actor and version of the actor index when the last read was requested.
    stamp: Option<(Stamp, u64)>,
    at: Timestamp,
    is_pending: bool,
    error: Option<String>,
}

/// Values that change when an actor changes.
type Stamp = (u64, u64, bool);

#[derive(Debug)]
pub(crate) struct Detail {
    pub(crate) pane: Pane,
    pub(crate) has_focus: bool,
    /// Whether the pane takes the place of the tree while it has the focus.
    pub(crate) is_zoomed: bool,
    subject: Option<Key>,
    pub(crate) records: Records,
    loads: HashMap<RecordKind, LoadState>,
    generation: u64,
    pub(crate) scroll: usize,
    /// Whether the view follows the end of a growing list.
    pub(crate) at_end: bool,
    /// The selected artifact, and the artifact shown as a preview.
    selected_artifact: Option<String>,
    previewed: Option<String>,
    /// Whether events and messages are shown in full.
    pub(crate) show_full: bool,
}

impl Default for Detail {
    fn default() -> Self {
        Self {
            pane: Pane::Facts,
            has_focus: false,
            is_zoomed: false,
            subject: None,
            records: Records::default(),
            loads: HashMap::new(),
            generation: 0,
            scroll: 0,
            at_end: true,
            selected_artifact: None,
            previewed: None,
            show_full: false,
        }
    }
}

impl Detail {
    /// Selects an actor; clears the data of another actor.
    pub(crate) fn set_subject(&mut self, key: Option<&Key>) {
        if self.subject.as_ref() != key {
            self.subject = key.cloned();
            self.clear();
        }
    }

    /// Drops all data and all pending reads: they may belong to another process.
    pub(crate) fn clear(&mut self) {
        self.generation += 1;
        self.records = Records {
            version: self.records.version + 1,
            ..Records::default()
        };
        self.loads = HashMap::new();
        self.scroll = 0;
        self.at_end = true;
        self.selected_artifact = None;
        self.previewed = None;
    }

    pub(crate) fn show(&mut self, pane: Pane) {
        if self.pane != pane {
            self.pane = pane;
            self.scroll = 0;
            self.at_end = true;
            self.close_preview();
        }
    }

    /// Moves to another pane: `by` is -1 for the previous, 1 for the next.
    pub(crate) fn switch_pane(&mut self, by: isize) {
        let at = Pane::ALL
            .iter()
            .position(|pane| *pane == self.pane)
            .unwrap_or(0);
        let panes = isize::try_from(Pane::ALL.len()).unwrap_or(1);
        let next = (isize::try_from(at).unwrap_or(0) + by).rem_euclid(panes);
        self.show(Pane::ALL[usize::try_from(next).unwrap_or(0)]);
    }

    /// Scrolls the pane, or moves the selection in the list of artifacts. `page` is the number of
    /// visible lines.
    pub(crate) fn step(&mut self, step: RowMove, page: usize) {
        if self.is_list() {
            let artifacts = self.records.artifacts.as_deref().unwrap_or_default();
            let at = moved(self.chosen(), step, page).min(artifacts.len().saturating_sub(1));
            self.selected_artifact = artifacts.get(at).map(Artifact::key);
            self.records.version += 1;
            return;
        }
        self.at_end = step == RowMove::Last;
        self.scroll = moved(self.scroll, step, page);
    }

    /// Returns whether the list of artifacts is shown.
    pub(crate) fn is_list(&self) -> bool {
        self.pane == Pane::Artifacts && self.previewed.is_none()
    }

    /// Returns the index of the selected artifact.
    pub(crate) fn chosen(&self) -> usize {
        let artifacts = self.records.artifacts.as_deref().unwrap_or_default();
        let is_chosen =
            |artifact: &Artifact| self.selected_artifact.as_ref() == Some(&artifact.key());
        artifacts.iter().position(is_chosen).unwrap_or(0)
    }

    /// Opens the preview of the selected artifact; toggles whether events and messages are shown in
    /// full.
    pub(crate) fn open_preview(&mut self) {
        self.show_full ^= matches!(self.pane, Pane::Events | Pane::Messages);
        let artifact = self
            .records
            .artifacts
            .as_deref()
            .unwrap_or_default()
            .get(self.chosen());
        if self.is_list()
            && let Some(artifact) = artifact
        {
            self.previewed = Some(artifact.key());
            self.loads.remove(&RecordKind::Preview);
            self.scroll = 0;
            self.at_end = false;
        }
    }

    /// Closes the preview; returns whether one was open.
    pub(crate) fn close_preview(&mut self) -> bool {
        self.records.preview = None;
        self.records.version += 1;
        self.loads.remove(&RecordKind::Preview);
        self.previewed.take().is_some()
    }

    fn need(&self) -> RecordKind {
        if self.previewed.is_some() {
            RecordKind::Preview
        } else {
            self.pane.needs()
        }
    }

    /// Returns the read that is due, if any.
    pub(crate) fn due_read(&mut self, actors: &ActorIndex, now: Timestamp) -> Option<ReadRequest> {
        let actor = actors.get(self.subject.as_ref()?)?;
        let need = self.need();
        let stamp = stamp(actor);
        let load = self.loads.entry(need).or_default();
        let passed = now.millis_since(load.at);
        let is_due = match load.stamp {
            None => true,
            _ if load.error.is_some() || need == RecordKind::Messages => {
                passed >= SLOW_REFRESH_MS
                    && (load.error.is_some() || load.stamp.is_some_and(|(was, _)| was != stamp))
            }
            Some((was, _)) if was != stamp => passed >= MIN_REFRESH_MS,
            // The actor's own state does not show changes of its children or of the session's
            // artifacts.
            Some((_, version)) => {
                matches!(need, RecordKind::Facts | RecordKind::Artifacts)
                    && version != actors.version
                    && passed >= SLOW_REFRESH_MS
            }
        };
        if load.is_pending || !is_due {
            return None;
        }
        let want = ReadRequest {
            need,
            run: actor.run_id()?,
            trace: actor.view.run.as_ref()?.trace_id.clone(),
            session: actor.session()?,
            since: self
                .records
                .events
                .as_ref()
                .and_then(|events| Some(events.last()?.event_id)),
            artifact: self.previewed.clone(),
            generation: self.generation,
        };
        load.stamp = Some((stamp, actors.version));
        load.at = now;
        load.is_pending = true;
        Some(want)
    }

    /// Stores the result of a read.
    pub(crate) fn store_read(&mut self, want: &ReadRequest, read: Result<ReadContent, ErrorInfo>) {
        if want.generation != self.generation {
            return;
        }
        let Some(load) = self.loads.get_mut(&want.need) else {
            return;
        };
        load.is_pending = false;
        load.error = read.as_ref().err().map(|error| error.message.clone());
        self.records.version += 1;
        match read {
            Ok(ReadContent::Facts(facts)) => self.records.facts = Some(facts),
            Ok(ReadContent::Messages(messages)) => self.records.messages = Some(messages),
            Ok(ReadContent::Artifacts(artifacts)) => self.records.artifacts = Some(artifacts),
            Ok(ReadContent::Preview(preview)) if want.artifact == self.previewed => {
                self.records.preview = Some(preview)
            }
            Ok(ReadContent::Preview(_)) | Err(_) => {}
            Ok(ReadContent::Events { records, follow }) => {
                let events = self.records.events.get_or_insert_default();
                if !follow {
                    events.clear();
                }
                let last = events.last().map_or(0, |event| event.event_id);
                events.extend(records.into_iter().filter(|record| record.event_id > last));
                events.drain(..events.len().saturating_sub(MAX_EVENTS));
            }
        }
    }

    /// Returns why the last read of the shown data failed.
    pub(crate) fn error(&self) -> Option<&str> {
        self.loads.get(&self.need())?.error.as_deref()
    }
}

fn stamp(actor: &Actor) -> Stamp {
    let events = actor.view.run.as_ref().map_or(0, |run| run.events);
    (actor.view.handled, events, actor.has_ended)
}

fn moved(at: usize, step: RowMove, page: usize) -> usize {
    match step {
        RowMove::Up => at.saturating_sub(1),
        RowMove::Down => at + 1,
        RowMove::PageUp => at.saturating_sub(page.max(1)),
        RowMove::PageDown => at + page.max(1),
        RowMove::First => 0,
        RowMove::Last => usize::MAX / 2,
    }
}

#[cfg(test)]
mod tests {
    use crate::sample::record;
    use soong_protocol::{
        ErrorCode, RunEvent,
        tree::{ActorView, TreeEvent},
    };

    use super::*;
    use crate::monitor::sample::{changed, run, tree};

    fn events(ids: &[u64], follow: bool) -> Result<ReadContent, ErrorInfo> {
        let event = |id: &u64| EventRecord {
            event_id: *id,
            ..record("m", 0, RunEvent::CancelRequested {})
        };
        Ok(ReadContent::Events {
            records: ids.iter().map(event).collect(),
            follow,
        })
    }

    fn handles(handled: u64) -> TreeEvent {
        changed(
            vec![ActorView {
                handled,
                ..run("m", None)
            }],
            &[],
        )
    }

    #[test]
    fn changed_records_are_reread_after_delay_one_at_a_time() {
        let at = Timestamp::from_millis;
        let mut actors = ActorIndex::default();
        actors.apply(tree(vec![run("m", None)]), at(0));
        let mut detail = Detail::default();
        assert_eq!(detail.due_read(&actors, at(0)), None, "nothing is selected");
        detail.set_subject(Some(&"run:m".into()));
        detail.show(Pane::Events);
        let want = detail.due_read(&actors, at(0)).unwrap();
        assert_eq!((want.need, want.since), (RecordKind::Events, None));
        assert_eq!(
            detail.due_read(&actors, at(9_000)),
            None,
            "it is on its way"
        );
        detail.store_read(&want, events(&[1], false));
        assert_eq!(
            detail.due_read(&actors, at(9_000)),
            None,
            "nothing has changed"
        );
        actors.apply(handles(7), at(1));
        assert_eq!(detail.due_read(&actors, at(100)), None, "not at once");
        let second_read = detail.due_read(&actors, at(9_000)).unwrap();
        assert_eq!(second_read.since, Some(1));
        detail.store_read(
            &second_read,
            Err(ErrorInfo::new(ErrorCode::Closing, "gone")),
        );
        assert_eq!(detail.error(), Some("gone"));
        assert!(
            detail.due_read(&actors, at(9_500)).is_none()
                && detail.due_read(&actors, at(12_000)).is_some()
        );
    }

    #[test]
    fn stale_answer_is_dropped_and_events_are_not_duplicated() {
        let at = Timestamp::from_millis;
        let mut actors = ActorIndex::default();
        actors.apply(tree(vec![run("m", None), run("n", None)]), at(0));
        let mut detail = Detail::default();
        detail.set_subject(Some(&"run:m".into()));
        detail.show(Pane::Events);
        let first = detail.due_read(&actors, at(0)).unwrap();
        detail.set_subject(Some(&"run:n".into()));
        detail.set_subject(Some(&"run:m".into()));
        let second = detail.due_read(&actors, at(0)).unwrap();
        detail.store_read(&first, events(&[1, 2], false));
        assert!(detail.records.events.is_none(), "it was asked for before");
        detail.store_read(&second, events(&[1, 2, 3], false));
        actors.apply(handles(9), at(1));
        let third = detail.due_read(&actors, at(9_000)).unwrap();
        detail.store_read(&third, events(&[2, 3, 4], true));
        let ids: Vec<u64> = detail
            .records
            .events
            .iter()
            .flatten()
            .map(|event| event.event_id)
            .collect();
        assert_eq!(ids, [1, 2, 3, 4]);
    }

    #[test]
    fn records_depending_on_other_runs_are_reread_after_delay() {
        let at = Timestamp::from_millis;
        let mut actors = ActorIndex::default();
        actors.apply(tree(vec![run("m", None), run("n", Some("m"))]), at(0));
        let mut detail = Detail::default();
        detail.set_subject(Some(&"run:m".into()));
        detail.show(Pane::Team);
        let want = detail.due_read(&actors, at(0)).unwrap();
        detail.store_read(&want, Err(ErrorInfo::new(ErrorCode::Closing, "gone")));
        let want = detail.due_read(&actors, at(2_000)).unwrap();
        detail.loads.get_mut(&want.need).unwrap().error = None;
        detail.loads.get_mut(&want.need).unwrap().is_pending = false;
        let child = ActorView {
            handled: 3,
            ..run("n", Some("m"))
        };
        actors.apply(changed(vec![child], &[]), at(2_100));
        assert!(
            detail.due_read(&actors, at(3_000)).is_none()
                && detail.due_read(&actors, at(4_000)).is_some()
        );
    }
}
