//! Ctrl-C: the first asks for the end, the second leaves at once.

use tokio::sync::watch;

use crate::{exit::Exit, print, screen};

/// Hears interrupts from when it is made.
pub(crate) struct Interrupt {
    heard: watch::Receiver<bool>,
}

impl Interrupt {
    /// Begins to listen, for SIGTERM as for Ctrl-C.
    pub(crate) fn listen() -> Self {
        let (tell, heard) = watch::channel(false);
        tokio::spawn(async move {
            let mut signals = Signals::new();
            signals.next().await;
            let _ = tell.send(true);
            signals.next().await;
            // No second thoughts: whatever still runs is found interrupted by the next owner.
            screen::restore_cursor();
            print::error_line("left at once; what was at work is recorded as far as it came");
            std::process::exit(Exit::Interrupted as i32);
        });
        Self { heard }
    }

    /// Waits for the first interrupt; returns at once if it came already.
    pub(crate) async fn first(&mut self) {
        if self.heard.wait_for(|heard| *heard).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
}

#[cfg(unix)]
impl Signals {
    fn new() -> Self {
        use tokio::signal::unix::{SignalKind, signal};
        Self { interrupt: signal(SignalKind::interrupt()).ok(), terminate: signal(SignalKind::terminate()).ok() }
    }

    async fn next(&mut self) {
        async fn one(signal: &mut Option<tokio::signal::unix::Signal>) {
            match signal {
                Some(signal) => {
                    signal.recv().await;
                }
                None => std::future::pending().await,
            }
        }
        tokio::select! {
            () = one(&mut self.interrupt) => {}
            () = one(&mut self.terminate) => {}
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> Self {
        Self
    }

    async fn next(&mut self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}
