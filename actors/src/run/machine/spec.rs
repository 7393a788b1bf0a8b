//! What is fixed for a run: resolved from its row and the configuration, the same on every start of its actor.
//!
//! Not here: how it is resolved (`resolver.rs`).

use std::{collections::BTreeMap, sync::Arc};

use soong_protocol::{
    ChildMode, ContextConfig, ErrorInfo, Preset, Prices, RunId, RunMode, RunSettings, SessionId, ToolSpec, TraceId,
};

use crate::{
    hook::Hooks,
    model::tokens::Counter,
    redaction::Redactor,
    run::machine::{inline::Limits, output_schema::AnswerSchema, tools::is_spawning},
    skill::Skills,
    tool::ToolRegistry,
};

/// What is fixed for a run; resolved from its row and the configuration.
pub(crate) struct RunSpec {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    pub(crate) session_id: SessionId,
    pub(crate) uid: Arc<str>,
    pub(crate) mode: RunMode,
    pub(crate) task: String,
    pub(crate) settings: RunSettings,
    pub(crate) depth: u32,
    /// Whose child it is.
    pub(crate) parent: Option<ParentLink>,
    pub(crate) preset: Preset,
    /// The tools that it is offered.
    pub(crate) tools: Arc<[Arc<ToolSpec>]>,
    /// What it and all below it may ever use (SUB-6).
    pub(crate) ceiling: Vec<String>,
    pub(crate) max_turns: u32,
    pub(crate) max_depth: u32,
    pub(crate) max_children: usize,
    pub(crate) child_timeout_ms: u64,
    /// What kind of service has the model, as those who trace call it.
    pub(crate) provider: &'static str,
    /// Name of the model, for events and prices.
    pub(crate) model: String,
    /// What the answer has to fit.
    pub(crate) schema: Option<AnswerSchema>,
    /// What of a child's answer, and of the results of a call's children, is read whole.
    pub(crate) inline: Limits,
    /// How long its model may stay silent, in milliseconds.
    pub(crate) model_timeout_ms: u64,
    /// Most tokens of one answer, and of a call in all.
    pub(crate) max_output_tokens: u64,
    pub(crate) context_window: u64,
    pub(crate) counter: Counter,
    /// What the offered tools take of each prompt.
    pub(crate) tool_tokens: u64,
    pub(crate) context: ContextConfig,
    /// What writes summaries.
    pub(crate) summary: Helper,
    /// Whether that is the run's own model.
    pub(crate) sums_up_itself: bool,
    /// What small questions are put to.
    pub(crate) utility: Helper,
    /// Whether it looks for what earlier runs have learned before it begins a new conversation.
    pub(crate) recalls: bool,
    pub(crate) prices: Option<Prices>,
    /// Shared by all runs that have the same.
    pub(crate) system_prompt: Arc<str>,
    pub(crate) registry: Arc<ToolRegistry>,
    /// The configured servers of tools that are not there, with why; told by the run that a user began.
    pub(crate) absent_servers: Vec<(String, ErrorInfo)>,
    pub(crate) presets: Arc<BTreeMap<String, Preset>>,
    pub(crate) skills: Arc<Skills>,
    /// What hears of its calls, and may refuse them.
    pub(crate) hooks: Arc<Hooks>,
    /// Takes secrets out of what the model reads, and what is recorded.
    pub(crate) redactor: Redactor,
}

/// A model that is asked something beside the run's own turns.
#[derive(Debug, Clone)]
pub(crate) struct Helper {
    /// How a run names it: a profile, or a model name of the default profile.
    pub(crate) name: String,
    /// What a request to it may hold, in tokens.
    pub(crate) budget: u64,
    pub(crate) output_tokens: u64,
    pub(crate) prices: Option<Prices>,
}

/// Whose child a run is, and why.
#[derive(Debug, Clone)]
pub(crate) struct ParentLink {
    pub(crate) run_id: RunId,
    pub(crate) trace_id: TraceId,
    pub(crate) mode: ChildMode,
}

impl RunSpec {
    pub(crate) fn tool(&self, name: &str) -> Option<&Arc<ToolSpec>> {
        self.tools.iter().find(|spec| spec.name == name)
    }

    /// Returns whether calls of the tool run alone (TOOL-3).
    pub(crate) fn is_barrier(&self, name: &str) -> bool {
        !is_spawning(name) && self.tool(name).is_some_and(|spec| spec.effect.changes())
    }
}
