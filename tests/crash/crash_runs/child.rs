//! The child: opens the home, starts or resumes the job, and reports what it observes until the job
//! is done or the child is killed.

use std::path::Path;

use soong::{
    ErrorCode, FaultPlan, FaultPoint, RunHandle, RunRequest, Runtime, StreamItem,
    protocol::{RunId, RunMode},
};

use super::{
    Failed,
    drill_dir::DrillDir,
    report::{ObservedEvent, Report},
    scene,
};

/// Does the job. With `counts`, no faults are injected, and the child reports how often each fault
/// point was reached.
pub(crate) async fn work(
    folder: &Path,
    base_url: &str,
    slots: usize,
    counts: bool,
) -> Result<(), Failed> {
    let counting = FaultPlan::new();
    let mut builder = scene::builder(&DrillDir(folder), base_url, slots);
    if counts {
        builder = builder.faults(counting.clone());
    }
    let runtime = builder.build().await?;
    Report::Opened.say();
    let run = start_or_find(&runtime).await?;
    let watching = tokio::spawn(watch(runtime.clone()));
    if let Some(run) = run {
        run.wait().await?;
    }
    let root = watching.await??;
    let outcome = runtime
        .traces()
        .outcome(&root)
        .await?
        .ok_or("the job ended without an outcome")?;
    runtime.close().await;
    if counts {
        Report::Met(
            FaultPoint::ALL
                .into_iter()
                .map(|point| (point.to_string(), counting.hit_count(point)))
                .collect(),
        )
        .say();
    }
    Report::Ended(Box::new((&outcome).into())).say();
    Ok(())
}

/// Starts the job, or finds its active run. Returns `None` if the job is over.
async fn start_or_find(runtime: &Runtime) -> Result<Option<RunHandle>, Failed> {
    loop {
        match runtime.sessions().get(&scene::session()).await {
            Ok(_) => return Ok(runtime.traces().active_run(&scene::root())),
            Err(error) if error.code == ErrorCode::SessionNotFound => {}
            Err(error) => return Err(error.into()),
        }
        let start = RunRequest::new("explore all parts")
            .session(scene::session().as_str())
            .mode(RunMode::Orchestrator);
        match runtime.start(start).await {
            // The store fails by plan.
            Err(error) if error.retryable => {}
            started => return Ok(Some(started?)),
        }
    }
}

/// Reports every event from the first one until the job has ended. Returns the run of the job.
async fn watch(runtime: Runtime) -> Result<RunId, Failed> {
    let mut events = runtime.sessions().events(&scene::session(), 0);
    while let Some(item) = events.next().await {
        if let StreamItem::Event(record) = item? {
            let trace = record.trace_id.clone();
            let event_id = record.event_id;
            Report::Event {
                trace,
                event_id,
                seen: ObservedEvent::of(&record),
            }
            .say();
            if record.event.is_terminal() && record.trace_id == scene::root() {
                return record
                    .run_id
                    .clone()
                    .ok_or_else(|| "a terminal event without a run".into());
            }
        }
    }
    Err("the stream ended before the job ended ended".into())
}
