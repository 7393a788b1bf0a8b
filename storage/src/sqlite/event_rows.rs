//! Format of the rows of events.
//!
//! A row holds consecutive events of one append. They have the same trace, run and time, and each
//! of their numbers (lsn, event id, number in the run and in the session) is one higher than that
//! of the event before. The columns hold the values of the first event, `kind` the kinds of all,
//! separated by commas. `data` holds the data of a single event, or a JSON array with the data of
//! each. Versions before 0.2 wrote a row for each event, in the same format.
//!
//! The data of an event is a JSON object. If it only repeats another row, a reference to that row
//! is stored instead, so that long texts are stored once:
//! - `message_added`: a number, the sequence of the message in the same trace.
//! - `sub_trace_completed`, `run_completed`: a string, the id of the child run whose result the
//!   event reports.
//!
//! Readers rebuild the data from the referenced row, byte by byte. So a change of
//! `MessageEvent::added`, of `SubAgentEvent::completed`, or of the serialized form of these events
//! also changes stored events.

use std::borrow::Cow;

use rusqlite::{
    CachedStatement, Connection, Row,
    types::{FromSqlError, Type},
};
use serde_json::value::RawValue;
use soong_protocol::{
    ChildResult, Event, EventDraft, GoalEvent, Message, MessageEvent, RunEvent, RunId,
    SubAgentEvent, Timestamp, TraceId,
};

use super::{
    columns::{Columns, clamp_to_i64, json},
    messages, runs,
};
use crate::store::EventIds;

/// Statement that inserts a row; kept prepared during a batch.
pub(super) const INSERT: &str = "INSERT INTO event (lsn, trace_key, event_id, run_key, run_seq, session_key,
        session_seq, ts, kind, data, changes_goals) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";

/// Maximum number of events in a row. A reader of one event parses the whole row.
const MAX_EVENTS: u64 = 64;
/// A row with at least this many bytes of data takes no further event.
const MAX_DATA_BYTES: usize = 64 * 1024;

/// Keys of the rows that an event belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Owners {
    pub(super) trace_key: i64,
    pub(super) run_key: Option<i64>,
    pub(super) session_key: i64,
}

/// A row that is not written yet, to which events can be added.
pub(super) struct NewRow {
    owners: Owners,
    /// Numbers of the first event.
    first: EventIds,
    ts: Timestamp,
    count: u64,
    kinds: String,
    /// JSON array without its closing bracket.
    data: String,
    changes_goals: bool,
    /// Whether the row takes no further event, because its data may not be valid JSON.
    is_closed: bool,
}

impl NewRow {
    /// Creates a row for an event. `data` is its data as it is stored.
    pub(super) fn new(owners: Owners, ids: &EventIds, draft: &EventDraft, data: &str) -> Self {
        let mut row = Self {
            owners,
            first: ids.clone(),
            ts: draft.ts,
            count: 0,
            kinds: String::new(),
            data: String::with_capacity(data.len() + 2),
            changes_goals: false,
            is_closed: is_unreadable(&draft.event),
        };
        row.push(draft, data);
        row
    }

    /// Adds an event if it belongs to this row; returns whether it does.
    pub(super) fn add(
        &mut self,
        owners: Owners,
        ids: &EventIds,
        draft: &EventDraft,
        data: &str,
    ) -> bool {
        let follows =
            ids.lsn == self.first.lsn + self.count && owners == self.owners && draft.ts == self.ts;
        let is_closed = self.is_closed || is_unreadable(&draft.event);
        let fits = self.count < MAX_EVENTS && self.data.len() < MAX_DATA_BYTES && !is_closed;
        if follows && fits {
            self.push(draft, data);
        }
        follows && fits
    }

    fn push(&mut self, draft: &EventDraft, data: &str) {
        self.data.push(if self.count == 0 { '[' } else { ',' });
        self.data.push_str(data);
        if self.count > 0 {
            self.kinds.push(',');
        }
        self.kinds.push_str(draft.event.kind());
        self.changes_goals |= changes_goals(draft.event.kind());
        self.count += 1;
    }

    /// Inserts the row.
    pub(super) fn insert(mut self, statement: &mut CachedStatement<'_>) -> rusqlite::Result<()> {
        let data = match self.count {
            1 => &self.data[1..],
            _ => {
                self.data.push(']');
                &self.data
            }
        };
        statement.execute((
            clamp_to_i64(self.first.lsn),
            self.owners.trace_key,
            clamp_to_i64(self.first.event_id),
            self.owners.run_key,
            clamp_to_i64(self.first.run_seq),
            self.owners.session_key,
            clamp_to_i64(self.first.session_seq),
            self.ts.as_millis(),
            &self.kinds,
            data,
            self.changes_goals,
        ))?;
        Ok(())
    }
}

