//! Many children under the limits of one account (MOD-3): all of them complete, at the rate of the
//! account, and sessions share it.
//!
//! The gateway alone, with hundreds of calls, crashes and interrupted calls, is tested in
//! `actors/src/gateway/tests.rs`. Here, it serves whole runs.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

use futures::future::try_join_all;
use soong::{
    ChildSpec, RunRequest, RuntimeBuilder,
    model::{Failure, ModelError},
    protocol::{ChildMode, Config, RunStatus, Usage},
    testing::{ScriptedModel, respond_async, text},
};
use soong_storage::store::{Ack, Append, Store, StoreError};
use tokio::{task::JoinHandle, time::Instant};

use crate::support::{
    history::{check_session, stored},
    model::task_of,
    world::{TestRuntime, kinds, quick_non_durable_config},
};

const MINUTE: Duration = Duration::from_secs(60);
/// Limits of the account (simultaneous calls, calls per minute), and the duration of an answer.
const AT_ONCE: usize = 5;
const PER_MINUTE: usize = 100;
const ANSWER: Duration = Duration::from_secs(2);
/// Number of children in each of the two sessions.
const CHILDREN: usize = 100;

/// Model service that counts calls, and answers 429 with `Retry-After` above its limits.
#[derive(Default)]
struct Account {
    log: Mutex<Log>,
}

#[derive(Debug, Clone, Default)]
struct Log {
    /// Tasks of the accepted calls, with their times.
    accepted: Vec<(String, Instant)>,
    refused: usize,
    /// Number of calls that arrived before a `Retry-After` was over, except those already sent when
    /// it was announced.
    too_early: usize,
    refused_at: Option<Instant>,
    in_flight: usize,
    window: VecDeque<Instant>,
    not_before: Option<Instant>,
}

impl Account {
    fn log(&self) -> Log {
        self.log.lock().unwrap().clone()
    }

    /// Returns a model that calls this service.
    fn model(self: &Arc<Self>) -> Arc<ScriptedModel> {
        let account = Arc::clone(self);
        Arc::new(respond_async(move |request| {
            let account = Arc::clone(&account);
            let task = task_of(request).to_owned();
            async move {
                match account.take(&task) {
                    Ok(_in_flight) => {
                        tokio::time::sleep(ANSWER).await;
                        let usage = Usage {
                            prompt_tokens: 10,
                            completion_tokens: 5,
                            ..Usage::default()
                        };
                        text("done").streaming([]).usage(usage)
                    }
                    Err(error) => error.into(),
                }
            }
        }))
    }

    fn take(&self, task: &str) -> Result<InFlight<'_>, ModelError> {
        let mut log = self.log.lock().unwrap();
        let now = Instant::now();
        let is_early = log.not_before.is_some_and(|at| now < at) && log.refused_at != Some(now);
        log.too_early += usize::from(is_early);
        while log.window.front().is_some_and(|at| *at + MINUTE <= now) {
            log.window.pop_front();
        }
        let wait = match log.window.front() {
            Some(oldest) if log.window.len() >= PER_MINUTE => Some(*oldest + MINUTE - now),
            _ if log.in_flight >= AT_ONCE => Some(Duration::from_secs(1)),
            _ => None,
        };
        if let Some(wait) = wait {
            // Rounded up, so that a call at the announced time is not too early.
            let wait_ms = wait.as_millis() as u64 + 1;
            log.refused += 1;
            log.refused_at = Some(now);
            log.not_before = log
                .not_before
                .max(Some(now + Duration::from_millis(wait_ms)));
            return Err(ModelError::new(
                Failure::RateLimited {
                    retry_after_ms: Some(wait_ms),
                },
                "too many",
            ));
        }
        log.window.push_back(now);
        log.accepted.push((task.to_owned(), now));
        log.in_flight += 1;
        Ok(InFlight(self))
    }
}

struct InFlight<'a>(&'a Account);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.log.lock().unwrap().in_flight -= 1;
    }
}

/// Advances paused time at a multiple of real time, but only when no task can run.
///
/// Without it, paused time jumps to the next timer whenever all tasks wait, even if they wait for
/// the writer thread: years would pass during a commit.
struct FastClock {
    task: JoinHandle<()>,
    committing: Arc<AtomicBool>,
}

impl FastClock {
    const SPEED: u32 = 25;
    /// Number of times that every runnable task is polled before time advances, so that a busy
    /// machine does not count as slow.
    const POLLS: usize = 100;

