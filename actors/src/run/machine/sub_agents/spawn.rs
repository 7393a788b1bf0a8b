//! Spawning of child runs: validates the requests of `agent`, `evaluate` and programs against the
//! limits, and records each child before it starts (SUB-1, SUB-6, SUB-7).
//!
//! Pure; part of the run state machine.
//!
//! Elsewhere: requests of programs and tools (`requests.rs`), the settings of a child
//! (`child_run.rs`); when a call may start, and the results of children (`tool_calls/scheduler.rs`,
//! `outcome.rs`); admission of children (the sub-agent supervisor).

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{
    AgentCallMode, ChildMode, ContentPart, ErrorCode, ErrorInfo, GivenMessage, GoalChanges,
    GoalEvent, GoalId, GoalKind, Message, NewTrace, Role, Run, RunOptions, RunSettings, RunWrite,
    SubAgentEvent, ToolCall, TraceId, TraceWrite, Write,
};
use soong_text::{on_one_line, shorten};
use soong_tool::ChildSpec;

use crate::run::machine::{
    Transition,
    effect::{ChildEffect, Effect, ToolCallEffect},
    input::ChildRequest,
    outcome,
    output_schema::OutputSchema,
    tools::OneOrMany,
};

/// Messages for all children, or a list for each child.
#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "`messages` must be a list of {role, content}, or a list of such lists"
)]
enum SharedOrPerChild {
    One(Vec<GivenMessage>),
    Each(Vec<Vec<GivenMessage>>),
}

#[derive(Deserialize)]
struct AgentArguments {
    task: OneOrMany,
    messages: Option<SharedOrPerChild>,
    continue_from: Option<String>,
    agent_type: Option<String>,
    skills: Option<Vec<String>>,
    context: Option<Value>,
    expected_output_schema: Option<Value>,
    timeout_ms: Option<u64>,
}

#[derive(Deserialize)]
struct EvaluateArguments {
    #[serde(default)]
    messages: Vec<GivenMessage>,
    target_goal_id: Option<String>,
    continue_from: Option<String>,
    context: Option<Value>,
}

/// Origin of a request for children.
#[derive(Clone, Copy)]
pub(super) enum Requester<'a> {
    /// The model, with a call of `agent` or `evaluate`.
    Model { call: &'a str },
    /// A tool of the program, during its call.
    Tool { call: &'a str },
    /// The program, or one of its callbacks.
    Program,
}

impl<'a> Requester<'a> {
    /// Returns the id of the tool call.
    fn call(self) -> Option<&'a str> {
        match self {
            Self::Model { call } | Self::Tool { call } => Some(call),
            Self::Program => None,
        }
    }
}

/// Rejects images and files: a model could name any artifact as one.
fn check_text_only<'a>(
    mut messages: impl Iterator<Item = &'a GivenMessage>,
) -> Result<(), ErrorInfo> {
    if messages.all(|message| message.content.parts().is_empty()) {
        Ok(())
    } else {
        Err(validation_error(
            "`messages` may contain only text: name files in the task instead",
        ))
    }
}

pub(super) fn validation_error(message: impl Into<String>) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::ValidationError, message)
}

