//! An agent asks a user. The run waits as a database row, survives the end of its process, and resumes with the
//! answer.
//!
//! `cargo run -p soong --example ask_a_person`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use soong::{
    QuestionFilter, RunRequest, Runtime, RuntimeBuilder,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    protocol::{QuestionStatus, Role, ToolCall},
};

/// A stand-in for a real model: asks for the color, then uses the answer.
struct DoorPainterModel;

impl Model for DoorPainterModel {
    fn name(&self) -> &str {
        "painter"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        _: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let heard = request.messages.iter().rev().find(|message| message.role == Role::Tool);
        let completion = match heard {
            Some(answer) => {
                Completion { text: format!("The door is {} now.", answer.content), ..Completion::default() }
            }
            None => Completion {
                tool_calls: vec![ToolCall {
                    id: "call_1".into(),
                    name: "ask_human".into(),
                    arguments: r#"{"question": "Which colour should the door have?"}"#.into(),
                }],
                ..Completion::default()
            },
        };
        async move { Ok(completion) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let builder = || -> RuntimeBuilder {
        Runtime::builder().home(home.path()).project_dir(home.path()).model("default", Arc::new(DoorPainterModel))
    };
    let first = builder().build().await?;
    let run = first.start(RunRequest::new("Paint the door").session("house")).await?;
    let mut events = run.events()?;
    while let Some(item) = events.next().await {
        if matches!(item?, soong::StreamItem::Event(record) if record.event.kind() == "run_waiting") {
            break;
        }
    }
    first.close().await;

    // A later process, perhaps days later, finds the waiting run in the database.
    let second = builder().build().await?;
    let open = QuestionFilter { status: Some(QuestionStatus::Pending), ..QuestionFilter::default() };
    let question = second.questions().list(open).await?.remove(0);
    println!("{}", question.question);
    let run = second.traces().handle(&question.run_id)?;
    second.questions().answer(&question.question_id, "blue").await?;
    println!("{}", run.wait().await?.output);
    second.close().await;
    Ok(())
}
