//! Tool registry: which tools exist, and whether arguments fit their schemas (TOOL-1).
//!
//! Invariants:
//! - Names are unique and match `^[a-zA-Z0-9_.-]{1,64}$`.
//! - Each schema is a valid JSON schema of an object, compiled once.
//! - Models see the tools in the order of registration.
//!
//! `goal`, `agent`, `evaluate` and `ask_human` are registered with a spec, so that their arguments
//! are checked, but without a [`Tool`]: the run state machine executes them.
//!
//! Elsewhere (in `soong`): those specs, which run may use which tool, and the calls themselves.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use serde_json::{Map, Value};
use soong_model::tokens::estimate_tokens;
use soong_protocol::{ErrorCode, ErrorInfo, ToolSpec};
use soong_text::unwrap_json_string;

use super::{
    Tool,
    coercion::{CoercedArguments, coerce},
    json_schema::{JsonSchema, truncated},
};

/// Maximum length of a tool name, in bytes; the limit of the model providers.
const MAX_NAME_BYTES: usize = 64;

/// Why a tool was not registered. The registry is unchanged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RegisterError {
    /// The providers do not accept the name.
    #[error("{0:?} is not a valid tool name: use 1 to 64 ASCII letters, digits, '_', '.' or '-'")]
    InvalidName(String),
    /// Another tool has this name.
    #[error("a tool named {0:?} is already registered: use another name")]
    NameTaken(String),
    /// The schema is not a valid JSON schema of an object.
    #[error("the parameters of tool {name:?} are not a valid schema: {why}")]
    InvalidSchema {
        /// The tool.
        name: String,
        /// Reason why the schema is invalid.
        why: String,
    },
}

/// A registered tool.
pub struct RegisteredTool {
    /// Implementation; `None` if the run state machine executes the tool.
    pub tool: Option<Arc<dyn Tool>>,
    /// Description of the tool.
    pub spec: Arc<ToolSpec>,
    /// Compiled schema. That of a built-in tool is compiled for its first call.
    schema: OnceLock<JsonSchema>,
    is_built_in: bool,
    tokens: u64,
}

impl RegisteredTool {
    /// Checks the description of a tool and compiles its schema.
    pub fn new(tool: Option<Arc<dyn Tool>>, spec: ToolSpec) -> Result<Self, RegisterError> {
        let allowed = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
        if spec.name.is_empty()
            || spec.name.len() > MAX_NAME_BYTES
            || !spec.name.bytes().all(allowed)
        {
            return Err(RegisterError::InvalidName(spec.name));
        }
        let invalid = |why: String| RegisterError::InvalidSchema {
            name: spec.name.clone(),
            why,
        };
        if spec.parameters.get("type").and_then(Value::as_str) != Some("object") {
            return Err(invalid(
                "the top level must have \"type\": \"object\"".to_owned(),
            ));
        }
        let schema = JsonSchema::compile(&spec.parameters).map_err(invalid)?;
        Ok(Self {
            schema: schema.into(),
            is_built_in: false,
            ..Self::built_in(tool, spec)
        })
    }

    /// Makes the entry of a built-in tool, whose description is known to be valid.
    fn built_in(tool: Option<Arc<dyn Tool>>, spec: ToolSpec) -> Self {
        // The parts that the model receives.
        let tokens =
            estimate_tokens(&spec.description) + estimate_tokens(&spec.parameters.to_string());
        Self {
            tool,
            spec: Arc::new(spec),
            schema: OnceLock::new(),
            is_built_in: true,
            tokens,
        }
    }

    fn schema(&self) -> &JsonSchema {
        self.schema.get_or_init(|| {
            // Invariant: other schemas are compiled when their tool is registered.
            JsonSchema::compile(&self.spec.parameters)
                .unwrap_or_else(|error| unreachable!("the schema of a built-in tool: {error}"))
        })
    }

    /// Returns what the tool lacks in order to work. A tool that lacks something is not offered to
    /// models.
    pub fn missing_requirement(&self) -> Option<String> {
        self.tool
            .as_ref()
            .and_then(|tool| tool.missing_requirement())
    }
}

/// Arguments of a call that match the schema of its tool.
#[derive(Debug)]
pub struct CheckedArguments {
    /// The arguments.
    pub value: Value,
    /// Note for the model if the arguments were accepted in a different shape than the model sent.
    pub coercion_note: Option<String>,
}

