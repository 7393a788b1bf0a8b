//! The control socket of a home: commands of the same user reach the owner of the home through it.

use std::{io, time::Duration};

use axum::{Extension, middleware};
use soong::Runtime;
use tokio::{sync::oneshot, task::JoinHandle};

use crate::{
    http::{
        self, Api, Caller, Gate, finish_body,
        traffic::{self, Traffic},
    },
    socket,
};

/// How long clients may take to read the last that they were sent.
const LAST_READ: Duration = Duration::from_secs(1);

/// Serves the control socket of a runtime that a program embeds.
pub trait ServeControl {
    /// Serves the routes on the control socket of the home, until the returned value is closed or dropped.
    ///
    /// Commands such as `soong tree` and `soong permissions allow` then work while the program owns the home. Only the
    /// user who owns the socket file can connect. Close it before the runtime.
    ///
    /// # Errors
    /// If the socket cannot be bound.
    fn serve_control(&self) -> io::Result<ControlSocket>;
}

impl ServeControl for Runtime {
    fn serve_control(&self) -> io::Result<ControlSocket> {
        ControlSocket::serve(Api::new(self.clone(), Gate::open()))
    }
}

/// A control socket that is being served.
pub struct ControlSocket {
    api: Api,
    traffic: Traffic,
    stop: Option<oneshot::Sender<()>>,
    done: JoinHandle<()>,
}

impl std::fmt::Debug for ControlSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlSocket").field("home", &self.api.runtime.home()).finish_non_exhaustive()
    }
}

impl ControlSocket {
    /// Binds the socket in the home of the runtime, and serves the routes on it. Callers have all rights: only the user
    /// who owns the home can connect.
    ///
    /// # Errors
    /// If the socket cannot be bound.
    pub fn serve(api: Api) -> io::Result<Self> {
        let listener = socket::bind(api.runtime.home())?;
        let (stop, stopped) = oneshot::channel::<()>();
        let traffic = Traffic::default();
        let counted = middleware::from_fn_with_state(traffic.clone(), traffic::count);
        let router = http::router(api.clone()).layer(Extension(Caller::Operator));
        let routes = router.layer(counted).layer(middleware::from_fn(finish_body));
        let serving = axum::serve(socket::Guarded(listener), routes).with_graceful_shutdown(async {
            let _ = stopped.await;
        });
        let done = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the control socket failed");
            }
        });
        Ok(Self { api, traffic, stop: Some(stop), done })
    }

    /// Waits until the clients have read their answers, at most a second, and removes the socket: the next client finds
    /// no owner.
    pub async fn drain(&self) {
        let _ = tokio::time::timeout(LAST_READ, self.traffic.quiet()).await;
        socket::remove(self.api.runtime.home());
    }

    /// Ends the connections, after at most a second.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            let _ = stop.send(());
            let _ = tokio::time::timeout(LAST_READ, &mut self.done).await;
        }
    }

    /// Accepts no further changes, lets the clients read their answers, and ends the connections.
    pub async fn close(self) {
        self.api.gate.leave();
        let _ = tokio::time::timeout(LAST_READ, self.api.gate.passed()).await;
        self.drain().await;
        self.api.watching.close();
        self.stop().await;
    }
}

impl Drop for ControlSocket {
    /// Without [`close`](Self::close): the socket is removed, and open connections end in the background.
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            socket::remove(self.api.runtime.home());
            let _ = stop.send(());
        }
    }
}
