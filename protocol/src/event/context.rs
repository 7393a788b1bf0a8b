//! Events of the context: what of a conversation a summary came to stand for (CTX-3).

use crate::{ErrorInfo, Usage, Usd, event_macro::events};

events! {
    /// What happened to a trace's context.
    ContextEvent {
        /// The prompt became too long: a model is about to sum up the older part of the conversation.
        CompactionStarted = "compaction_started" {
            /// Tokens of the prompt as it would be, by our count.
            estimated_tokens: u64,
        },
        /// A summary stands for the older part; the messages are kept.
        CompactionCompleted = "compaction_completed" {
            /// The summary's message.
            sequence: u64,
            /// The first and the last message that it stands for.
            covered: (u64, u64),
            /// Tokens of the prompt before, by our count.
            tokens_before: u64,
            /// Tokens of the prompt with the summary.
            tokens_after: u64,
            /// What the summary used.
            usage: Usage,
            /// What it cost; absent where the price is unknown.
            cost: Option<Usd>,
        },
        /// There is no summary; the conversation is as it was.
        CompactionFailed = "compaction_failed" {
            /// Why.
            error: ErrorInfo,
            /// What the attempt used, as far as it is known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// What it cost; absent where the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
    }
}
