//! Notifications to the service manager (`sd_notify`): ready, watchdog, stopping.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::time::Duration;

use sd_notify::NotifyState;
use soong::Runtime;
use tokio_util::task::AbortOnDropHandle;

/// Connection to the service manager. When dropped, it sends that the server is stopping.
pub(crate) struct ServiceNotifier {
    _watchdog: Option<AbortOnDropHandle<()>>,
}

impl ServiceNotifier {
    /// Sends that the server is ready, then a watchdog message twice per watchdog interval, unless the runtime has
    /// failed.
    pub(crate) fn ready(runtime: &Runtime) -> Self {
        notify(NotifyState::Ready);
        let watchdog = sd_notify::watchdog_enabled().map(|interval| {
            let runtime = runtime.clone();
            AbortOnDropHandle::new(tokio::spawn(async move {
                let mut ticks = tokio::time::interval((interval / 2).max(Duration::from_millis(1)));
                loop {
                    ticks.tick().await;
                    if runtime.info().failure().is_none() {
                        notify(NotifyState::Watchdog);
                    }
                }
            }))
        });
        Self { _watchdog: watchdog }
    }
}

impl Drop for ServiceNotifier {
    fn drop(&mut self) {
        notify(NotifyState::Stopping);
    }
}

fn notify(state: NotifyState<'_>) {
    if let Err(error) = sd_notify::notify(&[state]) {
        tracing::warn!(%error, "failed to notify the service manager");
    }
}
