//! Assembling an answer from its chunks: text, reasoning, tool calls with unique ids, usage
//! (MOD-4).
//!
//! Pure. Whatever a server sends, the resulting completion can be sent back: every call has a name
//! and a unique id.
//!
//! Elsewhere: bytes (`service/events.rs`) and their form (`wire.rs`).

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::{Value, value::RawValue};
use soong_protocol::{Delta, ProviderItem, ToolCall, Usage};

use super::{
    reasoning_details::{NOT_RETURNED, ReasoningDetails},
    wire::{CallPiece, Choice, Chunk, FunctionPiece, LenientText, MessagePiece},
};
use crate::{
    Completion, DeltaSink, ModelError,
    limits::{AnswerLimits, AnswerSize},
    service::{
        answer::{AnswerFormat, EventError, Progress},
        calls::{finish_reason, with_unique_ids},
        failure::ErrorBody,
    },
};

/// An answer in progress.
#[derive(Debug)]
pub(crate) struct Assembler {
    limits: AnswerLimits,
    /// Size of the answer so far.
    size: AnswerSize,
    text: String,
    reasoning: String,
    /// Whether the service names the reasoning `reasoning_content`: such services accept it back,
    /// and DeepSeek requires it.
    returns_reasoning: bool,
    /// OpenRouter's parts of the reasoning.
    details: ReasoningDetails,
    /// The service's data about the answer.
    extra: Value,
    /// Whether the text is a refusal.
    is_refused: bool,
    calls: Vec<PartialCall>,
    usage: Option<Usage>,
    finish_reason: Option<String>,
}

/// A tool call in progress.
#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
    /// The service's data about the call.
    extra: Value,
}

