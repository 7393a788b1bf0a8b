//! The child: keeps several sessions of a home busy until it is killed, and reports what it
//! observes.

use std::{path::Path, sync::Arc, time::Duration};

use soong::{
    ChildSpec, ErrorInfo, FaultPoint, RunRequest, Runtime, SessionSpec, StreamItem,
    artifact::{ArtifactOwner, Change, Content, EditRequest},
    protocol::{Artifact, ArtifactSource, Event, RunId, RunMode, SessionId},
};
use soong_storage::{
    fault::{Fault, FaultPlan, FaultStore},
    store::StoreError,
};

use super::{
    Failed,
    report::{Random, Report},
    scene,
};

/// Number of sessions that are active at once.
const SESSIONS: u64 = 3;

/// Works until the process is killed.
pub(crate) async fn work(home: &Path, seed: u64) -> Result<(), Failed> {
    let mut random = Random::new(seed);
    // In one of three children, actors crash and commits fail as well.
    let is_stormy = random.below(3) == 0;
    let plan = FaultPlan::new();
    let mut builder = scene::builder(home, scene::busy_model(random.next()));
    if is_stormy {
        std::panic::set_hook(Box::new(|_| {}));
        for _ in 0..20 {
            let refused = StoreError::Io("refused by plan".to_owned());
            let fault = if random.below(2) == 0 {
                Fault::FailBeforeWrite(refused)
            } else {
                Fault::FailAfterWrite(refused)
            };
            // The first commits belong to opening the home: if they fail, the child ends.
            plan.inject_at(100 + random.below(1_000), fault);
        }
        builder = builder.wrap_store(move |store| Box::new(FaultStore::new(store, plan)));
    }
    let crashes = std::sync::Mutex::new(Random::new(random.next()));
    let hook = move |_: &RunId, point: FaultPoint| {
        if point == FaultPoint::Flush {
            Report::Flushing.write();
        }
        let crashes = crashes
            .lock()
            .map(|mut random| is_stormy && random.below(400) == 0);
        assert!(!crashes.unwrap_or(false), "crashed by plan");
    };
    let runtime = builder.fault_hook(Arc::new(hook)).build().await?;
    Report::Opened.write();
    for number in 0..SESSIONS {
        // Sessions of an earlier child are used again most of the time.
        let id = SessionId::new(format!("s{number}-{}", random.below(3)));
        if runtime.sessions().get(&id).await.is_err() {
            let spec = SessionSpec {
                session_id: Some(id.to_string()),
                ..SessionSpec::default()
            };
            runtime.sessions().create(spec).await?;
        }
        let owner = runtime.artifacts().owner(&id).await?;
        tokio::spawn(watch(runtime.clone(), id));
        tokio::spawn(runs(
            runtime.clone(),
            owner.clone(),
            Random::new(random.next()),
        ));
        tokio::spawn(client(runtime.clone(), owner, Random::new(random.next())));
    }
    std::future::pending().await
}

/// Reports the events of a session.
async fn watch(runtime: Runtime, session: SessionId) {
    let mut events = runtime.sessions().events(&session, 0);
    while let Some(Ok(item)) = events.next().await {
        if let StreamItem::Event(record) = item
            && (matches!(record.event, Event::Artifact(_))
                || record.event.is_terminal()
                || record.event.kind() == "tool_completed")
        {
            Report::Event(Box::new((*record).clone())).write();
        }
    }
}

