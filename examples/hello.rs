//! The shortest program: one question to a real model. Needs `OPENAI_API_KEY`, or `OPENAI_BASE_URL`
//! of a local server.
//!
//! `cargo run -p soong --example hello`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::Runtime;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let runtime = Runtime::builder().load_config().build().await?;
    let run = runtime.start("Say hello in one sentence.").await?;
    println!("{}", run.answer().await?);
    runtime.close().await;
    Ok(())
}
