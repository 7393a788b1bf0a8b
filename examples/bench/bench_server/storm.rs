//! Repeatedly broken connections, over WebSockets and event streams, of single traces and whole
//! sessions, while runs are active and the server restarts. Every reader must receive each event
//! once and in order.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    Failed,
    client::{Client, text},
    model::{self, TURNS},
    server::Server,
};

/// Number of concurrent readers. Every second reader uses a WebSocket, and every second pair reads
/// a whole session.
const READERS: usize = 32;
/// Number of turns of a run that is read.
const RUN_TURNS: usize = 30;
/// Maximum number of events read over one connection.
const MAX_READ: u64 = 60;

/// State shared by all readers.
struct Storm {
    client: Client,
    /// Number of connections that readers have broken.
    breaks: AtomicUsize,
    wanted: usize,
    /// Number of connections that the server broke, or that failed while it was down.
    refused: AtomicUsize,
    sessions: AtomicUsize,
    events: AtomicUsize,
    /// Whether the server is expected to be running.
    is_up: AtomicBool,
}

pub(crate) async fn run(breaks: usize, restarts: usize) -> Result<(), Failed> {
    let mut server = Server::start(&model::start().await?)?;
    let storm = Arc::new(Storm {
        client: Client::new(&server.url, &server.token)?,
        breaks: AtomicUsize::new(0),
        wanted: breaks,
        refused: AtomicUsize::new(0),
        sessions: AtomicUsize::new(0),
        events: AtomicUsize::new(0),
        is_up: AtomicBool::new(true),
    });
    let start = Instant::now();
    let readers: Vec<_> = (0..READERS)
        .map(|reader| {
            let storm = Arc::clone(&storm);
            tokio::spawn(async move { storm.read(reader).await })
        })
        .collect();
    for restart in 1..=restarts {
        let due = breaks * restart / (restarts + 1);
        while storm.breaks.load(Relaxed) < due {
            tokio::time::sleep(Duration::from_millis(5)).await;
            if let Some(failed) = readers
                .iter()
                .position(tokio::task::JoinHandle::is_finished)
            {
                println!("reader {failed} ended early");
                break;
            }
        }
        storm.is_up.store(false, Relaxed);
        // Alternates between SIGTERM and `kill -9`.
        let gently = restart % 2 == 1;
        server =
            tokio::task::spawn_blocking(move || server.restart(gently).map(|()| server)).await??;
        storm.is_up.store(true, Relaxed);
    }
    for reader in readers {
        reader.await??;
    }
    println!(
        "{} disconnects by readers and {} by {restarts} restarts of the server, over {} runs and {} events, \
         in {:.1} s: 0 events missing, 0 duplicated",
        storm.breaks.load(Relaxed),
        storm.refused.load(Relaxed),
        storm.sessions.load(Relaxed),
        storm.events.load(Relaxed),
        start.elapsed().as_secs_f64()
    );
    Ok(())
}

impl Storm {
    async fn read(&self, reader: usize) -> Result<(), Failed> {
        let over_socket = reader.is_multiple_of(2);
        let whole = (reader / 2).is_multiple_of(2);
        let mut random = reader as u64 + 1;
        while self.breaks.load(Relaxed) < self.wanted {
            let session = format!("s{}", self.sessions.fetch_add(1, Relaxed));
            // If the server ends before it answers, it may have accepted the run. Starting again in
            // the same session then adds a second run, which only makes the stream longer.
            while self
                .client
                .start(&session, &format!("{TURNS}{RUN_TURNS}"))
                .await
                .is_err()
            {
                self.refused().await;
            }
            let mut seen = 0_u64;
            let mut done = false;
            while !done {
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let most = (random >> 33) % MAX_READ;
                let read = if over_socket {
                    self.over_socket(&session, whole, seen, most).await
                } else {
                    self.over_events(&session, whole, seen, most).await
                };
                match read {
                    Ok(Progress { last, ended }) => {
                        seen = last;
                        done = ended;
                        self.breaks.fetch_add(1, Relaxed);
                    }
                    Err(ReadError::Wrong(why)) => return Err(format!("{session}: {why}").into()),
                    Err(ReadError::Disconnected(last)) => {
                        seen = last;
                        self.refused().await;
                    }
                }
            }
            self.events.fetch_add(usize::try_from(seen)?, Relaxed);
        }
        Ok(())
    }

    async fn refused(&self) {
        self.refused.fetch_add(1, Relaxed);
        tokio::time::sleep(Duration::from_millis(if self.is_up.load(Relaxed) {
            1
        } else {
            20
        }))
        .await;
    }

    async fn over_socket(
        &self,
        session: &str,
        whole: bool,
        since: u64,
        most: u64,
    ) -> Result<Progress, ReadError> {
        let cursor = if whole {
            "since_session_seq"
        } else {
            "since_event_id"
        };
        let path = format!("/api/traces/{session}/watch?tree={whole}&{cursor}={since}");
        let mut read = Progress {
            last: since,
            ended: false,
        };
        let Ok(mut socket) = self.client.watch(&path).await else {
            return Err(ReadError::Disconnected(since));
        };
        for _ in 0..=most {
            let Some(message) = text(&mut socket).await else {
                return Err(ReadError::Disconnected(read.last));
            };
            if read.take(&message, whole)? {
                break;
            }
        }
        Ok(read)
    }

    async fn over_events(
        &self,
        session: &str,
        whole: bool,
        since: u64,
        most: u64,
    ) -> Result<Progress, ReadError> {
        let cursor = if whole {
            "since_session_seq"
        } else {
            "since_event_id"
        };
        let path = format!("/api/traces/{session}/events?tree={whole}&{cursor}={since}");
        let mut read = Progress {
            last: since,
            ended: false,
        };
        let Ok(mut frames) = self.client.stream(&path, None).await else {
            return Err(ReadError::Disconnected(since));
        };
        for _ in 0..most {
            let Some(frame) = frames.next().await else {
                return Err(ReadError::Disconnected(read.last));
            };
            if read.take(&frame, whole)? {
                break;
            }
        }
        Ok(read)
    }
}

/// Progress of a reader.
struct Progress {
    last: u64,
    ended: bool,
}

/// Reason why a connection ended early.
enum ReadError {
    /// The server broke the connection or was down; contains the number of the last event received.
    Disconnected(u64),
    /// An event is missing or was received twice.
    Wrong(String),
}

impl Progress {
    /// Checks the number of a received event. Returns whether it is the last event of the run.
    fn take(&mut self, event_json: &str, whole: bool) -> Result<bool, ReadError> {
        let event: Value = serde_json::from_str(event_json)
            .map_err(|error| ReadError::Wrong(error.to_string()))?;
        let Some(number) = event[if whole { "session_seq" } else { "event_id" }].as_u64() else {
            return Ok(false);
        };
        if number != self.last + 1 {
            return Err(ReadError::Wrong(format!(
                "event {number} followed event {}",
                self.last
            )));
        }
        self.last = number;
        let is_failure = event["event"] == "run_failed";
        if is_failure {
            return Err(ReadError::Wrong(format!("the run failed: {event}")));
        }
        self.ended = event["event"] == "run_completed";
        Ok(self.ended)
    }
}