    fn start() -> Self {
        let committing = Arc::new(AtomicBool::new(false));
        let is_committing = Arc::clone(&committing);
        let task = tokio::spawn(async move {
            let mut then = std::time::Instant::now();
            loop {
                // Paused time does not jump while a blocking task runs.
                let tick = || {
                    mpsc::channel::<()>()
                        .1
                        .recv_timeout(Duration::from_millis(1))
                };
                let _ = tokio::task::spawn_blocking(tick).await;
                let now = std::time::Instant::now();
                // If the machine stalls, limits must not expire while no task could run.
                let real = (now - std::mem::replace(&mut then, now)).min(Duration::from_millis(4));
                if is_committing.load(SeqCst) {
                    continue;
                }
                for _ in 0..Self::POLLS {
                    tokio::task::yield_now().await;
                }
                tokio::time::advance(real * Self::SPEED).await;
            }
        });
        Self { task, committing }
    }

    fn stop(self) {
        self.task.abort();
        tokio::time::resume();
    }
}

/// Store that stops the clock during its commits.
struct Timeless<S> {
    store: S,
    committing: Arc<AtomicBool>,
}

impl<S: Store> Store for Timeless<S> {
    fn commit(&mut self, batch: &[Append]) -> Result<Vec<Result<Ack, StoreError>>, StoreError> {
        self.committing.store(true, SeqCst);
        let outcome = self.store.commit(batch);
        self.committing.store(false, SeqCst);
        outcome
    }
}

/// Runs two sessions with many children each under the limits of an account, and checks the result.
async fn check(config: Config, reason: &str, refusals: std::ops::RangeInclusive<usize>) {
    let clock = FastClock::start();
    let account = Arc::new(Account::default());
    let committing = Arc::clone(&clock.committing);
    let build = |builder: RuntimeBuilder| {
        builder
            .config(config)
            .wrap_store(|store| Box::new(Timeless { store, committing }))
    };
    let world = TestRuntime::with(account.model(), build).await;
    let runtime = world.runtime();
    let session = async |name: &str| {
        let parent = runtime
            .start(RunRequest::driven(name).session(name))
            .await
            .unwrap();
        let children = (0..CHILDREN).map(async |child| {
            let child = parent
                .spawn(ChildSpec::new(format!("{name} {child}")).mode(ChildMode::Explore))
                .await?;
            Ok::<_, soong::ErrorInfo>((child.trace_id().clone(), child.wait().await?))
        });
        let children = try_join_all(children).await.unwrap();
        parent.finish("all there").unwrap();
        parent.wait().await.unwrap();
        (parent, children)
    };
    let look = async {
        while account.log().accepted.len() < PER_MINUTE {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        serde_json::to_string(&runtime.tree().snapshot()).unwrap()
    };
    let (first, second, tree) = tokio::join!(session("first"), session("second"), look);
    clock.stop();

    let log = account.log();
    let all: Vec<_> = first.1.iter().chain(&second.1).collect();
    let failed: Vec<_> = all
        .iter()
        .filter(|(_, outcome)| outcome.status != RunStatus::Completed)
        .collect();
    assert!(
        failed.is_empty(),
        "{} failed, as: {:?}",
        failed.len(),
        failed[0]
    );
    assert_eq!(
        (log.accepted.len(), log.too_early),
        (2 * CHILDREN, 0),
        "Retry-After was broken"
    );
    assert!(refusals.contains(&log.refused), "{} refused", log.refused);
    assert!(
        tree.contains(&format!("waiting ({reason}")),
        "{reason} is not in the tree: {tree}"
    );

    // At least 95 % of the account's rate must be used in the first two minutes.
    let begin = log.accepted[0].1;
    let used = log
        .accepted
        .iter()
        .filter(|(_, at)| *at < begin + 2 * MINUTE)
        .count();
    assert!(
        used * 100 >= 95 * 2 * PER_MINUTE,
        "{used} of {} used in two minutes",
        2 * PER_MINUTE
    );
    let of_first = log.accepted[..CHILDREN]
        .iter()
        .filter(|(task, _)| task.starts_with("first"))
        .count();
    assert!(
        of_first.abs_diff(CHILDREN / 2) * 20 <= CHILDREN,
        "{of_first} of {CHILDREN} were the first session's"
    );

    let mut waiting = 0;
    for (trace, _) in all {
        let events = stored(runtime, trace).await;
        waiting += usize::from(kinds(&events).contains(&"model_waiting"));
    }
    assert!(waiting >= CHILDREN / 2, "{waiting} reported that they wait");
    for parent in [first.0, second.0] {
        check_session(runtime, parent.session_id()).await;
    }
    world.finish().await;
}

#[tokio::test(start_paused = true)]
async fn configured_limits_avoid_rate_limit_errors() {
    let mut config = quick_non_durable_config();
    config.model.max_concurrency = Some(AT_ONCE);
    config.model.requests_per_minute = PER_MINUTE as u64;
    check(config, "requests_per_minute", 0..=0).await;
}

#[tokio::test(start_paused = true)]
async fn all_children_complete_without_configured_limits() {
    let mut config = quick_non_durable_config();
    config.model = Config::default().model;
    check(config, "retry_after", 1..=400).await;
}
