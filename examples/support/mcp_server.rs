//! A small MCP server over standard input and output, without an MCP library: JSON-RPC, one message
//! per line.
//!
//! `soong` uses it with this section in `config.toml`:
//!
//! ```toml
//! [mcp.demo]
//! command = "target/debug/mcp_server"
//! ```
//!
//! Then `soong mcp test` lists its tools. Two environment variables are for tests: `MCP_LOG` (a
//! file to which each action is logged as one line) and `MCP_MODE` (`hang`, `garbage`, `refuse`,
//! `flood`, `leave`, `stubborn`, `sloppy`: kinds of misbehavior).

use std::{
    collections::HashMap,
    env,
    io::{BufRead, Write, stdin, stdout},
    process,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

/// A PNG image of one pixel, in base64.
const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";

/// Duration of each step of `wait`.
const STEP: Duration = Duration::from_millis(50);

#[allow(dead_code, reason = "tests serve without it")]
fn main() {
    serve();
}

/// Answers requests until the input is closed.
pub fn serve() {
    let mode = env::var("MCP_MODE").unwrap_or_default();
    log("start");
    if mode == "leave" {
        eprintln!("no licence for today: {}", secret());
        process::exit(3);
    }
    if mode == "garbage" {
        say("\u{1b}[31mthis is not JSON\n{\"jsonrpc\": \"2.0\", \"id\": {}}\n[[[");
    }
    let calls = Calls::default();
    for line in stdin().lock().lines().map_while(Result::ok) {
        let Ok(message) = serde_json::from_str::<Value>(&line) else {
            continue;
        };
        let id = message["id"].clone();
        match message["method"].as_str().unwrap_or_default() {
            "initialize" if mode == "hang" => log("initialize"),
            "initialize" if mode == "refuse" => {
                reply(
                    &id,
                    Err(json!({"code": -32000, "message": "closed on Mondays"})),
                );
            }
            "initialize" if mode == "flood" => {
                log("initialize");
                reply(&id, Ok(json!({"instructions": "x".repeat(17 << 20)})));
            }
            "initialize" => {
                log("initialize");
                let version = message["params"]["protocolVersion"].clone();
                if mode == "sloppy" {
                    let result = json!({"protocolVersion": version, "capabilities": {"tools": {}}});
                    say(&format!(
                        "\u{feff}{}",
                        json!({"jsonrpc": "2.0", "id": id, "result": result})
                    ));
                    continue;
                }
                reply(
                    &id,
                    Ok(json!({
                        "protocolVersion": version,
                        "capabilities": {"tools": {"listChanged": true}},
                        "serverInfo": {"name": "demo", "version": "1"},
                    })),
                );
            }
            "tools/list" if mode == "sloppy" => {
                let answer = json!({"jsonrpc": "2.0", "id": id, "result": page(Some(""))});
                let news = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}});
                say(&json!([news, answer]).to_string());
            }
            "tools/list" => reply(&id, Ok(page(message["params"]["cursor"].as_str()))),
            "tools/call" => calls.begin(id, message["params"].clone()),
            "notifications/cancelled" => calls.cancel(&message["params"]["requestId"]),
            "ping" => reply(&id, Ok(json!({}))),
            _ if id.is_null() => {}
            method => reply(
                &id,
                Err(json!({"code": -32601, "message": format!("no method {method}")})),
            ),
        }
    }
    log("end of input");
    if mode == "stubborn" {
        loop {
            thread::park();
        }
    }
}

/// Returns two pages of tools, some of which are invalid.
fn page(cursor: Option<&str>) -> Value {
    let nothing = json!({"type": "object", "properties": {}});
    let numbers = json!({
        "type": "object",
        "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
        "required": ["a", "b"],
    });
    let steps =
        json!({"type": "object", "properties": {"steps": {"type": "integer", "minimum": 0}}});
    let first = json!([
        {"name": "add", "title": "Add", "description": "Adds two numbers.", "inputSchema": numbers,
         "annotations": {"readOnlyHint": true}},
        {"name": "wait", "description": "Waits in steps of 50 ms, and says how far it is.", "inputSchema": steps,
         "annotations": {"readOnlyHint": true}},
        {"name": "fail", "description": format!("Answers an error {}", secret()), "inputSchema": nothing},
        {"name": "crash", "description": "Ends the server in the middle of the call.", "inputSchema": nothing},
    ]);
    let second = json!([
        {"name": "picture", "description": "Answers a picture, and a resource.", "inputSchema": nothing},
        {"name": "measure", "description": "Answers structured content.", "inputSchema": nothing},
        {"name": "flood", "description": "Answers more than is taken.", "inputSchema": nothing},
        {"name": "grow", "description": "Has one tool more from now on.", "inputSchema": nothing},
        {"name": "bad_schema", "description": "Cannot be used.", "inputSchema": {"type": "object", "required": 5}},
        {"name": "no_schema", "description": "Cannot be used.", "inputSchema": "none"},
        {"name": "bad name!", "description": "Cannot be used.", "inputSchema": nothing},
        {"name": "batch", "description": "Is a task.", "inputSchema": nothing, "execution": {"taskSupport": "required"}},
    ]);
    match cursor {
        None => json!({"tools": first, "nextCursor": "second"}),
        Some(_) if grown() => {
            let more =
                json!({"name": "late", "description": "Came later.", "inputSchema": nothing});
            let mut all = second.as_array().cloned().unwrap_or_default();
            all.push(more);
            json!({"tools": all})
        }
        Some(_) => json!({"tools": second}),
    }
}

