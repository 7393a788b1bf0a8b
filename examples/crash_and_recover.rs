//! A run's actor crashes during a model call, and is restored from the journal.
//!
//! Its supervisor restarts it (at most 3 times in 60 s, then the run ends with `actor_crashed`). Recorded work is
//! kept, the interrupted model call is repeated, and the run handle stays valid.
//!
//! `cargo run -p soong --example crash_and_recover`

#![allow(clippy::print_stdout, reason = "an example shows its result")]

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use futures::future::{BoxFuture, FutureExt};
use soong::{
    Runtime, StreamItem,
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
};
use tokio::sync::Notify;

/// A model that never answers its first call, and answers every later one.
#[derive(Default)]
struct SlowAtFirst {
    calls: AtomicU32,
    called: Notify,
}

impl Model for SlowAtFirst {
    fn name(&self) -> &str {
        "slow-at-first"
    }

    fn complete<'a>(
        &'a self,
        _: &'a ModelRequest,
        _: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let call = self.calls.fetch_add(1, Ordering::Relaxed) + 1;
            self.called.notify_one();
            if call == 1 {
                std::future::pending::<()>().await;
            }
            let text = format!("answered at call {call}");
            Ok(Completion { text, finish_reason: "stop".to_owned(), ..Completion::default() })
        }
        .boxed()
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let home = tempfile::tempdir()?;
    let model = Arc::new(SlowAtFirst::default());
    let runtime =
        Runtime::builder().home(home.path()).project_dir(home.path()).model("default", model.clone()).build().await?;
    let run = runtime.start("Answer, whatever happens").await?;
    let mut events = run.events()?;

    model.called.notified().await;
    runtime.tree().inject_crash(&format!("run:{}", run.run_id()))?;

    while let Some(item) = events.next().await {
        if let StreamItem::Event(record) = item? {
            println!("{:>3}  {:<16} {}", record.event_id, record.event.kind(), record.data);
        }
    }
    println!("\n{}", run.wait().await?.output);
    runtime.close().await;
    Ok(())
}
