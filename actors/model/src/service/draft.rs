//! An answer in progress, for APIs that send it in ordered parts.
//!
//! Whatever a service sends, the resulting completion can be sent back: every call has a name and a
//! unique id. The parts are recorded with the service's data about them, in the order of the
//! service.

use serde_json::{Map, Value};
use soong_protocol::{Delta, ProviderItem, ToolCall, Usage};

use super::calls::{finish_reason, with_unique_ids};
use crate::{
    Completion, DeltaSink, ModelError,
    limits::{AnswerLimits, AnswerSize},
};

/// Returns a value as an object, and makes it one if it is not.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("it is an object"),
    }
}

/// Ignores deltas, which were passed on when they arrived.
pub(crate) struct NoDeltas;

impl DeltaSink for NoDeltas {
    fn push(&mut self, _: Delta) {}
}

/// An answer in progress.
pub(crate) struct Draft {
    limits: AnswerLimits,
    size: AnswerSize,
    text: String,
    reasoning: String,
    calls: Vec<ToolCall>,
    items: Vec<ProviderItem>,
    pub(crate) usage: Usage,
    /// Whether the service reported the usage.
    pub(crate) has_usage: bool,
    /// Why the model stopped, in the words of the service.
    pub(crate) finish_reason: Option<String>,
}

impl Draft {
    pub(crate) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            size: AnswerSize::default(),
            text: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            items: Vec::new(),
            usage: Usage::default(),
            has_usage: false,
            finish_reason: None,
        }
    }

    /// Starts a part of the text.
    pub(crate) fn begin_text(&mut self) {
        self.items.push(ProviderItem::Text {
            bytes: 0,
            data: Value::Null,
        });
    }

    /// Starts a part of the reasoning.
    pub(crate) fn begin_reasoning(&mut self) {
        self.items.push(ProviderItem::Reasoning {
            bytes: 0,
            data: Value::Null,
        });
    }

    /// Adds text to the last part, or to a new one if the last one is not text.
    pub(crate) fn push_text(
        &mut self,
        text: &str,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        if !matches!(self.items.last(), Some(ProviderItem::Text { .. })) {
            self.begin_text();
        }
        if let Some(ProviderItem::Text { bytes, .. }) = self.items.last_mut() {
            *bytes += text.len();
        }
        self.text.push_str(text);
        if !text.is_empty() {
            deltas.push(Delta::Text {
                text: text.to_owned(),
            });
        }
        self.grow(text.len())
    }

    /// Adds reasoning to the last part, or to a new one if the last one is not reasoning.
    pub(crate) fn push_reasoning(
        &mut self,
        text: &str,
        deltas: &mut dyn DeltaSink,
    ) -> Result<(), ModelError> {
        if !matches!(self.items.last(), Some(ProviderItem::Reasoning { .. })) {
            self.begin_reasoning();
        }
        if let Some(ProviderItem::Reasoning { bytes, .. }) = self.items.last_mut() {
            *bytes += text.len();
        }
        self.reasoning.push_str(text);
        if !text.is_empty() {
            deltas.push(Delta::Reasoning {
                text: text.to_owned(),
            });
        }
        self.grow(text.len())
    }

    /// Starts a call. `id` may be empty.
    pub(crate) fn begin_call(&mut self, id: &str, name: &str) -> Result<(), ModelError> {
        self.calls.push(ToolCall {
            id: id.to_owned(),
            name: name.to_owned(),
            arguments: String::new(),
        });
        self.items.push(ProviderItem::Call { data: Value::Null });
        self.size.tool_calls += 1;
        self.grow(id.len() + name.len())
    }

    /// Adds JSON text to the arguments of the last call.
    pub(crate) fn push_arguments(&mut self, json: &str) -> Result<(), ModelError> {
        if let Some(call) = self.calls.last_mut() {
            call.arguments.push_str(json);
        }
        self.size.argument_bytes += json.len();
        self.limits.check(self.size)
    }

    /// Adds a part that only the service can read.
    pub(crate) fn push_opaque(&mut self, data: Value) -> Result<(), ModelError> {
        let bytes = data.to_string().len();
        self.items.push(ProviderItem::Opaque(data));
        self.grow(bytes)
    }

    /// Returns the service's data about the last part. `None` if there is no part.
    fn data(&mut self) -> Option<&mut Value> {
        match self.items.last_mut()? {
            ProviderItem::Reasoning { data, .. }
            | ProviderItem::Text { data, .. }
            | ProviderItem::Call { data } => Some(data),
            ProviderItem::Opaque(data) => Some(data),
        }
    }

    /// Sets a field of the service's data about the last part.
    pub(crate) fn set_field(&mut self, name: &str, value: Value) -> Result<(), ModelError> {
        let bytes = value.to_string().len();
        if let Some(data) = self.data() {
            object(data).insert(name.to_owned(), value);
        }
        self.grow(bytes)
    }

    /// Sets fields of the service's data about the last part.
    pub(crate) fn set_fields(&mut self, fields: Map<String, Value>) -> Result<(), ModelError> {
        fields
            .into_iter()
            .try_for_each(|(name, value)| self.set_field(&name, value))
    }

    fn grow(&mut self, bytes: usize) -> Result<(), ModelError> {
        self.size.text_bytes += bytes;
        self.limits.check(self.size)
    }

    pub(crate) fn size(&self) -> AnswerSize {
        self.size
    }

    /// Returns the usage that the service has reported so far.
    pub(crate) fn reported_usage(&self) -> Option<Usage> {
        self.has_usage.then_some(self.usage)
    }

    /// Returns the completion and its parts for the service, or a description of what is wrong with
    /// it. There are no parts if the service sent no data about any of them.
    pub(crate) fn finish(self) -> Result<(Completion, Vec<ProviderItem>), &'static str> {
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err("a tool call without a name");
        }
        let reason = self.finish_reason.as_deref().unwrap_or("stop");
        let usage = self.reported_usage();
        let completion = Completion {
            finish_reason: finish_reason(reason, !self.calls.is_empty()).to_owned(),
            text: self.text,
            reasoning: Some(self.reasoning).filter(|reasoning| !reasoning.is_empty()),
            tool_calls: with_unique_ids(self.calls),
            usage,
            ..Completion::default()
        };
        let has_data = |item: &ProviderItem| match item {
            ProviderItem::Reasoning { data, .. }
            | ProviderItem::Text { data, .. }
            | ProviderItem::Call { data } => !data.is_null(),
            ProviderItem::Opaque(_) => true,
        };
        let items = if self.items.iter().any(has_data) {
            self.items
        } else {
            Vec::new()
        };
        Ok((completion, items))
    }
}
