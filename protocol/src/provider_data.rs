//! Data of an answer that only the service that made it can read: signatures, encrypted reasoning.
//!
//! A provider returns it unchanged in later requests to the same service. The texts and calls
//! themselves are in the message; the items give the order in which the service sent them. Clients
//! do not see this data.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The service and the model that made an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelSource {
    /// Format of the requests: the value of `provider`, such as `openai`.
    pub dialect: String,
    /// Base URL of the service, without user and password.
    pub base_url: String,
    /// Name of the environment variable with the key of the account.
    pub api_key_env: String,
    /// Name of the model.
    pub model: String,
}

/// Data of an answer for the service that made it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderData {
    /// The service that can read it.
    pub source: ModelSource,
    /// The parts of the answer, in the order of the service.
    pub items: Vec<ProviderItem>,
}

/// A part of an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProviderItem {
    /// The next bytes of the reasoning.
    Reasoning {
        /// Number of bytes.
        bytes: usize,
        /// Data of the service about them.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        data: Value,
    },
    /// The next bytes of the text.
    Text {
        /// Number of bytes.
        bytes: usize,
        /// Data of the service about them.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        data: Value,
    },
    /// The next tool call.
    Call {
        /// Data of the service about it.
        #[serde(default, skip_serializing_if = "Value::is_null")]
        data: Value,
    },
    /// A part that only the service can read.
    Opaque(Value),
}

impl ProviderData {
    /// Returns whether the service accepts the data only after the same messages as before. That is
    /// so for the signed reasoning of Anthropic's models, also behind OpenRouter, whose parts of
    /// the reasoning name their format.
    pub fn is_bound_to_beginning(&self) -> bool {
        let is_anthropic = |data: &Value| {
            data["format"]
                .as_str()
                .is_some_and(|name| name.starts_with("anthropic"))
        };
        self.source.dialect == "anthropic"
            || self.items.iter().any(|item| match item {
                ProviderItem::Reasoning { data, .. } => is_anthropic(data),
                ProviderItem::Opaque(data) => data["reasoning_details"]
                    .as_array()
                    .is_some_and(|parts| parts.iter().any(is_anthropic)),
                ProviderItem::Text { .. } | ProviderItem::Call { .. } => false,
            })
    }

    /// Returns the numbers of bytes of text and reasoning, and the number of calls, that the items
    /// describe.
    pub(crate) fn described(&self) -> (usize, usize, usize) {
        let mut text = 0;
        let mut reasoning = 0;
        let mut calls = 0;
        for item in &self.items {
            match item {
                ProviderItem::Reasoning { bytes, .. } => reasoning += bytes,
                ProviderItem::Text { bytes, .. } => text += bytes,
                ProviderItem::Call { .. } => calls += 1,
                ProviderItem::Opaque(_) => {}
            }
        }
        (text, reasoning, calls)
    }
}
