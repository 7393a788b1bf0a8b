//! Converts the response of a server to a tool call into a result.
//!
//! Pure. Texts are joined. Images and files of the kinds that models take are passed on, whatever
//! the server calls them; other content is replaced by a note with its type and size. Structured
//! content is added unless the text repeats it. A response that is marked as an error becomes the
//! error of the call, with the text of the server. A block that cannot be parsed is passed on as
//! JSON without affecting the others.

use base64::{
    Engine as _,
    alphabet::STANDARD,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use serde_json::{Map, Value, json};
use soong_protocol::{ContentPart, ErrorCode, ErrorInfo, InputKind, media_type};
use soong_text::{indented_json, strip_invisible};
use soong_tool::{ToolOutput, ToolResult};

use super::tool_list::sanitize;

/// Maximum size of the output, in bytes. What the run shows of it is limited separately.
const MAX_OUTPUT_BYTES: usize = 4 * 1024 * 1024;
/// Maximum size of an error, in bytes, because models read errors in full.
const MAX_ERROR_BYTES: usize = 16 * 1024;
/// Maximum length of a name or URI that is repeated, in characters.
const MAX_NAME_CHARS: usize = 300;

/// Converts a response to `tools/call`.
pub(super) fn convert(server: &str, title: &str, result: ServerResult) -> ToolResult {
    match result {
        ServerResult::CallToolResult(result) => convert_call(server, title, result.into()),
        ServerResult::CustomResult(custom)
            if custom.0.get("content").is_some() || custom.0.get("structuredContent").is_some() =>
        {
            convert_call(server, title, CallResponse::of_json(&custom.0))
        }
        ServerResult::InputRequiredResult(_) => {
            let message = format!(
                "MCP server {server:?} requests input during the call, which is not supported"
            );
            Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
        }
        ServerResult::CreateTaskResult(_) => {
            let message = format!(
                "MCP server {server:?} returned a task for the call, which is not supported"
            );
            Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
        }
        _ => {
            let message =
                format!("MCP server {server:?} returned a response that is not a tool result");
            Err(ErrorInfo::new(ErrorCode::ProviderError, message))
        }
    }
}

/// A response to a call.
struct CallResponse {
    /// Blocks of the content; one that cannot be parsed as JSON.
    content: Vec<Result<ContentBlock, Value>>,
    structured_content: Option<Value>,
    is_error: bool,
}

impl From<CallToolResult> for CallResponse {
    fn from(result: CallToolResult) -> Self {
        Self {
            content: result.content.into_iter().map(Ok).collect(),
            structured_content: result.structured_content,
            is_error: result.is_error == Some(true),
        }
    }
}

impl CallResponse {
    /// Reads a response block by block.
    fn of_json(response: &Value) -> Self {
        let blocks = match &response["content"] {
            Value::Array(blocks) => blocks.as_slice(),
            Value::Null => &[],
            block => std::slice::from_ref(block),
        };
        Self {
            content: blocks.iter().map(read_block).collect(),
            structured_content: Some(response["structuredContent"].clone())
                .filter(|value| !value.is_null()),
            is_error: response["isError"] == true,
        }
    }
}

/// Parses a block. If it has details that are unknown, only what every block of its type has is
/// read.
fn read_block(block: &Value) -> Result<ContentBlock, Value> {
    if let Ok(known) = serde_json::from_value(block.clone()) {
        return Ok(known);
    }
    if let Value::String(text) = block {
        return serde_json::from_value(json!({"type": "text", "text": text}))
            .map_err(|_| block.clone());
    }
    const ESSENTIAL: [&str; 9] = [
        "type", "text", "data", "mimeType", "resource", "uri", "name", "blob", "size",
    ];
    let essential = |value: &Value| -> Value {
        let fields = value.as_object().into_iter().flatten();
        let essential_fields = fields.filter(|(key, _)| ESSENTIAL.contains(&key.as_str()));
        essential_fields
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect::<Map<_, _>>()
            .into()
    };
    let mut reduced = essential(block);
    if let Some(resource) = reduced.get_mut("resource") {
        *resource = essential(resource);
    }
    serde_json::from_value(reduced).map_err(|_| block.clone())
}

fn convert_call(server: &str, title: &str, result: CallResponse) -> ToolResult {
    let mut files = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    let mut is_repeated = false;
    for block in result.content {
        let block = match block {
            Ok(block) => block,
            Err(unknown) => {
                parts.push(unknown.to_string());
                continue;
            }
        };
        if let (ContentBlock::Text(text), Some(value)) = (&block, &result.structured_content) {
            is_repeated |= is_same_data(&text.text, value);
        }
        match file_of(&block) {
            Some(file) => files.push(file),
            None => parts.push(text_of(block)),
        }
    }
    parts.retain(|part| !part.is_empty());
    if let Some(value) = result.structured_content.filter(|_| !is_repeated) {
        parts.push(indented_json(&value));
    }
    let text = parts.join("\n");
    if result.is_error {
        let details = if text.is_empty() {
            "no details given".to_owned()
        } else {
            sanitize_and_truncate(&text, MAX_ERROR_BYTES)
        };
        return Err(ErrorInfo::new(
            ErrorCode::ProviderError,
            format!("MCP server {server:?} returned an error: {details}"),
        ));
    }
    let text = if text.is_empty() && files.is_empty() {
        "(no output)".to_owned()
    } else {
        text
    };
    Ok(ToolOutput {
        files,
        ..ToolOutput::text(title, sanitize_and_truncate(&text, MAX_OUTPUT_BYTES))
    })
}

/// Returns whether a text is the JSON of structured content, or of the only value in it.
fn is_same_data(text: &str, structured: &Value) -> bool {
    let Ok(data) = serde_json::from_str::<Value>(text) else {
        return structured.as_str() == Some(text);
    };
    let only_value = structured
        .as_object()
        .filter(|object| object.len() == 1)
        .and_then(|object| object.values().next());
    data == *structured || only_value == Some(&data)
}

/// Returns the image or file of a block. `None` if it has none, if no model takes its content type,
/// or if it is not valid base64. The first bytes decide about the type, because servers often name
/// another one.
fn file_of(block: &ContentBlock) -> Option<ContentPart> {
    let decoded = |content_type: &str, data: &str, filename: Option<String>| {
        let bytes = decode_base64(data)?;
        let content_type = media_type(&bytes).unwrap_or(content_type);
        InputKind::of_content_type(content_type)?;
        Some(ContentPart::inline(content_type, filename, bytes))
    };
    match block {
        ContentBlock::Image(image) => decoded(&image.mime_type, &image.data, None),
        ContentBlock::Audio(audio) => decoded(&audio.mime_type, &audio.data, None),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => {
                let name = uri
                    .rsplit('/')
                    .next()
                    .map(|name| sanitize(name, MAX_NAME_CHARS));
                decoded(mime_type.as_deref().unwrap_or_default(), blob, name)
            }
            _ => None,
        },
        _ => None,
    }
}

