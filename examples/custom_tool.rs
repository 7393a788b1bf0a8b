//! Adds custom tools written in Rust, one that reads and one that writes, and decides permissions
//! for the second.
//!
//! The JSON schema is derived from the type of the arguments, and arguments are validated before
//! the tool is called. A tool that changes something requires permission; here a function decides.
//! The model follows a script, so that the example needs no key; a real model would choose the
//! tools by their descriptions.
//!
//! `cargo run -p soong --example custom_tool`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use serde::Deserialize;
use serde_json::json;
use soong::{
    Runtime,
    protocol::Decision,
    schemars::{self, JsonSchema},
    testing::{call, script, text},
    tool::{self, ToolContext},
};

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Note {
    /// The text.
    text: String,
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let count = tool::function(
        "count_words",
        "Counts the words of a text.",
        |_, Note { text }| async move { Ok(text.split_whitespace().count().to_string()) },
    );
    let note = tool::function(
        "note",
        "Stores a note.",
        |context: ToolContext, Note { text }| async move {
            std::fs::write(context.project_dir.join("note.txt"), text)?;
            Ok("stored")
        },
    );
    let model = script([
        call(
            "count_words",
            json!({ "text": "every word of this text is counted" }),
        ),
        call("note", json!({ "text": "7 words" })),
        call(
            "note",
            json!({ "text": "7 words, and much more that nobody wanted to know" }),
        ),
        text("counted and noted"),
    ]);
    let runtime = Runtime::builder()
        .home(home.path().join("home"))
        .project_dir(home.path())
        .model("default", model);
    let runtime = runtime
        .tool(count.reads().build())
        .tool(note.writes().build())
        .on_permission(|request| async move {
            match request.arguments_as::<Note>() {
                Ok(note) if note.text.len() <= 20 => Decision::AllowOnce,
                _ => Decision::Deny,
            }
        });
    let runtime = runtime.build().await?;
    println!(
        "{}",
        runtime
            .start("count, and store notes")
            .await?
            .answer()
            .await?
    );
    println!(
        "note: {}",
        std::fs::read_to_string(home.path().join("note.txt"))?
    );
    runtime.close().await;
    Ok(())
}
