//! Shows the progress of a run: a live display, plain lines, or events as JSON.
//!
//! Elsewhere: following the run (`watch.rs`), drawing the display (`soong_tui::screen`).

use std::time::Duration;

use soong::{
    ActorView, StreamItem,
    protocol::{Delta, Event, EventRecord, MessageEvent, ModelEvent, Role, RunId, ToolEvent, api::Accepted},
};
use soong_client::Client;
use soong_tui::{
    markdown::{PageFormat, streamed::Streamed},
    screen::{self, Screen, run_table::RunTable},
    styled_line::StyledLine,
    terminal::{Paint, Terminal, TextStyle},
    text,
};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use crate::{
    context::{Context, RunDisplay},
    exit::Failure,
    line_progress::{self, LineProgress},
    print, prompts,
};

/// The actor tree is requested again after this many times the duration of the last request.
const TREE_INTERVAL_FACTOR: u32 = 10;

/// Maximum number of lines of streamed text passed to the screen, which decides how many it shows.
const MAX_TAIL_LINES: usize = 40;

/// Maximum width in columns of the task of a child run that asks something.
const ASKER_COLUMNS: usize = 40;

/// Progress display.
pub(crate) enum Progress {
    /// Live display that is redrawn in place.
    Live(Box<LiveDisplay>),
    /// One line per notable event, on standard error.
    Plain(LineProgress),
    /// Every event as JSON, on standard output.
    Json,
    /// No display: the reader of the output is gone.
    Closed,
}

impl Progress {
    /// Chooses the display for the terminal and options.
    pub(crate) fn choose(context: &Context<'_>, shown: RunDisplay, run: &Accepted, kind: &str, task: &str) -> Self {
        if context.global.json {
            return Self::Json;
        }
        if !context.terminal.can_redraw {
            return Self::Plain(LineProgress::default());
        }
        let board = RunTable::with_root(run.run_id.clone(), kind, task);
        let hint = match shown {
            RunDisplay::Once | RunDisplay::Monitored => {
                vec!["Ctrl-C cancels".to_owned(), format!("session {}", run.session_id)]
            }
            RunDisplay::Chat => vec!["Ctrl-C cancels".to_owned()],
        };
        Self::Live(Box::new(LiveDisplay {
            screen: Screen::open(*context.terminal),
            board,
            next_tree_request: Instant::now(),
            tree_request: None,
            answer: StreamedAnswer {
                root: run.run_id.clone(),
                streamed: Streamed::default(),
                prints_stream: shown == RunDisplay::Chat && context.terminal.has_stdout,
                is_complete: true,
                page: PageFormat::of(context.terminal),
                terminal: *context.terminal,
            },
            hint,
        }))
    }

    /// Shows one item of the stream. Fails if the output cannot be written.
    pub(crate) fn show(&mut self, item: &StreamItem) -> Result<(), Failure> {
        match (self, item) {
            (Self::Json, StreamItem::Event(record)) => print::json_line(&**record),
            (Self::Json, StreamItem::Delta(delta)) => print::json_line(&**delta),
            (Self::Json, StreamItem::Lost(lost)) => print::json_line(&**lost),
            (Self::Plain(plain), StreamItem::Event(record)) => {
                if let Some(line) = plain.line(record) {
                    print::error_line(&line);
                }
                Ok(())
            }
            (Self::Live(picture), item) => {
                picture.apply(item);
                Ok(())
            }
            (Self::Plain(_) | Self::Closed, _) => Ok(()),
        }
    }

    /// Redraws the live display, if there is one.
    pub(crate) fn draw(&mut self, client: &Client) {
        if let Self::Live(picture) = self {
            picture.poll_tree(client);
            picture.draw();
        }
    }

    /// Shows that the run is being cancelled.
    pub(crate) fn cancelling(&mut self) {
        let note = "cancelling; press Ctrl-C again to exit immediately";
        match self {
            Self::Live(picture) => picture.hint = vec![note.to_owned()],
            _ => print::error_line(note),
        }
    }

    /// Prints a note for the user, above the live display if there is one.
    pub(crate) fn note(&mut self, text: &str) {
        match self {
            Self::Live(picture) => picture.screen.print_above(&[StyledLine::of(TextStyle::Plain, text)]),
            _ => print::error_line(text),
        }
    }

    /// Returns the paint for prompts.
    pub(crate) fn paint(&self) -> Paint {
        match self {
            Self::Live(picture) => picture.answer.terminal.stderr,
            _ => Paint { on: false },
        }
    }

    /// Returns whether the user at the terminal can be prompted.
    pub(crate) fn can_ask(&self) -> bool {
        matches!(self, Self::Live(_) | Self::Plain(_)) && prompts::is_interactive()
    }

    /// Returns the label of a child run, or `None` if `run` is not a known child.
    pub(crate) fn child_label(&self, run: &RunId) -> Option<String> {
        match self {
            Self::Live(picture) => {
                let entry = picture.board.entry(run).filter(|entry| entry.parent.is_some())?;
                Some(format!("{}: {}", entry.agent_type, text::cut(&entry.task, ASKER_COLUMNS, "...")))
            }
            Self::Plain(plain) => plain.child(run).map(str::to_owned),
            Self::Json | Self::Closed => None,
        }
    }

    /// Suspends the live display, for example for a prompt. Its last frame stays on the screen.
    pub(crate) fn pause(&mut self) {
        if let Self::Live(picture) = self {
            picture.screen.set_footer(Vec::new());
            // In a conversation only the text stays.
            let stays = if picture.answer.prints_stream { &RunTable::default() } else { &picture.board };
            picture.screen.draw(stays, &[]);
            picture.screen.pause();
        }
    }

