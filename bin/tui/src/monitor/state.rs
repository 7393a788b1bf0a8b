//! State of the monitor, and its reaction to input. Pure, so that tests can play long sequences of
//! input.
//!
//! Time is an argument; reads and actions are returned as requests. Elsewhere: actions on the
//! selected actor (`state/selected_actor.rs`), executing the requests (`bin/src/monitor/feed.rs`),
//! rendering (`draw.rs`).

mod selected_actor;

use ratatui::crossterm::event::KeyEvent;
use soong_protocol::{ErrorInfo, Run, RunId, Session, SessionId, Timestamp, tree::TreeEvent};

use super::{
    actor::{Actor, Key},
    actor_index::ActorIndex,
    cells::CellWriter,
    command::Command,
    detail::{Detail, ReadContent, ReadRequest},
    dialog::{Dialog, DialogResult},
    keys::{KeyAction, Navigation, action},
    list::RowList,
    pane::Pane,
    pending_requests::PendingRequests,
    prompt::Prompt,
    record_reads::RecordReads,
};
use crate::request::UserRequest;
use crate::{styled_line::StyledLine, terminal::TextStyle};

/// How long a note is shown, in milliseconds.
const NOTE_MS: u64 = 6_000;
/// Time during which keys are ignored after the next request is shown, so that it can be read, in
/// milliseconds.
const READING_MS: i64 = 500;

/// Input of the monitor.
#[derive(Debug)]
pub enum MonitorInput {
    /// A key was pressed.
    Key(KeyEvent),
    /// Text was pasted.
    Pasted(String),
    /// The connection has changed.
    Link(Connection),
    /// Snapshot or change of the actor tree.
    Tree(TreeEvent),
    /// Data that was read for a pane.
    Read(ReadRequest, Box<Result<ReadContent, ErrorInfo>>),
    /// Record of a run that has ended.
    Record(RunId, Box<Result<Run, ErrorInfo>>),
    /// Record of a session.
    Session(SessionId, Box<Result<Session, ErrorInfo>>),
    /// Pending requests of runs: questions and permissions.
    PendingRequests(Result<Vec<UserRequest>, ErrorInfo>),
    /// Result of an action: a message or an error.
    CommandDone(Result<String, String>),
}

/// State of the connection to the owner of the home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Connection {
    /// The owner is being looked for.
    Searching,
    /// The owner responds.
    Connected {
        /// Process id of the owner.
        pid: u32,
        /// Version of the owner.
        version: String,
    },
    /// The owner does not respond, for this reason. The connection is retried.
    Lost(String),
}

/// Request of the monitor to its environment.
#[derive(Debug, PartialEq)]
pub enum MonitorRequest {
    /// Close the monitor.
    Exit,
    /// Suspend the process.
    Suspend,
    /// Redraw the whole screen.
    Redraw,
    /// Read records; the response is [`MonitorInput::Read`].
    Read(ReadRequest),
    /// Read a run that has ended; the response is [`MonitorInput::Record`].
    ReadRun(RunId),
    /// Read a session; the response is [`MonitorInput::Session`].
    ReadSession(SessionId),
    /// Read the pending requests; the response is [`MonitorInput::PendingRequests`].
    ReadAsks,
    /// Execute an action; the response is [`MonitorInput::CommandDone`].
    Execute(Command),
}

/// The run that the monitor was started with.
#[derive(Debug)]
pub(crate) struct InitialRun {
    pub(crate) run: RunId,
    is_cancelling: bool,
}

/// State of the monitor.
#[derive(Debug)]
pub struct Monitor {
    pub(crate) cells: CellWriter,
    /// Name of the watched home or server.
    pub(crate) title: String,
    pub(crate) initial_run: Option<InitialRun>,
    pub(crate) actors: ActorIndex,
    pub(crate) list: RowList,
    /// Whether a row was selected, by the user or automatically.
    has_selected: bool,
    pub(crate) detail: Detail,
    pub(crate) dialog: Dialog,
    pub(crate) connection: Connection,
    pub(crate) asks: PendingRequests,
    note: Option<(TextStyle, String, Timestamp)>,
    /// Visible rows of the tree and of the pane.
    pub(crate) visible_rows: (usize, usize),
    run_reads: RecordReads<RunId>,
    session_reads: RecordReads<SessionId>,
    /// Lines of the last drawn pane, with the key of their content.
    pub(crate) cached_lines: Option<(PaneKey, Vec<StyledLine>)>,
}

/// Cache key of a pane's lines: version of its records, pane, whether entries are shown in full,
/// and width.
pub(crate) type PaneKey = (u64, Pane, bool, u16);

