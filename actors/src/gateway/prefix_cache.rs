//! Groups of runs with the same beginning of the prompt, and the cache key of each run.
//!
//! Some services route requests by a key to one of several caches. Each cache takes a limited
//! number of requests per minute, so a large group is divided among several keys. A run keeps its
//! key.
//!
//! A cache can be read only when it has been written: if the first run of a key starts alone
//! ([`WarmUp`]), the others read what they have in common from the cache.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, timeout_at},
};

/// Requests per minute that one key of OpenAI's services takes; more of them are sent to other
/// caches.
pub(crate) const OPENAI_REQUESTS_PER_KEY: usize = 15;
/// Time over which requests of a key are counted.
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum time for which the other runs of a key wait for the first one.
const MAX_WARM_UP: Duration = Duration::from_secs(5);
/// Time after the last request for which a cache surely has its content: the shortest of all
/// services.
const LIFETIME: Duration = Duration::from_secs(300);

/// The groups of a profile.
pub(crate) struct PrefixCaches {
    /// Maximum number of requests of a key per minute.
    requests_per_key: usize,
    /// The keys of each group.
    groups: Mutex<HashMap<u64, Vec<Arc<PrefixCache>>>>,
}

/// One cache of a group: its key, the requests with that key, and whether it can be read.
pub(crate) struct PrefixCache {
    key: Arc<str>,
    /// Times of the requests within the last minute.
    requests: Mutex<VecDeque<Instant>>,
    state: watch::Sender<CacheState>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CacheState {
    /// Nothing is known to be in the cache.
    Cold,
    /// The first run of the key fills the cache.
    Warming { since: Instant },
    /// The service has begun to answer a request.
    Warm { used: Instant },
}

/// The first run of a key fills the cache. The others wait while this exists. If it is dropped
/// before the cache is filled, the next run becomes the first one.
pub(crate) struct WarmUp(Arc<PrefixCache>);

impl WarmUp {
    /// Records that the service has begun to answer, so that the cache can be read.
    pub(crate) fn filled(self) {
        self.0.state.send_replace(CacheState::Warm {
            used: Instant::now(),
        });
    }
}

impl Drop for WarmUp {
    fn drop(&mut self) {
        self.0.state.send_if_modified(|state| {
            let is_warming = matches!(state, CacheState::Warming { .. });
            if is_warming {
                *state = CacheState::Cold;
            }
            is_warming
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Each change completes before anything can panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PrefixCaches {
    pub(crate) fn new(requests_per_key: usize) -> Self {
        Self {
            requests_per_key,
            groups: Mutex::default(),
        }
    }

    /// Returns the cache for a run whose prompt begins with the text of this hash: the first one of
    /// the group that takes another request, or a new one.
    pub(crate) fn cache_for(&self, prefix: u64) -> Arc<PrefixCache> {
        let mut groups = lock(&self.groups);
        if !groups.contains_key(&prefix) {
            groups.retain(|_, caches| caches.iter().any(|cache| cache.request_count() > 0));
        }
        let caches = groups.entry(prefix).or_default();
        if let Some(cache) = caches
            .iter()
            .find(|cache| cache.request_count() < self.requests_per_key)
        {
            cache.count_request();
            return Arc::clone(cache);
        }
        let cache = Arc::new(PrefixCache {
            key: format!("soong-{prefix:016x}-{}", caches.len() + 1).into(),
            requests: Mutex::default(),
            state: watch::Sender::new(CacheState::Cold),
        });
        cache.count_request();
        caches.push(Arc::clone(&cache));
        cache
    }
}

impl PrefixCache {
    /// Returns the key that requests carry.
    pub(crate) fn key(&self) -> Arc<str> {
        Arc::clone(&self.key)
    }

    /// Counts a request with the key.
    pub(crate) fn count_request(&self) {
        self.recent_requests().push_back(Instant::now());
    }

    fn request_count(&self) -> usize {
        self.recent_requests().len()
    }

    /// Returns the times of the requests within the last minute.
    fn recent_requests(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        let mut requests = lock(&self.requests);
        while requests.front().is_some_and(|at| at.elapsed() >= MINUTE) {
            requests.pop_front();
        }
        requests
    }

    /// Returns a guard if the cache is empty and this run is the first to fill it. Otherwise waits
    /// until the first run has filled it, at most [`MAX_WARM_UP`] from its start. Calls `on_wait`
    /// before it waits.
    pub(crate) async fn warm_up(self: &Arc<Self>, on_wait: impl FnOnce()) -> Option<WarmUp> {
        let now = Instant::now();
        let is_cold = |state: CacheState| match state {
            CacheState::Cold => true,
            CacheState::Warming { .. } => false,
            CacheState::Warm { used } => used.elapsed() >= LIFETIME,
        };
        let is_first = self.state.send_if_modified(|state| {
            let is_first = is_cold(*state);
            match state {
                _ if is_first => *state = CacheState::Warming { since: now },
                CacheState::Warm { used } => *used = now,
                _ => {}
            }
            is_first
        });
        if is_first {
            return Some(WarmUp(Arc::clone(self)));
        }
        let CacheState::Warming { since } = *self.state.borrow() else {
            return None;
        };
        on_wait();
        let mut state = self.state.subscribe();
        let filled = state.wait_for(|state| !matches!(state, CacheState::Warming { .. }));
        // After the time limit, the run starts with an empty cache.
        let _ = timeout_at(since + MAX_WARM_UP, filled).await;
        None
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn large_group_uses_several_keys() {
        let caches = PrefixCaches::new(2);
        let keys: Vec<Arc<str>> = (0..5).map(|_| caches.cache_for(7).key()).collect();
        assert_eq!(
            keys.iter()
                .map(|key| &key[key.len() - 1..])
                .collect::<Vec<_>>(),
            ["1", "1", "2", "2", "3"]
        );
        assert!(keys[0].len() <= 64 && keys[0] != caches.cache_for(8).key());
        advance(MINUTE).await;
        assert_eq!(
            caches.cache_for(7).key(),
            keys[0],
            "a minute later, the first key takes requests again"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn others_wait_until_the_first_run_is_answered() {
        let caches = PrefixCaches::new(usize::MAX);
        let cache = caches.cache_for(1);
        let first = cache
            .warm_up(|| unreachable!("the first run does not wait"))
            .await
            .unwrap();
        let mut waited = false;
        let mut other = Box::pin(cache.warm_up(|| waited = true));
        assert!((&mut other).now_or_never().is_none());
        first.filled();
        assert!(other.await.is_none());
        assert!(waited);
        assert!(
            cache
                .warm_up(|| unreachable!("the cache is filled"))
                .await
                .is_none()
        );
        sleep(LIFETIME).await;
        let failed = cache.warm_up(|| {}).await;
        assert!(failed.is_some(), "its content may be gone");
        drop(failed);
        assert!(
            cache.warm_up(|| {}).await.is_some(),
            "the run that should fill it has failed"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn others_wait_for_a_limited_time() {
        let cache = PrefixCaches::new(usize::MAX).cache_for(1);
        let _first = cache.warm_up(|| {}).await.unwrap();
        advance(Duration::from_secs(2)).await;
        let start = Instant::now();
        assert!(cache.warm_up(|| {}).await.is_none());
        assert_eq!(start.elapsed(), Duration::from_secs(3));
    }
}