    /// Resumes the display below the current screen content.
    pub(crate) fn resume(&mut self) {
        if matches!(self, Self::Live(_)) {
            screen::mark_suspended();
        }
    }

    /// Ends the display. Returns whether the complete answer has been printed.
    pub(crate) fn finish(self) -> bool {
        let Self::Live(mut picture) = self else { return false };
        picture.finish();
        picture.answer.prints_stream && picture.answer.is_complete
    }
}

/// Live display: the streamed text, the runs below it, and their usage.
pub(crate) struct LiveDisplay {
    screen: Screen,
    board: RunTable,
    /// Time of the next request for the actor tree.
    next_tree_request: Instant,
    tree_request: Option<oneshot::Receiver<(ActorView, Duration)>>,
    answer: StreamedAnswer,
    /// Hints on keys and the session, in parts.
    hint: Vec<String>,
}

impl LiveDisplay {
    fn apply(&mut self, item: &StreamItem) {
        match item {
            StreamItem::Event(record) => {
                let finished = self.answer.finish(record);
                self.screen.print_above(&finished);
                if let Event::Tool(ToolEvent::McpServerFailed { error, .. }) = &record.event {
                    let warning = StyledLine::of(TextStyle::Yellow, "warning: ")
                        .and(TextStyle::Plain, line_progress::mcp_warning(error));
                    self.screen.print_above(&[warning]);
                }
                self.board.apply(record);
            }
            StreamItem::Delta(delta) if delta.run_id == self.answer.root => {
                if let Delta::Text { text } = &delta.delta {
                    self.answer.streamed.push(text);
                }
            }
            StreamItem::Delta(_) | StreamItem::Lost(_) => {}
        }
    }

    /// Requests the actor tree and applies its answer to the board (waiting reasons, goals). Does not block: the
    /// display is driven by events, and a missing tree only delays details.
    fn poll_tree(&mut self, client: &Client) {
        match self.tree_request.take() {
            Some(mut look) => match look.try_recv() {
                Ok((tree, took)) => {
                    self.board.apply_tree(&tree);
                    self.next_tree_request = Instant::now() + took * TREE_INTERVAL_FACTOR;
                }
                Err(TryRecvError::Empty) => self.tree_request = Some(look),
                Err(TryRecvError::Closed) => {}
            },
            None if Instant::now() >= self.next_tree_request => {
                let (tell, answer) = oneshot::channel();
                let client = client.clone();
                tokio::spawn(async move {
                    let asked = Instant::now();
                    if let Ok(tree) = client.tree().await {
                        let _ = tell.send((tree, asked.elapsed()));
                    }
                });
                self.tree_request = Some(answer);
            }
            None => {}
        }
    }

    fn draw(&mut self) {
        self.answer.page = PageFormat::of(&self.answer.terminal);
        if self.answer.prints_stream {
            let settled = self.answer.streamed.settled(&self.answer.page);
            self.screen.print_above(&settled);
        }
        let tail = self.answer.streamed.tail(&self.answer.page, MAX_TAIL_LINES);
        let mut foot = self.board.totals(screen::now()).summary_parts();
        foot.extend(self.hint.iter().cloned());
        self.screen.set_footer(foot);
        self.screen.draw(&self.board, &tail);
    }

    /// Leaves the last frame on the screen; in a conversation, only the text.
    fn finish(&mut self) {
        self.screen.set_footer(Vec::new());
        if self.answer.prints_stream {
            self.board = RunTable::default();
        }
        self.screen.draw(&self.board, &[]);
        if !self.answer.prints_stream {
            print::error_line("");
        }
    }
}

/// Streamed answer of the watched run.
struct StreamedAnswer {
    root: RunId,
    streamed: Streamed,
    /// Whether the text is printed as it arrives. Otherwise only its tail is part of the display.
    prints_stream: bool,
    /// Whether the complete answer was printed.
    is_complete: bool,
    page: PageFormat,
    terminal: Terminal,
}

impl StreamedAnswer {
    /// Replaces the streamed text by the complete message, or drops that of a failed call. Returns the lines that remain to
    /// be printed.
    fn finish(&mut self, record: &EventRecord) -> Vec<StyledLine> {
        if let Event::Model(ModelEvent::Retrying { .. } | ModelEvent::Fallback { .. }) = &record.event {
            return self.discard(record);
        }
        let Event::Message(MessageEvent::Added { role: Role::Assistant, content, .. }) = &record.event else {
            return Vec::new();
        };
        if record.run_id.as_ref() != Some(&self.root) {
            return Vec::new();
        }
        let mut streamed = std::mem::take(&mut self.streamed);
        if !self.prints_stream {
            return Vec::new();
        }
        let mut lines = match content {
            Some(whole) => streamed.finish(whole, &self.page),
            // The message is too long for an event, and deltas may have been lost: the full text is only in the
            // record.
            None => {
                self.is_complete = false;
                streamed.finish_unchecked(&self.page)
            }
        };
        if content.as_ref().is_none_or(|content| !content.trim().is_empty()) {
            lines.push(StyledLine::default());
        }
        lines
    }

    /// Drops the streamed text of a failed call of the watched run. Returns the lines that remain to be printed.
    fn discard(&mut self, record: &EventRecord) -> Vec<StyledLine> {
        if record.run_id.as_ref() != Some(&self.root) || !std::mem::take(&mut self.streamed).has_settled() {
            return Vec::new();
        }
        let note = "The text above is discarded: its model call failed.";
        vec![StyledLine::default(), StyledLine::of(TextStyle::Dim, note), StyledLine::default()]
    }
}
