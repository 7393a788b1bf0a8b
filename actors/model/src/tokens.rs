//! Token counts of texts: exact if the model's tokenizer is included, otherwise estimated (CTX-4).
//!
//! [`TokenCounter::load_soon`] starts a thread that loads the vocabulary. Until it is loaded,
//! counts are estimated, so no caller waits for it. The time to count a text is bounded: a long
//! text is counted in pieces, and the count of a very long text is extrapolated from samples.
//!
//! Not in this module: the counts that providers report (stored as usage), and context windows.

mod deviation;
mod estimate;
mod ratio;
#[cfg(feature = "tokenizer")]
mod vocabulary;

use soong_protocol::{InputKind, Message, PartFile};

pub use self::deviation::TokenDeviation;
pub use self::{deviation::TokenDeviations, estimate::estimate_tokens, ratio::TokenRatio};

/// Tokens of a message in addition to its texts: role and separators, as OpenAI counts them.
const MESSAGE_TOKENS: u64 = 4;
/// Tokens of a tool call in addition to its name and arguments.
const CALL_TOKENS: u64 = 4;

/// Tokens of an image whose size in pixels is unknown, about those of 1 megapixel.
const IMAGE_TOKENS: u64 = 1_600;
/// Pixels of an image per token, as Anthropic's manual counts. The other providers count fewer
/// tokens.
const PIXELS_PER_TOKEN: u64 = 750;
/// Bytes of a PDF document per token: a page of about 80 kB has about 2000 tokens.
const PDF_BYTES_PER_TOKEN: u64 = 40;
/// Maximum estimate of a PDF document, of about 25 pages. Scanned pages have many bytes but no more
/// tokens.
const MAX_PDF_TOKENS: u64 = 50_000;
/// Bytes of audio per token: 16 kB of MP3, which is a second, have about 25 tokens.
const AUDIO_BYTES_PER_TOKEN: u64 = 640;

/// Estimates the tokens of an image or file.
fn file_tokens(file: &PartFile) -> u64 {
    match (file.kind(), file.width.zip(file.height)) {
        (Some(InputKind::Image), Some((width, height))) => {
            (u64::from(width) * u64::from(height)).div_ceil(PIXELS_PER_TOKEN)
        }
        (Some(InputKind::Image), None) => IMAGE_TOKENS,
        (Some(InputKind::Audio), _) => file.size.div_ceil(AUDIO_BYTES_PER_TOKEN),
        _ => file.size.div_ceil(PDF_BYTES_PER_TOKEN).min(MAX_PDF_TOKENS),
    }
}

/// Token counter for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenCounter {
    /// Counts with the vocabulary `o200k_base`. Estimates until the vocabulary is loaded.
    #[cfg(feature = "tokenizer")]
    O200k,
    /// Estimates without a vocabulary, and corrects each estimate by the ratio of a [`TokenRatio`].
    Estimate {
        /// The ratio in thousandths.
        permille: u64,
    },
}

impl TokenCounter {
    /// Returns the counter for a model name. Does not load a vocabulary.
    pub fn for_model(name: &str) -> Self {
        match name {
            #[cfg(feature = "tokenizer")]
            name if uses_o200k(name) => Self::O200k,
            _ => Self::estimating(TokenRatio::default()),
        }
    }

    /// Returns a counter that estimates.
    pub fn estimating(ratio: TokenRatio) -> Self {
        Self::Estimate {
            permille: ratio.permille(),
        }
    }

    /// Corrects the estimates of this counter. Has no effect on exact counts.
    pub fn corrected_by(self, ratio: TokenRatio) -> Self {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => self,
            Self::Estimate { .. } => Self::estimating(ratio),
        }
    }

    /// Returns an estimate as this counter corrects it.
    pub fn correct(self, estimate: u64) -> u64 {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => estimate,
            Self::Estimate { permille } => estimate.saturating_mul(permille).div_ceil(1_000),
        }
    }

    /// Reverts [`TokenCounter::correct`], up to rounding. Returns `None` if this counter is exact.
    pub fn uncorrected(self, corrected: u64) -> Option<u64> {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => None,
            Self::Estimate { permille } => Some(corrected.saturating_mul(1_000) / permille.max(1)),
        }
    }

    /// Starts to load the vocabulary in the background, on the first call only.
    ///
    /// The vocabulary occupies about 46 MiB until the process exits, so this is called only when a
    /// prompt fills more than a quarter of the context window.
    pub fn load_soon(self) {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::load_soon(),
            Self::Estimate { .. } => {}
        }
    }

    /// Counts the tokens of a message, including its overhead. Images and files are estimated.
    /// Reasoning counts only if a service expects it back.
    pub fn count(self, message: &Message) -> u64 {
        let call = |call: &soong_protocol::ToolCall| {
            CALL_TOKENS + self.count_text(&call.name) + self.count_text(&call.arguments)
        };
        let files = message.content.files().map(file_tokens).sum::<u64>();
        let returned = message
            .reasoning
            .as_deref()
            .filter(|_| message.provider_data.is_some());
        let returned = returned.map_or(0, |reasoning| self.count_text(reasoning));
        MESSAGE_TOKENS
            + self.count_text(&message.content)
            + files
            + returned
            + message
                .context_update
                .as_deref()
                .map_or(0, |text| self.count_text(text))
            + message.tool_calls.iter().map(call).sum::<u64>()
    }

    /// Counts the tokens of a text.
    pub fn count_text(self, text: &str) -> u64 {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::count(text).unwrap_or_else(|| estimate_tokens(text)),
            Self::Estimate { .. } => self.correct(estimate_tokens(text)),
        }
    }

    /// Returns whether counts are made with a loaded vocabulary. `false`: they are estimated.
    pub fn is_exact(self) -> bool {
        match self {
            #[cfg(feature = "tokenizer")]
            Self::O200k => vocabulary::is_loaded(),
            Self::Estimate { .. } => false,
        }
    }
}

/// Returns whether a model uses the vocabulary `o200k_base`, according to its name.
///
/// OpenAI models before `gpt-4o` use another vocabulary. It is not included, because it would add
/// 1.7 MB for discontinued models.
#[cfg(feature = "tokenizer")]
fn uses_o200k(name: &str) -> bool {
    // Gateways use names like `openai/gpt-4o`, fine-tuned models like `ft:gpt-4o-mini:…`.
    let name = name.rsplit('/').next().unwrap_or(name);
    let name = name.strip_prefix("ft:").unwrap_or(name);
    let starts = [
        "gpt-4o",
        "gpt-4.1",
        "gpt-4.5",
        "gpt-5",
        "chatgpt-4o",
        "gpt-oss",
        "codex-",
    ];
    let reasons = ["o1", "o3", "o4"];
    starts.iter().any(|start| name.starts_with(start))
        || reasons.iter().any(|family| {
            name.strip_prefix(family)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
}

#[cfg(test)]
mod tests;
