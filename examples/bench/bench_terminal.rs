//! Measures latencies at a terminal: the duration of commands of the installed binary, with and
//! without an active owner, and the delay until another terminal shows an event.
//!
//! `cargo run --release -p soong-bench --bin bench_terminal [SOONG] [ROUNDS]`, by default
//! `target/release/soong` and 30 rounds. Needs no key: a local model service answers the requests
//! of the measurement and holds all others. Everything is stored in a temporary home, which is
//! removed at the end.
//!
//! The duration of a command is the time from its start to its end, including reading its output.
//! The delay of an event is the time from its timestamp, which is set before the commit, until its
//! line is read from `traces events --follow --json`. Timestamps have a resolution of one
//! millisecond, so the delay may be overestimated by that much.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        mpsc::{self, Receiver},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};
use soong::protocol::EventRecord;

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Maximum wait for anything.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Number of sub-agents of a run that is stopped together with them.
const CHILDREN: usize = 16;
/// Time that the service waits before an answer while events are measured.
const THINKING: Duration = Duration::from_millis(20);

/// Prefixes of a task: a keyword followed by a number.
const DIVIDE: &str = "bench: divide ";
const TURNS: &str = "bench: turns ";
const HOLD: &str = "bench: hold";

/// Gate that holds answers back until it is opened.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn open(&self) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn wait(&self) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        while !*open {
            open = self
                .changed
                .wait(open)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// A model service that reports each request, and answers according to its task.
struct Service {
    base_url: String,
    requests: Receiver<()>,
    gate: Arc<Gate>,
}

impl Service {
    fn start() -> Result<Self, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let base_url = format!("http://{}/v1", listener.local_addr()?);
        let (tell, requests) = mpsc::channel();
        let gate = Arc::new(Gate::default());
        let of_answers = Arc::clone(&gate);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let tell = tell.clone();
                let gate = Arc::clone(&of_answers);
                // Errors from clients that close the connection are ignored.
                std::thread::spawn(move || serve(stream, &tell, &gate));
            }
        });
        Ok(Self {
            base_url,
            requests,
            gate,
        })
    }

    /// Waits for this many requests.
    fn wait(&self, requests: usize) -> Result<(), Failed> {
        (0..requests)
            .try_for_each(|_| self.requests.recv_timeout(TIMEOUT))
            .map_err(Into::into)
    }
}

fn serve(mut stream: TcpStream, tell: &mpsc::Sender<()>, gate: &Gate) -> Result<(), Failed> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        match line.trim().split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = value.trim().parse()?
            }
            Some(_) => {}
            None if line.trim().is_empty() => break,
            None => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    tell.send(())?;
    let body: Value = serde_json::from_slice(&body)?;
    match answer(&body, gate) {
        Some(answer) => Ok(stream.write_all(answer.as_bytes())?),
        // Holds the request until the client closes the connection.
        None => Ok(reader.read_to_end(&mut Vec::new()).map(drop)?),
    }
}

/// Returns the answer to a request, or `None` to hold the request.
fn answer(body: &Value, gate: &Gate) -> Option<String> {
    let messages = body["messages"].as_array()?;
    let task = messages.iter().find(|message| message["role"] == "user")?["content"].as_str()?;
    let results = messages
        .iter()
        .filter(|message| message["role"] == "tool")
        .count();
    let number = |word: &str| task.strip_prefix(word)?.trim().parse::<usize>().ok();
    if let (Some(n), 0) = (number(DIVIDE), results) {
        let tasks: Vec<String> = (1..=n).map(|n| format!("{HOLD} {n}")).collect();
        return Some(stream_of("agent", &json!({ "task": tasks })));
    }
    let turns = number(TURNS)?;
    gate.wait();
    std::thread::sleep(THINKING);
    let is_last = results >= turns;
    Some(if is_last {
        stream_of("", &Value::Null)
    } else {
        stream_of("list_files", &json!({}))
    })
}

