//! Size limits of one model answer (MOD-4).
//!
//! An answer is held in memory and stored, so an answer of unlimited size could exhaust the memory
//! of the process and the disk of the runtime's home. A provider checks the size while it reads the
//! answer. The gateway checks every completion again.

use soong_protocol::ModelConfig;

use super::{Completion, Failure, ModelError};

/// Limits of one answer. No limit is zero, because the configuration rejects that.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerLimits {
    /// Maximum total size of the arguments of all tool calls, in bytes.
    pub argument_bytes: usize,
    /// Maximum total size of the text, the reasoning and the arguments of all tool calls, in bytes.
    pub answer_bytes: usize,
    /// Maximum number of tool calls.
    pub tool_calls: usize,
}

/// Size of an answer, or of the part received so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct AnswerSize {
    /// Size of the arguments of all tool calls, in bytes.
    pub argument_bytes: usize,
    /// Size of the text and the reasoning, in bytes.
    pub text_bytes: usize,
    /// Number of tool calls.
    pub tool_calls: usize,
}

impl AnswerLimits {
    /// Returns the limits that a model profile configures.
    pub fn of(config: &ModelConfig) -> Self {
        Self {
            argument_bytes: config.max_argument_bytes,
            answer_bytes: config.max_answer_bytes,
            tool_calls: config.max_tool_calls,
        }
    }

    /// Rejects a size that exceeds a limit. The error names the setting of that limit.
    pub fn check(&self, size: AnswerSize) -> Result<(), ModelError> {
        let what = if size.tool_calls > self.tool_calls {
            format!(
                "more than {} tool calls (model.max_tool_calls)",
                self.tool_calls
            )
        } else if size.argument_bytes > self.argument_bytes {
            format!(
                "more than {} bytes of tool call arguments (model.max_argument_bytes)",
                self.argument_bytes
            )
        } else if size.argument_bytes + size.text_bytes > self.answer_bytes {
            format!(
                "more than {} bytes (model.max_answer_bytes)",
                self.answer_bytes
            )
        } else {
            return Ok(());
        };
        Err(ModelError::new(
            Failure::AnswerTooLarge,
            format!("the model's answer contains {what}"),
        ))
    }

    /// Rejects a completion that exceeds a limit. See [`Self::check`].
    pub fn check_completion(&self, completion: &Completion) -> Result<(), ModelError> {
        self.check(AnswerSize {
            argument_bytes: completion.argument_bytes(),
            text_bytes: completion.text.len()
                + completion.reasoning.as_ref().map_or(0, String::len),
            tool_calls: completion.tool_calls.len(),
        })
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::ToolCall;

    use super::*;

    #[test]
    fn answer_beyond_a_limit_is_rejected_naming_the_setting() {
        let limits = AnswerLimits {
            argument_bytes: 10,
            answer_bytes: 20,
            tool_calls: 2,
        };
        for (text, calls, exceeded) in [
            (20, &[][..], None),
            (21, &[][..], Some("max_answer_bytes")),
            (10, &[5, 5][..], None),
            (11, &[5, 5][..], Some("max_answer_bytes")),
            (0, &[5, 6][..], Some("max_argument_bytes")),
            (0, &[0, 0, 0][..], Some("max_tool_calls")),
        ] {
            let call = |bytes: &usize| ToolCall {
                id: "1".into(),
                name: "x".into(),
                arguments: "x".repeat(*bytes),
            };
            let tool_calls = calls.iter().map(call).collect();
            let completion = Completion {
                text: "x".repeat(text),
                tool_calls,
                ..Completion::default()
            };
            let checked = limits.check_completion(&completion);
            assert_eq!(checked.is_err(), exceeded.is_some(), "{text} {calls:?}");
            if let (Err(error), Some(setting)) = (checked, exceeded) {
                assert!(
                    error.message.contains(setting) && !error.is_retryable(),
                    "{error}"
                );
            }
        }
    }
}
