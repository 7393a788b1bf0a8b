//! A program starts children by itself, joins what they bring and has one judge it, without a model above them.
//!
//! The parent is a *driven* run: it has no agent loop, but it is stored, supervised, shown in the
//! tree and cancelled like any other, with everything below it.
//! `cargo run -p soong --example spawn_children`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::{ChildSpec, Runtime, Start};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (home, project) = (tempfile::tempdir()?, tempfile::tempdir()?);
    for folder in ["engine", "server", "docs"] {
        std::fs::create_dir(project.path().join(folder))?;
        std::fs::write(project.path().join(folder).join("README.md"), format!("# The {folder} part\n"))?;
    }
    let runtime = Runtime::builder().home(home.path()).project_dir(project.path()).offline().build().await?;
    let parent = runtime.start(Start::driven("Look for three words")).await?;

    // All at once, in one commit; they work side by side, and one that fails cancels nobody.
    let children = parent.spawn_all(["engine", "server", "docs"].map(ChildSpec::explore)).await?;
    let mut found = Vec::new();
    for (child, outcome) in children.iter().zip(children.join().await) {
        let output = outcome?.output.clone();
        let told = output.lines().find(|line| line.starts_with("The words"));
        println!("{}\n    {}", child.trace_id(), told.unwrap_or(&output));
        found.push(output);
    }

    // Each child has a record: how it ended, what it brought, what it used.
    let judge = ChildSpec::evaluate("Is each of the three words found?").context(found.join("\n"));
    parent.spawn(judge).await?.wait().await?;
    for result in parent.results().await? {
        println!("{:<8} {} {} tokens", result.mode.as_str(), result.status.as_str(), result.stats.own.total_tokens);
    }

    parent.finish("looked for, and judged")?;
    let outcome = parent.wait().await?;
    println!("{}: {} tokens with all children", outcome.output, outcome.stats.tree.total_tokens);
    runtime.close().await;
    Ok(())
}
