//! Converts the response of a server to a tool call into a result.
//!
//! Pure. Texts are joined. Images and files of the kinds that models take are passed on; other content is replaced by a
//! note with its type and size. Structured content is used if
//! there is no text. A response that is marked as an error becomes the error of the call, with the text of the
//! server.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents, ServerResult};
use soong_protocol::{ContentPart, ErrorCode, ErrorInfo, InputKind};
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
        ServerResult::CallToolResult(result) => convert_call(server, title, result),
        // Content of an unknown kind is passed on as JSON, because the model may understand it.
        ServerResult::CustomResult(custom) if custom.0.get("content").is_some() => {
            Ok(ToolOutput::text(title, sanitize_and_truncate(&custom.0.to_string(), MAX_OUTPUT_BYTES)))
        }
        ServerResult::InputRequiredResult(_) => {
            let message = format!("MCP server {server:?} requests input during the call, which is not supported");
            Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
        }
        ServerResult::CreateTaskResult(_) => {
            let message = format!("MCP server {server:?} returned a task for the call, which is not supported");
            Err(ErrorInfo::new(ErrorCode::UnsupportedCapability, message))
        }
        _ => {
            let message = format!("MCP server {server:?} returned a response that is not a tool result");
            Err(ErrorInfo::new(ErrorCode::ProviderError, message))
        }
    }
}

fn convert_call(server: &str, title: &str, result: CallToolResult) -> ToolResult {
    let has_text =
        result.content.iter().any(|block| matches!(block, ContentBlock::Text(text) if !text.text.is_empty()));
    let mut files = Vec::new();
    let mut parts: Vec<String> = Vec::new();
    for block in result.content {
        match file_of(&block) {
            Some(file) => files.push(file),
            None => parts.push(text_of(block)),
        }
    }
    parts.retain(|part| !part.is_empty());
    if let Some(value) = result.structured_content.filter(|_| !has_text) {
        parts.insert(0, indented_json(&value));
    }
    let text = parts.join("\n");
    if result.is_error == Some(true) {
        let said =
            if text.is_empty() { "no details given".to_owned() } else { sanitize_and_truncate(&text, MAX_ERROR_BYTES) };
        return Err(ErrorInfo::new(
            ErrorCode::ProviderError,
            format!("MCP server {server:?} returned an error: {said}"),
        ));
    }
    let text = if text.is_empty() && files.is_empty() { "(no output)".to_owned() } else { text };
    Ok(ToolOutput { files, ..ToolOutput::text(title, sanitize_and_truncate(&text, MAX_OUTPUT_BYTES)) })
}

/// Returns the image or file of a block. `None` if it has none, if no model takes its content type, or if it is not valid
/// base64.
fn file_of(block: &ContentBlock) -> Option<ContentPart> {
    let decoded = |content_type: &str, data: &str, filename: Option<String>| {
        InputKind::of_content_type(content_type)?;
        let bytes = BASE64_STANDARD.decode(data.trim_ascii()).ok()?;
        Some(ContentPart::inline(content_type, filename, bytes))
    };
    match block {
        ContentBlock::Image(image) => decoded(&image.mime_type, &image.data, None),
        ContentBlock::Audio(audio) => decoded(&audio.mime_type, &audio.data, None),
        ContentBlock::Resource(embedded) => match &embedded.resource {
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let name = uri.rsplit('/').next().map(|name| sanitize(name, MAX_NAME_CHARS));
                decoded(mime_type.as_deref().unwrap_or_default(), blob, name)
            }
            _ => None,
        },
        _ => None,
    }
}

fn text_of(block: ContentBlock) -> String {
    let named = |kind: &str, media: Option<&str>, base64: &str, what: &str| {
        // Four characters of base64 encode three bytes.
        let size = base64.len() / 4 * 3;
        let media = media.map_or_else(|| "of unknown type".to_owned(), |media| sanitize(media, MAX_NAME_CHARS));
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
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                named("resource", mime_type.as_deref(), &blob, &format!(", {}", sanitize(&uri, MAX_NAME_CHARS)))
            }
            _ => "[a resource of an unknown kind; not shown]".to_owned(),
        },
        ContentBlock::ResourceLink(link) => {
            let size = link.size.map_or_else(String::new, |size| format!(", {size} bytes"));
            let media =
                link.mime_type.map_or_else(String::new, |media| format!(", {}", sanitize(&media, MAX_NAME_CHARS)));
            let (uri, name) = (sanitize(&link.uri, MAX_NAME_CHARS), sanitize(&link.name, MAX_NAME_CHARS));
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
        text.push_str(&format!("\n[cut: the answer has {size} bytes, and the first {max_bytes} are kept]"));
    }
    text
}
