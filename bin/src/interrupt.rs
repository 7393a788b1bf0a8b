//! Signals: Ctrl-C, Ctrl-Z, and the end of the terminal.
//!
//! - The first Ctrl-C cancels the active run, the second exits immediately.
//! - SIGTERM and SIGHUP request the end of the process. A SIGHUP that is ignored, as below `nohup`,
//!   stays ignored.
//! - Ctrl-\\ exits immediately.
//! - Ctrl-Z stops the process as usual, after the terminal has been restored.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::FutureExt;
use rustix::process::Signal as Number;
use soong_tui::{keyboard, screen};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::watch,
};

use crate::{exit::Exit, print};

/// Maximum time between two signals that count as the same interrupt.
pub(crate) const DUPLICATE_WINDOW: Duration = Duration::from_millis(150);

/// Listener for interrupts, active from its creation.
pub(crate) struct Interrupt {
    /// Whether an interrupt arrived since the last [`Interrupt::reset`].
    interrupted: Arc<watch::Sender<bool>>,
    /// Whether the process was asked to end.
    end_requested: watch::Receiver<bool>,
}

impl Interrupt {
    /// Starts to listen.
    pub(crate) fn listen() -> Self {
        let interrupted = Arc::new(watch::Sender::new(false));
        let (end, ended) = watch::channel(false);
        let tell = Arc::clone(&interrupted);
        // Before a handler replaces the disposition.
        let ignores_hangup = ignores(Number::HUP);
        tokio::spawn(async move {
            let mut kinds = vec![
                SignalKind::interrupt(),
                SignalKind::quit(),
                SignalKind::terminate(),
            ];
            if !ignores_hangup {
                kinds.push(SignalKind::hangup());
            }
            let mut signals: Vec<(SignalKind, Signal)> = kinds
                .into_iter()
                .filter_map(|kind| Some((kind, signal(kind).ok()?)))
                .collect();
            let mut last: Option<Instant> = None;
            loop {
                let kind = any(&mut signals).await;
                // A wrapper process may forward a signal that the terminal has also sent to this
                // process: that is one Ctrl-C.
                let is_echo = last
                    .replace(Instant::now())
                    .is_some_and(|last| last.elapsed() < DUPLICATE_WINDOW);
                if kind == SignalKind::quit() || (tell.send_replace(true) && !is_echo) {
                    exit_immediately();
                }
                if kind != SignalKind::interrupt() {
                    let _ = end.send(true);
                }
            }
        });
        let numbered = |number: Number| signal(SignalKind::from_raw(number.as_raw()));
        if let (Ok(stops), Ok(resumes)) = (numbered(Number::TSTP), numbered(Number::CONT)) {
            tokio::spawn(handle_suspend(stops, resumes));
        }
        Self {
            interrupted,
            end_requested: ended,
        }
    }

    /// Waits for an interrupt. Returns immediately if one arrived since the last
    /// [`Interrupt::reset`]. The future does not borrow `self`.
    pub(crate) fn first(&self) -> impl Future<Output = ()> + use<> {
        wait(self.interrupted.subscribe())
    }

    /// Waits until the process is asked to end by a signal other than Ctrl-C.
    pub(crate) async fn wait_for_end(&self) {
        wait(self.end_requested.clone()).await;
    }

    /// Returns whether the interrupt that was received is a request to end the process, not only a
    /// Ctrl-C.
    pub(crate) async fn is_end_requested(&self) -> bool {
        // `heard` and `ended` are set one after the other for the same signal.
        tokio::time::timeout(DUPLICATE_WINDOW, self.wait_for_end())
            .await
            .is_ok()
    }

    /// Resets the interrupt when new work starts, unless the process was asked to end.
    pub(crate) fn reset(&self) {
        if !*self.end_requested.borrow() {
            self.interrupted.send_replace(false);
        }
    }
}

/// Returns whether the process was started with this signal ignored. `false` where the system does
/// not tell.
fn ignores(signal: Number) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default();
    mask >> (signal.as_raw() - 1) & 1 == 1
}

async fn wait(mut interrupts: watch::Receiver<bool>) {
    if interrupts.wait_for(|interrupts| *interrupts).await.is_err() {
        std::future::pending::<()>().await;
    }
}

fn exit_immediately() {
    screen::restore_terminal();
    print::error_line("exited immediately; recorded data is safe");
    std::process::exit(Exit::Interrupted as i32);
}

/// Stops the process at each Ctrl-Z, restoring the terminal before and setting it up again after.
async fn handle_suspend(mut stops: Signal, mut continued: Signal) {
    while stops.recv().await.is_some() {
        let prompt = keyboard::prompt_mode().await;
        screen::restore_terminal();
        // Discards an earlier SIGCONT: threads keep running for a moment after the stop signal is
        // sent.
        let _ = continued.recv().now_or_never();
        let _ = rustix::process::kill_process(rustix::process::getpid(), Number::STOP);
        continued.recv().await;
        match prompt {
            Some(prompt) => {
                keyboard::resume_prompt(&prompt);
                // Makes the editor redraw its line.
                let _ = rustix::process::kill_process(rustix::process::getpid(), Number::WINCH);
            }
            None => screen::mark_suspended(),
        }
    }
}

async fn any(signals: &mut [(SignalKind, Signal)]) -> SignalKind {
    let all = signals.iter_mut().map(|(kind, signal)| {
        Box::pin(async move {
            signal.recv().await;
            *kind
        })
    });
    futures::future::select_all(all).await.0
}
