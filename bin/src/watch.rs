//! A watch over one run: its events as they come, Ctrl-C, Ctrl-Z, and the end.
//!
//! Invariant: nothing that the run and those below it recorded up to its end is missing from what
//! is shown. Not here: what is printed about the ended run (`report.rs`).

use std::{collections::HashSet, time::Duration};

use soong::{
    StreamItem,
    protocol::{Event, EventRecord, RunId, SubAgentEvent},
};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{
    client::Client,
    exit::{Exit, Failure},
    http::{Accepted, RunView},
    interrupt::Interrupt,
    plain::Plain,
    print,
    screen::{Screen, board::Board},
    terminal::Terminal,
};

/// How often the picture is drawn.
const FRAME: Duration = Duration::from_millis(100);
/// The tree is asked for so much less often than it takes to answer.
const LOOK_SHARE: u32 = 10;

/// How progress is shown.
pub(crate) enum Progress {
    /// A picture that is redrawn in place.
    Screen { screen: Screen, board: Board, look_at: Instant },
    /// A line per notable event, on standard error.
    Plain(Plain),
    /// Every event as JSON, on standard output.
    Json,
    /// Not at all: its reader has left.
    Unread,
}

impl Progress {
    /// Chooses what fits the terminal.
    pub(crate) fn choose(json: bool, terminal: &Terminal, run: &Accepted, kind: &str, task: &str) -> Self {
        if json {
            return Self::Json;
        }
        if !terminal.can_redraw {
            return Self::Plain(Plain::default());
        }
        let foot = format!("Ctrl-C cancels   session {}", run.session_id);
        let board = Board::with_root(run.run_id.clone(), kind, task);
        Self::Screen { screen: Screen::open(*terminal, foot), board, look_at: Instant::now() }
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

    async fn draw(&mut self, client: &Client) {
        let Self::Screen { screen, board, look_at } = self else { return };
        let asked = Instant::now();
        if asked >= *look_at {
            // The picture lives on events; what the tree adds may be missing for once.
            if let Ok(tree) = client.tree().await {
                board.look(&tree);
            }
            *look_at = asked + asked.elapsed() * LOOK_SHARE;
        }
        screen.draw(board);
    }

    /// Leaves the last picture standing.
    fn finish(&mut self) {
        if let Self::Screen { screen, board, .. } = self {
            screen.foot("");
            screen.draw(board);
            print::error_line("");
        }
        *self = Self::Unread;
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
    pub(crate) run: RunView,
    /// Whether Ctrl-C ended the run.
    pub(crate) interrupted: bool,
    /// Whether the reader of the events left.
    pub(crate) unread: bool,
}

/// The watched run and everything below it: other runs of the session are none of our affair.
struct Family(HashSet<RunId>);

impl Family {
    fn has(&mut self, item: &StreamItem) -> bool {
        let record = match item {
            StreamItem::Delta(delta) => return self.0.contains(&delta.run_id),
            StreamItem::Event(record) => record,
        };
        let is_ours = record.run_id.as_ref().is_some_and(|id| self.0.contains(id));
        if let Event::SubAgent(SubAgentEvent::Started { run_id, .. }) = &record.event
            && is_ours
        {
            self.0.insert(run_id.clone());
        }
        is_ours
    }
}

/// Watches the run until it has ended and its last event was shown; `since` is the session's
/// last number before the run. A run whose watch fails is cancelled: nobody would hear of it.
pub(crate) async fn watch(
    client: &Client,
    run: &Accepted,
    since: u64,
    mut progress: Progress,
    interrupt: &Interrupt,
) -> Result<Watched, Failure> {
    let followed = follow(client, run, since, &mut progress, interrupt).await;
    progress.finish();
    let (interrupted, unread) = match followed {
        Ok(how) => how,
        Err(failure) => {
            let _ = client.cancel(&run.run_id).await;
            return Err(failure);
        }
    };
    let run = client.run(&run.run_id).await?;
    Ok(Watched { run, interrupted, unread })
}

async fn follow(
    client: &Client,
    run: &Accepted,
    since: u64,
    progress: &mut Progress,
    interrupt: &Interrupt,
) -> Result<(bool, bool), Failure> {
    let mut events = client.session_events(&run.session_id, since).await?;
    let mut family = Family(HashSet::from([run.run_id.clone()]));
    let mut frames = tokio::time::interval(FRAME);
    frames.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let (mut interrupted, mut unread) = (false, false);
    loop {
        tokio::select! {
            item = events.next() => {
                let item = item.ok_or_else(lost)??;
                if !family.has(&item) {
                    continue;
                }
                if let Err(failure) = progress.show(&item) {
                    if !failure.is_unread() {
                        return Err(failure);
                    }
                    // Nobody reads on: what was asked for only to be read ends here.
                    unread = true;
                    *progress = Progress::Unread;
                    client.cancel(&run.run_id).await?;
                }
                if matches!(&item, StreamItem::Event(record) if ends(record, run)) {
                    return Ok((interrupted, unread));
                }
            }
            () = interrupt.first(), if !interrupted => {
                interrupted = true;
                progress.cancelling();
                client.cancel(&run.run_id).await?;
            }
            _ = frames.tick() => progress.draw(client).await,
        }
    }
}

fn ends(record: &EventRecord, run: &Accepted) -> bool {
    record.event.is_terminal() && record.run_id.as_ref() == Some(&run.run_id)
}

fn lost() -> Failure {
    let what = "the process that did the run has ended; the run is recorded as far as it came";
    Failure::new(Exit::Failed, what, "Go on with it: soong run --continue \"…\"")
}
