//! A run's actor crashes during a model call, and is restored from the journal.
//!
//! Its supervisor restarts it (at most 3 times in 60 s, then the run ends with `actor_crashed`).
//! Recorded work is kept, the interrupted model call is repeated, and the run handle stays valid.
//!
//! `cargo run -p soong --example crash_and_recover`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use soong::{
    Runtime, StreamItem,
    testing::{hang, script, text},
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let model = script([hang("the first"), text("answered at the second call")]);
    let runtime = Runtime::builder()
        .home(home.path())
        .project_dir(home.path())
        .model("default", model)
        .build()
        .await?;
    let run = runtime.start("Answer, whatever happens").await?;
    let mut events = run.events()?;
    let mut crashes = 0;
    while let Some(item) = events.next().await {
        match item? {
            StreamItem::Event(record) => {
                println!("{:>3}  {}", record.event_id, record.event.kind())
            }
            // The first call has begun, and will not end.
            StreamItem::Delta(_) if crashes == 0 => {
                runtime
                    .tree()
                    .inject_crash(&format!("run:{}", run.run_id()))?;
                crashes += 1;
            }
            _ => {}
        }
    }
    println!("\n{}", run.answer().await?);
    runtime.close().await;
    Ok(())
}