impl Assembler {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            size: AnswerSize::default(),
            text: String::new(),
            reasoning: String::new(),
            returns_reasoning: false,
            details: ReasoningDetails::default(),
            extra: Value::Null,
            is_refused: false,
            calls: Vec::new(),
            usage: None,
            finish_reason: None,
        }
    }

    /// Adds the next chunk.
    ///
    /// # Errors
    /// Fails if the answer exceeds its limits.
    pub(super) fn take(
        &mut self,
        chunk: Chunk<'_>,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        // If every chunk has a usage, it is cumulative, so the last one counts.
        if let Some(usage) = chunk.usage.as_ref().and_then(|usage| usage.usage()) {
            self.usage = Some(usage);
        }
        // One choice was requested; a second one would be mixed into it.
        let first = chunk
            .choices
            .unwrap_or_default()
            .into_iter()
            .find(|c| c.index.is_none_or(|index| index.0 == 0));
        first.map_or(Ok(()), |choice| self.choice(choice, deltas))
    }

    fn choice(&mut self, choice: Choice<'_>, deltas: &mut dyn DeltaSink) -> Result<(), ModelError> {
        if let Some(usage) = choice.usage.as_ref().and_then(|usage| usage.usage()) {
            self.usage = Some(usage);
        }
        match (choice.delta, choice.message) {
            (Some(delta), _) => self.piece(delta, false, deltas)?,
            // Some streams repeat the whole message at their end.
            (None, Some(message)) if self.is_empty() => self.piece(message, true, deltas)?,
            (None, _) => {}
        }
        match choice.finish_reason {
            Some(LenientText(reason)) if !reason.is_empty() && reason != "null" => {
                self.finish_reason = Some(reason.into_owned())
            }
            _ => {}
        }
        Ok(())
    }

    fn piece(
        &mut self,
        piece: MessagePiece<'_>,
        is_whole: bool,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        self.returns_reasoning |= !piece.reasoning_content.0.is_empty();
        if let Some(extra) = piece.extra_content {
            self.extra = self.opaque(extra);
        }
        let details_text = piece.reasoning_details.map(|details| {
            self.size.text_bytes += details.get().len();
            self.details.add(details)
        });
        // Some servers send the same text under several names.
        let LenientText(mut reasoning) = if piece.reasoning_content.0.is_empty() {
            piece.reasoning
        } else {
            piece.reasoning_content
        };
        if reasoning.is_empty() {
            reasoning = details_text.unwrap_or_default().into();
        }
        if !reasoning.is_empty() {
            self.reasoning.push_str(&reasoning);
            self.size.text_bytes += reasoning.len();
            deltas.push(Delta::Reasoning {
                text: reasoning.into_owned(),
            });
        }
        self.is_refused |= !piece.refusal.0.is_empty();
        for LenientText(text) in [piece.content, piece.refusal] {
            if !text.is_empty() {
                self.text.push_str(&text);
                self.size.text_bytes += text.len();
                deltas.push(Delta::Text {
                    text: text.into_owned(),
                });
            }
        }
        for call in piece.tool_calls.unwrap_or_default() {
            self.call(call, is_whole)?;
        }
        if let Some(function) = piece.function_call {
            self.call(
                CallPiece {
                    function: Some(function),
                    ..CallPiece::default()
                },
                is_whole,
            )?;
        }
        Ok(())
    }

    /// Returns the position of the call to which a piece belongs: that with its index, else with
    /// its id, else the last one. A piece with a new index but neither id nor name continues the
    /// last call, unless its arguments are complete JSON.
    fn position_of_call(&self, index: Option<u64>, id: &str, name: &str) -> Option<usize> {
        let of_index = self
            .calls
            .iter()
            .rposition(|call| index.is_some() && call.index == index);
        if of_index.is_some() {
            return of_index;
        }
        // Some servers give several calls the same id.
        let begins_call = index.is_some() && !name.is_empty();
        if begins_call {
            return None;
        }
        if !id.is_empty() {
            return self.calls.iter().rposition(|call| call.id == id);
        }
        let last = self.calls.len().checked_sub(1)?;
        let is_next = index.is_some() && self.calls[last].has_whole_arguments();
        if is_next { None } else { Some(last) }
    }

    /// Adds a piece to its call.
    fn call(&mut self, piece: CallPiece<'_>, is_whole: bool) -> Result<(), ModelError> {
        let index = piece.index.map(|index| index.0);
        let LenientText(id) = piece.id;
        let extra = piece.extra_content.map(|extra| self.opaque(extra));
        let FunctionPiece {
            name: LenientText(name),
            arguments,
        } = piece.function.unwrap_or_default();
        let (arguments, is_object) = arguments_of(arguments);
        let position = if is_whole {
            None
        } else {
            self.position_of_call(index, &id, &name)
        };
        let same = position.filter(|at| {
            !self.calls[*at].is_complete_before(index.is_some(), &id, &name, &arguments)
        });
        let call = match same {
            Some(at) => &mut self.calls[at],
            None => {
                self.size.tool_calls += 1;
                self.calls.push_mut(PartialCall {
                    index,
                    ..PartialCall::default()
                })
            }
        };
        self.size.text_bytes += id.len() + name.len();
        if let Some(extra) = extra {
            call.extra = extra;
        }
        if call.id.is_empty() {
            call.id = id.into_owned();
        }
        if call.name.is_empty() {
            call.name = name.into_owned();
        } else if call.name != name && call.arguments.is_empty() {
            call.name.push_str(&name); // a name in pieces
        }
        if is_object {
            self.size.argument_bytes -= call.arguments.len();
            call.arguments.clear(); // an object is never a piece
        }
        self.size.argument_bytes += arguments.len();
        call.arguments.push_str(&arguments);
        self.limits.check(self.size)
    }

    /// Reads data of the service, which counts like text.
    fn opaque(&mut self, data: &RawValue) -> Value {
        self.size.text_bytes += data.get().len();
        serde_json::from_str(data.get()).unwrap_or_default()
    }

    fn is_empty(&self) -> bool {
        self.text.is_empty() && self.reasoning.is_empty() && self.calls.is_empty()
    }

    fn provider_items(&mut self) -> Vec<ProviderItem> {
        let has_extra =
            !self.extra.is_null() || self.calls.iter().any(|call| !call.extra.is_null());
        if !self.returns_reasoning && !has_extra && self.details.is_empty() {
            return Vec::new();
        }
        let mut items = if self.details.is_empty() {
            let of_reasoning = if self.returns_reasoning {
                Value::Null
            } else {
                NOT_RETURNED.into()
            };
            vec![ProviderItem::Reasoning {
                bytes: self.reasoning.len(),
                data: of_reasoning,
            }]
        } else {
            std::mem::take(&mut self.details).items(&self.reasoning)
        };
        items.push(ProviderItem::Text {
            bytes: self.text.len(),
            data: self.extra.clone(),
        });
        items.extend(self.calls.iter().map(|call| ProviderItem::Call {
            data: call.extra.clone(),
        }));
        items
    }
}

