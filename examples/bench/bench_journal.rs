//! Measures the throughput of the store's writer thread in durable events per second.
//!
//! `cargo run --release -p soong-bench --bin bench_journal [SECONDS_PER_ROW] [DIR]`, by default 2 s
//! and the current folder (the disk under test; everything written there is removed again). 1, 8
//! and 64 writers, each with its own trace, append four events at a time and wait for the
//! acknowledgement before the next append. The sync time of the disk is measured before each row.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

#[path = "bench_history/rows.rs"]
mod rows;

use std::{
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use futures::future::try_join_all;
use soong::protocol::{
    Durability, Event, EventDraft, Message, MessageEvent, ModelEvent, Role, RunId, RunWrite,
    SessionId, Timestamp, ToolEvent, TraceId, Usage, Usd, Write,
};
use soong_storage::{
    sqlite::SqliteStore,
    store::{Ack, Append, Fence, Store, StoreError},
    writer::{self, QueuedAppend, WriterHandle},
};
use tokio::sync::oneshot;

const EVENTS_PER_APPEND: u64 = 4;

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// A store that counts its transactions.
struct CountingStore {
    store: SqliteStore,
    commits: Arc<AtomicU64>,
}

impl Store for CountingStore {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.store.commit(batch)
    }
}

async fn append(writer: &WriterHandle, append: Append) -> Result<Ack, Failed> {
    let (answer, outcome) = oneshot::channel();
    let done = Box::new(move |result: Result<Ack, (StoreError, Append)>| {
        let _ = answer.send(result.map_err(|(error, _)| error));
    });
    writer
        .submit(QueuedAppend {
            append,
            callback: done,
        })
        .await;
    Ok(outcome.await??)
}

/// A writer: a trace of the session with a run.
struct Author {
    session: SessionId,
    trace: TraceId,
    run: RunId,
}

impl Author {
    fn rows(&self) -> Vec<Write> {
        let at = now();
        vec![
            rows::trace(&self.trace, &self.session, at),
            rows::run(&self.run, &self.trace, &self.session, at),
            Write::Run(RunWrite::NewEpoch(self.run.clone())),
        ]
    }

    /// Returns the append of one turn: the end of a tool call, an assistant message, the completed
    /// model call, the next tool call.
    fn turn(&self, epoch: u64, number: u64) -> Append {
        let at = now();
        let tool_call_id = format!("call_{number:08}");
        let answer = format!(
            "Read the file and found what it is for. {}",
            "It says so in its header. ".repeat(10)
        );
        let message = Message::new(
            self.trace.clone(),
            number,
            None,
            Role::Assistant,
            answer,
            at,
        );
        let usage = Usage {
            prompt_tokens: 1_800,
            completion_tokens: 90,
            ..Usage::default()
        };
        let draft = |event: Event| {
            Write::Event(EventDraft::new(
                self.trace.clone(),
                Some(self.run.clone()),
                at,
                event,
            ))
        };
        let writes = vec![
            draft(
                ToolEvent::Completed {
                    tool_call_id: tool_call_id.clone(),
                    name: "read".to_owned(),
                    duration_ms: 3,
                    preview:
                        "1 //! What is durable: the store, its writer thread, and artifact bytes."
                            .to_owned(),
                    artifact_ref: None,
                    artifact_snapshot: None,
                    file_change: None,
                    artifact_delta: Default::default(),
                }
                .into(),
            ),
            draft(MessageEvent::added(&message).into()),
            draft(
                ModelEvent::Completed {
                    finish_reason: "tool_calls".to_owned(),
                    tool_calls: 1,
                    usage,
                    cost: Some(Usd::default()),
                    duration_ms: 740,
                    waited_ms: 0,
                    answer_check: None,
                }
                .into(),
            ),
            draft(
                ToolEvent::Started {
                    tool_call_id,
                    name: "read".to_owned(),
                    arguments_preview: r#"{"path": "src/store.rs"}"#.to_owned(),
                }
                .into(),
            ),
        ];
        Append {
            fence: Some(Fence {
                run_id: self.run.clone(),
                epoch,
                number,
                active_ms: None,
            }),
            writes,
        }
    }

