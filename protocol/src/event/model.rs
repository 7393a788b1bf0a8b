//! Events of model calls.

use serde::{Deserialize, Serialize};

use crate::{ErrorInfo, OmittedGoal, Usage, Usd, event_macro::events};

/// Result of checking an answer against `expected_output_schema`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(tag = "result", rename_all = "snake_case")]
pub enum AnswerCheck {
    /// It matches.
    Match {
        /// Number of the JSON value of the answer that matches, from 0; 0 if the answer is nothing
        /// else.
        #[serde(default, skip_serializing_if = "is_first")]
        value: u32,
    },
    /// It does not match.
    Mismatch {
        /// At most three violations with their locations, or why the check was not possible.
        violations: String,
    },
}

fn is_first(value: &u32) -> bool {
    *value == 0
}

events! {
    /// A step of a model call.
    ModelEvent {
        /// The prompt of a turn was built.
        ContextBuilt = "context_built" {
            /// Number of messages in the prompt.
            messages: u64,
            /// Number of offered tools.
            tools: u64,
            /// Estimated number of tokens.
            estimated_tokens: u64,
            /// Number of messages of the trace that were left out.
            left_out: u64,
            /// If the prompt was rebuilt, the finished goals whose messages are left out from now
            /// on. In all messages so far, outputs that are shown once are shortened, and data for
            /// the service is omitted.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            rebuilt: Option<Vec<OmittedGoal>>,
        },
        /// The model call of a turn is about to start.
        Started = "model_started" {
            /// Name of the model.
            model: String,
            /// Number of the attempt, from 1.
            attempt: u32,
        },
        /// The call waits for a limit of the gateway.
        Waiting = "model_waiting" {
            /// Reason for waiting: `concurrency`, `requests_per_minute`, `tokens_per_minute`,
            /// `retry_after` or `provider_down`.
            reason: String,
            /// Time spent waiting so far, in milliseconds.
            for_ms: u64,
        },
        /// An attempt failed and will be repeated.
        Retrying = "model_retrying" [Warn] {
            /// Number of the failed attempt, from 1.
            attempt: u32,
            /// Why it failed.
            error: ErrorInfo,
            /// Delay before the next attempt, in milliseconds.
            wait_ms: u64,
            /// Usage that is charged for the attempt if its actual usage is unknown (BUD-1a).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of that usage. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
        /// The service reported the size of a prompt that it had received before, in a call that
        /// was lost. What was charged for that call is corrected.
        UsageCorrected = "usage_corrected" {
            /// Usage that was charged as an estimate.
            estimate: Usage,
            /// Cost of the estimate. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            estimated_cost: Option<Usd>,
            /// Usage that is charged instead.
            usage: Usage,
            /// Cost of that usage. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
        /// The model lacks the configured level of reasoning, and another one is used. Reported
        /// once per run.
        EffortAdjusted = "effort_adjusted" {
            /// Name of the model.
            model: String,
            /// The configured level.
            wanted: String,
            /// The level that is used.
            used: String,
        },
        /// The service rejected data that it had sent with earlier answers, such as signatures of
        /// its reasoning. The request was repeated without them; later requests omit them too.
        ProviderDataRejected = "provider_data_rejected" [Warn] {
            /// Name of the model.
            model: String,
        },
        /// The server left calls of tools in the text of an answer, instead of returning them as
        /// calls. They are run like others.
        CallsFoundInText = "calls_found_in_text" [Warn] {
            /// Name of the model.
            model: String,
            /// How the calls are written: `hermes`, `qwen`, `mistral`, `deepseek` or `json`.
            form: String,
            /// Number of calls.
            tool_calls: u64,
        },
        /// A fallback takes over from `from`. It also makes the next calls, until the cool-down of
        /// `from` ends. Text that was streamed before belongs to a discarded answer.
        Fallback = "model_fallback" [Warn] {
            /// The model that cannot make the call: the name of the run's model, or of a fallback
            /// as it is configured.
            from: String,
            /// The fallback, as it is configured.
            to: String,
            /// Why: `overloaded`, `rate_limited`, `down`, `context_too_long` or `refused`.
            reason: String,
            /// Error of the failed call. Absent if the call was not tried with `from`, because
            /// another one had failed.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<ErrorInfo>,
            /// Usage that is charged for the failed call.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of that usage. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
        },
        /// The run's own model answers again.
        FallbackEnded = "model_fallback_ended" {
            /// Name of the model.
            model: String,
        },
        /// A model was asked for a name of the trace, after the first answer. The run does not wait
        /// for the name.
        NamingStarted = "naming_started" {
            /// Estimated number of tokens of the request.
            estimated_tokens: u64,
        },
        /// The trace has a name, or the call for it failed. The session gets the same name, unless
        /// a user has set another.
        ///
        /// If the run ends first, its event has neither a name nor an error, and an estimate of the
        /// usage. The outcome follows as a second event, which belongs to no run, unless the
        /// runtime closes before.
        NamingEnded = "naming_ended" {
            /// The name. Absent if the call failed or continues after the run.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            name: Option<String>,
            /// Usage of the call, if known.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of the call. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// Why the call failed. It is not repeated.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<Box<ErrorInfo>>,
        },
        /// The model answered.
        Completed = "model_completed" {
            /// Why the model stopped, as the provider reported it.
            finish_reason: String,
            /// Number of requested tool calls.
            tool_calls: u64,
            /// Usage of the call.
            usage: Usage,
            /// Cost of the call. `null` if the price is unknown.
            cost: Option<Usd>,
            /// Duration from the call to the last byte of the answer, in milliseconds.
            duration_ms: u64,
            /// Part of the duration that was spent waiting for limits, pauses and retries, in
            /// milliseconds.
            #[serde(default, skip_serializing_if = "crate::is_zero")]
            waited_ms: u64,
            /// Result of the check of the answer. Absent without a schema, and if the answer
            /// contains tool calls.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            answer_check: Option<AnswerCheck>,
        },
        /// The call failed permanently or was interrupted.
        Failed = "model_failed" [Error] {
            /// Why it failed.
            error: ErrorInfo,
            /// Usage that is charged for the call if its actual usage is unknown (BUD-1a).
            #[serde(default, skip_serializing_if = "Option::is_none")]
            usage: Option<Usage>,
            /// Cost of that usage. Absent if the price is unknown.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cost: Option<Usd>,
            /// Time spent waiting for limits, pauses and retries, in milliseconds.
            #[serde(default, skip_serializing_if = "crate::is_zero")]
            waited_ms: u64,
        },
    }
}