impl AnswerFormat for Assembler {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let chunk: Chunk<'_> = serde_json::from_slice(data).map_err(|_| EventError::Unknown)?;
        if chunk.error.is_some() {
            return Err(EventError::Service(ErrorBody::read(data)));
        }
        if chunk.choices.is_none()
            && chunk.usage.is_none()
            && let Some(error) = ErrorBody::parse(data)
        {
            return Err(EventError::Service(error));
        }
        Ok(self.take(chunk, deltas)?)
    }

    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        if let Some(error) = ErrorBody::parse(body) {
            return Err(EventError::Service(error));
        }
        let chunk: Chunk<'_> = serde_json::from_slice(body).map_err(|_| EventError::Unknown)?;
        if !chunk
            .choices
            .as_ref()
            .is_some_and(|choices| choices.iter().any(|choice| choice.message.is_some()))
        {
            return Err(EventError::Unknown);
        }
        Ok(self.take(chunk, deltas)?)
    }

    fn progress(&self) -> Progress {
        if self.finish_reason.is_some() {
            Progress::Finished
        } else {
            Progress::Open
        }
    }

    /// Returns the size of the answer so far. Ids and names count each time they arrive.
    fn size(&self) -> AnswerSize {
        self.size
    }

    fn usage(&self) -> Option<Usage> {
        self.usage
    }

    fn finish(mut self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        self.calls
            .retain(|call| !(call.name.is_empty() && call.arguments.is_empty()));
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err("a tool call without a name");
        }
        let finish_reason = match self.finish_reason.as_deref() {
            Some("error") => return Err("the finish reason `error`"),
            _ if self.is_refused => "refusal".to_owned(),
            reason => finish_reason(reason.unwrap_or("stop"), !self.calls.is_empty()).to_owned(),
        };
        let items = self.provider_items();
        let completion = Completion {
            text: self.text,
            reasoning: Some(self.reasoning).filter(|reasoning| !reasoning.is_empty()),
            tool_calls: with_unique_ids(self.calls.into_iter().map(PartialCall::into_call)),
            usage: self.usage,
            finish_reason,
            ..Completion::default()
        };
        Ok((completion, items))
    }
}

impl PartialCall {
    fn into_call(self) -> ToolCall {
        ToolCall {
            id: self.id,
            name: self.name,
            arguments: self.arguments,
        }
    }

    /// Returns whether a piece that seems to belong to this call is the beginning of another call.
    ///
    /// Some servers send all parallel calls with index 0, with no index, or with the same id;
    /// others repeat name and id with every piece. The calls are distinguished by whether the
    /// arguments so far are complete.
    fn is_complete_before(&self, has_index: bool, id: &str, name: &str, arguments: &str) -> bool {
        if name.is_empty() || self.name.is_empty() {
            return false;
        }
        let other_id = !id.is_empty() && !self.id.is_empty() && id != self.id;
        let other_name = name != self.name;
        if self.arguments.is_empty() {
            // With the same index and no id, another name continues the name.
            return other_id || (other_name && !has_index);
        }
        self.has_whole_arguments() && (other_id || other_name || !arguments.is_empty())
    }

    /// Returns whether the arguments are complete JSON.
    fn has_whole_arguments(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.arguments).is_ok()
    }
}

/// Returns the arguments as text, and whether they were sent as a JSON object instead of a string.
fn arguments_of(raw: Option<&RawValue>) -> (Cow<'_, str>, bool) {
    match raw.map(RawValue::get) {
        None | Some("null") => (Cow::Borrowed(""), false),
        Some(text) if text.starts_with('"') => {
            let LenientText(text) = serde_json::from_str(text).unwrap_or_default();
            (text, false)
        }
        Some(object) => (Cow::Borrowed(object), true),
    }
}
