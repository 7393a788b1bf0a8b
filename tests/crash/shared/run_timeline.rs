//! The events of one run: they are numbered without a gap, each call is closed once, and the last
//! one ends the run.

use std::collections::BTreeSet;

use soong::protocol::{Event, EventRecord, ToolEvent};

/// Returns the first violation in the events of a run.
pub(crate) fn first_violation(events: &[&EventRecord]) -> Option<String> {
    let mut open = BTreeSet::new();
    for (index, record) in events.iter().enumerate() {
        if record.run_seq != Some(index as u64 + 1) {
            return Some(format!("a gap before {:?}", record.run_seq));
        }
        if record.event.is_terminal() != (index + 1 == events.len()) {
            return Some(format!(
                "{} is event {} of {}",
                record.event.kind(),
                index + 1,
                events.len()
            ));
        }
        let fits = match &record.event {
            Event::Tool(ToolEvent::Started { tool_call_id, .. }) => open.insert(tool_call_id),
            Event::Tool(
                ToolEvent::Completed { tool_call_id, .. }
                | ToolEvent::Failed { tool_call_id, .. }
                | ToolEvent::Denied { tool_call_id, .. },
            ) => open.remove(tool_call_id),
            _ => true,
        };
        if !fits {
            return Some(format!(
                "event {} opens or closes a call twice",
                record.event_id
            ));
        }
    }
    (!open.is_empty()).then(|| format!("{open:?} have no closing event"))
}
