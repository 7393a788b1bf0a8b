//! What a service manager is told of the server (`sd_notify`): that it is ready, that it works, that it is about to end.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is told.

use std::time::Duration;

use sd_notify::NotifyState;
use soong::Runtime;
use tokio_util::task::AbortOnDropHandle;

/// A service manager that knows of a server; dropped, it is told that the server is about to end.
pub(crate) struct Notified {
    _watchdog: Option<AbortOnDropHandle<()>>,
}

impl Notified {
    /// Says that the server is ready; and twice in each watchdog interval that it works, for as long as its runtime does.
    pub(crate) fn ready(runtime: &Runtime) -> Self {
        tell(NotifyState::Ready);
        let watchdog = sd_notify::watchdog_enabled().map(|interval| {
            let runtime = runtime.clone();
            AbortOnDropHandle::new(tokio::spawn(async move {
                let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
                loop {
                    ticks.tick().await;
                    if runtime.failure().is_none() {
                        tell(NotifyState::Watchdog);
                    }
                }
            }))
        });
        Self { _watchdog: watchdog }
    }
}

impl Drop for Notified {
    fn drop(&mut self) {
        tell(NotifyState::Stopping);
    }
}

fn tell(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "the service manager could not be told");
    }
}
