//! How a run is shown while it is at work: a live picture, plain lines, events as JSON.
//!
//! Not here: what happens to the run (`watch.rs`), how a picture is drawn (`screen.rs`).

use std::time::Duration;

use soong::{
    ActorView, StreamItem,
    protocol::{Delta, Event, EventRecord, MessageEvent, Role, RunId, ToolEvent},
};
use soong_server::http::Accepted;
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use crate::{
    client::Client,
    context::{Context, Shown},
    exit::Failure,
    line::Line,
    markdown::{Page, streamed::Streamed},
    people,
    plain::{self, Plain},
    print,
    screen::{self, Screen, board::Board},
    terminal::{Hue, Paint, Terminal},
    text,
};

/// The tree is asked for so much less often than it takes to answer.
const LOOK_SHARE: u32 = 10;

/// Most lines of streamed text that a picture is offered; how many it takes is the screen's affair.
const TAIL_LINES: usize = 40;

/// Longest task of a child that asks something, in columns.
const ASKER_COLUMNS: usize = 40;

/// How progress is shown.
pub(crate) enum Progress {
    /// A picture that is redrawn in place.
    Picture(Box<Picture>),
    /// A line per notable event, on standard error.
    Plain(Plain),
    /// Every event as JSON, on standard output.
    Json,
    /// Not at all: its reader has left.
    Unread,
}

impl Progress {
    /// Chooses what fits the terminal.
    pub(crate) fn choose(context: &Context<'_>, shown: Shown, run: &Accepted, kind: &str, task: &str) -> Self {
        if context.global.json {
            return Self::Json;
        }
        if !context.terminal.can_redraw {
            return Self::Plain(Plain::default());
        }
        let board = Board::with_root(run.run_id.clone(), kind, task);
        let hint = match shown {
            Shown::Once | Shown::Monitored => vec!["Ctrl-C cancels".to_owned(), format!("session {}", run.session_id)],
            Shown::Talk => vec!["Ctrl-C cancels".to_owned()],
        };
        Self::Picture(Box::new(Picture {
            screen: Screen::open(*context.terminal),
            board,
            look_at: Instant::now(),
            look: None,
            answer: Answer {
                root: run.run_id.clone(),
                streamed: Streamed::default(),
                flows: shown == Shown::Talk && context.terminal.has_stdout,
                is_whole: true,
                page: Page::of(context.terminal),
                terminal: *context.terminal,
            },
            hint,
        }))
    }

    /// Shows what happened. Fails if nobody reads on, or cannot.
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
            (Self::Picture(picture), item) => {
                picture.take(item);
                Ok(())
            }
            (Self::Plain(_) | Self::Unread, _) => Ok(()),
        }
    }

    /// Draws the picture as it is now, if there is one.
    pub(crate) fn draw(&mut self, client: &Client) {
        if let Self::Picture(picture) = self {
            picture.look(client);
            picture.draw();
        }
    }

    /// Says that the end was asked for.
    pub(crate) fn cancelling(&mut self) {
        let note = "cancelling; Ctrl-C again leaves at once";
        match self {
            Self::Picture(picture) => picture.hint = vec![note.to_owned()],
            _ => print::error_line(note),
        }
    }

    /// Prints a line for the person, above the picture if there is one.
    pub(crate) fn note(&mut self, text: &str) {
        match self {
            Self::Picture(picture) => picture.screen.above(&[Line::of(Hue::Plain, text)]),
            _ => print::error_line(text),
        }
    }

    /// Returns the colours of what is asked.
    pub(crate) fn paint(&self) -> Paint {
        match self {
            Self::Picture(picture) => picture.answer.terminal.stderr,
            _ => Paint { on: false },
        }
    }

    /// Returns whether the person at the terminal can be asked.
    pub(crate) fn can_ask(&self) -> bool {
        matches!(self, Self::Picture(_) | Self::Plain(_)) && people::is_somebody_there()
    }

    /// Returns what a child of the watched run is called; `None` where none is known.
    pub(crate) fn child(&self, run: &RunId) -> Option<String> {
        match self {
            Self::Picture(picture) => {
                let entry = picture.board.entry(run).filter(|entry| entry.parent.is_some())?;
                Some(format!("{}: {}", entry.kind, text::cut(&entry.task, ASKER_COLUMNS, "...")))
            }
            Self::Plain(plain) => plain.child(run).map(str::to_owned),
            Self::Json | Self::Unread => None,
        }
    }

    /// Gives the terminal up for a while: what is drawn stays.
    pub(crate) fn pause(&mut self) {
        if let Self::Picture(picture) = self {
            picture.screen.foot(Vec::new());
            // In a conversation only what was said stays.
            let stays = if picture.answer.flows { &Board::default() } else { &picture.board };
            picture.screen.draw(stays, &[]);
            picture.screen.pause();
        }
    }

    /// Goes on below what stands there.
    pub(crate) fn go_on(&mut self) {
        if matches!(self, Self::Picture(_)) {
            screen::came_back();
        }
    }

    /// Ends showing. Returns whether the answer has been shown.
    pub(crate) fn finish(self) -> bool {
        let Self::Picture(mut picture) = self else { return false };
        picture.finish();
        picture.answer.flows && picture.answer.is_whole
    }
}

