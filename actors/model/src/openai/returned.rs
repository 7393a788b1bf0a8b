//! Data of earlier answers that a service expects back: the reasoning, OpenRouter's parts of it,
//! and Gemini's thought signatures.
//!
//! Data is returned to the service, account and model that sent it. Gemini 3 and DeepSeek reject
//! tool calls that lack it, so calls of other models get the substitute that these services accept.
//!
//! Elsewhere: collecting the data (`assemble.rs`), repeating a request without it
//! (`service/failure.rs`).

use std::sync::LazyLock;

use serde_json::{Value, json};
use soong_protocol::{Message, ProviderData, ProviderItem, Role};

use super::reasoning_details::{self, NOT_RETURNED, REASONING_DETAILS};
use crate::service::{Call, conversation::own_data};

/// Signature that Gemini accepts for a call of another model.
static OTHER_MODELS_SIGNATURE: LazyLock<Value> =
    LazyLock::new(|| json!({"google": {"thought_signature": "skip_thought_signature_validator"}}));
/// Reasoning that DeepSeek accepts for an answer of another model.
const OTHER_MODELS_REASONING: &str = "(not recorded)";

/// Rules for the data that one request returns.
pub(super) struct ReturnedData<'a> {
    call: Call<'a>,
    needs_signatures: bool,
    needs_reasoning: bool,
}

/// Data that is returned with a message.
#[derive(Default)]
pub(super) struct MessageData<'a> {
    pub(super) reasoning: Option<&'a str>,
    /// OpenRouter's parts of the reasoning.
    pub(super) reasoning_details: Vec<Value>,
    pub(super) extra: Option<&'a Value>,
    /// Data of each call, in order; empty if there is none.
    calls: Vec<Option<&'a Value>>,
}

impl<'a> MessageData<'a> {
    pub(super) fn call(&self, index: usize) -> Option<&'a Value> {
        self.calls.get(index).copied().flatten()
    }
}

impl<'a> ReturnedData<'a> {
    pub(super) fn of(call: Call<'a>) -> Self {
        let name = call.model.to_ascii_lowercase();
        let needs_reasoning = !call.adaptation.no_provider_data && name.contains("deepseek");
        Self {
            call,
            needs_signatures: is_gemini_3(&name),
            needs_reasoning,
        }
    }

    /// Returns the data that is sent with a message. It depends on the message alone, so that the
    /// beginning of a conversation stays the same.
    pub(super) fn data(&self, message: &'a Message) -> MessageData<'a> {
        if message.role != Role::Assistant {
            return MessageData::default();
        }
        let own = own_data(&self.call, message, false);
        let mut data = own.map_or_else(MessageData::default, |own| of_items(own, message));
        if self.needs_reasoning && data.reasoning.is_none() {
            data.reasoning = Some(OTHER_MODELS_REASONING);
        }
        if self.needs_signatures && own.is_none() && !message.tool_calls.is_empty() {
            data.calls = vec![Some(&*OTHER_MODELS_SIGNATURE)];
        }
        data
    }
}

fn of_items<'a>(own: &'a ProviderData, message: &'a Message) -> MessageData<'a> {
    let mut data = MessageData::default();
    let mut reasoning = message.reasoning.as_deref().unwrap_or_default();
    for item in &own.items {
        match item {
            ProviderItem::Reasoning { bytes, data: about } => {
                let (text, rest) = reasoning
                    .split_at_checked(*bytes)
                    .unwrap_or((reasoning, ""));
                reasoning = rest;
                match reasoning_details::restored(about, text) {
                    Some(detail) => data.reasoning_details.push(detail),
                    None if *about != NOT_RETURNED => data.reasoning = message.reasoning.as_deref(),
                    None => {}
                }
            }
            ProviderItem::Text { data: extra, .. } => {
                data.extra = Some(extra).filter(|extra| !extra.is_null())
            }
            ProviderItem::Call { data: extra } => data
                .calls
                .push(Some(extra).filter(|extra| !extra.is_null())),
            ProviderItem::Opaque(opaque) => {
                let details = opaque[REASONING_DETAILS].as_array();
                data.reasoning_details
                    .extend(details.into_iter().flatten().cloned());
            }
        }
    }
    data
}

/// Returns whether a model name, in lower case, is one of Gemini 3 or later.
fn is_gemini_3(model: &str) -> bool {
    let version = model
        .split_once("gemini-")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect());
    version
        .and_then(|version: String| version.parse::<u32>().ok())
        .is_some_and(|version| version >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gemini_3_is_recognized_by_its_name() {
        for (model, expected) in [
            ("gemini-3-pro-preview", true),
            ("google/gemini-3.5-flash", true),
            ("gemini-10-pro", true),
            ("gemini-2.5-pro", false),
            ("gemini-pro", false),
            ("gpt-5", false),
        ] {
            assert_eq!(is_gemini_3(model), expected, "{model}");
        }
    }
}