/// Returns the value of `MCP_SECRET`, which the server leaks on purpose.
fn secret() -> String {
    env::var("MCP_SECRET").unwrap_or_default()
}

static GROWN: Mutex<bool> = Mutex::new(false);

fn grown() -> bool {
    *GROWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Active calls, each in its own thread.
#[derive(Clone, Default)]
struct Calls(Arc<Mutex<HashMap<String, mpsc::Sender<()>>>>);

impl Calls {
    fn begin(&self, id: Value, params: Value) {
        let (cancel, cancelled) = mpsc::channel();
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(id.to_string(), cancel);
        let calls = self.clone();
        thread::spawn(move || {
            log(&format!(
                "call {}",
                params["name"].as_str().unwrap_or_default()
            ));
            if let Some(result) = answer(&params, &cancelled) {
                reply(&id, Ok(result));
            }
            calls
                .0
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&id.to_string());
        });
    }

    fn cancel(&self, id: &Value) {
        log("cancelled");
        if let Some(cancel) = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&id.to_string())
        {
            let _ = cancel.send(()); // the call may have ended
        }
    }
}

/// Executes a call. Returns `None` if it was cancelled.
fn answer(params: &Value, cancelled: &mpsc::Receiver<()>) -> Option<Value> {
    let arguments = &params["arguments"];
    let token = &params["_meta"]["progressToken"];
    let text = |text: String| json!({"content": [{"type": "text", "text": text}]});
    Some(match params["name"].as_str().unwrap_or_default() {
        "add" => {
            let sum = arguments["a"].as_f64().unwrap_or_default()
                + arguments["b"].as_f64().unwrap_or_default();
            text(sum.to_string())
        }
        "wait" => {
            let steps = arguments["steps"].as_u64().unwrap_or(1);
            for step in 1..=steps {
                if !matches!(
                    cancelled.recv_timeout(STEP),
                    Err(mpsc::RecvTimeoutError::Timeout)
                ) {
                    return None;
                }
                let params = json!({"progressToken": token, "progress": step, "total": steps, "message": "waiting"});
                send(
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}),
                );
            }
            text(format!("waited {steps} steps"))
        }
        "fail" => {
            json!({"content": [{"type": "text", "text": "the moon is not full"}], "isError": true})
        }
        "crash" => {
            eprintln!("going down");
            process::exit(9);
        }
        "picture" => json!({"content": [
            {"type": "image", "data": PNG, "mimeType": "image/png"},
            {"type": "resource", "resource": {"uri": "note://1", "text": "a note"}},
        ]}),
        "flood" => text("x".repeat(17 * 1_024 * 1_024)),
        "measure" => json!({"content": [], "structuredContent": {"celsius": 21}}),
        "grow" => {
            *GROWN.lock().unwrap_or_else(PoisonError::into_inner) = true;
            send(&json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}));
            text("grown".to_owned())
        }
        name => {
            json!({"content": [{"type": "text", "text": format!("no tool {name}")}], "isError": true})
        }
    })
}

fn reply(id: &Value, result: Result<Value, Value>) {
    send(&match result {
        Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
        Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error}),
    });
}

fn send(message: &Value) {
    say(&message.to_string());
}

fn say(line: &str) {
    let mut out = stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush()); // the client may have closed the pipe
}

fn log(what: &str) {
    let Ok(path) = env::var("MCP_LOG") else {
        return;
    };
    if let Ok(mut file) = std::fs::File::options()
        .create(true)
        .append(true)
        .open(path)
    {
        // One write per line, since other processes write to the file at the same time.
        let _ = file.write_all(format!("{what}\n").as_bytes());
    }
}
