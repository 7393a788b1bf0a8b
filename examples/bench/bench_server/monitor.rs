//! Cost of a monitor: CPU time of its own process for drawing, and its effect on the runtime that
//! it watches.
//!
//! First, runs that are never answered create a tree of the given number of actors. A monitor on a
//! terminal of 50 rows and 200 columns is measured while nothing changes. Then the offline model
//! completes runs as fast as possible, in alternating rounds with and without the monitor. Two
//! successive rounds form a pair. The result is the mean ratio of the pairs and its margin of
//! error.

use std::{
    io::{Read, Write},
    process::Child,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use pty_process::{
    Size,
    blocking::{Command, Pty, open},
};
use serde_json::json;

use crate::{
    Failed,
    client::Client,
    model::{self, HOLD},
    quantile,
    server::{self, Server},
};

/// Time without output after which a frame counts as complete.
const QUIET: Duration = Duration::from_millis(25);
/// Duration of a round.
const ROUND: Duration = Duration::from_millis(1_500);
/// Pause before each round, so that no work of the previous round is still running.
const PAUSE: Duration = Duration::from_millis(1_500);
/// Duration of the measurement of an idle monitor.
const IDLE: Duration = Duration::from_secs(10);
/// Number of clients that start runs.
const CLIENTS: usize = 16;
/// Clock ticks per second in /proc.
const TICKS: f64 = 100.0;

pub(crate) async fn measure(actors: usize, pairs: usize) -> Result<(), Failed> {
    let server = Server::start(&model::start().await?)?;
    let client = Client::new(&server.url, &server.token)?;
    fill(&client, actors).await?;
    let actor_count = count(&client.get("/api/tree").await?);
    println!(
        "{actor_count} actors, {} MiB",
        server.resident_kib()? / 1_024
    );

    let screen = Screen::open(&server)?;
    screen.settles();
    draws(&screen, &["\u{1b}[B"; 100], "next row")?;
    draws(&screen, &["\u{1b}[6~"; 50], "next page")?;
    draws(
        &screen,
        &["G", "g"].repeat(25),
        "first row to last row and back",
    )?;
    draws(&screen, &["t"].repeat(20), "sorted again")?;
    draws(
        &screen,
        &["/", "b", "e", "n", "\r", "\u{1b}"].repeat(4),
        "filter typed key by key",
    )?;
    let before = cpu(screen.child.id())?;
    let start = Instant::now();
    tokio::time::sleep(IDLE).await;
    let share = (cpu(screen.child.id())? - before) / start.elapsed().as_secs_f64() * 100.0;
    println!(
        "an idle monitor: {share:.2} % of a core, {} MiB",
        resident_kib(screen.child.id())? / 1_024
    );
    drop(screen);

    load(&client, "warm").await?;
    let mut done = Vec::new();
    for pair in 0..pairs {
        // The second round of a pair finds more stored data than the first, so the order
        // alternates.
        let is_first = pair % 2 == 1;
        let first = round_of(&server, &client, is_first, &format!("a{pair}")).await?;
        let second = round_of(&server, &client, !is_first, &format!("b{pair}")).await?;
        done.push(if is_first {
            (second, first)
        } else {
            (first, second)
        });
    }
    compare("runs per second", &done, |round| round.runs_a_second);
    compare("server CPU ms per run", &done, |round| round.cpu_ms);
    let monitor = done.iter().map(|(_, watched)| watched.monitor).sum::<f64>() / done.len() as f64;
    println!(
        "the monitor while runs complete: {:.1} % of a core",
        monitor * 100.0
    );
    Ok(())
}

/// Prints the ratio of watched to unwatched rounds: the geometric mean over the pairs, and its 95 %
/// confidence interval in percent.
fn compare(what: &str, pairs: &[(Round, Round)], pick: fn(&Round) -> f64) {
    let count = pairs.len() as f64;
    let mean = |of: &dyn Fn(&(Round, Round)) -> f64| pairs.iter().map(of).sum::<f64>() / count;
    let ratio = |(plain, watched): &(Round, Round)| (pick(watched) / pick(plain)).ln();
    let middle = mean(&ratio);
    let variance = mean(&|pair| (ratio(pair) - middle).powi(2)) * count / (count - 1.0);
    let plain = mean(&|(plain, _)| pick(plain));
    let watched = mean(&|(_, watched)| pick(watched));
    let off = 1.96 * (variance / count).sqrt() * 100.0;
    println!(
        "{what}: {plain:.2} unwatched, {watched:.2} watched, ratio {:.3} ± {off:.1} %",
        middle.exp()
    );
}

/// Starts runs that are never answered, each in its own session, until the tree has this many
/// actors.
async fn fill(client: &Client, actors: usize) -> Result<(), Failed> {
    // Each session has four actors: the session, its two supervisors, and the run.
    for at in 0..actors.div_ceil(4) {
        client.start(&format!("held-{at}"), HOLD).await?;
    }
    Ok(())
}

fn count(view: &serde_json::Value) -> usize {
    1 + view["children"]
        .as_array()
        .map_or(0, |children| children.iter().map(count).sum())
}

/// Result of a round.
struct Round {
    runs_a_second: f64,
    /// CPU time of the server per run.
    cpu_ms: f64,
    /// CPU time of the monitor as a share of one core.
    monitor: f64,
}

/// Completes runs for one round, with or without a monitor.
async fn round_of(
    server: &Server,
    client: &Client,
    is_watched: bool,
    name: &str,
) -> Result<Round, Failed> {
    let screen = is_watched.then(|| Screen::open(server)).transpose()?;
    tokio::time::sleep(PAUSE).await;
    let monitor = || {
        screen
            .as_ref()
            .map_or(Ok(0.0), |screen| cpu(screen.child.id()))
    };
    let server_before = cpu(server.pid()?)?;
    let monitor_before = monitor()?;
    let start = Instant::now();
    let runs = load(client, name).await? as f64;
    let took = start.elapsed().as_secs_f64();
    Ok(Round {
        runs_a_second: runs / took,
        cpu_ms: (cpu(server.pid()?)? - server_before) * 1_000.0 / runs,
        monitor: (monitor()? - monitor_before) / took,
    })
}

async fn load(client: &Client, name: &str) -> Result<usize, Failed> {
    let next = Arc::new(AtomicUsize::new(0));
    let until = Instant::now() + ROUND;
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|_| {
            let client = client.clone();
let next = Arc::clone(&next);
let name = name.to_owned();
            tokio::spawn(async move {
                let mut done = 0;
                while Instant::now() < until {
                    let session = format!("{name}-{}", next.fetch_add(1, Relaxed));
                    let body = json!({ "prompt": "Which project is this?", "session_id": session, "model": "offline" });
                    let mut frames = client.stream("/api/traces", Some(&body)).await?;
                    loop {
                        let frame = frames.next().await.ok_or("the stream ended before the run ended ended")?;
                        if frame.contains("\"event\":\"run_completed\"") {
                            break;
                        }
                    }
                    done += 1;
                }
                Ok::<usize, Failed>(done)
            })
        })
        .collect();
    let mut done = 0;
    for task in tasks {
        done += task.await??;
    }
    Ok(done)
}

