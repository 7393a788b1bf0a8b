//! A watch over one run: its session's events as they come, Ctrl-C, and the end.
//!
//! Invariant: nothing that the session recorded up to the end of the run is missing from what is
//! shown. Not here: what is printed about the ended run (`report.rs`).

use std::{sync::Arc, time::Duration};

use soong::{RunHandle, Runtime, StreamItem, protocol::EventRecord};

use crate::{
    exit::Failure,
    interrupt::Interrupt,
    plain::Plain,
    print,
    screen::{Screen, board::Board},
    terminal::Terminal,
};

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// How long the last events may take after the run has ended.
const DRAIN: Duration = Duration::from_secs(5);
/// How long to wait before the store is read again that could not be read.
const REREAD: Duration = Duration::from_millis(200);

/// How progress is shown.
pub(crate) enum Progress {
    /// A picture that is redrawn in place.
    Screen { screen: Screen, board: Board },
    /// A line per notable event, on standard error.
    Plain(Plain),
    /// Every event as JSON, on standard output.
    Json,
    /// Not at all: its reader has left.
    Unread,
}

impl Progress {
    /// Chooses what fits the terminal.
    pub(crate) fn choose(json: bool, terminal: &Terminal, run: &RunHandle, kind: &str, task: &str) -> Self {
        if json {
            return Self::Json;
        }
        if !terminal.can_redraw {
            return Self::Plain(Plain::default());
        }
        let foot = format!("Ctrl-C cancels   session {}", run.session_id());
        let board = Board::with_root(run.run_id().clone(), kind, task);
        Self::Screen { screen: Screen::open(*terminal, foot), board }
    }

    fn show(&mut self, item: &StreamItem) -> Result<(), Failure> {
        match (self, item) {
            (Self::Json, StreamItem::Event(record)) => print::json_line(&**record),
            (Self::Json, StreamItem::Delta(delta)) => print::json_line(&**delta),
            (Self::Plain(plain), StreamItem::Event(record)) => {
                if let Some(line) = plain.line(record) {
                    print::error_line(&line);
                }
                Ok(())
            }
            (Self::Screen { board, .. }, StreamItem::Event(record)) => {
                board.apply(record);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn draw(&mut self, runtime: Option<&Runtime>) {
        if let Self::Screen { screen, board } = self {
            if let Some(tree) = runtime.and_then(Runtime::tree) {
                board.look(&tree);
            }
            screen.draw(board);
        }
    }

    fn cancelling(&mut self) {
        let note = "cancelling; Ctrl-C again leaves at once";
        match self {
            Self::Screen { screen, .. } => screen.foot(note),
            _ => print::error_line(note),
        }
    }
}

/// How a watch ended.
pub(crate) struct Watched {
    pub(crate) outcome: Arc<soong::RunOutcome>,
    /// Whether Ctrl-C ended the run.
    pub(crate) interrupted: bool,
    /// Whether the reader of the events left.
    pub(crate) unread: bool,
}

/// Watches the run until it has ended and its last event was shown; `since` is the session's
/// last number before the run.
pub(crate) async fn watch(
    runtime: &Runtime,
    run: &RunHandle,
    since: u64,
    mut progress: Progress,
    mut interrupt: Interrupt,
) -> Result<Watched, Failure> {
    let mut events = runtime.session_events(run.session_id(), since);
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    let (mut interrupted, mut unread) = (false, false);
    let mut outcome = None;
    let wait = run.wait();
    tokio::pin!(wait);
    let drained = tokio::time::sleep(DRAIN);
    tokio::pin!(drained);
    loop {
        tokio::select! {
            item = events.next() => match item {
                Some(Ok(item)) => {
                    if let Err(failure) = progress.show(&item) {
                        if !failure.is_unread() {
                            return Err(failure);
                        }
                        // Nobody reads on: what was asked for only to be read ends here.
                        unread = true;
                        progress = Progress::Unread;
                        cancel(run);
                    }
                    if matches!(&item, StreamItem::Event(record) if ends(record, run)) {
                        break;
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "the events could not be read");
                    tokio::time::sleep(REREAD).await;
                }
                None => break,
            },
            ended = &mut wait, if outcome.is_none() => {
                outcome = Some(ended);
                drained.as_mut().reset(tokio::time::Instant::now() + DRAIN);
            }
            () = &mut drained, if outcome.is_some() => {
                print::error_line("warning: the run has ended, but its last events could not be read");
                break;
            }
            () = interrupt.first(), if !interrupted => {
                interrupted = true;
                progress.cancelling();
                cancel(run);
            }
            _ = frames.tick() => progress.draw(Some(runtime)),
        }
    }
    if let Progress::Screen { screen, .. } = &mut progress {
        screen.foot("");
    }
    progress.draw(None);
    if matches!(progress, Progress::Screen { .. }) {
        print::error_line("");
    }
    drop(progress);
    let outcome = match outcome {
        Some(ended) => ended,
        None => wait.await,
    };
    Ok(Watched { outcome: outcome?, interrupted, unread })
}

/// Asks for the end in the background: the watch goes on until the run has ended.
fn cancel(run: &RunHandle) {
    let run = run.clone();
    tokio::spawn(async move { run.cancel().await });
}

fn ends(record: &EventRecord, run: &RunHandle) -> bool {
    record.event.is_terminal() && record.run_id.as_ref() == Some(run.run_id())
}
