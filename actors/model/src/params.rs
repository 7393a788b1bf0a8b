//! Check of the sampling parameters that a caller adds to the requests of a run.
//!
//! They are sent unchanged; parameters that the model does not support are rejected by its service.
//! `temperature` is not one of them: it has its own setting.

use serde_json::{Map, Value};
use soong_protocol::{Effort, ErrorCode, ErrorInfo, ModelConfig};

/// Parameters that select how much the model reasons. Each API sends them under its own name.
const EFFORT: &str = "effort";
/// The level in chat completions.
pub(crate) const REASONING_EFFORT: &str = "reasoning_effort";
const REASONING_BUDGET: &str = "reasoning_budget_tokens";

/// How much a model is asked to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReasoningParams {
    /// The level.
    pub effort: Option<Effort>,
    /// The number of tokens.
    pub budget_tokens: Option<u64>,
}

impl ReasoningParams {
    /// Takes the level or the number of tokens out of the parameters of a run.
    ///
    /// # Errors
    /// A value that is not a level or a number, or both of them.
    pub fn take(params: &mut Map<String, Value>) -> Result<Self, String> {
        if params.contains_key(REASONING_EFFORT) && params.contains_key(EFFORT) {
            return Err(format!(
                "`{EFFORT}` and `{REASONING_EFFORT}` exclude each other"
            ));
        }
        let level = params
            .get(REASONING_EFFORT)
            .cloned()
            .map(serde_json::from_value::<Effort>);
        if level.is_some_and(|level| level.is_ok()) {
            let value = params.remove(REASONING_EFFORT).unwrap_or_default();
            params.insert(EFFORT.to_owned(), value);
        }
        let effort = params.remove(EFFORT).map(|value| {
            serde_json::from_value(value).map_err(|_| {
                let levels = Effort::ALL.map(Effort::as_str).join(", ");
                format!("`{EFFORT}` must be one of {levels}")
            })
        });
        let budget_tokens = params.remove(REASONING_BUDGET).map(|value| {
            let tokens = value.as_u64().filter(|tokens| *tokens > 0);
            tokens.ok_or_else(|| {
                format!("`{REASONING_BUDGET}` must be a number of tokens, at least 1")
            })
        });
        let found = Self {
            effort: effort.transpose()?,
            budget_tokens: budget_tokens.transpose()?,
        };
        if found.effort.is_some() && found.budget_tokens.is_some() {
            return Err(format!(
                "`{EFFORT}` and `{REASONING_BUDGET}` exclude each other"
            ));
        }
        Ok(found)
    }

    /// Returns the level or number of tokens of a profile.
    pub fn of_profile(profile: &ModelConfig) -> Self {
        let of_params =
            || serde_json::from_value(profile.params.get(REASONING_EFFORT)?.clone()).ok();
        Self {
            effort: profile.effort.or_else(of_params),
            budget_tokens: profile.reasoning_budget_tokens,
        }
    }

    /// Returns whether neither is set.
    pub fn is_unset(self) -> bool {
        self == Self::default()
    }
}

/// Parameters that the caller cannot set: every request sets them, or they would change the form of
/// the answer.
const RESERVED_PARAMS: [&str; 22] = [
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
    "max_output_tokens",
    "maxOutputTokens",
    "input",
    "contents",
    "system",
    "systemInstruction",
    "response_format",
    "modalities",
    "store",
];
/// Maximum size of the parameters as JSON, in bytes: they are sent with every request.
const MAX_BYTES: usize = 8_192;

/// Rejects parameters that the caller cannot set, and parameters that are too large.
pub fn check_params(params: &Map<String, Value>) -> Result<(), ErrorInfo> {
    let refuse = |why: String| {
        Err(ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("llm_params: {why}"),
        ))
    };
    if let Some(ours) = params
        .keys()
        .find(|key| RESERVED_PARAMS.contains(&key.as_str()))
    {
        let instead = match ours.as_str() {
            "temperature" => "set `temperature` of the run instead",
            "model" => "set `model` of the run instead",
            "response_format" => "set `expected_output_schema` of the run instead",
            _ => "remove it",
        };
        return refuse(format!("`{ours}` is set for each request: {instead}"));
    }
    if let Err(why) = ReasoningParams::take(&mut params.clone()) {
        return refuse(why);
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
            (json!({"effort": "high"}), None),
            (
                json!({"effort": "huge"}),
                Some("none, minimal, low, medium, high, xhigh, max"),
            ),
            (json!({"reasoning_budget_tokens": 5}), None),
            (json!({"reasoning_budget_tokens": 0}), Some("at least 1")),
            (
                json!({"reasoning_budget_tokens": 5, "effort": "low"}),
                Some("exclude each other"),
            ),
            (
                json!({"user": "x".repeat(MAX_BYTES)}),
                Some("limit of 8192"),
            ),
        ] {
            let Value::Object(params) = params else {
                unreachable!("an object")
            };
            let checked = check_params(&params).map_err(|error| error.message);
            match refused {
                None => assert_eq!(checked, Ok(()), "{params:?}"),
                Some(part) => assert!(checked.unwrap_err().contains(part), "{params:?}"),
            }
        }
    }
}
