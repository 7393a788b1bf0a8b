//! Throughput and latency of starting and completing runs.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Instant,
};

use serde_json::json;

use crate::{Failed, client::Client, model, quantile, server::Server};

/// Makes clients start runs one after the other, each in a new session. In the second measurement
/// each client also waits for the end of its run.
pub(crate) async fn measure(clients: usize, runs: usize) -> Result<(), Failed> {
    let server = Server::start(&model::start().await?)?;
    let client = Client::new(&server.url, &server.token)?;
    for at in 0..50 {
        completed(&client, &format!("warm-{at}")).await?;
    }
    for (what, whole) in [
        ("POST /api/traces alone, 202", false),
        ("POST /api/traces and the run's completion", true),
    ] {
        let next = Arc::new(AtomicUsize::new(0));
        let start = Instant::now();
        let tasks: Vec<_> = (0..clients)
            .map(|_| {
                let client = client.clone();
                let next = Arc::clone(&next);
                tokio::spawn(async move {
                    let mut took = Vec::new();
                    while let at = next.fetch_add(1, Relaxed)
                        && at < runs
                    {
                        let start = Instant::now();
                        let session = format!("s-{whole}-{at}");
                        if whole {
                            completed(&client, &session).await?;
                        } else {
                            client.start(&session, "hello").await?;
                        }
                        took.push(start.elapsed().as_secs_f64() * 1_000.0);
                    }
                    Ok::<_, Failed>(took)
                })
            })
            .collect();
        let mut took = Vec::new();
        for task in tasks {
            took.extend(task.await??);
        }
        let wall = start.elapsed().as_secs_f64();
        took.sort_by(f64::total_cmp);
        println!(
            "{what}: {clients} clients, {} runs: {:.0} per second, p50 {:.1} ms, p99 {:.1} ms, server {} MiB",
            took.len(),
            took.len() as f64 / wall,
            quantile(&took, 0.5),
            quantile(&took, 0.99),
            server.resident_kib()? / 1_024
        );
        // Wait until the runs that were only started have ended.
        while !client.get("/api/traces/running?limit=1").await?["traces"]
            .as_array()
            .is_none_or(Vec::is_empty)
        {
            tokio::task::yield_now().await;
        }
    }
    Ok(())
}

/// Starts a run with its event stream, and reads it to the end.
async fn completed(client: &Client, session: &str) -> Result<(), Failed> {
    let body = json!({ "prompt": "hello", "session_id": session });
    let mut frames = client.stream("/api/traces", Some(&body)).await?;
    while let Some(data) = frames.next().await {
        if data.contains("\"event\":\"run_completed\"") {
            return Ok(());
        }
    }
    Err("the stream ended before the run ended ended".into())
}
