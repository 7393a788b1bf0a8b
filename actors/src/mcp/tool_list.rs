//! Conversion of the tools that a server lists: which are accepted, and what is kept of their
//! texts.
//!
//! Pure. Everything from a server is untrusted: names must be valid, texts are truncated and lose
//! their control characters, and schemas are compiled before a model sees them. An invalid tool is
//! omitted without affecting the others.
//!
//! Elsewhere: requesting the list (`connection.rs`), calls (`tool.rs`).

use rmcp::model::{ListToolsResult, ServerResult, Tool as Offered};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use soong_protocol::{McpConfig, NETWORK_TAG, ToolEffect, ToolSpec};

use super::schema;

/// Maximum number of tools of a server.
pub(super) const MAX_TOOLS: usize = 200;
/// Maximum size of the schema of a tool, in bytes as JSON.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Maximum lengths of a description and of a title, in characters.
const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_TITLE_CHARS: usize = 80;
/// Factor by which the progress of a call extends its time limit, at most.
const MAX_EXTENSION: u64 = 10;
/// Tag of all tools of MCP servers.
const TAG: &str = "mcp";

/// A tool of a server, as it is offered to models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedTool {
    /// Name of the tool at the server.
    pub remote_name: String,
    /// Specification for models.
    pub spec: ToolSpec,
}

/// One page of a tool list. A tool that cannot be parsed is replaced by the reason.
pub(super) struct ToolPage {
    pub(super) tools: Vec<Result<Offered, String>>,
    pub(super) next: Option<String>,
}

impl ToolPage {
    /// Parses a response to `tools/list`, or returns `None` if it is not one. An invalid tool does
    /// not affect the others.
    pub(super) fn read(result: ServerResult) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            tools: Vec<Value>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        match result {
            ServerResult::ListToolsResult(ListToolsResult {
                tools, next_cursor, ..
            }) => Some(Self {
                tools: tools.into_iter().map(Ok).collect(),
                next: next_cursor,
            }),
            ServerResult::CustomResult(custom) => {
                let Form { tools, next_cursor } = custom.result_as().ok()?;
                let read = |value: Value| {
                    let name = value["name"]
                        .as_str()
                        .unwrap_or("(without a name)")
                        .to_owned();
                    serde_json::from_value(value)
                        .map_err(|error| format!("tool {}: {error}", sanitize(&name, 100)))
                };
                Some(Self {
                    tools: tools.into_iter().map(read).collect(),
                    next: next_cursor,
                })
            }
            _ => None,
        }
    }
}

/// Converts a tool of a server. An error is the reason why it is omitted.
pub(super) fn convert_tool(
    server: &str,
    config: &McpConfig,
    offered: Offered,
) -> Result<ListedTool, String> {
    let remote_name = offered.name.into_owned();
    let display_name = sanitize(&remote_name, 100);
    if display_name.is_empty() {
        return Err("a tool has no name".to_owned());
    }
    let schema = Value::Object((*offered.input_schema).clone());
    let size = schema.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        return Err(format!(
            "tool {display_name}: its schema has {size} bytes, at most {MAX_SCHEMA_BYTES} are allowed"
        ));
    }
    let (schema, arguments_note) =
        schema::accepted(schema).map_err(|why| format!("tool {display_name}: {why}"))?;
    let hints = offered.annotations.unwrap_or_default();
    let title = offered.title.or(hints.title).unwrap_or_default();
    let title = match sanitize(&title, MAX_TITLE_CHARS) {
        title if title.is_empty() => display_name,
        title => title,
    };
    let description = sanitize_lines(
        &offered.description.unwrap_or_default(),
        MAX_DESCRIPTION_CHARS,
    );
    let mut description = if description.is_empty() {
        title.clone()
    } else {
        description
    };
    if let Some(note) = arguments_note {
        description.push_str(&format!("\n{}", sanitize(&note, MAX_DESCRIPTION_CHARS)));
    }
    // Only a hint of the server. Calls require permission in any case, because they reach beyond
    // this machine.
    let is_read_only = hints.read_only_hint == Some(true);
    let spec = ToolSpec {
        name: format!("mcp.{server}.{remote_name}"),
        title,
        description,
        parameters: schema,
        effect: if is_read_only {
            ToolEffect::Read
        } else {
            ToolEffect::Dangerous
        },
        idempotent: is_read_only,
        tags: vec![TAG.to_owned(), NETWORK_TAG.to_owned()],
        timeout_ms: Some(config.timeout_ms.saturating_mul(MAX_EXTENSION)),
        paged: false,
        json_as_text: Vec::new(),
    };
    Ok(ListedTool { remote_name, spec })
}

/// Returns untrusted text on one line, without control characters and with at most `max_chars`
/// characters.
pub(super) fn sanitize(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> = text
        .split(|c: char| c.is_control() || c.is_whitespace())
        .filter(|w| !w.is_empty())
        .collect();
    truncate(&words.join(" "), max_chars)
}

/// Same as [`sanitize`], but keeps the lines.
fn sanitize_lines(text: &str, max_chars: usize) -> String {
    let printable: String = text
        .chars()
        .filter(|c| !c.is_control() || *c == '\n' || *c == '\t')
        .collect();
    truncate(printable.trim(), max_chars)
}

fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
