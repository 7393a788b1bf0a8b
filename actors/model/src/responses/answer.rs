//! Events of an answer.
//!
//! An answer is a list of items. Texts arrive in pieces; the complete item follows, and is what
//! must be sent back. The end repeats all items.
//!
//! Servers that call themselves compatible leave out the index of an item, count it from another
//! number, or change its id from event to event. So an item is found by its id or that of its call,
//! else by its index, else it is the last one that is not done. The index tells the order. The same
//! call occurs once.

use serde::Deserialize;
use serde_json::{Map, Value};
use soong_protocol::{Delta, ProviderItem, Usage};

use crate::{
    Completion, DeltaSink,
    limits::{AnswerLimits, AnswerSize},
    service::{
        answer::{AnswerFormat, EventError, Progress},
        draft::{Draft, NoDeltas},
        failure::ErrorBody,
        lenient::{LenientNumber, count},
    },
};

/// An answer in progress.
pub(crate) struct ResponseAnswer {
    limits: AnswerLimits,
    size: AnswerSize,
    /// Items in the order in which they arrived.
    items: Vec<Item>,
    progress: Progress,
    usage: Option<Usage>,
    finish_reason: Option<String>,
    is_refused: bool,
}

/// An item of the answer.
#[derive(Default)]
struct Item {
    /// Place in the order of the items, if the service has sent one.
    index: Option<u64>,
    /// Whether the service has sent the whole item.
    is_done: bool,
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
    output_index: Option<LenientNumber>,
    item_id: Option<String>,
    item: Option<Map<String, Value>>,
    delta: Option<String>,
    /// Number of the part of a summary.
    summary_index: Option<LenientNumber>,
    response: Option<WireResponse>,
}

