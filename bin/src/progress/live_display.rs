//! The live display of a run: what its tools did, the streamed text, and below them the runs and
//! their usage.
//!
//! Elsewhere: the streamed text (`streamed_answer.rs`), drawing (`soong_tui::screen`).

mod streamed_answer;

use std::time::Duration;

use soong::{
    ActorView, StreamItem,
    protocol::{
        Delta, Event, PermissionEvent, PermissionMode, RunId, Timestamp, ToolEvent,
        api::{Accepted, operation::ReadTree},
    },
};
use soong_client::Client;
use soong_tui::{
    keyboard::KeyReader,
    markdown::{PageFormat, streamed::Streamed},
    screen::{self, Screen, run_table::RunTable},
    styled_line::StyledLine,
    terminal::{Paint, TextStyle},
    text,
    transcript::{Step, Transcript},
    typed_messages::{KeyRequest, SharedMessages},
};
use tokio::{
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use self::streamed_answer::{Reasoning, StreamedAnswer};
use crate::{
    context::{Context, RunDisplay},
    event_sentences, print,
};

/// The actor tree is requested again after this many times the duration of the last request.
const TREE_INTERVAL_FACTOR: u32 = 10;

/// Time after which the actor tree is requested again if a request has failed.
const TREE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of lines of streamed text passed to the screen, which decides how many it shows.
const MAX_TAIL_LINES: usize = 40;

/// Time without a key after which the user is not typing.
const TYPING_PAUSE: Duration = Duration::from_secs(1);

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
    transcript: Transcript,
    reasoning: Reasoning,
    /// The last step of the transcript of which not all rows were shown.
    folded_step: Option<Step>,
    /// Whether steps of the transcript were printed last. A blank line separates them from text.
    is_after_steps: bool,
    /// Hints on keys and the session, in parts.
    hint: Vec<String>,
    /// Present in a chat, where the user can type the next messages.
    typing: Option<Typing>,
}

/// Input of the user while the run is active.
struct Typing {
    /// Absent while a prompt reads the keys.
    reader: Option<KeyReader>,
    messages: SharedMessages,
    /// Permission mode of the run.
    mode: PermissionMode,
    /// Time of the last key.
    last_key: Option<Instant>,
}

impl LiveDisplay {
    pub(super) fn open(
        context: &Context<'_>,
        shown: RunDisplay,
        run: &Accepted,
        kind: &str,
        task: &str,
    ) -> Self {
        let board = RunTable::with_root(run.run_id.clone(), kind, task);
        let hint = match shown {
            RunDisplay::Once | RunDisplay::Quiet | RunDisplay::Monitored => {
                vec![
                    "Ctrl-C cancels".to_owned(),
                    format!("session {}", run.session_id),
                ]
            }
            RunDisplay::Chat { .. } if context.terminal.has_stdout => {
                vec![
                    "Esc or Ctrl-C cancels".to_owned(),
                    "type to queue a message".to_owned(),
                ]
            }
            RunDisplay::Chat { .. } => vec!["Ctrl-C cancels".to_owned()],
        };
        let typing = match shown {
            RunDisplay::Chat {
                mode,
                typed: messages,
            } if context.terminal.has_stdout => Some(Typing {
                reader: KeyReader::start(),
                messages,
                mode,
                last_key: None,
            }),
            _ => None,
        };
        Self {
            screen: Screen::open(*context.terminal),
            board,
            next_tree_request: Instant::now(),
            tree_request: None,
            answer: StreamedAnswer {
                root: run.run_id.clone(),
                streamed: Streamed::default(),
                unprinted: None,
                prints_stream: typing.is_some(),
                is_complete: true,
                page: PageFormat::of(context.terminal),
                terminal: *context.terminal,
            },
            transcript: Transcript::new(run.run_id.clone()),
            reasoning: Reasoning::default(),
            folded_step: None,
            is_after_steps: false,
            hint,
            typing,
        }
    }

    /// Replaces the hints below the runs.
    pub(super) fn set_hint(&mut self, hint: String) {
        self.hint = vec![hint];
    }

    /// Prints a note above the display.
    pub(super) fn note(&mut self, text: &str) {
        self.screen
            .print_above(&[StyledLine::of(TextStyle::Plain, text)]);
    }