/// Returns the CPU time of a process in seconds.
fn cpu(pid: u32) -> Result<f64, Failed> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks = |at: usize| {
        fields
            .get(at)
            .and_then(|field| field.parse::<f64>().ok())
            .ok_or("no CPU times in /proc")
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS)
}

fn resident_kib(pid: u32) -> Result<u64, Failed> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .ok_or("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// A monitor on a pseudo-terminal. Killed when dropped.
struct Screen {
    child: Child,
    pty: Arc<Pty>,
    last: Arc<Mutex<Instant>>,
    is_over: Arc<AtomicBool>,
}

impl Screen {
    fn open(server: &Server) -> Result<Self, Failed> {
        let (pty, pts) = open()?;
        pty.resize(Size::new(50, 200))?;
        let command = Command::new(server::binary()?)
            .arg("--home")
            .arg(server.home())
            .arg("monitor")
            .env("TERM", "xterm-256color");
        let child = command.spawn(pts)?;
        let pty = Arc::new(pty);
        let last = Arc::new(Mutex::new(Instant::now()));
        let is_over = Arc::<AtomicBool>::default();
        let from = Arc::clone(&pty);
        let seen = Arc::clone(&last);
        let ends = Arc::clone(&is_over);
        std::thread::spawn(move || {
            let mut buffer = vec![0; 65_536];
            while !ends.load(Relaxed) && (&*from).read(&mut buffer).is_ok_and(|read| read > 0) {
                *seen.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
            }
        });
        Ok(Self {
            child,
            pty,
            last,
            is_over,
        })
    }

    fn last(&self) -> Instant {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the screen has been unchanged for [`QUIET`]. Returns the time of its last
    /// change.
    fn settled_since(&self, begun: Instant, timeout: Duration) -> Option<Instant> {
        loop {
            let last = self.last();
            if last > begun && last.elapsed() >= QUIET {
                return Some(last);
            }
            if begun.elapsed() > timeout {
                return None;
            }
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    /// Waits until the initial state is drawn.
    fn settles(&self) {
        std::thread::sleep(Duration::from_secs(2));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends keys one after the other, and prints the time until each is drawn and the CPU time per
/// key.
fn draws(screen: &Screen, keys: &[&str], what: &str) -> Result<(), Failed> {
    let before = cpu(screen.child.id())?;
    let mut took = Vec::new();
    for key in keys {
        let begun = Instant::now();
        (&*screen.pty).write_all(key.as_bytes())?;
        // A key that changes nothing produces no output.
        if let Some(drawn) = screen.settled_since(begun, Duration::from_millis(200)) {
            took.push(drawn.duration_since(begun).as_secs_f64() * 1_000.0);
        }
    }
    let each = (cpu(screen.child.id())? - before) * 1_000.0 / keys.len() as f64;
    took.sort_by(f64::total_cmp);
    println!(
        "{what}: key to complete picture p50 {:.1} ms, p99 {:.1} ms; {each:.1} ms of CPU per key",
        quantile(&took, 0.5),
        quantile(&took, 0.99)
    );
    Ok(())
}
