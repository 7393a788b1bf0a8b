//! Watching the supervision tree: a picture of all of it first, then what has changed.
//!
//! One task looks at the gauges while somebody watches, and at nothing but their stamps where nothing has changed; no
//! actor is asked, and none is held up. Whoever reads too slowly loses changes, is told how many, and gets a whole
//! picture in their place. Not here: drawing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{ActorView, Observatory, RunEnd, view};
use crate::redaction::Redactor;

/// How often is looked.
const LOOK: Duration = Duration::from_millis(250);
/// How many times longer than a look takes there is none: of a large tree less is told, and looking stays cheap.
const LOOK_SHARE: u32 = 100;
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
        /// Actors that are gone, by their `actor_id`. One that has `changed` as well has come back since.
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
    left: Left,
}

/// Actors that somebody may know of, and that have left since the last look.
#[derive(Debug, Default)]
struct Left {
    gone: Vec<String>,
    ended: Vec<RunEnd>,
}

impl Watched {
    fn audience(&self) -> MutexGuard<'_, Option<Audience>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn gone(&self, actor_id: String, end: Option<RunEnd>) {
        if let Some(Audience { left, .. }) = self.audience().as_mut() {
            left.gone.push(actor_id);
            left.ended.extend(end);
        }
    }
}

/// A watch over the supervision tree; see [`Runtime::watch_tree`](crate::Runtime::watch_tree).
pub struct TreeWatch {
    observatory: Arc<Observatory>,
    redactor: Redactor,
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
    /// Begins to watch. The task that looks for changes runs among `tasks`, until `closing` is cancelled.
    pub(crate) fn begin(
        observatory: &Arc<Observatory>,
        redactor: &Redactor,
        tasks: &TaskTracker,
        closing: &CancellationToken,
    ) -> Self {
        let mut audience = observatory.watched.audience();
        let changes = match audience.as_ref() {
            Some(audience) => audience.changes.subscribe(),
            None => {
                let (fresh, changes) = broadcast::channel(WAITING_CHANGES);
                *audience = Some(Audience { changes: fresh, left: Left::default() });
                // Before anybody has the whole picture: what changes from now on is told.
                observatory.gauges.iter().for_each(|gauge| _ = gauge.tell());
                tasks.spawn(look(Arc::clone(observatory), redactor.clone(), closing.clone()));
                changes
            }
        };
        drop(audience);
        Self { observatory: Arc::clone(observatory), redactor: redactor.clone(), changes, is_behind: true, dropped: 0 }
    }

    /// Returns what is to be told next: the whole tree at first, and then its changes, at most four a second.
    ///
    /// `None` = the runtime has closed.
    pub async fn next(&mut self) -> Option<TreeEvent> {
        loop {
            if std::mem::take(&mut self.is_behind) {
                let mut tree = self.observatory.tree()?;
                tree.redact(&self.redactor);
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

/// Returns what has changed since the last look; those who have `left` since then are gone.
fn changes(observatory: &Observatory, redactor: &Redactor, left: Left) -> Change {
    let gauges = observatory.gauges.iter();
    let mut changed: Vec<ActorView> = gauges.filter(|gauge| gauge.tell()).map(|gauge| view(gauge.value())).collect();
    changed.iter_mut().for_each(|view| view.redact(redactor));
    Change { changed: changed.into(), gone: left.gone.into(), ended: left.ended.into() }
}

/// Looks for changes and tells them, until nobody watches any more or the runtime closes.
async fn look(observatory: Arc<Observatory>, redactor: Redactor, closing: CancellationToken) {
    let mut wait = LOOK;
    loop {
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = closing.cancelled() => break,
        }
        let begun = Instant::now();
        // Taken before it is looked: who comes back under the same name has gone first.
        let left = {
            let mut audience = observatory.watched.audience();
            let Some(there) = audience.as_mut().filter(|there| there.changes.receiver_count() > 0) else {
                *audience = None;
                return;
            };
            std::mem::take(&mut there.left)
        };
        let change = changes(&observatory, &redactor, left);
        wait = LOOK.max(begun.elapsed() * LOOK_SHARE);
        if (!change.changed.is_empty() || !change.gone.is_empty())
            && let Some(Audience { changes, .. }) = observatory.watched.audience().as_ref()
        {
            let _ = changes.send(Arc::new(change)); // the last one may just have left
        }
    }
    *observatory.watched.audience() = None;
}