impl Event {
    fn index(&self) -> Option<u64> {
        self.output_index.map(|index| index.0)
    }
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
    input_tokens: Option<LenientNumber>,
    output_tokens: Option<LenientNumber>,
    input_tokens_details: Option<InputDetails>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<LenientNumber>,
    cache_write_tokens: Option<LenientNumber>,
    cache_write_tokens_details: Option<CacheWriteDetails>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct CacheWriteDetails {
    ttl_12h_tokens: Option<LenientNumber>,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<LenientNumber>,
}

impl WireUsage {
    /// Returns the usage. `None` if it contains no counts.
    fn usage(self) -> Option<Usage> {
        if self.input_tokens.is_none() && self.output_tokens.is_none() {
            return None;
        }
        let input = self.input_tokens_details.unwrap_or_default();
        let output = self.output_tokens_details.unwrap_or_default();
        let written = input.cache_write_tokens_details.unwrap_or_default();
        Some(Usage {
            prompt_tokens: count(self.input_tokens),
            completion_tokens: count(self.output_tokens),
            cached_tokens: count(input.cached_tokens),
            cache_write_tokens: count(input.cache_write_tokens),
            long_cache_write_tokens: count(written.ttl_12h_tokens),
            reasoning_tokens: count(output.reasoning_tokens),
            estimated: false,
        })
    }
}

impl ResponseAnswer {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            size: AnswerSize::default(),
            items: Vec::new(),
            progress: Progress::Open,
            usage: None,
            finish_reason: None,
            is_refused: false,
        }
    }

    /// Returns the position of an item of the same kind with the same id, or with the same id of
    /// the call, that `may_be` it.
    fn position_of_same(
        &self,
        item: &Map<String, Value>,
        may_be: impl Fn(usize) -> bool,
    ) -> Option<usize> {
        let has_same = |known: &Item, name: &str| {
            let id = text_field(item, name);
            !id.is_empty() && known.field(name) == id
        };
        let position = |name: &str| {
            let is_same = |(position, known): (usize, &Item)| {
                may_be(position) && known.fits(item) && has_same(known, name)
            };
            self.items.iter().enumerate().position(is_same)
        };
        position("call_id").or_else(|| position("id"))
    }

    /// Returns the position of the item with this index, or of the last one if there is no index.
    /// `None` if it is done.
    fn position_of_open(&self, index: Option<u64>) -> Option<usize> {
        let position = match index {
            Some(_) => self.items.iter().rposition(|item| item.index == index)?,
            None => self.items.len().checked_sub(1)?,
        };
        if self.items[position].is_done {
            None
        } else {
            Some(position)
        }
    }

    /// Returns the position of the item to which an event belongs that carries the item itself.
    /// Adds an item if there is none.
    fn find_or_add(&mut self, index: Option<u64>, item: &Map<String, Value>) -> usize {
        // Some gateways give several calls the same id. With another index, the next one is another
        // call.
        let may_be = |position: usize| {
            let known = &self.items[position];
            !known.is_done || index.is_none() || known.index.is_none() || known.index == index
        };
        let open = || {
            self.position_of_open(index)
                .filter(|position| self.items[*position].fits(item))
        };
        match self.position_of_same(item, may_be).or_else(open) {
            Some(position) => position,
            None => self.add_item(index),
        }
    }

    /// Returns the position of the item to which a piece of a text, or of the arguments of a call,
    /// belongs. Adds an item if there is none.
    fn find_or_add_for_piece(&mut self, event: &Event) -> usize {
        let is_argument = event.r#type == "response.function_call_arguments.delta";
        let takes =
            |item: &Item| item.item.is_empty() || (item.kind() == "function_call") == is_argument;
        let id = event.item_id.as_deref().unwrap_or_default();
        let has_id = |item: &Item| !id.is_empty() && item.field("id") == id && takes(item);
        let open = || {
            self.position_of_open(event.index())
                .filter(|position| takes(&self.items[*position]))
        };
        match self.items.iter().position(has_id).or_else(open) {
            Some(position) => position,
            None => self.add_item(event.index()),
        }
    }

    fn add_item(&mut self, index: Option<u64>) -> usize {
        self.items.push(Item {
            index,
            ..Item::default()
        });
        self.items.len() - 1
    }

    /// Sets an item that started, or that is complete. Text that was not streamed is passed on now.
    fn set_item(
        &mut self,
        position: usize,
        item: Map<String, Value>,
        is_done: bool,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let is_call = text_field(&item, "type") == "function_call";
        self.is_refused |= !texts(&item, "content", "refusal").is_empty();
        let entry = &mut self.items[position];
        self.size.tool_calls += usize::from(is_call && entry.kind() != "function_call");
        // The same item is sent when it starts, when it is done, and at the end.
        let counted_encrypted = entry.field("encrypted_content").len();
        let counted_arguments = entry.field("arguments").len();
        entry.item = item;
        entry.is_done |= is_done;
        let encrypted = entry.field("encrypted_content").len();
        self.size.text_bytes += encrypted.saturating_sub(counted_encrypted);
        if is_call && entry.streamed.is_empty() {
            let arguments = entry.field("arguments").len();
            self.size.argument_bytes += arguments.saturating_sub(counted_arguments);
        }
        if entry.streamed.is_empty() {
            let text = entry.text();
            let reasoning = entry.reasoning();
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
    fn stream(&mut self, position: usize, piece: &str) -> Result<(), EventError> {
        self.size.text_bytes += piece.len();
        self.items[position].streamed.push_str(piece);
        Ok(self.limits.check(self.size)?)
    }

    fn stream_reasoning(
        &mut self,
        event: Event,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        let position = self.find_or_add_for_piece(&event);
        let mut piece = event.delta.unwrap_or_default();
        let summary_index = event.summary_index.map_or(0, |index| index.0);
        let entry = &mut self.items[position];
        if summary_index > entry.summary_index && !piece.is_empty() {
            entry.summary_index = summary_index;
            piece.insert_str(0, PARAGRAPH);
        }
        self.stream(position, &piece)?;
        deltas.push(Delta::Reasoning { text: piece });
        Ok(())
    }

    /// Ends the answer with the whole response.
    fn end(
        &mut self,
        response: WireResponse,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), EventError> {
        self.progress = Progress::Ended;
        self.usage = response.usage.and_then(WireUsage::usage).or(self.usage);
        let reason = response
            .incomplete_details
            .and_then(|details| details.reason);
        self.finish_reason = Some(reason.unwrap_or_else(|| match response.status.as_deref() {
            Some("incomplete") => "length".to_owned(),
            _ => "stop".to_owned(),
        }));
        let output = response.output.unwrap_or_default();
        let mut is_matched = vec![false; self.items.len()];
        let mut positions: Vec<Option<usize>> = Vec::with_capacity(output.len());
        for item in &output {
            let position = self.position_of_same(item, |position| !is_matched[position]);
            if let Some(position) = position {
                is_matched[position] = true;
            }
            positions.push(position);
        }
        for (index, (item, position)) in (0..).zip(output.into_iter().zip(positions)) {
            // If the ids have changed, it is the next item of its kind; a call must also do the
            // same.
            let alike = || {
                (0..is_matched.len()).find(|at| !is_matched[*at] && self.items[*at].is_like(&item))
            };
            let position = match position.or_else(alike) {
                Some(position) => position,
                None => self.add_item(None),
            };
            if let Some(is_matched) = is_matched.get_mut(position) {
                *is_matched = true;
            }
            let entry = &mut self.items[position];
            entry.index = Some(index);
            // Some services send an item, or its encrypted content, only here.
            if !entry.is_done || !entry.is_complete() {
                self.set_item(position, item, true, deltas)?;
            }
        }
        Ok(())
    }
}

/// Text between the parts of a summary.
const PARAGRAPH: &str = "\n\n";

impl Item {
    fn kind(&self) -> &str {
        text_field(&self.item, "type")
    }

    fn field(&self, name: &str) -> &str {
        text_field(&self.item, name)
    }

    /// Returns whether an item that was sent can be this one, as far as kind and call tell.
    fn fits(&self, item: &Map<String, Value>) -> bool {
        let is_same_kind = self.item.is_empty() || self.kind() == text_field(item, "type");
        let known_call = self.field("call_id");
        let call = text_field(item, "call_id");
        is_same_kind && (known_call == call || known_call.is_empty() || call.is_empty())
    }

    /// Returns whether an item that was sent can be this one with other ids.
    fn is_like(&self, item: &Map<String, Value>) -> bool {
        if self.item.is_empty() {
            return true;
        }
        if self.kind() != text_field(item, "type") {
            return false;
        }
        self.kind() != "function_call"
            || (self.has_name(item) && self.has_arguments(text_field(item, "arguments")))
    }

    fn has_name(&self, item: &Map<String, Value>) -> bool {
        self.field("name").is_empty() || self.field("name") == text_field(item, "name")
    }

    /// Returns whether these are the arguments of the call, in whatever notation.
    fn has_arguments(&self, arguments: &str) -> bool {
        let json = |text: &str| serde_json::from_str::<Value>(text).ok();
        let known = self.arguments();
        known == arguments || (json(known).is_some() && json(known) == json(arguments))
    }

    /// Returns the arguments of a call: of the whole item, else as streamed.
    fn arguments(&self) -> &str {
        let whole = self.field("arguments");
        if whole.is_empty() {
            &self.streamed
        } else {
            whole
        }
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
        if summary.is_empty() {
            texts(&self.item, "content", "text")
        } else {
            summary
        }
    }
}

/// Returns a field of an item; empty if it is no text.
fn text_field<'a>(item: &'a Map<String, Value>, name: &str) -> &'a str {
    item.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the texts in a list of parts.
