//! Events of an answer.

use serde::Deserialize;
use serde_json::{Map, Value};
use soong_protocol::{ProviderItem, Usage};

use crate::{
    Completion, DeltaSink,
    limits::{AnswerLimits, AnswerSize},
    service::{
        answer::{AnswerFormat, EventError, Progress},
        draft::Draft,
        failure::ErrorBody,
    },
};

/// An answer in progress.
pub(crate) struct MessageAnswer {
    draft: Draft,
    progress: Progress,
    /// The block that is being received.
    block: BlockKind,
    /// Input of a call that the service executes itself, as far as received.
    service_input: String,
    usage: WireUsage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    Text,
    Thinking,
    Call,
    /// It arrived complete, or is not known.
    Other,
}

/// An event. Fields of unknown events are ignored.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: String,
    message: Option<StartedMessage>,
    content_block: Map<String, Value>,
    delta: EventDelta,
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
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct CacheCreation {
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OutputDetails {
    thinking_tokens: Option<u64>,
}

impl WireUsage {
    fn update(&mut self, later: Self) {
        self.input_tokens = later.input_tokens.or(self.input_tokens);
        self.cache_creation_input_tokens = later.cache_creation_input_tokens.or(self.cache_creation_input_tokens);
        self.cache_creation = later.cache_creation.or(self.cache_creation);
        self.cache_read_input_tokens = later.cache_read_input_tokens.or(self.cache_read_input_tokens);
        self.output_tokens = later.output_tokens.or(self.output_tokens);
        self.output_tokens_details = later.output_tokens_details.or(self.output_tokens_details);
    }
}

impl MessageAnswer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        let (progress, block) = (Progress::Open, BlockKind::Other);
        Self { draft: Draft::new(limits), progress, block, service_input: String::new(), usage: WireUsage::default() }
    }

    fn add_usage(&mut self, usage: Option<WireUsage>) {
        let Some(usage) = usage else { return };
        self.usage.update(usage);
        let count = |tokens: Option<u64>| tokens.unwrap_or(0);
        let now = &self.usage;
        let (written, read) = (count(now.cache_creation_input_tokens), count(now.cache_read_input_tokens));
        self.draft.has_usage = true;
        self.draft.usage.prompt_tokens = count(now.input_tokens) + written + read;
        self.draft.usage.cached_tokens = read;
        self.draft.usage.cache_write_tokens = written;
        self.draft.usage.long_cache_write_tokens =
            now.cache_creation.and_then(|creation| creation.ephemeral_1h_input_tokens).unwrap_or(0);
        self.draft.usage.completion_tokens = count(now.output_tokens);
        self.draft.usage.reasoning_tokens = now.output_tokens_details.map_or(0, |all| count(all.thinking_tokens));
    }

    /// Starts a block. What it contains beyond its text or arguments is kept for the service.
    fn begin_block(&mut self, mut block: Map<String, Value>, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let mut take = |name: &str| match block.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let kind = take("type");
        self.block = match kind.as_str() {
            "text" => {
                let text = take("text");
                self.draft.begin_text();
                self.draft.push_text(&text, deltas)?;
                BlockKind::Text
            }
            "thinking" => {
                let text = take("thinking");
                self.draft.begin_reasoning();
                self.draft.push_reasoning(&text, deltas)?;
                BlockKind::Thinking
            }
            "tool_use" => {
                self.draft.begin_call(&take("id"), &take("name"))?;
                match block.remove("input") {
                    Some(Value::Object(input)) if !input.is_empty() => {
                        self.draft.push_arguments(&Value::Object(input).to_string())?;
                    }
                    _ => {}
                }
                BlockKind::Call
            }
            _ => {
                block.insert("type".to_owned(), kind.into());
                self.draft.push_opaque(Value::Object(block))?;
                self.block = BlockKind::Other;
                return Ok(());
            }
        };
        block.retain(|_, value| !value.is_null());
        if block.get("signature").and_then(Value::as_str) == Some("") {
            block.remove("signature");
        }
        Ok(self.draft.set_fields(block)?)
    }

    fn end_block(&mut self) -> Result<(), EventError> {
        let json = std::mem::take(&mut self.service_input);
        if !json.is_empty() {
            let input = serde_json::from_str(&json).map_err(|_| EventError::Unknown)?;
            self.draft.set_field("input", input)?;
        }
        Ok(())
    }

    fn add_delta(&mut self, delta: EventDelta, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        match (delta.r#type.as_str(), self.block) {
            ("text_delta", BlockKind::Text) => self.draft.push_text(&delta.text.unwrap_or_default(), deltas)?,
            ("thinking_delta", BlockKind::Thinking) => {
                self.draft.push_reasoning(&delta.thinking.unwrap_or_default(), deltas)?;
            }
            ("signature_delta", BlockKind::Thinking) => {
                self.draft.set_field("signature", delta.signature.unwrap_or_default().into())?;
            }
            ("input_json_delta", BlockKind::Call) => {
                self.draft.push_arguments(&delta.partial_json.unwrap_or_default())?;
            }
            ("input_json_delta", BlockKind::Other) => {
                self.service_input.push_str(&delta.partial_json.unwrap_or_default());
            }
            ("citations_delta", BlockKind::Text) => {
                self.draft.append_to_field("citations", delta.citation.unwrap_or_default())?;
            }
            _ => {}
        }
        Ok(())
    }
}

impl AnswerFormat for MessageAnswer {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let event: Event = serde_json::from_slice(data).map_err(|_| EventError::Unknown)?;
        match event.r#type.as_str() {
            "message_start" => self.add_usage(event.message.and_then(|message| message.usage)),
            "content_block_start" => self.begin_block(event.content_block, deltas)?,
            "content_block_delta" => self.add_delta(event.delta, deltas)?,
            "content_block_stop" => self.end_block()?,
            "message_delta" => {
                self.add_usage(event.usage);
                if let Some(reason) = event.delta.stop_reason {
                    self.draft.finish_reason = Some(reason);
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
            self.begin_block(block, deltas)?;
        }
        self.add_usage(whole.usage);
        self.draft.finish_reason = whole.stop_reason;
        self.progress = Progress::Ended;
        Ok(())
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn size(&self) -> AnswerSize {
        let mut size = self.draft.size();
        size.argument_bytes += self.service_input.len();
        size
    }

    fn usage(&self) -> Option<Usage> {
        self.draft.reported_usage()
    }

    fn finish(self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        self.draft.finish()
    }
}
