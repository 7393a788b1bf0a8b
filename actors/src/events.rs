//! Event streams: every stored event once and in order, then live, without a gap (EVT-3).
//!
//! A subscriber registers at the [`Hub`] first and reads stored events afterwards; what arrives
//! live meanwhile is skipped by its number. A number that is missing, or a buffer that overflowed,
//! sends it back to reading. So a slow reader is bounded, loses no event, and holds nobody up;
//! deltas are skipped for it.

mod item;
mod stream;

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use dashmap::DashMap;
pub use item::{LiveDelta, LostRun, StreamItem};
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord, RunId, SessionId, TraceId};
pub use stream::EventStream;
use tokio::sync::mpsc;

use crate::meter::{SubscriberMetrics, count};

/// How many live items wait for a subscriber before it has to read from the store again.
const BUFFER_ITEMS: usize = 1024;
/// Deltas take at most this much of the buffer: the rest is kept for events.
const DELTA_ITEMS: usize = BUFFER_ITEMS / 2;

/// What a subscriber is handed.
enum Live {
    Event(Arc<EventRecord>),
    Delta(Arc<LiveDelta>),
    /// There is something to be read from the store.
    Look,
}

/// What a subscriber has to see to beside what it is handed: nothing of it is left out, however slow it is.
#[derive(Default)]
struct Aside {
    /// Whether it has to read from the store.
    lagged: AtomicBool,
    lost: Mutex<Vec<Arc<LostRun>>>,
    /// Why nothing follows, where that is a failure.
    failure: OnceLock<ErrorInfo>,
}

struct Subscriber {
    items: mpsc::Sender<Live>,
    aside: Arc<Aside>,
}

impl Subscriber {
    fn is_there(&self) -> bool {
        !self.items.is_closed()
    }

    /// Hands an item over without waiting; `false` = the subscriber has left.
    fn offer(&self, item: &StreamItem) -> bool {
        let live = match item {
            StreamItem::Event(record) => Live::Event(Arc::clone(record)),
            StreamItem::Delta(_) if self.items.capacity() < BUFFER_ITEMS - DELTA_ITEMS => return true,
            StreamItem::Delta(delta) => Live::Delta(Arc::clone(delta)),
            StreamItem::Lost(lost) => {
                self.aside.lost.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(lost));
                self.look();
                return self.is_there();
            }
        };
        match self.items.try_send(live) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                // In case it has emptied its buffer meanwhile, and waits.
                self.look();
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Has it look into the store, and at what is aside.
    fn look(&self) {
        self.aside.lagged.store(true, Ordering::Release);
        let _ = self.items.try_send(Live::Look);
    }
}

/// Where live items meet their subscribers.
#[derive(Default)]
pub(crate) struct Hub {
    traces: DashMap<TraceId, Vec<Subscriber>>,
    sessions: DashMap<SessionId, Vec<Subscriber>>,
    subscribers: AtomicUsize,
    closed: AtomicBool,
    /// Why it is closed, where that is a failure.
    failure: OnceLock<ErrorInfo>,
    /// Sessions whose runs were interrupted by a failure, until the session is used again.
    failed_sessions: DashMap<SessionId, ErrorInfo>,
    /// Whether there has been such a session; spares each stream the look-up.
    has_failed_sessions: AtomicBool,
}

impl Hub {
    /// Returns whether anybody listens; checked after a commit, so that who registers later reads it.
    pub(crate) fn is_watched(&self) -> bool {
        self.subscribers.load(Ordering::Acquire) > 0
    }

    /// Hands an item to everybody who listens to its trace or session.
    pub(crate) fn publish(&self, item: &StreamItem) {
        let (trace, session) = match item {
            StreamItem::Event(record) => (&record.trace_id, &record.session_id),
            StreamItem::Delta(delta) => (&delta.trace_id, &delta.session_id),
            StreamItem::Lost(lost) => (&lost.trace_id, &lost.session_id),
        };
        self.retain(&self.traces, trace, |subscriber| subscriber.offer(item));
        self.retain(&self.sessions, session, |subscriber| subscriber.offer(item));
    }

    /// Returns who listens, and how far behind they are.
    pub(crate) fn metrics(&self) -> SubscriberMetrics {
        let mut found = SubscriberMetrics::default();
        let mut take = |listening: &[Subscriber]| {
            for subscriber in listening.iter().filter(|subscriber| subscriber.is_there()) {
                let waiting = BUFFER_ITEMS - subscriber.items.capacity();
                found.count += 1;
                found.max_waiting = found.max_waiting.max(count(waiting));
                found.behind += u64::from(subscriber.aside.lagged.load(Ordering::Acquire));
            }
        };
        self.traces.iter().for_each(|listening| take(&listening));
        self.sessions.iter().for_each(|listening| take(&listening));
        found
    }

    /// Has everybody who listens to a trace, or to its session, look into the store.
    pub(crate) fn nudge(&self, trace: &TraceId) {
        let look = |subscriber: &Subscriber| {
            subscriber.look();
            true
        };
        self.retain(&self.traces, trace, look);
        self.retain(&self.sessions, &SessionId::new(root(trace)), look);
    }

    fn retain<K, F>(&self, map: &DashMap<K, Vec<Subscriber>>, key: &K, mut keep: F)
    where
        K: std::hash::Hash + Eq,
        F: FnMut(&Subscriber) -> bool,
    {
        let Some(mut listening) = map.get_mut(key) else { return };
        let before = listening.len();
        listening.retain(|subscriber| keep(subscriber));
        let left = before - listening.len();
        let empty = listening.is_empty();
        drop(listening);
        self.subscribers.fetch_sub(left, Ordering::AcqRel);
        if empty {
            map.remove_if(key, |_, listening| listening.is_empty());
        }
    }