impl Monitor {
    /// Creates the monitor of a home or server named `title`. `own` is the run that it was started
    /// with.
    pub fn new(title: String, own: Option<RunId>, cells: CellWriter) -> Self {
        Self {
            cells,
            title,
            initial_run: own.map(|run| InitialRun {
                run,
                is_cancelling: false,
            }),
            actors: ActorIndex::default(),
            list: RowList::default(),
            has_selected: false,
            detail: Detail::default(),
            dialog: Dialog::None,
            connection: Connection::Searching,
            asks: PendingRequests::default(),
            note: None,
            visible_rows: (10, 10),
            run_reads: RecordReads::of_runs(),
            session_reads: RecordReads::of_sessions(),
            cached_lines: None,
        }
    }

    /// Handles one input; returns the request that results from a key or a paste.
    pub fn handle(&mut self, input: MonitorInput, now: Timestamp) -> Option<MonitorRequest> {
        match input {
            MonitorInput::Key(key) => return self.key(key, now),
            MonitorInput::Pasted(text) => {
                let then = self.dialog.paste(&text);
                return self.apply_dialog_result(then, now);
            }
            MonitorInput::Link(link) => {
                if let Connection::Connected { .. } = link
                    && self.connection != link
                {
                    // It may be another process, so everything that was read is outdated.
                    self.detail.clear();
                    self.asks.reset();
                    self.run_reads.reset();
                    self.session_reads.reset();
                }
                self.connection = link;
            }
            MonitorInput::Tree(event) => self.tree(event, now),
            MonitorInput::Read(want, read) => self.detail.store_read(&want, *read),
            MonitorInput::Record(run, read) => {
                self.run_reads.store_result(&run, read.is_ok(), now);
                if let Ok(record) = *read {
                    self.actors.record(&run, record.into());
                }
            }
            MonitorInput::Session(id, read) => {
                let read = *read;
                // Before its first run, a session has no slug.
                let is_complete = read
                    .as_ref()
                    .is_ok_and(|session| session.last_run_at.is_some());
                self.session_reads.store_result(&id, is_complete, now);
                if let Ok(session) = read {
                    self.actors.store_session(&session);
                }
            }
            MonitorInput::PendingRequests(read) => {
                self.asks.store_read(read);
                if self.asks.take_arrived() && matches!(self.dialog, Dialog::None) {
                    self.note = None;
                    self.show_asks(now);
                }
            }
            MonitorInput::CommandDone(done) => {
                // The request is still pending if the answer was not delivered.
                self.asks.mark_stale();
                match done {
                    Ok(message) => self.show_note(TextStyle::Green, message, now),
                    Err(why) => self.show_note(TextStyle::Red, why, now),
                }
            }
        }
        None
    }

    /// Updates the rows of the tree. Called before drawing and before a key is handled, but not for
    /// each input: with many inputs, this would take most of the time.
    pub(crate) fn update_rows(&mut self) {
        self.list.refresh(&self.actors);
    }

    /// Returns the reads that are due.
    pub fn due_reads(&mut self, now: Timestamp) -> Vec<MonitorRequest> {
        let mut requests = Vec::new();
        self.detail.set_subject(self.list.selected());
        if !matches!(self.connection, Connection::Connected { .. }) {
            return requests;
        }
        if self.asks.start_due_read(&self.actors, now) {
            requests.push(MonitorRequest::ReadAsks);
        }
        requests.extend(
            self.detail
                .due_read(&self.actors, now)
                .map(MonitorRequest::Read),
        );
        // `unrecorded` returns the newest runs first; the user most likely looks at those.
        let ended = self.run_reads.due(self.actors.unrecorded(), now);
        requests.extend(ended.into_iter().map(MonitorRequest::ReadRun));
        let selected = self.list.selected().and_then(|key| self.actors.get(key));
        let visible = self
            .list
            .visible(self.visible_rows.0)
            .iter()
            .filter_map(|row| self.actors.get(&row.key));
        let asking = self
            .asks
            .list()
            .iter()
            .filter_map(|ask| self.actors.session(ask.session_id()));
        // A filter can match the slugs of sessions that are not on the screen.
        let filtered = self
            .actors
            .iter()
            .filter(|_| !self.list.view.filter.is_empty());
        let shown = selected
            .into_iter()
            .chain(visible)
            .chain(asking)
            .chain(filtered);
        let unknown = shown
            .filter(|actor| actor.needs_session_record())
            .filter_map(Actor::session);
        let sessions = self.session_reads.due(unknown, now);
        requests.extend(sessions.into_iter().map(MonitorRequest::ReadSession));
        requests
    }