/// Tools of a runtime, in the order of registration.
#[derive(Default, Clone)]
pub struct ToolRegistry {
    entries: Vec<Arc<RegisteredTool>>,
    by_name: HashMap<String, usize>,
}

impl ToolRegistry {
    /// Makes an empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers a tool, and checks its description.
    pub fn register(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let spec = tool.spec().clone();
        self.register_entry(Arc::new(RegisteredTool::new(Some(tool), spec)?))
    }

    /// Registers a built-in tool. Its schema is not compiled here, because that would delay the
    /// start.
    pub fn register_built_in(&mut self, tool: Arc<dyn Tool>) -> Result<(), RegisterError> {
        let spec = tool.spec().clone();
        self.register_entry(Arc::new(RegisteredTool::built_in(Some(tool), spec)))
    }

    /// Registers a built-in tool that the run state machine executes. The registry still checks its
    /// arguments.
    pub fn register_built_in_spec(&mut self, spec: ToolSpec) -> Result<(), RegisterError> {
        self.register_entry(Arc::new(RegisteredTool::built_in(None, spec)))
    }

    /// Registers an entry, such as a tool of an MCP server.
    pub fn register_entry(&mut self, entry: Arc<RegisteredTool>) -> Result<(), RegisterError> {
        let name = entry.spec.name.clone();
        if self.by_name.contains_key(&name) {
            return Err(RegisterError::NameTaken(name));
        }
        self.by_name.insert(name, self.entries.len());
        self.entries.push(entry);
        Ok(())
    }

    /// Finds a tool by name.
    pub fn get(&self, name: &str) -> Option<&RegisteredTool> {
        self.by_name
            .get(name)
            .and_then(|index| self.entries.get(*index))
            .map(Arc::as_ref)
    }

    /// Returns whether the check of arguments is so fast that it need not run on a blocking thread.
    pub fn is_fast_check(&self, name: &str, raw: &str) -> bool {
        self.get(name)
            .is_none_or(|entry| entry.is_built_in || entry.schema().is_fast_for(raw))
    }

    /// Returns the size of a tool in a prompt, in estimated tokens; 0 if there is no such tool.
    pub fn tokens(&self, name: &str) -> u64 {
        self.get(name).map_or(0, |entry| entry.tokens)
    }

    /// Returns all tools, in the order of registration.
    pub fn entries(&self) -> impl Iterator<Item = &RegisteredTool> {
        self.entries.iter().map(Arc::as_ref)
    }

    /// Returns the descriptions of all tools, in the order of registration.
    pub fn specs(&self) -> impl Iterator<Item = &Arc<ToolSpec>> {
        self.entries.iter().map(|entry| &entry.spec)
    }

