//! Registry of the built-in tools, and the tools that use artifacts, memory and skills.

pub(crate) mod artifact;
mod experience;
mod run_tools;
mod skill;

use std::sync::Arc;

use soong_tool::{PathPolicy, RegisterError, ToolEnvironment, ToolRegistry};
#[cfg(feature = "web-tools")]
use soong_web::{web_search, webfetch};

use crate::{memory::MemoryFiles, skill::Skills};

/// Makes a registry of the built-in tools.
///
/// The tool `skill` loads `skills`; `get_experience` searches `memory`, and is not offered without
/// it.
pub fn registry(
    tool_environment: &ToolEnvironment,
    skills: &Arc<Skills>,
    memory: Option<Arc<MemoryFiles>>,
) -> Result<ToolRegistry, RegisterError> {
    let mut registry = ToolRegistry::new();
    let roots = Arc::new(PathPolicy::new(tool_environment));
    for spec in run_tools::specs() {
        registry.register_built_in_spec(spec)?;
    }
    registry.register_project_tools(tool_environment, &roots)?;
    #[cfg(feature = "web-tools")]
    registry.register_built_in(Arc::new(webfetch::WebFetch::new(tool_environment)))?;
    #[cfg(feature = "web-tools")]
    registry.register_built_in(Arc::new(web_search::WebSearch::new(tool_environment)))?;
    registry.register_built_in(Arc::new(skill::LoadSkill::new(Arc::clone(skills), roots)))?;
    registry.register_built_in(Arc::new(experience::GetExperience::new(memory)))?;
    registry.register_built_in(Arc::new(artifact::CreateArtifact::new()))?;
    registry.register_built_in(Arc::new(artifact::UpdateArtifact::new()))?;
    registry.register_built_in(Arc::new(artifact::RewriteArtifact::new()))?;
    registry.register_built_in(Arc::new(artifact::ReadArtifact::new()))?;
    registry.register_built_in(Arc::new(artifact::ListArtifacts::new()))?;
    Ok(registry)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn built_in_tools_are_registered_in_order() {
        let registry = registry(&ToolEnvironment::default(), &Arc::default(), None).unwrap();
        let names: Vec<&str> = registry.specs().map(|spec| spec.name.as_str()).collect();
        let reading = [
            "read",
            "list_files",
            "glob",
            "grep",
            "write",
            "edit",
            "bash",
        ];
        let artifacts = [
            "create_artifact",
            "update_artifact",
            "rewrite_artifact",
            "read_artifact",
            "list_artifacts",
        ];
        let web: &[&str] = if cfg!(feature = "web-tools") {
            &["webfetch", "web_search"]
        } else {
            &[]
        };
        let web = &[web, &["skill", "get_experience"]].concat()[..];
        assert_eq!(
            names,
            [
                ["agent", "evaluate", "goal", "ask_human"].as_slice(),
                &reading,
                web,
                &artifacts
            ]
            .concat()
        );
        for name in names {
            let entry = registry.get(name).unwrap();
            // The first call compiles the schema, which must be valid.
            assert!(
                registry
                    .check_arguments(name, r#"{"no such argument": 1}"#)
                    .is_err(),
                "{name}"
            );
            assert!(
                !entry.spec.description.is_empty() && !entry.spec.title.is_empty(),
                "{name}"
            );
            assert_eq!(
                entry.tool.is_some(),
                [&reading, web, &artifacts].concat().contains(&name),
                "{name}"
            );
        }
    }

    /// Returns the places of a schema where an array does not say what its items are. OpenAI
    /// rejects such schemas.
    fn arrays_without_items(schema: &Value, path: &str) -> Vec<String> {
        let is_array = |kind: &Value| {
            kind == "array"
                || kind
                    .as_array()
                    .is_some_and(|all| all.contains(&"array".into()))
        };
        let mut found = Vec::new();
        match schema {
            Value::Object(fields) => {
                if fields.get("type").is_some_and(is_array) && !fields.contains_key("items") {
                    found.push(path.to_owned());
                }
                for (name, value) in fields {
                    found.extend(arrays_without_items(value, &format!("{path}/{name}")));
                }
            }
            Value::Array(all) => {
                all.iter()
                    .for_each(|value| found.extend(arrays_without_items(value, path)));
            }
            _ => {}
        }
        found
    }

    #[test]
    fn every_array_of_a_tool_schema_has_items() {
        let tools = registry(&ToolEnvironment::default(), &Arc::default(), None).unwrap();
        for tool in tools.specs() {
            assert_eq!(
                arrays_without_items(&tool.parameters, &tool.name),
                Vec::<String>::new()
            );
        }
        let bad = serde_json::json!({"properties": {"a": {"items": {"type": ["object", "array"]}, "type": "array"}}});
        assert_eq!(arrays_without_items(&bad, "x"), ["x/properties/a/items"]);
    }
}
