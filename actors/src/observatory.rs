//! The observatory: what every actor shows of itself (ACT-6).
//!
//! Each actor has a [`Gauge`] that it and its senders update with atomics and short locks; the
//! observatory holds the gauges. Reading the whole tree asks no actor anything.
//! Not here: what is shown (`observatory/view.rs`); drawing; telling what changes (`observatory/watch.rs`).

mod view;
mod watch;

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use dashmap::DashMap;
use soong_protocol::Timestamp;
pub use view::{ActorKind, ActorView, BudgetShare, GatewayView, RunEnd, RunView};
pub(crate) use watch::Watched;
pub use watch::{TreeEvent, TreeWatch};

use crate::clock::now;

/// What changes while an actor lives.
#[derive(Debug, Clone)]
struct Look {
    state: &'static str,
    activity: String,
    since: Timestamp,
    /// What the activity waits for at the moment, and since when.
    pause: Option<(String, Timestamp)>,
    last_error: Option<String>,
    run: Option<RunView>,
}

/// Changes with what an actor shows: of itself, in messages handled and waiting, and beside it.
type Stamp = [u64; 4];

/// What lies beside an actor and changes without it, or faster than it could say: read where somebody looks.
pub(crate) trait Face: Send + Sync {
    /// Returns a number that is another one after each change of what it fills in.
    fn stamp(&self) -> u64;
    /// Completes the picture of its actor.
    fn fill(&self, view: &mut ActorView);
}

/// One actor's observable state. It outlives a crash: the next incarnation goes on with it.
pub(crate) struct Gauge {
    kind: ActorKind,
    id: String,
    parent: Option<String>,
    started_at: Timestamp,
    restart_limit: &'static str,
    restarts: AtomicU32,
    /// Those of all actors by kind, also of those that are gone.
    all_restarts: Arc<Restarts>,
    mailbox: AtomicUsize,
    handled: AtomicU64,
    /// How often what it shows has changed, but for its mailbox.
    looks: AtomicU64,
    look: Mutex<Look>,
    face: OnceLock<Box<dyn Face>>,
    /// Its stamp when those who watch were told of it last.
    told: Mutex<Option<Stamp>>,
    /// Whether anybody may know of it: who does is told when it leaves.
    is_known: AtomicBool,
}

impl std::fmt::Debug for Gauge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gauge").field("kind", &self.kind).field("id", &self.id).finish_non_exhaustive()
    }
}

impl Gauge {
    /// Names an actor over all kinds.
    pub(crate) fn actor_id(kind: ActorKind, id: &str) -> String {
        format!("{}:{id}", kind.as_str())
    }

    pub(crate) fn sent(&self) {
        self.mailbox.fetch_add(1, Relaxed);
    }

    pub(crate) fn took(&self) {
        let _ = self.mailbox.fetch_update(Relaxed, Relaxed, |depth| depth.checked_sub(1));
        self.handled.fetch_add(1, Relaxed);
    }

    /// Returns how many messages were taken.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Relaxed)
    }

    /// A new incarnation has an empty mailbox.
    pub(crate) fn restarted(&self, error: &str) {
        self.restarts.fetch_add(1, Relaxed);
        self.all_restarts.0[self.kind as usize].fetch_add(1, Relaxed);
        self.mailbox.store(0, Relaxed);
        self.went_wrong(error.to_owned());
        self.show("restarting", "");
    }

    pub(crate) fn show(&self, state: &'static str, activity: impl Into<String>) {
        let activity = activity.into();
        self.change(|look| {
            let is_new = look.state != state || look.activity != activity;
            if is_new {
                (look.since, look.state, look.activity, look.pause) = (now(), state, activity, None);
            }
            is_new
        });
    }

    /// Shows what last went wrong, to die of or not.
    pub(crate) fn went_wrong(&self, error: String) {
        self.change(|look| look.last_error.replace(error) != look.last_error);
    }

    /// Says what lies beside the actor. An incarnation that says so again changes nothing.
    pub(crate) fn set_face(&self, face: impl Face + 'static) {
        let _ = self.face.set(Box::new(face));
    }

    /// Shows what the activity waits for; `None` = it goes on. Another activity ends the wait.
    pub(crate) fn pause(&self, reason: Option<String>) {
        self.change(|look| {
            let before = look.pause.take();
            // A further reason is the same wait.
            let since = before.as_ref().map(|(_, since)| *since);
            look.pause = reason.map(|reason| (reason, since.unwrap_or_else(now)));
            look.pause != before
        });
    }

    pub(crate) fn show_run(&self, change: impl FnOnce(&mut RunView)) {
        self.change(|look| {
            let run = look.run.as_mut();
            run.map(change).is_some()
        });
    }

    /// Returns what is another after each change of what it shows, but for one that comes and goes.
    fn stamp(&self) -> Stamp {
        let mailbox = u64::try_from(self.mailbox.load(Relaxed)).unwrap_or_default();
        let beside = self.face.get().map_or(0, |face| face.stamp());
        [self.looks.load(Relaxed), self.handled.load(Relaxed), mailbox, beside]
    }

    /// Takes what it shows for told; returns whether it is another than was told last.
    fn tell(&self) -> bool {
        self.is_known.store(true, Relaxed);
        let stamp = Some(self.stamp());
        std::mem::replace(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner), stamp) != stamp
    }

    /// Changes what it shows; `change` says whether it did: nobody is told of what stays as it is.
    fn change(&self, change: impl FnOnce(&mut Look) -> bool) {
        let mut look = self.look();
        if change(&mut look) {
            // Whoever sees the new stamp finds the new look.
            self.looks.fetch_add(1, Relaxed);
        }
    }

    fn look(&self) -> MutexGuard<'_, Look> {
        self.look.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All gauges of one runtime.
