//! How many tokens a text is: exact where a tokenizer fits the model, one estimate everywhere else (CTX-4).
//!
//! The vocabulary is read in a thread that [`Counter::load_soon`] starts; until it is there the
//! estimate answers, so nothing waits for it. Counting takes a bounded time, whatever the text: long
//! texts are counted in pieces, very long ones by samples.
//! Not here: what the provider says that it counted (its usage is stored apart), and windows.

mod deviation;
mod estimate;
#[cfg(feature = "tokenizer")]
mod vocabulary;

use soong_protocol::Message;

pub use self::deviation::TokenDeviation;
pub(crate) use self::{deviation::TokenDeviations, estimate::estimate_tokens};

/// What a message costs beside its texts: role and separators, as OpenAI counts them.
const MESSAGE_TOKENS: u64 = 4;
/// What a call costs beside its name and arguments.
const CALL_TOKENS: u64 = 4;

/// Counts tokens for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Counter {
    /// By the vocabulary `o200k_base`, once it is loaded.
    #[cfg(feature = "tokenizer")]
    O200k,
    /// By rules of thumb.
    Estimate,
}

impl Counter {
    /// Chooses the counter that fits a model by its name; nothing is loaded yet.
    pub(crate) fn of_model(name: &str) -> Self {
        match name {
            #[cfg(feature = "tokenizer")]
            name if speaks_o200k(name) => Self::O200k,
            _ => Self::Estimate,
        }
    }

    /// Has what exact counts need loaded in the background; to be asked as often as one likes.
    ///
    /// It costs some 46 MiB for good: worth it once a conversation comes near its limit.
    pub(crate) fn load_soon(self) {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::load_soon(),
            Self::Estimate => {}
        }
    }

    /// Counts a message with what it costs beside its texts. Reasoning is never sent, so never counted.
    pub(crate) fn count(self, message: &Message) -> u64 {
        let call = |call: &soong_protocol::ToolCall| {
            CALL_TOKENS + self.count_text(&call.name) + self.count_text(&call.arguments)
        };
        MESSAGE_TOKENS + self.count_text(&message.content) + message.tool_calls.iter().map(call).sum::<u64>()
    }

    /// Counts a text.
    pub(crate) fn count_text(self, text: &str) -> u64 {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::count(text).unwrap_or_else(|| estimate_tokens(text)),
            Self::Estimate => estimate_tokens(text),
        }
    }

    /// Returns whether counts are exact by now; `false` = estimated.
    pub(crate) fn is_exact(self) -> bool {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::is_loaded(),
            Self::Estimate => false,
        }
    }
}

/// Whether a model of OpenAI's reads text in tokens of `o200k_base`, by its name.
///
/// Those before `gpt-4o` do not: their vocabulary would cost 1.7 MB more for models that are gone.
#[cfg(feature = "tokenizer")]
fn speaks_o200k(name: &str) -> bool {
    // `openai/gpt-4o` at gateways, `ft:gpt-4o-mini:…` of fine-tuned ones.
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let starts = ["gpt-4o", "gpt-4.1", "gpt-4.5", "gpt-5", "chatgpt-4o", "gpt-oss", "codex-"];
    let reasons = ["o1", "o3", "o4"];
    starts.iter().any(|start| name.starts_with(start))
        || reasons
            .iter()
            .any(|family| name.strip_prefix(family).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

#[cfg(test)]
mod tests;