/// Formats an answer as OpenAI streams it: a tool call, or a text if `tool` is empty.
fn stream_of(tool: &str, arguments: &Value) -> String {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let (delta, reason) = match tool {
        "" => (json!({ "content": "done" }), "stop"),
        _ => (
            json!({ "tool_calls": [{ "index": 0, "id": "c", "type": "function", "function": function }] }),
            "tool_calls",
        ),
    };
    let chunk = |delta: &Value, reason: Value| {
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": reason });
        format!(
            "data: {}\n\n",
            json!({ "id": "x", "model": "bench", "choices": [choice] })
        )
    };
    let first = chunk(&delta, Value::Null);
    let last = chunk(&json!({}), json!(reason));
    format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n{first}{last}data: [DONE]\n\n"
    )
}

/// The binary under test, with a separate home and project.
struct Installation {
    binary: PathBuf,
    dir: tempfile::TempDir,
    base_url: String,
}

impl Installation {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.binary);
        command
            .args(args)
            .env_clear()
            .env("HOME", self.dir.path())
            .env("LANG", "C.UTF-8");
        command
            .env("SOONG_AGENT_HOME", self.dir.path().join("home"))
            .env("OPENAI_BASE_URL", &self.base_url);
        command
            .current_dir(self.dir.path().join("project"))
            .stdin(Stdio::null());
        command
    }

    /// Runs a command to its end. Returns its output and its duration.
    fn run(&self, args: &[&str]) -> Result<(String, Duration), Failed> {
        let begun = Instant::now();
        let output = self.command(args).output()?;
        let took = begun.elapsed();
        if !output.status.success() {
            return Err(format!(
                "soong {}: {}",
                args.join(" "),
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
        Ok((String::from_utf8(output.stdout)?, took))
    }

    fn took(&self, args: &[&str]) -> Result<Duration, Failed> {
        Ok(self.run(args)?.1)
    }
}

/// A process that is killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn print_row(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let ms = |time: &Duration| time.as_secs_f64() * 1e3;
    if let (Some(median), Some(max)) = (times.get(times.len() / 2), times.last()) {
        println!(
            "{what:<58} {:>8.1} {:>8.1} {:>5}",
            ms(median),
            ms(max),
            times.len()
        );
    }
}

/// Measures something `count` times and prints the result.
fn rounds(
    what: &str,
    count: usize,
    mut once: impl FnMut(usize) -> Result<Duration, Failed>,
) -> Result<(), Failed> {
    let times = (0..count)
        .map(&mut once)
        .collect::<Result<Vec<Duration>, Failed>>()?;
    print_row(what, times);
    Ok(())
}

fn alone(installation: &Installation, count: usize) -> Result<(), Failed> {
    rounds("a process that does nothing (true)", count, |_| {
        let begun = Instant::now();
        Command::new("true").output()?;
        Ok(begun.elapsed())
    })?;
    rounds("soong --version", count, |_| {
        installation.took(&["--version"])
    })?;
    rounds("soong --help", count, |_| installation.took(&["--help"]))?;
    installation.run(&["run", "--model", "offline", "What is here?"])?;
    rounds("soong tree, no owner process", count, |_| {
        installation.took(&["tree"])
    })?;
    rounds("soong traces list, no owner process", count, |_| {
        installation.took(&["traces", "list"])
    })
}

fn with_owner(installation: &Installation, service: &Service, count: usize) -> Result<(), Failed> {
    let task = format!("{DIVIDE}{count}");
    let mut owner = installation.command(&["run", "--session", "s", &task]);
    let _owner = Running(owner.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    service.wait(1 + count)?;
    rounds(
        &format!("soong tree, owner process with {count} running sub-agents"),
        count,
        |_| installation.took(&["tree"]),
    )?;
    rounds("soong traces list, the same", count, |_| {
        installation.took(&["traces", "list"])
    })?;

    let traces: Value = serde_json::from_str(&installation.run(&["traces", "list", "--json"])?.0)?;
    let children = traces
        .as_array()
        .into_iter()
        .flatten()
        .filter(|trace| trace["parent_trace_id"] == "s");
    let children: Vec<&str> = children
        .filter_map(|trace| trace["trace_id"].as_str())
        .collect();
    // The last sub-agent keeps running: without any, the run would continue.
    let stopped = children.len().saturating_sub(1);
    rounds("soong traces stop, one sub-agent", stopped, |n| {
        installation.took(&["traces", "stop", children[n]])
    })?;

    rounds(
        "soong run --detach, accepted by the owner process",
        count,
        |n| {
            let took =
                installation.took(&["run", "--detach", "--session", &format!("r{n}"), HOLD])?;
            service.wait(1)?;
            Ok(took)
        },
    )?;
    rounds("soong traces stop, a run", count, |n| {
        installation.took(&["traces", "stop", &format!("r{n}")])
    })?;
    rounds(
        &format!("soong traces stop, a run with {CHILDREN} running sub-agents"),
        count,
        |n| {
            let session = format!("d{n}");
            installation.run(&[
                "run",
                "--detach",
                "--session",
                &session,
                &format!("{DIVIDE}{CHILDREN}"),
            ])?;
            service.wait(1 + CHILDREN)?;
            installation.took(&["traces", "stop", &session])
        },
    )?;
    follow(installation, service, count)
}

/// Follows a run of several turns, and compares the timestamp of each event with the time its line
/// is read.
fn follow(installation: &Installation, service: &Service, turns: usize) -> Result<(), Failed> {
    installation.run(&[
        "run",
        "--detach",
        "--session",
        "t",
        &format!("{TURNS}{turns}"),
    ])?;
    service.wait(1)?;
    let mut follower = installation.command(&["traces", "events", "t", "--follow", "--json"]);
    let mut follower = Running(follower.stdout(Stdio::piped()).spawn()?);
    let out = follower.0.stdout.take().ok_or("no pipe")?;
    let mut times = Vec::new();
    let mut is_live = false;
    for line in BufReader::new(out).lines() {
        let line = line?;
        let read_at = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let event: EventRecord = serde_json::from_str(&line)?;
        if is_live {
            let ts = Duration::from_millis(u64::try_from(event.ts.as_millis())?);
            times.push(read_at.saturating_sub(ts));
        } else if event.event.kind() == "model_started" {
            // The stored events have been printed; all further events are live.
            is_live = true;
            service.gate.open();
        }
    }
    print_row(
        "an event, until traces events --follow --json prints it",
        times,
    );
    Ok(())
}

fn main() -> Result<(), Failed> {
    let mut args = std::env::args_os().skip(1);
    let binary = args
        .next()
        .map_or_else(|| PathBuf::from("target/release/soong"), PathBuf::from);
    let binary = std::path::absolute(&binary)?;
    let count: usize = args
        .next()
        .map_or(Ok(30), |count| count.to_string_lossy().parse())?;
    if !binary.is_file() || !(2..=200).contains(&count) {
        let found = Path::display(&binary);
        return Err(
            format!("usage: bench_terminal [SOONG] [ROUNDS]; {found} must be the binary, and ROUNDS 2 to 200").into()
        );
    }
    let service = Service::start()?;
    let dir = tempfile::tempdir()?;
    for folder in ["home", "project"] {
        std::fs::create_dir(dir.path().join(folder))?;
    }
    let limits = format!(
        "[agents]\nmax_concurrent_children_per_session = {}\n[model]\nmax_concurrency = {}\n",
        count.max(CHILDREN),
        count * (CHILDREN + 4)
    );
    std::fs::write(dir.path().join("home/config.toml"), limits)?;
    let installation = Installation {
        binary,
        dir,
        base_url: service.base_url.clone(),
    };
    println!(
        "{}, {count} rounds, ms",
        installation.run(&["--version"])?.0.trim()
    );
    println!("{:<58} {:>8} {:>8} {:>5}", "", "median", "max", "n");
    alone(&installation, count)?;
    with_owner(&installation, &service, count)
}
