//! A tool that writes to a person and keeps the person among the collaborators of the run, and a
//! callback that signs each message. The model sees the person as waiting, then as completed. A
//! real tool would use the API of a chat service.
//!
//! `cargo run -p soong --example chat_with_a_person`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use serde::Deserialize;
use serde_json::json;
use soong::{
    Runtime,
    callback::{Before, Callback},
    protocol::{Collaborator, CollaboratorKind, CollaboratorStatus},
    schemars::{self, JsonSchema},
    testing::{call, script, text},
    tool::{self, ToolContext},
};

#[derive(Deserialize, JsonSchema)]
struct ChatMessage {
    /// Name of the person.
    to: String,
    /// The message.
    text: String,
}

fn person(name: &str, status: CollaboratorStatus, summary: String) -> Collaborator {
    Collaborator {
        name: name.to_owned(),
        kind: CollaboratorKind::Human,
        trace_id: None,
        status,
        summary,
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let send = async |context: ToolContext, ChatMessage { to, text }| {
        context.set_collaborator(person(
            &to,
            CollaboratorStatus::Waiting,
            format!("was sent {text:?}"),
        ))?;
        let answer = format!("\"{text}\" is fine with me"); // the service would answer later
        context
            .named_artifacts()?
            .save("chat.txt", "text/plain", format!("{text}\n{answer}\n"))
            .await?;
        context.set_collaborator(person(&to, CollaboratorStatus::Completed, answer.clone()))?;
        Ok(answer)
    };
    // A call that is repeated after a crash gets the answer to its first question.
    let chat = tool::function(
        "send_chat_message",
        "Writes to a person, and waits for the answer.",
        send,
    );
    let chat = chat.writes().idempotent().without_permission();
    let sign = Callback::new("sign").before_tool(|_, mut call| async move {
        let Some(text) = call.arguments["text"].as_str() else {
            return Ok(Before::Continue);
        };
        call.arguments["text"] = json!(format!("{text} (sent by an agent)"));
        Ok(Before::Change(call.arguments))
    });
    let message = json!({ "to": "Tan", "text": "May the plan be carried out?" });
    let model = script([
        call("send_chat_message", message),
        text("Tan agrees to the plan."),
    ]);
    let builder = Runtime::builder()
        .home(home.path().join("home"))
        .project_dir(home.path())
        .model("default", model);
    let runtime = builder.tool(chat.build()).callback(sign).build().await?;
    let run = runtime.start("Ask Tan whether the plan is fine").await?;
    println!("{}", run.answer().await?);
    for collaborator in runtime
        .traces()
        .get(run.trace_id())
        .await?
        .context
        .collaborators
    {
        println!("{}", collaborator.line());
    }
    runtime.close().await;
    Ok(())
}
