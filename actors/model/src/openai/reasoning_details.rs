//! OpenRouter's parts of the reasoning: collected from a stream, stored, and sent back as they
//! arrived.
//!
//! A part has a type: `reasoning.text` (with `text`, and the model's `signature`),
//! `reasoning.summary` (with `summary`) or `reasoning.encrypted` (with `data`). A part arrives in
//! pieces, which have the same type and index. Models behind OpenRouter reject a conversation with
//! tool calls whose parts are missing or changed
//! (<https://openrouter.ai/docs/guides/best-practices/reasoning-tokens>). Pure.

use serde_json::{Map, Value, value::RawValue};
use soong_protocol::ProviderItem;

/// Name of the parts in answers and requests, and of the item that stores those without a text of
/// the message.
pub(super) const REASONING_DETAILS: &str = "reasoning_details";

/// Data of reasoning that is not sent back, because the service sent it under another name than
/// `reasoning_content`.
pub(super) const NOT_RETURNED: &str = "not_returned";

/// The parts of an answer in progress.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails {
    parts: Vec<Map<String, Value>>,
}

impl ReasoningDetails {
    /// Adds pieces, and returns their text. Pieces that are no objects are skipped.
    pub(super) fn add(&mut self, pieces: &RawValue) -> String {
        let pieces: Vec<Value> = serde_json::from_str(pieces.get()).unwrap_or_default();
        let mut text = String::new();
        for piece in pieces {
            let Value::Object(piece) = piece else {
                continue;
            };
            text.push_str(text_of(&piece));
            self.add_piece(piece);
        }
        text
    }

    fn add_piece(&mut self, piece: Map<String, Value>) {
        let name = text_name(&piece);
        let Some(part) = self
            .parts
            .last_mut()
            .filter(|part| name.is_some() && continues(part, &piece))
        else {
            self.parts.push(piece);
            return;
        };
        for (key, value) in piece {
            match (part.get_mut(&key), value) {
                (Some(Value::String(text)), Value::String(more)) if Some(key.as_str()) == name => {
                    text.push_str(&more)
                }
                (Some(_), Value::Null) => {}
                (_, value) => drop(part.insert(key, value)),
            }
        }
    }

    /// Returns the parts as items of the answer. `reasoning` is the text of the message: a part
    /// whose text continues it is stored without it.
    pub(super) fn items(self, reasoning: &str) -> Vec<ProviderItem> {
        let texts: String = self.parts.iter().map(text_of).collect();
        if texts != reasoning {
            let parts = self
                .parts
                .into_iter()
                .map(Value::Object)
                .collect::<Vec<_>>();
            let whole = ProviderItem::Reasoning {
                bytes: reasoning.len(),
                data: NOT_RETURNED.into(),
            };
            return vec![
                whole,
                ProviderItem::Opaque(serde_json::json!({ REASONING_DETAILS: parts })),
            ];
        }
        let mut items = Vec::new();
        for mut part in self.parts {
            let bytes = text_of(&part).len();
            if let Some(name) = text_name(&part).filter(|_| bytes > 0) {
                part.remove(name);
            }
            items.push(ProviderItem::Reasoning {
                bytes,
                data: Value::Object(part),
            });
        }
        items
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
}

/// Returns a stored part as it arrived. `text` is its part of the reasoning. `None` if the data is
/// no part.
pub(super) fn restored(data: &Value, text: &str) -> Option<Value> {
    let mut part = data.as_object()?.clone();
    if let Some(name) = text_name(&part).filter(|_| !text.is_empty()) {
        part.insert(name.to_owned(), text.into());
    }
    Some(Value::Object(part))
}

/// Returns the name of the field with the text of a part.
fn text_name(part: &Map<String, Value>) -> Option<&'static str> {
    match part.get("type").and_then(Value::as_str) {
        Some("reasoning.text") => Some("text"),
        Some("reasoning.summary") => Some("summary"),
        _ => None,
    }
}

fn text_of(part: &Map<String, Value>) -> &str {
    text_name(part)
        .and_then(|name| part.get(name))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns whether a piece belongs to the last part: it has the same type, and neither another
/// index nor another id.
fn continues(part: &Map<String, Value>, piece: &Map<String, Value>) -> bool {
    let is_same = |key: &str| match (part.get(key), piece.get(key)) {
        (Some(Value::Null) | None, _) | (_, Some(Value::Null) | None) => true,
        (Some(of_part), Some(of_piece)) => of_part == of_piece,
    };
    let is_signed = part.get("signature").is_some_and(Value::is_string);
    let has_text = !text_of(piece).is_empty();
    part.get("type") == piece.get("type")
        && is_same("index")
        && is_same("id")
        && !(is_signed && has_text)
}
