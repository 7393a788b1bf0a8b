//! Contents of requests: turns with their parts.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value, value::RawValue};
use soong_protocol::PartFile;

use super::thinking;
use crate::{
    ModelRequest,
    service::{
        Call,
        conversation::{Answer, CallResult, Piece, Turn, turns},
        parts::InputPart,
    },
};

/// Signature that the API accepts for a call of another model.
const OTHER_MODELS_SIGNATURE: &str = "skip_thought_signature_validator";
/// Text before the files of tool results that cannot be part of the results.
const TOOL_FILES: &str = "Files of the tool results above:";
/// Text of a turn without content; the API rejects empty turns.
const NO_TEXT: &str = "(no text)";
/// Types of files that a result may contain.
const RESULT_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "application/pdf"];

#[derive(Serialize)]
pub(super) struct Content<'a> {
    role: &'static str,
    parts: Vec<Part<'a>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inline_data: Option<InlineData<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_call: Option<FunctionCall<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    function_response: Option<FunctionResponse<'a>>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    thought: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    thought_signature: Option<&'a str>,
    /// Further fields that the service sent in the part.
    #[serde(flatten)]
    more: Option<&'a Map<String, Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InlineData<'a> {
    mime_type: &'a str,
    data: &'a str,
}

#[derive(Serialize)]
struct FunctionCall<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    args: &'a RawValue,
}

#[derive(Serialize)]
struct FunctionResponse<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    name: &'a str,
    response: Output<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    parts: Vec<Part<'a>>,
}

/// A result as an object, which the API requires.
#[derive(Serialize)]
struct Output<'a> {
    output: Cow<'a, str>,
}

/// How turns are written for one model.
struct Writer<'a> {
    request: &'a ModelRequest,
    /// Whether calls need signatures, and results may contain files: Gemini 3 and later.
    is_gemini_3: bool,
    /// Whether ids of calls are sent.
    has_ids: bool,
}

/// The conversation of a request.
pub(super) struct Contents<'a> {
    turns: Vec<Turn<'a>>,
    writer: Writer<'a>,
}

impl<'a> Contents<'a> {
    pub(super) fn of(call: &Call<'a>) -> Self {
        let is_gemini_3 = thinking::is_gemini_3(call.model);
        // Vertex AI accepts ids of calls only for Gemini 3 and later.
        let takes_ids = is_gemini_3 || !call.source.base_url.contains(super::VERTEX);
        let has_ids = takes_ids && !call.adaptation.no_call_ids;
        Self {
            turns: turns(call, false),
            writer: Writer {
                request: call.request,
                is_gemini_3,
                has_ids,
            },
        }
    }

    pub(super) fn list(&self) -> Vec<Content<'_>> {
        let mut contents: Vec<Content<'_>> = Vec::with_capacity(self.turns.len());
        for content in self.turns.iter().flat_map(|turn| self.writer.turn(turn)) {
            match contents.last_mut() {
                // Nothing may be added to results.
                Some(last)
                    if last.role == content.role
                        && !last.has_results()
                        && !content.has_results() =>
                {
                    last.parts.extend(content.parts);
                }
                _ => contents.push(content),
            }
        }
        contents
    }
}

impl Content<'_> {
    fn has_results(&self) -> bool {
        self.parts
            .iter()
            .any(|part| part.function_response.is_some())
    }
}

