//! The conversation of a request in the form that most APIs require: turns of the user and of the
//! model, in alternation.
//!
//! The results of calls come first in a turn of the user. Ids of calls are unique in the request.
//! The data of earlier answers is included if this service made them.
//!
//! Architecture invariant: a turn depends on its messages and on earlier ones only, so the
//! beginning of a conversation stays the same from request to request. Providers cache it, and
//! reject reasoning if what precedes it has changed.

use std::{
    borrow::Cow,
    collections::{HashMap, HashSet},
};

use serde_json::Value;
use soong_protocol::{Message, ModelSource, ProviderData, ProviderItem, Role, ToolCall};

use super::{Call, parts::InputPart};
use crate::ModelRequest;

/// Maximum length of the id of a call, in bytes.
const MAX_ID_BYTES: usize = 64;

/// A turn of the conversation.
pub(crate) enum Turn<'a> {
    /// Results of calls, then messages of the user and context.
    User {
        results: Vec<CallResult<'a>>,
        inputs: Vec<UserInput<'a>>,
    },
    /// An answer of a model.
    Model(Answer<'a>),
}

/// A part of a turn of the user that is not a result.
pub(crate) enum UserInput<'a> {
    Message {
        message: &'a Message,
        /// Whether it is the last of the first messages that requests of other runs contain too.
        ends_shared_part: bool,
    },
    /// Context of the run, which the runtime adds.
    Context(&'a str),
}

impl<'a> UserInput<'a> {
    /// Returns the texts and files, in order.
    pub(crate) fn parts(&self, request: &'a ModelRequest) -> Vec<InputPart<'a>> {
        match self {
            Self::Message { message, .. } => InputPart::of_message(message, request),
            Self::Context(text) => vec![InputPart::Text((*text).into())],
        }
    }

    /// Returns whether it is the last of the first messages that requests of other runs contain too.
    pub(crate) fn ends_shared_part(&self) -> bool {
        matches!(
            self,
            Self::Message {
                ends_shared_part: true,
                ..
            }
        )
    }

    /// Returns whether it is context of the run.
    pub(crate) fn is_context(&self) -> bool {
        matches!(self, Self::Context(_))
    }
}

/// Result of a tool call.
pub(crate) struct CallResult<'a> {
    /// Id of the call in this request.
    pub(crate) id: String,
    /// Name of the tool in this request.
    pub(crate) name: String,
    pub(crate) message: &'a Message,
}

/// An answer of a model.
pub(crate) struct Answer<'a> {
    message: &'a Message,
    /// Calls with the ids and names of this request, and with arguments that are JSON objects.
    pub(crate) calls: Cow<'a, [ToolCall]>,
    /// Data of the answer, if this service made it.
    data: Option<&'a ProviderData>,
}

/// A part of an answer. `data` is `null` if the service sent none about it.
pub(crate) enum Piece<'a> {
    Reasoning { text: &'a str, data: &'a Value },
    Text { text: &'a str, data: &'a Value },
    Call { call: &'a ToolCall, data: &'a Value },
    Opaque(&'a Value),
}

impl Answer<'_> {
    /// Returns the parts in the order of the service. Without usable data of this service, these are
    /// the text and the calls, without reasoning.
    pub(crate) fn pieces(&self) -> Vec<Piece<'_>> {
        self.data
            .and_then(|data| self.described_pieces(data))
            .unwrap_or_else(|| {
                let text = self.message.content.as_str();
                let text = (!text.is_empty()).then_some(Piece::Text {
                    text,
                    data: &Value::Null,
                });
                text.into_iter()
                    .chain(self.calls.iter().map(|call| Piece::Call {
                        call,
                        data: &Value::Null,
                    }))
                    .collect()
            })
    }

    /// Returns the parts that `data` describes. `None` if it does not fit the message.
    fn described_pieces<'s>(&'s self, data: &'s ProviderData) -> Option<Vec<Piece<'s>>> {
        let mut text = self.message.content.as_str();
        let mut reasoning = self.message.reasoning.as_deref().unwrap_or_default();
        let mut calls = self.calls.iter();
        let piece = |item: &'s ProviderItem| {
            Some(match item {
                ProviderItem::Reasoning { bytes, data } => Piece::Reasoning {
                    text: take_bytes(&mut reasoning, *bytes)?,
                    data,
                },
                ProviderItem::Text { bytes, data } => Piece::Text {
                    text: take_bytes(&mut text, *bytes)?,
                    data,
                },
                ProviderItem::Call { data } => Piece::Call {
                    call: calls.next()?,
                    data,
                },
                ProviderItem::Opaque(data) => Piece::Opaque(data),
            })
        };
        data.items.iter().map(piece).collect()
    }
}

fn take_bytes<'a>(text: &mut &'a str, bytes: usize) -> Option<&'a str> {
    let (start, rest) = text.split_at_checked(bytes)?;
    *text = rest;
    Some(start)
}