/// Returns whether events of this kind change the goal tree of their trace.
pub(super) fn changes_goals(kind: &str) -> bool {
    GoalEvent::KINDS.contains(&kind)
        || matches!(kind, "rewind" | "head_switched" | "session_forked")
}

/// Returns whether the data of an event has an unknown form. It may even be invalid JSON, for
/// example if a number was redacted, and must not make other events of its row unreadable.
fn is_unreadable(event: &Event) -> bool {
    matches!(event, Event::Unknown { .. })
}

/// The message and the child result that an append wrote last. Events after them can refer to them.
#[derive(Default)]
pub(super) struct Reported<'a> {
    pub(super) message: Option<&'a Message>,
    pub(super) result: Option<&'a ChildResult>,
}

/// Returns the data of an event as it is stored: a reference if the event only reports one of the
/// rows.
pub(super) fn stored_data<'d>(draft: &'d EventDraft, rows: &Reported<'_>) -> Cow<'d, str> {
    let result_id = |result: &ChildResult| json(&result.run_id);
    let reference = match &draft.event {
        // The event of a long message has no text. It is stored whole, so that readers need not
        // load the message.
        Event::Message(
            event @ MessageEvent::Added {
                content: Some(_), ..
            },
        ) => {
            let is_reported = |message: &&Message| {
                draft.trace_id == message.trace_id && event.is_addition_of(message)
            };
            rows.message
                .filter(is_reported)
                .map(|message| message.sequence.to_string())
        }
        Event::Run(RunEvent::Completed { summary, stats }) => {
            let is_reported = |result: &&ChildResult| {
                draft.run_id.as_ref() == Some(&result.run_id)
                    && *summary == result.summary
                    && *stats == result.stats
            };
            rows.result.filter(is_reported).map(result_id)
        }
        Event::SubAgent(event) => rows
            .result
            .filter(|result| event.is_completion_of(result))
            .map(result_id),
        _ => None,
    };
    reference.map_or(Cow::Borrowed(&draft.data), Cow::Owned)
}

/// Splits the columns `kind` and `data` of a row into its events. Each has its kind, and its data
/// as stored.
pub(super) fn split<'r>(
    kinds: &'r str,
    data: &'r str,
) -> rusqlite::Result<Vec<(&'r str, &'r str)>> {
    if !kinds.contains(',') {
        return Ok(vec![(kinds, data)]);
    }
    let parts: Vec<&RawValue> = serde_json::from_str(data).map_err(unreadable)?;
    if kinds.split(',').count() != parts.len() {
        return Err(unreadable(FromSqlError::InvalidType));
    }
    Ok(kinds
        .split(',')
        .zip(parts.into_iter().map(RawValue::get))
        .collect())
}

/// Splits a row with the columns `lsn`, `kind` and `data` like [`split`]; omits the events after
/// the one with `last_lsn`.
pub(super) fn split_until<'r>(
    row: &'r Row<'_>,
    last_lsn: u64,
) -> rusqlite::Result<Vec<(&'r str, &'r str)>> {
    let first_lsn = Columns::of(row).count()?;
    let mut events = split(row.get_ref(1)?.as_str()?, row.get_ref(2)?.as_str()?)?;
    let wanted = last_lsn.saturating_add(1).saturating_sub(first_lsn);
    events.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
    Ok(events)
}

/// Returns the number of events in a row, from its column `kind`.
pub(super) fn event_count(kinds: &str) -> u64 {
    kinds.split(',').count() as u64
}

/// Returns the data of an event. `stored` is the data itself, or a reference.
pub(super) fn resolve(
    conn: &Connection,
    trace_key: i64,
    trace_id: &TraceId,
    kind: &str,
    stored: &str,
) -> rusqlite::Result<String> {
    let event: Option<Event> = match (kind, stored.as_bytes().first()) {
        ("message_added", Some(b'0'..=b'9')) => {
            let sequence = stored.parse().map_err(unreadable)?;
            let found = messages::by_sequence(conn, trace_key, trace_id, &[sequence])?;
            found
                .first()
                .map(|message| MessageEvent::added(message).into())
        }
        ("sub_trace_completed" | "run_completed", Some(b'"')) => {
            let run_id: RunId = serde_json::from_str(stored).map_err(unreadable)?;
            runs::result(conn, &run_id)?.map(|result| match kind {
                "run_completed" => RunEvent::Completed {
                    summary: result.summary,
                    stats: result.stats,
                }
                .into(),
                _ => SubAgentEvent::completed(&result, result.summary.clone()).into(),
            })
        }
        _ => return Ok(stored.to_owned()),
    };
    match event {
        Some(event) => Ok(event.data_json()),
        None => Err(unreadable(FromSqlError::Other(
            format!("{kind} refers to {stored}, which is missing").into(),
        ))),
    }
}

fn unreadable(why: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(why))
}