/// Decodes base64, also as a `data:` URL, in lines, with the alphabet of URLs, or without padding.
fn decode_base64(data: &str) -> Option<Vec<u8>> {
    const LENIENT: GeneralPurposeConfig =
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const ENGINE: GeneralPurpose = GeneralPurpose::new(&STANDARD, LENIENT);
    let data = match data.trim_start().strip_prefix("data:") {
        Some(url) => url.split_once(',')?.1,
        None => data,
    };
    let standard = |character: char| match character {
        '-' => '+',
        '_' => '/',
        other => other,
    };
    let data: String = data
        .chars()
        .filter(|character| !character.is_whitespace())
        .map(standard)
        .collect();
    ENGINE.decode(data).ok()
}

fn text_of(block: ContentBlock) -> String {
    let named = |kind: &str, media: Option<&str>, base64: &str, what: &str| {
        // Four characters of base64 encode three bytes.
        let size = base64.len() / 4 * 3;
        let media = media.map_or_else(
            || "of unknown type".to_owned(),
            |media| sanitize(media, MAX_NAME_CHARS),
        );
        format!("[{kind} {media}, about {size} bytes{what}; not shown]")
    };
    match block {
        ContentBlock::Text(text) => text.text,
        ContentBlock::Image(image) => named("image", Some(&image.mime_type), &image.data, ""),
        ContentBlock::Audio(audio) => named("audio", Some(&audio.mime_type), &audio.data, ""),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => {
                format!("[resource {}]\n{text}", sanitize(&uri, MAX_NAME_CHARS))
            }
            ResourceContents::BlobResourceContents {
                uri,
                mime_type,
                blob,
                ..
            } => named(
                "resource",
                mime_type.as_deref(),
                &blob,
                &format!(", {}", sanitize(&uri, MAX_NAME_CHARS)),
            ),
            _ => "[a resource of an unknown kind; not shown]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let size = link
                .size
                .map_or_else(String::new, |size| format!(", {size} bytes"));
            let media = link.mime_type.map_or_else(String::new, |media| {
                format!(", {}", sanitize(&media, MAX_NAME_CHARS))
            });
            let uri = sanitize(&link.uri, MAX_NAME_CHARS);
            let name = sanitize(&link.name, MAX_NAME_CHARS);
            format!("[resource {name}, {uri}{media}{size}; not read]")
        }
        _ => "[content of an unknown kind; not shown]".to_owned(),
    }
}

/// Removes control and invisible characters. Truncates a text that is too long, and appends a note.
fn sanitize_and_truncate(text: &str, max_bytes: usize) -> String {
    let mut text = strip_invisible(text);
    let size = text.len();
    if size > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!(
            "\n[cut: the answer has {size} bytes, and the first {max_bytes} are kept]"
        ));
    }
    text
}
