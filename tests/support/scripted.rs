//! A scripted model service: OpenAI-compatible HTTP/1.1 on the loopback interface.
//!
//! It runs on a separate thread and runtime, so that tests can pause their own clock. It records
//! every request, the maximum number of simultaneous requests, and how many clients closed the
//! connection early. Dropping it joins all its tasks. Include it with `mod scripted;`.
//!
//! Not in this module: checks of the requests.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    missing_docs,
    unreachable_pub
)]

use std::{
    collections::BTreeMap,
    io,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::JoinHandle,
    time::Duration,
};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
};

/// A received request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Number of requests received before it.
    pub number: usize,
    pub path: String,
    /// Headers by lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Body, or `null` if it is not JSON.
    pub body: Value,
}

impl Request {
    /// Returns whether the request is for a route on which servers state their models.
    fn is_route(&self) -> bool {
        const ROUTES: [&str; 5] = [
            "/v1/models",
            "/props",
            "/api/ps",
            "/api/v0/models",
            "/api/show",
        ];
        let path = self.path.split('?').next().unwrap_or_default();
        ROUTES.contains(&path)
    }
}

/// Returns the reply to a request.
type Handler = Box<dyn Fn(&Request) -> Reply + Send + Sync>;

/// End of a reply.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ReplyEnd {
    Whole,
    /// The connection is closed before the response is complete.
    Cut,
    /// Nothing more is sent until the client closes the connection.
    Hang,
}

/// Reply of the service to one request.
#[derive(Debug, Clone)]
pub struct Reply {
    delay: Duration,
    /// Status code. `None`: the pieces are the raw response, including the head.
    status: Option<u16>,
    headers: Vec<(String, String)>,
    /// Body parts, each sent as a separate HTTP chunk.
    pieces: Vec<Vec<u8>>,
    usage: Option<Value>,
    done: bool,
    end: ReplyEnd,
}

impl Reply {
    fn new(status: Option<u16>, pieces: Vec<Vec<u8>>) -> Self {
        Self {
            delay: Duration::ZERO,
            status,
            headers: Vec::new(),
            pieces,
            usage: None,
            done: false,
            end: ReplyEnd::Whole,
        }
    }

    /// Replies with these bytes as an event stream, piece by piece.
    pub fn stream<P: Into<Vec<u8>>>(pieces: impl IntoIterator<Item = P>) -> Self {
        Self::new(Some(200), pieces.into_iter().map(Into::into).collect())
            .header("content-type", "text/event-stream")
    }

    /// Replies with one event per chunk, then `[DONE]`.
    pub fn sse(chunks: impl IntoIterator<Item = Value>) -> Self {
        Self {
            done: true,
            ..Self::stream(chunks.into_iter().map(event))
        }
    }

    /// Replies with text as OpenAI streams it: word by word, finish reason, usage, `[DONE]`.
    pub fn answer(text: &str) -> Self {
        let words = text
            .split_inclusive(' ')
            .map(|word| delta(json!({"content": word}), Value::Null));
        let first = delta(json!({"role": "assistant", "content": ""}), Value::Null);
        Self::sse(
            [first]
                .into_iter()
                .chain(words)
                .chain([delta(json!({}), "stop".into())]),
        )
        .usage(10, 5)
    }

    /// Replies with tool calls `(id, name, arguments)`; the arguments are split into two pieces.
    pub fn calls(calls: &[(&str, &str, &str)]) -> Self {
        let mut chunks = Vec::new();
        for (index, (id, name, arguments)) in calls.iter().enumerate() {
            let (head, tail) = arguments.split_at(arguments.len().min(1));
            let begin = json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": head}});
            let rest = json!({"index": index, "function": {"arguments": tail}});
            chunks.extend(
                [begin, rest].map(|call| delta(json!({"tool_calls": [call]}), Value::Null)),
            );
        }
        chunks.push(delta(json!({}), "tool_calls".into()));
        Self::sse(chunks).usage(10, 5)
    }

