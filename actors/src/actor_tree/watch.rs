//! Watching the supervision tree: a snapshot first, then changes.
//!
//! While there are watchers, one task polls the statuses. It only compares versions if nothing has
//! changed, sends no message to any actor, and delays none. A watcher that reads too slowly loses
//! changes, learns how many, and receives a new snapshot instead.
//!
//! Elsewhere: display.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use soong_text::Redactor;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{ActorTree, ActorView, RunEnd, TreeEvent, redact_view, view};

/// Minimum interval between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Minimum ratio of the interval to the duration of a poll: a large tree is polled less often, so
/// polling stays cheap.
const MIN_INTERVAL_RATIO: u32 = 100;
/// Number of changes buffered per watcher. A slower watcher receives a snapshot again.
const MAX_BUFFERED_CHANGES: usize = 32;

#[derive(Debug, Clone)]
struct Change {
    changed: Arc<[ActorView]>,
    gone: Arc<[String]>,
    ended: Arc<[RunEnd]>,
}

/// The watchers. `None` if there are none.
#[derive(Debug, Default)]
pub(crate) struct Watchers(Mutex<Option<WatchChannel>>);

#[derive(Debug)]
struct WatchChannel {
    changes: broadcast::Sender<Arc<Change>>,
    left: RemovedActors,
}

/// Actors that watchers may know, and that were removed since the last poll.
#[derive(Debug, Default)]
struct RemovedActors {
    gone: Vec<String>,
    ended: Vec<RunEnd>,
}

impl Watchers {
    fn audience(&self) -> MutexGuard<'_, Option<WatchChannel>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn actor_removed(&self, actor_id: String, end: Option<RunEnd>) {
        if let Some(WatchChannel { left, .. }) = self.audience().as_mut() {
            left.gone.push(actor_id);
            left.ended.extend(end);
        }
    }
}

/// Subscription to the supervision tree; see [`Tree::watch`](crate::Tree::watch).
pub struct TreeWatch {
    actor_tree: Arc<ActorTree>,
    redactor: Redactor,
    changes: broadcast::Receiver<Arc<Change>>,
    /// Whether a snapshot must be sent next.
    needs_snapshot: bool,
    dropped: u64,
}

impl std::fmt::Debug for TreeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeWatch")
            .field("dropped", &self.dropped)
            .finish_non_exhaustive()
    }
}

impl TreeWatch {
    /// Starts a watch. The polling task is spawned on `tasks` and runs until `closing` is
    /// cancelled.
    pub(crate) fn start(
        actor_tree: &Arc<ActorTree>,
        redactor: &Redactor,
        tasks: &TaskTracker,
        closing: &CancellationToken,
    ) -> Self {
        let mut audience = actor_tree.watched.audience();
        let changes = match audience.as_ref() {
            Some(audience) => audience.changes.subscribe(),
            None => {
                let (fresh, changes) = broadcast::channel(MAX_BUFFERED_CHANGES);
                *audience = Some(WatchChannel {
                    changes: fresh,
                    left: RemovedActors::default(),
                });
                // Mark everything as published before the snapshot is taken: changes from now on
                // are sent.
                actor_tree
                    .statuses
                    .iter()
                    .for_each(|status| _ = status.mark_published());
                tasks.spawn(poll(
                    Arc::clone(actor_tree),
                    redactor.clone(),
                    closing.clone(),
                ));
                changes
            }
        };
        drop(audience);
        Self {
            actor_tree: Arc::clone(actor_tree),
            redactor: redactor.clone(),
            changes,
            needs_snapshot: true,
            dropped: 0,
        }
    }

    /// Waits for the next update: first a snapshot of the tree, then its changes, at most four per
    /// second.
    ///
    /// `None` if the runtime has closed.
    pub async fn next(&mut self) -> Option<TreeEvent> {
        loop {
            if std::mem::take(&mut self.needs_snapshot) {
                let mut tree = self.actor_tree.tree()?;
                redact_view(&mut tree, &self.redactor);
                return Some(TreeEvent::Snapshot {
                    tree: Box::new(tree),
                    dropped: self.dropped,
                });
            }
            match self.changes.recv().await {
                Ok(change) => {
                    let Change {
                        changed,
                        gone,
                        ended,
                    } = Change::clone(&change);
                    return Some(TreeEvent::Changed {
                        changed,
                        gone,
                        ended,
                        dropped: self.dropped,
                    });
                }
                Err(RecvError::Lagged(missed)) => {
                    self.dropped += missed + u64::try_from(self.changes.len()).unwrap_or(0);
                    // Buffered changes are older than the snapshot that follows.
                    self.changes = self.changes.resubscribe();
                    self.needs_snapshot = true;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Returns the changes since the last poll. `left` holds the actors removed since then.
fn changes(actor_tree: &ActorTree, redactor: &Redactor, left: RemovedActors) -> Change {
    let statuses = actor_tree.statuses.iter();
    let mut changed: Vec<ActorView> = statuses
        .filter(|status| status.mark_published())
        .map(|status| view(status.value()))
        .collect();
    changed
        .iter_mut()
        .for_each(|view| redact_view(view, redactor));
    Change {
        changed: changed.into(),
        gone: left.gone.into(),
        ended: left.ended.into(),
    }
}

/// Polls for changes and sends them, until there are no watchers or the runtime closes.
async fn poll(actor_tree: Arc<ActorTree>, redactor: Redactor, closing: CancellationToken) {
    let mut wait = POLL_INTERVAL;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = closing.cancelled() => break,
        }
        let begun = Instant::now();
        // Taken before polling: an actor with the same id that is found by the poll was started
        // after the removal.
        let left = {
            let mut audience = actor_tree.watched.audience();
            let Some(channel) = audience
                .as_mut()
                .filter(|channel| channel.changes.receiver_count() > 0)
            else {
                *audience = None;
                return;
            };
            std::mem::take(&mut channel.left)
        };
        let change = changes(&actor_tree, &redactor, left);
        wait = POLL_INTERVAL.max(begun.elapsed() * MIN_INTERVAL_RATIO);
        if (!change.changed.is_empty() || !change.gone.is_empty())
            && let Some(WatchChannel { changes, .. }) = actor_tree.watched.audience().as_ref()
        {
            let _ = changes.send(Arc::new(change)); // the last watcher may be gone
        }
    }
    *actor_tree.watched.audience() = None;
}
