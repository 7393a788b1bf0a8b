//! A program starts child runs itself, collects their results and lets another one evaluate them,
//! without an orchestrating model.
//!
//! The parent is a *driven* run: it has no agent loop, but it is stored, supervised, shown in the
//! actor tree and cancelled like any other run, together with its children.
//!
//! `cargo run -p soong --example spawn_children`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::{ChildSpec, RunRequest, Runtime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let project = tempfile::tempdir()?;
    for folder in ["engine", "server", "docs"] {
        std::fs::create_dir(project.path().join(folder))?;
        std::fs::write(
            project.path().join(folder).join("README.md"),
            format!("# The {folder} part\n"),
        )?;
    }
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(project.path())
        .offline()
        .build()
        .await?;
    let parent = runtime
        .start(RunRequest::driven("Look for three words"))
        .await?;

    // All children start together, in one commit. They run concurrently, and a failing child
    // cancels no other.
    let children = parent
        .spawn_all(["engine", "server", "docs"].map(ChildSpec::explore))
        .await?;
    let mut found = Vec::new();
    for (child, outcome) in children.iter().zip(children.join().await) {
        let output = outcome?.output.clone();
        let summary = output.lines().find(|line| line.starts_with("The words"));
        println!("{}\n    {}", child.trace_id(), summary.unwrap_or(&output));
        found.push(output);
    }

    // Each child run has a record with its status, its result and its usage.
    let judge = ChildSpec::evaluate("Is each of the three words found?").context(found.join("\n"));
    parent.spawn(judge).await?.wait().await?;
    for result in parent.results().await? {
        println!(
            "{:<8} {} {} tokens",
            result.mode.as_str(),
            result.status.as_str(),
            result.stats.own.total_tokens
        );
    }

    parent.finish("looked for, and judged")?;
    let outcome = parent.wait().await?;
    println!(
        "{}: {} tokens with all children",
        outcome.output, outcome.stats.tree.total_tokens
    );
    runtime.close().await;
    Ok(())
}
