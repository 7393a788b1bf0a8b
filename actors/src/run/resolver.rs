//! Resolves a run: determines its models, tools, limits and system prompt.
//!
//! The [`RunSpec`] is computed from the run's database row, the configuration, the connected MCP
//! servers, and the files of the project and the memory.

mod models;

use std::{
    collections::{BTreeMap, HashSet},
    ops::Range,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use soong_protocol::{
    ChildMode, Config, ErrorCode, ErrorInfo, McpConfig, Preset, Run, RunMode, RunOptions,
    RunSettings, SMALL_PRESET, ToolSpec,
};
use soong_text::{PLATFORM, Redactor};
use soong_tool::ToolRegistry;

use crate::{
    HomeFileError,
    callback::Callbacks,
    gateways::ModelGateways,
    hook::Hooks,
    mcp::McpServers,
    memory::MemoryFiles,
    preset::is_built_in,
    project_instructions::{ProjectInstructions, ProjectInstructionsCache},
    run::machine::{
        inline::InlineLimits,
        output_schema::OutputSchema,
        spec::{AuxiliaryModel, Catalog, OfferedTools, RunIdentity, RunLimits, RunSpec},
        system_prompt::{Shell, SystemPrompt, WorkEnvironment},
    },
    skill::{self, Skills},
};

/// Tools that read or change files of a project.
const PROJECT_TOOLS: [&str; 6] = ["read", "list_files", "glob", "grep", "write", "edit"];

/// Computes the [`RunSpec`] of runs.
pub(crate) struct RunResolver {
    pub(crate) config: Arc<Config>,
    pub(crate) models: Arc<ModelGateways>,
    /// Registry of all tools: the built-in ones and those of MCP servers.
    pub(crate) mcp: Arc<McpServers>,
    pub(crate) presets: Arc<BTreeMap<String, Preset>>,
    /// Whether the program has tools of its own. Then the preset `default` stays, whatever the
    /// context window.
    pub(crate) has_own_tools: bool,
    /// Presets whose files cannot be used.
    pub(crate) unusable_presets: Arc<BTreeMap<String, HomeFileError>>,
    pub(crate) skills: Arc<Skills>,
    /// Memory files, which store the experiences of earlier runs.
    pub(crate) memory: Arc<MemoryFiles>,
    /// Instructions and skills of each project.
    pub(crate) projects: Arc<ProjectInstructionsCache>,
    pub(crate) prompts: PromptCache,
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) callbacks: Callbacks,
    pub(crate) redactor: Redactor,
    /// Name of the shell that runs commands.
    pub(crate) shell: String,
}

/// Cache of system prompts, so that runs with equal prompts share one copy.
#[derive(Default)]
pub(crate) struct PromptCache(Mutex<HashSet<Arc<str>>>);

impl PromptCache {
    /// Returns the cached copy of a prompt. A new prompt is added to the cache.
    fn share(&self, prompt: String) -> Arc<str> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(same) = known.get(prompt.as_str()) {
            return Arc::clone(same);
        }
        // Remove the prompts that no run uses any more.
        known.retain(|prompt| Arc::strong_count(prompt) > 1);
        let prompt: Arc<str> = prompt.into();
        known.insert(Arc::clone(&prompt));
        prompt
    }
}

impl RunResolver {
    /// Returns the specification of a run in the folder `project`.
    ///
    /// # Errors
    /// `validation_error`, `tool_not_available` or `config_error` if a setting of the run is
    /// invalid, or names something that does not exist or cannot be used.
    pub(crate) fn resolve(&self, run: &Run, project: &Path) -> Result<RunSpec, ErrorInfo> {
        self.resolve_with(run, project, &self.projects.get(project))
    }