    /// Replies with a status and any body.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(Some(status), vec![body.into()])
    }

    /// Replies with these raw bytes, including the head, and closes the connection.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            end: ReplyEnd::Cut,
            ..Self::new(None, vec![bytes.into()])
        }
    }

    /// Reads the request and never replies.
    pub fn hang() -> Self {
        Self {
            end: ReplyEnd::Hang,
            ..Self::new(None, Vec::new())
        }
    }

    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub fn usage(mut self, prompt_tokens: u64, completion_tokens: u64) -> Self {
        let total_tokens = prompt_tokens + completion_tokens;
        self.usage = Some(json!({
            "prompt_tokens": prompt_tokens, "completion_tokens": completion_tokens, "total_tokens": total_tokens,
        }));
        self
    }

    pub fn without_usage(mut self) -> Self {
        self.usage = None;
        self
    }

    /// Delays the first byte.
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Closes the connection after the pieces, without usage and without the end of the stream.
    pub fn then_cut(self) -> Self {
        Self {
            end: ReplyEnd::Cut,
            usage: None,
            done: false,
            ..self
        }
    }

    /// Sends nothing after the pieces until the client closes the connection.
    pub fn then_hang(self) -> Self {
        Self {
            end: ReplyEnd::Hang,
            usage: None,
            done: false,
            ..self
        }
    }

    fn body(&self) -> impl Iterator<Item = Vec<u8>> {
        let usage = self
            .usage
            .as_ref()
            .map(|usage| event(json!({"choices": [], "usage": usage})));
        let done = self.done.then(|| b"data: [DONE]\n\n".to_vec());
        self.pieces.iter().cloned().chain(usage).chain(done)
    }
}

/// Returns a chunk whose only choice contains `delta`.
pub fn delta(delta: Value, finish_reason: Value) -> Value {
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "scripted",
        "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}], "usage": null,
    })
}

fn event(chunk: Value) -> Vec<u8> {
    format!("data: {chunk}\n\n").into_bytes()
}

#[derive(Debug, Clone, Copy, Default)]
struct RequestCounts {
    requests: usize,
    hung_up: usize,
}

struct ServerState {
    handler: Handler,
    /// Whether the handler gets the requests for the routes on which servers state their models.
    has_routes: bool,
    requests: Mutex<Vec<Request>>,
    connections: AtomicUsize,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    seen: watch::Sender<RequestCounts>,
}

/// The service. Stops when dropped.
pub struct ScriptedServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl ScriptedServer {
    /// Starts a service that replies to each request with the result of `handler`.
    pub fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_any(Box::new(handler), false)
    }

    /// Starts a service that also has the routes on which a server states its models: `handler`
    /// gets their requests too.
    pub fn start_with_routes(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_any(Box::new(handler), true)
    }

    fn start_any(handler: Handler, has_routes: bool) -> Self {
        let shared = Arc::new(ServerState {
            handler,
            has_routes,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            max_in_flight: AtomicUsize::new(0),
            seen: watch::Sender::new(RequestCounts::default()),
        });
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let stop = watch::Sender::new(false);
        let served = shared.clone();
        let stopped = stop.subscribe();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(serve(listener, served, stopped));
        });
        Self {
            address,
            shared,
            stop,
            thread: Some(thread),
        }
    }

    /// Returns the base URL.
    pub fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns all requests received so far, in order.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap().clone()
    }

    /// Returns the number of connections opened so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// Returns the maximum number of simultaneous requests.
    pub fn max_in_flight(&self) -> usize {
        self.shared.max_in_flight.load(Ordering::SeqCst)
    }

    /// Returns the number of clients that closed the connection during a reply.
    pub fn hung_up(&self) -> usize {
        self.shared.seen.borrow().hung_up
    }

    /// Waits until `count` requests were received.
    pub async fn until_requests(&self, count: usize) {
        self.shared
            .seen
            .subscribe()
            .wait_for(|seen| seen.requests >= count)
            .await
            .unwrap();
    }

    /// Waits until `count` clients closed the connection during a reply.
    pub async fn until_hung_up(&self, count: usize) {
        self.shared
            .seen
            .subscribe()
            .wait_for(|seen| seen.hung_up >= count)
            .await
            .unwrap();
    }
}

impl Drop for ScriptedServer {
    fn drop(&mut self) {
        self.stop.send_replace(true);
        let joined = self.thread.take().map(JoinHandle::join);
        // A second panic while a test fails would abort and hide the first one.
        assert!(
            std::thread::panicking() || matches!(joined, Some(Ok(()))),
            "the scripted server panicked"
        );
    }
}

async fn serve(
    listener: std::net::TcpListener,
    shared: Arc<ServerState>,
    mut stop: watch::Receiver<bool>,
) {
    let listener = TcpListener::from_std(listener).unwrap();
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => {
                let (socket, _) = accepted.unwrap();
                socket.set_nodelay(true).unwrap();
                shared.connections.fetch_add(1, Ordering::SeqCst);
                let shared = shared.clone();
                // Tests provoke connection errors on purpose and check the recorded values.
                connections.spawn(async move { drop(Connection { socket, buffer: Vec::new(), shared }.run().await) });
            }
            Some(ended) = connections.join_next() => ended.expect("no handler panics"),
        }
    }
    connections.shutdown().await;
}

