//! The server: the routes on an address, for whoever has a token (SRV-1).
//!
//! Every connection is bounded in what it may hold up: how long it takes to say what it wants, to bring its body, and to
//! take what it is sent. Not here: the routes (`http.rs`), the home (`owner.rs`).

mod guard;
mod place;
pub(crate) mod token;

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    http::{HeaderName, HeaderValue, Method, header},
    middleware,
    response::{IntoResponse, Response},
};
use guard::Guard;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use place::Placed;
use soong::{ErrorCode, ErrorInfo, protocol::ServerConfig};
use token::Tokens;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::task::TaskTracker;
use tower_http::{
    catch_panic::CatchPanicLayer,
    cors::{AllowOrigin, CorsLayer},
    timeout::RequestBodyTimeoutLayer,
};

use crate::http::{ApiError, ErrorBody};

/// How long a client may take to say what it wants, also after the request before.
const HEAD: Duration = Duration::from_secs(30);
/// How long it may take between two pieces of a body.
const BODY: Duration = Duration::from_secs(30);
/// How long it may take nothing of what it is sent.
const WRITE: Duration = Duration::from_secs(60);
/// Most bytes that wait for one client to take them, of a stream.
const BUFFER_BYTES: usize = 64 * 1_024;
/// How long is waited where the system has no room for further connections.
const NO_ROOM: Duration = Duration::from_millis(100);
/// How long requests may take that are at work when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long somebody is listened to for whom there is no room.
const FAREWELL: Duration = Duration::from_secs(1);

/// What somebody is told for whom there is no room.
const NO_PLACE: &str = "too many connections: server.max_connections says how many there may be";

/// A server at work.
pub(crate) struct Server {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    done: JoinHandle<()>,
}

impl Server {
    /// Serves routes from now on, as the configuration says.
    pub(crate) fn start(
        listener: TcpListener,
        router: Router,
        config: &ServerConfig,
        tokens: Tokens,
    ) -> std::io::Result<Self> {
        let addr = listener.local_addr()?;
        let guard = Guard::new(addr, config, tokens.clone());
        let (stop, stopped) = watch::channel(false);
        let room = Arc::new(Semaphore::new(config.max_connections));
        let watching = tokio::spawn(tokens.watch());
        let router = guarded(router, guard);
        let done = tokio::spawn(async move {
            accept(listener, router, room, stopped).await;
            watching.abort();
        });
        Ok(Self { addr, stop, done })
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes nobody in any more; what is at work comes to its end.
    pub(crate) fn leave(&self) {
        self.stop.send_replace(true);
    }

    /// Waits a moment for what is at work, and ends it.
    pub(crate) async fn stop(self) {
        self.leave();
        let _ = tokio::time::timeout(LAST_WORDS, self.done).await;
    }
}

/// Puts in front of the routes what looks at every request.
fn guarded(router: Router, guard: Guard) -> Router {
    let origins = guard.origins.iter().filter_map(|origin| HeaderValue::from_str(origin).ok());
    // Pages of other origins that are named may ask; their browsers ask first whether they may.
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        .allow_methods([Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE])
        .allow_headers([header::AUTHORIZATION, header::CONTENT_TYPE, HeaderName::from_static("last-event-id")])
        .max_age(Duration::from_secs(600));
    router
        .layer(CatchPanicLayer::custom(panicked))
        .layer(RequestBodyTimeoutLayer::new(BODY))
        .layer(middleware::from_fn_with_state(guard.clone(), guard::token))
        .layer(cors)
        .layer(middleware::from_fn_with_state(guard, guard::place))
}

/// Takes connections in until it is told to stop, then lets them come to their end.
async fn accept(listener: TcpListener, router: Router, room: Arc<Semaphore>, mut stopped: watch::Receiver<bool>) {
    let connections = TaskTracker::new();
    loop {
        let stream = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be taken in");
                    tokio::time::sleep(NO_ROOM).await;
                    continue;
                }
            },
            () = is_true(&mut stopped) => break,
        };
        match Arc::clone(&room).try_acquire_owned() {
            Ok(place) => {
                let stream = Placed { stream, _place: place };
                connections.spawn(serve(stream, router.clone(), stopped.clone()));
            }
            Err(_) => drop(connections.spawn(turn_away(stream))),
        }
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn is_true(told: &mut watch::Receiver<bool>) {
    // Whoever would have told is gone: that means the same.
    let _ = told.wait_for(|told| *told).await;
}

/// Serves one connection; when it is to end, the request that is at work is its last.
async fn serve(stream: Placed, router: Router, mut stopped: watch::Receiver<bool>) {
    let _ = stream.stream.set_nodelay(true);
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(Box::pin(stream)), TowerToHyperService::new(router))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = is_true(&mut stopped) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    // A client that breaks off is no trouble of ours.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection broke off");
    }
}

/// Says that there is no room, as far as that can be said without waiting for long.
async fn turn_away(mut stream: TcpStream) {
    let error = ErrorInfo::retryable(ErrorCode::Overloaded, NO_PLACE);
    let body = serde_json::to_string(&ErrorBody::from(error)).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 429 Too Many Requests\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let saying = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Read on until the client has gone: closed over unread bytes, the answer would be lost.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(FAREWELL, saying).await;
}

/// Answers where a handler has panicked: that is a defect, and of this request alone.
fn panicked(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::from(ErrorInfo::new(ErrorCode::InternalError, "a defect of soong: see the logs of the server"))
        .into_response()
}

#[cfg(test)]
mod tests;
