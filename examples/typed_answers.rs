//! A run whose answer is a value: the model is given a schema, may mend an answer that does not fit once, and the
//! program reads a struct. A budget keeps it from doing more than it was given.
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
    Runtime, Start,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    protocol::{Budget, Usage},
};

/// What the program wants to know.
#[derive(Debug, Deserialize)]
struct Weather {
    city: String,
    celsius: f64,
}

/// Stands in for a real model: it chats at first, and answers properly when it is told what does not fit.
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
        .register_provider("default", Arc::new(Chatty::default()))
        .build()
        .await?;
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "celsius": {"type": "number"}},
        "required": ["city", "celsius"]
    });
    let budget = Budget { model_calls: Some(2), ..Budget::default() };
    let run = runtime.start(Start::new("How warm is it in Lisbon?").expect(schema).budget(budget)).await?;
    let weather: Weather = run.wait_as().await?;
    println!("{}: {} degrees", weather.city, weather.celsius);
    println!("it took {} calls of the two that it had", run.wait().await?.stats.own.model_calls);

    // The budget is used up before the next run could begin its third call.
    let none = Budget { model_calls: Some(0), ..Budget::default() };
    let broke = runtime.start(Start::new("And in Porto?").budget(none)).await?.wait().await?;
    println!("without a budget: {}", broke.error.as_ref().map_or("", |error| error.code.as_str()));
    runtime.close().await;
    Ok(())
}
