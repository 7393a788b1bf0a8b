//! A runtime with a new home and a model that answers immediately or never, and that records its
//! calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use futures::future::try_join_all;
use serde_json::json;
use soong::{
    ActorKind, ActorView, ChildSpec, Config, RunHandle, RunRequest, Runtime,
    model::ModelRequest,
    protocol::Role,
    testing::{ScriptedModel, Step, call, respond_async, text},
};

pub(crate) type Failed = Box<dyn std::error::Error + Send + Sync>;

/// Times of the model calls, in nanoseconds since `begun`.
struct CallTimes {
    begun: Instant,
    /// Time of the last start or end of a call.
    last_effect: AtomicU64,
    /// Time of the last start of a call.
    last_call: AtomicU64,
}

impl CallTimes {
    fn note(&self, what: &AtomicU64) {
        what.fetch_max(
            u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX),
            SeqCst,
        );
    }

    /// Returns the time from `since` to the recorded time, or zero if nothing was recorded after
    /// `since`.
    fn after(&self, since: Instant, what: &AtomicU64) -> Duration {
        Duration::from_nanos(what.load(SeqCst)).saturating_sub(since.duration_since(self.begun))
    }
}

/// A call that has not ended.
struct Call(Arc<CallTimes>);

impl Call {
    fn begin(times: &Arc<CallTimes>) -> Self {
        times.note(&times.last_call);
        times.note(&times.last_effect);
        Self(Arc::clone(times))
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.note(&self.0.last_effect);
    }
}

/// A model that follows its task: `hold` never answers, `split` delegates `hold` to a sub-agent,
/// `ask` asks a user, and anything else is answered immediately. It records the times of its calls.
pub(crate) struct RecordingModel {
    scripted: Arc<ScriptedModel>,
    times: Arc<CallTimes>,
}

impl RecordingModel {
    fn new() -> Self {
        let last_effect = AtomicU64::new(0);
        let last_call = AtomicU64::new(0);
        let times = Arc::new(CallTimes {
            begun: Instant::now(),
            last_effect,
            last_call,
        });
        let noted = Arc::clone(&times);
        let scripted = respond_async(move |request| {
            let in_flight = Call::begin(&noted);
            let step = next_step(request);
            async move {
                let _in_flight = in_flight;
                match step {
                    Some(step) => step,
                    None => std::future::pending().await,
                }
            }
        });
        Self {
            scripted: Arc::new(scripted),
            times,
        }
    }

    pub(crate) fn last_effect_after(&self, since: Instant) -> Duration {
        self.times.after(since, &self.times.last_effect)
    }

    pub(crate) fn last_call_after(&self, since: Instant) -> Duration {
        self.times.after(since, &self.times.last_call)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.scripted.in_flight()
    }

    pub(crate) fn calls(&self) -> usize {
        self.scripted.calls()
    }

