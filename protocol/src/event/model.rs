//! Events of model calls.

use crate::{ErrorInfo, Usage, Usd, event_macro::events};

events! {
    /// What happened to a model call.
    ModelEvent {
        /// The prompt of a turn was put together.
        ContextBuilt = "context_built" {
            /// Messages in it.
            messages: u64,
            /// Tools offered.
            tools: u64,
            /// Tokens by our estimate.
            estimated_tokens: u64,
            /// Messages of the trace that were left out.
            left_out: u64,
        },
        /// A turn's model call is about to be made.
        Started = "model_started" {
            /// The model.
            model: String,
            /// Which try, from 1.
            attempt: u32,
        },
        /// It waits for a limit of ours.
        Waiting = "model_waiting" {
            /// What it waits for.
            reason: String,
            /// How long it has waited, in milliseconds.
            for_ms: u64,
        },
        /// A try failed; another one follows.
        Retrying = "model_retrying" {
            /// Which try failed, from 1.
            attempt: u32,
            /// Why.
            error: ErrorInfo,
            /// How long it waits before the next one, in milliseconds.
            wait_ms: u64,
            /// What is booked for the try, where nobody knows what it used (DUR-4).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// What that cost; absent where the price is unknown too.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
        /// The model answered.
        Completed = "model_completed" {
            /// Why it stopped, in the provider's word.
            finish_reason: String,
            /// How many tools it asks for.
            tool_calls: u64,
            /// What it used.
            usage: Usage,
            /// What that cost; absent where the price is unknown.
            cost: Option<Usd>,
            /// From the call to the last byte, in milliseconds.
            duration_ms: u64,
            /// How much of that it waited for limits, pauses and further tries, in milliseconds.
            #[serde(default, skip_serializing_if = "crate::is_zero")]
            waited_ms: u64,
        },
        /// The call failed for good, or was cut off.
        Failed = "model_failed" {
            /// Why.
            error: ErrorInfo,
            /// What is booked for it, where nobody knows what it used (DUR-4).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// What that cost; absent where the price is unknown too.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// How long it waited for limits, pauses and further tries, in milliseconds.
            #[serde(default, skip_serializing_if = "crate::is_zero")]
            waited_ms: u64,
        },
    }
}
