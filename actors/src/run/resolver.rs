//! Resolves a run: which model, tools, limits and prompt it gets.
//!
//! The [`RunSpec`] follows from the run's row and the configuration alone, so it is the same on every start of the
//! run's actor.

use std::{
    collections::{BTreeMap, HashSet},
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use soong_protocol::{
    ChildMode, Config, ErrorCode, ErrorInfo, McpConfig, Preset, Provider, Run, RunMode, RunSettings, ToolSpec,
};

use crate::{
    hook::Hooks,
    mcp::Mcp,
    memory::Memories,
    model::{gateways::ModelGateways, tokens::Counter},
    project_text::{Notes, ProjectText, ProjectTexts},
    redaction::Redactor,
    run::machine::{
        inline::Limits,
        output_schema::AnswerSchema,
        spec::{Helper, ParentLink, RunSpec},
    },
    skill::{self, Skill, Skills},
    tool::ToolRegistry,
};

/// Resolves what a run gets of the configuration: tools, limits, prompt.
pub(crate) struct RunResolver {
    pub(crate) config: Arc<Config>,
    pub(crate) models: Arc<ModelGateways>,
    /// The built-in tools, and those of MCP servers.
    pub(crate) mcp: Arc<Mcp>,
    pub(crate) presets: Arc<BTreeMap<String, Preset>>,
    pub(crate) skills: Arc<Skills>,
    /// Experiences of earlier runs.
    pub(crate) memory: Arc<Memories>,
    /// Instructions and skills of each project.
    pub(crate) projects: Arc<ProjectTexts>,
    pub(crate) prompts: Prompts,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) redactor: Redactor,
}

/// The system prompts of runs: each once, however many runs have it.
#[derive(Default)]
pub(crate) struct Prompts(Mutex<HashSet<Arc<str>>>);

impl Prompts {
    /// Returns the one that is known already, where there is one.
    fn share(&self, prompt: String) -> Arc<str> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.get(prompt.as_str()) {
            return Arc::clone(same);
        }
        // Those that no run has any more.
        known.retain(|prompt| Arc::strong_count(prompt) > 1);
        let prompt: Arc<str> = prompt.into();
        known.insert(Arc::clone(&prompt));
        prompt
    }
}

impl RunResolver {
    /// Resolves what a run gets: tools, limits, prompt.
    ///
    /// # Errors
    /// `validation_error`, `tool_not_available`, `config_error` if the run names something that there is not.
    pub(crate) fn resolve(&self, run: &Run, project: &Path) -> Result<RunSpec, ErrorInfo> {
        self.resolve_with(run, project, &self.projects.known(project))
    }

