//! Redacts the outcomes of tool calls.
//!
//! An outcome is redacted before it is shortened. Otherwise, a preview that ends in the middle of a
//! secret would show its first part, which could no longer be found.

use soong_text::Redactor;

use super::{ToolOutput, ToolResult};

impl ToolOutput {
    /// Removes the secrets from the texts.
    pub fn redact(&mut self, redactor: &Redactor) {
        for text in [&mut self.title, &mut self.output] {
            redactor.redact(text);
            redactor.redact_partial(text);
        }
        redactor.redact_optional(&mut self.long_term_memory);
        if let Some(change) = &mut self.file_change {
            redactor.redact_optional(&mut change.diff);
        }
    }
}

/// Removes the secrets from the outcome of a call.
pub fn redacted(result: ToolResult, redactor: &Redactor) -> ToolResult {
    match result {
        Ok(mut output) => {
            output.redact(redactor);
            Ok(output)
        }
        Err(error) => Err(redactor.redact_error(error)),
    }
}
