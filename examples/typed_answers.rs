//! A run with a typed answer: the model receives a schema, may correct an invalid answer once, and the program reads
//! a struct. A budget limits the run.
//!
//! `cargo run -p soong --example typed_answers`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::json;
use soong::{
    RunRequest, Runtime,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    protocol::{Budget, Usage},
};

/// Answer that the program needs.
#[derive(Debug, Deserialize)]
struct Weather {
    city: String,
    celsius: f64,
}

/// A stand-in for a real model: answers in prose first, and correctly once it receives the validation error.
#[derive(Default)]
struct Chatty(AtomicUsize);

impl Model for Chatty {
    fn name(&self) -> &str {
        "chatty"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ModelRequest,
        _: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let text = match self.0.fetch_add(1, Ordering::Relaxed) {
            0 => "It is rather mild in Lisbon today.",
            _ => "```json\n{\"city\": \"Lisbon\", \"celsius\": 19.5}\n```",
        };
        let usage = Usage { prompt_tokens: 40, completion_tokens: 12, ..Usage::default() };
        let text = text.to_owned();
        async move { Ok(Completion { text, usage: Some(usage), finish_reason: "stop".into(), ..Completion::default() }) }
            .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .model("default", Arc::new(Chatty::default()))
        .build()
        .await?;
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "celsius": {"type": "number"}},
        "required": ["city", "celsius"]
    });
    let budget = Budget { model_calls: Some(2), ..Budget::default() };
    let run = runtime.start(RunRequest::new("How warm is it in Lisbon?").expect(schema).budget(budget)).await?;
    let weather: Weather = run.wait_as().await?;
    println!("{}: {} degrees", weather.city, weather.celsius);
    println!("{} of 2 model calls used", run.wait().await?.stats.own.model_calls);

    // With a budget of zero model calls, the run ends before its first call.
    let none = Budget { model_calls: Some(0), ..Budget::default() };
    let broke = runtime.start(RunRequest::new("And in Porto?").budget(none)).await?.wait().await?;
    println!("without a budget: {}", broke.error.as_ref().map_or("", |error| error.code.as_str()));
    runtime.close().await;
    Ok(())
}
