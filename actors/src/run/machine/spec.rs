//! The fixed settings of a run: resolved from its row and the configuration, and the same on every
//! start of its actor.
//!
//! Elsewhere: how they are resolved (`resolver.rs`).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Map, Value};
use soong_model::{catalog::CacheRule, tokens::TokenCounter};
use soong_protocol::{
    ChildMode, ContextConfig, Effort, ErrorInfo, FallbackReason, Preset, Prices, QuestionId, Run,
    RunId, RunMode, RunSettings, SessionId, ToolSpec, TraceId, Usage, Usd,
};
use soong_text::Redactor;
use soong_tool::ToolRegistry;

use crate::{
    callback::{CallbackFunctions, Callbacks},
    hook::Hooks,
    message_files::InputLimits,
    run::machine::{
        inline::InlineLimits, output_schema::OutputSchema, system_prompt::SystemPrompt,
        tools::is_spawning_tool,
    },
    skill::Skills,
};

/// The fixed settings of a run, resolved from its row and the configuration.
pub(crate) struct RunSpec {
    pub(crate) identity: RunIdentity,
    pub(crate) task: String,
    pub(crate) settings: RunSettings,
    pub(crate) preset: Preset,
    pub(crate) tools: OfferedTools,
    pub(crate) catalog: Catalog,
    pub(crate) limits: RunLimits,
    pub(crate) model: ModelSpec,
    pub(crate) fallbacks: Arc<Fallbacks>,
    pub(crate) auxiliary_models: AuxiliaryModels,
    pub(crate) context: ContextConfig,
    /// Schema of the answer.
    pub(crate) output_schema: Option<OutputSchema>,
    pub(crate) system_prompt: SystemPrompt,
    /// Hooks that are notified of tool calls and may refuse them.
    pub(crate) hooks: Arc<Hooks>,
    /// Removes secrets from what the model reads and from what is recorded.
    pub(crate) redactor: Redactor,
}

/// Ids of a run, and its place in the tree of runs.
#[derive(Debug, Clone)]
pub(crate) struct RunIdentity {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    pub(crate) session_id: SessionId,
    /// How often the id of the session has been used.
    pub(crate) session_incarnation: u64,
    /// User that owns the run.
    pub(crate) uid: Arc<str>,
    pub(crate) mode: RunMode,
    /// Number of its ancestors; 0: a user run.
    pub(crate) depth: u32,
    pub(crate) parent: Option<ParentLink>,
    /// Whether a program drives the run instead of a model.
    pub(crate) driven: bool,
}

impl RunIdentity {
    pub(crate) fn of(run: &Run) -> Self {
        Self {
            run_id: run.run_id.clone(),
            trace_id: run.trace_id.clone(),
            session_id: run.session_id.clone(),
            session_incarnation: run.session_incarnation,
            uid: run.uid.as_str().into(),
            mode: run.mode,
            depth: run.depth,
            parent: ParentLink::of(run),
            driven: run.settings.driven,
        }
    }

    /// Returns the id of the first question of a tool call: the one at this index of the message.
    pub(in crate::run) fn question_id(
        &self,
        message_sequence: Option<u64>,
        call_index: usize,
    ) -> QuestionId {
        QuestionId::for_call(
            &self.trace_id,
            self.session_incarnation,
            message_sequence.unwrap_or_default(),
            call_index,
        )
    }

    /// Returns the id of the run's parent.
    pub(crate) fn parent_id(&self) -> Option<&RunId> {
        self.parent.as_ref().map(|parent| &parent.run_id)
    }
}

/// The parent of a child run.
#[derive(Debug, Clone)]
pub(crate) struct ParentLink {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    /// Mode of the call that started the child.
    pub(crate) mode: ChildMode,
}

