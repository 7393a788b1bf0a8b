//! A running server for tests, and an HTTP and WebSocket client for it: real HTTP to the real
//! binary.
#![allow(dead_code, reason = "no suite uses all of it")]

use std::io::{BufRead, BufReader};

use futures::{SinkExt, StreamExt};
use reqwest::{Method, StatusCode};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message, client::IntoClientRequest, http::HeaderValue},
};

use crate::process::{KillOnDrop, ProcessOutput, TIMEOUT, TestHome};

/// Configuration of a home that uses the offline model.
pub(crate) const OFFLINE: &str = "[model]\nprovider = \"offline\"\nname = \"offline\"\n";
/// Tokens of two additional users.
pub(crate) const BOB: &str = "bob-bob-bob-bob-bob-bob";
pub(crate) const EVE: &str = "eve-eve-eve-eve-eve-eve";

/// A server that owns a world's home.
pub(crate) struct TestServer {
    pub(crate) world: TestHome,
    running: Option<KillOnDrop>,
    pub(crate) url: String,
    http: reqwest::Client,
    extra: Vec<(String, String)>,
}

/// Client side of a WebSocket.
pub(crate) struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

/// Message received on a WebSocket.
#[derive(Debug)]
pub(crate) enum SocketMessage {
    Event(Value),
    Closed(u16),
    /// The connection ended without a close frame.
    Gone,
}

fn client() -> reqwest::Client {
    soong_http::client_builder()
        .timeout(TIMEOUT)
        .build()
        .unwrap()
}

impl TestServer {
    /// Starts a server with this configuration on a free port.
    pub(crate) fn new(config: &str) -> Self {
        Self::with(config, &[])
    }

    pub(crate) fn with(config: &str, variables: &[(&str, &str)]) -> Self {
        Self::over(TestHome::new(), config, variables)
    }

    /// Starts a server for an existing world.
    pub(crate) fn over(world: TestHome, config: &str, variables: &[(&str, &str)]) -> Self {
        std::fs::create_dir_all(world.home()).unwrap();
        std::fs::write(world.home().join("config.toml"), config).unwrap();
        let extra = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let mut served = Self {
            world,
            running: None,
            url: String::new(),
            http: client(),
            extra,
        };
        served.start("127.0.0.1:0");
        served
    }

    /// Starts a server with tokens for two additional users.
    pub(crate) fn with_users(config: &str) -> Self {
        let config = format!("{config}[server.tokens]\nbob = \"BOB_TOKEN\"\neve = \"EVE_TOKEN\"\n");
        Self::with(&config, &[("BOB_TOKEN", BOB), ("EVE_TOKEN", EVE)])
    }

