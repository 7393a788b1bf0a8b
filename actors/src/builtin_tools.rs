//! Registry of the built-in tools, and the tools that use artifacts, memory and skills.

pub(crate) mod artifact;
mod experience;
mod skill;

use std::sync::Arc;

use crate::tool::{
    PathPolicy, RegisterError, ToolEnvironment, ToolRegistry, bash, edit, glob, grep, list_files, read, run_tools,
    write,
};
#[cfg(feature = "web-tools")]
use crate::tool::{web_search, webfetch};

impl ToolRegistry {
    /// Makes a registry of the built-in tools.
    pub fn with_builtins(tool_environment: &ToolEnvironment) -> Result<Self, RegisterError> {
        let mut registry = Self::new();
        let roots = Arc::new(PathPolicy::new(tool_environment));
        for spec in run_tools::specs() {
            registry.register_spec(spec)?;
        }
        let roots = || Arc::clone(&roots);
        registry.register(Arc::new(read::ReadTool::new(roots())))?;
        registry.register(Arc::new(list_files::ListFiles::new(roots())))?;
        registry.register(Arc::new(glob::Glob::new(roots())))?;
        registry.register(Arc::new(grep::Grep::new(roots())))?;
        registry.register(Arc::new(write::Write::new(roots())))?;
        registry.register(Arc::new(edit::Edit::new(roots())))?;
        registry.register(Arc::new(bash::Bash::new(tool_environment, roots())))?;
        #[cfg(feature = "web-tools")]
        registry.register(Arc::new(webfetch::WebFetch::new(tool_environment)))?;
        #[cfg(feature = "web-tools")]
        registry.register(Arc::new(web_search::WebSearch::new(tool_environment)))?;
        registry.register(Arc::new(skill::LoadSkill::new(Arc::clone(&tool_environment.skills), roots())))?;
        registry.register(Arc::new(experience::GetExperience::new(tool_environment.memory.clone())))?;
        registry.register(Arc::new(artifact::CreateArtifact::new()))?;
        registry.register(Arc::new(artifact::UpdateArtifact::new()))?;
        registry.register(Arc::new(artifact::RewriteArtifact::new()))?;
        registry.register(Arc::new(artifact::ReadArtifact::new()))?;
        registry.register(Arc::new(artifact::ListArtifacts::new()))?;
        Ok(registry)
    }
}