impl ParentLink {
    fn of(run: &Run) -> Option<Self> {
        let run_id = run.parent_run_id.clone()?;
        // An explore call can start several children, but a run that continues one of their traces
        // is the only child of its call. So the call has one result, like a delegate call.
        let mode = match run.trace_id.child_mode()? {
            ChildMode::Explore if run.settings.continues => ChildMode::Delegate,
            mode => mode,
        };
        Some(Self {
            run_id,
            trace_id: run.trace_id.parent()?,
            mode,
        })
    }
}

/// The tools of a run.
pub(crate) struct OfferedTools {
    /// Tools that the model is offered.
    pub(crate) specs: Arc<[Arc<ToolSpec>]>,
    /// Names of all tools that the run and its descendants may use (SUB-6).
    pub(crate) ceiling: Vec<String>,
    /// Size of the offered tools in each prompt, in tokens.
    pub(crate) tokens: u64,
}

impl OfferedTools {
    /// Returns a tool that the model is offered.
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.specs.iter().find(|spec| spec.name == name)
    }

    /// Returns whether the model is offered this tool.
    pub(crate) fn offers(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

/// Tools, presets, skills and callbacks that exist when the run starts.
pub(crate) struct Catalog {
    pub(crate) registry: Arc<ToolRegistry>,
    /// Configured MCP servers that are not connected, with the reason. Empty for child runs.
    pub(crate) absent_servers: Vec<(String, ErrorInfo)>,
    pub(crate) presets: Arc<BTreeMap<String, Preset>>,
    pub(crate) skills: Arc<Skills>,
    pub(crate) callbacks: Callbacks,
}

/// Limits of a run.
pub(crate) struct RunLimits {
    pub(crate) max_turns: u32,
    /// Numbers of repeated calls after which the model gets a note, and after which the run fails;
    /// 0: never.
    pub(crate) repeated_calls_note: u32,
    pub(crate) repeated_calls: u32,
    pub(crate) max_depth: u32,
    pub(crate) max_children: usize,
    pub(crate) child_timeout_ms: u64,
    /// How much of a child's answer, and of the results of a call's children, is passed on in full.
    pub(crate) inline: InlineLimits,
}

/// The model of a run.
pub(crate) struct ModelSpec {
    /// Kind of the provider, as OpenTelemetry names it.
    pub(crate) provider: &'static str,
    /// Name of the model in events and prices.
    pub(crate) name: String,
    /// Maximum time without output of the model, in milliseconds.
    pub(crate) max_silence_ms: u64,
    /// Answer tokens that a budget reserves per call, and that a lost call is charged.
    pub(crate) reserved_output_tokens: u64,
    /// Part of the context window that is kept free for the answer, in tokens.
    pub(crate) answer_room: u64,
    /// Sampling parameters of the caller.
    pub(crate) params: Map<String, Value>,
    /// How much the model reasons. `None`: as its service decides.
    pub(crate) effort: Option<Effort>,
    /// The level that is configured, which the model may lack.
    pub(crate) wanted_effort: Option<Effort>,
    /// Maximum number of tokens of the reasoning. `None`: as its service decides.
    pub(crate) reasoning_budget_tokens: Option<u64>,
    /// Maximum size of prompt and answer together, in tokens.
    pub(crate) context_window: u64,
    /// Whether each request limits the answer, because the server does not.
    pub(crate) bounds_output: bool,
    pub(crate) counter: TokenCounter,
    /// `None`: the prices are unknown.
    pub(crate) prices: Option<Prices>,
    /// How its service caches prompts. `None`: unknown, or not at all.
    pub(crate) cache: Option<CacheRule>,
    /// Whether the prompts of the run are written to the cache for longer.
    pub(crate) is_long_cached: bool,
    /// Kinds and sizes of the images and files that it takes.
    pub(crate) input: InputLimits,
}

/// Maximum limit of an answer that the server does not limit itself, in tokens.
const MAX_OUTPUT_BOUND: u64 = 16_384;

impl ModelSpec {
    /// Returns the limit of an answer that the server does not limit itself: half of what the
    /// prompt leaves of the window.
    pub(crate) fn output_bound(&self, prompt_tokens: u64) -> Option<u64> {
        let room = self.context_window.saturating_sub(prompt_tokens) / 2;
        self.bounds_output.then(|| room.clamp(1, MAX_OUTPUT_BOUND))
    }

    /// Returns whether a prompt of this size fits into the context window, with room for the
    /// answer.
    pub(crate) fn takes_prompt(&self, tokens: u64) -> bool {
        tokens <= self.context_window.saturating_sub(self.answer_room)
    }
}

/// Models that answer when the model of a run cannot.
pub(crate) struct Fallbacks {
    /// In the order in which they are tried.
    pub(crate) entries: Vec<Fallback>,
    /// Maximum time that a call waits for a model before the next one is tried.
    pub(crate) after: Duration,
    /// Time for which no call is made with a model that has failed.
    pub(crate) cooldown: Duration,
}

/// A model that answers when the model of a run cannot.
pub(crate) struct Fallback {
    /// A profile or model name, as it is configured.
    pub(crate) name: String,
    /// Why it is used.
    pub(crate) reasons: Vec<FallbackReason>,
    pub(crate) model: ModelSpec,
}

/// Models for work besides the turns of a run.
pub(crate) struct AuxiliaryModels {
    /// Writes summaries of the conversation.
    pub(crate) summary: AuxiliaryModel,
    /// Whether `summary` is the model of the run.
    pub(crate) summary_is_own_model: bool,
    /// Answers small questions.
    pub(crate) utility: AuxiliaryModel,
    /// Whether `utility` searches the experiences of earlier runs before a new conversation.
    pub(crate) recall_enabled: bool,
    /// Whether `summary` reflects on older messages before it summarizes them.
    pub(crate) reflects_before_summary: bool,
}

/// A model for work besides the turns of a run.
pub(crate) struct AuxiliaryModel {
    /// A profile, or a model name of the default profile.
    pub(crate) name: String,
    /// Maximum size of a request, in tokens.
    pub(crate) max_prompt_tokens: u64,
    pub(crate) reserved_output_tokens: u64,
    pub(crate) prices: Option<Prices>,
    /// Models that answer when it cannot: those of its profile.
    pub(crate) fallbacks: Arc<Fallbacks>,
}

impl AuxiliaryModel {
    /// Returns usage of the model with its cost, if its prices are known.
    pub(crate) fn priced(&self, usage: Usage) -> (Usage, Option<Usd>) {
        (usage, self.prices.map(|prices| prices.cost(&usage)))
    }
}

impl RunSpec {
    /// Returns the model of the run, or the fallback of this index.
    pub(crate) fn model_or_fallback(&self, fallback: Option<usize>) -> &ModelSpec {
        let fallback = fallback.and_then(|index| self.fallbacks.entries.get(index));
        fallback.map_or(&self.model, |fallback| &fallback.model)
    }

    /// Returns the profile or model name of the run's model, or of a fallback, as it is configured.
    pub(crate) fn configured_name(&self, fallback: Option<usize>) -> &str {
        match fallback.and_then(|index| self.fallbacks.entries.get(index)) {
            Some(fallback) => &fallback.name,
            None => self.preset.model.as_deref().unwrap_or(&self.settings.model),
        }
    }

    /// Returns whether a callback has the function that `select` returns.
    pub(crate) fn has_callback<F>(
        &self,
        select: impl Fn(&CallbackFunctions) -> Option<&F>,
    ) -> bool {
        self.catalog
            .callbacks
            .has(self.identity.parent.is_some(), select)
    }

    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.tools.get(name)
    }

    /// Returns whether calls of the tool run alone (TOOL-3).
    pub(crate) fn is_barrier(&self, name: &str) -> bool {
        !is_spawning_tool(name)
            && self
                .tool(name)
                .is_some_and(|spec| spec.effect.is_mutating())
    }
}
