//! Transcript of a run: what its tools did, one step per call, with a diff or the end of an output
//! below it.
//!
//! Pure. A step is complete when its call has ended and its result is known. Consecutive calls of a
//! tool that only reads are one step, which is complete when something else happens. Calls of
//! sub-agents are not steps: the step of the call that started them sums them up.
//!
//! Elsewhere: the content of a step (`step.rs`), where the lines are printed (the binary).

mod step;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use soong_protocol::{
    Event, EventRecord, MessageEvent, ModelEvent, Role, RunEvent, RunId, RunStatus, SubAgentEvent,
    ToolEvent,
};

use crate::spent::Spent;

pub use self::step::Step;
use self::step::{Call, Outcome};

/// Tools that read. Their consecutive calls are one step.
const READING_TOOLS: [&str; 6] = [
    "read",
    "list_files",
    "glob",
    "grep",
    "read_artifact",
    "list_artifacts",
];
/// Tools whose effect the display of the runs shows.
const HIDDEN_TOOLS: [&str; 1] = ["goal"];

/// Collects the steps of one run.
#[derive(Debug)]
pub struct Transcript {
    run: RunId,
    /// Calls that have started and have no result yet, by id.
    calls: HashMap<String, Call>,
    /// Calls that started the sub-agents, by the run of the sub-agent.
    parents: HashMap<RunId, String>,
    /// Consecutive calls of one reading tool.
    reading: Vec<Step>,
    /// Calls whose change the user has seen, because they required permission.
    seen_changes: HashSet<String>,
}

/// Sub-agents that a call started.
#[derive(Debug, Clone, Default)]
struct Children {
    /// Types, in the order of their first start.
    types: Vec<String>,
    count: usize,
    failed: usize,
    /// Sum of the tokens and of the known costs.
    spent: Spent,
}

impl Transcript {
    /// Creates the transcript of this run.
    pub fn new(run: RunId) -> Self {
        Self {
            run,
            calls: HashMap::new(),
            parents: HashMap::new(),
            reading: Vec::new(),
            seen_changes: HashSet::new(),
        }
    }

    /// Records that the user has seen the change that a call makes. Its step is shown without it.
    pub fn mark_change_seen(&mut self, tool_call_id: &str) {
        self.seen_changes.insert(tool_call_id.to_owned());
    }

    /// Applies an event. Returns the steps that it completes.
    pub fn apply(&mut self, record: &EventRecord) -> Vec<Step> {
        if record.run_id.as_ref() != Some(&self.run) {
            return Vec::new();
        }
        match &record.event {
            Event::Tool(event) => {
                self.apply_tool(event);
                Vec::new()
            }
            Event::SubAgent(event) => {
                self.apply_sub_agent(event);
                Vec::new()
            }
            Event::Message(MessageEvent::Added {
                role: Role::Tool,
                tool_call_id: Some(id),
                content,
                ..
            }) => {
                let Some(call) = self.calls.remove(id) else {
                    return Vec::new();
                };
                self.parents.retain(|_, call| call != id);
                let seen = self.seen_changes.remove(id);
                match call.step(content.as_ref().map(soong_protocol::MessageContent::as_str)) {
                    Some(step) if seen => self.add(step.without_rows()),
                    Some(step) => self.add(step),
                    None => Vec::new(),
                }
            }
            Event::Model(ModelEvent::Started { .. })
            | Event::Run(
                RunEvent::Completed { .. } | RunEvent::Failed { .. } | RunEvent::Cancelled { .. },
            ) => self.flush(),
            _ => Vec::new(),
        }
    }

    /// Returns the step that may still get further calls.
    pub fn flush(&mut self) -> Vec<Step> {
        let reading = std::mem::take(&mut self.reading);
        Step::merged(reading).into_iter().collect()
    }

    /// Adds a complete step. Returns the steps that are complete now.
    fn add(&mut self, step: Step) -> Vec<Step> {
        let is_reading = READING_TOOLS.contains(&step.tool.as_str()) && step.has_result();
        let continues = self
            .reading
            .last()
            .is_some_and(|last| last.tool == step.tool);
        let mut steps = if is_reading && continues {
            Vec::new()
        } else {
            self.flush()
        };
        if is_reading {
            self.reading.push(step);
        } else {
            steps.push(step);
        }
        steps
    }

    fn apply_tool(&mut self, event: &ToolEvent) {
        let (id, name, arguments, outcome) = match event {
            ToolEvent::Started {
                tool_call_id,
                name,
                arguments_preview,
            } => (tool_call_id, name, arguments_preview.as_str(), None),
            ToolEvent::Completed {
                tool_call_id,
                name,
                duration_ms,
                file_change,
                ..
            } => {
                let diff = file_change.as_ref().and_then(|change| change.diff.clone());
                (
                    tool_call_id,
                    name,
                    "",
                    Some(Outcome::Done {
                        duration_ms: *duration_ms,
                        diff,
                    }),
                )
            }
            ToolEvent::Failed {
                tool_call_id,
                name,
                error,
                ..
            } => (
                tool_call_id,
                name,
                "",
                Some(Outcome::Failed(error.message.clone())),
            ),
            ToolEvent::Denied {
                tool_call_id,
                name,
                reason,
                by,
                ..
            } => {
                let how = match by.as_deref() {
                    Some("rule") => "denied by a rule".to_owned(),
                    None | Some("hook" | "callback") => format!("denied: {reason}"),
                    Some("terminal") => "denied at the terminal".to_owned(),
                    Some(origin) => format!("denied by {origin}"),
                };
                (tool_call_id, name, "", Some(Outcome::Denied(how)))
            }
            ToolEvent::McpServerFailed { .. } => return,
        };
        if HIDDEN_TOOLS.contains(&name.as_str()) {
            return;
        }
        // A call of a resumed run may have started before its events were followed.
        let call = self
            .calls
            .entry(id.clone())
            .or_insert_with(|| Call::new(name, arguments));
        call.outcome = outcome;
    }

    fn apply_sub_agent(&mut self, event: &SubAgentEvent) {
        match event {
            SubAgentEvent::Started {
                run_id,
                agent_type,
                tool_call_id: Some(id),
                ..
            } => {
                let Some(call) = self.calls.get_mut(id) else {
                    return;
                };
                self.parents.insert(run_id.clone(), id.clone());
                call.children.count += 1;
                if !call.children.types.contains(agent_type) {
                    call.children.types.push(agent_type.clone());
                }
            }
            SubAgentEvent::Completed {
                run_id,
                status,
                stats,
                ..
            } => {
                let Some(call) = self
                    .parents
                    .remove(run_id)
                    .and_then(|id| self.calls.get_mut(&id))
                else {
                    return;
                };
                let children = &mut call.children;
                children.failed += usize::from(*status != RunStatus::Completed);
                let spent = Spent::from(&stats.tree);
                let known_cost = spent.cost.unwrap_or_default();
                children.spent = children.spent.plus(Spent {
                    cost: Some(known_cost),
                    ..spent
                });
            }
            _ => {}
        }
    }
}
