//! Invariants of every history, however often its processes were killed.

use std::collections::BTreeMap;

use soong::protocol::{Event, EventRecord, RunId, ToolEvent, Trace};
use soong_storage::{sqlite::SqliteReader, store::Reader};

use super::{
    Failed,
    effect::{EFFECT, Effect, NOTE},
    run_timeline::first_violation,
};

/// A violated invariant.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) kind: &'static str,
    pub(crate) what: String,
}

impl Violation {
    pub(crate) fn new(kind: &'static str, what: impl Into<String>) -> Self {
        Self {
            kind,
            what: what.into(),
        }
    }
}

/// Violations of one cycle.
#[derive(Debug, Default)]
pub(crate) struct Violations(pub(crate) Vec<Violation>);

impl Violations {
    pub(crate) fn add(&mut self, kind: &'static str, what: impl Into<String>) {
        self.0.push(Violation::new(kind, what));
    }

    pub(crate) fn check(&mut self, holds: bool, kind: &'static str, what: impl FnOnce() -> String) {
        if !holds {
            self.add(kind, what());
        }
    }
}

/// Checks that the database is whole, and that no file and no run is left over.
pub(crate) fn store(reader: &SqliteReader, wrong: &mut Violations) -> Result<(), Failed> {
    for fault in reader.check_integrity()? {
        wrong.add("damaged database", fault);
    }
    for path in reader.blob_intents()? {
        wrong.add("announced file left over", path);
    }
    for run in reader.live_runs(None)? {
        wrong.add(
            "run without owner",
            format!("{} ({}) is {}", run.run_id, run.task, run.status.as_str()),
        );
    }
    Ok(())
}

/// Checks the events of a trace: ids are contiguous, also within each run, and each call is closed
/// once.
pub(crate) fn timeline(trace: &Trace, events: &[EventRecord], wrong: &mut Violations) {
    let mut of_runs: BTreeMap<&RunId, Vec<&EventRecord>> = BTreeMap::new();
    // The numbers of a session whose id was used before continue those of the deleted one.
    let first_id = trace.first_event_id;
    for (index, event) in events.iter().enumerate() {
        let expected_id = first_id + index as u64;
        wrong.check(
            event.event_id == expected_id,
            "event ids not contiguous",
            || {
                format!(
                    "{} has event {} instead of {expected_id}",
                    trace.trace_id, event.event_id
                )
            },
        );
        if let Some(run) = &event.run_id {
            of_runs.entry(run).or_default().push(event);
        }
    }
    let last = events.last().map_or(first_id - 1, |event| event.event_id);
    wrong.check(
        trace.last_event_id == last,
        "event ids not contiguous",
        || {
            format!(
                "{} records {} events but has {last}",
                trace.trace_id, trace.last_event_id
            )
        },
    );
    for (run, events) in of_runs {
        if let Some(violation) = first_violation(&events) {
            wrong.add("timeline", format!("run {run}: {violation}"));
        }
    }
}

/// Compares effects with events: no effect that must not be repeated was made twice, and each
/// recorded effect was made.
pub(crate) fn repeated(made: &[Effect], events: &[EventRecord], wrong: &mut Violations) {
    let mut lines: BTreeMap<(&RunId, &str), Vec<&Effect>> = BTreeMap::new();
    for effect in made {
        lines
            .entry((&effect.run, &effect.call))
            .or_default()
            .push(effect);
    }
    for (key, of) in &lines {
        let is_once = of[0].tool != EFFECT || of.len() == 1;
        wrong.check(is_once, "effect repeated", || format!("{key:?}: {of:?}"));
    }
    for record in events {
        if let (
            Some(run),
            Event::Tool(ToolEvent::Completed {
                tool_call_id, name, ..
            }),
        ) = (&record.run_id, &record.event)
            && (name == EFFECT || name == NOTE)
        {
            let count = lines.get(&(run, tool_call_id.as_str())).map_or(0, Vec::len);
            wrong.check(count > 0, "recorded effect not made", || {
                format!("{tool_call_id} of {run} ({name})")
            });
        }
    }
}
