//! A tool that writes to a person through a chat, keeps the person among the collaborators of the run, and a callback
//! that adds a signature to each message.
//!
//! The model sees the person with the sub-agents: first as waiting, then as completed. A real tool would use the API of a
//! chat service; here, a function plays the person. The model follows a script, so that the example needs no key.
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
#[serde(deny_unknown_fields)]
struct ChatMessage {
    /// Name of the person.
    to: String,
    /// The message.
    text: String,
}

/// Plays the person: answers every message.
async fn answer_of(text: &str) -> String {
    format!("\"{text}\" is fine with me")
}

fn person(name: &str, status: CollaboratorStatus, summary: String) -> Collaborator {
    Collaborator { name: name.to_owned(), kind: CollaboratorKind::Human, trace_id: None, status, summary }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let chat = tool::function(
        "send_chat_message",
        "Writes to a person, and waits for the answer.",
        |context: ToolContext, ChatMessage { to, text }| async move {
            let waiting = person(&to, CollaboratorStatus::Waiting, format!("was sent {text:?}"));
            context.set_collaborator(waiting)?;
            let answer = answer_of(&text).await;
            context.named_artifacts()?.save("chat.txt", "text/plain", format!("{text}\n{answer}\n")).await?;
            context.set_collaborator(person(&to, CollaboratorStatus::Completed, answer.clone()))?;
            Ok(answer)
        },
    );
    let sign = Callback::new("sign").before_tool(|_, call| async move {
        let mut arguments = call.arguments;
        if let Some(text) = arguments["text"].as_str().filter(|_| call.name == "send_chat_message") {
            arguments["text"] = json!(format!("{text} (sent by an agent)"));
            return Ok(Before::Change(arguments));
        }
        Ok(Before::Continue)
    });
    let model = script([
        call("send_chat_message", json!({ "to": "Tan", "text": "May the plan be carried out?" })),
        text("Tan agrees to the plan."),
    ]);
    let builder = Runtime::builder().home(home.path().join("home")).project_dir(home.path()).model("default", model);
    let runtime = builder.tool(chat.build()).callback(sign).build().await?;
    let run = runtime.start("Ask Tan whether the plan is fine").await?;
    println!("{}", run.answer().await?);
    for collaborator in runtime.traces().get(run.trace_id()).await?.context.collaborators {
        println!("{}", collaborator.line());
    }
    runtime.close().await;
    Ok(())
}