    fn resolve_with(
        &self,
        run: &Run,
        project: &Path,
        text: &ProjectInstructions,
    ) -> Result<RunSpec, ErrorInfo> {
        let config = &*self.config;
        let settings = &run.settings;
        let preset = self.preset(run)?;
        let (tools, registry) = self.offered_tools(run, &preset)?;
        let models = self.models_of(run, &preset)?;
        let schema = answer_schema(run)?;
        let skills = self.skills.with_project(&text.skills);
        // Only an agent that executes its calls can load a skill.
        let can_load = tools.offers("skill") && !settings.returns_tool_calls();
        let (system_prompt, branch) = match &settings.system_prompt {
            // If the caller supplies the prompt, only the skills that it names are added, not those
            // of the preset.
            Some(prompt) => {
                let named = skills.select(settings.options.skills.as_deref(), None)?;
                (
                    format!("{prompt}{}", skill::render(&named, &[], can_load)),
                    None,
                )
            }
            None => {
                let chosen =
                    skills.select(settings.options.skills.as_deref(), preset.skills.as_deref())?;
                let skills = skill::render(&chosen, &skills.others(&chosen), can_load);
                self.system_prompt(&preset, &tools, project, text, &skills)
            }
        };
        let mut context = config.context.clone();
        if models.model.is_offline() {
            // The offline model has no context window, and its rules read all tool calls of the
            // conversation, so no message may be omitted.
            context.keep_recent_messages = usize::MAX;
        }
        Ok(RunSpec {
            identity: RunIdentity::of(run),
            task: run.task.clone(),
            settings: settings.clone(),
            limits: run_limits(config, run, &preset),
            preset,
            tools,
            catalog: Catalog {
                registry,
                absent_servers: if run.depth == 0 {
                    self.mcp.unavailable_servers()
                } else {
                    Vec::new()
                },
                presets: Arc::clone(&self.presets),
                skills,
                callbacks: self.callbacks.clone(),
            },
            model: models.model,
            fallbacks: models.fallbacks,
            auxiliary_models: models.auxiliary,
            context,
            output_schema: schema,
            system_prompt: SystemPrompt {
                text: self.prompts.share(system_prompt),
                branch,
            },
            hooks: Arc::clone(&self.hooks),
            redactor: self.redactor.clone(),
        })
    }

    fn preset(&self, run: &Run) -> Result<Preset, ErrorInfo> {
        let name = preset_name(run);
        self.presets.get(name).cloned().ok_or_else(|| {
            if let Some(fault) = self.unusable_presets.get(name) {
                return ErrorInfo::from(fault);
            }
            let known: Vec<&str> = self.presets.keys().map(String::as_str).collect();
            let message = format!(
                "there is no preset {name:?}; available: {}",
                known.join(", ")
            );
            ErrorInfo::new(ErrorCode::ValidationError, message)
        })
    }

    /// Returns the tools of a run, and the registry that contains them. The registry is a snapshot:
    /// tools that an MCP server adds later are available only to runs that are resolved later.
    fn offered_tools(
        &self,
        run: &Run,
        preset: &Preset,
    ) -> Result<(OfferedTools, Arc<ToolRegistry>), ErrorInfo> {
        let config = &*self.config;
        let settings = &run.settings;
        let registry = self.mcp.registry();
        let max_tools = allowed_tools(&registry, config, settings.options.tools.as_deref())?;
        let may_spawn =
            run.depth < config.agents.max_depth && settings.options.budget.depth != Some(0);
        // A run gets the small preset without naming it, and its user has configured the servers
        // for all runs.
        let takes_servers = preset.name == SMALL_PRESET && is_built_in(preset);
        let is_allowed = |name: &str| {
            preset.allows(name) || (takes_servers && McpConfig::server_of(name).is_some())
        };
        let is_offered = |spec: &&Arc<ToolSpec>| {
            max_tools.contains(&spec.name)
                && is_allowed(&spec.name)
                && (may_spawn || !matches!(spec.name.as_str(), "agent" | "evaluate"))
        };
        let specs: Arc<[Arc<ToolSpec>]> = registry.specs().filter(is_offered).cloned().collect();
        let tokens = specs.iter().map(|tool| registry.tokens(&tool.name)).sum();
        Ok((
            OfferedTools {
                specs,
                ceiling: max_tools,
                tokens,
            },
            registry,
        ))
    }

