//! A run with a typed answer: the model receives a schema, may correct an invalid answer once, and
//! the program reads a struct. A budget limits a run.
//!
//! `cargo run -p soong --example typed_answers`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use serde::Deserialize;
use soong::{
    RunRequest, Runtime,
    protocol::Budget,
    schemars::{self, JsonSchema},
    testing::{script, text},
};

/// Answer that the program needs.
#[derive(Debug, Deserialize, JsonSchema)]
struct Weather {
    city: String,
    celsius: f64,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    // A stand-in for a real model: answers in prose first, and correctly once it receives the
    // validation error.
    let model = script([
        text("It is rather mild in Lisbon today."),
        text("```json\n{\"city\": \"Lisbon\", \"celsius\": 19.5}\n```"),
    ]);
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .model("default", model)
        .build()
        .await?;
    let weather: Weather = runtime.ask_as("How warm is it in Lisbon?").await?;
    println!("{}: {} degrees", weather.city, weather.celsius);

    // With a budget of zero model calls, a run ends before its first call.
    let none = Budget {
        model_calls: Some(0),
        ..Budget::default()
    };
    let run = runtime
        .start(RunRequest::new("And in Porto?").budget(none))
        .await?;
    println!(
        "without a budget: {:?}",
        run.answer().await.map_err(|error| error.code)
    );
    runtime.close().await;
    Ok(())
}
