//! A service that owns a home: it resumes interrupted runs when it starts, restarts crashed actors,
//! reports what runs do, and closes without losing work.
//!
//! `cargo run -p soong --example supervised_service`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::{RunFilter, RunRequest, Runtime};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let project = tempfile::tempdir()?;
    std::fs::write(
        project.path().join("README.md"),
        "# Tally\n\nCounts words.\n",
    )?;

    // Only one process can own a home. Runs that an earlier owner did not finish are resumed here.
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(project.path())
        .offline()
        .build()
        .await?;
    println!("resumed: {:?}", runtime.info().interrupted_runs().resumed);

    // Runs of one session take turns; sessions run concurrently.
    for (session, task) in [
        ("a", "What is this?"),
        ("a", "What does it count?"),
        ("b", "List the files."),
    ] {
        runtime
            .start(RunRequest::new(task).session(session))
            .await?;
    }
    // A crash drill: the supervisor of the sessions is restarted, and the runs continue.
    runtime.tree().inject_crash("session_supervisor:0")?;
    for run in runtime.runs(RunFilter::active()) {
        println!(
            "{}: {}",
            run.session_id(),
            run.wait().await?.status.as_str()
        );
    }

    // The snapshot of the actor tree sends no message to any actor; `watch` reports its changes.
    let tree = runtime.tree().snapshot();
    println!(
        "actors below the root: {}",
        tree.map_or(0, |root| root.children.len())
    );

    // Closing stops all actors. A run that is still active would be resumed by the next owner.
    runtime.close().await;
    println!("actors and tasks left: {}", runtime.tree().live_count());
    Ok(())
}
