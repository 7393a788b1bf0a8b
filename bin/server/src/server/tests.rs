//! Limits of a connection, with paused time.

use axum::{
    body::{Body, Bytes},
    routing::{get, post},
};
use futures::stream;
use soong::{Environment, protocol::Config};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::{Instant, sleep, timeout},
};

use super::*;

struct TestServer {
    server: Server,
    token: String,
    _home: tempfile::TempDir,
}

/// Serves on a free port: `/` responds with hello, `/count` with the length of a body, `/endless`
/// without an end.
async fn test_server(max_connections: usize) -> TestServer {
    let home = tempfile::tempdir().unwrap();
    let (token, _) = token::prepare_home_token(home.path()).unwrap();
    let tokens = Tokens::read(home.path(), &Config::default(), &Environment::default())
        .unwrap_or_else(|_| panic!());
    let endless = || async {
        Body::from_stream(stream::repeat_with(|| {
            Ok::<_, std::io::Error>(Bytes::from_static(&[7; 65_536]))
        }))
    };
    let router = Router::new()
        .route("/", get(|| async { "hello" }))
        .route(
            "/count",
            post(|body: Bytes| async move { body.len().to_string() }),
        )
        .route("/endless", get(endless));
    let config = ServerConfig {
        max_connections,
        ..ServerConfig::default()
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    TestServer {
        server: Server::start(listener, router, &config, tokens).unwrap(),
        token,
        _home: home,
    }
}

impl TestServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.server.addr()).await.unwrap()
    }

    /// Connects and sends the head of a request.
    async fn ask(&self, first: &str, rest: &str) -> TcpStream {
        let mut stream = self.connect().await;
        let addr = self.server.addr();
        let token = &self.token;
        let head =
            format!("{first} HTTP/1.1\r\nHost: {addr}\r\nAuthorization: Bearer {token}\r\n{rest}");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }
}

/// Reads until the server closes; returns the text and the elapsed time.
async fn rest(stream: &mut TcpStream) -> (String, Duration) {
    let start = Instant::now();
    let mut text = Vec::new();
    // A reset also counts as the end.
    let read = timeout(Duration::from_secs(600), stream.read_to_end(&mut text)).await;
    assert!(read.is_ok(), "the server never closes");
    (String::from_utf8_lossy(&text).into_owned(), start.elapsed())
}

#[track_caller]
fn assert_about(took: Duration, want: Duration) {
    assert!(
        took >= want - Duration::from_secs(1) && took <= want + Duration::from_secs(1),
        "{took:?}, not {want:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn silent_or_idle_client_is_disconnected() {
    let test_server = test_server(8).await;
    let unknown = Duration::from_secs(ServerConfig::default().head_timeout_s);
    let mut silent = test_server.connect().await;
    assert_about(rest(&mut silent).await.1, unknown);
    let mut stopped = test_server.ask("GET /", "X-Half: of a li").await;
    assert_about(rest(&mut stopped).await.1, unknown);
    let mut stranger = test_server.connect().await;
    stranger
        .write_all(
            format!(
                "GET / HTTP/1.1\r\nHost: {}\r\n\r\n",
                test_server.server.addr()
            )
            .as_bytes(),
        )
        .await
        .unwrap();
    let (text, took) = rest(&mut stranger).await;
    assert!(text.ends_with("hello"), "{text}");
    assert_about(took, unknown);
    // An idle connection is closed after its response too.
    let mut answered = test_server.ask("GET /", "\r\n").await;
    let (text, took) = rest(&mut answered).await;
    assert!(
        text.starts_with("HTTP/1.1 200 OK") && text.ends_with("hello"),
        "{text}"
    );
    assert_about(took, HEAD_TIMEOUT);
    test_server.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_body_is_accepted_and_stalled_body_is_rejected() {
    let test_server = test_server(8).await;
    let mut slow = test_server
        .ask(
            "POST /count",
            "Connection: close\r\nContent-Length: 10\r\n\r\n",
        )
        .await;
    for _ in 0..10 {
        sleep(BODY_TIMEOUT - Duration::from_secs(5)).await;
        slow.write_all(b"x").await.unwrap();
    }
    let (text, _) = rest(&mut slow).await;
    assert!(
        text.starts_with("HTTP/1.1 200 OK") && text.ends_with("10"),
        "{text}"
    );

    let mut stopped = test_server
        .ask("POST /count", "Content-Length: 10\r\n\r\nfive!")
        .await;
    let (text, took) = rest(&mut stopped).await;
    assert!(text.starts_with("HTTP/1.1 4"), "{text}");
    assert_about(took, BODY_TIMEOUT);
    test_server.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unread_response_is_dropped_and_frees_its_slot() {
    let test_server = test_server(1).await;
    let deaf = test_server.ask("GET /endless", "\r\n").await;
    sleep(WRITE_TIMEOUT - Duration::from_secs(2)).await;
    let (text, _) = rest(&mut test_server.ask("GET /", "\r\n").await).await;
    assert!(
        text.starts_with("HTTP/1.1 503") && text.contains("\r\nRetry-After: 1\r\n"),
        "{text}"
    );
    sleep(Duration::from_secs(5)).await;
    let (text, _) = rest(&mut test_server.ask("GET /", "Connection: close\r\n\r\n").await).await;
    assert!(text.starts_with("HTTP/1.1 200 OK"), "{text}");
    drop(deaf);
    // A client that reads slowly is served.
    let slow = test_server.ask("GET /endless", "\r\n").await;
    let mut piece = vec![0; 65_536];
    for _ in 0..10 {
        sleep(WRITE_TIMEOUT - Duration::from_secs(5)).await;
        slow.readable().await.unwrap();
        let mut read = 0;
        // Reads only the bytes that are available now.
        while let Ok(more @ 1..) = slow.try_read(&mut piece) {
            read += more;
        }
        assert!(read > 0, "the server has closed");
    }
    test_server.server.stop().await;
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_clients_only_until_timeout() {
    let test_server = test_server(8).await;
    let addr = test_server.server.addr();
    let _endless = test_server.ask("GET /endless", "\r\n").await;
    let mut idle = test_server.ask("GET /", "\r\n").await;
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    test_server.server.stop().await;
    assert!(
        start.elapsed() <= SHUTDOWN_TIMEOUT + Duration::from_secs(1),
        "{:?}",
        start.elapsed()
    );
    let (text, _) = rest(&mut idle).await;
    assert!(text.ends_with("hello"), "{text}");
    assert!(
        TcpStream::connect(addr).await.is_err(),
        "nobody new is taken in"
    );
}
