//! Measures artifacts: saving, editing, listing, reading a version, repair at startup, the
//! inventory in prompts.
//!
//! `cargo run --release -p soong-bench --bin bench_artifacts [ROUNDS=3] [DIR]`. DIR selects the disk
//! under test, by default the current folder; everything written there is removed again. Prints the
//! medians of the rounds. All writes are durable (`full`). For saves, it also prints the floor of
//! the same disk in the same round: write to a temporary file, sync, rename, sync the folder and
//! sync a log once, and nothing else.

#![allow(clippy::print_stdout, reason = "a measurement shows its result")]

use std::{fs::File, io::Write as _, path::Path, sync::Arc, time::Instant};

use futures::future::try_join_all;
use serde_json::json;
use soong::{
    RunRequest, Runtime, SessionSpec,
    artifact::{ArtifactOwner, ArtifactService, Change, ChangeCondition, EditRequest, Save},
    protocol::{
        ArtifactSource, BlobWrite, Durability, EffectId, Provenance, SessionId, Timestamp, Write,
    },
    testing::{ScriptedModel, call, respond, text},
};
use soong_storage::{
    blob::{BlobLocation, BlobStore},
    sqlite::SqliteStore,
    store::{Append, Store},
};

type BenchError = Box<dyn std::error::Error + Send + Sync>;

/// Number of artifacts in a long list.
const MANY: usize = 10_000;
/// Number of versions of the artifact whose versions are read.
const VERSIONS: usize = 1_000;
/// Number of files that startup finds announced but not registered.
const ORPHANS: usize = 1_000;
/// Number of edits per round.
const EDITS: usize = 120;

/// Creates a model that requests one edit, then answers "done". Its run has an effect that edits
/// can refer to.
fn one_edit_model() -> ScriptedModel {
    respond(|request| {
        if request
            .messages
            .iter()
            .all(|message| message.tool_calls.is_empty())
        {
            call(
                "create_artifact",
                json!({"name": "task_plan", "content": "- [ ] one\n"}),
            )
        } else {
            text("done")
        }
    })
}

