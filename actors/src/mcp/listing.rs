//! What a server lists, as tools of ours: which are taken, and what is left of what they say.
//!
//! Pure. Everything that a server says is foreign: names have to fit, texts are cut and lose their control
//! characters, schemas are compiled before a model sees them. A tool that does not fit is left out by itself.
//! Not here: asking for the list (`connection.rs`), calling (`tool.rs`).

use rmcp::model::{ListToolsResult, ServerResult, Tool as Offered};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use soong_protocol::{Effect, McpConfig, NETWORK, ToolSpec};

/// Most tools of one server.
pub(super) const MAX_TOOLS: usize = 200;
/// Longest schema of one tool, in bytes as JSON.
const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Longest description, and longest title, in characters.
const MAX_DESCRIPTION_CHARS: usize = 2_000;
const MAX_TITLE_CHARS: usize = 80;
/// Says of a tool that a server has it.
const TAG: &str = "mcp";

/// A tool of a server, as it is offered to models.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ListedTool {
    /// What the server calls it.
    pub remote_name: String,
    /// What models see.
    pub spec: ToolSpec,
}

/// One page of a list: each tool, or why it cannot be read.
pub(super) struct ToolPage {
    pub(super) tools: Vec<Result<Offered, String>>,
    pub(super) next: Option<String>,
}

impl ToolPage {
    /// Reads an answer to `tools/list`; `None` = it is none. A tool that makes no sense does not hide the others.
    pub(super) fn read(result: ServerResult) -> Option<Self> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Form {
            tools: Vec<Value>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        match result {
            ServerResult::ListToolsResult(ListToolsResult { tools, next_cursor, .. }) => {
                Some(Self { tools: tools.into_iter().map(Ok).collect(), next: next_cursor })
            }
            ServerResult::CustomResult(custom) => {
                let Form { tools, next_cursor } = custom.result_as().ok()?;
                let read = |value: Value| {
                    let name = value["name"].as_str().unwrap_or("(without a name)").to_owned();
                    serde_json::from_value(value).map_err(|error| format!("tool {}: {error}", clean(&name, 100)))
                };
                Some(Self { tools: tools.into_iter().map(read).collect(), next: next_cursor })
            }
            _ => None,
        }
    }
}

/// Makes a tool of ours of one that a server lists; an error says why it is left out.
pub(super) fn accept(server: &str, config: &McpConfig, offered: Offered) -> Result<ListedTool, String> {
    let remote_name = offered.name.into_owned();
    let shown = clean(&remote_name, 100);
    if shown.is_empty() {
        return Err("a tool has no name".to_owned());
    }
    let mut schema = Value::Object((*offered.input_schema).clone());
    let size = schema.to_string().len();
    if size > MAX_SCHEMA_BYTES {
        return Err(format!("tool {shown}: its schema has {size} bytes, at most {MAX_SCHEMA_BYTES} are taken"));
    }
    // Arguments are an object in any case; some servers do not say so.
    if let Some(object) = schema.as_object_mut() {
        object.entry("type").or_insert_with(|| "object".into());
    }
    let hints = offered.annotations.unwrap_or_default();
    let title = offered.title.or(hints.title).unwrap_or_default();
    let title = match clean(&title, MAX_TITLE_CHARS) {
        title if title.is_empty() => shown,
        title => title,
    };
    let description = clean_lines(&offered.description.unwrap_or_default(), MAX_DESCRIPTION_CHARS);
    let description = if description.is_empty() { title.clone() } else { description };
    // A hint of the server, no more: its calls ask either way, since they reach beyond this machine.
    let reads = hints.read_only_hint == Some(true);
    let spec = ToolSpec {
        name: format!("mcp.{server}.{remote_name}"),
        title,
        description,
        parameters: schema,
        effect: if reads { Effect::Read } else { Effect::Dangerous },
        idempotent: reads,
        tags: vec![TAG.to_owned(), NETWORK.to_owned()],
        timeout_ms: Some(config.timeout_ms),
        paged: false,
        json_as_text: Vec::new(),
    };
    Ok(ListedTool { remote_name, spec })
}

/// Returns foreign text on one line, without control characters and at most so long.
pub(super) fn clean(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> =
        text.split(|c: char| c.is_control() || c.is_whitespace()).filter(|w| !w.is_empty()).collect();
    cut(&words.join(" "), max_chars)
}

/// The same, but its lines stay.
fn clean_lines(text: &str, max_chars: usize) -> String {
    let kept: String = text.chars().filter(|c| !c.is_control() || *c == '\n' || *c == '\t').collect();
    cut(kept.trim(), max_chars)
}

fn cut(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
