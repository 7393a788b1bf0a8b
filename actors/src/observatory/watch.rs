//! Watching the supervision tree: a picture of all of it first, then what has changed.
//!
//! One task looks at the gauges while somebody watches, and at nothing but their stamps where nothing has changed; no
//! actor is asked, and none is held up. Whoever reads too slowly loses changes, is told how many, and gets a whole
//! picture in their place. Not here: drawing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::MissedTickBehavior,
};

use super::{ActorView, view};
use crate::live::Shared;

/// How often is looked.
const LOOK: Duration = Duration::from_millis(200);
/// How many changes wait for one who watches; a slower one gets a whole picture again.
const WAITING_CHANGES: usize = 32;

/// What one who watches the tree is told.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "event", content = "data")]
pub enum TreeEvent {
    /// The whole tree. What was told before it is void.
    #[serde(rename = "tree_snapshot")]
    Snapshot {
        /// The root with all below it.
        tree: Box<ActorView>,
        /// How many changes were not told since the watch began.
        dropped: u64,
    },
    /// What has changed since what was told last.
    #[serde(rename = "tree_changed")]
    Changed {
        /// Actors that are new or show something else, without their children: `parent` says where they hang.
        changed: Arc<[ActorView]>,
        /// Actors that are gone, by their `actor_id`.
        gone: Arc<[String]>,
        /// How many changes were not told since the watch began.
        dropped: u64,
    },
}

#[derive(Debug)]
struct Change {
    changed: Arc<[ActorView]>,
    gone: Arc<[String]>,
}

/// Where changes are told, while anybody watches.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Option<broadcast::Sender<Arc<Change>>>>);

impl Watched {
    fn sender(&self) -> std::sync::MutexGuard<'_, Option<broadcast::Sender<Arc<Change>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A watch over the supervision tree; see [`Runtime::watch_tree`](crate::Runtime::watch_tree).
pub struct TreeWatch {
    shared: Arc<Shared>,
    changes: broadcast::Receiver<Arc<Change>>,
    /// Whether a whole picture is owed.
    is_behind: bool,
    dropped: u64,
}

impl std::fmt::Debug for TreeWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TreeWatch").field("dropped", &self.dropped).finish_non_exhaustive()
    }
}

impl TreeWatch {
    pub(crate) fn begin(shared: &Arc<Shared>) -> Self {
        let mut sender = shared.observatory.watched.sender();
        let changes = match sender.as_ref() {
            Some(sender) => sender.subscribe(),
            None => {
                let (fresh, changes) = broadcast::channel(WAITING_CHANGES);
                *sender = Some(fresh);
                shared.tasks.spawn(look(Arc::clone(shared)));
                changes
            }
        };
        drop(sender);
        Self { shared: Arc::clone(shared), changes, is_behind: true, dropped: 0 }
    }

    /// Returns what is to be told next: the whole tree at first, and then its changes, at most five a second.
    ///
    /// `None` = the runtime has closed.
    pub async fn next(&mut self) -> Option<TreeEvent> {
        loop {
            if std::mem::take(&mut self.is_behind) {
                let mut tree = self.shared.observatory.tree()?;
                self.shared.redactor.tree(&mut tree);
                return Some(TreeEvent::Snapshot { tree: Box::new(tree), dropped: self.dropped });
            }
            match self.changes.recv().await {
                Ok(change) => {
                    let (changed, gone) = (Arc::clone(&change.changed), Arc::clone(&change.gone));
                    return Some(TreeEvent::Changed { changed, gone, dropped: self.dropped });
                }
                Err(RecvError::Lagged(missed)) => {
                    self.dropped += missed;
                    // What still waits is older than the picture that follows.
                    self.changes = self.changes.resubscribe();
                    self.is_behind = true;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Looks for changes and tells them, until nobody watches any more or the runtime closes.
async fn look(shared: Arc<Shared>) {
    let mut known: HashMap<String, u64> = HashMap::new();
    let mut ticks = tokio::time::interval(LOOK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            () = shared.closing.cancelled() => break,
        }
        let change = changes(&shared, &mut known);
        let mut sender = shared.observatory.watched.sender();
        let Some(watchers) = sender.as_ref().filter(|sender| sender.receiver_count() > 0) else {
            *sender = None;
            return;
        };
        if !change.changed.is_empty() || !change.gone.is_empty() {
            let _ = watchers.send(Arc::new(change)); // the last one may just have left
        }
    }
    *shared.observatory.watched.sender() = None;
}

fn changes(shared: &Shared, known: &mut HashMap<String, u64>) -> Change {
    let mut before = std::mem::take(known);
    let mut changed = Vec::new();
    for gauge in &shared.observatory.gauges {
        let stamp = gauge.stamp();
        let (id, was) = match before.remove_entry(gauge.key()) {
            Some((id, was)) => (id, Some(was)),
            None => (gauge.key().clone(), None),
        };
        if was != Some(stamp) {
            let mut view = view(gauge.value());
            shared.redactor.tree(&mut view);
            changed.push(view);
        }
        known.insert(id, stamp);
    }
    Change { changed: changed.into(), gone: before.into_keys().collect() }
}