    fn tree(&mut self, event: TreeEvent, now: Timestamp) {
        self.actors.apply(event, now);
        // Just after its start, an owner may not show its runs yet, so the selection is repeated
        // until it succeeds.
        if !self.has_selected {
            self.update_rows();
            let first = match &self.initial_run {
                Some(own) => self.actors.run(&own.run),
                None => self
                    .actors
                    .alerts()
                    .next()
                    .and_then(|(_, key)| self.actors.get(key)),
            };
            let key = first.map(|actor| actor.key.clone());
            let key = key.or_else(|| {
                self.list
                    .rows()
                    .iter()
                    .find(|row| row.key.starts_with("run:"))
                    .map(|row| row.key.clone())
            });
            if let Some(key) = key {
                self.list.select(&self.actors, &key);
                self.has_selected = true;
            }
        }
    }

    fn show_note(&mut self, style: TextStyle, message: impl Into<String>, now: Timestamp) {
        self.note = Some((style, message.into(), now));
    }

    /// Returns the note to show now.
    pub(crate) fn note(&self, now: Timestamp) -> Option<(TextStyle, &str)> {
        let (style, message, at) = self.note.as_ref()?;
        (now.millis_since(*at) < NOTE_MS).then_some((*style, message))
    }

    /// Returns how the run that the monitor was started with ended; `None` before that.
    pub(crate) fn own_has_ended(&self) -> Option<&str> {
        let actor = self.actors.run(&self.initial_run.as_ref()?.run)?;
        actor.has_ended.then(|| actor.state())
    }

    fn key(&mut self, key: KeyEvent, now: Timestamp) -> Option<MonitorRequest> {
        self.update_rows();
        if !matches!(self.dialog, Dialog::None) {
            let then = self.dialog.key(key, self.asks.list(), now);
            return self.apply_dialog_result(then, now);
        }
        let action = action(key)?;
        // The note was about an earlier key, and a pending dialog is no longer wanted.
        self.note = None;
        self.asks.cancel_awaiting();
        match action {
            KeyAction::Quit => Some(MonitorRequest::Exit),
            KeyAction::Interrupt => Some(self.interrupt(now)),
            KeyAction::Suspend => Some(MonitorRequest::Suspend),
            KeyAction::Redraw => Some(MonitorRequest::Redraw),
            KeyAction::Help => self.open(Dialog::Help(0)),
            KeyAction::Filter => {
                let typed = Prompt::with(self.list.view.filter.clone());
                self.detail.has_focus = false;
                self.open(Dialog::Filter(typed))
            }
            KeyAction::Answer => self.answer(now),
            KeyAction::Cancel => self.cancel(now),
            KeyAction::Kill => self.kill(now),
            KeyAction::Export => self.export(now),
            KeyAction::NextUrgent => self.select_next_alert(now),
            KeyAction::Navigate(navigation) => {
                self.navigate(navigation);
                None
            }
        }
    }

    fn open(&mut self, dialog: Dialog) -> Option<MonitorRequest> {
        self.dialog = dialog;
        None
    }

    fn apply_dialog_result(
        &mut self,
        then: DialogResult,
        now: Timestamp,
    ) -> Option<MonitorRequest> {
        let command = match then {
            DialogResult::StayOpen => return None,
            DialogResult::Close => {
                self.dialog = Dialog::None;
                return None;
            }
            DialogResult::SetFilter(filter) => {
                self.list.change(&self.actors, |view| view.filter = filter);
                return None;
            }
            DialogResult::ShowRequest(id) => return self.open(Dialog::ask(id, now)),
            DialogResult::ClearFilter => {
                self.dialog = Dialog::None;
                self.list.change(&self.actors, |view| view.filter.clear());
                return None;
            }
            DialogResult::Execute(command) => {
                self.dialog = Dialog::None;
                command
            }
            DialogResult::ExecuteAndShowNext(command) => {
                match &command {
                    Command::Decide { id, .. } => self.asks.answered(id.as_str()),
                    Command::Answer { id, .. } => self.asks.answered(id.as_str()),
                    _ => {}
                }
                let later = Timestamp::from_millis(now.as_millis() + READING_MS);
                let next = self.asks.list().first().map(|ask| ask.id().to_owned());
                self.dialog = next.map_or(Dialog::None, |id| Dialog::ask(id, later));
                command
            }
        };
        Some(MonitorRequest::Execute(command))
    }

