//! Arranges traces as trees: each main trace, newest first, with its sub-agents below it.
//!
//! Pure.

use std::collections::HashMap;

use soong::protocol::{SessionId, Trace, TraceId};

/// A trace in the tree.
#[derive(Debug, PartialEq)]
pub(super) struct TreeTrace<'a> {
    pub(super) trace: &'a Trace,
    /// Branch and short name: the name of the session, or `#N` for its N-th sub-agent.
    pub(super) name: String,
}

/// Numbers the sub-agents of each session from 1 on. The traces are given oldest first and complete
/// for each session.
pub(super) fn numbers(traces: &[Trace]) -> HashMap<&TraceId, usize> {
    let mut counts: HashMap<&SessionId, usize> = HashMap::new();
    let mut numbers = HashMap::new();
    for trace in traces
        .iter()
        .filter(|trace| trace.parent_trace_id.is_some())
    {
        let count = counts.entry(&trace.session_id).or_default();
        *count += 1;
        numbers.insert(&trace.trace_id, *count);
    }
    numbers
}

/// Arranges traces, which are given oldest first and complete for each session. `names` are the
/// short names of the sessions.
pub(super) fn arrange<'a>(
    traces: &'a [Trace],
    names: &HashMap<SessionId, String>,
    unicode: bool,
) -> Vec<TreeTrace<'a>> {
    let numbers = numbers(traces);
    let mut below: HashMap<&TraceId, Vec<&Trace>> = HashMap::new();
    for trace in traces {
        if let Some(parent) = &trace.parent_trace_id {
            below.entry(parent).or_default().push(trace);
        }
    }
    let (more, last, down) = if unicode {
        ("├─ ", "└─ ", "│  ")
    } else {
        ("|- ", "`- ", "|  ")
    };
    let mut arranged = Vec::with_capacity(traces.len());
    for root in traces
        .iter()
        .rev()
        .filter(|trace| trace.parent_trace_id.is_none())
    {
        // Each entry: the trace, the branch before its name, and the branch before those below it.
        let mut open: Vec<(&Trace, String, String)> = vec![(root, String::new(), String::new())];
        while let Some((trace, branch, trunk)) = open.pop() {
            let name = match numbers.get(&trace.trace_id) {
                Some(number) => format!("{branch}#{number}"),
                None => names
                    .get(&trace.session_id)
                    .cloned()
                    .unwrap_or_else(|| trace.trace_id.to_string()),
            };
            arranged.push(TreeTrace { trace, name });
            let children = below.remove(&trace.trace_id).unwrap_or_default();
            for (at, child) in children.iter().enumerate().rev() {
                let (own, rest) = if at + 1 == children.len() {
                    (last, "   ")
                } else {
                    (more, down)
                };
                open.push((child, format!("{trunk}{own}"), format!("{trunk}{rest}")));
            }
        }
    }
    arranged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trace(session: &str, id: &str, parent: Option<&str>) -> Trace {
        serde_json::from_value(json!({
            "trace_id": id, "session_id": session, "parent_trace_id": parent, "mode": "agent", "run_mode": "normal",
            "task": "t", "name": "t", "agent_type": "default", "status": "completed", "total_messages": 0,
            "total_tokens": 0, "total_prompt_tokens": 0, "total_completion_tokens": 0, "total_cost": null,
            "total_duration_ms": 0, "last_sequence": 0, "head_sequence": 0, "last_event_id": 0, "uid": "local",
            "model": "m", "context": { "collaborators": [] }, "created_at": "2026-01-01T00:00:00.000Z",
        }))
        .unwrap()
    }

    #[test]
    fn sub_agents_are_numbered_in_the_order_of_their_start() {
        let traces = [
            trace("a", "a", None),
            trace("a", "a@1", Some("a")),
            trace("b", "b", None),
            trace("a", "a@2", Some("a")),
            trace("a", "a@1@3", Some("a@1")),
            trace("a", "a@4", Some("a")),
        ];
        let names = HashMap::from([(SessionId::new("a"), "plan-a".to_owned())]);
        let shown = |unicode| -> Vec<String> {
            arrange(&traces, &names, unicode)
                .into_iter()
                .map(|entry| entry.name)
                .collect()
        };
        assert_eq!(
            shown(true),
            ["b", "plan-a", "├─ #1", "│  └─ #3", "├─ #2", "└─ #4"]
        );
        assert_eq!(shown(false)[2..4], ["|- #1", "|  `- #3"]);
    }
}
