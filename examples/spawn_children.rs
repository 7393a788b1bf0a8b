//! A program starts children by itself and joins what they bring, without a model above them.
//!
//! The parent is a *driven* run: it has no agent loop, but it is stored, supervised, shown in the
//! tree and cancelled like any other, with everything below it.
//! `cargo run -p soong --example spawn_children`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use futures::future::try_join_all;
use soong::{ChildSpec, ErrorInfo, Runtime, Start, protocol::ChildMode};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for folder in ["engine", "server", "docs"] {
        std::fs::create_dir(project.path().join(folder))?;
        std::fs::write(project.path().join(folder).join("README.md"), format!("# The {folder} part\n"))?;
    }
    let runtime = Runtime::builder().home(home.path()).project_dir(project.path()).offline().build().await?;

    let parent = runtime.start(Start::driven("Look for three words")).await?;
    let children = ["engine", "server", "docs"].map(|word| {
        let parent = &parent;
        async move {
            let child = parent.spawn(ChildSpec::new(word).mode(ChildMode::Explore)).await?;
            Ok::<_, ErrorInfo>((child.trace_id().clone(), child.wait().await?))
        }
    });
    let results = try_join_all(children).await?;
    parent.finish(format!("{} words looked for", results.len()));
    let outcome = parent.wait().await?;

    for (trace, child) in &results {
        let found = child.output.lines().find(|line| line.starts_with("The words"));
        println!("{trace}\n    {}", found.unwrap_or(&child.output));
    }
    println!("{}: {} tokens with all children", outcome.output, outcome.stats.tree.total_tokens);
    runtime.close().await;
    Ok(())
}