    /// Moves the selection or changes the view.
    fn navigate(&mut self, navigation: Navigation) {
        self.has_selected = true;
        let actors = &self.actors;
        match navigation {
            Navigation::Move(step) if self.detail.has_focus => {
                self.detail.step(step, self.visible_rows.1)
            }
            Navigation::Move(step) => self.list.step(step, self.visible_rows.0),
            Navigation::In if self.detail.has_focus => self.detail.switch_pane(1),
            Navigation::Out if self.detail.has_focus => self.detail.switch_pane(-1),
            Navigation::In => self.list.unfold_or_descend(actors),
            Navigation::Out => self.list.fold_or_ascend(actors),
            Navigation::FoldAll => self.list.fold_all(actors),
            Navigation::Open if self.detail.has_focus => self.detail.open_preview(),
            Navigation::Open => (self.detail.has_focus, self.detail.is_zoomed) = (true, true),
            Navigation::Close if self.detail.close_preview() => {}
            Navigation::Close if self.detail.has_focus => {
                self.detail.has_focus = false;
                self.detail.is_zoomed = false;
            }
            Navigation::Close => self.list.change(actors, |view| {
                view.filter.clear();
                view.only_urgent = false;
            }),
            Navigation::Switch => {
                self.detail.has_focus = !self.detail.has_focus;
                self.detail.is_zoomed = false;
            }
            Navigation::Pane(pane) => {
                self.detail.show(pane);
                // If there is room for only one of tree and pane, the pane is shown.
                self.detail.has_focus |= self.visible_rows.1 == 0;
            }
            Navigation::NextPane => self.detail.switch_pane(1),
            Navigation::Sort => self
                .list
                .change(actors, |view| view.sort = view.sort.next()),
            Navigation::OnlyUrgent => self
                .list
                .change(actors, |view| view.only_urgent = !view.only_urgent),
            Navigation::Arrange => self.list.change(actors, |view| {
                view.group_by_supervisor = !view.group_by_supervisor
            }),
            Navigation::Ended => self
                .list
                .change(actors, |view| view.with_ended = !view.with_ended),
            Navigation::Follow if self.detail.has_focus => self.detail.at_end = !self.detail.at_end,
            Navigation::Follow => {
                self.list.follows = !self.list.follows;
                self.list.change(actors, |_| {});
            }
        }
    }

    /// Handles Ctrl-C: cancels the run that the monitor was started with. Exits if there is none,
    /// or on the second Ctrl-C.
    fn interrupt(&mut self, now: Timestamp) -> MonitorRequest {
        let has_ended = self.own_has_ended().is_some();
        match &mut self.initial_run {
            Some(own) if !own.is_cancelling && !has_ended => {
                own.is_cancelling = true;
                let run = own.run.clone();
                self.show_note(
                    TextStyle::Yellow,
                    "cancelling the run; press Ctrl-C again to exit",
                    now,
                );
                MonitorRequest::Execute(Command::Cancel(vec![run]))
            }
            _ => MonitorRequest::Exit,
        }
    }

    fn select_next_alert(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        let alarms: Vec<Key> = self.actors.alerts().map(|(_, key)| key.clone()).collect();
        let at = alarms
            .iter()
            .position(|key| Some(key) == self.list.selected());
        match alarms.get(at.map_or(0, |at| (at + 1) % alarms.len())) {
            Some(key) => self.list.select(&self.actors, key),
            None => self.show_note(
                TextStyle::Green,
                "no alerts: no actor is stuck, asking, failed or restarted",
                now,
            ),
        }
        None
    }

    fn answer(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        if self.asks.list().is_empty() {
            let message = if self.asks.await_requests(&self.actors) {
                "reading the pending requests"
            } else {
                "no pending requests"
            };
            self.show_note(TextStyle::Green, message, now);
            return None;
        }
        self.show_asks(now)
    }

    fn show_asks(&mut self, now: Timestamp) -> Option<MonitorRequest> {
        // Requests of the selected run, or of a run below it, are shown first.
        let selected = self
            .list
            .selected()
            .and_then(|key| self.actors.get(key)?.run_id());
        let family: Vec<RunId> = selected
            .map(|run| {
                self.actors
                    .tree_of(&run)
                    .iter()
                    .filter_map(|actor| actor.run_id())
                    .collect()
            })
            .unwrap_or_default();
        let asks = self.asks.list();
        let first = asks
            .iter()
            .find(|ask| family.contains(ask.run_id()))
            .or(asks.first());
        let id = first.map(|ask| ask.id().to_owned()).unwrap_or_default();
        self.open(Dialog::ask(id, now))
    }
}
