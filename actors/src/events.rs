//! Event streams: every stored event once and in order, then live events, without a gap (EVT-3).
//!
//! A subscriber first registers at the [`EventBus`] and then reads the stored events. Live events
//! that arrive meanwhile and are already read are skipped by their number. If a number is missing
//! or the buffer has overflowed, the subscriber reads from the store again. So a slow subscriber
//! uses bounded memory, loses no event and does not block others; only deltas are dropped for it.

mod stream;

use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use dashmap::DashMap;
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord, RunId, SessionId, TraceId};
pub use soong_protocol::{LiveDelta, StreamItem, UnrecordedRun};
use soong_storage::store::format_store_id;
pub use stream::EventStream;
use tokio::sync::mpsc;

use crate::metrics::{SubscriberMetrics, count};

/// Maximum number of live items buffered for a subscriber. Beyond it, the subscriber has to read
/// from the store again.
const BUFFER_CAPACITY: usize = 1024;
/// Deltas are dropped while more than this many items are buffered; the rest of the buffer is
/// reserved for events.
const MAX_ITEMS_BEFORE_DELTA_DROP: usize = BUFFER_CAPACITY / 2;

/// Item in a subscriber's buffer.
enum BufferedItem {
    Event(Arc<EventRecord>),
    Delta(Arc<LiveDelta>),
    /// The subscriber has to read from the store.
    Reread,
}

/// State of a subscriber outside its buffer, so that it is never dropped, however slow the
/// subscriber is.
#[derive(Default)]
struct LagState {
    /// Whether the subscriber has to read from the store.
    lagged: AtomicBool,
    lost: Mutex<Vec<Arc<UnrecordedRun>>>,
    /// Error with which the stream ends, if it failed.
    failure: OnceLock<ErrorInfo>,
}

struct Subscriber {
    items: mpsc::Sender<BufferedItem>,
    lag_state: Arc<LagState>,
}

impl Subscriber {
    fn is_connected(&self) -> bool {
        !self.items.is_closed()
    }

    /// Offers an item without waiting; returns `false` if the subscriber is gone.
    fn offer(&self, item: &StreamItem) -> bool {
        let buffered = match item {
            StreamItem::Event(record) => BufferedItem::Event(Arc::clone(record)),
            StreamItem::Delta(_)
                if self.items.capacity() < BUFFER_CAPACITY - MAX_ITEMS_BEFORE_DELTA_DROP =>
            {
                return true;
            }
            StreamItem::Delta(delta) => BufferedItem::Delta(Arc::clone(delta)),
            StreamItem::Lost(lost) => {
                self.lag_state
                    .lost
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .push(Arc::clone(lost));
                self.request_reread();
                return self.is_connected();
            }
        };
        match self.items.try_send(buffered) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(_)) => {
                // The subscriber may have emptied its buffer meanwhile, and may be waiting.
                self.request_reread();
                true
            }
            Err(mpsc::error::TrySendError::Closed(_)) => false,
        }
    }

    /// Makes the subscriber read from the store and check its [`LagState`].
    fn request_reread(&self) {
        self.lag_state.lagged.store(true, Ordering::Release);
        let _ = self.items.try_send(BufferedItem::Reread);
    }
}

/// Distributes live items to the subscribers of traces and sessions.
#[derive(Default)]
pub(crate) struct EventBus {
    traces: DashMap<TraceId, Vec<Subscriber>>,
    sessions: DashMap<SessionId, Vec<Subscriber>>,
    subscribers: AtomicUsize,
    closed: AtomicBool,
    /// Error with which the bus was closed, if the runtime failed.
    failure: OnceLock<ErrorInfo>,
    /// Sessions whose runs were interrupted by a failure, until the session is used again.
    failed_sessions: DashMap<SessionId, ErrorInfo>,
    /// Whether there has ever been such a session; saves the lookup for each stream.
    has_failed_sessions: AtomicBool,
}

impl EventBus {
    /// Returns whether there are subscribers. Checked after a commit, so a subscriber that
    /// registers later reads the commit from the store.
    pub(crate) fn has_subscribers(&self) -> bool {
        self.subscribers.load(Ordering::Acquire) > 0
    }