/// A live picture: the text that streams in, the runs below it, and what they used.
pub(crate) struct Picture {
    screen: Screen,
    board: Board,
    /// When the tree is asked for next, and the question that is on its way.
    look_at: Instant,
    look: Option<oneshot::Receiver<(ActorView, Duration)>>,
    answer: Answer,
    /// What one can do, in parts.
    hint: Vec<String>,
}

impl Picture {
    fn take(&mut self, item: &StreamItem) {
        match item {
            StreamItem::Event(record) => {
                let finished = self.answer.finish(record);
                self.screen.above(&finished);
                if let Event::Tool(ToolEvent::McpServerFailed { error, .. }) = &record.event {
                    let warning = Line::of(Hue::Yellow, "warning: ").and(Hue::Plain, plain::without_server(error));
                    self.screen.above(&[warning]);
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

    /// Has the board take in what the tree shows: waiting reasons, goals. Nothing waits for the
    /// answer: the picture lives on events, and what the tree adds may be missing for once.
    fn look(&mut self, client: &Client) {
        match self.look.take() {
            Some(mut look) => match look.try_recv() {
                Ok((tree, took)) => {
                    self.board.look(&tree);
                    self.look_at = Instant::now() + took * LOOK_SHARE;
                }
                Err(TryRecvError::Empty) => self.look = Some(look),
                Err(TryRecvError::Closed) => {}
            },
            None if Instant::now() >= self.look_at => {
                let (tell, answer) = oneshot::channel();
                let client = client.clone();
                tokio::spawn(async move {
                    let asked = Instant::now();
                    if let Ok(tree) = client.tree().await {
                        let _ = tell.send((tree, asked.elapsed()));
                    }
                });
                self.look = Some(answer);
            }
            None => {}
        }
    }

    fn draw(&mut self) {
        self.answer.page = Page::of(&self.answer.terminal);
        if self.answer.flows {
            let settled = self.answer.streamed.settled(&self.answer.page);
            self.screen.above(&settled);
        }
        let tail = self.answer.streamed.tail(&self.answer.page, TAIL_LINES);
        let mut foot = self.board.totals(screen::now()).said();
        foot.extend(self.hint.iter().cloned());
        self.screen.foot(foot);
        self.screen.draw(&self.board, &tail);
    }

    /// Leaves the last picture standing; in a conversation, only what was said.
    fn finish(&mut self) {
        self.screen.foot(Vec::new());
        if self.answer.flows {
            self.board = Board::default();
        }
        self.screen.draw(&self.board, &[]);
        if !self.answer.flows {
            print::error_line("");
        }
    }
}

/// What the watched run itself says.
struct Answer {
    root: RunId,
    streamed: Streamed,
    /// Whether it is printed as it comes; otherwise only its end is in the picture.
    flows: bool,
    /// Whether all of it was printed.
    is_whole: bool,
    page: Page,
    terminal: Terminal,
}

impl Answer {
    /// Takes the whole message that the streamed text was a part of; returns what is still to be printed.
    fn finish(&mut self, record: &EventRecord) -> Vec<Line> {
        let Event::Message(MessageEvent::Added { role: Role::Assistant, content, .. }) = &record.event else {
            return Vec::new();
        };
        if record.run_id.as_ref() != Some(&self.root) {
            return Vec::new();
        }
        let mut streamed = std::mem::take(&mut self.streamed);
        if !self.flows {
            return Vec::new();
        }
        let mut lines = match content {
            Some(whole) => streamed.finish(whole, &self.page),
            // Too long for an event, and some of it may not have come: the record has it all.
            None => {
                self.is_whole = false;
                streamed.finish_as_is(&self.page)
            }
        };
        if content.as_ref().is_none_or(|content| !content.trim().is_empty()) {
            lines.push(Line::default());
        }
        lines
    }
}