impl Transition<'_, '_> {
    /// Starts the children of a call. If the call continues a sub-trace, `before` holds the
    /// settings of its last run; `None` until they have been read.
    pub(crate) fn run_agent(
        &mut self,
        call: &ToolCall,
        arguments: Value,
        before: Option<Box<RunSettings>>,
    ) -> Result<(), ErrorInfo> {
        let request: AgentArguments = soong_tool::arguments(arguments)?;
        let (mode, tasks) = match request.task {
            OneOrMany::One(task) => (ChildMode::Delegate, vec![task]),
            OneOrMany::Many(tasks) => (ChildMode::Explore, tasks),
        };
        if request.continue_from.is_some() && mode == ChildMode::Explore {
            return Err(validation_error(
                "`continue_from` continues one sub-agent: give one task as a string",
            ));
        }
        if let (Some(id), None) = (&request.continue_from, &before) {
            return self.read_settings(call, TraceId::new(id.as_str()), mode);
        }
        let mut messages = match request.messages {
            None => vec![Vec::new(); tasks.len()],
            Some(SharedOrPerChild::One(all)) => vec![all; tasks.len()],
            Some(SharedOrPerChild::Each(each)) if each.len() == tasks.len() => each,
            Some(SharedOrPerChild::Each(each)) => {
                let lists = each.len();
                let tasks = tasks.len();
                return Err(validation_error(format!(
                    "`messages` has {lists} lists for {tasks} tasks: give one list for all, or one for each task"
                )));
            }
        };
        check_text_only(messages.iter().flatten())?;
        let requests = tasks.into_iter().zip(messages.drain(..)).enumerate().map(
            |(index, (task, messages))| {
                let spec = ChildSpec {
                    mode,
                    preset: request.agent_type.clone(),
                    context: request.context.clone(),
                    options: RunOptions {
                        messages,
                        skills: request.skills.clone(),
                        expected_output_schema: request.expected_output_schema.clone(),
                        timeout_ms: request.timeout_ms,
                        ..RunOptions::default()
                    },
                    continue_from: request.continue_from.clone().map(TraceId::new),
                    ..ChildSpec::new(task)
                };
                ChildRequest {
                    spec,
                    previous_settings: before.clone(),
                    index: index + 1,
                }
            },
        );
        let goal_id = self.state.goals.current_id.clone();
        self.spawn(
            requests.collect(),
            goal_id,
            Requester::Model { call: &call.id },
        )
        .map(|_| ())
    }

    /// Starts the child of a call. `before` as in [`Self::run_agent`].
    pub(crate) fn run_evaluate(
        &mut self,
        call: &ToolCall,
        arguments: Value,
        before: Option<Box<RunSettings>>,
    ) -> Result<(), ErrorInfo> {
        let request: EvaluateArguments = soong_tool::arguments(arguments)?;
        check_text_only(request.messages.iter())?;
        if let (Some(id), None) = (&request.continue_from, &before) {
            return self.read_settings(call, TraceId::new(id.as_str()), ChildMode::Evaluate);
        }
        let goals = &self.state.goals;
        let goal = match &request.target_goal_id {
            Some(name) => goals
                .find(name)
                .map_err(|e| ErrorInfo::new(ErrorCode::GoalNotFound, e.to_string()))?,
            None => goals.current().ok_or_else(|| {
                ErrorInfo::new(
                    ErrorCode::GoalNotFound,
                    "no goal is focused: give target_goal_id, or focus a goal first",
                )
            })?,
        };
        let goal_id = Some(goal.id.clone());
        let summary = goal.summary.as_deref().unwrap_or("(none yet)");
        let task = format!(
            "Evaluate whether this goal is met.\n\nGoal {}: {}\nReason: {}\nSummary so far: {summary}",
            goal.number, goal.description, goal.reason
        );
        let spec = ChildSpec {
            context: request.context,
            continue_from: request.continue_from.map(TraceId::new),
            ..ChildSpec::evaluate(task).messages(request.messages)
        };
        let request = ChildRequest {
            spec,
            previous_settings: before,
            index: 1,
        };
        self.spawn(vec![request], goal_id, Requester::Model { call: &call.id })
            .map(|_| ())
    }

    /// Requests the settings of the sub-trace that a call continues. The child starts after they
    /// have been read.
    fn read_settings(
        &mut self,
        call: &ToolCall,
        trace_id: TraceId,
        mode: ChildMode,
    ) -> Result<(), ErrorInfo> {
        self.check_continued(&trace_id, mode)?;
        self.step
            .effects
            .push(Effect::Tool(ToolCallEffect::ReadSettings {
                id: call.id.clone(),
                trace_id,
            }));
        Ok(())
    }

    /// Records all requested children in one commit, and requests their start (DUR-2a). They work
    /// on `goal_id`.
    pub(super) fn spawn(
        &mut self,
        requests: Vec<ChildRequest>,
        goal_id: Option<GoalId>,
        requester: Requester<'_>,
    ) -> Result<Vec<Run>, ErrorInfo> {
        self.check_requests(&requests)?;
        self.context
            .budget
            .map_or(Ok(()), |account| account.count_children(requests.len()))?;
        let mut runs = Vec::with_capacity(requests.len());
        if let (Some(goal_id), Some(_), Some(order)) =
            (&goal_id, requester.call(), requests.first())
        {
            self.mark_goal_as_agent_call(goal_id, order.mode());
        }
        let by_model = matches!(requester, Requester::Model { .. });
        for order in requests {
            let run = self.child_run(&order, goal_id.clone(), by_model);
            self.record_child(&run, &order, requester.call());
            runs.push(run);
        }
        self.step
            .effects
            .push(Effect::Child(ChildEffect::Start(runs.clone())));
        Ok(runs)
    }

