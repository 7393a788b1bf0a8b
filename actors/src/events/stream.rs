//! One stream of events: stored ones first, then live ones, each once and in order.

use std::{
    collections::VecDeque,
    sync::{Arc, PoisonError, atomic::Ordering},
};

use futures::Stream;
use soong_protocol::{ErrorCode, ErrorInfo, EventRecord};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::mpsc;

use super::{Aside, Hub, Live, LostRun, Scope, StreamItem, cursor_unknown};
use crate::reading::Reading;

/// How many stored events a subscriber reads at once.
const PAGE_EVENTS: usize = 512;

/// Every event after a cursor, once, in order, for as long as the subject exists.
pub struct EventStream {
    hub: Arc<Hub>,
    scope: Scope,
    reading: Reading,
    /// Number of the last event that was seen: `event_id`, or `session_seq` for a session.
    cursor: u64,
    /// The same where the stream begins.
    since: u64,
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
    /// Whether it ends once no run of its trace is at work, and whether that may be so by now.
    until_ended: bool,
    looks_for_end: bool,
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
            since,
            lsn: None,
            live,
            aside,
            stored: VecDeque::new(),
            behind: true,
            is_checked: false,
            is_read_out: false,
            looks_for_end: false,
            until_ended: false,
            ended: false,
        }
    }

    /// Ends the stream of a trace once no run of it is at work.
    pub(crate) fn until_ended(mut self) -> Self {
        (self.until_ended, self.looks_for_end) = (true, true);
        self
    }

    /// Says that the stream's run is lost, to one that has come too late to be told.
    pub(crate) fn is_lost(&self, lost: LostRun) {
        self.aside.lost.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::new(lost));
    }

    /// Returns the next item; `None` after a run's terminal event, or when it is lost, or the runtime has closed.
    ///
    /// # Errors
    /// `trace_not_found` for an unknown trace: the stream has ended. `runtime_failed` if this process does not continue what is streamed, `cursor_unknown` if the stream was to begin
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
            } else if std::mem::take(&mut self.looks_for_end) {
                match self.has_ended().await {
                    Ok(has_ended) => self.ended = has_ended,
                    // It was deleted meanwhile.
                    Err(error) if error.code == ErrorCode::TraceNotFound && self.cursor > self.since => {
                        self.ended = true;
                    }
                    Err(error) => {
                        self.ended = error.code == ErrorCode::TraceNotFound;
                        self.looks_for_end = true;
                        return Some(Err(error));
                    }
                }
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

    /// Returns whether no run of the trace is at work; nothing of what was stored before is missing in the stream then.
    async fn has_ended(&mut self) -> Result<bool, ErrorInfo> {
        let Scope::Trace(trace) = self.scope.clone() else { return Ok(false) };
        let id = trace.clone();
        let Some(found) = self.reading.read(move |reader| reader.trace(&id)).await? else {
            let message = format!("there is no trace {:?}", trace.as_str());
            return Err(ErrorInfo::new(ErrorCode::TraceNotFound, message));
        };
        if found.last_event_id > self.cursor {
            // What came meanwhile is passed on first.
            (self.behind, self.looks_for_end) = (true, true);
            return Ok(false);
        }
        Ok(found.status.is_terminal())
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
        self.looks_for_end |= self.until_ended && record.event.is_terminal();
        Some(StreamItem::Event(record))
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.live.close();
        self.hub.sweep(&self.scope);
    }
}

/// Reads the number of the last event of a scope; `None` = it is not there.
fn last_number(reader: &dyn Reader, scope: &Scope) -> Result<Option<u64>, StoreError> {
    Ok(match scope {
        Scope::Trace(trace) | Scope::Run { trace, .. } => reader.trace(trace)?.map(|trace| trace.last_event_id),
        Scope::Session(session) => reader.session(session)?.map(|session| session.last_session_seq),
    })
}

#[cfg(test)]
mod tests {
    use soong_protocol::{
        Durability, EventDraft, NewSession, NewTrace, RunEvent, RunMode, SessionId, Timestamp, TraceId, Write,
    };
    use soong_storage::{
        sqlite::{SqliteReader, SqliteStore},
        store::{Append, Store},
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
}