    /// Returns the paint for prompts.
    pub(super) fn paint(&self) -> Paint {
        self.answer.terminal.stderr
    }

    /// Returns the label of a child run, or `None` if `run` is not a known child.
    pub(super) fn child_label(&self, run: &RunId) -> Option<String> {
        let entry = self
            .board
            .entry(run)
            .filter(|entry| entry.parent.is_some())?;
        Some(format!(
            "{}: {}",
            entry.agent_type,
            text::cut(&entry.task, ASKER_COLUMNS, "...")
        ))
    }

    /// Returns whether keys are read.
    pub(super) fn reads_keys(&self) -> bool {
        self.typing
            .as_ref()
            .is_some_and(|typing| typing.reader.is_some())
    }

    /// Reads the keys since the last call. Returns what they request besides a change of the typed
    /// messages.
    pub(super) fn read_keys(&mut self) -> Vec<KeyRequest> {
        let Some(Typing {
            reader: Some(reader),
            messages,
            last_key,
            ..
        }) = &mut self.typing
        else {
            return Vec::new();
        };
        let keys = reader.keys();
        if keys.is_empty() {
            return Vec::new();
        }
        *last_key = Some(Instant::now());
        let mut messages = messages.lock();
        let requests = keys.iter().filter_map(|key| messages.apply(key)).collect();
        drop(messages);
        self.draw();
        requests
    }

    /// Returns whether the user has pressed a key a moment ago.
    pub(super) fn is_typing(&self) -> bool {
        let last_key = self.typing.as_ref().and_then(|typing| typing.last_key);
        last_key.is_some_and(|at| at.elapsed() < TYPING_PAUSE)
    }

    /// Shows this permission mode.
    pub(super) fn set_permission_mode(&mut self, mode: PermissionMode) {
        if let Some(typing) = &mut self.typing {
            typing.mode = mode;
        }
    }

    /// Returns the permission mode of the run, if the user can change it here.
    pub(super) fn permission_mode(&self) -> Option<PermissionMode> {
        self.typing.as_ref().map(|typing| typing.mode)
    }

    /// Reads keys again after a pause.
    pub(super) fn resume(&mut self) {
        if let Some(typing) = &mut self.typing {
            typing.reader = KeyReader::start();
        }
    }

    /// Records that a prompt has shown the change that a call makes.
    pub(crate) fn mark_change_seen(&mut self, tool_call_id: &str) {
        self.transcript.mark_change_seen(tool_call_id);
    }

