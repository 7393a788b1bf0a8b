//! Invariants after a history, however often its processes were killed.

use std::fmt;

use soong::{
    MessagePath, TraceFilter,
    protocol::{Message, UsageBy},
    storage::{
        sqlite::SqliteReader,
        store::{Reader, UsageFilter},
    },
};

use super::{
    Failed, effect,
    invariants::{Violation, Violations, repeated, timeline},
    scene::{HistoryDir, ModelCall},
};

/// Numbers of one history, or of several.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sessions: u64,
    runs: u64,
    events: u64,
    effects: u64,
    model_calls: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.runs += other.runs;
        self.events += other.events;
        self.effects += other.effects;
        self.model_calls += other.model_calls;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sessions, runs, events, effects, model_calls } = self;
        write!(f, "{sessions} sessions, {runs} runs, {events} events, {effects} effects, {model_calls} model calls")
    }
}

/// Checks everything. Returns the violations.
pub(crate) fn all(place: &HistoryDir<'_>) -> Result<(Vec<Violation>, Counts), Failed> {
    let reader = SqliteReader::open(place.home().join("sessions.sqlite"))?;
    let mut wrong = Violations::default();
    let mut counts = Counts::default();
    for fault in reader.check_integrity()? {
        wrong.add("damaged database", fault);
    }
    for path in reader.blob_intents()? {
        wrong.add("announced file left over", path);
    }
    for run in reader.live_runs(None)? {
        wrong.add("run without owner", format!("{} ({}) is {}", run.run_id, run.task, run.status.as_str()));
    }
    let traces = reader.traces(&TraceFilter::default(), usize::MAX / 2, None)?.items;
    let mut events = Vec::new();
    for trace in &traces {
        let of_trace = reader.events(&trace.trace_id, 0, usize::MAX / 2)?;
        timeline(trace, &of_trace, &mut wrong);
        messages(&reader.messages(&trace.trace_id, MessagePath::All)?, &mut wrong);
        counts.sessions += u64::from(trace.parent_trace_id.is_none());
        counts.runs += of_trace.iter().filter(|record| record.event.is_terminal()).count() as u64;
        events.extend(of_trace);
    }
    let effects = effect::effects(&place.effects())?;
    repeated(&effects, &events, &mut wrong);
    counts.events = events.len() as u64;
    counts.effects = effects.len() as u64;
    counts.model_calls = charges(place, &reader, &mut wrong)?;
    Ok((wrong.0, counts))
}

/// Checks the messages of a trace: sequences are unique, and parents precede their children.
fn messages(messages: &[Message], wrong: &mut Violations) {
    for pair in messages.windows(2) {
        wrong.check(pair[0].sequence < pair[1].sequence, "sequence used twice", || {
            format!("{} and {} of {}", pair[0].sequence, pair[1].sequence, pair[0].trace_id)
        });
    }
    for message in messages {
        let is_after_parent = message.parent_sequence.is_none_or(|parent| parent < message.sequence);
        wrong.check(is_after_parent, "main path not acyclic", || {
            format!("{} of {} follows {:?}", message.sequence, message.trace_id, message.parent_sequence)
        });
    }
}

/// Checks the model calls: services accept all of them, and no more is charged than they can have used. Returns their
/// number.
fn charges(place: &HistoryDir<'_>, reader: &SqliteReader, wrong: &mut Violations) -> Result<u64, Failed> {
    let log = match std::fs::read_to_string(place.calls()) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        log => log?,
    };
    let mut limit = 0;
    let mut count = 0;
    for line in log.lines() {
        let call: ModelCall = serde_json::from_str(line)?;
        limit += call.max_tokens;
        count += 1;
        if let Some(why) = call.rejected {
            wrong.add("conversation rejected", why);
        }
    }
    let rows = reader.usage(UsageBy::Model, &UsageFilter::default())?;
    let charged: u64 = rows.iter().map(|row| row.sum.total_tokens).sum();
    wrong.check(charged <= limit, "charged too much", || format!("{charged} tokens of at most {limit}"));
    Ok(count)
}
