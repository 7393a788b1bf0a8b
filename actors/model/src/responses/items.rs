//! Input items of requests.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};
use soong_protocol::InputKind;

use crate::{
    ModelRequest,
    service::{
        cache_breakpoint::CacheBreakpoint,
        conversation::{Answer, CallResult, Piece},
        parts::{DataUrl, InputPart, placeholder},
    },
};

/// An input item. Reasoning, and items that are not known, are returned as the service sent them.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Item<'a> {
    Own(OwnItem<'a>),
    Returned(&'a Value),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum OwnItem<'a> {
    Message {
        role: &'static str,
        content: Content<'a>,
        /// Id, phase and status of an answer.
        #[serde(flatten)]
        more: Option<&'a Map<String, Value>>,
    },
    FunctionCall {
        call_id: &'a str,
        name: &'a str,
        arguments: &'a str,
        #[serde(flatten)]
        more: Option<&'a Map<String, Value>>,
    },
    FunctionCallOutput {
        call_id: &'a str,
        output: Content<'a>,
    },
}

#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum Content<'a> {
    Text(Cow<'a, str>),
    Parts(Vec<Part<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Part<'a> {
    InputText {
        text: Cow<'a, str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        prompt_cache_breakpoint: Option<CacheBreakpoint>,
    },
    InputImage {
        image_url: DataUrl<'a>,
        detail: &'static str,
    },
    InputFile {
        filename: &'a str,
        file_data: DataUrl<'a>,
    },
    OutputText {
        text: &'a str,
        annotations: [Value; 0],
    },
}

impl<'a> Item<'a> {
    /// Returns the items of an answer. Reasoning at its end led to nothing, and is left out.
    pub(super) fn of_answer(answer: &'a Answer<'_>) -> Vec<Self> {
        let mut pieces = answer.pieces();
        while matches!(pieces.last(), Some(Piece::Reasoning { .. })) {
            pieces.pop();
        }
        pieces.into_iter().filter_map(Self::of_piece).collect()
    }

    fn of_piece(piece: Piece<'a>) -> Option<Self> {
        Some(match piece {
            // Without its encrypted content, reasoning is rejected.
            Piece::Reasoning {
                data: Value::Null, ..
            } => return None,
            Piece::Reasoning { data, .. } | Piece::Opaque(data) => Self::Returned(data),
            Piece::Text { text, data } => {
                // In an item with an id, the service requires a list of parts. In any other item, it
                // accepts a plain text.
                let content = match data.get("id") {
                    Some(_) => Content::Parts(vec![Part::OutputText {
                        text,
                        annotations: [],
                    }]),
                    None => Content::Text(text.into()),
                };
                Self::Own(OwnItem::Message {
                    role: "assistant",
                    content,
                    more: data.as_object(),
                })
            }
            Piece::Call { call, data } => Self::Own(OwnItem::FunctionCall {
                call_id: &call.id,
                name: &call.name,
                arguments: &call.arguments,
                more: data.as_object(),
            }),
        })
    }
}

impl<'a> OwnItem<'a> {
    /// Returns the item of a tool result, with its images and files. With `as_parts`, a text that is
    /// not empty becomes a list of one part: only a part can carry a breakpoint, and the form must
    /// not change between requests.
    pub(super) fn of_result(
        result: &'a CallResult<'_>,
        request: &'a ModelRequest,
        as_parts: bool,
    ) -> Self {
        let output = match Content::of(InputPart::of_message(result.message, request)) {
            Content::Text(text) if as_parts && !text.is_empty() => {
                Content::Parts(vec![Part::text(text)])
            }
            content => content,
        };
        Self::FunctionCallOutput {
            call_id: &result.id,
            output,
        }
    }

    /// Returns a message of the user.
    pub(super) fn of_user(parts: Vec<InputPart<'a>>) -> Self {
        let content = Content::Parts(parts.into_iter().map(Part::of).collect());
        Self::Message {
            role: "user",
            content,
            more: None,
        }
    }

    /// Ends the cached beginning of the prompt after this item, if its last part is a text.
    pub(super) fn set_breakpoint(&mut self) {
        if let Self::Message {
            content: Content::Parts(parts),
            ..
        }
        | Self::FunctionCallOutput {
            output: Content::Parts(parts),
            ..
        } = self
            && let Some(last) = parts.last_mut()
        {
            last.set_breakpoint();
        }
    }
}

impl<'a> Content<'a> {
    /// Returns a text if the only part is a text, else a list.
    fn of(parts: Vec<InputPart<'a>>) -> Self {
        match <[InputPart<'a>; 1]>::try_from(parts) {
            Ok([InputPart::Text(text)]) => Self::Text(text),
            Ok(parts) => Self::Parts(parts.into_iter().map(Part::of).collect()),
            Err(parts) => Self::Parts(parts.into_iter().map(Part::of).collect()),
        }
    }
}

impl<'a> Part<'a> {
    pub(super) fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self::InputText {
            text: text.into(),
            prompt_cache_breakpoint: None,
        }
    }

    fn of(part: InputPart<'a>) -> Self {
        let (file, data) = match part {
            InputPart::Text(text) => return Self::text(text),
            InputPart::File { file, data } => (file, data),
        };
        let url = DataUrl {
            content_type: &file.content_type,
            data,
        };
        match file.kind() {
            Some(InputKind::Image) => Self::InputImage {
                image_url: url,
                detail: "auto",
            },
            // The API takes no audio.
            Some(InputKind::Audio) => Self::text(placeholder(file)),
            _ => Self::InputFile {
                filename: file.filename.as_deref().unwrap_or("file.pdf"),
                file_data: url,
            },
        }
    }

    /// Marks the end of the cached part, if the part is a text.
    pub(super) fn set_breakpoint(&mut self) {
        if let Self::InputText {
            prompt_cache_breakpoint,
            ..
        } = self
        {
            *prompt_cache_breakpoint = Some(CacheBreakpoint::EXPLICIT);
        }
    }
}