/// Rows of the result table: name, unit, values of the rounds and their floors.
#[derive(Default)]
struct Rows(Vec<(String, &'static str, Vec<f64>, Vec<f64>)>);

impl Rows {
    /// Adds the value of a round, with its floor if there is one.
    fn add(&mut self, name: &str, unit: &'static str, value: f64, floor: Option<f64>) {
        if !self.0.iter().any(|row| row.0 == name) {
            self.0.push((name.to_owned(), unit, Vec::new(), Vec::new()));
        }
        if let Some(row) = self.0.iter_mut().find(|row| row.0 == name) {
            row.2.push(value);
            row.3.extend(floor);
        }
    }

    fn print(&mut self) {
        println!(
            "| {:<46} | {:>9} | unit | floor     | of floor |",
            "", "median"
        );
        println!("|{:-<48}|----------:|------|----------:|---------:|", "");
        for (name, unit, values, floors) in &mut self.0 {
            let value = median(values);
            let (floor, share) = if floors.is_empty() {
                (String::new(), String::new())
            } else {
                let floor = median(floors);
                (
                    format!("{floor:.1}"),
                    format!("{:.0} %", 100.0 * value / floor),
                )
            };
            println!("| {name:<46} | {value:>9.1} | {unit:<4} | {floor:>9} | {share:>8} |");
        }
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Writes files with the minimum steps of a durable save: temporary file, sync, rename, sync of the
/// folder, sync of a log. Returns files per second.
fn floor(dir: &Path, bytes: &[u8], count: usize) -> std::io::Result<f64> {
    let mut log = File::create(dir.join("log"))?;
    let start = Instant::now();
    for number in 0..count {
        let staging_path = dir.join(format!("{number}#"));
        let target = dir.join(format!("{number}"));
        let mut file = File::create(&staging_path)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        std::fs::rename(&staging_path, &target)?;
        File::open(dir)?.sync_all()?;
        log.write_all(&[7; 4096])?;
        log.sync_data()?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

/// Like [`floor`], with `at_once` threads, each in a separate folder.
fn floor_at_once(
    dir: &Path,
    bytes: &[u8],
    count: usize,
    at_once: usize,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    std::thread::scope(|scope| -> Result<(), BenchError> {
        let mut threads = Vec::new();
        for number in 0..at_once {
            let own = dir.join(format!("floor{number}"));
            std::fs::create_dir(&own)?;
            threads.push(scope.spawn(move || floor(&own, bytes, count / at_once)));
        }
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")??;
        }
        Ok(())
    })?;
    Ok((count / at_once * at_once) as f64 / start.elapsed().as_secs_f64())
}

async fn open(home: &Path) -> Result<Runtime, BenchError> {
    Ok(Runtime::builder()
        .home(home)
        .project_dir(home)
        .model("default", one_edit_model())
        .build()
        .await?)
}

async fn session(runtime: &Runtime, id: &str) -> Result<ArtifactOwner, BenchError> {
    let spec = SessionSpec {
        session_id: Some(id.to_owned()),
        ..SessionSpec::default()
    };
    let session = runtime.sessions().create(spec).await?;
    Ok(runtime.artifacts().owner(&session.session_id).await?)
}

/// Saves artifacts under new names with `at_once` concurrent tasks. Returns saves per second.
async fn save_all(
    service: &Arc<dyn ArtifactService>,
    owner: &ArtifactOwner,
    prefix: &str,
    bytes: &bytes::Bytes,
    count: usize,
    at_once: usize,
) -> Result<f64, BenchError> {
    let start = Instant::now();
    let savers = (0..at_once).map(|saver| {
        let service = Arc::clone(service);
        let owner = owner.clone();
        let bytes = bytes.clone();
        let prefix = prefix.to_owned();
        tokio::spawn(async move {
            for number in (saver..count).step_by(at_once) {
                let save = Save::new(
                    format!("{prefix}{number}"),
                    "application/octet-stream",
                    bytes.clone(),
                );
                service.save(&owner, save).await?;
            }
            Ok::<_, soong::ErrorInfo>(())
        })
    });
    for done in try_join_all(savers).await? {
        done?;
    }
    Ok(count as f64 / start.elapsed().as_secs_f64())
}

async fn saves(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    dir: &Path,
    round: usize,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let service = runtime.artifacts().service();
    for (name, size, count) in [("1 KB", 1_000, 160), ("1 MB", 1_000_000, 32)] {
        let bytes: bytes::Bytes = vec![7; size].into();
        for at_once in [1, 16] {
            let floors = tempfile::tempdir_in(dir)?;
            let floor = floor_at_once(floors.path(), &bytes, count, at_once)?;
            let prefix = format!("r{round}-{size}-{at_once}-");
            let rate = save_all(&service, owner, &prefix, &bytes, count, at_once).await?;
            rows.add(
                &format!("saves of {name}, {at_once} at once"),
                "1/s",
                rate,
                Some(floor),
            );
        }
    }
    Ok(())
}

/// Edits a document of 100 KB; each writer edits its own line. Fails if an edit is lost.
async fn edits(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    round: usize,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let service = runtime.artifacts().service();
    let run = runtime
        .start(RunRequest::new("edit").session(owner.session_id.as_str()))
        .await?;
    run.wait().await?;
    let edit = |key: String, change: Change, call: String| {
        let effect = EffectId {
            run_id: run.run_id().clone(),
            turn: 1,
            tool_call_id: call,
        };
        let provenance = Provenance {
            run_id: Some(run.run_id().clone()),
            ..Provenance::default()
        };
        let request = EditRequest {
            key,
            change,
            source: ArtifactSource::Agent,
            provenance,
            effect: Some(effect),
            condition: ChangeCondition::default(),
        };
        let service = Arc::clone(&service);
        let owner = owner.clone();
        async move { service.edit(&owner, request).await }
    };
    for writers in [1, 4] {
        let key = format!("edited{round}-{writers}");
        let mut content: String = (0..writers)
            .map(|writer| format!("writer {writer}: 0.\n"))
            .collect();
        while content.len() < 100_000 {
            content.push_str(&format!(
                "line {} of a document that has many lines like this one\n",
                content.len()
            ));
        }
        let create = Change::Create {
            content,
            content_type: "text/markdown".to_owned(),
            title: String::new(),
        };
        edit(key.clone(), create, format!("create{round}-{writers}")).await?;
        let start = Instant::now();
        try_join_all((0..writers).map(|writer| {
            let edit = &edit;
            let key = key.clone();
            async move {
                for number in 0..EDITS / writers {
                    let old = format!("writer {writer}: {number}.");
                    let change = Change::Update {
                        old,
                        new: format!("writer {writer}: {}.", number + 1),
                    };
                    edit(
                        key.clone(),
                        change,
                        format!("{round}-{writers}-{writer}-{number}"),
                    )
                    .await?;
                }
                Ok::<_, soong::ErrorInfo>(())
            }
        }))
        .await?;
        let rate = EDITS as f64 / start.elapsed().as_secs_f64();
        let text = runtime
            .artifacts()
            .load(owner, &key, None)
            .await?
            .text()
            .await?;
        let is_whole = (0..writers)
            .all(|writer| text.contains(&format!("writer {writer}: {}.\n", EDITS / writers)));
        if !is_whole {
            return Err("an edit was lost".into());
        }
        rows.add(
            &format!("edits of a document of 100 KB, {writers} at once"),
            "1/s",
            rate,
            None,
        );
    }
    Ok(())
}

/// Measures a list, and a run whose model reads the inventory, in a session with many artifacts.
async fn many(runtime: &Runtime, owner: &ArtifactOwner, rows: &mut Rows) -> Result<(), BenchError> {
    let start = Instant::now();
    let listed = runtime.artifacts().list(owner).await?.len();
    if listed < MANY {
        return Err("artifacts are missing from the list".into());
    }
    rows.add(
        &format!("list of {MANY} artifacts"),
        "ms",
        start.elapsed().as_secs_f64() * 1e3,
        None,
    );
    // The inventory is rendered in the first turn, and again in the second, since the plan was
    // written in between.
    let start = Instant::now();
    runtime.artifacts().delete(owner, "task_plan").await.ok();
    let run = runtime
        .start(RunRequest::new("plan").session(owner.session_id.as_str()))
        .await?;
    run.wait().await?;
    let name = format!("run of two turns with {MANY} artifacts");
    rows.add(&name, "ms", start.elapsed().as_secs_f64() * 1e3, None);
    Ok(())
}

async fn versions(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    round: usize,
    rows: &mut Rows,
) -> Result<(), BenchError> {
    let start = Instant::now();
    let reads = 50;
    for read in 0..reads {
        let version = 1 + (round * 379 + read * 97) % VERSIONS;
        runtime
            .artifacts()
            .load(owner, "versions", Some(version as u64))
            .await?
            .bytes()
            .await?;
    }
    let each = start.elapsed().as_secs_f64() * 1e6 / f64::from(u32::try_from(reads)?);
    rows.add(
        &format!("read of one version out of {VERSIONS}"),
        "µs",
        each,
        None,
    );
    Ok(())
}

/// Measures opening a home with many files that are announced but not registered.
async fn repair(dir: &Path, rows: &mut Rows) -> Result<(), BenchError> {
    let dir = tempfile::tempdir_in(dir)?;
    let runtime = open(dir.path()).await?;
    runtime.close().await;
    drop(runtime);
    let empty = Instant::now();
    open(dir.path()).await?.close().await;
    let empty = empty.elapsed().as_secs_f64() * 1e3;
    let blobs = BlobStore::open(dir.path(), &BlobLocation::File, &|_| None)?;
    let paths: Vec<String> = (0..ORPHANS)
        .map(|n| format!("sessions/s/artifacts/a{n}/v1/product.bin"))
        .collect();
    {
        let mut store = SqliteStore::open(dir.path().join("sessions.sqlite"), Durability::Full)?;
        let announce = |path: &String| {
            Write::Blob(BlobWrite::Intent {
                path: path.clone(),
                at: Timestamp::default(),
            })
        };
        store.commit(&[Append {
            fence: None,
            writes: paths.iter().map(announce).collect(),
        }])?;
    }
    for path in &paths {
        let file = blobs
            .local_path(path)
            .ok_or("the blob store is not local")?;
        std::fs::create_dir_all(file.parent().ok_or("the file has no parent folder")?)?;
        std::fs::write(file, [7; 1_000])?;
    }
    let start = Instant::now();
    let runtime = open(dir.path()).await?;
    let took = start.elapsed().as_secs_f64() * 1e3;
    runtime.close().await;
    rows.add(
        &format!("opening with {ORPHANS} announced orphans"),
        "ms",
        took,
        None,
    );
    rows.add("opening with none, and closing", "ms", empty, None);
    Ok(())
}

/// Fills a home with the artifacts to be listed and the versions to be read.
async fn fill(runtime: &Runtime) -> Result<(ArtifactOwner, ArtifactOwner), BenchError> {
    let listed = session(runtime, "many").await?;
    let read = session(runtime, "versions").await?;
    let service = runtime.artifacts().service();
    let bytes: bytes::Bytes = vec![b'x'; 300].into();
    save_all(&service, &listed, "part", &bytes, MANY, 64).await?;
    for _ in 0..VERSIONS {
        service
            .save(&read, Save::new("versions", "text/plain", bytes.clone()))
            .await?;
    }
    Ok((listed, read))
}

#[tokio::main]
async fn main() -> Result<(), BenchError> {
    let mut arguments = std::env::args().skip(1);
    let rounds: usize = arguments.next().map_or(Ok(3), |text| text.parse())?;
    let dir = arguments.next().unwrap_or_else(|| ".".to_owned());
    let dir = Path::new(&dir);
    let home = tempfile::tempdir_in(dir)?;
    let runtime = open(home.path()).await?;
    let mut rows = Rows::default();
    let owner = session(&runtime, "work").await?;
    for round in 0..rounds {
        saves(&runtime, &owner, dir, round, &mut rows).await?;
        let id = SessionId::new(format!("edits{round}"));
        let owner = session(&runtime, id.as_str()).await?;
        edits(&runtime, &owner, round, &mut rows).await?;
        repair(dir, &mut rows).await?;
    }
    let (listed, read) = fill(&runtime).await?;
    for round in 0..rounds {
        many(&runtime, &listed, &mut rows).await?;
        versions(&runtime, &read, round, &mut rows).await?;
    }
    rows.print();
    runtime.close().await;
    Ok(())
}
