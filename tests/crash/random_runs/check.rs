//! Invariants after a history, however often its processes were killed.

use std::fmt;

use soong::{
    ErrorCode, MessagePath, TraceFilter,
    protocol::{ContextEvent, Event, EventRecord, MemoryEvent, Message, ModelEvent, UsageBy},
};
use soong_storage::{
    sqlite::SqliteReader,
    store::{Reader, UsageFilter},
};

use super::{
    Failed,
    drill_dir::DrillDir,
    effect,
    invariants::{Violation, Violations, repeated, store, timeline},
    scene::{ModelCall, calls_file},
};

/// Numbers of one history, or of several.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    sessions: u64,
    runs: u64,
    events: u64,
    effects: u64,
    model_calls: u64,
    /// Comparisons of a live state with the rebuilt one.
    pub(crate) comparisons: u64,
}

impl Counts {
    pub(crate) fn add(&mut self, other: &Self) {
        self.sessions += other.sessions;
        self.runs += other.runs;
        self.events += other.events;
        self.effects += other.effects;
        self.model_calls += other.model_calls;
        self.comparisons += other.comparisons;
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            sessions,
            runs,
            events,
            effects,
            model_calls,
            comparisons,
        } = self;
        write!(
            f,
            "{sessions} sessions, {runs} runs, {events} events, {effects} effects, {model_calls} model calls, "
        )?;
        write!(f, "{comparisons} states compared")
    }
}

/// Checks everything. Returns the violations.
pub(crate) fn all(dir: &DrillDir<'_>) -> Result<(Vec<Violation>, Counts), Failed> {
    let reader = SqliteReader::open(dir.home().join("sessions.sqlite"))?;
    let mut wrong = Violations::default();
    let mut counts = Counts::default();
    store(&reader, &mut wrong)?;
    let traces = reader
        .traces(&TraceFilter::default(), usize::MAX / 2, None)?
        .items;
    let mut events = Vec::new();
    for trace in &traces {
        let of_trace = reader.events(&trace.trace_id, 0, usize::MAX / 2)?;
        timeline(trace, &of_trace, &mut wrong);
        messages(
            &reader.messages(&trace.trace_id, MessagePath::All)?,
            &mut wrong,
        );
        counts.sessions += u64::from(trace.parent_trace_id.is_none());
        counts.runs += of_trace
            .iter()
            .filter(|record| record.event.is_terminal())
            .count() as u64;
        events.extend(of_trace);
    }
    let effects = effect::effects(&dir.effects())?;
    repeated(&effects, &events, &mut wrong);
    counts.events = events.len() as u64;
    counts.effects = effects.len() as u64;
    counts.model_calls = charges(dir, &reader, &events, &mut wrong)?;
    Ok((wrong.0, counts))
}

/// Checks the messages of a trace: sequences are unique, and parents precede their children.
fn messages(messages: &[Message], wrong: &mut Violations) {
    for pair in messages.windows(2) {
        wrong.check(
            pair[0].sequence < pair[1].sequence,
            "sequence used twice",
            || {
                format!(
                    "{} and {} of {}",
                    pair[0].sequence, pair[1].sequence, pair[0].trace_id
                )
            },
        );
    }
    for message in messages {
        let is_after_parent = message
            .parent_sequence
            .is_none_or(|parent| parent < message.sequence);
        wrong.check(is_after_parent, "main path not acyclic", || {
            format!(
                "{} of {} follows {:?}",
                message.sequence, message.trace_id, message.parent_sequence
            )
        });
    }
}

/// Checks the model calls: services accept all of them, and no more is charged than the model
/// reports for all of them, answered or not, and than was estimated for calls that were lost before
/// the model received them. The calls of deleted sessions are included, their charges are not.
/// Returns the number of calls.
fn charges(
    dir: &DrillDir<'_>,
    reader: &SqliteReader,
    events: &[EventRecord],
    wrong: &mut Violations,
) -> Result<u64, Failed> {
    let log = match std::fs::read_to_string(calls_file(dir)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        log => log?,
    };
    let mut limit: u64 = events
        .iter()
        .map(|record| estimate_for_lost_call(&record.event))
        .sum();
    let mut count = 0;
    for line in log.lines() {
        let call: ModelCall = serde_json::from_str(line)?;
        limit += call.tokens;
        count += 1;
        if let Some(why) = call.rejected {
            wrong.add("conversation rejected", why);
        }
    }
    let rows = reader.usage(UsageBy::Model, &UsageFilter::default())?;
    let charged: u64 = rows.iter().map(|row| row.sum.total_tokens).sum();
    wrong.check(charged <= limit, "charged too much", || {
        format!("{charged} tokens of at most {limit}")
    });
    Ok(count)
}

/// Returns the tokens that an event charges, or corrects, for a call that was lost with its actor
/// or process.
fn estimate_for_lost_call(event: &Event) -> u64 {
    let (error, usage) = match event {
        Event::Model(ModelEvent::UsageCorrected { usage, .. }) => return usage.total_tokens(),
        Event::Model(
            ModelEvent::Retrying { error, usage, .. } | ModelEvent::Failed { error, usage, .. },
        )
        | Event::Context(ContextEvent::CompactionFailed { error, usage, .. }) => (error, usage),
        Event::Memory(MemoryEvent::ReflectionEnded {
            error: Some(error),
            usage,
            ..
        }) => (&**error, usage),
        _ => return 0,
    };
    let is_lost = error.code == ErrorCode::Interrupted;
    usage
        .filter(|_| is_lost)
        .map_or(0, |usage| usage.total_tokens())
}
