//! Children of a run: what `agent` and `evaluate` ask for, within which limits, and what is written
//! down of a child before it starts (SUB-1, SUB-6, SUB-7).
//!
//! Pure, part of the run machine. Not here: when a call may start, and what its children bring
//! back (`calls.rs`, `outcome.rs`); who admits children (the sub-agent supervisor).

use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{
    AgentCallMode, ChildMode, ErrorCode, ErrorInfo, GoalChanges, GoalEvent, GoalId, GoalKind, Run, RunMode,
    RunSettings, RunStatus, Stats, SubAgentEvent, ToolCall, TraceId,
};
use soong_storage::store::{NewTrace, Write};

use super::{
    calls::OneOrMany,
    decide::{Deciding, Effect},
    outcome,
    state::Phase,
};

/// A child to be started.
#[derive(Debug, Clone)]
pub(crate) struct ChildOrder {
    pub(crate) mode: ChildMode,
    pub(crate) task: String,
    /// Place in an explore's list, from 1.
    pub(crate) index: usize,
    pub(crate) agent_type: Option<String>,
    pub(crate) model: Option<String>,
    pub(crate) context: Option<String>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) max_iterations: Option<u32>,
    pub(crate) tools: Option<Vec<String>>,
    /// The sub-trace that it goes on with.
    pub(crate) continue_from: Option<TraceId>,
}

impl ChildOrder {
    fn new(mode: ChildMode, task: String, index: usize) -> Self {
        Self {
            mode,
            task,
            index,
            agent_type: None,
            model: None,
            context: None,
            timeout_ms: None,
            max_iterations: None,
            tools: None,
            continue_from: None,
        }
    }
}

#[derive(Deserialize)]
struct AgentArguments {
    task: OneOrMany,
    agent_type: Option<String>,
    context: Option<String>,
    timeout_ms: Option<u64>,
    continue_from: Option<String>,
}

#[derive(Deserialize)]
struct EvaluateArguments {
    target_goal_id: Option<String>,
    context: Option<String>,
}

