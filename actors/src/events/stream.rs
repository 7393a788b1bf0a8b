//! One stream of events: first stored ones, then live ones, each of them once and in order.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use futures::Stream;
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::mpsc;

use super::{
    BufferedItem, EventBus, LagState, Scope, StreamItem, UnrecordedRun, is_cursor_in_range,
    unknown_cursor_error,
};
use crate::store_reader::StoreReader;

/// Maximum number of stored events read at once.
const PAGE_EVENTS: usize = 512;

/// Stream of every event after a cursor, once and in order, as long as the subject exists.
pub struct EventStream {
    bus: Arc<EventBus>,
    scope: Scope,
    store: StoreReader,
    /// Number of the last passed event: `event_id`, or `session_seq` for a session.
    cursor: u64,
    /// The cursor with which the stream was opened.
    since: u64,
    /// The lsn to read on from in a session; `None` until it is looked up for the cursor.
    lsn: Option<u64>,
    live_items: mpsc::Receiver<BufferedItem>,
    lag_state: Arc<LagState>,
    stored: VecDeque<Arc<EventRecord>>,
    needs_read: bool,
    /// Whether the initial cursor was checked against the store.
    cursor_checked: bool,
    /// Whether the store was read once more since the stream failed.
    final_read_done: bool,
    /// Whether the stream ends once its trace has no live run.
    until_ended: bool,
    /// Whether the end of the trace must be checked before the next wait.
    check_end: bool,
    ended: bool,
}

impl EventStream {
    pub(crate) fn open(bus: Arc<EventBus>, reading: StoreReader, scope: Scope, since: u64) -> Self {
        let (live_items, lag_state) = bus.register(&scope);
        Self {
            bus,
            scope,
            store: reading,
            cursor: since,
            since,
            lsn: None,
            live_items,
            lag_state,
            stored: VecDeque::new(),
            needs_read: true,
            cursor_checked: false,
            final_read_done: false,
            check_end: false,
            until_ended: false,
            ended: false,
        }
    }

    /// Makes the stream of a trace end once the trace has no live run.
    pub(crate) fn until_ended(mut self) -> Self {
        self.until_ended = true;
        self.check_end = true;
        self
    }

    /// Makes the stream of a run that has ended end even if its terminal event is at or before the
    /// initial cursor.
    pub(crate) fn end_if_ended(mut self) -> Self {
        self.check_end = true;
        self
    }

