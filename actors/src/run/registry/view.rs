//! The status of a run in the actor tree: its initial view, its clock and budget, and its last
//! error.
//!
//! Elsewhere: the watchers of the tree (`actor_tree.rs`), slots (`supervision/sub_agents.rs`).

use std::sync::Arc;

use soong_protocol::{
    BudgetDimension, Event, ModelEvent, Run, RunStatus, SubAgentEvent, ToolEvent, Write,
};
use soong_text::shorten;

use crate::{
    actor_tree::{ActorRun, ActorView, BudgetShare, StatusSource},
    budget::BudgetAccount,
    run::{clock::RunClock, machine::outcome},
};

/// Clock and budget of a run, for its status.
pub(crate) struct RunStatusSource {
    pub(crate) clock: Arc<RunClock>,
    /// The budget, if the run has one of its own.
    pub(crate) budget: Option<BudgetAccount>,
    /// Wall time limit of the budget, in seconds.
    pub(crate) wall_time_s: Option<u64>,
}

impl RunStatusSource {
    fn time_budget(&self) -> Option<BudgetShare> {
        let limit = self.wall_time_s?;
        let used = self.clock.used().as_secs();
        Some(BudgetShare {
            dimension: BudgetDimension::WallTimeS,
            used: used.to_string(),
            limit: limit.to_string(),
        })
    }
}

impl StatusSource for RunStatusSource {
    fn revision(&self) -> u64 {
        let progress = self.clock.last_progress().as_millis().cast_unsigned();
        let seconds = self.wall_time_s.map_or(0, |_| self.clock.used().as_secs());
        // None of the summands ever decreases, so changes cannot cancel each other out.
        progress
            .wrapping_add(seconds)
            .wrapping_add(self.budget.as_ref().map_or(0, BudgetAccount::revision))
    }

    fn fill(&self, view: &mut ActorView) {
        let Some(run) = &mut view.run else { return };
        run.last_progress = Some(self.clock.last_progress());
        run.budget = self
            .budget
            .as_ref()
            .map(BudgetAccount::limit_statuses)
            .unwrap_or_default();
        run.budget.extend(self.time_budget());
    }
}

/// Maximum length of a shown error, in characters. The event has the full text.
const MAX_ERROR_CHARS: usize = 400;

/// Returns the view of a run that has not started.
pub(crate) fn initial_view(run: &Run) -> ActorRun {
    ActorRun {
        trace_id: run.trace_id.clone(),
        parent_run_id: run.parent_run_id.clone(),
        mode: run.mode,
        agent_type: run.settings.agent_type.clone(),
        task: outcome::one_line(&run.task),
        turn: run.turn,
        goal: None,
        tokens: run.usage.total_tokens,
        cost: run.cost,
        estimated: run.usage.estimated,
        events: 0,
        asks: 0,
        last_progress: None,
        budget: Vec::new(),
        stuck: false,
        passive: false,
    }
}

/// Returns the last error that these writes report, shortened for the status; `None` if they report
/// none.
pub(crate) fn last_error(writes: &[Write]) -> Option<String> {
    let error = |write: &Write| {
        if let Write::Event(draft) = write {
            error_in(&draft.event)
        } else {
            None
        }
    };
    writes.iter().rev().find_map(error)
}

fn error_in(event: &Event) -> Option<String> {
    let text = match event {
        Event::Model(ModelEvent::Retrying { attempt, error, .. }) => {
            Some(format!("model call, attempt {attempt}: {error}"))
        }
        Event::Model(ModelEvent::Fallback {
            from,
            error: Some(error),
            ..
        }) => Some(format!("model {from}: {error}")),
        Event::Model(ModelEvent::Failed { error, .. }) => Some(format!("model call: {error}")),
        Event::Tool(ToolEvent::Failed { name, error, .. }) => Some(format!("tool {name}: {error}")),
        Event::Tool(ToolEvent::Denied { name, reason, .. }) => {
            Some(format!("tool {name}: denied: {reason}"))
        }
        Event::Tool(ToolEvent::McpServerFailed { server, error }) => {
            Some(format!("MCP server {server}: {error}"))
        }
        Event::SubAgent(SubAgentEvent::Completed {
            sub_trace_id,
            status: RunStatus::Failed,
            summary,
            ..
        }) => Some(format!("child {sub_trace_id}: {summary}")),
        _ => None,
    };
    text.map(|text| shorten(&text, MAX_ERROR_CHARS))
}
