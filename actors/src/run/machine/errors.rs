//! Errors of runs.

use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo, FlushFailure};

/// Returns the error for a request to add children to an ended run.
pub(crate) fn run_has_ended() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::NothingRunning,
        "the run has ended: it accepts no more children",
    )
}

/// Returns the error for an answer that was cut off at its token limit.
pub(crate) fn answer_truncated() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::MaxOutputTokens,
        "the answer was cut off at its token limit (model.max_output_tokens): a partial message is kept",
    )
}

/// Returns the error for an answer that was cut off because the context window is full.
pub(crate) fn window_full(window: u64) -> ErrorInfo {
    let message = format!(
        "the context window of {window} tokens is full: the answer was cut off, and a partial message is kept; use a larger \
         window (model.context_window), a shorter prompt, or fewer tools"
    );
    ErrorInfo::new(ErrorCode::PromptTooLong, message)
}

/// Returns the error for an answer that the model or its provider refused.
pub(crate) fn content_refused(finish_reason: &str) -> ErrorInfo {
    let message = format!(
        "the model, or a filter of its provider, refused to answer ({finish_reason}): change the request, or use another \
         model (model.name)"
    );
    ErrorInfo::new(ErrorCode::ContentRefused, message)
}

/// Returns the error for tool calls that were cut off at the token limit too often.
pub(crate) fn calls_truncated() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::MaxOutputTokens,
        "the arguments of a tool call were cut off at the token limit (model.max_output_tokens) three times in a row",
    )
}

/// Returns the error for documents that could not be stored as versions, with their names (ART-4).
pub(crate) fn documents_not_stored(failed: &[FlushFailure]) -> ErrorInfo {
    let lines: Vec<String> = failed
        .iter()
        .map(|one| format!("{} ({})", one.name, one.error.message))
        .collect();
    let message = format!(
        "some edited documents could not be stored as versions: {}; the edits are recorded, and the documents contain \
         them",
        lines.join("; ")
    );
    let artifacts: Vec<&str> = failed.iter().map(|one| one.name.as_str()).collect();
    ErrorInfo {
        details: serde_json::json!({ "artifacts": artifacts }),
        ..ErrorInfo::new(ErrorCode::StorageError, message)
    }
}

/// Returns the error of a run whose model repeats a tool call.
pub(crate) fn repeated_calls(tool: &str, count: u32) -> ErrorInfo {
    let message = format!(
        "the model called `{tool}` {count} times in a row with the same arguments and the same result, and nothing else \
         (runtime.repeated_calls_limit)"
    );
    ErrorInfo {
        details: json!({ "count": count }),
        ..ErrorInfo::new(ErrorCode::RepeatedCalls, message)
    }
}

/// Returns the error of a run whose model repeats an answer that a hook denies.
pub(crate) fn repeated_answers(count: u32) -> ErrorInfo {
    let message = format!(
        "the model gave the same answer {count} times in a row, and a Stop hook denied it each time \
         (runtime.repeated_calls_limit)"
    );
    ErrorInfo {
        details: json!({ "count": count }),
        ..ErrorInfo::new(ErrorCode::RepeatedCalls, message)
    }
}

/// Returns the error of a run whose model repeats the text that it writes with its calls.
pub(crate) fn repeated_texts(count: u32) -> ErrorInfo {
    let message = format!(
        "the model wrote the same text with its tool calls {count} times in a row (runtime.repeated_calls_limit)"
    );
    ErrorInfo {
        details: json!({ "count": count }),
        ..ErrorInfo::new(ErrorCode::RepeatedCalls, message)
    }
}

/// Returns the error for an answer that did not match the schema in two attempts.
///
/// For a user run, `details.alias` holds the code that version 0.1 used.
pub(crate) fn schema_mismatch(why: &str, is_child: bool) -> ErrorInfo {
    let of_child = ErrorCode::ChildResultSchemaValidationFailed;
    let message = format!("the answer does not match the output schema, even after a retry: {why}");
    if is_child {
        ErrorInfo::new(of_child, message)
    } else {
        ErrorInfo {
            details: serde_json::json!({ "alias": of_child }),
            ..ErrorInfo::new(ErrorCode::ResultSchemaValidationFailed, message)
        }
    }
}

/// No program drives a driven run any more.
pub(crate) fn undriven() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::Interrupted,
        "no program has driven the run for `runtime.stuck_after_s`: keep a `RunHandle` of a driven run until it has \
         ended",
    )
}

/// The run exceeded its timeout.
pub(crate) fn timed_out(limit_ms: u64) -> ErrorInfo {
    let message = format!(
        "the run exceeded its time limit of {limit_ms} ms: raise the limit, or reduce the task"
    );
    ErrorInfo::new(ErrorCode::Timeout, message)
}

pub(crate) fn call_interrupted() -> ErrorInfo {
    ErrorInfo::new(
        ErrorCode::Interrupted,
        "the call was cut off before its result was recorded; its effect is unknown. Check before calling it again",
    )
}
