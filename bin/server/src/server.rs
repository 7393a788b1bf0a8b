//! The server: serves the routes on a network address to clients with a token (SRV-1).
//!
//! Each phase of a connection has a time limit: sending the head of a request, sending its body,
//! and reading the response. Elsewhere: the routes (`http.rs`), the home (its owner, such as the
//! binary).

mod connections;
mod guard;
pub mod token;

use std::{convert::Infallible, net::SocketAddr, sync::Arc, time::Duration};

use axum::{
    Router,
    body::Body,
    http::{HeaderName, HeaderValue, StatusCode, header},
    middleware,
    response::{IntoResponse, Response},
};
use connections::{Connection, Connections, Stream};
use futures::FutureExt;
use guard::Guard;
use http_body_util::BodyExt;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use soong::{
    ErrorCode, ErrorInfo,
    protocol::{
        ServerConfig,
        api::{ErrorBody, IDEMPOTENCY_KEY},
    },
};
use token::Tokens;
use tokio::{
    io::AsyncWriteExt,
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinHandle,
};
use tokio_io_timeout::TimeoutStream;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use tower_http::{
    catch_panic::CatchPanicLayer,
    cors::{AllowMethods, AllowOrigin, CorsLayer},
    timeout::RequestBodyTimeoutLayer,
};

use crate::http::{ApiError, IDEMPOTENCY_REPLAYED, finish_body};

/// Time limit for the head of a request of a client with a known token, including the idle time
/// before it.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time between two pieces of a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time during which a client reads nothing of the response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);
/// Size of the write buffer of a connection, in bytes.
const BUFFER_BYTES: usize = 64 * 1_024;
/// Delay after a failed accept, for example when no file descriptors are left.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Maximum time to wait for requests in progress when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time for a rejected client to read the response.
const REJECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum time in which a connection that is closed for another one can still receive an answer.
const EVICTION_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of connections that are rejected with a response at the same time; further ones
/// are closed without one.
const MAX_REJECTIONS: usize = 1_024;

/// Error message for a connection beyond the limits.
const TOO_MANY_CONNECTIONS: &str = "too many connections (server.max_connections, max_connections_per_address): try again later, or send a valid token";

/// A running server.
pub struct Server {
    addr: SocketAddr,
    stop: watch::Sender<bool>,
    done: JoinHandle<()>,
}

impl Server {
    /// Starts serving the routes with the limits of the configuration.
    pub fn start(
        listener: TcpListener,
        router: Router,
        config: &ServerConfig,
        tokens: Tokens,
    ) -> std::io::Result<Self> {
        let addr = listener.local_addr()?;
        let guard = Guard::new(addr, config, tokens.clone());
        let (stop, stopped) = watch::channel(false);
        let connections = Connections::new(config);
        let token_watcher = tokio::spawn(tokens.watch());
        let router = with_guard(router, guard);
        let done = tokio::spawn(async move {
            accept(listener, router, connections, stopped).await;
            token_watcher.abort();
        });
        Ok(Self { addr, stop, done })
    }

    /// Returns the address that the server listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Stops accepting connections. Requests in progress are completed.
    pub fn stop_accepting(&self) {
        self.stop.send_replace(true);
    }

    /// Stops the server and waits up to two seconds for requests in progress. Remaining requests
    /// are not aborted.
    pub async fn stop(self) {
        self.stop_accepting();
        let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, self.done).await;
    }
}

/// Adds the checks that every request passes before the routes.
fn with_guard(router: Router, guard: Guard) -> Router {
    let origins = guard
        .origins
        .iter()
        .filter_map(|origin| HeaderValue::from_str(origin).ok());
    // Pages of the configured origins may send requests; their browsers send a preflight request
    // first.
    let cors = CorsLayer::new()
        .allow_origin(AllowOrigin::list(origins))
        // The requested method is allowed here; each route rejects other methods itself.
        .allow_methods(AllowMethods::mirror_request())
        .allow_headers([
            header::AUTHORIZATION,
            header::CONTENT_TYPE,
            header::IF_MATCH,
            header::IF_NONE_MATCH,
            HeaderName::from_static(IDEMPOTENCY_KEY),
            HeaderName::from_static("last-event-id"),
        ])
        .expose_headers([header::ETAG, header::RETRY_AFTER, IDEMPOTENCY_REPLAYED])
        .max_age(Duration::from_secs(600));
    let router = router
        .layer(CatchPanicLayer::custom(panic_response))
        .layer(RequestBodyTimeoutLayer::new(BODY_TIMEOUT))
        .layer(middleware::from_fn_with_state(
            guard.clone(),
            guard::check_token,
        ))
        .layer(cors)
        .layer(middleware::from_fn_with_state(guard, guard::check_place))
        .layer(middleware::from_fn(finish_body));
    // A router sets the header `Allow` after its layers, so the router is nested in another one.
    Router::new()
        .fallback_service(router)
        .layer(middleware::map_response(hide_head))
}

/// Removes `HEAD` from the header `Allow`. The routes accept it wherever they accept `GET`, as RFC
/// 9110 requires; the OpenAPI document does not list it.
async fn hide_head(mut response: Response) -> Response {
    if let Some(allowed) = response
        .headers()
        .get(header::ALLOW)
        .and_then(|value| value.to_str().ok())
    {
        let methods = allowed
            .split(',')
            .filter(|method| *method != "HEAD")
            .collect::<Vec<_>>()
            .join(",");
        if let Ok(methods) = HeaderValue::try_from(methods) {
            response.headers_mut().insert(header::ALLOW, methods);
        }
    }
    response
}

