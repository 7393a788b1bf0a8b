//! A custom model provider that streams its answer, printed word by word.
//!
//! One call is one attempt: the gateway of the profile retries transient errors.
//!
//! `cargo run -p soong --example custom_model`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::{io::Write, pin::pin, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture};
use soong::{
    Runtime,
    model::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest},
    protocol::{Delta, Role},
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
            let message = request
                .messages
                .iter()
                .rev()
                .find(|message| message.role == Role::User);
            let message = message.ok_or_else(|| {
                ModelError::new(Failure::Rejected, "the request has no user message")
            })?;
            let mut answer = String::new();
            for word in message.content.split_whitespace().rev() {
                // If the run is cancelled, this future is dropped here.
                tokio::time::sleep(Duration::from_millis(60)).await;
                answer = format!("{answer}{word} ");
                deltas.push(Delta::Text {
                    text: format!("{word} "),
                });
            }
            Ok(Completion::text(answer))
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
        .model("default", Backwards);
    let runtime = runtime.build().await?;
    let run = runtime.start("backwards runs sentence this").await?;
    let mut pieces = pin!(run.text_stream()?);
    while let Some(piece) = pieces.next().await {
        print!("{}", piece?);
        std::io::stdout().flush()?;
    }
    runtime.close().await;
    Ok(())
}