struct Connection {
    socket: TcpStream,
    buffer: Vec<u8>,
    shared: Arc<ServerState>,
}

impl Connection {
    async fn run(mut self) -> io::Result<()> {
        while let Some(request) = self.request().await? {
            if request.is_route() && !self.shared.has_routes {
                self.reply(&Reply::status(404, "none")).await?;
                continue;
            }
            let request = self.counted(request);
            let now = self.shared.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
            self.shared.max_in_flight.fetch_max(now, Ordering::SeqCst);
            let reply = (self.shared.handler)(&request);
            let result = self.reply(&reply).await;
            self.shared.in_flight.fetch_sub(1, Ordering::SeqCst);
            if result.is_err() {
                self.shared.seen.send_modify(|seen| seen.hung_up += 1);
            }
            result?;
            if reply.end == ReplyEnd::Cut {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Reads one request. Returns `None` if the client has closed the connection.
    async fn request(&mut self) -> io::Result<Option<Request>> {
        let head_end = loop {
            match self
                .buffer
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
            {
                Some(at) => break at,
                None if self.socket.read_buf(&mut self.buffer).await? == 0 => return Ok(None),
                None => {}
            }
        };
        let head = String::from_utf8_lossy(&self.buffer[..head_end]).into_owned();
        let mut lines = head.split("\r\n");
        let path = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .unwrap_or("")
            .to_owned();
        let header = |line: &str| {
            line.split_once(':')
                .map(|(k, v)| (k.to_ascii_lowercase(), v.trim().to_owned()))
        };
        let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
        let length = headers
            .get("content-length")
            .and_then(|length| length.parse().ok())
            .unwrap_or(0);
        let whole = head_end + 4 + length;
        while self.buffer.len() < whole {
            if self.socket.read_buf(&mut self.buffer).await? == 0 {
                return Ok(None);
            }
        }
        let body = serde_json::from_slice(&self.buffer[head_end + 4..whole]).unwrap_or(Value::Null);
        self.buffer.drain(..whole);
        Ok(Some(Request {
            number: 0,
            path,
            headers,
            body,
        }))
    }

    /// Records a request.
    fn counted(&self, request: Request) -> Request {
        let mut requests = self.shared.requests.lock().unwrap();
        let request = Request {
            number: requests.len(),
            ..request
        };
        requests.push(request.clone());
        drop(requests);
        self.shared.seen.send_modify(|seen| seen.requests += 1);
        request
    }

    /// Sends the reply. Fails if the client has closed the connection.
    async fn reply(&mut self, reply: &Reply) -> io::Result<()> {
        if !reply.delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(reply.delay) => {}
                gone = wait_for_disconnect(&mut self.socket, &mut self.buffer) => return Err(gone),
            }
        }
        if let Some(status) = reply.status {
            let mut head = format!("HTTP/1.1 {status} Scripted\r\ntransfer-encoding: chunked\r\n");
            for (name, value) in &reply.headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            self.socket
                .write_all(format!("{head}\r\n").as_bytes())
                .await?;
            for piece in reply.body().filter(|piece| !piece.is_empty()) {
                let mut chunk = format!("{:x}\r\n", piece.len()).into_bytes();
                chunk.extend_from_slice(&piece);
                chunk.extend_from_slice(b"\r\n");
                self.socket.write_all(&chunk).await?;
            }
        } else {
            for piece in reply.body() {
                self.socket.write_all(&piece).await?;
            }
        }
        match (reply.end, reply.status) {
            (ReplyEnd::Whole, Some(_)) => self.socket.write_all(b"0\r\n\r\n").await,
            (ReplyEnd::Hang, _) => {
                Err(wait_for_disconnect(&mut self.socket, &mut self.buffer).await)
            }
            (ReplyEnd::Cut | ReplyEnd::Whole, _) => Ok(()),
        }
    }
}

/// Waits until the client closes the connection.
async fn wait_for_disconnect(socket: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Error {
    loop {
        match socket.read_buf(buffer).await {
            Ok(0) => return io::ErrorKind::ConnectionAborted.into(),
            Ok(_) => {}
            Err(error) => return error,
        }
    }
}
