//! Chunks in the form that servers send: lenient, borrowed, with every field optional (MOD-4).
//!
//! Unknown fields are skipped, and values of a wrong type are converted where possible, because
//! servers that call themselves compatible differ in all of this.
//!
//! Elsewhere: combining the chunks (`assemble.rs`).

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::value::RawValue;
use soong_protocol::Usage;

use crate::service::lenient::{LenientNumber, count};

/// One event of a stream, or a whole completion. They differ only in `delta` versus `message`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    pub(super) usage: Option<WireUsage>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<LenientNumber>,
    #[serde(borrow)]
    pub(super) delta: Option<MessagePiece<'a>>,
    #[serde(borrow)]
    pub(super) message: Option<MessagePiece<'a>>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<LenientText<'a>>,
    /// Moonshot reports the usage here.
    pub(super) usage: Option<WireUsage>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct MessagePiece<'a> {
    #[serde(borrow)]
    pub(super) content: LenientText<'a>,
    #[serde(borrow)]
    pub(super) refusal: LenientText<'a>,
    #[serde(borrow)]
    pub(super) reasoning_content: LenientText<'a>,
    #[serde(borrow)]
    pub(super) reasoning: LenientText<'a>,
    /// OpenRouter's parts of the reasoning.
    #[serde(borrow)]
    pub(super) reasoning_details: Option<&'a RawValue>,
    /// Gemini's data about the answer.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) tool_calls: Option<Vec<CallPiece<'a>>>,
    /// The predecessor of `tool_calls`.
    #[serde(borrow)]
    pub(super) function_call: Option<FunctionPiece<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct CallPiece<'a> {
    pub(super) index: Option<LenientNumber>,
    #[serde(borrow)]
    pub(super) id: LenientText<'a>,
    #[serde(borrow)]
    pub(super) function: Option<FunctionPiece<'a>>,
    /// Gemini's data about the call.
    #[serde(borrow)]
    pub(super) extra_content: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct FunctionPiece<'a> {
    #[serde(borrow)]
    pub(super) name: LenientText<'a>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct WireUsage {
    prompt_tokens: Option<LenientNumber>,
    completion_tokens: Option<LenientNumber>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
    /// DeepSeek's name for cached tokens.
    prompt_cache_hit_tokens: Option<LenientNumber>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<LenientNumber>,
    cache_write_tokens: Option<LenientNumber>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<LenientNumber>,
}

impl WireUsage {
    /// Returns the usage. `None` if it contains no counts.
    pub(super) fn usage(&self) -> Option<Usage> {
        if self.prompt_tokens.is_none() && self.completion_tokens.is_none() {
            return None;
        }
        let details = self.prompt_tokens_details.as_ref();
        let cached = details.and_then(|details| details.cached_tokens);
        Some(Usage {
            prompt_tokens: count(self.prompt_tokens),
            completion_tokens: count(self.completion_tokens),
            cached_tokens: count(cached.or(self.prompt_cache_hit_tokens)),
            cache_write_tokens: count(details.and_then(|details| details.cache_write_tokens)),
            long_cache_write_tokens: 0, // chat completions have only one lifetime
            reasoning_tokens: count(
                self.completion_tokens_details
                    .as_ref()
                    .and_then(|d| d.reasoning_tokens),
            ),
            estimated: false,
        })
    }
}

/// A text. Also accepts `null`, a number, or a list of content parts.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct LenientText<'a>(pub(super) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for LenientText<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyText).map(LenientText)
    }
}

struct AnyText;

impl<'de> Visitor<'de> for AnyText {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_owned()))
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(Cow::Borrowed(""))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Cow::Owned(value.to_string()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Self::Value, A::Error> {
        let mut text = Cow::Borrowed("");
        while let Some(LenientText(part)) = parts.next_element()? {
            text += part;
        }
        Ok(text)
    }

    /// Returns the `text` of a content part. Images and other parts have none.
    fn visit_map<A: MapAccess<'de>>(self, mut part: A) -> Result<Self::Value, A::Error> {
        let mut text = Cow::Borrowed("");
        while let Some(LenientText(key)) = part.next_key()? {
            if key == "text" {
                text += part.next_value::<LenientText<'de>>()?.0;
            } else {
                part.next_value::<IgnoredAny>()?;
            }
        }
        Ok(text)
    }
}