    fn start(&mut self, addr: &str) {
        let mut command = self.world.command(&["serve", "--json", "--addr", addr]);
        let mut child = command.envs(self.extra.iter().cloned()).spawn().unwrap();
        let mut first = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut first).unwrap();
        let running = KillOnDrop { child };
        if first.is_empty() {
            panic!("the server did not start: {}", running.finish().err);
        }
        let startup: Value = serde_json::from_str(&first).unwrap();
        self.url = startup["url"].as_str().unwrap().to_owned();
        self.running = Some(running);
    }

    /// Starts the server again on the same address.
    pub(crate) fn restart(&mut self) {
        let addr = self.url.trim_start_matches("http://").to_owned();
        // A new client, so that no connection to the previous server is reused.
        self.http = client();
        self.start(&addr);
    }

    /// Starts the server again without the variables of its environment that the test has set, such
    /// as faults.
    pub(crate) fn restart_without_variables(&mut self) {
        self.extra.clear();
        self.restart();
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.as_ref().unwrap().signal(signal);
    }

    /// Waits until the server process has ended.
    pub(crate) fn wait_for_exit(&mut self) -> ProcessOutput {
        self.running.take().unwrap().finish()
    }

    /// Kills the server like `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.running = None;
    }

    pub(crate) fn pid(&self) -> u32 {
        self.running.as_ref().unwrap().child.id()
    }

    pub(crate) fn token(&self) -> String {
        std::fs::read_to_string(self.world.home().join("server.token"))
            .unwrap()
            .trim()
            .to_owned()
    }

    /// Returns a request with the home's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_as(&self.token(), method, path)
    }

    pub(crate) fn request_as(
        &self,
        token: &str,
        method: Method,
        path: &str,
    ) -> reqwest::RequestBuilder {
        self.open(method, path).bearer_auth(token)
    }

    /// Returns a request without a token.
    pub(crate) fn open(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.http.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> Value {
        let (status, body) = answer(self.request(Method::GET, path)).await;
        assert_eq!(status, 200, "GET {path}: {body}");
        body
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> (StatusCode, Value) {
        answer(self.request(Method::POST, path).json(&body)).await
    }

    /// Waits until a list has an item, and returns the first item.
    pub(crate) async fn wait_for(&self, path: &str, list: &str) -> Value {
        let waiting = async {
            loop {
                if let Some(first) = self.get(path).await[list].as_array().unwrap().first() {
                    return first.clone();
                }
            }
        };
        tokio::time::timeout(TIMEOUT, waiting)
            .await
            .expect("it is asked")
    }

    /// Starts a run in the session with this id, waits until it has ended, and returns its record.
    pub(crate) async fn run_to_end(&self, token: &str, session: &str, prompt: &str) -> Value {
        let body = json!({ "prompt": prompt, "session_id": session });
        let (status, accepted) = answer(
            self.request_as(token, Method::POST, "/api/traces")
                .json(&body),
        )
        .await;
        assert_eq!(status, 202, "{accepted}");
        self.ended_run(token, accepted["run_id"].as_str().unwrap())
            .await
    }

    /// Waits until a run has ended, and returns its record.
    pub(crate) async fn ended_run(&self, token: &str, run: &str) -> Value {
        let path = format!("/api/runs/{run}");
        let waiting = async {
            loop {
                let (status, body) = answer(self.request_as(token, Method::GET, &path)).await;
                assert_eq!(status, 200, "{body}");
                if !body["output"].is_null() {
                    return body;
                }
                tokio::task::yield_now().await;
            }
        };
        if let Ok(ended) = tokio::time::timeout(TIMEOUT, waiting).await {
            return ended;
        }
        let record = self.get(&path).await;
        let events = self
            .get(&format!(
                "/api/traces/{}/events",
                record["trace_id"].as_str().unwrap()
            ))
            .await;
        let tree = self.get("/api/tree").await;
        panic!("the run does not end: {record}\nits events: {events}\nthe tree: {tree}");
    }

    /// Opens a WebSocket with a token.
    pub(crate) async fn watch(&self, token: &str, path: &str) -> Socket {
        self.try_watch(path, &[("authorization", &format!("Bearer {token}"))])
            .await
            .unwrap()
    }

    /// Opens a WebSocket with these headers. The error is the status code of the rejection.
    pub(crate) async fn try_watch(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Result<Socket, u16> {
        let mut request = format!("{}{path}", self.url.replace("http://", "ws://"))
            .into_client_request()
            .unwrap();
        for (name, value) in headers {
            request
                .headers_mut()
                .insert(*name, HeaderValue::from_str(value).unwrap());
        }
        match connect_async(request).await {
            Ok((socket, _)) => Ok(Socket(socket)),
            Err(Error::Http(response)) => Err(response.status().as_u16()),
            Err(error) => panic!("{error}"),
        }
    }
}

impl Socket {
    pub(crate) async fn next(&mut self) -> SocketMessage {
        loop {
            let received = tokio::time::timeout(TIMEOUT, self.0.next())
                .await
                .expect("something comes");
            match received {
                Some(Ok(Message::Text(text))) => {
                    return SocketMessage::Event(serde_json::from_str(&text).unwrap());
                }
                Some(Ok(Message::Close(frame))) => {
                    return frame.map_or(SocketMessage::Gone, |frame| {
                        SocketMessage::Closed(frame.code.into())
                    });
                }
                Some(Ok(_)) => {}
                Some(Err(_)) | None => return SocketMessage::Gone,
            }
        }
    }

    /// Returns the next event.
    pub(crate) async fn event(&mut self) -> Value {
        match self.next().await {
            SocketMessage::Event(event) => event,
            other => panic!("an event, and not {other:?}"),
        }
    }

    /// Returns the close code. Events before it are skipped.
    pub(crate) async fn close_code(&mut self) -> u16 {
        loop {
            match self.next().await {
                SocketMessage::Event(_) => {}
                SocketMessage::Closed(code) => return code,
                SocketMessage::Gone => panic!("it was closed no reason given"),
            }
        }
    }

    pub(crate) async fn send_text(&mut self, text: &str) {
        self.0
            .send(Message::Text(text.to_owned().into()))
            .await
            .unwrap();
    }
}

/// Sends a request and reads its response. A body that is not JSON is returned as a string.
pub(crate) async fn answer(request: reqwest::RequestBuilder) -> (StatusCode, Value) {
    let response = request.send().await.unwrap();
    let status = response.status();
    let text = response.text().await.unwrap();
    (
        status,
        serde_json::from_str(&text).unwrap_or(Value::String(text)),
    )
}

/// Returns the error code of a rejected request.
#[track_caller]
pub(crate) fn code(body: &Value) -> &str {
    body["error"]["code"]
        .as_str()
        .unwrap_or_else(|| panic!("no refusal: {body}"))
}

/// Reader of an event stream; each frame has an id, a name and data.
pub(crate) struct Frames {
    response: reqwest::Response,
    /// Received bytes that are not decoded yet.
    bytes: Vec<u8>,
    open: String,
}

/// One frame of an event stream.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) id: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) data: Value,
}

impl Frames {
    pub(crate) async fn open(request: reqwest::RequestBuilder) -> Self {
        let response = request
            .header("accept", "text/event-stream")
            .send()
            .await
            .unwrap();
        assert!(response.status().is_success(), "{}", response.status());
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self {
            response,
            bytes: Vec::new(),
            open: String::new(),
        }
    }

    /// Returns the next frame, or `None` if the stream has ended.
    pub(crate) async fn next(&mut self) -> Option<Frame> {
        loop {
            if let Some((frame, rest)) = self.open.split_once("\n\n") {
                let field = |name: &str| {
                    frame
                        .lines()
                        .find_map(|line| line.strip_prefix(name))
                        .map(str::to_owned)
                };
                let id = field("id: ");
                let name = field("event: ");
                let data = field("data: ");
                self.open = rest.to_owned();
                let Some(data) = data else { continue };
                let data = serde_json::from_str(&data).unwrap();
                return Some(Frame {
                    id: id.map(|id| id.parse().unwrap()),
                    name,
                    data,
                });
            }
            let more = tokio::time::timeout(TIMEOUT, self.response.chunk())
                .await
                .expect("something comes");
            self.bytes.extend_from_slice(&more.ok()??);
            // A piece may end within a character.
            let whole = self
                .bytes
                .utf8_chunks()
                .next()
                .map_or(0, |chunk| chunk.valid().len());
            let text: Vec<u8> = self.bytes.drain(..whole).collect();
            self.open.push_str(std::str::from_utf8(&text).unwrap());
        }
    }
}