    /// Offers an item to all subscribers of its trace and its session.
    pub(crate) fn publish(&self, item: &StreamItem) {
        let (trace, session) = match item {
            StreamItem::Event(record) => (&record.trace_id, &record.session_id),
            StreamItem::Delta(delta) => (&delta.trace_id, &delta.session_id),
            StreamItem::Lost(lost) => (&lost.trace_id, &lost.session_id),
        };
        self.retain(&self.traces, trace, |subscriber| subscriber.offer(item));
        self.retain(&self.sessions, session, |subscriber| subscriber.offer(item));
    }

    /// Returns the number of subscribers, and how far they lag.
    pub(crate) fn metrics(&self) -> SubscriberMetrics {
        let mut found = SubscriberMetrics::default();
        let mut count_subscribers = |listening: &[Subscriber]| {
            for subscriber in listening
                .iter()
                .filter(|subscriber| subscriber.is_connected())
            {
                let waiting = BUFFER_CAPACITY - subscriber.items.capacity();
                found.count += 1;
                found.max_waiting = found.max_waiting.max(count(waiting));
                found.rereading += u64::from(subscriber.lag_state.lagged.load(Ordering::Acquire));
            }
        };
        self.traces
            .iter()
            .for_each(|listening| count_subscribers(&listening));
        self.sessions
            .iter()
            .for_each(|listening| count_subscribers(&listening));
        found
    }

    /// Makes all subscribers of a trace and of its session read from the store.
    pub(crate) fn reread(&self, trace: &TraceId) {
        let reread = |subscriber: &Subscriber| {
            subscriber.request_reread();
            true
        };
        self.retain(&self.traces, trace, reread);
        self.retain(&self.sessions, &SessionId::new(root_id(trace)), reread);
    }

    fn retain<K, F>(&self, map: &DashMap<K, Vec<Subscriber>>, key: &K, mut keep: F)
    where
        K: std::hash::Hash + Eq,
        F: FnMut(&Subscriber) -> bool,
    {
        let Some(mut listening) = map.get_mut(key) else {
            return;
        };
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

    /// Removes the subscribers of a scope that are gone.
    fn remove_closed(&self, scope: &Scope) {
        match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => {
                self.retain(&self.traces, trace, Subscriber::is_connected)
            }
            Scope::Session(session) => {
                self.retain(&self.sessions, session, Subscriber::is_connected)
            }
        }
    }

