//! The run of a child, with the settings, tools and budget that its parent passes on (SUB-6).
//!
//! Pure; part of the run state machine.

use serde_json::Map;
use soong_protocol::{
    Budget, ChildMode, GoalId, MessageContent, PermissionMode, Run, RunMode, RunOptions,
    RunSettings, RunStatus, Stats, Usd,
};

use crate::run::machine::{Transition, input::ChildRequest, spec::RunSpec, state::phase::Phase};

/// Maximum length of the name of a sub-agent without its number, in characters.
const MAX_NAME_CHARS: usize = 32;

/// Offset of the numbers that a queued run gives to its sub-traces.
const QUEUED_NUMBERS: u64 = 1_000;

impl Transition<'_, '_> {
    /// Creates the run of a child.
    pub(super) fn child_run(
        &mut self,
        order: &ChildRequest,
        goal_id: Option<GoalId>,
        by_model: bool,
    ) -> Run {
        let name = self.collaborator_name(order);
        let spec = &self.state.spec;
        let mut number =
            (self.state.sub_agents.earlier.len() + self.state.sub_agents.children.len()) as u64 + 1;
        if self.state.phase == Phase::New {
            // The active run numbers its sub-traces without counting those of this run. The offset
            // keeps the ids different.
            number += QUEUED_NUMBERS;
        }
        let request = &order.spec;
        let mut run = Run {
            run_id: (self.context.new_run_id)(),
            trace_id: match &request.continue_from {
                Some(id) => id.clone(),
                None => spec.identity.trace_id.child(
                    request.mode,
                    order.index,
                    self.context.now,
                    number,
                ),
            },
            session_id: spec.identity.session_id.clone(),
            session_incarnation: spec.identity.session_incarnation,
            parent_run_id: Some(spec.identity.run_id.clone()),
            parent_goal_id: goal_id,
            depth: spec.identity.depth + 1,
            mode: RunMode::Normal,
            task: request.task.clone(),
            settings: RunSettings {
                collaborator: Some(name),
                ..child_settings(spec, order, by_model)
            },
            uid: spec.identity.uid.to_string(),
            status: RunStatus::Queued,
            cancel_requested: false,
            end_reason: None,
            turn: 0,
            usage: Stats::zero(),
            cost: Some(Usd::default()),
            error: None,
            created_at: self.context.now,
            started_at: None,
            completed_at: None,
            model_name: None,
        };
        let mode = self.state.waiting.permission_mode;
        run.settings.permissions.mode = (mode != PermissionMode::default()).then_some(mode);
        spec.redactor.redact_run(&mut run);
        run
    }
}

impl Transition<'_, '_> {
    /// Returns the name of a child among the collaborators: that of the sub-trace that it
    /// continues, or a new one from its task.
    fn collaborator_name(&mut self, order: &ChildRequest) -> String {
        let sub_agents = &mut self.state.sub_agents;
        let known = order
            .spec
            .continue_from
            .as_ref()
            .and_then(|trace| sub_agents.names.get(trace));
        let earlier = || order.previous_settings.as_ref()?.collaborator.clone();
        if let Some(name) = known.cloned().or_else(earlier) {
            return name;
        }
        // The redactor does not find a secret whose letters are changed.
        let base = name_of_task(&self.state.spec.redactor.text(&order.spec.task));
        let count = sub_agents.name_counts.entry(base.clone()).or_default();
        loop {
            *count += 1;
            let name = if *count == 1 {
                base.clone()
            } else {
                format!("{base}-{count}")
            };
            if !sub_agents.collaborator_index.contains_key(&name) {
                return name;
            }
        }
    }
}

/// Returns the first words of a task as a name, such as `read-the-changelog`.
fn name_of_task(task: &str) -> String {
    let words = task
        .split(|c: char| !c.is_alphanumeric())
        .filter(|word| !word.is_empty());
    let mut name = String::new();
    for word in words {
        let is_full =
            !name.is_empty() && name.chars().count() + word.chars().count() >= MAX_NAME_CHARS;
        if is_full {
            break;
        }
        if !name.is_empty() {
            name.push('-');
        }
        name.extend(
            word.chars()
                .flat_map(char::to_lowercase)
                .take(MAX_NAME_CHARS),
        );
    }
    if name.is_empty() {
        "sub-agent".to_owned()
    } else {
        name
    }
}