/// Accepts connections until the server stops, then waits until all of them have ended.
async fn accept(
    listener: TcpListener,
    router: Router,
    connections: Connections,
    mut stopped: watch::Receiver<bool>,
) {
    let tasks = TaskTracker::new();
    let rejections = Arc::new(Semaphore::new(MAX_REJECTIONS));
    loop {
        let (stream, peer) = tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "accepting a connection failed");
                    tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                    continue;
                }
            },
            () = stop_requested(&mut stopped) => break,
        };
        if let Some(connection) = connections.admit(peer.ip()) {
            tasks.spawn(serve(
                stream,
                connection,
                router.clone(),
                Arc::clone(&rejections),
                stopped.clone(),
            ));
            continue;
        }
        if let Ok(permit) = Arc::clone(&rejections).try_acquire_owned() {
            tasks.spawn(reject_connection(stream).map(move |()| drop(permit)));
        }
    }
    drop(listener);
    tasks.close();
    tasks.wait().await;
}

async fn stop_requested(stopping: &mut watch::Receiver<bool>) {
    // An error means that the sender was dropped, which also stops the server.
    let _ = stopping.wait_for(|stop| *stop).await;
}

/// Serves one connection. When the server stops, the current request is the last one.
async fn serve(
    stream: TcpStream,
    connection: Arc<Connection>,
    router: Router,
    rejections: Arc<Semaphore>,
    mut stopped: watch::Receiver<bool>,
) {
    let _ = stream.set_nodelay(true);
    // Nothing has been read yet, so a connection that must go is answered like one that is not
    // admitted. `readable` would not do: it may return before there are bytes.
    let mut first_byte = [0];
    tokio::select! {
        biased;
        arrived = stream.peek(&mut first_byte) => if arrived.is_err() {
            return;
        },
        () = connection.evicted() => {
            // Its slot is taken already, so the number of answers at a time is limited.
            if let Ok(_permit) = rejections.try_acquire() {
                reject_connection(stream).await;
            }
            return;
        }
        () = connection.head_timeout() => return,
        () = stop_requested(&mut stopped) => return,
    }
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(WRITE_TIMEOUT));
    let stream = Stream::new(stream, Arc::clone(&connection));
    let requests = Arc::clone(&connection);
    let service =
        service_fn(move |request| handle_request(Arc::clone(&requests), router.clone(), request));
    let http = http1::Builder::new()
        .timer(TokioTimer::new())
        // A client that has sent its request may close its side and still read the response.
        .half_close(true)
        .header_read_timeout(HEAD_TIMEOUT)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut http = std::pin::pin!(http);
    let ended = tokio::select! {
        ended = http.as_mut() => ended,
        () = connection.evicted() => {
            // A request that is on its way is answered with 503, which closes the connection.
            if let Ok(_permit) = rejections.try_acquire() {
                let _ = tokio::time::timeout(EVICTION_TIMEOUT, http.as_mut()).await;
            }
            return;
        }
        () = connection.head_timeout() => return,
        () = stop_requested(&mut stopped) => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    // A client that disconnects is not an error of the server.
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}

/// Handles one request. The connection is in use until the response is written, or as long as it is
/// a WebSocket.
async fn handle_request(
    connection: Arc<Connection>,
    router: Router,
    mut request: hyper::Request<hyper::body::Incoming>,
) -> Result<Response, Infallible> {
    if !connection.begin() {
        return Ok(too_many_connections(StatusCode::SERVICE_UNAVAILABLE));
    }
    request.extensions_mut().insert(Arc::clone(&connection));
    let Ok(response) = router.oneshot(request).await;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response);
    }
    let in_use = ResponseGuard(connection);
    Ok(response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _ = &in_use;
            frame
        }))
    }))
}

/// Guard of a connection whose response is being written.
struct ResponseGuard(Arc<Connection>);

impl Drop for ResponseGuard {
    fn drop(&mut self) {
        self.0.finish();
    }
}

/// Rejects a request: on a reserved connection with 429, on one that was closed for another one
/// with 503.
fn too_many_connections(status: StatusCode) -> Response {
    let error = ErrorInfo::retryable(ErrorCode::Overloaded, TOO_MANY_CONNECTIONS);
    let mut response = ApiError::from(error).with_status(status).into_response();
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
        .headers_mut()
        .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

/// Rejects a connection with a response, within a short time limit.
async fn reject_connection(mut stream: TcpStream) {
    let error = ErrorInfo::retryable(ErrorCode::Overloaded, TOO_MANY_CONNECTIONS);
    let body = serde_json::to_string(&ErrorBody::from(error)).unwrap_or_default();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Retry-After: 1\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    let saying = async {
        stream.write_all(answer.as_bytes()).await?;
        stream.shutdown().await?;
        // Read until the client disconnects: closing with unread bytes would lose the response.
        tokio::io::copy(&mut stream, &mut tokio::io::sink()).await
    };
    let _ = tokio::time::timeout(REJECT_TIMEOUT, saying).await;
}

/// Responds to a request whose handler panicked. A panic affects only this request.
fn panic_response(_: Box<dyn std::any::Any + Send>) -> Response {
    ApiError::from(ErrorInfo::new(
        ErrorCode::InternalError,
        "internal error: see the server log",
    ))
    .into_response()
}

#[cfg(test)]
mod tests;