    /// Returns whether a run may search the experiences of earlier runs. Only root runs do that,
    /// unless they resume a trace without a new message or a program drives them.
    fn recalls(&self, run: &Run, utility: &AuxiliaryModel) -> bool {
        !run.settings.resumes
            && self.uses_memory(run, utility)
            && self.memory.of(&run.uid).is_not_empty()
    }

    /// Returns whether a run uses and records experiences with the help of this model.
    fn uses_memory(&self, run: &Run, model: &AuxiliaryModel) -> bool {
        let settings = &run.settings;
        self.config.memory.enabled
            && settings.enable_memory != Some(false)
            && run.depth == 0
            && !settings.driven
            // A budget in USD cannot include a model whose price is unknown.
            && (settings.options.budget.usd.is_none() || model.prices.is_some())
    }

    /// Resolves a run that does not continue: its outcome is read, or it is only ended. If its
    /// settings are no longer valid, default settings replace most of them.
    pub(crate) fn resolve_ended(&self, run: &Run) -> RunSpec {
        let project = Path::new(".");
        let no_project = ProjectInstructions::default();
        self.resolve_with(run, project, &no_project)
            .unwrap_or_else(|_| {
                let mut fallback = run.clone();
                // These settings cannot fail: the default preset always exists, and no tool is
                // requested.
                fallback.settings = RunSettings {
                    options: RunOptions {
                        tools: Some(Vec::new()),
                        ..RunOptions::default()
                    },
                    system_prompt: Some(String::new()),
                    driven: run.settings.driven,
                    reflects: run.settings.reflects.clone(),
                    auto_execute_tools: run.settings.auto_execute_tools,
                    ..RunSettings::default()
                };
                self.resolve_with(&fallback, project, &no_project)
                    .unwrap_or_else(|error| unreachable!("built-in preset: {error}"))
            })
    }

    /// Builds the system prompt of a run whose caller supplied none: preset instructions, skills,
    /// agent types, environment, and project notes. It contains nothing about tools that the run
    /// does not have. Also returns where it names the Git branch.
    fn system_prompt(
        &self,
        preset: &Preset,
        tools: &OfferedTools,
        project: &Path,
        text: &ProjectInstructions,
        skills: &str,
    ) -> (String, Option<Range<usize>>) {
        let mut prompt = preset.instructions.clone();
        prompt.push_str(skills);
        if tools.offers("agent") {
            prompt.push_str("\n\nAgent types for `agent`:");
            // A run that can start sub-agents has a large window.
            let is_small = |preset: &Preset| preset.name == SMALL_PRESET && is_built_in(preset);
            let is_listed = |preset: &&Preset| !preset.coordinates && !is_small(preset);
            for preset in self.presets.values().filter(is_listed) {
                prompt.push_str(&format!("\n- {}: {}", preset.name, preset.description));
            }
        }
        let branch = self
            .environment(tools, project, text)
            .map(|environment| environment.append_to(&mut prompt));
        // The project notes are not trusted. They are placed last, so that no built-in instruction
        // follows them.
        prompt.push_str(&text.render_notes());
        (prompt, branch)
    }

    /// Returns where the tools work; `None` if the run has no tool for files or commands.
    fn environment<'a>(
        &'a self,
        tools: &OfferedTools,
        project: &'a Path,
        text: &'a ProjectInstructions,
    ) -> Option<WorkEnvironment<'a>> {
        let runs_commands = tools.offers("bash");
        if !runs_commands && !PROJECT_TOOLS.iter().any(|tool| tools.offers(tool)) {
            return None;
        }
        let shell = || Shell {
            name: &self.shell,
            is_confined: soong_sandbox::can_confine(),
        };
        Some(WorkEnvironment {
            project,
            platform: PLATFORM,
            branch: text.branch.as_deref(),
            shell: runs_commands.then(shell),
        })
    }
}

