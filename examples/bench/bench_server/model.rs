//! A model service that answers immediately, over persistent connections.
//!
//! The task determines the answer: for `bench: turns N` the model calls a read-only tool N times
//! before it answers.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::Failed;

/// Prefix of a task with a given number of turns, each with one tool call.
pub(crate) const TURNS: &str = "bench: turns ";

/// Task that is never answered.
pub(crate) const HOLD: &str = "bench: hold";

/// Starts the service. Returns its base URL.
pub(crate) async fn start() -> Result<String, Failed> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let base_url = format!("http://{}/v1", listener.local_addr()?);
    let answer: Arc<str> = Arc::from(reply(None));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let answer = Arc::clone(&answer);
            // Errors from clients that close the connection are ignored.
            tokio::spawn(async move { serve(stream, &answer).await });
        }
    });
    Ok(base_url)
}

async fn serve(stream: TcpStream, answer: &str) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    let mut body = Vec::new();
    loop {
        let mut length = 0;
        loop {
            line.clear();
            if stream.read_line(&mut line).await? == 0 {
                return Ok(());
            }
            if line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                length = value.trim().parse().unwrap_or(0);
            }
        }
        body.resize(length, 0);
        stream.read_exact(&mut body).await?;
        if body
            .windows(HOLD.len())
            .any(|window| window == HOLD.as_bytes())
        {
            // Waits until the client closes the connection.
            stream.read_line(&mut line).await?;
            return Ok(());
        }
        let called;
        let response = match wanted(&body) {
            Some((turns, done)) if done < turns => {
                called = reply(Some(done));
                called.as_str()
            }
            _ => answer,
        };
        stream.get_mut().write_all(response.as_bytes()).await?;
    }
}

/// Returns the requested and the completed number of turns of a conversation, or `None` if no turns
/// are requested.
fn wanted(body: &[u8]) -> Option<(usize, usize)> {
    let at = body
        .windows(TURNS.len())
        .position(|window| window == TURNS.as_bytes())?
        + TURNS.len();
    let digits: String = body[at..]
        .iter()
        .map_while(|byte| byte.is_ascii_digit().then_some(char::from(*byte)))
        .collect();
    let body: Value = serde_json::from_slice(body).ok()?;
    let messages = body["messages"].as_array()?;
    let done = messages
        .iter()
        .filter(|message| message["role"] == "assistant")
        .count();
    Some((digits.parse().ok()?, done))
}

fn reply(call: Option<usize>) -> String {
    let delta = match call {
        Some(index) => {
            json!({ "tool_calls": [{ "index": 0, "id": format!("call_{index}"), "type": "function",
            "function": { "name": "list_files", "arguments": "{}" } }] })
        }
        None => json!({ "content": "done" }),
    };
    let reason = if call.is_some() { "tool_calls" } else { "stop" };
    let chunk = |choices: Value, usage: Value| json!({ "id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": choices, "usage": usage });
    let first = chunk(
        json!([{ "index": 0, "delta": delta, "finish_reason": reason }]),
        Value::Null,
    );
    let last = chunk(
        json!([]),
        json!({ "prompt_tokens": 10, "completion_tokens": 1, "total_tokens": 11 }),
    );
    let body = format!("data: {first}\n\ndata: {last}\n\ndata: [DONE]\n\n");
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}
