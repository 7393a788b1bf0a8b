//! Events of the prompt: a summary replaces the older part of a conversation (CTX-3), or it is left
//! out; descriptions replace files.

use crate::{ErrorInfo, Usage, Usd, event_macro::events};

events! {
    /// A change of what the model reads of the conversation.
    ContextEvent {
        /// The prompt is too long. A model starts to summarize the older part of the conversation.
        CompactionStarted = "compaction_started" {
            /// Estimated number of tokens of the prompt.
            estimated_tokens: u64,
        },
        /// A summary replaced the older part of the conversation. The original messages remain
        /// stored.
        CompactionCompleted = "compaction_completed" {
            /// Message that contains the summary.
            sequence: u64,
            /// First and last message that the summary replaces.
            covered: (u64, u64),
            /// Estimated number of tokens of the prompt before the compaction.
            tokens_before: u64,
            /// Estimated number of tokens of the prompt with the summary.
            tokens_after: u64,
            /// Usage of the model call that wrote the summary.
            usage: Usage,
            /// Cost of this call. `null` if the price is unknown.
            cost: Option<Usd>,
        },
        /// The compaction failed. The conversation is unchanged.
        CompactionFailed = "compaction_failed" [Warn] {
            /// Why it failed.
            error: ErrorInfo,
            /// Usage of the attempt, if known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of the attempt. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
        /// The oldest part of the conversation is left out without a summary: the prompt does not
        /// fit, and a summary has failed or does not fit either. The original messages remain
        /// stored.
        OldestOmitted = "oldest_omitted" {
            /// Message that says so to the model, in their place.
            sequence: u64,
            /// First and last message that are left out.
            covered: (u64, u64),
            /// Estimated number of tokens of the prompt before.
            tokens_before: u64,
            /// Estimated number of tokens of the prompt without them.
            tokens_after: u64,
        },
        /// The model does not take some images or files of the conversation, or the service has
        /// rejected them. The model reads their descriptions instead.
        FilesOmitted = "files_omitted" {
            /// Name of the model.
            model: String,
            /// Descriptions of the images and files.
            files: Vec<String>,
            /// Last message with one of them.
            sequence: u64,
            /// If the service has rejected them, the messages with them. They are left out of all
            /// later prompts.
            #[serde(default, skip_serializing_if = "Vec::is_empty")]
            rejected: Vec<u64>,
        },
    }
}