    /// Appends until `until`. Returns the time that each acknowledgement took.
    async fn write(
        &self,
        writer: &WriterHandle,
        epoch: u64,
        until: Instant,
    ) -> Result<Vec<Duration>, Failed> {
        let mut took = Vec::new();
        while Instant::now() < until {
            let turn = self.turn(epoch, took.len() as u64 + 1);
            let start = Instant::now();
            append(writer, turn).await?;
            took.push(start.elapsed());
        }
        Ok(took)
    }
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let index = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted
        .get(index)
        .map_or(f64::NAN, |took| took.as_secs_f64() * 1e3)
}

/// Repeatedly appends 4 KiB to a file and syncs it.
fn sync_times(dir: &Path, limit: Duration) -> std::io::Result<Vec<Duration>> {
    let mut file = std::fs::File::create(dir.join("sync"))?;
    let mut took = Vec::new();
    let start = Instant::now();
    while start.elapsed() < limit {
        let before = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        took.push(before.elapsed());
    }
    took.sort_unstable();
    Ok(took)
}

async fn row(
    dir: &Path,
    durability: Durability,
    writers: usize,
    limit: Duration,
) -> Result<(), Failed> {
    let dir = tempfile::tempdir_in(dir)?;
    let sync = sync_times(dir.path(), limit / 4)?;
    let commits = Arc::new(AtomicU64::new(0));
    let store = SqliteStore::open(dir.path().join("sessions.sqlite"), durability)?;
    let published = Arc::new(AtomicU64::new(0));
    let publish = Arc::clone(&published);
    let (writer, thread) = writer::spawn(
        CountingStore {
            store,
            commits: Arc::clone(&commits),
        },
        move |outcomes| {
            for outcome in outcomes {
                if let Ok(ack) = &outcome.result {
                    publish.fetch_add(ack.events.len() as u64, Ordering::Relaxed);
                }
                outcome.report();
            }
        },
    )?;

    let session = SessionId::generate();
    append(
        &writer,
        Append {
            fence: None,
            writes: vec![rows::session(&session, now())],
        },
    )
    .await?;
    let mut authors = Vec::new();
    for n in 0..writers {
        let trace = TraceId::new(format!("{session}@explore-{n:03}"));
        let author = Author {
            session: session.clone(),
            trace,
            run: RunId::generate(),
        };
        let epoch = append(
            &writer,
            Append {
                fence: None,
                writes: author.rows(),
            },
        )
        .await?
        .epoch
        .unwrap_or_default();
        authors.push((author, epoch));
    }

    let before = commits.load(Ordering::Relaxed);
    let start = Instant::now();
    let until = start + limit;
    let tasks = authors.into_iter().map(|(author, epoch)| {
        let writer = writer.clone();
        tokio::spawn(async move { author.write(&writer, epoch, until).await })
    });
    let mut took = Vec::new();
    for times in try_join_all(tasks).await? {
        took.extend(times?);
    }
    let wall = start.elapsed().as_secs_f64();
    let commits = commits.load(Ordering::Relaxed) - before;
    drop(writer);
    thread.join().map_err(|_| "the writer thread panicked")?;

    took.sort_unstable();
    let appends = took.len() as u64;
    if published.load(Ordering::Relaxed) != appends * EVENTS_PER_APPEND {
        return Err("published and acknowledged events differ".into());
    }
    let mean = took.iter().sum::<Duration>().as_secs_f64() * 1e3 / appends as f64;
    println!(
        "| {:<6} | {writers:>7} | {:>8.0} | {mean:>7.2} | {:>7.2} | {:>14.1} | {:>7.2} | {:>7.2} |",
        format!("{durability:?}").to_lowercase(),
        (appends * EVENTS_PER_APPEND) as f64 / wall,
        percentile(&took, 0.99),
        appends as f64 / commits as f64,
        percentile(&sync, 0.5),
        percentile(&sync, 0.99),
    );
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failed> {
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(2.0), |text| text.parse())?;
    let dir = arguments.next().unwrap_or_else(|| ".".to_owned());
    println!("Times in ms; sync = write and sync 4 KiB.\n");
    println!(
        "|        | writers | events/s | ack avg | ack p99 | appends/commit | sync 50 | sync 99 |"
    );
    println!(
        "|--------|--------:|---------:|--------:|--------:|---------------:|--------:|--------:|"
    );
    for durability in [Durability::Full, Durability::Normal] {
        for writers in [1, 8, 64] {
            row(
                Path::new(&dir),
                durability,
                writers,
                Duration::from_secs_f64(seconds),
            )
            .await?;
        }
    }
    Ok(())
}
