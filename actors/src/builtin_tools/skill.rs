//! Tool `skill`: loads a skill into the conversation (MEM-1).
//!
//! The skills of the project are read again for each call. Elsewhere: the definition of a skill,
//! and which skills the system prompt lists (`src/skill.rs`).

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use soong_protocol::ToolSpec;
use soong_tool::{
    PathPolicy, Tool, ToolContext, ToolOutput, ToolResult, arguments, blocking, schema_of,
};

use crate::{project_instructions::ProjectInstructions, skill::Skills};

/// The tool `skill`.
pub(super) struct LoadSkill {
    spec: ToolSpec,
    skills: Arc<Skills>,
    roots: Arc<PathPolicy>,
}

/// Loads a skill.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(length(min = 1))]
    name: String,
}

impl LoadSkill {
    /// Makes the tool for the skills of a runtime.
    pub(crate) fn new(skills: Arc<Skills>, roots: Arc<PathPolicy>) -> Self {
        let spec = ToolSpec::read(
            "skill",
            "Skill",
            "Loads the instructions of a skill that the system prompt lists.",
            schema_of::<Arguments>(),
        );
        Self {
            spec,
            skills,
            roots,
        }
    }
}

impl Tool for LoadSkill {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let skills = Arc::clone(&self.skills);
        let roots = Arc::clone(&self.roots);
        blocking(context, move |context, _| {
            let Arguments { name } = arguments(value)?;
            let of_project = || ProjectInstructions::read(&roots, &context.project_dir).skills;
            let all = if skills.get(&name).is_some() {
                skills
            } else {
                skills.with_project(&of_project())
            };
            let skill = all.get(&name).ok_or_else(|| all.not_found(&name))?;
            Ok(ToolOutput::text(
                format!("skill {name}"),
                format!("## Skill: {name}\n\n{}", skill.prompt_text()),
            ))
        })
        .boxed()
    }
}

#[cfg(test)]
#[path = "skill/tests.rs"]
mod tests;
