//! Events of an answer.
//!
//! An answer is a list of items, each with an index. Texts arrive in pieces; the complete item follows, and is what must
//! be sent back.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use soong_protocol::{Delta, ProviderItem, Usage};

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
pub(crate) struct ResponseAnswer {
    limits: AnswerLimits,
    size: AnswerSize,
    /// Items by index.
    items: BTreeMap<u64, Item>,
    progress: Progress,
    usage: Option<WireUsage>,
    finish_reason: Option<String>,
    is_refused: bool,
}

/// An item of the answer.
#[derive(Default)]
struct Item {
    /// Text, reasoning or arguments as streamed.
    streamed: String,
    /// Number of the part of the summary that arrived last.
    summary_index: u64,
    /// The item itself; complete when it is done.
    item: Map<String, Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    r#type: String,
    output_index: u64,
    item: Map<String, Value>,
    delta: Option<String>,
    /// Number of the part of a summary.
    summary_index: u64,
    response: Option<WireResponse>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireResponse {
    output: Option<Vec<Map<String, Value>>>,
    usage: Option<WireUsage>,
    incomplete_details: Option<IncompleteDetails>,
    error: Option<Value>,
    status: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct WireUsage {
    input_tokens: u64,
    output_tokens: u64,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
    cache_write_tokens_details: Option<CacheWriteDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct CacheWriteDetails {
    ttl_12h_tokens: Option<u64>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl From<WireUsage> for Usage {
    fn from(wire: WireUsage) -> Self {
        let (input, output) =
            (wire.input_tokens_details.unwrap_or_default(), wire.output_tokens_details.unwrap_or_default());
        Self {
            prompt_tokens: wire.input_tokens,
            completion_tokens: wire.output_tokens,
            cached_tokens: input.cached_tokens.unwrap_or(0),
            cache_write_tokens: input.cache_write_tokens.unwrap_or(0),
            long_cache_write_tokens: input.cache_write_tokens_details.and_then(|d| d.ttl_12h_tokens).unwrap_or(0),
            reasoning_tokens: output.reasoning_tokens.unwrap_or(0),
            estimated: false,
        }
    }
}

impl ResponseAnswer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            size: AnswerSize::default(),
            items: BTreeMap::new(),
            progress: Progress::Open,
            usage: None,
            finish_reason: None,
            is_refused: false,
        }
    }

    /// Sets an item that started, or that is complete. Text that was not streamed is passed on now.
    fn set_item(&mut self, index: u64, item: Map<String, Value>, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let is_call = item.get("type").and_then(Value::as_str) == Some("function_call");
        let is_new = !self.items.contains_key(&index);
        self.size.tool_calls += usize::from(is_new && is_call);
        self.is_refused |= !texts(&item, "content", "refusal").is_empty();
        let entry = self.items.entry(index).or_default();
        entry.item = item;
        self.size.text_bytes += entry.field("encrypted_content").len();
        if is_call && entry.streamed.is_empty() {
            self.size.argument_bytes += entry.field("arguments").len();
        }
        if entry.streamed.is_empty() {
            let (text, reasoning) = (entry.text(), entry.reasoning());
            entry.streamed = format!("{text}{reasoning}");
            self.size.text_bytes += entry.streamed.len();
            if !text.is_empty() {
                deltas.push(Delta::Text { text });
            }
            if !reasoning.is_empty() {
                deltas.push(Delta::Reasoning { text: reasoning });
            }
        }
        Ok(self.limits.check(self.size)?)
    }

    /// Adds a piece of text to an item.
    fn stream(&mut self, index: u64, piece: String) -> Result<(), EventError> {
        self.size.text_bytes += piece.len();
        self.items.entry(index).or_default().streamed.push_str(&piece);
        Ok(self.limits.check(self.size)?)
    }

    fn stream_reasoning(&mut self, event: Event, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let mut piece = event.delta.unwrap_or_default();
        let entry = self.items.entry(event.output_index).or_default();
        if event.summary_index > entry.summary_index && !piece.is_empty() {
            entry.summary_index = event.summary_index;
            piece.insert_str(0, PARAGRAPH);
        }
        deltas.push(Delta::Reasoning { text: piece.clone() });
        self.stream(event.output_index, piece)
    }

    /// Ends the answer with the whole response.
    fn end(&mut self, response: WireResponse, deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        self.progress = Progress::Ended;
        self.usage = response.usage.or(self.usage);
        let reason = response.incomplete_details.and_then(|details| details.reason);
        self.finish_reason = Some(reason.unwrap_or_else(|| match response.status.as_deref() {
            Some("incomplete") => "length".to_owned(),
            _ => "stop".to_owned(),
        }));
        for (index, item) in (0..).zip(response.output.unwrap_or_default()) {
            // Some services send an item, or its encrypted content, only here.
            let known = self.items.get(&index);
            let is_known = known.is_some_and(|known| known.item.get("id") == item.get("id") && known.is_complete());
            if !is_known && known.is_none_or(|known| known.item.get("type") == item.get("type")) {
                self.set_item(index, item, deltas)?;
            }
        }
        Ok(())
    }
}

/// Text between the parts of a summary.
const PARAGRAPH: &str = "\n\n";

impl Item {
    fn kind(&self) -> &str {
        self.item.get("type").and_then(Value::as_str).unwrap_or_default()
    }

