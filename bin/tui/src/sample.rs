//! Sample events for the tests of the progress displays.

use soong_protocol::{Event, EventDraft, EventRecord, RunId, SessionId, Timestamp, TraceId};

/// Returns the record of an event of a run.
pub fn record(run: &str, at: i64, event: impl Into<Event>) -> EventRecord {
    let (run, ts) = (Some(RunId::new(run)), Timestamp::from_millis(at));
    let draft = EventDraft::new(TraceId::new("t"), run, ts, event);
    EventRecord {
        lsn: 1,
        event_id: 1,
        trace_id: draft.trace_id,
        session_id: SessionId::new("s"),
        run_id: draft.run_id,
        run_seq: Some(1),
        session_seq: 1,
        ts,
        event: draft.event,
        data: draft.data,
    }
}
