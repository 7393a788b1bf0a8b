//! Many watchers of one run over WebSockets, and one that does not read.

use std::time::{Duration, Instant};

use crate::{
    Failed,
    client::{Client, text},
    model::{self, TURNS},
    server::Server,
};

/// Approximate number of events of a turn with one tool call, used to choose the number of turns.
const EVENTS_A_TURN: usize = 6;

pub(crate) async fn measure(watchers: usize, events: usize) -> Result<(), Failed> {
    let server = Server::start(&model::start().await?)?;
    let client = Client::new(&server.url, &server.token)?;
    let turns = (events / EVENTS_A_TURN).clamp(1, 190);
    let task = format!("{TURNS}{turns}");
    let alone = run(&client, "alone", &task).await?;
    println!(
        "one run of {turns} turns without watchers: {:.2} s",
        alone.as_secs_f64()
    );

    client.start("watched", "hello").await?;
    while client.get("/api/traces/watched").await?["trace"]["status"] != "completed" {}
    let before = server.resident_kib()?;
    let mut readers = Vec::new();
    let connecting = Instant::now();
    for _ in 0..watchers {
        let mut socket = client.watch("/api/traces/watched/watch").await?;
        readers.push(tokio::spawn(async move {
            let mut at = 0_u64;
            let mut bytes = 0_usize;
            while let Some(message) = text(&mut socket).await {
                bytes += message.len();
                let Some(number) = number(&message) else {
                    continue;
                };
                if number != at + 1 {
                    return Err(Failed::from(format!("event {number} followed event {at}")));
                }
                at = number;
                // End of the second run.
                if message.contains("\"event\":\"run_completed\"") && at > 30 {
                    return Ok((at, bytes));
                }
            }
            Err("the connection ended".into())
        }));
    }
    let connected = connecting.elapsed();
    // The socket of this client fills up, then the server stops writing to it.
    let deaf = client.watch("/api/traces/watched/watch").await?;
    let open = server.resident_kib()?;
    println!(
        "{watchers} WebSockets opened in {:.2} s; each uses {:.1} KiB of server memory",
        connected.as_secs_f64(),
        (open.saturating_sub(before)) as f64 / watchers as f64
    );
    let start = Instant::now();
    let watched = run(&client, "watched", &task).await?;
    let mut delivered = 0;
    let mut bytes = 0;
    for reader in readers {
        let (events, read) = reader.await??;
        delivered += events;
        bytes += read;
    }
    let all = start.elapsed();
    println!(
        "the same run with {watchers} watchers, and one that does not read: {:.2} s; {delivered} events ({} MiB) \
         delivered after {:.2} s, {:.0} per second; server {} MiB",
        watched.as_secs_f64(),
        bytes / 1_048_576,
        all.as_secs_f64(),
        delivered as f64 / all.as_secs_f64(),
        server.resident_kib()? / 1_024
    );
    drop(deaf);
    Ok(())
}

async fn run(client: &Client, session: &str, task: &str) -> Result<Duration, Failed> {
    let start = Instant::now();
    let run = client.start(session, task).await?;
    loop {
        let record = client.get(&format!("/api/runs/{run}")).await?;
        match record["status"].as_str() {
            Some("completed") => return Ok(start.elapsed()),
            Some("failed" | "cancelled") => return Err(format!("the run ended: {record}").into()),
            _ => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

/// Returns the number of an event, or `None` if it has none.
pub(crate) fn number(message: &str) -> Option<u64> {
    let rest = message.strip_prefix("{\"event_id\":")?;
    rest.split(',').next()?.parse().ok()
}
