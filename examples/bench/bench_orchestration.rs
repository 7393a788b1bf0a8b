//! Measures the cost of orchestration, with a model server that answers immediately.
//!
//! `PROG SCENARIO N REPS STORE` with the environment variables `BASE_URL` (ends in `/v1`) and
//! `BENCH_DB` (a path; the home is created next to it).
//!
//! SCENARIO:
//! - `single`: one agent with N tool turns.
//! - `fanout`: an orchestrator whose model requests N sub-agents at once.
//! - `gather`: the program itself starts the N sub-agents.
//! - `sessions`: N sessions at once.
//! - `cancel`: cancels the parent of N sub-agents whose model never answers; measures the time
//!   until all ends are durable.
//!
//! STORE: `full` or `normal`; `none` counts as `full`.
//!
//! The last line of output is JSON: memory, times of each repetition, number of wrong answers.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a measurement shows its result"
)]

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use cpu_time::ProcessTime;
use futures::future::{BoxFuture, FutureExt, try_join_all};
use serde_json::{Value, json};
use soong::{
    ChildSpec, Config, Environment, ErrorInfo, RunRequest, Runtime,
    model::create_model,
    protocol::{Durability, Preset, RunStatus, ToolSpec},
    testing::{ScriptedModel, respond_async},
    tool::{Tool, ToolContext, ToolOutput, ToolResult},
};

/// A tool that answers immediately.
struct Noop(ToolSpec);

impl Tool for Noop {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolContext, _: Value) -> BoxFuture<'static, ToolResult> {
        async { Ok(ToolOutput::text("", "ok")) }.boxed()
    }
}

struct Bench {
    /// Never answers.
    silent: Arc<ScriptedModel>,
    runtime: Runtime,
    scenario: String,
    n: usize,
}

impl Bench {
    async fn open(
        scenario: String,
        n: usize,
        store: &str,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let database =
            PathBuf::from(std::env::var("BENCH_DB").unwrap_or_else(|_| "bench.db".to_owned()));
        let home = database.with_extension("home");
        let base_url =
            std::env::var("BASE_URL").unwrap_or_else(|_| "http://127.0.0.1:8089/v1".to_owned());
        let mut config = Config::default();
        config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
        config.storage.durability = if store == "normal" {
            Durability::Normal
        } else {
            Durability::Full
        };
        // The default limits are made for real providers. Here they would dominate the result, so
        // they are raised.
        let at_once = if scenario == "cancel" { n } else { 128 };
        config.model.max_concurrency = Some(at_once);
        config.agents.max_children_per_run = 100_000;
        config.model.max_tool_calls = 100_000;
        config.agents.max_concurrent_children_per_session = at_once;
        config.model.name = Some("mock".to_owned());
        let schema = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let noop = Noop(ToolSpec::read("noop", "Nothing", "A tool.", schema));
        config.model.base_url = Some(base_url);
        let model = create_model(&config.model, &Environment::of([("OPENAI_API_KEY", "x")]))?;
        let preset = Preset {
            name: "bench".to_owned(),
            description: "Hands out work.".to_owned(),
            allowed_tools: Some(vec!["agent".to_owned()]),
            instructions: "You are a helpful agent.".to_owned(),
            coordinates: true,
            ..Preset::default()
        };
        let worker = Preset {
            name: "default".to_owned(),
            allowed_tools: None,
            coordinates: false,
            ..preset.clone()
        };
        let silent = Arc::new(respond_async(|_| std::future::pending()));
        let runtime = Runtime::builder()
            .home(home)
            .project_dir(std::env::temp_dir())
            .config(config)
            .model("default", model)
            .model("silent", silent.clone())
            .tool(Arc::new(noop))
            .preset(preset)
            .preset(worker)
            .build()
            .await?;
        Ok(Self {
            silent,
            runtime,
            scenario,
            n,
        })
    }

    fn start(&self, message: String, tools: &[&str]) -> RunRequest {
        RunRequest::new(message).tools(tools.iter().copied())
    }

