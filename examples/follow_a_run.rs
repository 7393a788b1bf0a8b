//! Starts a run on a small project and follows its events to the end.
//!
//! Needs no key: it uses the built-in, rule-based offline model.
//!
//! `cargo run -p soong --example follow_a_run`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::{
    RunRequest, Runtime, StreamItem,
    protocol::{ArtifactEvent, Event, GoalEvent, RunMode, SubAgentEvent},
};

/// Returns a line for the events that most users are interested in.
fn line(event: &Event) -> Option<String> {
    Some(match event {
        Event::Goal(GoalEvent::Added { goal, .. }) => {
            format!("goal {}: {}", goal.id, goal.description)
        }
        Event::SubAgent(SubAgentEvent::Started { mode, task, .. }) => {
            format!(
                "{} started: {}",
                mode.as_str(),
                task.lines().next().unwrap_or_default()
            )
        }
        Event::SubAgent(SubAgentEvent::Completed {
            sub_trace_id,
            status,
            ..
        }) => {
            let name = sub_trace_id.as_str().rsplit('@').next().unwrap_or_default();
            format!("{name}: {}", status.as_str())
        }
        Event::Artifact(ArtifactEvent::Saved {
            name: Some(name),
            version,
            ..
        }) => {
            format!("artifact {name}, version {version}")
        }
        event if event.is_terminal() => event.kind().to_owned(),
        _ => return None,
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let project = tempfile::tempdir()?;
    std::fs::write(
        project.path().join("README.md"),
        "# Tally\n\nCounts words.\n",
    )?;
    std::fs::write(
        project.path().join("main.rs"),
        "fn main() {\n    println!(\"{}\", tally::count(\"a b\"));\n}\n",
    )?;
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(project.path())
        .offline()
        .build()
        .await?;

    let run = runtime
        .start(RunRequest::new("What is in this project?").mode(RunMode::Orchestrator))
        .await?;
    // Stored events come first, then live ones. None is missed, however late the stream is opened.
    let mut events = run.events()?;
    while let Some(item) = events.next().await {
        if let StreamItem::Event(record) = item?
            && let Some(line) = line(&record.event)
        {
            println!("{:>4}  {line}", record.event_id);
        }
    }

    println!("\n{}", run.wait().await?.output);
    runtime.close().await;
    Ok(())
}
