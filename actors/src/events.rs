//! Event streams: every stored event once and in order, then live, without a gap (EVT-3).
//!
//! A subscriber registers at the [`Hub`] first and reads stored events afterwards; what arrives
//! live meanwhile is skipped by its number. A number that is missing, or a buffer that overflowed,
//! sends it back to reading. So a slow reader is bounded, loses no event, and holds nobody up;
//! deltas are skipped for it.

mod item;

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use dashmap::DashMap;
use futures::Stream;
pub use item::{LiveDelta, LostRun, StreamItem};
use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord, RunId, SessionId, TraceId};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::mpsc;

use crate::{
    meter::{SubscriberMetrics, count},
    reading::Reading,
};

/// How many live items wait for a subscriber before it has to read from the store again.
const BUFFER_ITEMS: usize = 1024;
/// Deltas take at most this much of the buffer: the rest is kept for events.
const DELTA_ITEMS: usize = BUFFER_ITEMS / 2;
/// How many stored events a subscriber reads at once.
const PAGE_EVENTS: usize = 512;

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

/// Reads the number of the last event of a scope; `None` = it is not there.
fn last_number(reader: &dyn Reader, scope: &Scope) -> Result<Option<u64>, StoreError> {
    Ok(match scope {
        Scope::Trace(trace) | Scope::Run { trace, .. } => reader.trace(trace)?.map(|trace| trace.last_event_id),
        Scope::Session(session) => reader.session(session)?.map(|session| session.last_session_seq),
    })
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

/// Every event after a cursor, once, in order, for as long as the subject exists.
pub struct EventStream {
    hub: Arc<Hub>,
    scope: Scope,
    reading: Reading,
    /// Number of the last event that was seen: `event_id`, or `session_seq` for a session.
    cursor: u64,
    /// Where to read on in a session; `None` until it is looked up for the cursor.
    lsn: Option<u64>,
    live: mpsc::Receiver<Live>,
    aside: Arc<Aside>,
    stored: VecDeque<Arc<EventRecord>>,
    behind: bool,
    /// Whether the place where it begins was looked for in the store.
    is_checked: bool,
    /// Whether the store was read once more since the stream failed.
    is_read_out: bool,
    ended: bool,
}

impl EventStream {
    pub(crate) fn open(hub: Arc<Hub>, reading: Reading, scope: Scope, since: u64) -> Self {
        let (live, aside) = hub.register(&scope);
        Self {
            hub,
            scope,
            reading,
            cursor: since,
            lsn: None,
            live,
            aside,
            stored: VecDeque::new(),
            behind: true,
            is_checked: false,
            is_read_out: false,
            ended: false,
        }
    }

    /// Says that the stream's run is lost, to one that has come too late to be told.
    pub(crate) fn is_lost(&self, lost: LostRun) {
        self.aside.lost.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(lost));
    }

    /// Returns the next item; `None` after a run's terminal event, or when it is lost, or the runtime has closed.
    ///
    /// # Errors
    /// `runtime_failed` if this process does not continue what is streamed, `cursor_unknown` if the stream was to begin
    /// behind an event that the store does not have: the stream has ended. Any other error means that the store could
    /// not be read; the next call tries again.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ErrorInfo>> {
        while !self.ended {
            if let Some(record) = self.stored.pop_front() {
                if let Some(item) = self.pass(record) {
                    return Some(Ok(item));
                }
            } else if self.behind {
                if let Err(error) = self.read_on().await {
                    // What cannot be read may be why.
                    return Some(self.next_lost().map_or(Err(error), |lost| Ok(StreamItem::Lost(lost))));
                }
            } else if let Some(lost) = self.next_lost() {
                return Some(Ok(StreamItem::Lost(lost)));
            } else {
                match self.receive().await {
                    Some(Some(item)) => return Some(Ok(item)),
                    Some(None) => {}
                    // What is stored, and was not handed over any more, comes before the failure.
                    None if self.failure().is_some() && !std::mem::replace(&mut self.is_read_out, true) => {
                        self.behind = true;
                    }
                    None => {
                        self.ended = true;
                        return self.failure().map(Err);
                    }
                }
            }
        }
        None
    }

    /// Returns why nothing follows, where that is a failure.
    fn failure(&self) -> Option<ErrorInfo> {
        self.aside.failure.get().or_else(|| self.hub.failure.get()).cloned()
    }

    /// Takes out what is told of a run that is lost, once all that is stored of it has been seen.
    fn next_lost(&mut self) -> Option<Arc<LostRun>> {
        let mut lost = self.aside.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = |lost: &Arc<LostRun>| !matches!(&self.scope, Scope::Run { run, .. } if *run != lost.run_id);
        let place = lost.iter().position(wanted)?;
        self.ended = matches!(self.scope, Scope::Run { .. });
        Some(lost.remove(place))
    }

    /// Turns the stream into a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<StreamItem, ErrorInfo>> + Send {
        futures::stream::unfold(self, |mut stream| async move {
            let item = stream.next().await?;
            Some((item, stream))
        })
    }

    async fn read_on(&mut self) -> Result<(), ErrorInfo> {
        let (scope, cursor, lsn, is_first) = (self.scope.clone(), self.cursor, self.lsn, !self.is_checked);
        let (lsn, page, unknown) = self
            .reading
            .read(move |reader| {
                let (lsn, page) = match &scope {
                    Scope::Trace(trace) | Scope::Run { trace, .. } => (lsn, reader.events(trace, cursor, PAGE_EVENTS)?),
                    Scope::Session(session) => {
                        let since = lsn.map_or_else(|| reader.session_lsn(session, cursor), Ok)?;
                        (Some(since), reader.session_events(session, since, PAGE_EVENTS)?)
                    }
                };
                // Behind a cursor that is none of this store nothing comes until its numbers have been given out.
                let last = if is_first && cursor > 0 && page.is_empty() { last_number(reader, &scope)? } else { None };
                let unknown = last.filter(|last| *last < cursor).map(|last| (last, reader.store_id()));
                Ok((lsn, page, unknown))
            })
            .await?;
        self.is_checked = true;
        if let Some((last, store)) = unknown {
            self.ended = true;
            return Err(cursor_unknown(cursor, last, store.unwrap_or_default()));
        }
        self.behind = page.len() == PAGE_EVENTS;
        self.lsn = page.last().map_or(lsn, |record| Some(record.lsn));
        self.stored.extend(page.into_iter().map(Arc::new));
        Ok(())
    }

    /// Waits for a live item. `None` = closed; `Some(None)` = nothing to pass on, look again.
    async fn receive(&mut self) -> Option<Option<StreamItem>> {
        if self.live.is_empty() && self.aside.lagged.swap(false, Ordering::AcqRel) {
            self.behind = true;
            return Some(None);
        }
        // The stream was opened after its session had failed.
        if self.live.is_empty()
            && let Some(failure) = self.hub.failure_of(&self.scope)
        {
            let _ = self.aside.failure.set(failure);
            return None;
        }
        match self.live.recv().await? {
            Live::Look => {
                self.aside.lagged.store(false, Ordering::Release);
                self.behind = true;
                Some(None)
            }
            Live::Event(record) => {
                let number = self.number(&record);
                if number > self.cursor + 1 {
                    self.behind = true;
                    return Some(None);
                }
                self.lsn = self.lsn.max(Some(record.lsn));
                Some(self.pass(record))
            }
            Live::Delta(delta) => {
                let wanted = !matches!(&self.scope, Scope::Run { run, .. } if *run != delta.run_id);
                Some(wanted.then_some(StreamItem::Delta(delta)))
            }
        }
    }

    fn number(&self, record: &EventRecord) -> u64 {
        match self.scope {
            Scope::Session(_) => record.session_seq,
            Scope::Trace(_) | Scope::Run { .. } => record.event_id,
        }
    }

    /// Moves the cursor; passes the event on if it is new and wanted.
    fn pass(&mut self, record: Arc<EventRecord>) -> Option<StreamItem> {
        let number = self.number(&record);
        if number <= self.cursor {
            return None;
        }
        self.cursor = number;
        if let Scope::Run { run, .. } = &self.scope {
            if record.run_id.as_ref() != Some(run) {
                return None;
            }
            self.ended = record.event.is_terminal();
        }
        Some(StreamItem::Event(record))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.live.close();
        self.hub.sweep(&self.scope);
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{Durability, EventDraft, RunEvent, RunMode, Timestamp};
    use soong_storage::{
        sqlite::{SqliteReader, SqliteStore},
        store::{Append, NewSession, NewTrace, Store, Write},
    };

    use super::*;

    fn session_with_events(count: u64) -> Vec<Write> {
        let (session_id, trace_id, created_at) = (SessionId::new("s"), TraceId::new("s"), Timestamp::default());
        let session = NewSession {
            session_id: session_id.clone(),
            name: None,
            uid: "local".into(),
            project_dir: ".".into(),
            created_at,
        };
        let trace = NewTrace {
            trace_id: trace_id.clone(),
            session_id,
            run_mode: RunMode::Normal,
            task: "x".into(),
            name: "x".into(),
            agent_type: "default".into(),
            parent_trace_id: None,
            parent_goal_id: None,
            uid: "local".into(),
            model: "m".into(),
            created_at,
        };
        let event = |_| Write::Event(EventDraft::new(trace_id.clone(), None, created_at, RunEvent::CancelRequested {}));
        let events: Vec<Write> = (0..count).map(event).collect();
        [Write::Session(session), Write::Trace(trace)].into_iter().chain(events).collect()
    }

    #[tokio::test]
    async fn a_stream_with_a_late_cursor_begins_right_there() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let last = 3 * PAGE_EVENTS as u64 + 5;
        let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
        let append = Append { fence: None, writes: session_with_events(last) };
        assert!(store.commit(&[append]).unwrap().iter().all(Result::is_ok));
        let reading = Reading::new(Arc::new(SqliteReader::open(&path).unwrap()));
        for scope in [Scope::Session(SessionId::new("s")), Scope::Trace(TraceId::new("s"))] {
            for since in [0, 1, PAGE_EVENTS as u64, last - 1, last] {
                let mut stream = EventStream::open(Arc::default(), reading.clone(), scope.clone(), since);
                stream.read_on().await.unwrap();
                let first = stream.stored.front().map(|record| record.session_seq);
                assert_eq!(first, (since < last).then_some(since + 1), "{scope:?} since {since}: its first page");
            }
            let mut stream = EventStream::open(Arc::default(), reading.clone(), scope.clone(), last + 1);
            let error = stream.next().await.unwrap().unwrap_err();
            assert_eq!((error.code, error.details["start_again"].as_u64()), (ErrorCode::CursorUnknown, Some(0)));
            assert!(stream.next().await.is_none(), "it does not wait for numbers that are to come");
        }
    }

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
