//! A model provider of one's own that streams its answer, shown word by word as it comes.
//!
//! One call is one attempt: what fails in a way that may pass (`ModelError::is_retryable`) is tried
//! again by the profile's gateway. Streamed text is live only; the answer is stored whole.
//! `cargo run -p soong --example custom_model`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::{io::Write, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use soong::{
    Runtime, StreamItem,
    model::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest},
    protocol::{Delta, Role, Usage},
};

/// Says what it was asked, backwards.
struct Backwards;

impl Model for Backwards {
    fn name(&self) -> &str {
        "backwards"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let asked = request.messages.iter().rev().find(|message| message.role == Role::User);
            let asked = asked.ok_or_else(|| ModelError::new(Failure::Refused, "nobody asked anything"))?;
            let mut text = String::new();
            for word in asked.content.split_whitespace().rev() {
                // A service takes its time. Whoever cancels the run drops this future here.
                tokio::time::sleep(Duration::from_millis(60)).await;
                let piece = format!("{word} ");
                text.push_str(&piece);
                deltas.push(Delta::Text { text: piece });
            }
            let words = text.split_whitespace().count() as u64;
            let usage = Usage { prompt_tokens: words, completion_tokens: words, ..Usage::default() };
            Ok(Completion { text, usage: Some(usage), finish_reason: "stop".to_owned(), ..Completion::default() })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .register_provider("default", Arc::new(Backwards))
        .build()
        .await?;
    let run = runtime.start("backwards runs sentence this").await?;
    let mut events = run.events()?;
    while let Some(item) = events.next().await {
        match item? {
            StreamItem::Delta(live) => {
                let (Delta::Text { text } | Delta::Reasoning { text } | Delta::ToolProgress { text, .. }) = &live.delta;
                print!("{text}");
                std::io::stdout().flush()?;
            }
            StreamItem::Event(record) if record.event.is_terminal() => println!("({})", record.event.kind()),
            StreamItem::Event(_) | StreamItem::Lost(_) => {}
        }
    }
    runtime.close().await;
    Ok(())
}
