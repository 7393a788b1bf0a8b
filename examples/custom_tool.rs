//! Registers a tool written in Rust, and lets a model call it.
//!
//! The schema is checked before the tool is called: what arrives fits it. The model here follows a
//! script, so that the example needs no key; a real one would choose the tool by its description.
//! `cargo run -p soong --example custom_tool`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt};
use serde::Deserialize;
use serde_json::{Value, json};
use soong::{
    Runtime,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    protocol::{Role, ToolCall, ToolSpec},
    tool::{self, Tool, ToolContext, ToolOutput, ToolResult},
};

/// Counts the words of a text.
struct CountWords(ToolSpec);

#[derive(Deserialize)]
struct Arguments {
    text: String,
}

impl CountWords {
    fn new() -> Self {
        let schema = json!({
            "type": "object",
            "properties": {"text": {"type": "string", "description": "What to count."}},
            "required": ["text"],
            "additionalProperties": false
        });
        Self(ToolSpec::read("count_words", "Count words", "Counts the words of a text.", schema))
    }
}

impl Tool for CountWords {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn call(&self, _: ToolContext, arguments: Value) -> BoxFuture<'static, ToolResult> {
        async {
            let Arguments { text } = tool::arguments(arguments)?;
            Ok(ToolOutput::text("counted", text.split_whitespace().count().to_string()))
        }
        .boxed()
    }
}

/// Asks for the tool with the user's text, then answers with what the tool said.
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
        let last = request.messages.last();
        let said = last.map(|message| message.content.clone()).unwrap_or_default();
        let mut completion = Completion { finish_reason: "stop".to_owned(), ..Completion::default() };
        if last.is_some_and(|message| message.role == Role::Tool) {
            completion.text = format!("Your text has {said} words.");
        } else {
            let arguments = json!({"text": said}).to_string();
            completion.tool_calls =
                vec![ToolCall { id: "call_1".to_owned(), name: "count_words".to_owned(), arguments }];
            completion.finish_reason = "tool_calls".to_owned();
        }
        async { Ok(completion) }.boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .register_provider("default", Arc::new(Script))
        .register_tool(Arc::new(CountWords::new()))
        .build()
        .await?;
    let run = runtime.start("every word of this text is counted by a tool").await?;
    println!("{}", run.wait().await?.output);
    runtime.close().await;
    Ok(())
}
