//! Chunks of an answer. Each is a whole response with the next parts.

use serde::Deserialize;
use serde_json::{Map, Value};
use soong_protocol::{ProviderItem, Usage};

use super::contents::SIGNATURE;
use crate::{
    Completion, DeltaSink,
    limits::{AnswerLimits, AnswerSize},
    service::{
        answer::{AnswerFormat, EventError, Progress},
        draft::Draft,
        failure::ErrorBody,
        lenient::{LenientNumber, count},
    },
};

/// An answer in progress.
pub(crate) struct GeminiAnswer {
    draft: Draft,
    progress: Progress,
    /// Whether the part before had a signature; such a part is never continued.
    is_signed: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Chunk {
    candidates: Option<Vec<Candidate>>,
    prompt_feedback: Option<PromptFeedback>,
    usage_metadata: Option<WireUsage>,
    error: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Candidate {
    content: Option<CandidateContent>,
    finish_reason: Option<String>,
    index: Option<LenientNumber>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CandidateContent {
    parts: Option<Vec<Map<String, Value>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

/// Running totals.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct WireUsage {
    prompt_token_count: Option<LenientNumber>,
    cached_content_token_count: Option<LenientNumber>,
    candidates_token_count: Option<LenientNumber>,
    thoughts_token_count: Option<LenientNumber>,
    tool_use_prompt_token_count: Option<LenientNumber>,
}

impl WireUsage {
    /// Returns the usage. `None` if it contains no counts.
    fn usage(self) -> Option<Usage> {
        let thoughts = count(self.thoughts_token_count);
        self.prompt_token_count.map(|prompt| Usage {
            prompt_tokens: prompt
                .0
                .saturating_add(count(self.tool_use_prompt_token_count)),
            completion_tokens: count(self.candidates_token_count).saturating_add(thoughts),
            cached_tokens: count(self.cached_content_token_count),
            reasoning_tokens: thoughts,
            ..Usage::default()
        })
    }
}

impl GeminiAnswer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            draft: Draft::new(limits),
            progress: Progress::Open,
            is_signed: false,
        }
    }

    fn add_chunk(&mut self, chunk: Chunk, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        if let Some(usage) = chunk.usage_metadata.and_then(WireUsage::usage) {
            self.draft.usage = usage;
            self.draft.has_usage = true;
        }
        let blocked = chunk
            .prompt_feedback
            .and_then(|feedback| feedback.block_reason);
        if blocked.is_some_and(|reason| !reason.ends_with("UNSPECIFIED")) {
            self.draft.finish_reason = Some("content_filter".to_owned());
            self.progress = Progress::Finished;
        }
        let first = chunk
            .candidates
            .unwrap_or_default()
            .into_iter()
            .find(|candidate| candidate.index.is_none_or(|index| index.0 == 0));
        let Some(candidate) = first else {
            return Ok(());
        };
        for part in candidate
            .content
            .and_then(|content| content.parts)
            .unwrap_or_default()
        {
            self.add_part(part, deltas)?;
        }
        if let Some(reason) = candidate
            .finish_reason
            .filter(|reason| !reason.ends_with("UNSPECIFIED"))
        {
            self.draft.finish_reason = Some(reason.to_ascii_lowercase());
            self.progress = Progress::Finished;
        }
        Ok(())
    }

    fn add_part(
        &mut self,
        mut part: Map<String, Value>,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let signature = part.remove(SIGNATURE);
        let is_thought = part
            .get("thought")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        if let Some(Value::Object(mut call)) = part.remove("functionCall") {
            let text = |value: Option<Value>| {
                value
                    .as_ref()
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            self.draft
                .begin_call(&text(call.remove("id")), &text(call.remove("name")))?;
            let arguments = call.remove("args").filter(Value::is_object);
            self.draft.push_arguments(
                &arguments.map_or_else(|| "{}".to_owned(), |args| args.to_string()),
            )?;
        } else if let Some(text) = part.get("text").and_then(Value::as_str) {
            // A signature belongs to one part, so neighbours are not merged with a signed part.
            let starts_new_part = self.is_signed || signature.is_some();
            match (is_thought, starts_new_part) {
                (true, true) => self.draft.begin_reasoning(),
                (false, true) => self.draft.begin_text(),
                (_, false) => {}
            }
            if is_thought {
                self.draft.push_reasoning(text, deltas)?
            } else {
                self.draft.push_text(text, deltas)?
            }
        } else if !part.is_empty() {
            self.draft.push_opaque(Value::Object(part))?;
        }
        self.is_signed = signature.is_some();
        if let Some(signature) = signature {
            self.draft.set_field(SIGNATURE, signature)?;
        }
        Ok(())
    }
}

impl AnswerFormat for GeminiAnswer {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let chunk: Chunk = serde_json::from_slice(data).map_err(|_| EventError::of_body(data))?;
        if chunk.error.is_some() {
            return Err(EventError::Service(ErrorBody::read(data)));
        }
        self.add_chunk(chunk, deltas)
    }

    /// Adds a response, or the list of all chunks.
    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        if let Some(error) = ErrorBody::parse(body) {
            return Err(EventError::Service(error));
        }
        let one = || serde_json::from_slice::<Chunk>(body).map(|chunk| vec![chunk]);
        let chunks = serde_json::from_slice::<Vec<Chunk>>(body)
            .or_else(|_| one())
            .map_err(|_| EventError::Unknown)?;
        chunks
            .into_iter()
            .try_for_each(|chunk| self.add_chunk(chunk, deltas))?;
        if self.progress == Progress::Open {
            Err(EventError::Unknown)
        } else {
            Ok(())
        }
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn size(&self) -> AnswerSize {
        self.draft.size()
    }

    fn usage(&self) -> Option<Usage> {
        self.draft.reported_usage()
    }

    fn finish(mut self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        match self.draft.finish_reason.as_deref() {
            Some("malformed_function_call" | "malformed_response") => {
                return Err("a malformed tool call");
            }
            Some("unexpected_tool_call" | "too_many_tool_calls") => {
                return Err("a tool call that was not possible");
            }
            // The service can continue such an answer, but only up to the output limit.
            Some("continuation") => self.draft.finish_reason = Some("length".to_owned()),
            _ => {}
        }
        self.draft.finish()
    }
}
