//! Status of all actors of a runtime (ACT-6).
//!
//! Each actor has a [`ActorStatus`] that the actor and its senders update with atomics and short
//! locks; the tree keeps them all. Reading the whole tree sends no message to any actor.
//!
//! Elsewhere: the shape that clients see (`soong_protocol::tree`), notification of changes
//! (`actor_tree/watch.rs`), and display.

mod watch;

use std::sync::{
    Arc, Mutex, MutexGuard, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use dashmap::DashMap;
use soong_protocol::Timestamp;
pub use soong_protocol::tree::{
    ActorKind, ActorRun, ActorView, BudgetShare, GatewayView, RunEnd, TreeEvent,
};
use soong_text::Redactor;
pub use watch::TreeWatch;
pub(crate) use watch::Watchers;

use crate::clock::now;

/// Removes secrets from a view and its descendants.
pub(crate) fn redact_view(view: &mut ActorView, redactor: &Redactor) {
    redactor.redact(&mut view.activity);
    redactor.redact_optional(&mut view.last_error);
    view.children
        .iter_mut()
        .for_each(|child| redact_view(child, redactor));
}

/// The part of an actor's status that changes during its life.
#[derive(Debug, Clone)]
struct Status {
    state: &'static str,
    activity: String,
    since: Timestamp,
    /// Reason why the activity waits, and the start of the wait.
    pause: Option<(String, Timestamp)>,
    last_error: Option<String>,
    run: Option<ActorRun>,
}

/// Version of an actor's status: changes of the status, messages handled, messages queued, and the
/// version of its [`StatusSource`].
type Revision = [u64; 4];

/// A part of the status of an actor that is stored elsewhere, because it changes without the actor,
/// or too often to push each change. It is read on demand.
pub(crate) trait StatusSource: Send + Sync {
    /// Returns a number that differs after each change of what [`fill`](Self::fill) adds.
    fn revision(&self) -> u64;
    /// Adds this status to the view of the actor.
    fn fill(&self, view: &mut ActorView);
}

/// Observable status of one actor. It outlives a crash: the next incarnation continues to use it.
pub(crate) struct ActorStatus {
    kind: ActorKind,
    id: String,
    parent: Option<String>,
    started_at: Timestamp,
    restart_limit: &'static str,
    restarts: AtomicU32,
    /// Restarts of all actors by kind, including those that are gone.
    all_restarts: Arc<Restarts>,
    mailbox: AtomicUsize,
    handled: AtomicU64,
    /// Number of changes of the status, not counting its mailbox.
    revision: AtomicU64,
    status: Mutex<Status>,
    source: OnceLock<Box<dyn StatusSource>>,
    /// The version that was last published to watchers.
    last_published: Mutex<Option<Revision>>,
    /// Whether a watcher or a snapshot has seen the actor; then watchers are notified of its end.
    was_published: AtomicBool,
}

impl std::fmt::Debug for ActorStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActorStatus")
            .field("kind", &self.kind)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl ActorStatus {
    /// Returns an id that is unique across all kinds of actors.
    pub(crate) fn actor_id(kind: ActorKind, id: &str) -> String {
        format!("{}:{id}", kind.as_str())
    }

    pub(crate) fn message_sent(&self) {
        self.mailbox.fetch_add(1, Relaxed);
    }

    pub(crate) fn message_handled(&self) {
        let _ = self
            .mailbox
            .fetch_update(Relaxed, Relaxed, |depth| depth.checked_sub(1));
        self.handled.fetch_add(1, Relaxed);
    }

    /// Returns the number of messages handled.
    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Relaxed)
    }

    /// Records a restart. The new incarnation has an empty mailbox.
    pub(crate) fn restarted(&self, error: &str) {
        self.restarts.fetch_add(1, Relaxed);
        self.all_restarts.0[self.kind as usize].fetch_add(1, Relaxed);
        self.mailbox.store(0, Relaxed);
        self.record_error(error.to_owned());
        self.set_state("restarting", "");
    }

    pub(crate) fn set_state(&self, state: &'static str, activity: impl Into<String>) {
        let activity = activity.into();
        self.change(|look| {
            let is_new = look.state != state || look.activity != activity;
            if is_new {
                look.since = now();
                look.state = state;
                look.activity = activity;
                look.pause = None;
            }
            is_new
        });
    }

    /// Records the last error, fatal or not.
    pub(crate) fn record_error(&self, error: String) {
        self.change(|look| look.last_error.replace(error) != look.last_error);
    }

    /// Sets the status source outside the actor. Later incarnations that set it again change
    /// nothing.
    pub(crate) fn set_source(&self, face: impl StatusSource + 'static) {
        let _ = self.source.set(Box::new(face));
    }

    /// Sets what the activity waits for; `None`: it continues. Another activity ends the wait.
    pub(crate) fn set_wait_reason(&self, reason: Option<String>) {
        self.change(|look| {
            let before = look.pause.take();
            // Another reason continues the same wait.
            let since = before.as_ref().map(|(_, since)| *since);
            look.pause = reason.map(|reason| (reason, since.unwrap_or_else(now)));
            look.pause != before
        });
    }

    pub(crate) fn update_run(&self, change: impl FnOnce(&mut ActorRun)) {
        self.change(|look| {
            let run = look.run.as_mut();
            run.map(change).is_some()
        });
    }

    /// Returns the current version. It may miss a change of the [`StatusSource`] that is undone
    /// before the next call.
    fn stamp(&self) -> Revision {
        let mailbox = u64::try_from(self.mailbox.load(Relaxed)).unwrap_or_default();
        let beside = self.source.get().map_or(0, |face| face.revision());
        [
            self.revision.load(Relaxed),
            self.handled.load(Relaxed),
            mailbox,
            beside,
        ]
    }

    /// Marks the current status as published. Returns whether it differs from the last published
    /// one.
    fn mark_published(&self) -> bool {
        self.was_published.store(true, Relaxed);
        let stamp = Some(self.stamp());
        std::mem::replace(
            &mut *self
                .last_published
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
            stamp,
        ) != stamp
    }

    /// Changes the status. `change` returns whether it changed something; otherwise watchers are
    /// not notified.
    fn change(&self, change: impl FnOnce(&mut Status) -> bool) {
        let mut look = self.look();
        if change(&mut look) {
            // Incremented under the lock: a reader that sees the new version finds the new status.
            self.revision.fetch_add(1, Relaxed);
        }
    }

    fn look(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Status of all actors of one runtime.
#[derive(Debug, Default)]
pub(crate) struct ActorTree {
    statuses: DashMap<String, Arc<ActorStatus>>,
    watched: Watchers,
    restarts: Arc<Restarts>,
}

/// Number of restarts of actors, by kind.
#[derive(Debug, Default)]
struct Restarts([AtomicU64; ActorKind::ALL.len()]);

impl ActorTree {
    /// Registers an actor, and returns its status. After a crash, returns the status that it had.
    pub(crate) fn register(
        &self,
        kind: ActorKind,
        id: &str,
        parent: Option<String>,
        restart_limit: &'static str,
        run: Option<ActorRun>,
    ) -> Arc<ActorStatus> {
        let fresh = || {
            let at = now();
            Arc::new(ActorStatus {
                kind,
                id: id.to_owned(),
                parent,
                started_at: at,
                restart_limit,
                restarts: AtomicU32::new(0),
                all_restarts: Arc::clone(&self.restarts),
                mailbox: AtomicUsize::new(0),
                handled: AtomicU64::new(0),
                revision: AtomicU64::new(0),
                status: Mutex::new(Status {
                    state: "starting",
                    activity: String::new(),
                    since: at,
                    pause: None,
                    last_error: None,
                    run,
                }),
                source: OnceLock::new(),
                last_published: Mutex::new(None),
                was_published: AtomicBool::new(false),
            })
        };
        Arc::clone(
            self.statuses
                .entry(ActorStatus::actor_id(kind, id))
                .or_insert_with(fresh)
                .value(),
        )
    }

    /// Removes an actor that has ended permanently.
    pub(crate) fn deregister(&self, kind: ActorKind, id: &str) {
        self.remove(kind, id, None);
    }

    /// Removes a run that has ended.
    pub(crate) fn deregister_ended(&self, end: RunEnd) {
        let run_id = end.run_id.clone();
        self.remove(ActorKind::Run, run_id.as_str(), Some(end));
    }

    fn remove(&self, kind: ActorKind, id: &str, end: Option<RunEnd>) {
        if let Some((actor_id, status)) = self.statuses.remove(&ActorStatus::actor_id(kind, id))
            && status.was_published.load(Relaxed)
        {
            self.watched.actor_removed(actor_id, end);
        }
    }

    /// Removes all actors, when the tree has ended.
    pub(crate) fn clear(&self) {
        self.statuses.clear();
    }

    /// Returns the number of restarts of actors of a kind.
    pub(crate) fn restarts(&self, kind: ActorKind) -> u64 {
        self.restarts.0[kind as usize].load(Relaxed)
    }

    /// Returns the number of live actors.
    pub(crate) fn len(&self) -> usize {
        self.statuses.len()
    }

    /// Returns a snapshot of the whole tree. `None` before the runtime has started.
    pub(crate) fn tree(&self) -> Option<ActorView> {
        let mut by_parent: std::collections::HashMap<Option<String>, Vec<ActorView>> =
            std::collections::HashMap::new();
        for entry in &self.statuses {
            entry.was_published.store(true, Relaxed);
            let view = view(entry.value());
            by_parent.entry(view.parent.clone()).or_default().push(view);
        }
        let mut roots = by_parent.remove(&None)?;
        let mut root = roots.pop()?;
        attach(&mut root, &mut by_parent);
        Some(root)
    }
}

fn view(status: &ActorStatus) -> ActorView {
    let look = status.look().clone();
    let (activity, since) = look.pause.unwrap_or((look.activity, look.since));
    let mut view = ActorView {
        actor_id: ActorStatus::actor_id(status.kind, &status.id),
        kind: status.kind,
        id: status.id.clone(),
        name: look.run.as_ref().map_or_else(
            || status.kind.as_str().to_owned(),
            |run| run.agent_type.clone(),
        ),
        parent: status.parent.clone(),
        state: look.state.into(),
        activity,
        since,
        started_at: status.started_at,
        restarts: status.restarts.load(Relaxed),
        restart_limit: status.restart_limit.into(),
        mailbox: status.mailbox.load(Relaxed),
        handled: status.handled.load(Relaxed),
        last_error: look.last_error,
        run: look.run,
        gateway: None,
        children: Vec::new(),
    };
    if let Some(face) = status.source.get() {
        face.fill(&mut view);
    }
    view
}

/// Attaches the children of a view, recursively. The depth is bounded by that of the supervision
/// tree.
fn attach(
    view: &mut ActorView,
    by_parent: &mut std::collections::HashMap<Option<String>, Vec<ActorView>>,
) {
    view.children = by_parent
        .remove(&Some(view.actor_id.clone()))
        .unwrap_or_default();
    view.children.sort_by(|a, b| {
        (a.kind.as_str(), a.started_at, &a.id).cmp(&(b.kind.as_str(), b.started_at, &b.id))
    });
    for child in &mut view.children {
        attach(child, by_parent);
    }
}
