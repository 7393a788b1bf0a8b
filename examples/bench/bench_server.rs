//! Measures `soong serve`: requests and runs per second, many watchers, memory of idle sessions and
//! open WebSockets, completeness of event streams across disconnects and server restarts, and the
//! cost of a monitor.
//!
//! ```sh
//! cargo build --release
//! cargo run --release -p soong-bench --bin bench_server requests 64 5000    # clients, runs
//! cargo run --release -p soong-bench --bin bench_server watchers 1000 2000  # WebSockets on one run, events
//! cargo run --release -p soong-bench --bin bench_server idle 10000 1000     # sessions, WebSockets
//! cargo run --release -p soong-bench --bin bench_server storm 10000 4       # disconnects, restarts of the server
//! cargo run --release -p soong-bench --bin bench_server monitor 1000 150    # actors, pairs of rounds
//! ```
//!
//! Needs no key: a local model service answers immediately. The server is `target/release/soong`,
//! or the binary that `SOONG_BINARY` names. Its home is temporary and is removed at the end.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

#[path = "bench_server/client.rs"]
mod client;
#[path = "bench_server/idle.rs"]
mod idle;
#[path = "bench_server/model.rs"]
mod model;
#[path = "bench_server/monitor.rs"]
mod monitor;
#[path = "bench_server/requests.rs"]
mod requests;
#[path = "bench_server/server.rs"]
mod server;
#[path = "bench_server/storm.rs"]
mod storm;
#[path = "bench_server/watchers.rs"]
mod watchers;

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| -> Result<usize, Failed> {
        arguments.get(index).map_or(Ok(default), |text| {
            text.parse()
                .map_err(|_| format!("{text:?} is not a number").into())
        })
    };
    match arguments.first().map(String::as_str) {
        Some("requests") => requests::measure(number(1, 64)?, number(2, 5_000)?).await,
        Some("watchers") => watchers::measure(number(1, 1_000)?, number(2, 2_000)?).await,
        Some("idle") => idle::measure(number(1, 10_000)?, number(2, 1_000)?).await,
        Some("monitor") => monitor::measure(number(1, 1_000)?, number(2, 50)?.max(2)).await,
        Some("storm") => storm::run(number(1, 10_000)?, number(2, 4)?).await,
        _ => Err(
            "usage: requests [CLIENTS] [RUNS], watchers [N] [EVENTS], idle [SESSIONS] [SOCKETS], \
                  storm [DISCONNECTS] [RESTARTS], monitor [ACTORS] [PAIRS]"
                .into(),
        ),
    }
}

/// Returns the value of a sorted list below which `share` of the values are.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted
        .get(index.min(sorted.len().saturating_sub(1)))
        .copied()
        .unwrap_or_default()
}
