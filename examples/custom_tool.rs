//! Adds custom tools written in Rust, one that reads and one that writes, and decides permissions for the second.
//!
//! The JSON schema is derived from the type of the arguments, and arguments are validated before the tool is called.
//! A tool that changes something requires permission; here a program decides. The model follows a script, so that the
//! example needs no key; a real model would choose the tools by their descriptions.
//!
//! `cargo run -p soong --example custom_tool`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::{Arc, Mutex};

use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::json;
use soong::{
    ErrorInfo, Runtime,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    permission::{ApprovalDecision, PermissionHandler},
    protocol::{Decision, Permission, Role, ToolCall},
    schemars::{self, JsonSchema},
    tool::{self, ToolOutput},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Text {
    /// The text.
    text: String,
}

/// Allows short notes, and denies others with a reason.
struct ShortNotes;

impl PermissionHandler for ShortNotes {
    fn decide(&self, asked: Permission) -> BoxFuture<'static, Result<ApprovalDecision, ErrorInfo>> {
        async move {
            Ok(match asked.arguments.len() {
                0..=80 => Decision::AllowOnce.into(),
                _ => ApprovalDecision { decision: Decision::Deny, reason: Some("notes are short here".to_owned()) },
            })
        }
        .boxed()
    }
}

/// A model that requests one tool after the other, then answers with their results.
struct Script;

impl Model for Script {
    fn name(&self) -> &str {
        "script"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        _: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        let said = request.messages.iter().filter(|message| message.role == Role::Tool);
        let said: Vec<&str> = said.map(|message| message.content.as_str()).collect();
        let call = |name: &str, text: String| ToolCall {
            id: format!("call_{}", said.len()),
            name: name.to_owned(),
            arguments: json!({ "text": text }).to_string(),
        };
        let calls = match said.as_slice() {
            [] => vec![call("count_words", "every word of this text is counted".to_owned())],
            [words] => vec![call("note", format!("{words} words"))],
            [words, _] => vec![call("note", format!("{words} words, and much more to be said about them"))],
            _ => Vec::new(),
        };
        let completion = Completion {
            text: if calls.is_empty() { said.join("\n") } else { String::new() },
            finish_reason: if calls.is_empty() { "stop" } else { "tool_calls" }.to_owned(),
            tool_calls: calls,
            ..Completion::default()
        };
        async { Ok(completion) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let notes = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&notes);
    let count = tool::function("count_words", "Counts the words of a text.", |_, Text { text }| async move {
        Ok(ToolOutput::text("counted", text.split_whitespace().count().to_string()))
    });
    let note = tool::function("note", "Keeps a note.", move |_, Text { text }| {
        let kept = Arc::clone(&kept);
        async move {
            kept.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(text);
            Ok(ToolOutput::text("kept", "kept"))
        }
    });
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .model("default", Arc::new(Script))
        .tool(count.build())
        .tool(note.writes().build())
        .permission_handler(Arc::new(ShortNotes))
        .build()
        .await?;
    let run = runtime.start("count, and keep notes").await?;
    println!("{}", run.wait().await?.output);
    println!("notes: {:?}", notes.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    runtime.close().await;
    Ok(())
}