#[derive(Debug, Default)]
pub(crate) struct Observatory {
    gauges: DashMap<String, Arc<Gauge>>,
    watched: Watched,
    restarts: Arc<Restarts>,
}

/// How often actors were restarted, by kind.
#[derive(Debug, Default)]
struct Restarts([AtomicU64; ActorKind::ALL.len()]);

impl Observatory {
    /// Gives an actor its gauge; the one that it had before a crash, if any.
    pub(crate) fn enter(
        &self,
        kind: ActorKind,
        id: &str,
        parent: Option<String>,
        restart_limit: &'static str,
        run: Option<RunView>,
    ) -> Arc<Gauge> {
        let fresh = || {
            let at = now();
            Arc::new(Gauge {
                kind,
                id: id.to_owned(),
                parent,
                started_at: at,
                restart_limit,
                restarts: AtomicU32::new(0),
                all_restarts: Arc::clone(&self.restarts),
                mailbox: AtomicUsize::new(0),
                handled: AtomicU64::new(0),
                looks: AtomicU64::new(0),
                look: Mutex::new(Look {
                    state: "starting",
                    activity: String::new(),
                    since: at,
                    pause: None,
                    last_error: None,
                    run,
                }),
                face: OnceLock::new(),
                told: Mutex::new(None),
                is_known: AtomicBool::new(false),
            })
        };
        Arc::clone(self.gauges.entry(Gauge::actor_id(kind, id)).or_insert_with(fresh).value())
    }

    /// Forgets an actor that is gone for good.
    pub(crate) fn leave(&self, kind: ActorKind, id: &str) {
        self.forget(kind, id, None);
    }

    /// Forgets a run that has ended.
    pub(crate) fn leave_ended(&self, end: RunEnd) {
        let run_id = end.run_id.clone();
        self.forget(ActorKind::Run, run_id.as_str(), Some(end));
    }

    fn forget(&self, kind: ActorKind, id: &str, end: Option<RunEnd>) {
        if let Some((actor_id, gauge)) = self.gauges.remove(&Gauge::actor_id(kind, id))
            && gauge.is_known.load(Relaxed)
        {
            self.watched.gone(actor_id, end);
        }
    }

    /// Forgets everybody: the tree is gone.
    pub(crate) fn clear(&self) {
        self.gauges.clear();
    }

    /// Returns how often actors of a kind were restarted.
    pub(crate) fn restarts(&self, kind: ActorKind) -> u64 {
        self.restarts.0[kind as usize].load(Relaxed)
    }

    /// Returns how many actors are alive.
    pub(crate) fn len(&self) -> usize {
        self.gauges.len()
    }

    /// Copies the whole tree; `None` before the runtime has started.
    pub(crate) fn tree(&self) -> Option<ActorView> {
        let mut by_parent: std::collections::HashMap<Option<String>, Vec<ActorView>> = std::collections::HashMap::new();
        for entry in &self.gauges {
            entry.is_known.store(true, Relaxed);
            let view = view(entry.value());
            by_parent.entry(view.parent.clone()).or_default().push(view);
        }
        let mut roots = by_parent.remove(&None)?;
        let mut root = roots.pop()?;
        attach(&mut root, &mut by_parent);
        Some(root)
    }
}

fn view(gauge: &Gauge) -> ActorView {
    let look = gauge.look().clone();
    let (activity, since) = look.pause.unwrap_or((look.activity, look.since));
    let mut view = ActorView {
        actor_id: Gauge::actor_id(gauge.kind, &gauge.id),
        kind: gauge.kind,
        id: gauge.id.clone(),
        name: look.run.as_ref().map_or_else(|| gauge.kind.as_str().to_owned(), |run| run.agent_type.clone()),
        parent: gauge.parent.clone(),
        state: look.state.into(),
        activity,
        since,
        started_at: gauge.started_at,
        restarts: gauge.restarts.load(Relaxed),
        restart_limit: gauge.restart_limit.into(),
        mailbox: gauge.mailbox.load(Relaxed),
        handled: gauge.handled.load(Relaxed),
        last_error: look.last_error,
        run: look.run,
        gateway: None,
        children: Vec::new(),
    };
    if let Some(face) = gauge.face.get() {
        face.fill(&mut view);
    }
    view
}

/// Hangs every view under its supervisor; the tree is never deeper than the house.
fn attach(view: &mut ActorView, by_parent: &mut std::collections::HashMap<Option<String>, Vec<ActorView>>) {
    view.children = by_parent.remove(&Some(view.actor_id.clone())).unwrap_or_default();
    view.children.sort_by(|a, b| (a.kind.as_str(), a.started_at, &a.id).cmp(&(b.kind.as_str(), b.started_at, &b.id)));
    for child in &mut view.children {
        attach(child, by_parent);
    }
}
