//! Sample records for the tests of displays.

use soong_protocol::{
    AccessRequest, Event, EventDraft, EventRecord, Permission, PermissionId, PermissionStatus,
    RunId, SessionId, Timestamp, TraceId,
};

/// Returns the record of an event of a run.
pub fn record(run: &str, at: i64, event: impl Into<Event>) -> EventRecord {
    let run = Some(RunId::new(run));
    let ts = Timestamp::from_millis(at);
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

/// Returns a pending request for permission to run `make docs`.
pub fn permission() -> Permission {
    Permission {
        permission_id: PermissionId::new("p1"),
        run_id: RunId::new("asks"),
        trace_id: TraceId::new("s@asks"),
        session_id: SessionId::new("s"),
        tool_call_id: "c1".to_owned(),
        tool: "bash".to_owned(),
        arguments: "{\"command\":\"make docs\"}".to_owned(),
        fingerprint: String::new(),
        demand: AccessRequest::whole_tool("make docs"),
        diff: None,
        chain: Vec::new(),
        status: PermissionStatus::Pending,
        decision: None,
        by: None,
        reason: None,
        created_at: Timestamp::default(),
        decided_at: None,
    }
}
