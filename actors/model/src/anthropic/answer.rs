//! Events of an answer.
//!
//! An answer is a list of blocks, each with an index. Pieces of several blocks may alternate.
//! Compatible servers leave out indexes and starts: a piece is added to the last block with its
//! index and kind, else, if it has no index, to the last block of its kind.

use std::collections::HashSet;

use serde::{Deserialize, de::IgnoredAny};
use serde_json::{Map, Value};
use soong_protocol::{Delta, ProviderItem, Usage};

use crate::{
    Completion, DeltaSink, ModelError,
    limits::{AnswerLimits, AnswerSize},
    service::{
        answer::{AnswerFormat, EventError, Progress},
        draft::{Draft, NoDeltas},
        failure::ErrorBody,
        lenient::{LenientNumber, count},
    },
};

/// An answer in progress.
pub(crate) struct MessageAnswer {
    limits: AnswerLimits,
    size: AnswerSize,
    /// Blocks in the order in which they arrived.
    blocks: Vec<Block>,
    progress: Progress,
    finish_reason: Option<String>,
    usage: WireUsage,
    /// Whether the service reported the usage.
    has_usage: bool,
}

/// A block of the answer.
struct Block {
    /// Place in the order of the blocks, if the service has sent one.
    index: Option<u64>,
    kind: BlockKind,
    /// Text or reasoning.
    text: String,
    /// Input of a call as text, as far as streamed.
    streamed_input: String,
    /// Further fields for the service; all of them for a block that only the service can read.
    fields: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    /// `input`: as the start of the block contains it; empty if it is streamed.
    Call {
        id: String,
        name: String,
        input: String,
    },
    /// It arrived complete, or is not known.
    Other,
}

/// An event. Fields of unknown events are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: String,
    index: Option<LenientNumber>,
    message: Option<StartedMessage>,
    content_block: Option<Map<String, Value>>,
    delta: Option<EventDelta>,
    usage: Option<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StartedMessage {
    usage: Option<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventDelta {
    r#type: String,
    text: Option<String>,
    thinking: Option<String>,
    signature: Option<String>,
    partial_json: Option<String>,
    citation: Option<Value>,
    stop_reason: Option<String>,
}

/// Token counts. A later event repeats some of them; a count that is missing keeps its value.
#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: Option<LenientNumber>,
    cache_creation_input_tokens: Option<LenientNumber>,
    cache_creation: Option<CacheCreation>,
    cache_read_input_tokens: Option<LenientNumber>,
    output_tokens: Option<LenientNumber>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_1h_input_tokens: Option<LenientNumber>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Option<LenientNumber>,
}

impl WireUsage {
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens = later
            .cache_creation_input_tokens
            .or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
        self.cache_read_input_tokens = later
            .cache_read_input_tokens
            .or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.output_tokens_details = later.output_tokens_details.or(self.output_tokens_details);
    }

    fn usage(&self) -> Usage {
        let written = count(self.cache_creation_input_tokens);
        let read = count(self.cache_read_input_tokens);
        let creation = self.cache_creation.unwrap_or_default();
        let details = self.output_tokens_details.unwrap_or_default();
        Usage {
            prompt_tokens: count(self.input_tokens)
                .saturating_add(written)
                .saturating_add(read),
            completion_tokens: count(self.output_tokens),
            cached_tokens: read,
            cache_write_tokens: written,
            long_cache_write_tokens: count(creation.ephemeral_1h_input_tokens),
            reasoning_tokens: count(details.thinking_tokens),
            estimated: false,
        }
    }
}

impl BlockKind {
    /// Returns whether pieces of this type belong to such a block.
    fn takes(&self, delta: &str) -> bool {
        match delta {
            "text_delta" | "citations_delta" => *self == Self::Text,
            "thinking_delta" | "signature_delta" => *self == Self::Thinking,
            "input_json_delta" => matches!(self, Self::Call { .. } | Self::Other),
            _ => false,
        }
    }
}

impl Block {
    fn new(index: Option<u64>, kind: BlockKind) -> Self {
        Self {
            index,
            kind,
            text: String::new(),
            streamed_input: String::new(),
            fields: Map::new(),
        }
    }

