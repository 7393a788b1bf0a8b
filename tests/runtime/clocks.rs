//! A wall clock that is changed while runs are active: time limits and durations do not follow it
//! (SUB-7).

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering::SeqCst},
    },
    time::Duration,
};

use serde_json::json;
use soong::{
    ChildSpec, RunRequest, RuntimeBuilder,
    protocol::{Budget, Decision, EndReason, PermissionWrite, RunStatus, Timestamp, Write},
};
use soong_storage::store::{Ack, Append, Store, StoreError};

use crate::support::{
    history::check_session,
    model::{Turn, assistant_count, scripted_model},
    world::{
        TestRuntime, quick_non_durable_config, wait_for_permissions, wait_until, with_timeout,
    },
};

const HOUR_MS: i64 = 3_600_000;

/// Store that shifts the times of events, as if the wall clock had been changed.
struct Skewed {
    store: Box<dyn Store>,
    by_ms: Arc<AtomicI64>,
}

impl Store for Skewed {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        let mut batch = batch.to_vec();
        for write in batch.iter_mut().flat_map(|append| &mut append.writes) {
            let skewed =
                |at: Timestamp| Timestamp::from_millis(at.as_millis() + self.by_ms.load(SeqCst));
            match write {
                Write::Event(draft) => draft.ts = skewed(draft.ts),
                Write::Permission(PermissionWrite::Request(permission)) => {
                    permission.created_at = skewed(permission.created_at)
                }
                _ => {}
            }
        }
        self.store.commit(&batch)
    }
}

fn skewed(by_ms: &Arc<AtomicI64>) -> impl FnOnce(RuntimeBuilder) -> RuntimeBuilder {
    let by_ms = Arc::clone(by_ms);
    |builder| {
        builder
            .config(quick_non_durable_config())
            .wrap_store(|store| {
                Box::new(Skewed {
                    store: Box::new(store),
                    by_ms,
                })
            })
    }
}

fn limited(start: RunRequest) -> RunRequest {
    let budget = Budget {
        wall_time_s: Some(60),
        ..Budget::default()
    };
    start.budget(budget).timeout(Duration::from_secs(120))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clock_change_does_not_expire_runs_after_a_restart() {
    for (by_ms, what) in [
        (HOUR_MS, "ahead"),
        (24 * HOUR_MS, "a day ahead"),
        (-HOUR_MS, "back"),
    ] {
        let skew = Arc::new(AtomicI64::new(0));
        let first = scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("read", json!({ "path": "a.txt" })),
            _ => Turn::Hang("half"),
        });
        let mut world = TestRuntime::with(first.clone(), skewed(&skew)).await;
        let run = world
            .runtime()
            .start(limited(RunRequest::new("work").session("s")))
            .await
            .unwrap();
        let driven = world
            .runtime()
            .start(limited(RunRequest::driven("work").session("t")))
            .await
            .unwrap();
        let thinks =
            |calls: usize, at_work: usize| first.calls() == calls && first.in_flight() == at_work;
        wait_until("it thinks again", || thinks(2, 1)).await;
        skew.store(by_ms, SeqCst);
        let spec = ChildSpec::new("look").timeout(Duration::from_secs(60));
        let child = driven.spawn(spec).await.unwrap();
        wait_until("the child thinks again, too", || thinks(4, 2)).await;
        world
            .runtime()
            .tree()
            .inject_crash(&format!("run:{}", run.run_id()))
            .unwrap();
        wait_until("it goes on", || thinks(5, 2)).await;

        let second = scripted_model(|_| Turn::say("done"));
        world.reopen_with(second, skewed(&skew)).await;
        for id in [run.run_id(), child.run_id()] {
            let resumed = world.runtime().traces().handle(id);
            if let Ok(resumed) = resumed {
                with_timeout(resumed.wait()).await.unwrap();
            }
            let ended = world.runtime().traces().run(id).await.unwrap();
            assert_eq!(
                (ended.status, ended.end_reason),
                (RunStatus::Completed, Some(EndReason::Completed)),
                "{what}"
            );
            assert!(
                ended.usage.duration_ms < 60_000,
                "{what}: {} ms",
                ended.usage.duration_ms
            );
        }
        let driven = world.runtime().traces().handle(driven.run_id()).unwrap();
        driven.finish("done").unwrap();
        with_timeout(driven.wait()).await.unwrap();
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn duration_before_a_restart_is_kept() {
    let skew = Arc::default();
    let first = scripted_model(|request| match assistant_count(request) {
        0..6 => Turn::call("read", json!({ "path": "a.txt" })),
        _ => Turn::Hang("half"),
    });
    let mut world = TestRuntime::with(first.clone(), skewed(&skew)).await;
    let run = world
        .runtime()
        .start(RunRequest::new("work").session("s"))
        .await
        .unwrap();
    wait_until("it thinks for the seventh time", || {
        first.in_flight() == 1 && first.calls() == 7
    })
    .await;
    let before = world
        .runtime()
        .traces()
        .run(run.run_id())
        .await
        .unwrap()
        .usage
        .duration_ms;
    assert!(before > 0, "the active time is stored with each step");
    world
        .reopen_with(scripted_model(|_| Turn::say("done")), skewed(&skew))
        .await;
    if let Ok(resumed) = world.runtime().traces().handle(run.run_id()) {
        with_timeout(resumed.wait()).await.unwrap();
    }
    let ended = world.runtime().traces().run(run.run_id()).await.unwrap();
    assert!(
        ended.usage.duration_ms >= before,
        "{} ms, and {before} before",
        ended.usage.duration_ms
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permission_timeout_ignores_clock_changes() {
    let build = |by_ms: &Arc<AtomicI64>| {
        let by_ms = Arc::clone(by_ms);
        move |builder: RuntimeBuilder| {
            let mut config = quick_non_durable_config();
            config.permissions.timeout_s = 600;
            let builder = builder.config(config).permissions_by_users();
            builder.wrap_store(|store| {
                Box::new(Skewed {
                    store: Box::new(store),
                    by_ms,
                })
            })
        }
    };
    let model = || {
        scripted_model(|request| match assistant_count(request) {
            0 => Turn::call("write", json!({ "path": "new.txt", "content": "x" })),
            _ => Turn::say("done"),
        })
    };
    // According to the wall clock, the permission was requested an hour ago.
    let skew = Arc::new(AtomicI64::new(-HOUR_MS));
    let mut world = TestRuntime::with(model(), build(&skew)).await;
    world
        .runtime()
        .start(RunRequest::new("work").session("s"))
        .await
        .unwrap();
    with_timeout(wait_for_permissions(world.runtime(), 1)).await;
    world.reopen_with(model(), build(&skew)).await;
    let permission = with_timeout(wait_for_permissions(world.runtime(), 1))
        .await
        .remove(0);
    world
        .runtime()
        .permissions()
        .decide(&permission.permission_id, Decision::AllowOnce, None)
        .await
        .unwrap();
    let run = world.runtime().traces().handle(&permission.run_id).unwrap();
    assert_eq!(with_timeout(run.wait()).await.unwrap().output, "done");
    assert!(
        world.project().join("new.txt").exists(),
        "it was not refused for the time that it waited"
    );
    world.finish().await;
}