impl Writer<'_> {
    /// Returns the contents of a turn: the results, which must be alone, and the messages of the
    /// user; or an answer.
    fn turn<'a>(&'a self, turn: &'a Turn<'_>) -> Vec<Content<'a>> {
        let (results, inputs) = match turn {
            Turn::Model(answer) => {
                let parts = self.answer(answer);
                return Vec::from_iter((!parts.is_empty()).then_some(Content {
                    role: "model",
                    parts,
                }));
            }
            Turn::User { results, inputs } => (results, inputs),
        };
        let own = results
            .iter()
            .map(|result| self.result(result))
            .collect::<Vec<_>>();
        let mut parts: Vec<Part<'a>> = Vec::new();
        let files = results
            .iter()
            .flat_map(|result| result.message.content.files());
        let mut apart = files
            .filter(|file| !self.is_in_result(file))
            .filter_map(|file| self.file(file))
            .peekable();
        if apart.peek().is_some() {
            parts.push(Part::text(TOOL_FILES));
            parts.extend(apart);
        }
        for input in inputs {
            parts.extend(
                input
                    .parts(self.request)
                    .into_iter()
                    .filter_map(Part::of_input),
            );
        }
        if parts.is_empty() && !inputs.is_empty() {
            parts.push(Part::text(NO_TEXT));
        }
        [own, parts]
            .into_iter()
            .filter(|parts| !parts.is_empty())
            .map(|parts| Content {
                role: "user",
                parts,
            })
            .collect()
    }

    fn answer<'a>(&'a self, answer: &'a Answer<'_>) -> Vec<Part<'a>> {
        let mut parts: Vec<Part<'a>> = answer
            .pieces()
            .into_iter()
            .filter_map(|piece| self.piece(piece))
            .collect();
        // Parallel calls carry one signature, on the first.
        let first_call = parts.iter_mut().find(|part| part.function_call.is_some());
        if self.is_gemini_3
            && let Some(call) = first_call.filter(|call| call.thought_signature.is_none())
        {
            call.thought_signature = Some(OTHER_MODELS_SIGNATURE);
        }
        parts
    }

    fn piece<'a>(&'a self, piece: Piece<'a>) -> Option<Part<'a>> {
        let (data, part) = match piece {
            Piece::Reasoning { text: "", .. } => return None,
            Piece::Reasoning { text, data } => (
                data,
                Part {
                    thought: true,
                    ..Part::text(text)
                },
            ),
            // An empty text may carry a signature.
            Piece::Text { text, data } if text.is_empty() && data.get(SIGNATURE).is_none() => {
                return None;
            }
            Piece::Text { text, data } => (data, Part::text(text)),
            Piece::Call { call, data } => {
                let args = serde_json::from_str(&call.arguments).unwrap_or(RawValue::NULL);
                let id = Some(call.id.as_str()).filter(|_| self.has_ids);
                (
                    data,
                    Part {
                        function_call: Some(FunctionCall {
                            id,
                            name: &call.name,
                            args,
                        }),
                        ..Part::default()
                    },
                )
            }
            Piece::Opaque(data) => {
                return Some(Part {
                    more: data.as_object(),
                    ..Part::default()
                });
            }
        };
        Some(Part {
            thought_signature: data.get(SIGNATURE).and_then(Value::as_str),
            ..part
        })
    }

    fn result<'a>(&'a self, result: &'a CallResult<'_>) -> Part<'a> {
        let content = &result.message.content;
        let has_files = content.files().next().is_some();
        let lines = InputPart::of_message(result.message, self.request)
            .into_iter()
            .map(|part| match part {
                InputPart::Text(text) => text,
                InputPart::File { file, .. } => format!("[{}]", file.description()).into(),
            });
        let output = if has_files {
            lines.collect::<Vec<_>>().join("\n").into()
        } else {
            Cow::Borrowed(content.as_str())
        };
        let files = content.files().filter(|file| self.is_in_result(file));
        let function_response = FunctionResponse {
            id: Some(result.id.as_str()).filter(|_| self.has_ids),
            name: &result.name,
            response: Output { output },
            parts: files.filter_map(|file| self.file(file)).collect(),
        };
        Part {
            function_response: Some(function_response),
            ..Part::default()
        }
    }

    fn is_in_result(&self, file: &PartFile) -> bool {
        self.is_gemini_3 && RESULT_TYPES.contains(&file.content_type.as_str())
    }

    fn file<'a>(&'a self, file: &'a PartFile) -> Option<Part<'a>> {
        self.request
            .files
            .get(&file.artifact_id)
            .map(|data| Part::of_file(file, data))
    }
}

/// Name of the signature of a part.
pub(super) const SIGNATURE: &str = "thoughtSignature";

impl<'a> Part<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    fn of_input(part: InputPart<'a>) -> Option<Self> {
        match part {
            InputPart::Text(text) => (!text.is_empty()).then(|| Self::text(text)),
            InputPart::File { file, data } => Some(Self::of_file(file, data)),
        }
    }

    fn of_file(file: &'a PartFile, data: &'a str) -> Self {
        Self {
            inline_data: Some(InlineData {
                mime_type: &file.content_type,
                data,
            }),
            ..Self::default()
        }
    }
}
