//! Check of the sampling parameters that a caller adds to the requests of a run.
//!
//! They are sent unchanged; parameters that the model does not support are rejected by its service. `temperature` is
//! not one of them: it has its own setting.

use serde_json::{Map, Value};
use soong_protocol::{ErrorCode, ErrorInfo};

/// Parameters that the caller cannot set: every request sets them, or they would change the form of the answer.
const RESERVED_PARAMS: [&str; 16] = [
    "model",
    "messages",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "stream",
    "stream_options",
    "n",
    "temperature",
    "max_tokens",
    "max_completion_tokens",
    "response_format",
    "modalities",
    "store",
];
/// Maximum size of the parameters as JSON, in bytes: they are sent with every request.
const MAX_BYTES: usize = 8_192;

/// Rejects parameters that the caller cannot set, and parameters that are too large.
pub fn check_params(params: &Map<String, Value>) -> Result<(), ErrorInfo> {
    let refuse = |why: String| Err(ErrorInfo::new(ErrorCode::ValidationError, format!("llm_params: {why}")));
    if let Some(ours) = params.keys().find(|key| RESERVED_PARAMS.contains(&key.as_str())) {
        let instead = match ours.as_str() {
            "temperature" => "set `temperature` of the run instead",
            "model" => "set `model` of the run instead",
            "response_format" => "set `expected_output_schema` of the run instead",
            _ => "remove it",
        };
        return refuse(format!("`{ours}` is set for each request: {instead}"));
    }
    let bytes = Value::Object(params.clone()).to_string().len();
    if bytes > MAX_BYTES {
        return refuse(format!(
            "{bytes} bytes of JSON exceed the limit of {MAX_BYTES}: they are sent with every request"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn reserved_parameters_are_rejected() {
        for (params, refused) in [
            (json!({}), None),
            (json!({"top_p": 0.5, "seed": 7, "stop": ["x"]}), None),
            (json!({"top_p": 0.5, "stream": false}), Some("`stream`")),
            (json!({"temperature": 0}), Some("`temperature` of the run")),
            (json!({"model": "x"}), Some("`model` of the run")),
            (json!({"user": "x".repeat(MAX_BYTES)}), Some("limit of 8192")),
        ] {
            let Value::Object(params) = params else { unreachable!("an object") };
            let checked = check_params(&params).map_err(|error| error.message);
            match refused {
                None => assert_eq!(checked, Ok(()), "{params:?}"),
                Some(part) => assert!(checked.unwrap_err().contains(part), "{params:?}"),
            }
        }
    }
}
