//! A model service controlled by the test: the test receives each request and sends each piece of
//! the answer.
//!
//! It implements the streaming protocol of OpenAI-compatible services, with one request per
//! connection.
#![allow(dead_code, reason = "no suite uses all of it")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::mpsc,
};

use serde_json::{Value, json};

use super::process::TIMEOUT;

/// The service. Its requests are queued in order.
pub(crate) struct ManualModelService {
    pub(crate) address: String,
    requests: mpsc::Receiver<Request>,
}

/// A request that waits for its answer. Dropping it closes the connection.
pub(crate) struct Request {
    pub(crate) body: Value,
    stream: TcpStream,
    calls: usize,
}

impl ManualModelService {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let (tell, requests) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let Some(request) = Request::read(stream) else {
                    continue;
                };
                if tell.send(request).is_err() {
                    return;
                }
            }
        });
        Self { address, requests }
    }

    /// Waits for the next request.
    #[track_caller]
    pub(crate) fn next(&self) -> Request {
        self.requests
            .recv_timeout(TIMEOUT)
            .expect("the model is asked")
    }

    /// Returns a request if one is queued or arrives within 20 ms.
    pub(crate) fn poll(&self) -> Option<Request> {
        self.requests
            .recv_timeout(std::time::Duration::from_millis(20))
            .ok()
    }

    /// Returns the next `n` requests, which may arrive in any order.
    #[track_caller]
    pub(crate) fn take(&self, n: usize) -> Vec<Request> {
        (0..n).map(|_| self.next()).collect()
    }
}

impl Request {
    fn read(stream: TcpStream) -> Option<Self> {
        let mut reader = BufReader::new(stream.try_clone().ok()?);
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).ok()?;
            match line.trim().to_ascii_lowercase().split_once(": ") {
                Some(("content-length", n)) => length = n.parse().ok()?,
                Some(_) => {}
                None if line.trim().is_empty() => break,
                None => {}
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).ok()?;
        let body = serde_json::from_slice(&body).ok()?;
        let mut request = Self {
            body,
            stream,
            calls: 0,
        };
        request.write(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
        );
        Some(request)
    }

    /// Returns the content of the last message of the request.
    pub(crate) fn last_message(&self) -> String {
        // Without the context that the runtime adds.
        const CONTEXT: &str = "[Context of this run";
        let messages = self.body["messages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut texts = messages
            .iter()
            .rev()
            .map(|message| message["content"].as_str().unwrap_or_default());
        let text = texts
            .find(|text| !text.starts_with(CONTEXT))
            .unwrap_or_default();
        text.split(&format!("\n\n{CONTEXT}"))
            .next()
            .unwrap_or_default()
            .to_owned()
    }

    /// Streams a piece of the answer.
    pub(crate) fn text(&mut self, piece: &str) -> &mut Self {
        self.choice(json!({ "content": piece }), Value::Null);
        self
    }

    /// Sends a tool call.
    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> &mut Self {
        let function = json!({ "name": tool, "arguments": arguments.to_string() });
        let call = json!({ "index": self.calls, "id": format!("call-{}", self.calls), "type": "function", "function": function });
        self.calls += 1;
        self.choice(json!({ "tool_calls": [call] }), Value::Null);
        self
    }

    /// Ends the answer.
    pub(crate) fn end(mut self) {
        let reason = if self.calls > 0 { "tool_calls" } else { "stop" };
        self.choice(json!({}), json!(reason));
        let usage = json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 });
        self.chunk(&json!({ "id": "x", "model": "m", "choices": [], "usage": usage }));
        self.write("data: [DONE]\n\n");
    }

    /// Answers with a text only.
    pub(crate) fn answer(mut self, text: &str) {
        self.text(text);
        self.end();
    }

    fn choice(&mut self, delta: Value, finish_reason: Value) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish_reason });
        self.chunk(&json!({ "id": "x", "model": "m", "choices": [choice] }));
    }

    fn chunk(&mut self, chunk: &Value) {
        self.write(&format!("data: {chunk}\n\n"));
    }

    fn write(&mut self, text: &str) {
        // The client may have been cancelled.
        let _ = self
            .stream
            .write_all(text.as_bytes())
            .and_then(|()| self.stream.flush());
    }
}
