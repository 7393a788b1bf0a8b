//! Watching the supervision tree: a picture of all of it first, then what has changed.
//!
//! One task looks at the gauges while somebody watches, and at nothing but their stamps where nothing has changed; no
//! actor is asked, and none is held up. Whoever reads too slowly loses changes, is told how many, and gets a whole
//! picture in their place. Not here: drawing.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};

use super::{ActorKind, ActorView, Gauge, RunEnd, Stamp, view};
use crate::live::{RunOutcome, Shared};

/// How often is looked.
const LOOK: Duration = Duration::from_millis(200);
/// How many times longer than a look takes there is none: of a large tree less is told, and looking stays cheap.
const LOOK_SHARE: u32 = 50;
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
        /// How the runs among them ended. One whose end is missing here has not ended: its runtime let go of it. What
        /// ended while changes were not told is to be read where runs are recorded.
        #[serde(default)]
        ended: Arc<[RunEnd]>,
        /// How many changes were not told since the watch began.
        dropped: u64,
    },
}

#[derive(Debug, Clone)]
struct Change {
    changed: Arc<[ActorView]>,
    gone: Arc<[String]>,
    ended: Arc<[RunEnd]>,
}

/// Those who watch; `None` = nobody does.
#[derive(Debug, Default)]
pub(crate) struct Watched(Mutex<Option<Audience>>);

#[derive(Debug)]
struct Audience {
    changes: broadcast::Sender<Arc<Change>>,
    /// Runs that have ended since the last look.
    ended: Vec<RunEnd>,
}

impl Watched {
    fn audience(&self) -> MutexGuard<'_, Option<Audience>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn ended(&self, outcome: &RunOutcome) {
        if let Some(audience) = self.audience().as_mut() {
            audience.ended.push(RunEnd::of(outcome));
        }
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
        let mut audience = shared.observatory.watched.audience();
        let changes = match audience.as_ref() {
            Some(audience) => audience.changes.subscribe(),
            None => {
                let (fresh, changes) = broadcast::channel(WAITING_CHANGES);
                *audience = Some(Audience { changes: fresh, ended: Vec::new() });
                // Before anybody has the whole picture: what changes from now on is told.
                let mut known = Known::default();
                known.skip(shared);
                shared.tasks.spawn(look(Arc::clone(shared), known));
                changes
            }
        };
        drop(audience);
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
                    let Change { changed, gone, ended } = Change::clone(&change);
                    return Some(TreeEvent::Changed { changed, gone, ended, dropped: self.dropped });
                }
                Err(RecvError::Lagged(missed)) => {
                    self.dropped += missed + u64::try_from(self.changes.len()).unwrap_or(0);
                    // What still waits is older than the picture that follows.
                    self.changes = self.changes.resubscribe();
                    self.is_behind = true;
                }
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// What was told of each actor, as far as it matters whether there is more to tell.
#[derive(Default)]
struct Known {
    /// The stamp that an actor had, and the look at which it was there.
    stamps: HashMap<String, (Stamp, u64)>,
    looks: u64,
    /// How runs ended, by their actor, that were still there at the last look.
    ends: HashMap<String, RunEnd>,
}

impl Known {
    /// Returns what has changed since the last look.
    fn look(&mut self, shared: &Shared) -> Change {
        self.looks += 1;
        let looks = self.looks;
        let mut changed = Vec::new();
        for gauge in &shared.observatory.gauges {
            let stamp = gauge.stamp();
            match self.stamps.get_mut(gauge.key()) {
                Some((was, seen)) => {
                    *seen = looks;
                    if std::mem::replace(was, stamp) == stamp {
                        continue;
                    }
                }
                None => drop(self.stamps.insert(gauge.key().clone(), (stamp, looks))),
            }
            changed.push(view(gauge.value()));
        }
        changed.iter_mut().for_each(|view| shared.redactor.tree(view));
        // Taken behind it: of whoever is seen to be gone, the end was said before.
        let ended = shared.observatory.watched.audience().as_mut().map(|audience| std::mem::take(&mut audience.ended));
        let ended = ended.into_iter().flatten();
        self.ends.extend(ended.map(|end| (Gauge::actor_id(ActorKind::Run, end.run_id.as_str()), end)));
        let gone: Vec<String> = self.stamps.extract_if(|_, (_, seen)| *seen < looks).map(|(id, _)| id).collect();
        let ended = gone.iter().filter_map(|id| self.ends.remove(id)).collect();
        // The others are about to go, or were never told of.
        self.ends.retain(|id, _| self.stamps.contains_key(id));
        Change { changed: changed.into(), gone: gone.into(), ended }
    }

    /// Takes what there is for told.
    fn skip(&mut self, shared: &Shared) {
        let gauges = shared.observatory.gauges.iter();
        self.stamps = gauges.map(|gauge| (gauge.key().clone(), (gauge.stamp(), self.looks))).collect();
    }
}

/// Looks for changes and tells them, until nobody watches any more or the runtime closes.
async fn look(shared: Arc<Shared>, mut known: Known) {
    let mut wait = LOOK;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shared.closing.cancelled() => break,
        }
        let begun = Instant::now();
        let change = known.look(&shared);
        wait = LOOK.max(begun.elapsed() * LOOK_SHARE);
        let mut audience = shared.observatory.watched.audience();
        let Some(Audience { changes, .. }) = audience.as_ref().filter(|all| all.changes.receiver_count() > 0) else {
            *audience = None;
            return;
        };
        if !change.changed.is_empty() || !change.gone.is_empty() {
            let _ = changes.send(Arc::new(change)); // the last one may just have left
        }
    }
    *shared.observatory.watched.audience() = None;
}
