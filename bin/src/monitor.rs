//! The monitor: a live view of the actor tree on a terminal, with actions on it (MON-1).
//!
//! The reaction to input is computed by [`Monitor`], without I/O. This module waits for keys, input
//! and the clock, draws, and passes requests on. The screen is drawn when something has changed, at
//! most four times a second, and once a second for the displayed durations. Elsewhere: the routes
//! (`soong_server::http`), which the monitor uses like any other client.

mod feed;
#[cfg(test)]
mod panics;

use std::time::Duration;

use futures::StreamExt;
use ratatui::crossterm::event::{Event, EventStream, KeyEventKind};
use rustix::process::Signal;
use soong::protocol::{RunId, Timestamp};
use soong_tui::{
    keyboard,
    monitor::{CellWriter, Monitor, MonitorInput, MonitorRequest, draw},
    screen,
    terminal::Terminal,
    tty::{self, Tty},
};
use tokio::time::{Instant, MissedTickBehavior};

use self::feed::Feed;
pub(crate) use self::feed::TreeSource;
use crate::{
    exit::{Exit, Failure},
    interrupt::Interrupt,
};

/// Minimum interval between two pictures. A key is drawn immediately.
const MIN_FRAME_INTERVAL: Duration = Duration::from_millis(250);
/// The interval is at least this many times the duration of drawing a picture.
const FRAME_SHARE: u32 = 50;
/// Interval of checks whether the terminal is available again, and whether a second has passed.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Fails if there is no terminal to draw on.
pub(crate) fn check(terminal: &Terminal) -> Result<(), Failure> {
    if terminal.can_redraw {
        return Ok(());
    }
    let what = "the monitor needs a terminal: standard error is not a terminal, or TERM does not support drawing";
    Err(Failure::usage(
        what,
        "`soong tree` prints the tree once, also to files and pipes.",
    ))
}

/// Shows the monitor until the user exits or the process must end. `own` is the run that it was
/// started with.
pub(crate) async fn show(
    whom: TreeSource,
    title: String,
    own: Option<RunId>,
    terminal: &Terminal,
    interrupt: &Interrupt,
) -> Result<(), Failure> {
    let mut monitor = Monitor::new(title, own, CellWriter::of(terminal.stderr, terminal));
    let (mut feed, mut input) = Feed::start(whom);
    let mut display = Display::take()?;
    let mut looks = tokio::time::interval(CHECK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let requests: Vec<MonitorRequest> = tokio::select! {
            biased;
            () = interrupt.first() => return Ok(()),
            key = next(&mut display.keys) => {
                display.is_due = true;
                display.draw_at = Instant::now();
                match key {
                    Some(Ok(Event::Key(key))) if key.kind != KeyEventKind::Release => handle_input(&mut monitor, MonitorInput::Key(key)),
                    Some(Ok(Event::Paste(text))) => handle_input(&mut monitor, MonitorInput::Pasted(text)),
                    Some(Ok(_)) => Vec::new(),
                    // The terminal was closed.
                    Some(Err(_)) | None => return Ok(()),
                }
            }
            () = tokio::time::sleep_until(display.draw_at), if display.is_due && display.keys.is_some() => {
                let now = screen::now();
                display.draw(&mut monitor, now)?;
                // Rows that have become visible may require reads.
                monitor.due_reads(now)
            }
            Some(input) = input.recv() => {
                display.is_due = true;
                handle_input(&mut monitor, input)
            }
            _ = looks.tick() => {
                let now = screen::now();
                display.check(now)?;
                monitor.due_reads(now)
            }
        };
        for request in requests {
            match request {
                MonitorRequest::Exit => {
                    drop(display);
                    feed.finish().await;
                    return Ok(());
                }
                MonitorRequest::Redraw => display
                    .tty
                    .redraw()
                    .map_err(|error| drawing_failed(&error))?,
                MonitorRequest::Suspend => display.suspend(),
                request => feed.execute(request),
            }
        }
    }
}

/// The terminal that shows the monitor: its keys, and when it is drawn.
struct Display {
    /// Keys are read while this process controls the terminal.
    keys: Option<EventStream>,
    tty: Tty,
    /// Whether something has changed since the last picture.
    is_due: bool,
    /// Earliest time of the next picture.
    draw_at: Instant,
    /// Unix time of the last check, in seconds.
    second: i64,
}

impl Display {
    fn take() -> Result<Self, Failure> {
        let tty = Tty::take().map_err(|error| drawing_failed(&error))?;
        Ok(Self {
            keys: Some(EventStream::new()),
            tty,
            is_due: true,
            draw_at: Instant::now(),
            second: 0,
        })
    }

    fn draw(&mut self, monitor: &mut Monitor, now: Timestamp) -> Result<(), Failure> {
        let begun = Instant::now();
        self.tty
            .draw(|buffer| draw(monitor, buffer, now))
            .map_err(|error| drawing_failed(&error))?;
        self.is_due = false;
        self.draw_at = begun + MIN_FRAME_INTERVAL.max(begun.elapsed() * FRAME_SHARE);
        Ok(())
    }

    /// Checks whether the terminal was restored or is available again, and whether a second has
    /// passed.
    fn check(&mut self, now: Timestamp) -> Result<(), Failure> {
        if !tty::is_taken() {
            self.keys = None;
        }
        if keyboard::is_foreground() && screen::take_suspended() {
            self.tty.retake().map_err(|error| drawing_failed(&error))?;
            self.keys = Some(EventStream::new());
            self.is_due = true;
        }
        self.is_due |= std::mem::replace(&mut self.second, now.as_millis() / 1_000) != self.second;
        Ok(())
    }

    /// Suspends the process. The signal handler restores the terminal first.
    fn suspend(&mut self) {
        self.keys = None;
        let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::TSTP);
    }
}

fn drawing_failed(error: &std::io::Error) -> Failure {
    Failure::new(
        Exit::Failed,
        format!("drawing on the terminal failed: {error}"),
        "",
    )
}

fn handle_input(monitor: &mut Monitor, input: MonitorInput) -> Vec<MonitorRequest> {
    monitor.handle(input, screen::now()).into_iter().collect()
}

/// Returns the next key; waits forever while keys are not read.
async fn next(keys: &mut Option<EventStream>) -> Option<std::io::Result<Event>> {
    match keys {
        Some(keys) => keys.next().await,
        None => std::future::pending().await,
    }
}
