//! Definitions shared by parent and child: the job, its tools, and the runtime.
//!
//! The job: an orchestrator creates a document, starts eight child runs, edits the document and
//! answers. Each child run makes two effects, edits the document and answers.

use std::sync::Arc;

use soong::{
    Runtime, RuntimeBuilder,
    protocol::{Config, SessionId, TraceId, builtin_presets},
};

use super::{
    drill_dir::DrillDir,
    effect::{EFFECT, EffectTool, NOTE},
};

/// Number of child runs.
pub(crate) const CHILDREN: u64 = 8;
/// Document that all of them edit.
pub(crate) const DOCUMENT: &str = "board";
/// Answer of the orchestrator.
pub(crate) const ANSWER: &str = "all parts are explored";

/// Returns the session of the job.
pub(crate) fn session() -> SessionId {
    SessionId::new("crash")
}

/// Returns the main trace of the session.
pub(crate) fn root() -> TraceId {
    TraceId::root(&session())
}

/// Returns the task of a child run.
pub(crate) fn task(child: u64) -> String {
    format!("explore part {child}")
}

/// Returns the runtime builder. At most `slots` child runs work at a time.
pub(crate) fn builder(stage: &DrillDir<'_>, base_url: &str, slots: usize) -> RuntimeBuilder {
    let mut config = Config::default();
    config.runtime.repeated_calls_limit = 0; // scripted models repeat themselves
    config.agents.max_concurrent_children_per_session = slots;
    config.model.base_url = Some(base_url.to_owned());
    config.model.retry.initial_backoff_ms = 5;
    let mut builder = Runtime::builder()
        .faults_from_env()
        .permission_handler(Arc::new(soong::permission::AllowAll))
        .home(stage.home())
        .project_dir(stage.project())
        .config(config)
        .tool(Arc::new(EffectTool::new(EFFECT, false, stage.effects())))
        .tool(Arc::new(EffectTool::new(NOTE, true, stage.effects())));
    // Child runs need the tools with effects as well.
    for preset in builtin_presets() {
        if ["explore", "orchestrator"].contains(&preset.name.as_str()) {
            builder = builder.preset(soong::protocol::Preset {
                allowed_tools: None,
                ..preset
            });
        }
    }
    builder
}
