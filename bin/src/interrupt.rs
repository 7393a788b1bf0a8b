//! Ctrl-C, Ctrl-Z, and the end of the terminal.
//!
//! Ctrl-C: the first asks for the end of what is at work, the second leaves at once. SIGTERM and
//! SIGHUP are as Ctrl-C. Ctrl-Z stops the process as always, after the screen was put in order.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    sync::Notify,
};

use crate::{exit::Exit, print, screen};

/// Hears interrupts from when it is made.
pub(crate) struct Interrupt {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    /// Whether one came since what is at work began.
    heard: AtomicBool,
    news: Notify,
}

impl Interrupt {
    /// Begins to listen.
    pub(crate) fn listen() -> Self {
        let shared = Arc::new(Shared::default());
        let telling = Arc::clone(&shared);
        let mut ends: Vec<Signal> = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()]
            .into_iter()
            .filter_map(|kind| signal(kind).ok())
            .collect();
        tokio::spawn(async move {
            loop {
                any(&mut ends).await;
                if telling.heard.swap(true, Ordering::AcqRel) {
                    // No second thoughts: whatever still runs is found interrupted by the next owner.
                    screen::give_back();
                    print::error_line("left at once; what was at work is recorded as far as it came");
                    std::process::exit(Exit::Interrupted as i32);
                }
                telling.news.notify_waiters();
            }
        });
        if let Ok(stops) = signal(SignalKind::from_raw(rustix::process::Signal::TSTP.as_raw())) {
            tokio::spawn(stop_and_come_back(stops));
        }
        Self { shared }
    }

    /// Waits for an interrupt; returns at once if one came since the last [`Interrupt::calm`].
    pub(crate) async fn first(&self) {
        loop {
            let news = self.shared.news.notified();
            if self.shared.heard.load(Ordering::Acquire) {
                return;
            }
            news.await;
        }
    }

    /// Forgets what came: something else is at work now.
    pub(crate) fn calm(&self) {
        self.shared.heard.store(false, Ordering::Release);
    }
}

/// Stops the process at each Ctrl-Z, with the screen in order before and after.
async fn stop_and_come_back(mut stops: Signal) {
    while stops.recv().await.is_some() {
        screen::give_back();
        let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::STOP);
        screen::came_back();
    }
}

async fn any(signals: &mut [Signal]) {
    let all = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
    futures::future::select_all(all).await;
}
