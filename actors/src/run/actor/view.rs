//! What a run shows of itself: what it does now, and whether it needs a slot for that.
//!
//! Pure, but for what lies beside the run. Not here: who is shown it (`observatory.rs`), slots (`sub_agent.rs`).

use std::sync::Arc;

use soong_protocol::{BudgetDimension, Event, ModelEvent, Run, RunStatus, SubAgentEvent, ToolEvent};
use soong_storage::store::Write;

use crate::run::{
    actor::clock::RunClock,
    machine::{
        outcome,
        state::{Phase, RunState},
        tool_calls::{call_set::CallState, scheduler::is_spawning},
    },
};
use crate::{
    budget::Purse,
    observatory::{ActorView, BudgetShare, Face, RunView},
    text::shorten,
};

/// What lies beside a run and is shown with it.
pub(crate) struct RunFace {
    pub(crate) clock: Arc<RunClock>,
    /// What it draws on, where it was given a budget of its own.
    pub(crate) budget: Option<Purse>,
    /// How long it may be at work, in seconds, where its budget says so.
    pub(crate) wall_time_s: Option<u64>,
}

impl RunFace {
    fn time(&self) -> Option<BudgetShare> {
        let (limit, used) = (self.wall_time_s?, self.clock.used().as_secs());
        Some(BudgetShare { dimension: BudgetDimension::WallTimeS, used: used.to_string(), limit: limit.to_string() })
    }
}

impl Face for RunFace {
    fn stamp(&self) -> u64 {
        let progress = self.clock.last_progress().as_millis().cast_unsigned();
        let seconds = self.wall_time_s.map_or(0, |_| self.clock.used().as_secs());
        // None of them ever falls: what changes does not cancel out.
        progress.wrapping_add(seconds).wrapping_add(self.budget.as_ref().map_or(0, Purse::stamp))
    }

    fn fill(&self, view: &mut ActorView) {
        let Some(run) = &mut view.run else { return };
        run.last_progress = Some(self.clock.last_progress());
        run.budget = self.budget.as_ref().map(Purse::shares).unwrap_or_default();
        run.budget.extend(self.time());
    }
}

/// Longest error that is shown, in characters; the event has all of it.
const TROUBLE_CHARS: usize = 400;

/// Returns what a run shows before it does anything.
pub(crate) fn first_view(run: &Run) -> RunView {
    RunView {
        trace_id: run.trace_id.clone(),
        parent_run_id: run.parent_run_id.clone(),
        mode: run.mode,
        agent_type: run.settings.agent_type.clone(),
        task: outcome::one_line(&run.task),
        turn: run.turn,
        goal: None,
        tokens: run.usage.total_tokens,
        cost: run.cost,
        events: 0,
        asks: 0,
        last_progress: None,
        budget: Vec::new(),
        stuck: false,
        passive: false,
    }
}

/// Says what went wrong last, where one of these events tells that something did.
pub(crate) fn trouble(writes: &[Write]) -> Option<String> {
    let told = |write: &Write| if let Write::Event(draft) = write { told_by(&draft.event) } else { None };
    writes.iter().rev().find_map(told)
}

fn told_by(event: &Event) -> Option<String> {
    let said = match event {
        Event::Model(ModelEvent::Retrying { attempt, error, .. }) => {
            Some(format!("model call, try {attempt}: {error}"))
        }
        Event::Model(ModelEvent::Failed { error, .. }) => Some(format!("model call: {error}")),
        Event::Tool(ToolEvent::Failed { name, error, .. }) => Some(format!("tool {name}: {error}")),
        Event::Tool(ToolEvent::Denied { name, reason, .. }) => Some(format!("tool {name}: denied: {reason}")),
        Event::Tool(ToolEvent::McpServerFailed { server, error }) => Some(format!("MCP server {server}: {error}")),
        Event::SubAgent(SubAgentEvent::Completed { sub_trace_id, status: RunStatus::Failed, summary, .. }) => {
            Some(format!("child {sub_trace_id}: {summary}"))
        }
        _ => None,
    };
    said.map(|said| shorten(&said, TROUBLE_CHARS))
}

impl RunState {
    /// Says in a few words what the run does now, for people.
    pub(crate) fn activity(&self) -> (&'static str, String) {
        if self.ending.is_some() && !self.is_ended() {
            return ("ending", format!("waits for {} children", self.open_children));
        }
        match &self.phase {
            Phase::New => ("queued", String::new()),
            Phase::Driven => ("running", format!("driven by a program, {} children open", self.open_children)),
            Phase::Recalling => ("running", "looks for what earlier runs have learned".to_owned()),
            Phase::Thinking => ("running", "model call".to_owned()),
            Phase::Compacting => ("running", "sums the conversation up".to_owned()),
            Phase::Acting { .. } if self.waiting_since.is_some() => {
                let for_leave = self.waits_for.as_deref() == Some("permission");
                ("waiting", if for_leave { "a permission" } else { "an answer" }.to_owned())
            }
            Phase::Acting { .. } if self.open_children > 0 => {
                ("running", format!("{} of {} children", self.open_children, self.children.len()))
            }
            Phase::Acting { calls } => {
                let at_work = calls.iter().filter(|open| matches!(open.state, CallState::Started { .. }));
                let names: Vec<&str> = at_work.map(|open| open.call.name.as_str()).take(4).collect();
                ("running", format!("tool {}", names.join(", ")))
            }
            Phase::Answered | Phase::Halted => ("ending", String::new()),
            Phase::Ended(status) => (status.as_str(), String::new()),
        }
    }

    /// Brings up to date what is shown of it.
    pub(crate) fn show_in(&self, view: &mut RunView) {
        view.turn = self.turn;
        view.tokens = self.own.total_tokens;
        view.cost = self.own.cost;
        view.asks = self.asks();
        // A goal that was closed, by an earlier run perhaps, says nothing of what is done now.
        let goal = self.goals.current().filter(|goal| goal.status.is_open());
        view.goal = goal.map(|goal| format!("{} {}", goal.number, outcome::one_line(&goal.description)));
    }

    /// Returns how many of its calls wait for people.
    fn asks(&self) -> u32 {
        let Phase::Acting { calls } = &self.phase else { return 0 };
        let asking = calls.iter().filter(|open| open.state != CallState::Done && open.waits_for_people());
        u32::try_from(asking.count()).unwrap_or(u32::MAX)
    }

    /// Returns whether the run waits for children or people and for nothing else: it needs no slot meanwhile
    /// (ACT-5).
    pub(crate) fn only_waits_for_others(&self) -> bool {
        self.waiting_since.is_some() || (self.open_children > 0 && self.has_nothing_of_its_own_at_work())
    }

    fn has_nothing_of_its_own_at_work(&self) -> bool {
        match &self.phase {
            Phase::Acting { calls } => calls.iter().all(|open| match open.state {
                // What waits, waits for a child as well: there is nothing else in flight.
                CallState::Done | CallState::Waiting => true,
                CallState::Started { .. } => is_spawning(&open.call.name) || open.waits_for_people(),
            }),
            Phase::Answered | Phase::Driven | Phase::Halted => true,
            Phase::New | Phase::Recalling | Phase::Thinking | Phase::Compacting | Phase::Ended(_) => false,
        }
    }
}