    fn resolve_with(&self, run: &Run, project: &Path, text: &ProjectText) -> Result<RunSpec, ErrorInfo> {
        let (config, settings) = (&*self.config, &run.settings);
        let name = match run.mode {
            RunMode::Orchestrator if settings.agent_type == "default" => "orchestrator",
            _ => settings.agent_type.as_str(),
        };
        let preset = self.presets.get(name).cloned().ok_or_else(|| {
            let known: Vec<&str> = self.presets.keys().map(String::as_str).collect();
            let message = format!("there is no preset {name:?}; there is: {}", known.join(", "));
            ErrorInfo::new(ErrorCode::ValidationError, message)
        })?;
        // As it is now: what servers bring later is for later runs.
        let registry = self.mcp.registry();
        let ceiling = ceiling(&registry, config, settings.tools.as_deref())?;
        let may_spawn = run.depth < config.agents.max_depth && settings.budget.depth != Some(0);
        let offered = |spec: &&Arc<ToolSpec>| {
            ceiling.contains(&spec.name)
                && preset.allows(&spec.name)
                && (may_spawn || !matches!(spec.name.as_str(), "agent" | "evaluate"))
        };
        let tools: Arc<[Arc<ToolSpec>]> = registry.specs().filter(offered).cloned().collect();
        let wanted = preset.model.as_deref().unwrap_or(&settings.model);
        let (profile, model_name) = self.models.split_model(wanted);
        let model = self.models.model_name(profile, model_name);
        // A profile that only a program knows has the limits of [model].
        let own_limits = config.profile(profile).unwrap_or_else(|| config.model.clone());
        let mut limits = own_limits.clone();
        let prices = |model: &str| {
            // Rules cost nothing.
            let of_rules = || (model == "offline").then(soong_protocol::Prices::default);
            config.prices.get(model).map(soong_protocol::PriceConfig::prices).or_else(of_rules)
        };
        let helper = |profile: Option<&String>| {
            let name = profile.map_or(wanted, String::as_str);
            let (limits, model) = match profile.map(|name| self.models.split_model(name)) {
                Some((profile, other)) => (config.profile(profile), self.models.model_name(profile, other)),
                None => (None, model.clone()),
            };
            let limits = limits.unwrap_or_else(|| own_limits.clone());
            let budget = limits.context_window.saturating_sub(limits.max_output_tokens).max(1);
            let output_tokens = limits.max_output_tokens;
            (Helper { name: name.to_owned(), budget, output_tokens, prices: prices(&model) }, model)
        };
        let (summary, summary_model) = helper(config.context.compact_profile.as_ref());
        let (utility, utility_model) = helper(config.context.utility_profile.as_ref());
        let recalls = config.memory.enabled
            && settings.enable_memory != Some(false)
            && run.depth == 0
            && !settings.goes_on
            && !settings.driven
            // A budget of money is kept, or nothing is recalled.
            && (settings.budget.usd.is_none() || prices(&utility_model).is_some())
            && self.memory.of(&run.uid).may_hold_any();
        let unpriced = [&model, &summary_model].into_iter().find(|model| prices(model).is_none());
        if let Some(model) = unpriced.filter(|_| settings.budget.usd.is_some()) {
            let message = format!(
                "a budget in USD cannot be kept: the price of model {model:?} is not known; add [prices.{model:?}] to the \
                 configuration, or limit tokens instead"
            );
            return Err(ErrorInfo::new(ErrorCode::ConfigError, message));
        }
        let schema = match (&settings.expected_output_schema, run.trace_id.child_mode()) {
            _ if settings.reflects.is_some() => Some(AnswerSchema::reflection()),
            (Some(schema), _) => Some(AnswerSchema::new(schema)?),
            (None, Some(ChildMode::Evaluate)) => Some(AnswerSchema::judgement()),
            (None, _) => None,
        };
        let tool_tokens = tools.iter().map(|tool| registry.tokens(&tool.name)).sum();
        let mut context = config.context.clone();
        if model == "offline" {
            // It decides by the calls that it sees, and has no window: it is shown all of them.
            context.keep_recent_messages = usize::MAX;
            (limits.context_window, limits.max_output_tokens) = (u64::MAX, 0);
        }
        let preset_turns = preset.max_iterations.filter(|_| run.depth > 0 || name != "default");
        let skills = self.skills.with_project(&text.skills);
        let system_prompt = match &settings.system_prompt {
            // Whoever writes the prompt has the skills that they name beside it, and nothing else.
            Some(prompt) => {
                let named = skills.chosen(settings.skills.as_deref(), Some(&[]))?;
                format!("{prompt}{}", skill::render(&named))
            }
            None => {
                let chosen = skills.chosen(settings.skills.as_deref(), preset.skills.as_deref())?;
                self.system_prompt(&preset, &tools, project, text, (&skills, &chosen))
            }
        };
        let parent = run.parent_run_id.as_ref().and_then(|run_id| {
            // One that continues an explorer's trace does so alone: its call has one result, as a delegate's.
            let mode = match run.trace_id.child_mode()? {
                ChildMode::Explore if settings.continues => ChildMode::Delegate,
                mode => mode,
            };
            let (above, _) = run.trace_id.as_str().rsplit_once('@')?;
            Some(ParentLink { run_id: run_id.clone(), trace_id: soong_protocol::TraceId::new(above), mode })
        });
        Ok(RunSpec {
            run_id: run.run_id.clone(),
            trace_id: run.trace_id.clone(),
            session_id: run.session_id.clone(),
            uid: run.uid.as_str().into(),
            mode: run.mode,
            task: run.task.clone(),
            settings: settings.clone(),
            depth: run.depth,
            parent,
            tools,
            ceiling,
            max_turns: settings.max_iterations.or(preset_turns).unwrap_or(config.runtime.max_turns),
            max_depth: config.agents.max_depth,
            max_children: config.agents.max_children_per_run,
            child_timeout_ms: config.agents.child_timeout_ms,
            schema,
            inline: Limits {
                bytes: config.artifacts.max_inline_bytes,
                tokens: config.artifacts.max_inline_tokens,
                stored_bytes: config.artifacts.max_text_bytes,
            },
            model_timeout_ms: limits.timeout_ms,
            max_output_tokens: limits.max_output_tokens,
            context_window: limits.context_window,
            counter: Counter::of_model(&model),
            tool_tokens,
            context,
            summary,
            utility,
            recalls,
            sums_up_itself: config.context.compact_profile.is_none(),
            prices: prices(&model),
            provider: match own_limits.provider {
                _ if profile == "offline" => "offline",
                Provider::Offline => "offline",
                Provider::Openai => "openai",
            },
            model,
            system_prompt: self.prompts.share(system_prompt),
            absent_servers: if run.depth == 0 { self.mcp.absent() } else { Vec::new() },
            registry,
            presets: Arc::clone(&self.presets),
            skills,
            hooks: Arc::clone(&self.hooks),
            redactor: self.redactor.clone(),
            preset,
        })
    }

