//! The control socket of a home: commands of the same user reach the owner of the home through it.

use std::{io, time::Duration};

use axum::{Extension, Router, middleware};
use soong::Runtime;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
};

use crate::{
    http::{
        self, Api, Caller, ShutdownGate, TokenWatch, finish_body,
        traffic::{self, Traffic},
    },
    socket::{self, SocketFile},
};

/// Time limit of each wait when the socket is closed.
const CLOSE_STEP_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves the control socket of a runtime that is embedded in a program.
pub trait ServeControl {
    /// Serves the routes on the control socket of the home, until the returned value is closed or
    /// dropped.
    ///
    /// Commands such as `soong tree` and `soong permissions allow` then work while the program owns
    /// the home. Only the user that owns the socket file can connect. Close the socket before the
    /// runtime.
    ///
    /// # Errors
    /// The socket cannot be bound, or the runtime is closing.
    fn serve_control(&self) -> io::Result<ControlSocket>;
}

impl ServeControl for Runtime {
    fn serve_control(&self) -> io::Result<ControlSocket> {
        if self.info().is_closing() {
            return Err(io::Error::other("the runtime is closing or closed"));
        }
        let api = Api::new(self.clone(), ShutdownGate::open());
        let router = http::router(api.clone()).layer(Extension(Caller::Operator));
        ControlSocket::serve(api, router)
    }
}

/// A control socket that is being served.
pub struct ControlSocket {
    api: Api,
    file: SocketFile,
    traffic: Traffic,
    /// Whether streams and WebSockets stay open.
    streams_open: watch::Sender<bool>,
    stop: Option<oneshot::Sender<()>>,
    done: JoinHandle<()>,
}

impl std::fmt::Debug for ControlSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlSocket")
            .field("home", &self.api.runtime.info().home())
            .finish_non_exhaustive()
    }
}

impl ControlSocket {
    /// Binds the socket in the home of the runtime and serves a router on it: the routes of `api`
    /// for the caller [`Caller::Operator`], since only the user that owns the home can connect.
    ///
    /// # Errors
    /// The socket cannot be bound.
    pub fn serve(api: Api, router: Router) -> io::Result<Self> {
        let (listener, file) = socket::bind(api.runtime.info().home())?;
        let streams = watch::Sender::new(true);
        let (stop, stopped) = oneshot::channel::<()>();
        let traffic = Traffic::default();
        let counted = middleware::from_fn_with_state(traffic.clone(), traffic::count);
        let token_watch = Extension(TokenWatch(Some(streams.subscribe())));
        let routes = router
            .layer(token_watch)
            .layer(counted)
            .layer(middleware::from_fn(finish_body));
        let serving = axum::serve(socket::GuardedListener(listener), routes)
            .with_graceful_shutdown(async {
                let _ = stopped.await;
            });
        let done = tokio::spawn(async move {
            if let Err(error) = serving.await {
                tracing::warn!(%error, "the control socket failed");
            }
        });
        Ok(Self {
            api,
            file,
            traffic,
            streams_open: streams,
            stop: Some(stop),
            done,
        })
    }

    /// Waits up to one second for clients to read their responses, then removes the socket file, so
    /// that later clients cannot connect.
    pub async fn drain(&self) {
        let _ = tokio::time::timeout(CLOSE_STEP_TIMEOUT, self.traffic.wait_until_quiet()).await;
        self.file.remove();
    }

    /// Removes the socket file, stops accepting connections, ends streams and WebSockets, and waits
    /// up to one second for open requests to finish. Requests that take longer finish in the
    /// background.
    pub async fn stop(mut self) {
        if let Some(stop) = self.stop.take() {
            self.file.remove();
            self.streams_open.send_replace(false);
            let _ = stop.send(());
            let _ = tokio::time::timeout(CLOSE_STEP_TIMEOUT, &mut self.done).await;
        }
    }

    /// Rejects further changes, ends streams, waits for clients to read their responses, removes
    /// the socket file, and stops serving. Takes about four seconds at most.
    pub async fn close(self) {
        self.api.gate.begin_shutdown();
        let _ = tokio::time::timeout(CLOSE_STEP_TIMEOUT, self.api.gate.wait_until_empty()).await;
        self.streams_open.send_replace(false);
        self.drain().await;
        let watching = self.api.websockets.clone();
        self.stop().await;
        watching.close();
        let _ = tokio::time::timeout(CLOSE_STEP_TIMEOUT, watching.wait()).await;
    }
}

impl Drop for ControlSocket {
    /// Removes the socket file and stops serving, if [`stop`](Self::stop) or [`close`](Self::close)
    /// was not called. Streams end; open requests finish in the background.
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            self.file.remove();
            self.streams_open.send_replace(false);
            let _ = stop.send(());
        }
    }
}

#[cfg(test)]
mod tests {
    use soong::{RunRequest, Runtime};
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        time::timeout,
    };

    use super::*;

    #[tokio::test]
    async fn closing_the_socket_ends_the_streams_of_its_clients() {
        let home = tempfile::tempdir().unwrap();
        let runtime = Runtime::builder()
            .home(home.path().join("home"))
            .project_dir(home.path())
            .offline();
        let runtime = runtime.build().await.unwrap();
        runtime
            .start(RunRequest::new("hello").session("s"))
            .await
            .unwrap()
            .wait()
            .await
            .unwrap();
        let control = runtime.serve_control().unwrap();
        let mut client = soong_client::socket::connect(runtime.info().home())
            .await
            .unwrap();
        let request =
            "GET /api/traces/s/events HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n";
        client.write_all(request.as_bytes()).await.unwrap();
        let mut read = String::new();
        while !read.contains("run_completed") {
            let mut piece = [0; 4096];
            let count = client.read(&mut piece).await.unwrap();
            assert_ne!(count, 0, "{read}");
            read.push_str(&String::from_utf8_lossy(&piece[..count]));
        }
        control.close().await;
        let mut rest = Vec::new();
        timeout(Duration::from_secs(30), client.read_to_end(&mut rest))
            .await
            .unwrap()
            .unwrap();
        runtime.close().await;
    }
}