    fn register(&self, scope: &Scope) -> (mpsc::Receiver<BufferedItem>, Arc<LagState>) {
        let (items, receiver) = mpsc::channel(BUFFER_CAPACITY);
        let lag_state = Arc::new(LagState::default());
        let subscriber = Subscriber {
            items,
            lag_state: Arc::clone(&lag_state),
        };
        self.subscribers.fetch_add(1, Ordering::AcqRel);
        match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => {
                self.traces
                    .entry(trace.clone())
                    .or_default()
                    .push(subscriber);
            }
            Scope::Session(session) => self
                .sessions
                .entry(session.clone())
                .or_default()
                .push(subscriber),
        }
        // Checked after the push: if the bus closes concurrently, either it drops the new
        // subscriber or it is seen as closed here.
        if self.closed.load(Ordering::SeqCst) {
            self.drop_all();
        }
        (receiver, lag_state)
    }

    /// Ends the streams of a session and of its traces: no more events follow.
    pub(crate) fn end_session(&self, session: &SessionId) {
        self.failed_sessions.remove(session);
        self.end_streams(session, |_| {});
    }

    fn end_streams(&self, session: &SessionId, last: impl Fn(&Subscriber)) {
        if let Some((_, listening)) = self.sessions.remove(session) {
            listening.iter().for_each(&last);
            self.subscribers
                .fetch_sub(listening.len(), Ordering::AcqRel);
        }
        self.traces.retain(|trace, listening| {
            let is_its = root_id(trace) == session.as_str();
            if is_its {
                listening.iter().for_each(&last);
                self.subscribers
                    .fetch_sub(listening.len(), Ordering::AcqRel);
            }
            !is_its
        });
    }

    /// Ends the streams of a session and of its traces with an error, including streams that are
    /// opened before [`EventBus::clear_session_failure`].
    pub(crate) fn fail_session(&self, session: &SessionId, failure: &ErrorInfo) {
        self.failed_sessions
            .insert(session.clone(), failure.clone());
        self.has_failed_sessions.store(true, Ordering::SeqCst);
        self.end_streams(session, |subscriber| {
            let _ = subscriber.lag_state.failure.set(failure.clone());
        });
    }

    /// Clears the failure of a session, because its runs are executed again.
    pub(crate) fn clear_session_failure(&self, session: &SessionId) {
        if self.has_failed_sessions.load(Ordering::SeqCst) {
            self.failed_sessions.remove(session);
        }
    }

    /// Returns the error of the scope's session if it has failed.
    fn failure_of(&self, scope: &Scope) -> Option<ErrorInfo> {
        if !self.has_failed_sessions.load(Ordering::SeqCst) {
            return None;
        }
        let failed = match scope {
            Scope::Trace(trace) | Scope::Run { trace, .. } => {
                self.failed_sessions.get(&SessionId::new(root_id(trace)))
            }
            Scope::Session(session) => self.failed_sessions.get(session),
        };
        failed.map(|failure| failure.clone())
    }

    /// Ends every stream with an error, including streams that are opened later.
    pub(crate) fn fail(&self, failure: ErrorInfo) {
        let _ = self.failure.set(failure);
        self.close();
    }

    /// Ends every stream: no more events follow.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.drop_all();
    }

    fn drop_all(&self) {
        // Subtract what was removed: another thread may register a stream at the same time.
        let left = |listening: &[Subscriber]| {
            self.subscribers
                .fetch_sub(listening.len(), Ordering::AcqRel);
            false
        };
        self.traces.retain(|_, listening| left(listening));
        self.sessions.retain(|_, listening| left(listening));
    }
}

/// Returns whether a reader may continue after the event with this number. `first` and `last` are
/// the numbers of the first and the last event; the reader of a subject without events has the
/// number before the first.
pub(crate) fn is_cursor_in_range(cursor: u64, first: u64, last: u64) -> bool {
    cursor.saturating_add(1) >= first && cursor <= last
}

/// Returns the error for a cursor that no event of the subject has; `last` is the number of its
/// last event.
pub(crate) fn unknown_cursor_error(cursor: u64, last: u64, store: u32) -> ErrorInfo {
    let message = format!(
        "there is no event {cursor}; the last one is {last}: a backup was restored, this is another home, or the session \
         was deleted and its id used again. Read again from the beginning"
    );
    let details = json!({ "start_again": 0, "last": last, "store_id": format_store_id(store) });
    ErrorInfo {
        details,
        ..ErrorInfo::new(ErrorCode::CursorUnknown, message)
    }
}

/// Returns the id of a trace's root, which is also the id of its session.
fn root_id(trace: &TraceId) -> &str {
    trace.as_str().split('@').next().unwrap_or_default()
}

/// Scope of a stream.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// One trace, as long as it exists.
    Trace(TraceId),
    /// One run: ends with its terminal event.
    Run { trace: TraceId, run: RunId },
    /// A whole session, with the events of all its traces merged.
    Session(SessionId),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_registered_while_bus_closes_end_too() {
        for _ in 0..200 {
            let bus = EventBus::default();
            let scopes = [
                Scope::Session(SessionId::new("s")),
                Scope::Trace(TraceId::new("s")),
            ];
            let register = |scope| (0..20).map(|_| bus.register(scope).0).collect::<Vec<_>>();
            let registered: Vec<_> = std::thread::scope(|threads| {
                let others = scopes
                    .each_ref()
                    .map(|scope| threads.spawn(move || register(scope)));
                bus.close();
                others
                    .into_iter()
                    .flat_map(|other| other.join().unwrap())
                    .collect()
            });
            for mut receiver in registered {
                assert!(matches!(
                    receiver.try_recv(),
                    Err(mpsc::error::TryRecvError::Disconnected)
                ));
            }
            assert_eq!(bus.subscribers.load(Ordering::Acquire), 0);
        }
    }
}
