//! An agent asks a user. The run waits as a database row, survives the end of its process, and
//! resumes with the answer.
//!
//! `cargo run -p soong --example ask_a_person`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use serde_json::json;
use soong::{
    QuestionFilter, RunRequest, Runtime, RuntimeBuilder, StreamItem,
    protocol::{QuestionStatus, Role},
    testing::{call, respond, text},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let builder = || -> RuntimeBuilder {
        // A stand-in for a real model: asks for the color, then uses the answer.
        let painter = respond(|request| {
            match request
                .messages
                .iter()
                .find(|message| message.role == Role::Tool)
            {
                Some(answer) => text(format!("The door is {} now.", answer.content)),
                None => call(
                    "ask_human",
                    json!({ "question": "Which color should the door have?" }),
                ),
            }
        });
        Runtime::builder()
            .home(home.path())
            .project_dir(home.path())
            .model("default", painter)
    };
    let first = builder().build().await?;
    let run = first
        .start(RunRequest::new("Paint the door").session("house"))
        .await?;
    let mut events = run.events()?;
    while let Some(item) = events.next().await {
        if matches!(item?, StreamItem::Event(record) if record.event.kind() == "run_waiting") {
            break;
        }
    }
    first.close().await;

    // A later process, perhaps days later, finds the waiting run in the database.
    let second = builder().build().await?;
    let open = QuestionFilter {
        status: Some(QuestionStatus::Pending),
        ..QuestionFilter::default()
    };
    let question = second.questions().list(open).await?.remove(0);
    println!("{}", question.question);
    second
        .questions()
        .answer(&question.question_id, "blue")
        .await?;
    println!("{}", second.wait(&question.run_id).await?.output);
    second.close().await;
    Ok(())
}