    async fn answer(&self, start: RunRequest) -> Result<String, ErrorInfo> {
        let outcome = self.runtime.start(start).await?.wait().await?;
        Ok(match &outcome.error {
            Some(error) => error.to_string(),
            None => outcome.output.clone(),
        })
    }

    /// Starts N sub-agents that wait forever, cancels their parent, and returns the time that took.
    async fn cancel(&self) -> Result<Duration, ErrorInfo> {
        let n = self.n;
        let before = self.silent.calls();
        let parent = self
            .runtime
            .start(RunRequest::driven("cancel").tools(["noop"]))
            .await?;
        let spec = |i| ChildSpec::new(format!("{i}")).model("silent");
        try_join_all((0..n).map(|i| parent.spawn(spec(i)))).await?;
        while self.silent.calls() < before + n {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let start = Instant::now();
        parent.cancel().await?;
        let took = start.elapsed();
        let children = parent.children().await?;
        assert!(
            children
                .iter()
                .all(|child| child.status == RunStatus::Cancelled),
            "a child was not cancelled"
        );
        Ok(took)
    }

    async fn repetition(&self) -> Result<Vec<String>, ErrorInfo> {
        let n = self.n;
        match self.scenario.as_str() {
            "single" => Ok(vec![
                self.answer(self.start(format!("bench: tools={n}"), &["noop"]))
                    .await?,
            ]),
            "fanout" => {
                let start = self.start(format!("bench: fanout={n} tools=2"), &["agent", "noop"]);
                Ok(vec![self.answer(start.preset("bench")).await?])
            }
            "gather" => {
                let parent = self
                    .runtime
                    .start(RunRequest::driven("gather").tools(["noop"]))
                    .await?;
                let children = (0..n).map(|i| {
                    let parent = parent.clone();
                    async move {
                        let child = parent
                            .spawn(ChildSpec::new(format!("bench: tools=2 id={i}")))
                            .await?;
                        Ok::<_, ErrorInfo>(child.wait().await?.output.clone())
                    }
                });
                let answers = try_join_all(children).await?;
                parent.finish("all done")?;
                parent.wait().await?;
                Ok(answers)
            }
            "sessions" => {
                let one = |i| self.answer(self.start(format!("bench: tools=0 id={i}"), &["noop"]));
                try_join_all((0..n).map(one)).await
            }
            other => Ok(vec![format!("unknown scenario {other}")]),
        }
    }
}

/// Peak resident memory of this process, in KiB.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    status
        .lines()
        .find(|line| line.starts_with("VmHWM"))?
        .split_whitespace()
        .nth(1)?
        .parse()
        .ok()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |what: &str| {
        arguments
            .next()
            .ok_or_else(|| format!("usage: SCENARIO N REPS STORE ({what} is missing)"))
    };
    let scenario = next("SCENARIO")?;
    let n = next("N")?.parse()?;
    let reps = next("REPS")?.parse::<usize>()?;
    let store = next("STORE").unwrap_or_else(|_| "full".to_owned());
    let bench = Bench::open(scenario, n, &store).await?;
    let mut rows = Vec::new();
    let mut answers = 0;
    let mut bad = 0;
    for _ in 0..reps {
        let wall = Instant::now();
        let cpu = ProcessTime::now();
        let (out, took) = match bench.scenario.as_str() {
            "cancel" => (vec!["done".to_owned()], bench.cancel().await?),
            _ => (bench.repetition().await?, wall.elapsed()),
        };
        rows.push(json!({"wall_ms": took.as_secs_f64() * 1e3, "cpu_ms": cpu.elapsed().as_secs_f64() * 1e3}));
        answers += out.len();
        for wrong in out.iter().filter(|answer| !answer.contains("done")) {
            bad += 1;
            eprintln!("wrong answer: {wrong}");
        }
    }
    bench.runtime.close().await;
    let limits = json!({"max_concurrency": bench.runtime.info().config().model.max_concurrency, "max_children": 100_000});
    println!(
        "{}",
        json!({"rss_kib": peak_kib(), "reps": rows, "answers": answers, "bad": bad, "limits": limits})
    );
    Ok(())
}