    /// Returns whether the streamed input is complete.
    fn has_whole_input(&self) -> bool {
        serde_json::from_str::<IgnoredAny>(&self.streamed_input).is_ok()
    }

    /// Adds the block to the answer.
    fn add_to(mut self, draft: &mut Draft) -> Result<(), ModelError> {
        let has_whole_input = self.has_whole_input();
        match self.kind {
            BlockKind::Text => {
                draft.begin_text();
                draft.push_text(&self.text, &mut NoDeltas)?;
            }
            BlockKind::Thinking => {
                draft.begin_reasoning();
                draft.push_reasoning(&self.text, &mut NoDeltas)?;
            }
            BlockKind::Call { id, name, input } => {
                draft.begin_call(&id, &name)?;
                // Some servers send the whole input at the start, and stream it again.
                let uses_start_input = !input.is_empty() && !has_whole_input;
                draft.push_arguments(if uses_start_input {
                    &input
                } else {
                    &self.streamed_input
                })?;
            }
            BlockKind::Other => {
                if let Ok(input) = serde_json::from_str::<Value>(&self.streamed_input) {
                    self.fields.insert("input".to_owned(), input);
                }
                return draft.push_opaque(Value::Object(self.fields));
            }
        }
        draft.set_fields(self.fields)
    }
}

impl MessageAnswer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            size: AnswerSize::default(),
            blocks: Vec::new(),
            progress: Progress::Open,
            finish_reason: None,
            usage: WireUsage::default(),
            has_usage: false,
        }
    }

    fn add_usage(&mut self, usage: Option<WireUsage>) {
        if let Some(usage) = usage {
            self.usage.update(usage);
            self.has_usage = true;
        }
    }

    /// Starts a block. What it contains beyond its text or arguments is kept for the service.
    fn begin_block(
        &mut self,
        index: Option<u64>,
        mut block: Map<String, Value>,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let mut take = |name: &str| match block.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let kind = take("type");
        let mut text = String::new();
        let kind = match kind.as_str() {
            "text" => {
                text = take("text");
                BlockKind::Text
            }
            "thinking" => {
                text = take("thinking");
                BlockKind::Thinking
            }
            "tool_use" => {
                let id = take("id");
                let name = take("name");
                let input = match block.remove("input") {
                    Some(Value::Object(input)) if !input.is_empty() => {
                        Value::Object(input).to_string()
                    }
                    _ => String::new(),
                };
                self.size.tool_calls += 1;
                self.size.text_bytes += id.len() + name.len();
                self.size.argument_bytes += input.len();
                BlockKind::Call { id, name, input }
            }
            _ => {
                block.insert("type".to_owned(), kind.into());
                BlockKind::Other
            }
        };
        if kind != BlockKind::Other {
            block.retain(|_, value| !value.is_null());
            if block.get("signature").and_then(Value::as_str) == Some("") {
                block.remove("signature");
            }
        }
        self.size.text_bytes += block
            .values()
            .map(|value| value.to_string().len())
            .sum::<usize>();
        self.blocks.push(Block {
            fields: block,
            ..Block::new(index, kind)
        });
        self.push_text(self.blocks.len() - 1, text, deltas)
    }

    /// Adds text or reasoning to a block.
    fn push_text(
        &mut self,
        position: usize,
        text: String,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let block = &mut self.blocks[position];
        block.text.push_str(&text);
        self.size.text_bytes += text.len();
        if !text.is_empty() {
            let is_text = block.kind == BlockKind::Text;
            deltas.push(if is_text {
                Delta::Text { text }
            } else {
                Delta::Reasoning { text }
            });
        }
        Ok(self.limits.check(self.size)?)
    }

    /// Returns the position of the block to which a piece belongs. Text without a block starts one;
    /// other pieces without a block belong to none.
    fn position(&mut self, index: Option<u64>, delta: &str) -> Option<usize> {
        let takes = |block: &Block| block.kind.takes(delta);
        let of_index = self
            .blocks
            .iter()
            .rposition(|block| block.index == index && takes(block));
        let position = match index {
            Some(_) => of_index,
            None => of_index.or_else(|| self.blocks.iter().rposition(takes)),
        };
        let kind = match delta {
            "text_delta" => BlockKind::Text,
            "thinking_delta" => BlockKind::Thinking,
            // A piece with the index of no call continues the last call whose input is not
            // complete.
            "input_json_delta" => {
                let is_open = |block: &Block| takes(block) && !block.has_whole_input();
                return position.or_else(|| self.blocks.iter().rposition(is_open));
            }
            _ => return position,
        };
        position.or_else(|| {
            self.blocks.push(Block::new(index, kind));
            Some(self.blocks.len() - 1)
        })
    }

    fn add_delta(
        &mut self,
        index: Option<u64>,
        delta: EventDelta,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let Some(position) = self.position(index, &delta.r#type) else {
            return Ok(());
        };
        let block = &mut self.blocks[position];
        match delta.r#type.as_str() {
            "text_delta" => self.push_text(position, delta.text.unwrap_or_default(), deltas),
            "thinking_delta" => {
                self.push_text(position, delta.thinking.unwrap_or_default(), deltas)
            }
            "signature_delta" => {
                let signature = delta.signature.unwrap_or_default();
                self.size.text_bytes += signature.len();
                block
                    .fields
                    .insert("signature".to_owned(), signature.into());
                Ok(self.limits.check(self.size)?)
            }
            "input_json_delta" => {
                let json = delta.partial_json.unwrap_or_default();
                self.size.argument_bytes += json.len();
                block.streamed_input.push_str(&json);
                Ok(self.limits.check(self.size)?)
            }
            "citations_delta" => {
                let citation = delta.citation.unwrap_or_default();
                self.size.text_bytes += citation.to_string().len();
                match block
                    .fields
                    .entry("citations")
                    .or_insert_with(|| Value::Array(Vec::new()))
                {
                    Value::Array(list) => list.push(citation),
                    other => *other = Value::Array(vec![citation]),
                }
                Ok(self.limits.check(self.size)?)
            }
            _ => Ok(()),
        }
    }
}