    fn field(&self, name: &str) -> &str {
        self.item.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Returns whether everything has arrived that must be sent back.
    fn is_complete(&self) -> bool {
        self.kind() != "reasoning" || !self.field("encrypted_content").is_empty()
    }

    /// Returns the text of a message.
    fn text(&self) -> String {
        if self.kind() != "message" {
            return String::new();
        }
        texts(&self.item, "content", "text") + &texts(&self.item, "content", "refusal")
    }

    /// Returns the summary of the reasoning, else the reasoning itself.
    fn reasoning(&self) -> String {
        if self.kind() != "reasoning" {
            return String::new();
        }
        let summary = texts(&self.item, "summary", "text");
        if summary.is_empty() { texts(&self.item, "content", "text") } else { summary }
    }
}

/// Returns the texts in a list of parts.
fn texts(item: &Map<String, Value>, list: &str, field: &str) -> String {
    let parts = item.get(list).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let texts = parts.iter().filter_map(|part| part[field].as_str());
    texts.collect::<Vec<_>>().join(if list == "summary" { PARAGRAPH } else { "" })
}

impl AnswerFormat for ResponseAnswer {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let event: Event = serde_json::from_slice(data).map_err(|_| EventError::Unknown)?;
        match event.r#type.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                self.set_item(event.output_index, event.item, deltas)
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.is_refused |= event.r#type == "response.refusal.delta";
                let text = event.delta.unwrap_or_default();
                deltas.push(Delta::Text { text: text.clone() });
                self.stream(event.output_index, text)
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.stream_reasoning(event, deltas)
            }
            "response.function_call_arguments.delta" => {
                let json = event.delta.unwrap_or_default();
                self.size.argument_bytes += json.len();
                self.items.entry(event.output_index).or_default().streamed.push_str(&json);
                Ok(self.limits.check(self.size)?)
            }
            "response.completed" | "response.incomplete" => self.end(event.response.unwrap_or_default(), deltas),
            "response.failed" => {
                let error = event.response.and_then(|response| response.error).unwrap_or_default();
                let error = serde_json::json!({ "error": error }).to_string();
                Err(EventError::Service(ErrorBody::read(error.as_bytes())))
            }
            "error" => Err(EventError::Service(ErrorBody::read(data))),
            "" => Err(EventError::of_body(data)),
            _ => Ok(()),
        }
    }

    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let response: WireResponse = serde_json::from_slice(body).map_err(|_| EventError::of_body(body))?;
        if response.output.is_none() || response.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(EventError::of_body(body));
        }
        self.end(response, deltas)
    }

    fn progress(&self) -> Progress {
        self.progress
    }

    fn size(&self) -> AnswerSize {
        self.size
    }

    fn usage(&self) -> Option<Usage> {
        self.usage.map(Usage::from)
    }

    fn finish(self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        let mut draft = Draft::new(self.limits);
        // Items that follow reasoning without encrypted content are rejected if they have an id.
        let mut keeps_id = true;
        for item in self.items.into_values() {
            keeps_id = item.add_to(&mut draft, keeps_id).map_err(|_| "an item that is too large")?;
        }
        draft.has_usage = self.usage.is_some();
        draft.usage = self.usage.map_or_else(Usage::default, Usage::from);
        draft.finish_reason = if self.is_refused { Some("refusal".to_owned()) } else { self.finish_reason };
        draft.finish()
    }
}

impl Item {
    /// Adds the item to the answer. Returns whether the next item keeps its id.
    fn add_to(mut self, draft: &mut Draft, keeps_id: bool) -> Result<bool, crate::ModelError> {
        let kind = self.kind().to_owned();
        match kind.as_str() {
            "reasoning" => {
                let is_complete = self.is_complete();
                draft.begin_reasoning();
                draft.push_reasoning(&self.streamed, &mut NoDeltas)?;
                if is_complete {
                    // The service rejects the reasoning itself; it reads the encrypted one.
                    self.item.remove("content");
                    self.item.retain(|_, value| !value.is_null());
                    draft.set_fields(self.item)?;
                }
                return Ok(is_complete);
            }
            "message" => {
                draft.begin_text();
                draft.push_text(&self.streamed, &mut NoDeltas)?;
            }
            "function_call" => {
                let (id, name, arguments) = (self.field("call_id"), self.field("name"), self.field("arguments"));
                draft.begin_call(id, name)?;
                draft.push_arguments(if arguments.is_empty() { &self.streamed } else { arguments })?;
            }
            // An item of which only text arrived.
            "" if !self.streamed.is_empty() => {
                draft.begin_text();
                draft.push_text(&self.streamed, &mut NoDeltas)?;
                return Ok(keeps_id);
            }
            _ => draft.push_opaque(Value::Object(self.item.clone()))?,
        }
        if matches!(kind.as_str(), "message" | "function_call") {
            const IN_MESSAGE: [&str; 6] = ["type", "role", "content", "call_id", "name", "arguments"];
            let kept = |name: &str, value: &Value| {
                !IN_MESSAGE.contains(&name) && !value.is_null() && (keeps_id || !matches!(name, "id" | "status"))
            };
            self.item.retain(|name, value| kept(name, value));
            draft.set_fields(self.item)?;
        }
        Ok(keeps_id)
    }
}

/// Ignores deltas, which were passed on when they arrived.
struct NoDeltas;

impl DeltaSink for NoDeltas {
    fn push(&mut self, _: Delta) {}
}