/// Starts one run after the other: one whose model delegates, or one that drives three children at
/// once.
async fn runs(runtime: Runtime, owner: ArtifactOwner, mut random: Random) {
    loop {
        let done = match random.below(2) {
            0 => delegating(&runtime, &owner).await,
            _ => side_by_side(&runtime, &owner, random.below(5) == 0).await,
        };
        if done.is_err() {
            // The store fails by plan, or the session is busy.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

async fn delegating(runtime: &Runtime, owner: &ArtifactOwner) -> Result<(), ErrorInfo> {
    let start = RunRequest::new("edit").preset("default");
    let start = start
        .session(owner.session_id.as_str())
        .mode(RunMode::Orchestrator);
    runtime.start(start).await?.wait().await.map(|_| ())
}

async fn side_by_side(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    is_cut: bool,
) -> Result<(), ErrorInfo> {
    let parent = runtime
        .start(RunRequest::driven("edit together").session(owner.session_id.as_str()))
        .await?;
    let mut children = Vec::new();
    for _ in 0..3 {
        children.push(parent.spawn(ChildSpec::new("edit")).await?);
    }
    if is_cut {
        tokio::time::sleep(Duration::from_millis(5)).await;
        parent.cancel().await?;
        return Ok(());
    }
    for child in children {
        child.wait().await?;
    }
    parent.finish("edited")?;
    parent.wait().await.map(|_| ())
}

/// Changes artifacts like users and their programs, concurrently with the runs.
async fn client(runtime: Runtime, owner: ArtifactOwner, mut random: Random) {
    loop {
        // Errors are expected: another writer was faster, or the store fails by plan.
        let _ = match random.below(6) {
            0 | 1 => upload(&runtime, &owner, &mut random).await,
            2 | 3 => edit(&runtime, &owner, &mut random).await,
            _ => delete(&runtime, &owner, &mut random).await,
        };
        tokio::time::sleep(Duration::from_millis(random.below(8))).await;
    }
}

async fn upload(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    random: &mut Random,
) -> Result<(), ErrorInfo> {
    let seed = random.next();
    let size = scene::product_size(random);
    let bytes = scene::product(seed, size);
    let name = format!("upload {}.bin", random.below(3));
    let pieces: Vec<_> = bytes
        .chunks(70_000)
        .map(|piece| Ok(piece.to_vec().into()))
        .collect();
    let content = match random.below(2) {
        0 => bytes.clone().into(),
        _ => Content::Stream(Box::pin(futures::stream::iter(pieces))),
    };
    Report::Saving.write();
    let artifact = runtime
        .artifacts()
        .upload(owner, &name, "application/octet-stream", content)
        .await?;
    Report::saved(&artifact, &bytes).write();
    Ok(())
}

async fn edit(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    random: &mut Random,
) -> Result<(), ErrorInfo> {
    let key = match random.below(2) {
        0 => format!("doc{}", random.below(4)),
        _ => format!("user:note{}", random.below(2)),
    };
    let change = match random.below(4) {
        0 => Change::Create {
            content: scene::document(random),
            content_type: "text/markdown".to_owned(),
            title: String::new(),
        },
        1 => Change::Rewrite {
            content: scene::document(random),
        },
        _ => {
            let (old, new) = scene::replacement(random);
            Change::Update { old, new }
        }
    };
    let request = EditRequest {
        key,
        change,
        source: ArtifactSource::Api,
        provenance: Default::default(),
        effect: None,
        condition: Default::default(),
    };
    let edited = runtime.artifacts().service().edit(owner, request).await?;
    if let Some(text) = edited
        .snapshot
        .as_ref()
        .and_then(|snapshot| snapshot.content.as_ref())
    {
        Report::saved(&edited.artifact, text.as_bytes()).write();
    }
    Ok(())
}

/// Deletes an artifact by its id, since its name could refer to another artifact by then.
async fn delete(
    runtime: &Runtime,
    owner: &ArtifactOwner,
    random: &mut Random,
) -> Result<(), ErrorInfo> {
    let all: Vec<Artifact> = runtime.artifacts().list(owner).await?;
    if (all.len() as u64) < 12 + random.below(12) {
        return Ok(());
    }
    let chosen = &all[random.below(all.len() as u64) as usize];
    let artifact_id = &chosen.artifact_id;
    let prefix = if chosen.key().starts_with("user:") {
        "user:"
    } else {
        ""
    };
    Report::Deleting {
        artifact_id: artifact_id.clone(),
    }
    .write();
    runtime
        .artifacts()
        .delete(owner, &format!("{prefix}{artifact_id}"))
        .await?;
    Report::Deleted {
        artifact_id: artifact_id.clone(),
    }
    .write();
    Ok(())
}