/// Returns the name of the preset of a run. In orchestrator mode, `orchestrator` replaces the
/// preset `default`.
fn preset_name(run: &Run) -> &str {
    match run.mode {
        RunMode::Orchestrator if run.settings.agent_type == "default" => "orchestrator",
        _ => run.settings.agent_type.as_str(),
    }
}

fn run_limits(config: &Config, run: &Run, preset: &Preset) -> RunLimits {
    // A root run with the preset `default` uses the configured number of turns instead of the
    // preset's.
    let preset_turns = preset
        .max_turns
        .filter(|_| run.depth > 0 || preset_name(run) != "default");
    RunLimits {
        max_turns: run
            .settings
            .options
            .max_turns
            .or(preset_turns)
            .unwrap_or(config.runtime.max_turns),
        repeated_calls_note: config.runtime.repeated_calls_note,
        repeated_calls: config.runtime.repeated_calls_limit,
        max_depth: config.agents.max_depth,
        max_children: config.agents.max_children_per_run,
        child_timeout_ms: config.agents.child_timeout_ms,
        inline: InlineLimits {
            bytes: config.artifacts.max_inline_bytes,
            tokens: config.artifacts.max_inline_tokens,
            stored_bytes: config.artifacts.max_text_bytes,
        },
    }
}

fn answer_schema(run: &Run) -> Result<Option<OutputSchema>, ErrorInfo> {
    Ok(
        match (
            &run.settings.options.expected_output_schema,
            run.trace_id.child_mode(),
        ) {
            _ if run.settings.reflects.is_some() => Some(OutputSchema::reflection()),
            (Some(schema), _) => Some(OutputSchema::new(schema)?),
            (None, Some(ChildMode::Evaluate)) => Some(OutputSchema::evaluation()),
            (None, _) => None,
        },
    )
}

/// Returns the names of the tools that a run and its descendants may use (SUB-6). If `wanted` is
/// `None`, all usable tools are allowed. Tools that the configuration disables are always excluded.
///
/// If a wanted tool belongs to a configured MCP server that is not connected, it is omitted without
/// an error.
fn allowed_tools(
    registry: &ToolRegistry,
    config: &Config,
    wanted: Option<&[String]>,
) -> Result<Vec<String>, ErrorInfo> {
    let all: Vec<&Arc<ToolSpec>> = registry
        .entries()
        .filter(|entry| entry.missing_requirement().is_none())
        .map(|entry| &entry.spec)
        .collect();
    let unavailable = wanted
        .unwrap_or_default()
        .iter()
        .find_map(|name| Some((name, registry.get(name)?.missing_requirement()?)));
    if let Some((name, what)) = unavailable {
        let message = format!("tool {name:?} cannot be used: {what}");
        return Err(ErrorInfo::new(ErrorCode::ToolNotAvailable, message));
    }
    let is_of_server = |name: &str| {
        McpConfig::server_of(name).is_some_and(|server| config.mcp.contains_key(server))
    };
    let is_known = |name: &str| all.iter().any(|spec| spec.name == name) || is_of_server(name);
    if let Some(unknown) = wanted
        .unwrap_or_default()
        .iter()
        .find(|name| !is_known(name))
    {
        let known: Vec<&str> = all.iter().map(|spec| spec.name.as_str()).collect();
        let message = format!(
            "there is no tool {unknown:?}; available: {}",
            known.join(", ")
        );
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    let allowed = |name: &str| {
        wanted.is_none_or(|model| model.iter().any(|other| other == name))
            && !config.tools.disabled.iter().any(|other| other == name)
    };
    Ok(all
        .iter()
        .filter(|spec| allowed(&spec.name))
        .map(|spec| spec.name.clone())
        .collect())
}