fn texts(item: &Map<String, Value>, list: &str, field: &str) -> String {
    let parts = item
        .get(list)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    let texts = parts.iter().filter_map(|part| part[field].as_str());
    texts
        .collect::<Vec<_>>()
        .join(if list == "summary" { PARAGRAPH } else { "" })
}

impl AnswerFormat for ResponseAnswer {
    fn take_event(&mut self, data: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let event: Event = serde_json::from_slice(data).map_err(|_| EventError::Unknown)?;
        match event.r#type.as_str() {
            "response.output_item.added" | "response.output_item.done" => {
                let index = event.index();
                let item = event.item.unwrap_or_default();
                let position = self.find_or_add(index, &item);
                self.set_item(
                    position,
                    item,
                    event.r#type == "response.output_item.done",
                    deltas,
                )
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.is_refused |= event.r#type == "response.refusal.delta";
                let position = self.find_or_add_for_piece(&event);
                let text = event.delta.unwrap_or_default();
                self.stream(position, &text)?;
                deltas.push(Delta::Text { text });
                Ok(())
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                self.stream_reasoning(event, deltas)
            }
            "response.function_call_arguments.delta" => {
                let position = self.find_or_add_for_piece(&event);
                let json = event.delta.unwrap_or_default();
                self.size.argument_bytes += json.len();
                let entry = &mut self.items[position];
                entry.streamed.push_str(&json);
                if entry.item.is_empty() {
                    entry.item.insert("type".to_owned(), "function_call".into());
                    self.size.tool_calls += 1;
                }
                Ok(self.limits.check(self.size)?)
            }
            "response.completed" | "response.incomplete" => {
                self.end(event.response.unwrap_or_default(), deltas)
            }
            "response.failed" => {
                let error = event
                    .response
                    .and_then(|response| response.error)
                    .unwrap_or_default();
                let error = serde_json::json!({ "error": error }).to_string();
                Err(EventError::Service(ErrorBody::read(error.as_bytes())))
            }
            "error" => Err(EventError::Service(ErrorBody::read(data))),
            "" => Err(EventError::of_body(data)),
            _ => Ok(()),
        }
    }

    fn take_whole(&mut self, body: &[u8], deltas: &mut dyn DeltaSink) -> Result<(), EventError> {
        let response: WireResponse =
            serde_json::from_slice(body).map_err(|_| EventError::of_body(body))?;
        if response.output.is_none()
            || response
                .error
                .as_ref()
                .is_some_and(|error| !error.is_null())
        {
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
        self.usage
    }

    fn finish(mut self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        if self.items.iter().all(|item| item.index.is_some()) {
            self.items.sort_by_key(|item| item.index);
        }
        // A call that occurs twice with the same id is made once.
        let mut calls: Vec<(String, String)> = Vec::new();
        self.items.retain(|item| {
            let call = (
                item.field("call_id").to_owned(),
                item.arguments().to_owned(),
            );
            let is_repeated =
                item.kind() == "function_call" && !call.0.is_empty() && calls.contains(&call);
            calls.push(call);
            !is_repeated
        });
        let mut draft = Draft::new(self.limits);
        // Items that follow reasoning without encrypted content are rejected if they have an id.
        let mut keeps_id = true;
        for item in self.items {
            keeps_id = item
                .add_to(&mut draft, keeps_id)
                .map_err(|_| "an item that is too large")?;
        }
        draft.has_usage = self.usage.is_some();
        draft.usage = self.usage.unwrap_or_default();
        draft.finish_reason = if self.is_refused {
            Some("refusal".to_owned())
        } else {
            self.finish_reason
        };
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
                draft.begin_call(self.field("call_id"), self.field("name"))?;
                draft.push_arguments(self.arguments())?;
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
            const IN_MESSAGE: [&str; 6] =
                ["type", "role", "content", "call_id", "name", "arguments"];
            let is_kept = |name: &str, value: &Value| {
                !IN_MESSAGE.contains(&name)
                    && !value.is_null()
                    && (keeps_id || !matches!(name, "id" | "status"))
            };
            self.item.retain(|name, value| is_kept(name, value));
            draft.set_fields(self.item)?;
        }
        Ok(keeps_id)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn parts_that_are_sent_again_count_once() {
        let mut answer = ResponseAnswer::new(AnswerLimits {
            argument_bytes: 10,
            answer_bytes: 20,
            tool_calls: 1,
        });
        let items = [
            json!({"type": "reasoning", "id": "rs_1", "encrypted_content": "0123456789"}),
            json!({"type": "function_call", "call_id": "call_1", "arguments": "{\"a\": 123}"}),
        ];
        // Some services send the whole item when it starts; each sends it when it is done, and at
        // the end of the answer.
        for is_done in [false, true, true] {
            for (index, item) in (0..).zip(&items) {
                let Value::Object(item) = item.clone() else {
                    panic!("an item is an object");
                };
                let position = answer.find_or_add(Some(index), &item);
                let result = answer.set_item(position, item, is_done, &mut NoDeltas);
                assert!(result.is_ok(), "item {index} counts again");
            }
        }
        let size = answer.size;
        assert_eq!((size.argument_bytes, size.text_bytes), (10, 10));
    }
}