    /// Notifies a stream that its run is lost, if it was opened too late to be notified by the bus.
    pub(crate) fn mark_lost(&self, lost: UnrecordedRun) {
        self.lag_state
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::new(lost));
    }

    /// Returns the next item; `None` after a run's terminal event, after a run is lost, or after
    /// the runtime has closed.
    ///
    /// # Errors
    /// With `trace_not_found` (unknown trace), `runtime_failed` (this process does not continue the
    /// streamed runs) and `cursor_unknown` (the initial cursor is after the end of the store, or
    /// belongs to a deleted session) the stream has ended. Any other error means that the store
    /// could not be read; the next call retries.
    pub async fn next(&mut self) -> Option<Result<StreamItem, ErrorInfo>> {
        while !self.ended {
            if let Some(record) = self.stored.pop_front() {
                if let Some(item) = self.advance(record) {
                    return Some(Ok(item));
                }
            } else if self.needs_read {
                if let Err(error) = self.read_page().await {
                    // The store may be unreadable because it is damaged, and then the run is lost.
                    return Some(
                        self.take_lost_run()
                            .map_or(Err(error), |lost| Ok(StreamItem::Lost(lost))),
                    );
                }
            } else if let Some(lost) = self.take_lost_run() {
                return Some(Ok(StreamItem::Lost(lost)));
            } else if std::mem::take(&mut self.check_end) {
                match self.has_ended().await {
                    Ok(has_ended) => self.ended = has_ended,
                    // The trace was deleted meanwhile.
                    Err(error)
                        if error.code == ErrorCode::TraceNotFound && self.cursor > self.since =>
                    {
                        self.ended = true;
                    }
                    Err(error) => {
                        self.ended = error.code == ErrorCode::TraceNotFound;
                        self.check_end = true;
                        return Some(Err(error));
                    }
                }
            } else {
                match self.receive().await {
                    Some(Some(item)) => return Some(Ok(item)),
                    Some(None) => {}
                    // Stored events that were not delivered live come before the failure.
                    None if self.failure().is_some()
                        && !std::mem::replace(&mut self.final_read_done, true) =>
                    {
                        self.needs_read = true;
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

    /// Returns the error with which the stream ends, if it failed.
    fn failure(&self) -> Option<ErrorInfo> {
        self.lag_state
            .failure
            .get()
            .or_else(|| self.bus.failure.get())
            .cloned()
    }

    /// Removes and returns a lost run, after all its stored events have been passed.
    fn take_lost_run(&mut self) -> Option<Arc<UnrecordedRun>> {
        let mut lost = self
            .lag_state
            .lost
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let wanted = |lost: &Arc<UnrecordedRun>| !matches!(&self.scope, Scope::Run { run, .. } if *run != lost.run_id);
        let index = lost.iter().position(wanted)?;
        self.ended = matches!(self.scope, Scope::Run { .. });
        Some(lost.remove(index))
    }

    /// Converts the stream to a [`Stream`].
    pub fn into_stream(self) -> impl Stream<Item = Result<StreamItem, ErrorInfo>> + Send {
        futures::stream::unfold(self, |mut stream| async move {
            let item = stream.next().await?;
            Some((item, stream))
        })
    }

    /// Returns whether the trace has no live run, or the streamed run has ended. Then all events
    /// that were stored before have been passed.
    async fn has_ended(&mut self) -> Result<bool, ErrorInfo> {
        let (trace, run) = match self.scope.clone() {
            Scope::Trace(trace) => (trace, None),
            Scope::Run { trace, run } => (trace, Some(run)),
            Scope::Session(_) => return Ok(false),
        };
        let id = trace.clone();
        let read = move |reader: &dyn Reader| {
            let run = run.map(|run| reader.run(&run)).transpose()?;
            Ok(reader.trace(&id)?.map(|trace| (trace, run)))
        };
        let Some((found, run)) = self.store.read(read).await? else {
            let message = format!("there is no trace {:?}", trace.as_str());
            return Err(ErrorInfo::new(ErrorCode::TraceNotFound, message));
        };
        // Without events, the last id is that before the first.
        if found.last_event_id > self.cursor.max(found.first_event_id - 1) {
            // Events that arrived meanwhile are passed first.
            self.needs_read = true;
            self.check_end = true;
            return Ok(false);
        }
        Ok(match run {
            None => found.status.is_terminal(),
            Some(run) => run.is_none_or(|run| run.status.is_terminal()),
        })
    }

    async fn read_page(&mut self) -> Result<(), ErrorInfo> {
        let scope = self.scope.clone();
        let cursor = self.cursor;
        let lsn = self.lsn;
        let is_first = !self.cursor_checked;
        let is_session = matches!(scope, Scope::Session(_));
        let (lsn, page, unknown) = self
            .store
            .read(move |reader| {
                let (lsn, page) = match &scope {
                    Scope::Trace(trace) | Scope::Run { trace, .. } => {
                        (lsn, reader.events(trace, cursor, PAGE_EVENTS)?)
                    }
                    Scope::Session(session) => {
                        let since = lsn.map_or_else(|| reader.session_lsn(session, cursor), Ok)?;
                        (
                            Some(since),
                            reader.session_events(session, since, PAGE_EVENTS)?,
                        )
                    }
                };
                // A cursor after the end of the store would receive nothing until its number is
                // assigned. One of a deleted session whose id was used again would silently skip to
                // the first event of the new session.
                let next = page.first().map(|record| {
                    if is_session {
                        record.session_seq
                    } else {
                        record.event_id
                    }
                });
                let is_doubtful = is_first && cursor > 0 && next != Some(cursor + 1);
                let range = if is_doubtful {
                    event_range(reader, &scope)?
                } else {
                    None
                };
                let unknown =
                    range.filter(|range| !is_cursor_in_range(cursor, range.first, range.last));
                let unknown = unknown.map(|range| (range.last, reader.store_id()));
                Ok((lsn, page, unknown))
            })
            .await?;
        self.cursor_checked = true;
        if let Some((last, store)) = unknown {
            self.ended = true;
            return Err(unknown_cursor_error(
                cursor,
                last,
                store.unwrap_or_default(),
            ));
        }
        self.needs_read = page.len() == PAGE_EVENTS;
        self.lsn = page.last().map_or(lsn, |record| Some(record.lsn));
        self.stored.extend(page.into_iter().map(Arc::new));
        Ok(())
    }

    /// Waits for a live item. `None`: the stream is closed. `Some(None)`: nothing to pass, check
    /// again.
    async fn receive(&mut self) -> Option<Option<StreamItem>> {
        if self.live_items.is_empty() && self.lag_state.lagged.swap(false, Ordering::AcqRel) {
            self.needs_read = true;
            return Some(None);
        }
        // The stream was opened after its session had failed.
        if self.live_items.is_empty()
            && let Some(failure) = self.bus.failure_of(&self.scope)
        {
            let _ = self.lag_state.failure.set(failure);
            return None;
        }
        match self.live_items.recv().await? {
            BufferedItem::Reread => {
                self.lag_state.lagged.store(false, Ordering::Release);
                self.needs_read = true;
                Some(None)
            }
            BufferedItem::Event(record) => {
                let number = self.number(&record);
                if number > self.cursor + 1 {
                    self.needs_read = true;
                    return Some(None);
                }
                self.lsn = self.lsn.max(Some(record.lsn));
                Some(self.advance(record))
            }
            BufferedItem::Delta(delta) => {
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

    /// Moves the cursor; returns the event if it is new and wanted.
    fn advance(&mut self, record: Arc<EventRecord>) -> Option<StreamItem> {
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
        self.check_end |= self.until_ended && record.event.is_terminal();
        Some(StreamItem::Event(record))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.live_items.close();
        self.bus.remove_closed(&self.scope);
    }
}

/// Numbers of the first and the last event of a scope.
struct EventRange {
    first: u64,
    last: u64,
}

/// Reads the numbers of the events of a scope; `None` if the scope does not exist.
fn event_range(reader: &dyn Reader, scope: &Scope) -> Result<Option<EventRange>, StoreError> {
    Ok(match scope {
        Scope::Trace(trace) | Scope::Run { trace, .. } => {
            reader.trace(trace)?.map(|trace| EventRange {
                first: trace.first_event_id,
                last: trace.last_event_id,
            })
        }
        Scope::Session(session) => reader.session(session)?.map(|session| EventRange {
            first: session.first_session_seq,
            last: session.last_session_seq,
        }),
    })
}

#[cfg(test)]
mod tests {
    use soong_protocol::{
        Durability, EventDraft, NewSession, NewTrace, RunEvent, RunMode, SessionId, SessionWrite,
        Timestamp, TraceId, TraceWrite, Write,
    };
    use soong_storage::{
        sqlite::{SqliteReader, SqliteStore},
        store::{Append, Store},
    };

    use super::*;

    fn session_with_events(count: u64) -> Vec<Write> {
        let session_id = SessionId::new("s");
        let trace_id = TraceId::new("s");
        let created_at = Timestamp::default();
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
        let event = |_| {
            Write::Event(EventDraft::new(
                trace_id.clone(),
                None,
                created_at,
                RunEvent::CancelRequested {},
            ))
        };
        let events: Vec<Write> = (0..count).map(event).collect();
        [
            Write::Session(SessionWrite::Create(session)),
            Write::Trace(TraceWrite::Create(trace)),
        ]
        .into_iter()
        .chain(events)
        .collect()
    }

    #[tokio::test]
    async fn stream_starts_at_its_cursor() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        let last = 3 * PAGE_EVENTS as u64 + 5;
        let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
        let append = Append {
            fence: None,
            writes: session_with_events(last),
        };
        assert!(store.commit(&[append]).unwrap().iter().all(Result::is_ok));
        let reading = StoreReader::new(Arc::new(SqliteReader::open(&path).unwrap()));
        for scope in [
            Scope::Session(SessionId::new("s")),
            Scope::Trace(TraceId::new("s")),
        ] {
            for since in [0, 1, PAGE_EVENTS as u64, last - 1, last] {
                let mut stream =
                    EventStream::open(Arc::default(), reading.clone(), scope.clone(), since);
                stream.read_page().await.unwrap();
                let first = stream.stored.front().map(|record| record.session_seq);
                assert_eq!(
                    first,
                    (since < last).then_some(since + 1),
                    "{scope:?} since {since}: its first page"
                );
            }
            let mut stream =
                EventStream::open(Arc::default(), reading.clone(), scope.clone(), last + 1);
            let error = stream.next().await.unwrap().unwrap_err();
            assert_eq!(
                (error.code, error.details["start_again"].as_u64()),
                (ErrorCode::CursorUnknown, Some(0))
            );
            assert!(
                stream.next().await.is_none(),
                "it does not wait for numbers that are to come"
            );
        }
    }
}
