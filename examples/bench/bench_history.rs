//! Measures the cost of long histories: opening a large home, resuming interrupted runs, rewinding,
//! building the context of a long conversation, and bytes on disk.
//!
//! `cargo run --release -p soong-bench --bin bench_history [ROUNDS=5] [DIR] [SESSIONS=10000]`. DIR
//! selects the disk under test, by default the current folder; everything written there is removed
//! again. Prints the medians of the rounds. All writes are durable (`full`), except when the
//! histories are created.
//!
//! Elsewhere: repeated crashes (`crash_runs`).

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

#[path = "bench_history/made.rs"]
mod made;
#[path = "bench_history/rows.rs"]
mod rows;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use serde_json::json;
use soong::{
    Config, RecoveryPolicy, RunRequest, Runtime, RuntimeBuilder,
    protocol::{RunMode, RunStatus, SessionId},
    testing::{ScriptedModel, Step, call, hang, respond, text},
};

type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Number of events per session of the large home.
const EVENTS: u64 = 100;
/// Number of runs that are interrupted and resumed.
const INTERRUPTED: usize = 100;
/// Number of messages of the trace that is rewound.
const LONG: u64 = 100_000;
/// Number of messages of the conversation whose context is built.
const CONVERSATION: usize = 5_000;
/// Number of turns measured at the beginning and at the end of the conversation.
const TURNS: usize = 100;

/// Behavior of the model.
#[derive(Clone, Copy)]
enum ModelBehavior {
    /// Answers immediately.
    Answers,
    /// Never answers.
    Hangs,
    /// Calls a tool that the run itself executes, until the conversation has this many messages.
    Plans(usize),
}

impl ModelBehavior {
    /// Returns the response to a conversation with this many messages. Nothing is streamed.
    fn step(self, messages: usize) -> Step {
        match self {
            Self::Hangs => hang("").streaming([]),
            Self::Plans(until) if messages < until => call("goal", json!({ "focus": "1" })),
            Self::Answers | Self::Plans(_) => text("It is so.").streaming([]),
        }
    }
}

/// A model that records the times of its calls.
struct TimedModel {
    scripted: Arc<ScriptedModel>,
    /// Start and end time of each call.
    seen: Arc<Mutex<Vec<(Instant, Instant)>>>,
}

impl TimedModel {
    fn new(behavior: ModelBehavior) -> Self {
        let seen = Arc::<Mutex<Vec<_>>>::default();
        let record = Arc::clone(&seen);
        let scripted = respond(move |request| {
            let called = Instant::now();
            let step = behavior.step(request.messages.len());
            if let Ok(mut seen) = record.lock() {
                seen.push((called, Instant::now()));
            }
            step
        });
        Self {
            scripted: Arc::new(scripted),
            seen,
        }
    }

    fn calls(&self) -> usize {
        self.scripted.calls()
    }

    /// Returns the start time of a call, counted from 0.
    fn call(&self, number: usize) -> Result<Instant, Failed> {
        let seen = self.seen.lock().map_err(|_| "the model panicked")?;
        Ok(seen.get(number).ok_or("the model was not called")?.0)
    }
}

fn builder(home: &Path, model: &TimedModel) -> RuntimeBuilder {
    let mut config = Config::default();
    config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
    config.model.context_window = Some(100_000_000);
    config.model.max_concurrency = Some(10_000);
    config.runtime.max_turns = 100_000;
    Runtime::builder()
        .home(home)
        .project_dir(home)
        .config(config)
        .model("default", Arc::clone(&model.scripted))
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_row(name: &str, unit: &str, values: Vec<f64>) {
    let (low, high) = values
        .iter()
        .fold((f64::INFINITY, 0_f64), |(low, high), value| {
            (low.min(*value), high.max(*value))
        });
    println!(
        "{name:<62} {:>10.2} {unit:<6} ({low:.2} to {high:.2})",
        median(values)
    );
}

/// Measures opening a home with many sessions, and starting a run in it.
async fn opening(home: &Path, rounds: usize) -> Result<(), Failed> {
    let mut ready = Vec::new();
    let mut first = Vec::new();
    for _ in 0..rounds {
        let model = TimedModel::new(ModelBehavior::Answers);
        let start = Instant::now();
        let runtime = builder(home, &model).build().await?;
        ready.push(ms(start.elapsed()));
        let run = runtime.start("What is it?").await?;
        run.wait().await?;
        if let Some((called, _)) = model
            .seen
            .lock()
            .ok()
            .and_then(|seen| seen.first().copied())
        {
            first.push(ms(called - start));
        }
        runtime.close().await;
    }
    print_row("home opened", "ms", ready);
    print_row("first request of a new run", "ms", first);
    Ok(())
}

/// Measures resuming runs that were interrupted in a model call.
async fn resuming(home: &Path, rounds: usize) -> Result<(), Failed> {
    let mut ready = Vec::new();
    let mut thinking = Vec::new();
    let mut done = Vec::new();
    for _ in 0..rounds {
        let model = TimedModel::new(ModelBehavior::Hangs);
        let runtime = builder(home, &model).build().await?;
        let starts = (0..INTERRUPTED)
            .map(|_| runtime.start(RunRequest::new("Look.").mode(RunMode::Orchestrator)));
        let runs = try_join_all(starts).await?;
        while model.calls() < INTERRUPTED {
            tokio::task::yield_now().await;
        }
        runtime.close().await;
        drop((runs, runtime));

        let model = TimedModel::new(ModelBehavior::Answers);
        let start = Instant::now();
        let runtime = builder(home, &model)
            .recover(RecoveryPolicy::All)
            .build()
            .await?;
        ready.push(ms(start.elapsed()));
        while model.calls() < INTERRUPTED {
            tokio::task::yield_now().await;
        }
        thinking.push(ms(start.elapsed()));
        while runtime.info().live_runs() > 0 {
            tokio::task::yield_now().await;
        }
        done.push(ms(start.elapsed()));
        runtime.close().await;
    }
    print_row(
        &format!("{INTERRUPTED} interrupted runs: open the home"),
        "ms",
        ready,
    );
    print_row(
        &format!("{INTERRUPTED} interrupted runs: all call the model again"),
        "ms",
        thinking,
    );
    print_row(
        &format!("{INTERRUPTED} interrupted runs: all have ended"),
        "ms",
        done,
    );
    Ok(())
}

/// Measures moving the head of a long trace.
async fn rewinding(home: &Path, rounds: usize) -> Result<(), Failed> {
    let model = TimedModel::new(ModelBehavior::Answers);
    let runtime = builder(home, &model).build().await?;
    let session = SessionId::new(made::LONG_SESSION);
    let mut back = Vec::new();
    let mut forth = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let switched = runtime.sessions().switch_head(&session, LONG / 2).await?;
        back.push(ms(start.elapsed()));
        if switched.sequence != LONG / 2 {
            return Err(format!("the head moved to message {}", switched.sequence).into());
        }
        let start = Instant::now();
        runtime.sessions().switch_head(&session, LONG).await?;
        forth.push(ms(start.elapsed()));
    }
    print_row(
        &format!("rewind the head over {} of {LONG} messages", LONG / 2),
        "ms",
        back,
    );
    print_row(
        "move the head forward again, to a message off the main path",
        "ms",
        forth,
    );
    let mut accepted = Vec::new();
    let mut called = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let before = model.calls();
        let run = runtime
            .start(
                RunRequest::new("Instead.")
                    .session(made::LONG_SESSION)
                    .after(LONG / 2),
            )
            .await?;
        accepted.push(ms(start.elapsed()));
        run.wait().await?;
        called.push(ms(model.call(before)? - start));
        runtime.sessions().switch_head(&session, LONG).await?;
    }
    print_row(
        &format!("a run that rewound to message {} is accepted", LONG / 2),
        "ms",
        accepted,
    );
    print_row(
        "its first request, with the remaining messages",
        "ms",
        called,
    );
    runtime.close().await;
    Ok(())
}

