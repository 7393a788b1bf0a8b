//! Tool calls of an answer in the form that a run requires, and its finish reason. Pure.

use std::collections::HashSet;

use soong_protocol::ToolCall;

use super::surrogates::without_lone_surrogates;

/// Returns the calls with unique ids: missing ids are generated, repeated ones are numbered.
///
/// The same answer always gets the same ids.
pub(crate) fn with_unique_ids(calls: impl IntoIterator<Item = ToolCall>) -> Vec<ToolCall> {
    let calls: Vec<ToolCall> = calls.into_iter().collect();
    // An id that the server sent is never given to another call, whatever the order.
    let received: HashSet<String> = calls.iter().map(|call| call.id.clone()).collect();
    let mut used = HashSet::with_capacity(calls.len());
    let mut unique = Vec::with_capacity(calls.len());
    for (position, call) in calls.into_iter().enumerate() {
        let stem = if call.id.is_empty() {
            "call"
        } else {
            call.id.as_str()
        };
        let mut id = call.id.clone();
        let mut number = position + 1;
        while id.is_empty() || used.contains(&id) || (id != call.id && received.contains(&id)) {
            id = format!("{stem}_{number}");
            number += 1;
        }
        used.insert(id.clone());
        // No arguments means that none are needed. An empty text is not valid JSON to send back.
        let arguments = if call.arguments.trim().is_empty() {
            "{}".to_owned()
        } else {
            without_lone_surrogates(&call.arguments).into_owned()
        };
        unique.push(ToolCall {
            id,
            name: call.name,
            arguments,
        });
    }
    unique
}

/// Returns the finish reason in OpenAI's words if one applies, else as received.
pub(crate) fn finish_reason(reason: &str, has_calls: bool) -> &str {
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "stop_sequence" | "end" | "complete"
        | "completed" | "done" => {
            if has_calls {
                "tool_calls"
            } else {
                "stop"
            }
        }
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => "tool_calls",
        "length"
        | "max_tokens"
        | "max_output_tokens"
        | "max_length"
        | "model_length"
        | "model_context_window_exceeded" => "length",
        _ => reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_no_half_characters() {
        let call = |arguments: &str| ToolCall {
            id: "c".into(),
            name: "t".into(),
            arguments: arguments.into(),
        };
        let calls = with_unique_ids([call(r#"{"a": "\ud83d"}"#), call(" ")]);
        let arguments: Vec<&str> = calls.iter().map(|call| call.arguments.as_str()).collect();
        assert_eq!(arguments, [r#"{"a": "\ufffd"}"#, "{}"]);
    }
}