impl Deciding<'_, '_> {
    pub(crate) fn run_agent(&mut self, call: &ToolCall, arguments: Value) -> Result<(), ErrorInfo> {
        let wish: AgentArguments = crate::tool::arguments(arguments)?;
        let (mode, tasks) = match wish.task {
            OneOrMany::One(task) => (ChildMode::Delegate, vec![task]),
            OneOrMany::Many(tasks) => (ChildMode::Explore, tasks),
        };
        if wish.continue_from.is_some() && mode == ChildMode::Explore {
            let message = "`continue_from` goes on with one sub-agent: give one task as a string";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        let orders: Vec<ChildOrder> = tasks
            .into_iter()
            .enumerate()
            .map(|(place, task)| ChildOrder {
                agent_type: wish.agent_type.clone(),
                context: wish.context.clone(),
                timeout_ms: wish.timeout_ms,
                continue_from: wish.continue_from.clone().map(TraceId::new),
                ..ChildOrder::new(mode, task, place + 1)
            })
            .collect();
        self.spawn(orders, Some(&call.id)).map(|_| ())
    }

    pub(crate) fn run_evaluate(&mut self, call: &ToolCall, arguments: Value) -> Result<(), ErrorInfo> {
        let wish: EvaluateArguments = crate::tool::arguments(arguments)?;
        let goals = &self.state.goals;
        let goal = match &wish.target_goal_id {
            Some(name) => goals.find(name).map_err(|e| ErrorInfo::new(ErrorCode::GoalNotFound, e.to_string()))?,
            None => goals.current().ok_or_else(|| {
                ErrorInfo::new(
                    ErrorCode::GoalNotFound,
                    "no goal is focused: give target_goal_id, or focus a goal first",
                )
            })?,
        };
        let summary = goal.summary.as_deref().unwrap_or("(none yet)");
        let task = format!(
            "Evaluate whether this goal is met.\n\nGoal {}: {}\nReason: {}\nSummary so far: {summary}",
            goal.number, goal.description, goal.reason
        );
        let order = ChildOrder { context: wish.context, ..ChildOrder::new(ChildMode::Evaluate, task, 1) };
        self.spawn(vec![order], Some(&call.id)).map(|_| ())
    }

    pub(crate) fn spawn_for_program(&mut self, mut order: ChildOrder, ticket: u64) {
        order.index = self.state.children.len() + 1;
        let answer = if self.state.ending.is_some() || self.state.phase == Phase::New {
            Err(ErrorInfo::new(ErrorCode::NothingRunning, "the run is not at work: it takes no children"))
        } else {
            self.spawn(vec![order], None)
        };
        let answer = answer.map(|mut runs| Box::new(runs.remove(0)));
        // Before the child is started: whoever asked holds it before it can end.
        let start = self.step.effects.iter().rposition(|effect| matches!(effect, Effect::StartChildren(_)));
        let place = start.filter(|_| answer.is_ok()).unwrap_or(self.step.effects.len());
        self.step.effects.insert(place, Effect::AnswerSpawn { ticket, answer });
    }

    /// Writes all children of a call down at once, and has them started (DUR-2a).
    fn spawn(&mut self, orders: Vec<ChildOrder>, call: Option<&str>) -> Result<Vec<Run>, ErrorInfo> {
        self.check_orders(&orders)?;
        let goal_id = self.state.goals.current_id.clone();
        let mut runs = Vec::with_capacity(orders.len());
        if let (Some(goal_id), Some(_), Some(order)) = (&goal_id, call, orders.first()) {
            self.mark_agent_call(goal_id, order.mode);
        }
        for order in orders {
            let run = self.child_run(&order, goal_id.clone());
            self.write_child(&run, &order, call);
            runs.push(run);
        }
        self.step.effects.push(Effect::StartChildren(runs.clone()));
        Ok(runs)
    }

    fn check_orders(&self, orders: &[ChildOrder]) -> Result<(), ErrorInfo> {
        let spec = &self.state.spec;
        let have = self.state.children.len();
        if orders.is_empty() || orders.iter().any(|order| order.task.trim().is_empty()) {
            return Err(ErrorInfo::new(
                ErrorCode::ValidationError,
                "`task` needs at least one task, and none may be empty",
            ));
        }
        if spec.depth >= spec.max_depth {
            let message =
                format!("runs at depth {} have no children: agents.max_depth is {}", spec.depth, spec.max_depth);
            return Err(ErrorInfo::new(ErrorCode::ChildLimitExceeded, message));
        }
        if have + orders.len() > spec.max_children {
            let limit = spec.max_children;
            let message = format!("this run may have {limit} children in all and has had {have}: do the rest yourself");
            return Err(ErrorInfo::new(ErrorCode::ChildLimitExceeded, message));
        }
        for id in orders.iter().filter_map(|order| order.continue_from.as_ref()) {
            self.check_continued(id)?;
        }
        let unknown =
            orders.iter().filter_map(|order| order.agent_type.as_ref()).find(|name| !spec.presets.contains_key(*name));
        if let Some(name) = unknown {
            let known: Vec<&str> = spec.presets.keys().map(String::as_str).collect();
            let message = format!("there is no agent_type {name:?}; there is: {}", known.join(", "));
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(())
    }

    /// Only a sub-trace of this trace can be gone on with, and only when nobody is at work on it.
    fn check_continued(&self, id: &TraceId) -> Result<(), ErrorInfo> {
        let state = &self.state;
        if state.children.iter().any(|child| child.trace_id == *id && child.result.is_none()) {
            let message = format!("sub-agent {id} is still at work: wait for its result");
            return Err(ErrorInfo::new(ErrorCode::SessionActive, message));
        }
        let is_known = state.earlier_children.contains(id) || state.children.iter().any(|child| child.trace_id == *id);
        if is_known {
            return Ok(());
        }
        let message = format!("continue_from: {id} is no sub-agent of this trace; their ids stand in their results");
        Err(ErrorInfo::new(ErrorCode::TraceNotFound, message))
    }

    fn mark_agent_call(&mut self, goal_id: &GoalId, mode: ChildMode) {
        let mode = match mode {
            ChildMode::Explore => AgentCallMode::Explore,
            ChildMode::Delegate => AgentCallMode::Delegate,
            ChildMode::Evaluate => AgentCallMode::Evaluate,
        };
        if self.state.goals.get(goal_id).is_some_and(|goal| goal.agent_call_mode == Some(mode)) {
            return;
        }
        let changes =
            GoalChanges { kind: Some(GoalKind::AgentCall), agent_call_mode: Some(mode), ..GoalChanges::default() };
        self.emit(GoalEvent::Updated { goal_id: goal_id.clone(), changes, affected_goals: Vec::new() });
    }

    fn child_run(&mut self, order: &ChildOrder, goal_id: Option<GoalId>) -> Run {
        let spec = &self.state.spec;
        let number = (self.state.earlier_children.len() + self.state.children.len()) as u64 + 1;
        let default_type = match order.mode {
            ChildMode::Explore => "explore",
            ChildMode::Delegate => "default",
            ChildMode::Evaluate => "evaluator",
        };
        // SUB-6: a coordinator hands on its whole ceiling, everybody else at most its own tools.
        let handed_on: Vec<String> = if spec.preset.coordinates || spec.settings.driven {
            spec.ceiling.clone()
        } else {
            spec.tools.iter().map(|tool| tool.name.clone()).collect()
        };
        let ceiling = match &order.tools {
            Some(wanted) => handed_on.into_iter().filter(|name| wanted.contains(name)).collect(),
            None => handed_on,
        };
        Run {
            run_id: (self.now.new_run_id)(),
            trace_id: match &order.continue_from {
                Some(id) => id.clone(),
                None => spec.trace_id.child(order.mode, order.index, self.now.at, number),
            },
            session_id: spec.session_id.clone(),
            parent_run_id: Some(spec.run_id.clone()),
            parent_goal_id: goal_id,
            depth: spec.depth + 1,
            mode: RunMode::Normal,
            task: order.task.clone(),
            settings: RunSettings {
                agent_type: order.agent_type.clone().unwrap_or_else(|| default_type.to_owned()),
                model: order.model.clone().unwrap_or_else(|| spec.settings.model.clone()),
                max_iterations: order.max_iterations,
                tools: Some(ceiling),
                system_prompt: None,
                context: order.context.clone(),
                timeout_ms: Some(order.timeout_ms.unwrap_or(u64::MAX).min(spec.child_timeout_ms)),
                driven: false,
                continues: order.continue_from.is_some(),
                after_sequence: None,
                goes_on: false,
            },
            uid: spec.uid.to_string(),
            status: RunStatus::Queued,
            cancel_requested: false,
            end_reason: None,
            turn: 0,
            usage: Stats::zero(),
            cost: Some(soong_protocol::Usd::default()),
            error: None,
            created_at: self.now.at,
            started_at: None,
            completed_at: None,
        }
    }

    fn write_child(&mut self, run: &Run, order: &ChildOrder, call: Option<&str>) {
        let trace = || NewTrace {
            trace_id: run.trace_id.clone(),
            session_id: run.session_id.clone(),
            run_mode: run.mode,
            task: run.task.clone(),
            name: outcome::shorten(&run.task.split_whitespace().collect::<Vec<_>>().join(" "), 60),
            agent_type: run.settings.agent_type.clone(),
            parent_trace_id: Some(self.state.spec.trace_id.clone()),
            parent_goal_id: run.parent_goal_id.clone(),
            uid: run.uid.clone(),
            model: run.settings.model.clone(),
            created_at: run.created_at,
        };
        if order.continue_from.is_none() {
            self.step.writes.push(Write::Trace(trace()));
        }
        self.step.writes.push(Write::Run(Box::new(run.clone())));
        self.emit(SubAgentEvent::Started {
            sub_trace_id: run.trace_id.clone(),
            run_id: run.run_id.clone(),
            mode: order.mode,
            agent_type: run.settings.agent_type.clone(),
            task: run.task.clone(),
            parent_goal_id: run.parent_goal_id.clone(),
            tool_call_id: call.map(str::to_owned),
        });
        let collaborator = outcome::collaborator_at_start(&run.trace_id, &run.task);
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
    }
}