    /// Forgets the subscribers of a scope that have left.
    fn sweep(&self, scope: &Scope) {
        match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => self.retain(&self.traces, trace, Subscriber::is_there),
            Scope::Session(session) => self.retain(&self.sessions, session, Subscriber::is_there),
        }
    }

    fn register(&self, scope: &Scope) -> (mpsc::Receiver<Live>, Arc<Aside>) {
        let (items, receiver) = mpsc::channel(BUFFER_ITEMS);
        let aside = Arc::new(Aside::default());
        let subscriber = Subscriber { items, aside: Arc::clone(&aside) };
        self.subscribers.fetch_add(1, Ordering::AcqRel);
        match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => {
                self.traces.entry(trace.clone()).or_default().push(subscriber);
            }
            Scope::Session(session) => self.sessions.entry(session.clone()).or_default().push(subscriber),
        }
        // Looked at behind the push: a hub that closes meanwhile drops what was pushed, or is seen here.
        if self.closed.load(Ordering::SeqCst) {
            self.drop_all();
        }
        (receiver, aside)
    }

    /// Ends the streams of a session and of its traces: no event follows.
    pub(crate) fn end_session(&self, session: &SessionId) {
        self.failed_sessions.remove(session);
        self.end_with(session, |_| {});
    }

    fn end_with(&self, session: &SessionId, last: impl Fn(&Subscriber)) {
        if let Some((_, listening)) = self.sessions.remove(session) {
            listening.iter().for_each(&last);
            self.subscribers.fetch_sub(listening.len(), Ordering::AcqRel);
        }
        self.traces.retain(|trace, listening| {
            let is_its = root(trace) == session.as_str();
            if is_its {
                listening.iter().for_each(&last);
                self.subscribers.fetch_sub(listening.len(), Ordering::AcqRel);
            }
            !is_its
        });
    }

    /// Ends the streams of a session and of its traces with an error, also those that are opened before
    /// [`Hub::session_is_used`].
    pub(crate) fn fail_session(&self, session: &SessionId, failure: &ErrorInfo) {
        self.failed_sessions.insert(session.clone(), failure.clone());
        self.has_failed_sessions.store(true, Ordering::SeqCst);
        self.end_with(session, |subscriber| {
            let _ = subscriber.aside.failure.set(failure.clone());
        });
    }

    /// Ends the failure of a session: its runs are executed again.
    pub(crate) fn session_is_used(&self, session: &SessionId) {
        if self.has_failed_sessions.load(Ordering::SeqCst) {
            self.failed_sessions.remove(session);
        }
    }

    /// Returns why the runs of a scope are not executed.
    fn failure_of(&self, scope: &Scope) -> Option<ErrorInfo> {
        if !self.has_failed_sessions.load(Ordering::SeqCst) {
            return None;
        }
        let failed = match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => self.failed_sessions.get(&SessionId::new(root(trace))),
            Scope::Session(session) => self.failed_sessions.get(session),
        };
        failed.map(|failure| failure.clone())
    }

    /// Ends every stream with an error, also those that are opened later.
    pub(crate) fn fail(&self, failure: ErrorInfo) {
        let _ = self.failure.set(failure);
        self.close();
    }

    /// Ends every stream: no event follows any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.drop_all();
    }

    fn drop_all(&self) {
        // Subtract what was removed: another thread may register a stream at the same time.
        let left = |listening: &[Subscriber]| {
            self.subscribers.fetch_sub(listening.len(), Ordering::AcqRel);
            false
        };
        self.traces.retain(|_, listening| left(listening));
        self.sessions.retain(|_, listening| left(listening));
    }
}

/// Refuses a place behind an event that the store does not have; `last` is the number of the last one that it has.
pub(crate) fn cursor_unknown(cursor: u64, last: u64, store: u32) -> ErrorInfo {
    let message = format!(
        "event {cursor} is not one of this store, whose last event is {last}: a backup was restored, or it is another \
         home. Read again from the beginning"
    );
    let details = json!({ "start_again": 0, "last": last, "store_id": store_name(store) });
    ErrorInfo { details, ..ErrorInfo::new(ErrorCode::CursorUnknown, message) }
}

/// Writes the number of a store as clients see it.
pub(crate) fn store_name(store: u32) -> String {
    format!("{store:08x}")
}

/// Returns what the root of a trace is called: as its session.
fn root(trace: &TraceId) -> &str {
    trace.as_str().split('@').next().unwrap_or_default()
}

/// What a stream covers.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// One trace, for as long as it exists.
    Trace(TraceId),
    /// One run: ends with its terminal event.
    Run { trace: TraceId, run: RunId },
    /// A whole session, merged.
    Session(SessionId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_register_while_the_hub_closes_end_too() {
        for _ in 0..200 {
            let hub = Hub::default();
            let scopes = [Scope::Session(SessionId::new("s")), Scope::Trace(TraceId::new("s"))];
            let register = |scope| (0..20).map(|_| hub.register(scope).0).collect::<Vec<_>>();
            let registered: Vec<_> = std::thread::scope(|threads| {
                let others = scopes.each_ref().map(|scope| threads.spawn(move || register(scope)));
                hub.close();
                others.into_iter().flat_map(|other| other.join().unwrap()).collect()
            });
            for mut receiver in registered {
                assert!(matches!(receiver.try_recv(), Err(mpsc::error::TryRecvError::Disconnected)));
            }
            assert_eq!(hub.subscribers.load(Ordering::Acquire), 0);
        }
    }
}
