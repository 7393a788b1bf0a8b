//! Locks per path: operations that write or delete the same path run one after the other.
//!
//! The lock is moved into the work and is held even after the caller was dropped. So a deletion
//! that is requested after an abandoned write runs after that write's remaining work. Reads take no
//! lock.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

type PathMutex = Arc<tokio::sync::Mutex<()>>;

/// Paths with a running or waiting operation.
#[derive(Debug, Default)]
pub(super) struct PathLocks {
    mutexes: Mutex<HashMap<String, PathMutex>>,
}

/// The lock of a path, for writing or deleting it; released when dropped.
#[derive(Debug)]
pub(super) struct PathLock {
    locks: Arc<PathLocks>,
    path: String,
    mutex: Option<PathMutex>,
    guard: Option<tokio::sync::OwnedMutexGuard<()>>,
}

impl PathLocks {
    /// Waits for the lock of `path`.
    pub(super) async fn lock(self: &Arc<Self>, path: &str) -> PathLock {
        let gate = PathMutex::clone(self.gates().entry(path.to_owned()).or_default());
        // Created before waiting, so that a cancelled wait also removes its gate.
        let mut turn = PathLock {
            locks: Arc::clone(self),
            path: path.to_owned(),
            mutex: Some(PathMutex::clone(&gate)),
            guard: None,
        };
        turn.guard = Some(gate.lock_owned().await);
        turn
    }

    fn gates(&self) -> MutexGuard<'_, HashMap<String, PathMutex>> {
        self.mutexes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PathLock {
    fn drop(&mut self) {
        self.guard = None;
        self.mutex = None;
        let mut gates = self.locks.gates();
        // New users of a gate get it from the map only, which is locked.
        if gates
            .get(&self.path)
            .is_some_and(|gate| Arc::strong_count(gate) == 1)
        {
            gates.remove(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[tokio::test]
    async fn path_lock_is_exclusive_and_dropped_when_unused() {
        let turns = Arc::new(PathLocks::default());
        let first = turns.lock("a").await;
        assert!(
            turns.lock("b").now_or_never().is_some(),
            "another path does not wait"
        );
        let mut second = Box::pin(turns.lock("a"));
        assert!(second.as_mut().now_or_never().is_none());
        assert!(
            turns.lock("a").now_or_never().is_none(),
            "this one gives up waiting"
        );
        drop(first);
        drop(second.await);
        assert!(turns.gates().is_empty());
    }
}