    /// Suspends the display, for example for a prompt. Its last frame stays on the screen.
    pub(super) fn pause(&mut self) {
        if let Some(typing) = &mut self.typing {
            typing.reader = None;
        }
        self.screen.set_typed(Vec::new());
        self.screen.set_footer(Vec::new());
        // The runs stay if there are sub-agents. In a conversation only the text does.
        let has_children = self.board.entries.len() > 1;
        let stays = if self.answer.prints_stream || !has_children {
            &RunTable::default()
        } else {
            &self.board
        };
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
                if self.answer.ends_call(record) {
                    self.end_reasoning(record.ts);
                }
                let text = self.answer.finish(record);
                self.print_text(text);
                let steps = self.transcript.apply(record);
                self.print_steps(&steps);
                if let Event::Tool(ToolEvent::McpServerFailed { error, .. }) = &record.event {
                    let warning = StyledLine::of(TextStyle::Yellow, "warning: ")
                        .and(TextStyle::Plain, event_sentences::mcp_warning(error));
                    self.screen.print_above(&[warning]);
                }
                if let Event::Context(event) = &record.event
                    && record.run_id.as_ref() == Some(&self.answer.root)
                    && let Some(sentence) = event_sentences::context(event)
                {
                    self.screen
                        .print_above(&[StyledLine::of(TextStyle::Dim, &sentence)]);
                }
                if let (Event::Permission(PermissionEvent::ModeChanged { mode }), Some(typing)) =
                    (&record.event, &mut self.typing)
                    && record.run_id.as_ref() == Some(&self.answer.root)
                {
                    typing.mode = *mode;
                }
                self.board.apply(record);
            }
            StreamItem::Delta(delta) if delta.run_id == self.answer.root => match &delta.delta {
                Delta::Text { text } => {
                    self.end_reasoning(delta.ts);
                    self.answer.streamed.push(text);
                }
                Delta::Reasoning { text } => self.reasoning.push(text, delta.ts),
                Delta::ToolProgress { .. } => {}
            },
            StreamItem::Delta(_) | StreamItem::Lost(_) => {}
        }
    }

    fn print_text(&mut self, mut lines: Vec<StyledLine>) {
        if lines.is_empty() {
            return;
        }
        if std::mem::take(&mut self.is_after_steps) {
            lines.insert(0, StyledLine::default());
        }
        self.screen.print_above(&lines);
    }

    fn print_steps(&mut self, steps: &[Step]) {
        let PageFormat { width, unicode } = PageFormat::of(&self.answer.terminal);
        let lines: Vec<StyledLine> = steps
            .iter()
            .flat_map(|step| step.lines(width, unicode))
            .collect();
        if let Some(folded) = steps.iter().rfind(|step| step.is_folded()) {
            self.folded_step = Some(folded.clone());
        }
        self.is_after_steps |= !lines.is_empty();
        self.screen.print_above(&lines);
    }

    /// Prints the last step that was shown in part completely.
    pub(super) fn unfold(&mut self) {
        let PageFormat { width, unicode } = PageFormat::of(&self.answer.terminal);
        if let Some(step) = self.folded_step.take() {
            self.screen.print_above(&step.all_lines(width, unicode));
            self.is_after_steps = true;
        }
    }

    /// Returns the last step that was shown in part.
    pub(super) fn take_folded_step(&mut self) -> Option<Step> {
        self.folded_step.take()
    }

    /// Replaces the reasoning that is shown by a line with its duration.
    fn end_reasoning(&mut self, at: Timestamp) {
        if let Some(line) = self.reasoning.end(at) {
            self.is_after_steps = true;
            self.screen.print_above(&[line]);
        }
    }

    /// Requests the actor tree and applies its answer to the board (waiting reasons, goals). Does
    /// not block: the display is driven by events, and a missing tree only delays details.
    pub(super) fn poll_tree(&mut self, client: &Client) {
        match self.tree_request.take() {
            Some(mut request) => match request.try_recv() {
                Ok((tree, took)) => {
                    self.board.apply_tree(&tree);
                    self.next_tree_request = Instant::now() + took * TREE_INTERVAL_FACTOR;
                }
                Err(TryRecvError::Empty) => self.tree_request = Some(request),
                // The request has failed.
                Err(TryRecvError::Closed) => {
                    self.next_tree_request = Instant::now() + TREE_RETRY_INTERVAL
                }
            },
            None if Instant::now() >= self.next_tree_request => {
                let (sender, receiver) = oneshot::channel();
                let client = client.clone();
                tokio::spawn(async move {
                    let start = Instant::now();
                    if let Ok(tree) = client.call(ReadTree {}).await {
                        let _ = sender.send((tree, start.elapsed()));
                    }
                });
                self.tree_request = Some(receiver);
            }
            None => {}
        }
    }

    pub(super) fn draw(&mut self) {
        self.answer.page = PageFormat::of(&self.answer.terminal);
        if self.answer.prints_stream {
            let settled = self.answer.streamed.settled(&self.answer.page);
            self.print_text(settled);
        }
        let tail = match self.reasoning.tail(&self.answer.page) {
            tail if tail.is_empty() => self.answer.streamed.tail(&self.answer.page, MAX_TAIL_LINES),
            tail => tail,
        };
        let mut foot = self.board.totals(screen::now()).summary_parts();
        foot.extend(
            self.permission_mode()
                .map(|mode| format!("permissions {}", mode.as_str())),
        );
        foot.extend(self.hint.iter().cloned());
        self.screen.set_footer(foot);
        if let Some(typing) = &self.typing {
            let PageFormat { width, unicode } = self.answer.page;
            self.screen
                .set_typed(typing.messages.lock().lines(width, unicode));
        }
        self.screen.draw(&self.board, &tail);
    }

    /// Leaves the last frame on the screen; in a conversation, only the text.
    pub(super) fn finish(&mut self) {
        self.read_keys();
        if let Some(typing) = &mut self.typing {
            typing.reader = None;
        }
        self.screen.set_typed(Vec::new());
        let steps = self.transcript.flush();
        self.print_steps(&steps);
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