    fn check_requests(&self, requests: &[ChildRequest]) -> Result<(), ErrorInfo> {
        let spec = &self.state.spec;
        let child_count = self.state.sub_agents.children.len();
        if requests.is_empty()
            || requests
                .iter()
                .any(|order| order.spec.task.trim().is_empty())
        {
            return Err(validation_error(
                "`task` requires at least one task, and no task may be empty",
            ));
        }
        if spec.settings.options.budget.depth == Some(0) {
            let message = "the budget allows no sub-agents below this run: do the rest yourself";
            return Err(ErrorInfo::new(ErrorCode::BudgetExceeded, message));
        }
        if spec.identity.depth >= spec.limits.max_depth {
            let message = format!(
                "runs at depth {} cannot have children: agents.max_depth is {}",
                spec.identity.depth, spec.limits.max_depth
            );
            return Err(ErrorInfo::new(ErrorCode::ChildLimitExceeded, message));
        }
        if child_count + requests.len() > spec.limits.max_children {
            let limit = spec.limits.max_children;
            let message = format!(
                "this run may have at most {limit} children and already has {child_count}: do the rest yourself"
            );
            return Err(ErrorInfo::new(ErrorCode::ChildLimitExceeded, message));
        }
        for ChildRequest { spec: child, .. } in requests {
            if let Some(id) = &child.continue_from {
                self.check_continued(id, child.mode)?;
                if requests
                    .iter()
                    .filter(|order| order.spec.continue_from.as_ref() == Some(id))
                    .count()
                    > 1
                {
                    return Err(validation_error(format!(
                        "continue_from: {id} can be continued with one task at a time"
                    )));
                }
            }
            if child
                .context
                .as_ref()
                .is_some_and(|context| !context.is_string() && !context.is_object())
            {
                return Err(validation_error("`context` must be a text or an object"));
            }
            if let Some(schema) = &child.options.expected_output_schema {
                OutputSchema::new(schema)?;
            }
            if let Some(skills) = &child.options.skills {
                spec.catalog.skills.select(Some(skills), None)?;
            }
            check_initial_messages(&child.options.messages)?;
            let mut parts = child
                .options
                .messages
                .iter()
                .flat_map(|message| message.content.parts());
            if parts.any(|part| matches!(part, ContentPart::Inline(_))) {
                return Err(validation_error(
                    "`messages` contain a file that is not stored",
                ));
            }
        }
        let mut named = requests
            .iter()
            .filter_map(|order| order.spec.preset.as_ref());
        let unknown = named.find(|name| !spec.catalog.presets.contains_key(*name));
        if let Some(name) = unknown {
            let known: Vec<&str> = spec.catalog.presets.keys().map(String::as_str).collect();
            let message = format!(
                "there is no agent_type {name:?}; available: {}",
                known.join(", ")
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        Ok(())
    }

    /// Checks that a sub-trace can be continued: it belongs to this trace, its kind matches the
    /// tool, and no run is active on it.
    fn check_continued(&self, id: &TraceId, mode: ChildMode) -> Result<(), ErrorInfo> {
        let state = &self.state;
        let is_evaluation = id.child_mode() == Some(ChildMode::Evaluate);
        if is_evaluation != (mode == ChildMode::Evaluate) {
            let (is, with) = if is_evaluation {
                ("an evaluation", "evaluate")
            } else {
                ("not an evaluation", "agent")
            };
            return Err(validation_error(format!(
                "continue_from: {id} is {is}; continue it with `{with}`"
            )));
        }
        if state
            .sub_agents
            .children
            .iter()
            .any(|child| child.trace_id == *id && child.result.is_none())
        {
            let message = format!("sub-agent {id} is still running: wait for its result");
            return Err(ErrorInfo::new(ErrorCode::SessionActive, message));
        }
        let is_known = state.sub_agents.earlier.contains(id)
            || state
                .sub_agents
                .children
                .iter()
                .any(|child| child.trace_id == *id);
        if is_known {
            return Ok(());
        }
        let message = format!(
            "continue_from: {id} is not a sub-agent of this trace; use an id from the results of sub-agents"
        );
        Err(ErrorInfo::new(ErrorCode::TraceNotFound, message))
    }

    fn mark_goal_as_agent_call(&mut self, goal_id: &GoalId, mode: ChildMode) {
        let mode = match mode {
            ChildMode::Explore => AgentCallMode::Explore,
            ChildMode::Delegate => AgentCallMode::Delegate,
            ChildMode::Evaluate => AgentCallMode::Evaluate,
        };
        if self
            .state
            .goals
            .get(goal_id)
            .is_some_and(|goal| goal.agent_call_mode == Some(mode))
        {
            return;
        }
        let changes = GoalChanges {
            kind: Some(GoalKind::AgentCall),
            agent_call_mode: Some(mode),
            ..GoalChanges::default()
        };
        self.emit(GoalEvent::Updated {
            goal_id: goal_id.clone(),
            changes,
            affected_goals: Vec::new(),
        });
    }

    fn record_child(&mut self, run: &Run, order: &ChildRequest, call: Option<&str>) {
        let trace = || NewTrace {
            trace_id: run.trace_id.clone(),
            session_id: run.session_id.clone(),
            run_mode: run.mode,
            task: run.task.clone(),
            name: shorten(&on_one_line(&run.task), 60),
            agent_type: run.settings.agent_type.clone(),
            parent_trace_id: Some(self.state.spec.identity.trace_id.clone()),
            parent_goal_id: run.parent_goal_id.clone(),
            uid: run.uid.clone(),
            model: run.settings.model.clone(),
            created_at: run.created_at,
        };
        if order.spec.continue_from.is_none() {
            self.step
                .writes
                .push(Write::Trace(TraceWrite::Create(trace())));
        }
        self.step
            .writes
            .push(Write::Run(RunWrite::Create(Box::new(run.clone()))));
        self.emit(SubAgentEvent::Started {
            sub_trace_id: run.trace_id.clone(),
            run_id: run.run_id.clone(),
            mode: order.mode(),
            agent_type: run.settings.agent_type.clone(),
            task: run.task.clone(),
            parent_goal_id: run.parent_goal_id.clone(),
            tool_call_id: call.map(str::to_owned),
            deliver: order.spec.deliver,
        });
        let name = outcome::collaborator_name(&run.settings, &run.trace_id);
        let collaborator = outcome::started_collaborator(name, &run.trace_id, &run.task);
        self.emit(SubAgentEvent::CollaboratorUpdated { collaborator });
    }
}

/// Validates the messages that a conversation starts with.
pub(crate) fn check_initial_messages(messages: &[GivenMessage]) -> Result<(), ErrorInfo> {
    if messages
        .iter()
        .any(|message| message.role == Role::Tool || message.tool_call_id.is_some())
    {
        return Err(validation_error(
            "results of tool calls are accepted only without a message, and only for open calls",
        ));
    }
    if messages
        .iter()
        .any(|message| !matches!(message.role, Role::User | Role::Assistant))
    {
        return Err(validation_error(
            "`messages` must have the role user or assistant: put instructions into `context`",
        ));
    }
    if messages.iter().any(|message| message.content.is_blank()) {
        return Err(validation_error(
            "`messages` must not contain empty messages: omit messages without content",
        ));
    }
    match messages.first() {
        Some(first) if first.role != Role::User => Err(validation_error(
            "the first of `messages` must have the role user",
        )),
        _ => Ok(()),
    }
}

/// Rejects messages that are not results of the open tool calls at the end of the conversation
/// (RUN-3).
pub(crate) fn check_tool_results(
    messages: &[GivenMessage],
    head: &Message,
) -> Result<(), ErrorInfo> {
    let is_open = |id: &str| head.tool_calls.iter().any(|call| call.id == id);
    let mut seen = HashSet::new();
    for message in messages {
        let id = match (message.role, &message.tool_call_id) {
            (Role::Tool, Some(id)) => id,
            (Role::Tool, None) => {
                return Err(validation_error(
                    "a message with the role tool requires `tool_call_id`",
                ));
            }
            _ => {
                return Err(validation_error(
                    "`messages` precede a message: a message is required as well",
                ));
            }
        };
        if !is_open(id) {
            return Err(validation_error(format!(
                "there is no open tool call {id:?}: see the last message"
            )));
        }
        if !seen.insert(id) {
            return Err(validation_error(format!(
                "tool call {id:?} has two results"
            )));
        }
    }
    Ok(())
}