/// Measures how much the context of a long conversation adds to a turn.
async fn context(dir: &Path, rounds: usize) -> Result<(), Failed> {
    let mut early = Vec::new();
    let mut late = Vec::new();
    let mut next = Vec::new();
    for _ in 0..rounds {
        let home = tempfile::tempdir_in(dir)?;
        let model = TimedModel::new(ModelBehavior::Plans(CONVERSATION));
        let mut config = Config::default();
        config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
        config.storage.durability = soong::protocol::Durability::Normal;
        config.model.context_window = Some(100_000_000);
        config.runtime.max_turns = 100_000;
        let runtime = Runtime::builder()
            .home(home.path())
            .project_dir(home.path())
            .config(config)
            .model("default", Arc::clone(&model.scripted))
            .build()
            .await?;
        let run = runtime.start("Go on planning.").await?;
        let outcome = run.wait().await?;
        if outcome.status != RunStatus::Completed {
            return Err(format!("{:?}", outcome.error).into());
        }
        let start = Instant::now();
        let before = model.calls();
        runtime
            .start(RunRequest::new("And now?").session(run.session_id().as_str()))
            .await?
            .wait()
            .await?;
        next.push(ms(model.call(before)? - start));
        runtime.close().await;
        let mut seen = model.seen.lock().map_err(|_| "the model panicked")?.clone();
        seen.truncate(before);
        // The time from an answer to the next call contains two commits and building the context.
        let between: Vec<f64> = seen
            .windows(2)
            .map(|pair| ms(pair[1].0 - pair[0].1))
            .collect();
        early.push(median(between[..TURNS].to_vec()));
        late.push(median(between[between.len() - TURNS..].to_vec()));
    }
    let added = late
        .iter()
        .zip(&early)
        .map(|(late, early)| late - early)
        .collect();
    print_row(
        &format!("a turn, of the first {TURNS} (normal durability)"),
        "ms",
        early,
    );
    print_row(&format!("a turn at {CONVERSATION} messages"), "ms", late);
    print_row(
        &format!("cost of {CONVERSATION} more messages in a turn"),
        "ms",
        added,
    );
    print_row(
        "first request of the next run, which reads these messages",
        "ms",
        next,
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let rounds: usize = arguments.first().map_or(Ok(5), |text| text.parse())?;
    let dir = arguments
        .get(1)
        .map_or_else(|| PathBuf::from("."), PathBuf::from);
    let sessions: u64 = arguments.get(2).map_or(Ok(10_000), |text| text.parse())?;
    let home = tempfile::tempdir_in(&dir)?;
    let large = home.path().join("large");
    made::sessions(&large, sessions, EVENTS)?;
    println!(
        "a home with {sessions} sessions and {} events:",
        sessions * EVENTS
    );
    opening(&large, rounds).await?;
    resuming(&large, rounds).await?;
    let long = home.path().join("long");
    let size = made::long_trace(&long, LONG)?;
    println!(
        "a trace with {LONG} messages of {} bytes each:",
        made::TEXT_BYTES
    );
    let each = size as f64 / LONG as f64;
    println!(
        "{:<62} {each:>10.0} bytes  ({:.0} in addition to the text, which its event also contains)",
        "a message with its event on disk",
        each - made::TEXT_BYTES as f64
    );
    rewinding(&long, rounds).await?;
    println!("a conversation that grows to {CONVERSATION} messages:");
    context(&dir, rounds.min(3)).await
}