    /// Parses the text that a model wrote as arguments of `name`, and checks it against the schema.
    ///
    /// Empty text counts as `{}`, because some providers send it for tools without arguments. An
    /// error states each violation and its location (a JSON pointer), and lists at most three. The
    /// time is bounded, but the schema of another party may use it up: do not call this in an actor
    /// for tools that are not built in.
    pub fn check_arguments(&self, name: &str, raw: &str) -> Result<CheckedArguments, ErrorInfo> {
        let Some(entry) = self.get(name) else {
            let message =
                format!("there is no tool named {name:?}: use one of the tools that are offered");
            return Err(ErrorInfo::new(ErrorCode::ToolNotAvailable, message));
        };
        let refuse = |what: String| {
            let message =
                format!("the arguments of `{name}` do not fit: {what}. Mend them and call again.");
            Err(ErrorInfo::new(ErrorCode::ValidationError, message))
        };
        // The error repeats the text, because the conversation shows invalid arguments to the model
        // as an empty object.
        let quoted_arguments = || format!("It was called with: {}", truncated(raw.trim()));
        let unwrapped = unwrap_json_string(raw);
        let arguments = match unwrapped.as_deref().unwrap_or(raw).trim() {
            "" => Value::Object(Map::new()),
            text => match serde_json::from_str(text) {
                Ok(value) => value,
                Err(error) => {
                    return refuse(format!(
                        "they are no JSON ({error}). {}",
                        quoted_arguments()
                    ));
                }
            },
        };
        if !arguments.is_object() {
            return refuse(format!(
                "they must be a JSON object, such as {{\"name\": \"value\"}}. {}",
                quoted_arguments()
            ));
        }
        if entry.schema().is_valid(&arguments) {
            return Ok(CheckedArguments {
                value: arguments,
                coercion_note: None,
            });
        }
        let coerced = coerce(&entry.spec, &arguments)
            .filter(|coerced| entry.schema().is_valid(&coerced.arguments));
        if let Some(CoercedArguments { arguments, note }) = coerced {
            return Ok(CheckedArguments {
                value: arguments,
                coercion_note: Some(note),
            });
        }
        refuse(entry.schema().violations(&arguments).join("; "))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ToolEnvironment;

    fn spec(name: &str, parameters: Value) -> ToolSpec {
        ToolSpec::read(name, "title", "description", parameters)
    }

    #[test]
    fn tool_needs_unique_valid_name_and_object_schema() {
        let long = "x".repeat(65);
        for (name, parameters, fits) in [
            ("a-b_c.9", json!({"type": "object"}), true),
            ("", json!({"type": "object"}), false),
            (&long, json!({"type": "object"}), false),
            ("a b", json!({"type": "object"}), false),
            ("ä", json!({"type": "object"}), false),
            ("x", json!({"type": "string"}), false),
            ("x", json!({}), false),
            ("x", json!(null), false),
            (
                "x",
                json!({"type": "object", "properties": {"a": {"type": "nonsense"}}}),
                false,
            ),
            (
                "x",
                json!({"type": "object", "properties": {"a": {"$ref": "https://example.org/a"}}}),
                false,
            ),
        ] {
            let mut registry = ToolRegistry::new();
            let entry = RegisteredTool::new(None, spec(name, parameters.clone()));
            assert_eq!(entry.is_ok(), fits, "{name:?} {parameters}");
            entry
                .into_iter()
                .for_each(|entry| registry.register_entry(Arc::new(entry)).unwrap());
            assert_eq!(registry.specs().count(), usize::from(fits));
        }
        let mut registry = ToolRegistry::new();
        registry
            .register_built_in_spec(spec("x", json!({"type": "object"})))
            .unwrap();
        let duplicate = registry.register_built_in_spec(spec("x", json!({"type": "object"})));
        assert_eq!(duplicate, Err(RegisterError::NameTaken("x".to_owned())));
    }

    fn project_tools() -> Result<ToolRegistry, RegisterError> {
        let mut registry = ToolRegistry::new();
        registry.register_project_tools(&ToolEnvironment::default(), &Arc::default())?;
        Ok(registry)
    }

    #[test]
    fn invalid_arguments_are_reported_with_location() {
        let registry = project_tools().unwrap();
        for (name, raw, want) in [
            ("list_files", "", None),
            ("list_files", "  ", None),
            ("list_files", "{}", None),
            ("read", r#"{"path": "a", "start_line": 3}"#, None),
            ("read", "{}", Some("path")),
            ("read", "[]", Some("must be a JSON object")),
            ("read", "{\"path\": ", Some("no JSON")),
            ("read", r#"{"path": 7}"#, Some("at /path: ")),
            (
                "read",
                r#"{"path": "a", "start_line": 0}"#,
                Some("at /start_line: "),
            ),
            (
                "read",
                r#"{"path": "a", "max_lines": 1001}"#,
                Some("at /max_lines: "),
            ),
            ("read", r#"{"path": "a", "pathh": 1}"#, Some("pathh")),
            (
                "read",
                r#"{"path": 1, "start_line": 0, "max_lines": 0, "x": 1}"#,
                Some("and more"),
            ),
        ] {
            match (registry.check_arguments(name, raw), want) {
                (Ok(checked), None) => assert!(checked.value.is_object()),
                (Err(error), Some(want)) => {
                    assert_eq!(error.code, ErrorCode::ValidationError, "{raw}");
                    assert!(
                        error.message.contains(want) && error.message.contains(name),
                        "{raw}: {error}"
                    );
                }
                (got, _) => panic!("{raw}: {got:?}"),
            }
        }
        let unknown = registry.check_arguments("nope", "{}").unwrap_err();
        assert_eq!(unknown.code, ErrorCode::ToolNotAvailable);
    }

    #[test]
    fn violation_message_is_bounded() {
        let registry = project_tools().unwrap();
        let raw = json!({"path": ["好".repeat(100_000)]}).to_string();
        let error = registry.check_arguments("read", &raw).unwrap_err();
        assert!(error.message.len() < 2_000, "{}", error.message.len());
    }
}
