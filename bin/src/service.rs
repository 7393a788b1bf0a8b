//! Notifications to the service manager (`sd_notify`): ready, watchdog, stopping.
//!
//! Without `NOTIFY_SOCKET` in the environment nothing is sent.

use std::{
    io,
    os::unix::net::{SocketAddr, UnixDatagram},
    time::Duration,
};

use sd_notify::NotifyState;
use soong::Runtime;
use tokio_util::task::AbortOnDropHandle;

/// Connection to the service manager. When dropped, it sends that the server is stopping.
pub(crate) struct ServiceNotifier {
    _watchdog: Option<AbortOnDropHandle<()>>,
}

impl ServiceNotifier {
    /// Sends that the server is ready, then a watchdog message twice per watchdog interval, unless
    /// the runtime has failed.
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
        Self {
            _watchdog: watchdog,
        }
    }
}

impl Drop for ServiceNotifier {
    fn drop(&mut self) {
        notify(NotifyState::Stopping);
    }
}

fn notify(state: NotifyState<'_>) {
    let notified = match abstract_address() {
        Some(address) => address.and_then(|address| send_to(&address, &state)),
        None => sd_notify::notify(&[state]),
    };
    if let Err(error) = notified {
        tracing::warn!(%error, "failed to notify the service manager");
    }
}

/// Returns the address in `NOTIFY_SOCKET` if it is in the abstract namespace, which `sd_notify`
/// takes for a path.
fn abstract_address() -> Option<io::Result<SocketAddr>> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let name = name.as_encoded_bytes().strip_prefix(b"@")?;
    #[cfg(target_os = "linux")]
    return Some(<SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name));
    #[cfg(not(target_os = "linux"))]
    return Some(Err(io::Error::new(
        io::ErrorKind::Unsupported,
        format!("abstract socket of {} bytes", name.len()),
    )));
}

fn send_to(address: &SocketAddr, state: &NotifyState<'_>) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(address)?;
    socket.send(format!("{state}\n").as_bytes()).map(|_| ())
}