    /// Resolves a run that makes no further step, to end it or to read how it ended: what the configuration does not
    /// know any more is left out.
    pub(crate) fn resolve_ended(&self, run: &Run) -> RunSpec {
        let (project, nothing) = (Path::new("."), ProjectText::default());
        self.resolve_with(run, project, &nothing).unwrap_or_else(|_| {
            let mut plain = run.clone();
            // A preset of that name is always there; nothing is asked for that may not be.
            plain.settings = RunSettings {
                tools: Some(Vec::new()),
                system_prompt: Some(String::new()),
                driven: run.settings.driven,
                reflects: run.settings.reflects.clone(),
                auto_execute_tools: run.settings.auto_execute_tools,
                ..RunSettings::default()
            };
            self.resolve_with(&plain, project, &nothing)
                .unwrap_or_else(|error| unreachable!("built-in preset: {error}"))
        })
    }

    /// Writes the prompt of a run whose caller gave none: with the skills that are chosen of all that there are.
    fn system_prompt(
        &self,
        preset: &Preset,
        tools: &[Arc<ToolSpec>],
        project: &Path,
        text: &ProjectText,
        (all, chosen): (&Skills, &[&Skill]),
    ) -> String {
        let has = |tool: &str| tools.iter().any(|spec| spec.name == tool);
        let mut prompt = preset.instructions.clone();
        prompt.push_str(&skill::render(chosen));
        if has("skill") {
            prompt.push_str(&skill::render_others(all, chosen));
        }
        prompt.push_str(&format!("\n\nThe project is the folder {}; paths are relative to it.", project.display()));
        if has("agent") {
            prompt.push_str("\n\nAgent types for `agent`:");
            for preset in self.presets.values().filter(|preset| !preset.coordinates) {
                prompt.push_str(&format!("\n- {}: {}", preset.name, preset.description));
            }
        }
        // Last: nothing of ours follows what others wrote.
        prompt.push_str(&text.notes.as_ref().map(Notes::render).unwrap_or_default());
        prompt
    }
}

/// Returns the tools that a run and all below it may ever use; `None` = everything configured (SUB-6).
///
/// A tool of a configured server that is not there now is left out, and no error: servers come and go.
fn ceiling(registry: &ToolRegistry, config: &Config, wanted: Option<&[String]>) -> Result<Vec<String>, ErrorInfo> {
    let all: Vec<&Arc<ToolSpec>> =
        registry.entries().filter(|entry| entry.lacks().is_none()).map(|entry| &entry.spec).collect();
    let without_means = wanted.unwrap_or_default().iter().find_map(|name| Some((name, registry.get(name)?.lacks()?)));
    if let Some((name, what)) = without_means {
        let message = format!("tool {name:?} cannot be used: {what}");
        return Err(ErrorInfo::new(ErrorCode::ToolNotAvailable, message));
    }
    let is_of_server = |name: &str| McpConfig::server_of(name).is_some_and(|server| config.mcp.contains_key(server));
    let is_known = |name: &str| all.iter().any(|spec| spec.name == name) || is_of_server(name);
    if let Some(unknown) = wanted.unwrap_or_default().iter().find(|name| !is_known(name)) {
        let known: Vec<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
        let message = format!("there is no tool {unknown:?}; there is: {}", known.join(", "));
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    let allowed = |name: &str| {
        wanted.is_none_or(|wanted| wanted.iter().any(|other| other == name))
            && !config.tools.disabled.iter().any(|other| other == name)
    };
    Ok(all.iter().filter(|spec| allowed(&spec.name)).map(|spec| spec.name.clone()).collect())
}