/// Returns the settings of a child. Fields that children inherit come from `spec.settings`, other
/// fields from the request or a default. A run that continues a sub-trace keeps the settings of the
/// last run there. A model cannot widen its tools; a program can.
fn child_settings(spec: &RunSpec, order: &ChildRequest, by_model: bool) -> RunSettings {
    let mut previous_settings = order.previous_settings.as_deref().cloned();
    if let Some(before) = previous_settings
        .as_mut()
        .filter(|_| order.spec.preset.is_some() && !by_model)
    {
        before.options.tools = None;
        before.model = spec.settings.model.clone();
    }
    let request = &order.spec;
    let options = &order.spec.options;
    let previous_tools = previous_settings
        .as_ref()
        .and_then(|before| before.options.tools.as_ref());
    let tools = child_tools(spec, options.tools.as_ref().or(previous_tools));
    let default_type = match request.mode {
        ChildMode::Explore => "explore",
        ChildMode::Delegate => "default",
        ChildMode::Evaluate => "evaluator",
    };
    let before = previous_settings.unwrap_or_else(|| RunSettings {
        agent_type: default_type.to_owned(),
        model: spec.settings.model.clone(),
        ..RunSettings::default()
    });
    RunSettings {
        agent_type: request.preset.clone().unwrap_or(before.agent_type),
        model: request.model.clone().unwrap_or(before.model),
        options: RunOptions {
            max_turns: options.max_turns.or(before.options.max_turns),
            tools: Some(tools),
            messages: options.messages.clone(),
            skills: options.skills.clone().or(before.options.skills),
            expected_output_schema: options.expected_output_schema.clone(),
            budget: child_budget(
                options.budget.or(before.options.budget),
                &spec.settings.options.budget,
            ),
            timeout_ms: Some(
                options
                    .timeout_ms
                    .unwrap_or(u64::MAX)
                    .min(spec.limits.child_timeout_ms),
            ),
        },
        context: request.context.clone(),
        continues: request.continue_from.is_some(),
        permissions: spec.settings.permissions.clone(),
        // Its preset decides about these.
        system_prompt: None,
        temperature: None,
        llm_params: Map::new(),
        // They belong to a run that a user or a program starts.
        auto_execute_tools: None,
        task_content: MessageContent::default(),
        given_budget: None,
        driven: false,
        after_sequence: None,
        resumes: false,
        compacts: false,
        reflects: None,
        enable_memory: None,
        provisional_name: None,
        // It is set when the child is named.
        collaborator: None,
    }
}

/// Returns the tools of a child: the wanted ones (default: all) among the tools that its parent
/// passes on.
fn child_tools(spec: &RunSpec, wanted: Option<&Vec<String>>) -> Vec<String> {
    // SUB-6: a coordinator passes on all tools that it may ever use; other runs pass on at most
    // their own tools.
    let mut tools: Vec<String> = if spec.preset.coordinates || spec.settings.driven {
        spec.tools.ceiling.clone()
    } else {
        spec.tools
            .specs
            .iter()
            .map(|tool| tool.name.clone())
            .collect()
    };
    if let Some(wanted) = wanted {
        tools.retain(|name| wanted.contains(name));
    }
    tools
}

/// Returns the budget of a child: the requested one, limited to one level less than the parent's
/// depth. A limit in USD is passed on to all descendants, because they need model prices then.
fn child_budget(child: Budget, parent: &Budget) -> Budget {
    let child_depth = parent.depth.map(|depth| depth.saturating_sub(1));
    Budget {
        depth: child.depth.into_iter().chain(child_depth).min(),
        usd: child.usd.into_iter().chain(parent.usd).min(),
        ..child
    }
}