impl AnswerFormat for MessageAnswer {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let event: Event = serde_json::from_slice(data).map_err(|_| EventError::Unknown)?;
        let index = event.index.map(|index| index.0);
        match event.r#type.as_str() {
            "message_start" => self.add_usage(event.message.and_then(|message| message.usage)),
            "content_block_start" => {
                self.begin_block(index, event.content_block.unwrap_or_default(), deltas)?
            }
            "content_block_delta" => {
                self.add_delta(index, event.delta.unwrap_or_default(), deltas)?
            }
            "message_delta" => {
                self.add_usage(event.usage);
                if let Some(reason) = event.delta.and_then(|delta| delta.stop_reason) {
                    self.finish_reason = Some(reason);
                    self.progress = Progress::Finished;
                }
            }
            "message_stop" => self.progress = Progress::Ended,
            "error" => return Err(EventError::Service(ErrorBody::read(data))),
            "" => return Err(EventError::Unknown),
            _ => {}
        }
        Ok(())
    }

    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        #[derive(Deserialize)]
        struct Whole {
            content: Vec<Map<String, Value>>,
            stop_reason: Option<String>,
            usage: Option<WireUsage>,
        }
        let Ok(whole) = serde_json::from_slice::<Whole>(body) else {
            return Err(EventError::of_body(body));
        };
        for block in whole.content {
            self.begin_block(None, block, deltas)?;
        }
        self.add_usage(whole.usage);
        self.finish_reason = whole.stop_reason;
        self.progress = Progress::Ended;
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn size(&self) -> AnswerSize {
        self.size
    }

    fn usage(&self) -> Option<Usage> {
        if self.has_usage {
            Some(self.usage.usage())
        } else {
            None
        }
    }

    fn finish(mut self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        let usage = self.usage();
        // Some servers count from 0 again after each kind of block. Then the order of arrival
        // counts.
        let indexes: HashSet<u64> = self.blocks.iter().filter_map(|block| block.index).collect();
        if indexes.len() == self.blocks.len() {
            self.blocks.sort_by_key(|block| block.index);
        }
        let mut draft = Draft::new(self.limits);
        for block in self.blocks {
            block
                .add_to(&mut draft)
                .map_err(|_| "a block that is too large")?;
        }
        draft.has_usage = usage.is_some();
        draft.usage = usage.unwrap_or_default();
        draft.finish_reason = self.finish_reason;
        draft.finish()
    }
}