/// Returns the turns of a request. `any_model`: data of an answer is included if any model of the
/// service made it.
pub(crate) fn turns<'a>(call: &Call<'a>, any_model: bool) -> Vec<Turn<'a>> {
    let mut ids = CallIds::default();
    let mut turns = Vec::new();
    for (index, message) in call.request.messages.iter().enumerate() {
        match message.role {
            Role::Assistant => {
                if let Some(context) = &message.context_update {
                    user_turn(&mut turns).1.push(UserInput::Context(context));
                }
                let calls = ids.rename(call.names.outgoing_calls(&message.tool_calls));
                turns.push(Turn::Model(Answer {
                    message,
                    calls,
                    data: own_data(call, message, any_model),
                }));
            }
            Role::Tool => {
                let id = message.tool_call_id.as_deref().unwrap_or_default();
                let (id, name) = ids
                    .current
                    .get(id)
                    .cloned()
                    .unwrap_or_else(|| (id.to_owned(), String::new()));
                user_turn(&mut turns)
                    .0
                    .push(CallResult { id, name, message });
            }
            Role::User | Role::System => {
                let ends_shared_part = index + 1 == call.request.cache.shared_messages;
                user_turn(&mut turns).1.push(UserInput::Message {
                    message,
                    ends_shared_part,
                });
            }
        }
    }
    if let Some(context) = &call.request.context_update {
        user_turn(&mut turns).1.push(UserInput::Context(context));
    }
    turns
}

/// Returns the parts of the last turn, which is one of the user; starts one if it is not.
fn user_turn<'t, 'a>(
    turns: &'t mut Vec<Turn<'a>>,
) -> (&'t mut Vec<CallResult<'a>>, &'t mut Vec<UserInput<'a>>) {
    if !matches!(turns.last(), Some(Turn::User { .. })) {
        turns.push(Turn::User {
            results: Vec::new(),
            inputs: Vec::new(),
        });
    }
    match turns.last_mut() {
        Some(Turn::User { results, inputs }) => (results, inputs),
        _ => unreachable!("the last turn is one of the user"),
    }
}

/// Returns the data of an answer that the service of this call made. `any_model`: with any of its
/// models.
pub(crate) fn own_data<'a>(
    call: &Call<'a>,
    message: &'a Message,
    any_model: bool,
) -> Option<&'a ProviderData> {
    let is_own = |source: &ModelSource| {
        (any_model || source.model == call.model)
            && source.dialect == call.source.dialect
            && source.base_url == call.source.base_url
            && source.api_key_env == call.source.api_key_env
    };
    message
        .matching_provider_data()
        .filter(|data| !call.adaptation.no_provider_data && is_own(&data.source))
}

/// Ids of calls: ASCII letters, digits, `_` and `-`, at most 64 characters, unique in the request.
/// Ids that fit are kept.
#[derive(Default)]
struct CallIds {
    used_ids: HashSet<String>,
    /// By stored id: the id and the tool name that the latest call with it has in this request.
    current: HashMap<String, (String, String)>,
}

impl CallIds {
    fn rename<'a>(&mut self, calls: Cow<'a, [ToolCall]>) -> Cow<'a, [ToolCall]> {
        let outgoing: Vec<String> = calls.iter().map(|call| self.unique_id(&call.id)).collect();
        let names = calls.iter().map(|call| call.name.clone());
        let entries = calls.iter().zip(outgoing.iter().cloned().zip(names));
        self.current
            .extend(entries.map(|(call, sent)| (call.id.clone(), sent)));
        if calls.iter().zip(&outgoing).all(|(call, id)| call.id == *id) {
            return calls;
        }
        let mut calls = calls.into_owned();
        calls
            .iter_mut()
            .zip(outgoing)
            .for_each(|(call, id)| call.id = id);
        Cow::Owned(calls)
    }

    fn unique_id(&mut self, id: &str) -> String {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let mut stem: String = id
            .chars()
            .map(|c| if allowed(c) { c } else { '_' })
            .collect();
        stem.truncate(MAX_ID_BYTES);
        if stem.is_empty() {
            stem.push_str("call");
        }
        let mut unique = stem.clone();
        let mut number = 2_u64;
        while !self.used_ids.insert(unique.clone()) {
            let ending = format!("_{number}");
            unique = format!(
                "{}{ending}",
                &stem[..stem.len().min(MAX_ID_BYTES - ending.len())]
            );
            number += 1;
        }
        unique
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_valid_and_unique_in_the_request() {
        let mut ids = CallIds::default();
        let long = "x".repeat(70);
        for (id, expected) in [
            ("call_1", "call_1".to_owned()),
            ("call_1", "call_1_2".to_owned()),
            ("call_1_2", "call_1_2_2".to_owned()),
            ("a:b|c", "a_b_c".to_owned()),
            ("", "call".to_owned()),
            (long.as_str(), "x".repeat(64)),
            (long.as_str(), format!("{}_2", "x".repeat(62))),
        ] {
            assert_eq!(ids.unique_id(id), expected, "{id}");
        }
    }
}
