//! A custom model provider that streams its answer, printed word by word.
//!
//! One call is one attempt: errors that may pass (`ModelError::is_retryable`) are retried by the gateway of the
//! profile. Streamed text is only sent live; the complete answer is stored.
//!
//! `cargo run -p soong --example custom_model`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::{io::Write, sync::Arc, time::Duration};

use futures::future::{BoxFuture, FutureExt};
use soong::{
    Runtime, StreamItem,
    model::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest},
    protocol::{Delta, Role, Usage},
};

/// A model that answers with the words of the prompt in reverse order.
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
            let asked = asked.ok_or_else(|| ModelError::new(Failure::Rejected, "the request has no user message"))?;
            let mut text = String::new();
            for word in asked.content.split_whitespace().rev() {
                // Simulates the latency of a service. If the run is cancelled, this future is dropped here.
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
        .model("default", Arc::new(Backwards))
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
