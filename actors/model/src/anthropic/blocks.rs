//! Content blocks of requests.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};
use soong_protocol::{InputKind, PartFile};

use crate::{
    ModelRequest,
    service::{
        conversation::{Answer, CallResult, Piece},
        parts::InputPart,
    },
};

/// Text of a result or message without content; the API rejects empty texts.
const NO_TEXT: &str = "(no text)";

/// Marks the end of the part of a request that is cached.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct CacheControl {
    r#type: &'static str,
    /// Time for which the part is cached. Default: five minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<&'static str>,
}

impl CacheControl {
    /// Returns the mark of a request that is cached for an hour, or for five minutes.
    pub(super) fn new(is_long: bool) -> Self {
        Self {
            r#type: "ephemeral",
            ttl: is_long.then_some("1h"),
        }
    }
}

/// A content block. Blocks that the service sent are returned as they were.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Block<'a> {
    Own(OwnBlock<'a>),
    Returned(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OwnBlock<'a> {
    Text {
        text: Cow<'a, str>,
        /// Further fields that the service sent in the block.
        #[serde(flatten)]
        more: Option<&'a Map<String, Value>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Image {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Document {
        source: Source<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        title: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
    Thinking {
        thinking: &'a str,
        #[serde(flatten)]
        more: Option<&'a Map<String, Value>>,
    },
    ToolUse {
        id: &'a str,
        name: &'a str,
        input: &'a RawValue,
        #[serde(flatten)]
        more: Option<&'a Map<String, Value>>,
    },
    ToolResult {
        tool_use_id: &'a str,
        content: Vec<Self>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<CacheControl>,
    },
}

/// Bytes of an image or document.
#[derive(Serialize)]
pub(super) struct Source<'a> {
    r#type: &'static str,
    media_type: &'a str,
    data: &'a str,
}

impl<'a> Block<'a> {
    /// Returns the blocks of an answer.
    pub(super) fn of_answer(answer: &'a Answer<'_>) -> Vec<Self> {
        answer
            .pieces()
            .into_iter()
            .filter_map(Self::of_piece)
            .collect()
    }

    fn of_piece(piece: Piece<'a>) -> Option<Self> {
        Some(match piece {
            // Without its signature, reasoning is rejected.
            Piece::Reasoning {
                data: Value::Null, ..
            } => return None,
            Piece::Reasoning { text, data } => Self::Own(OwnBlock::Thinking {
                thinking: text,
                more: data.as_object(),
            }),
            Piece::Text { text, .. } if text.trim().is_empty() => return None,
            Piece::Text { text, data } => Self::Own(OwnBlock::Text {
                text: text.into(),
                more: data.as_object(),
                cache_control: None,
            }),
            Piece::Call { call, data } => Self::Own(OwnBlock::ToolUse {
                id: &call.id,
                name: &call.name,
                input: serde_json::from_str(&call.arguments).unwrap_or(RawValue::NULL),
                more: data.as_object(),
            }),
            Piece::Opaque(data) => Self::Returned(data),
        })
    }

    /// Marks the end of the cached part, unless the block cannot carry the mark.
    pub(super) fn set_cache_control(&mut self, mark: CacheControl) -> bool {
        let Self::Own(block) = self else { return false };
        match block {
            OwnBlock::Text { cache_control, .. }
            | OwnBlock::Image { cache_control, .. }
            | OwnBlock::Document { cache_control, .. }
            | OwnBlock::ToolResult { cache_control, .. } => *cache_control = Some(mark),
            OwnBlock::Thinking { .. } | OwnBlock::ToolUse { .. } => return false,
        }
        true
    }
}

impl<'a> OwnBlock<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::Text {
            text: text.into(),
            more: None,
            cache_control: None,
        }
    }

    /// Returns the block of a tool result, with its images and files.
    pub(super) fn of_result(result: &'a CallResult<'_>, request: &'a ModelRequest) -> Self {
        let content = Self::of_parts(InputPart::of_message(result.message, request));
        Self::ToolResult {
            tool_use_id: &result.id,
            content,
            cache_control: None,
        }
    }

    /// Returns the blocks of the parts of a message. Empty texts are left out.
    pub(super) fn of_parts(parts: Vec<InputPart<'a>>) -> Vec<Self> {
        let is_empty =
            |part: &InputPart<'_>| matches!(part, InputPart::Text(text) if text.trim().is_empty());
        let blocks: Vec<Self> = parts
            .into_iter()
            .filter(|part| !is_empty(part))
            .map(Self::of_part)
            .collect();
        if blocks.is_empty() {
            vec![Self::text(NO_TEXT)]
        } else {
            blocks
        }
    }

    fn of_part(part: InputPart<'a>) -> Self {
        match part {
            InputPart::Text(text) => Self::text(text),
            InputPart::File { file, data } => Self::of_file(file, data),
        }
    }

    fn of_file(file: &'a PartFile, data: &'a str) -> Self {
        let source = Source {
            r#type: "base64",
            media_type: &file.content_type,
            data,
        };
        match file.kind() {
            Some(InputKind::Image) => Self::Image {
                source,
                cache_control: None,
            },
            _ => Self::Document {
                source,
                title: file.filename.as_deref(),
                cache_control: None,
            },
        }
    }
}
