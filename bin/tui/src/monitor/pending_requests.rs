//! Pending requests of runs, which are read again when they may have changed, one read at a time.
//!
//! Pure. The tree shows the number of pending requests per run, possibly before they can be read.
//! While the numbers differ, the requests are read again, at most once a second. Elsewhere: how the
//! user answers (`dialog.rs`).

use soong_protocol::{ErrorInfo, Timestamp};

use super::{actor::Key, actor_index::ActorIndex};
use crate::request::UserRequest;

/// Minimum interval between two reads while the numbers differ, and after a failure, in
/// milliseconds.
const AGAIN_MS: u64 = 1_000;

#[derive(Debug, Default)]
pub(crate) struct PendingRequests {
    list: Vec<UserRequest>,
    /// Pending requests according to the tree when they were last read.
    read_for: Vec<(Key, u32, u64)>,
    read_at: Timestamp,
    is_pending: bool,
    /// Whether a request was answered since the last read.
    is_stale: bool,
    has_failed: bool,
    /// Whether the user waits to answer: the tree shows pending requests that have not been read
    /// yet.
    is_awaited: bool,
}

impl PendingRequests {
    pub(crate) fn list(&self) -> &[UserRequest] {
        &self.list
    }

    /// Returns whether a read is due, and records that it starts.
    pub(crate) fn start_due_read(&mut self, actors: &ActorIndex, now: Timestamp) -> bool {
        let pending_requests = &actors.summary().pending_requests;
        if pending_requests.is_empty() {
            self.list = Vec::new();
            self.read_for = Vec::new();
            self.is_awaited = false;
            return false;
        }
        let count: usize = pending_requests
            .iter()
            .map(|(_, count, _)| usize::try_from(*count).unwrap_or(0))
            .sum();
        let has_changed = self.is_stale || *pending_requests != self.read_for;
        let may_again = now.millis_since(self.read_at) >= AGAIN_MS;
        let is_due = if self.has_failed {
            may_again
        } else {
            has_changed || (count != self.list.len() && may_again)
        };
        if self.is_pending || !is_due {
            return false;
        }
        self.is_pending = true;
        self.is_stale = false;
        self.has_failed = false;
        self.read_at = now;
        self.read_for = pending_requests.clone();
        true
    }

    /// Stores the result of a read.
    pub(crate) fn store_read(&mut self, read: Result<Vec<UserRequest>, ErrorInfo>) {
        self.is_pending = false;
        match read {
            Ok(list) => self.list = list,
            Err(_) => self.has_failed = true,
        }
    }

    /// Removes a request that the user has answered. The list is read again.
    pub(crate) fn answered(&mut self, id: &str) {
        self.list.retain(|ask| ask.id() != id);
        self.is_stale = true;
    }

    /// Requests a new read, after an answer was accepted or has failed.
    pub(crate) fn mark_stale(&mut self) {
        self.is_stale = true;
    }

    /// Called if the user wants to answer, but no request is known. Returns whether requests are
    /// about to be read.
    pub(crate) fn await_requests(&mut self, actors: &ActorIndex) -> bool {
        self.mark_stale();
        self.is_awaited = !actors.summary().pending_requests.is_empty();
        self.is_awaited
    }

    /// The user does something else instead of waiting.
    pub(crate) fn cancel_awaiting(&mut self) {
        self.is_awaited = false;
    }

    /// Returns true once when the requests that the user waits for have been read.
    pub(crate) fn take_arrived(&mut self) -> bool {
        let has_come = self.is_awaited && !self.list.is_empty();
        self.is_awaited &= !has_come;
        has_come
    }

    /// Drops the pending read, because it belongs to another process.
    pub(crate) fn reset(&mut self) {
        self.is_pending = false;
        self.is_stale = true;
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::ErrorCode;

    use super::*;
    use crate::monitor::sample::{changed, run, tree};

    #[test]
    fn requests_are_reread_only_after_changes() {
        let at = Timestamp::from_millis;
        let mut actors = ActorIndex::default();
        let asking = |events: u64| {
            let mut view = run("r", None);
            let about = view.run.as_mut().unwrap();
            about.asks = 1;
            about.events = events;
            view
        };
        let mut asks = PendingRequests::default();
        actors.apply(tree(vec![asking(3)]), at(0));
        assert!(
            asks.start_due_read(&actors, at(0)) && !asks.start_due_read(&actors, at(0)),
            "one read at a time"
        );
        asks.store_read(Err(ErrorInfo::new(ErrorCode::Overloaded, "no")));
        assert!(
            !asks.start_due_read(&actors, at(500)) && asks.start_due_read(&actors, at(1_500)),
            "not at once after a failure"
        );
        // The request was not stored yet, so it is read again after the interval.
        asks.store_read(Ok(Vec::new()));
        assert!(
            !asks.start_due_read(&actors, at(1_600)) && asks.start_due_read(&actors, at(2_600))
        );
        asks.store_read(Ok(vec![crate::monitor::tests::permission()]));
        assert!(!asks.start_due_read(&actors, at(9_000)), "it agrees");
        // Another request replaces it; the number stays the same.
        actors.apply(changed(vec![asking(7)], &[]), at(9_001));
        assert!(asks.start_due_read(&actors, at(9_001)));
        asks.store_read(Ok(vec![crate::monitor::tests::permission()]));
        asks.answered("p1");
        assert!(asks.list().is_empty() && asks.start_due_read(&actors, at(9_002)));
        actors.apply(tree(vec![run("r", None)]), at(9_003));
        assert!(
            !asks.start_due_read(&actors, at(19_003)),
            "nothing is asked"
        );
    }
}
