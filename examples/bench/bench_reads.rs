//! Measures how the cost of reading grows with the home: lists, single records, the actor tree and
//! usage.
//!
//! `cargo run --release -p soong-bench --bin bench_reads [RUNS=100000] [DIR]`, by default in the
//! current folder (everything written there is removed again). Each figure is the median of 50
//! reads, in milliseconds. A home with a thousandth of the runs is measured first.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

#[path = "bench_history/made.rs"]
#[allow(dead_code, reason = "only sessions are made")]
mod made;
#[path = "bench_history/rows.rs"]
mod rows;

use std::{path::Path, sync::Arc, time::Instant};

use soong::{
    Runtime, SessionFilter, TraceFilter, UsageFilter,
    offline::Offline,
    protocol::{SessionId, TraceId, TraceStatus, UsageBy},
};

type Failed = Box<dyn std::error::Error + Send + Sync>;

const READS: usize = 50;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let runs: u64 = arguments.next().map_or(Ok(100_000), |text| text.parse())?;
    let dir = arguments
        .next()
        .map_or_else(|| ".".into(), std::path::PathBuf::from);
    println!("{:>8} {:<24} {:>10}", "runs", "read", "ms");
    for count in [(runs / 1_000).max(1), runs] {
        let home = tempfile::Builder::new()
            .prefix("bench-reads")
            .tempdir_in(&dir)?;
        made::sessions(home.path(), count, 4)?;
        measure(home.path(), count).await?;
    }
    Ok(())
}

async fn measure(home: &Path, count: u64) -> Result<(), Failed> {
    let builder = Runtime::builder()
        .home(home)
        .project_dir(std::env::temp_dir());
    let runtime = builder
        .model("default", Arc::new(Offline::default()))
        .build()
        .await?;
    let last = format!("session-{:06}", count - 1);
    let session = SessionId::new(last.clone());
    let trace = TraceId::new(last);
    let running = || TraceFilter {
        is_live: true,
        status: Some(TraceStatus::Running),
        ..TraceFilter::default()
    };
    let show = |what: &str, ms: f64| println!("{count:>8} {what:<24} {ms:>10.3}");
    show(
        "a session",
        median(async || runtime.sessions().get(&session).await.map(drop)).await?,
    );
    show(
        "a page of sessions",
        median(async || {
            runtime
                .sessions()
                .list(SessionFilter::default(), 100, None)
                .await
                .map(drop)
        })
        .await?,
    );
    show(
        "a trace",
        median(async || runtime.traces().get(&trace).await.map(drop)).await?,
    );
    show(
        "goals of a trace",
        median(async || runtime.traces().goal_tree(&trace).await.map(drop)).await?,
    );
    show(
        "a page of traces",
        median(async || {
            runtime
                .traces()
                .list(TraceFilter::default(), 100, None)
                .await
                .map(drop)
        })
        .await?,
    );
    show(
        "running traces",
        median(async || runtime.traces().list(running(), 100, None).await.map(drop)).await?,
    );
    show(
        "the tree",
        median(async || runtime.tree().snapshot().map(drop).ok_or("closed")).await?,
    );
    for (what, by) in [
        ("usage by day", UsageBy::Day),
        ("usage by model", UsageBy::Model),
    ] {
        show(
            what,
            median(async || {
                runtime
                    .traces()
                    .usage(by, UsageFilter::default())
                    .await
                    .map(drop)
            })
            .await?,
        );
    }
    let nobodys = || SessionFilter {
        uid: Some("nobody".into()),
        ..SessionFilter::default()
    };
    show(
        "sessions of a user",
        median(async || {
            runtime
                .sessions()
                .list(nobodys(), 100, None)
                .await
                .map(drop)
        })
        .await?,
    );
    let nobodys = || TraceFilter {
        uid: Some("nobody".into()),
        ..TraceFilter::default()
    };
    let failed = || TraceFilter {
        status: Some(TraceStatus::Failed),
        ..TraceFilter::default()
    };
    show(
        "failed traces",
        median(async || runtime.traces().list(failed(), 100, None).await.map(drop)).await?,
    );
    let of_agent = || TraceFilter {
        agent_type: Some("nobody".into()),
        ..TraceFilter::default()
    };
    show(
        "traces of an agent type",
        median(async || runtime.traces().list(of_agent(), 100, None).await.map(drop)).await?,
    );
    show(
        "traces of a user",
        median(async || runtime.traces().list(nobodys(), 100, None).await.map(drop)).await?,
    );
    runtime.close().await;
    Ok(())
}

async fn median<E: Into<Failed>>(
    mut read: impl AsyncFnMut() -> Result<(), E>,
) -> Result<f64, Failed> {
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let start = Instant::now();
        read().await.map_err(Into::into)?;
        times.push(start.elapsed().as_secs_f64() * 1_000.0);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[READS / 2])
}