    /// Waits until `count` calls are in flight.
    pub(crate) async fn until_in_flight(&self, count: usize) {
        while self.in_flight() != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// Returns the response to a request, which streams nothing. `None`: there is none.
fn next_step(request: &ModelRequest) -> Option<Step> {
    let first_message_of = |role| {
        request
            .messages
            .iter()
            .find(move |message| message.role == role)
    };
    let task = first_message_of(Role::User).map_or("", |message| message.content.as_str());
    let is_first = first_message_of(Role::Assistant).is_none();
    match task {
        task if task.ends_with("hold") => None,
        task if is_first && task.ends_with("split") => Some(call("agent", json!({"task": "hold"}))),
        task if is_first && task.ends_with("ask") => {
            Some(call("ask_human", json!({"question": "which colour?"})))
        }
        _ => Some(text("done").streaming([])),
    }
}

/// A runtime with a home that is removed when dropped.
pub(crate) struct BenchRuntime {
    pub(crate) runtime: Runtime,
    pub(crate) model: RecordingModel,
    _home: tempfile::TempDir,
}

impl BenchRuntime {
    /// Opens a new home in the current folder, the disk under test. The default limits are made for
    /// real providers and would dominate the result, so they are raised to `slots` concurrent
    /// children and model calls.
    pub(crate) async fn open(slots: usize) -> Result<Self, Failed> {
        let home = tempfile::tempdir_in(".")?;
        let mut config = Config::default();
        config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
        config.model.max_concurrency = Some(slots);
        config.agents.max_children_per_run = usize::MAX;
        config.agents.max_concurrent_children_per_session = slots;
        config.agents.max_depth = 2;
        config.runtime.cancel_timeout_ms = 60_000;
        config.runtime.idle_session_s = 1;
        let model = RecordingModel::new();
        let runtime = Runtime::builder()
            .home(home.path().join("home"))
            .project_dir(home.path())
            .config(config)
            .model("default", Arc::clone(&model.scripted))
            .build()
            .await?;
        Ok(Self {
            runtime,
            model,
            _home: home,
        })
    }

    /// Starts a run driven by the program, in its own session, so that the traces of earlier runs
    /// do not affect it.
    pub(crate) async fn parent(&self) -> Result<RunHandle, Failed> {
        Ok(self.runtime.start(RunRequest::driven("drive")).await?)
    }

    /// Adds children to a run. Returns once all of them are durable.
    pub(crate) async fn spawn(
        &self,
        parent: &RunHandle,
        count: usize,
        task: &str,
    ) -> Result<Vec<RunHandle>, Failed> {
        let spec = |index| ChildSpec::new(format!("{index} {task}"));
        Ok(try_join_all((0..count).map(|index| parent.spawn(spec(index)))).await?)
    }

    /// Waits until all idle sessions have been passivated.
    pub(crate) async fn until_idle(&self) {
        let has_sessions = |root: ActorView| {
            let mut below: Vec<&ActorView> = root.children.iter().collect();
            while let Some(actor) = below.pop() {
                if actor.kind == ActorKind::Session {
                    return true;
                }
                below.extend(&actor.children);
            }
            false
        };
        while self.runtime.tree().snapshot().is_some_and(has_sessions) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until `count` waiting runs have been passivated.
    pub(crate) async fn until_passive(&self, count: usize) {
        fn passive(actor: &ActorView) -> usize {
            usize::from(actor.run.as_ref().is_some_and(|run| run.passive))
                + actor.children.iter().map(passive).sum::<usize>()
        }
        while self.runtime.tree().snapshot().as_ref().map_or(0, passive) < count {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    }

    /// Returns the permits and slots in use. It must be empty if no run is active.
    pub(crate) fn permits_in_use(&self) -> Vec<String> {
        let mut left = Vec::new();
        if let Some(root) = self.runtime.tree().snapshot() {
            collect(&root, &mut left);
        }
        left
    }

    pub(crate) async fn close(self) -> Result<(), Failed> {
        self.runtime.close().await;
        match self.runtime.tree().live_count() {
            0 => Ok(()),
            left => {
                Err(format!("{left} actors, runs or tasks are still alive after closing").into())
            }
        }
    }
}

/// Collects the permits and slots in use that gateways and sub-agent supervisors report.
fn collect(actor: &ActorView, left: &mut Vec<String>) {
    let has_some = matches!(
        actor.kind,
        ActorKind::ModelGateway | ActorKind::SubAgentSupervisor
    );
    if has_some && !actor.activity.is_empty() {
        left.push(format!("{}: {}", actor.actor_id, actor.activity));
    }
    actor.children.iter().for_each(|child| collect(child, left));
}

/// Returns the resident memory of this process in bytes.
pub(crate) fn resident_bytes() -> Result<f64, Failed> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .ok_or("the system does not report VmRSS")?;
    let kib = line.split_whitespace().nth(1).ok_or("VmRSS has no value")?;
    Ok(kib.parse::<f64>()? * 1024.0)
}

/// Returns the value below which `share` of the times are, in milliseconds.
pub(crate) fn percentile(times: &mut [Duration], share: f64) -> f64 {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    times
        .get((last as f64 * share).round() as usize)
        .map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}
