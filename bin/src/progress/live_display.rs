//! The live display of a run: the streamed text, the runs below it, and their usage.
//!
//! Elsewhere: drawing (`soong_tui::screen`).

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
    line_progress, print,
};

/// The actor tree is requested again after this many times the duration of the last request.
const TREE_INTERVAL_FACTOR: u32 = 10;

/// Maximum number of lines of streamed text passed to the screen, which decides how many it shows.
const MAX_TAIL_LINES: usize = 40;

/// Maximum width in columns of the task of a child run that asks something.
const ASKER_COLUMNS: usize = 40;

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
    pub(super) fn open(context: &Context<'_>, shown: RunDisplay, run: &Accepted, kind: &str, task: &str) -> Self {
        let board = RunTable::with_root(run.run_id.clone(), kind, task);
        let hint = match shown {
            RunDisplay::Once | RunDisplay::Monitored => {
                vec!["Ctrl-C cancels".to_owned(), format!("session {}", run.session_id)]
            }
            RunDisplay::Chat => vec!["Ctrl-C cancels".to_owned()],
        };
        Self {
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
        }
    }

    /// Replaces the hints below the runs.
    pub(super) fn set_hint(&mut self, hint: String) {
        self.hint = vec![hint];
    }

    /// Prints a note above the display.
    pub(super) fn note(&mut self, text: &str) {
        self.screen.print_above(&[StyledLine::of(TextStyle::Plain, text)]);
    }

    /// Returns the paint for prompts.
    pub(super) fn paint(&self) -> Paint {
        self.answer.terminal.stderr
    }

    /// Returns the label of a child run, or `None` if `run` is not a known child.
    pub(super) fn child_label(&self, run: &RunId) -> Option<String> {
        let entry = self.board.entry(run).filter(|entry| entry.parent.is_some())?;
        Some(format!("{}: {}", entry.agent_type, text::cut(&entry.task, ASKER_COLUMNS, "...")))
    }

    /// Suspends the display, for example for a prompt. Its last frame stays on the screen.
    pub(super) fn pause(&mut self) {
        self.screen.set_footer(Vec::new());
        // In a conversation only the text stays.
        let stays = if self.answer.prints_stream { &RunTable::default() } else { &self.board };
        self.screen.draw(stays, &[]);
        self.screen.pause();
    }

    /// Returns whether the complete answer has been printed.
    pub(super) fn has_printed_answer(&self) -> bool {
        self.answer.prints_stream && self.answer.is_complete
    }

    pub(super) fn apply(&mut self, item: &StreamItem) {
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
    pub(super) fn poll_tree(&mut self, client: &Client) {
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

    pub(super) fn draw(&mut self) {
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
    pub(super) fn finish(&mut self) {
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
