//! A scripted model behind the API of OpenAI, for the pictures. It answers by the last message.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    time::Duration,
};

use serde_json::{Value, json};

use crate::Failed;

/// Pause after each piece of an answer.
const PACE: Duration = Duration::from_millis(60);

/// The server, which runs until the process ends.
pub(crate) struct ScriptedModel {
    pub(crate) address: String,
}

impl ScriptedModel {
    pub(crate) fn start() -> Result<Self, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = format!("http://{}/v1", listener.local_addr()?);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A connection that breaks off is that of a process that has ended.
                std::thread::spawn(move || drop(answer(stream)));
            }
        });
        Ok(Self { address })
    }
}

/// Answers one request, and closes the connection.
fn answer(mut stream: TcpStream) -> Result<(), Failed> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().to_ascii_lowercase().split_once(": ") {
            Some(("content-length", value)) => length = value.parse()?,
            None if line.trim().is_empty() => break,
            _ => {}
        }
    }
    if first.starts_with("GET ") {
        let models = ["gpt-4.1-mini", "qwen3:8b", "llama3.2:3b"].map(|id| json!({ "id": id }));
        let list = json!({ "object": "list", "data": models }).to_string();
        return Ok(write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{list}",
            list.len()
        )?);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request: Value = serde_json::from_slice(&body)?;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    )?;
    for (delta, finish) in deltas(&request) {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish });
        write!(
            stream,
            "data: {}\n\n",
            json!({ "object": "chat.completion.chunk", "choices": [choice] })
        )?;
        stream.flush()?;
        std::thread::sleep(PACE);
    }
    let usage = json!({ "prompt_tokens": 2_412, "completion_tokens": 64, "total_tokens": 2_476 });
    let last = json!({ "object": "chat.completion.chunk", "choices": [], "usage": usage });
    Ok(write!(stream, "data: {last}\n\ndata: [DONE]\n\n")?)
}

/// Returns the pieces of the answer to a request, each with the reason of its end.
fn deltas(request: &Value) -> Vec<(Value, Value)> {
    let messages = request["messages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let is_user = |message: &&Value| message["role"] == "user";
    let task = messages
        .iter()
        .rfind(is_user)
        .map(|message| message["content"].to_string())
        .unwrap_or_default();
    let results = messages
        .iter()
        .rev()
        .take_while(|message| message["role"] == "tool")
        .count();
    match () {
        () if task.contains("soong-check") || task.contains("list_files") => match results {
            0 => call("list_files", &json!({ "path": "." })),
            _ => text("The file is soong-check.txt."),
        },
        () if task.contains("peas") => match messages
            .iter()
            .filter(|message| message["role"] == "tool")
            .count()
        {
            0 => call("read", &json!({ "path": "plan.md" })),
            1 => call(
                "edit",
                &json!({ "path": "plan.md", "edits": [{ "old": "- kale", "new": "- peas in April\n- kale" }] }),
            ),
            _ => text("The plan has **peas in April** now, between the beans and the kale."),
        },
        () if task.contains("Wait") => text(&"I think about it. ".repeat(200)),
        () => text(
            "It plans the beds of a garden:\n\n- `plan.md` lists what is sown, and when\n- `src/main.rs` counts what grows\n\n\
             ```rust\n//! Counts what grows.\nfn main() {}\n```\n\nThere are no tests yet.",
        ),
    }
}

fn text(text: &str) -> Vec<(Value, Value)> {
    let words = text
        .split_inclusive(' ')
        .map(|word| (json!({ "content": word }), Value::Null));
    words.chain([(json!({}), json!("stop"))]).collect()
}

fn call(tool: &str, arguments: &Value) -> Vec<(Value, Value)> {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let call = json!({ "index": 0, "id": format!("call_{tool}"), "type": "function", "function": function });
    vec![
        (json!({ "tool_calls": [call] }), Value::Null),
        (json!({}), json!("tool_calls")),
    ]
}
