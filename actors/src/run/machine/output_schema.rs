//! Answers that must match a JSON schema (SUB-4).
//!
//! Pure; part of the run state machine. Elsewhere: the single retry that a model gets (`turn.rs`).

use std::sync::{Arc, LazyLock};

use serde_json::{Value, json};
use soong_protocol::{AnswerCheck, ErrorCode, ErrorInfo};
use soong_text::json_values;
use soong_tool::JsonSchema;

use crate::memory::reflection_schema;

static EVALUATION: LazyLock<Arc<JsonSchema>> = LazyLock::new(|| {
    let schema = json!({
        "type": "object",
        "properties": {
            "passed": {"type": "boolean"},
            "summary": {"type": "string"},
            "findings": {"type": "array", "items": {"type": "string"}}
        },
        "required": ["passed", "summary"]
    });
    built_in(&schema)
});
static REFLECTION: LazyLock<Arc<JsonSchema>> = LazyLock::new(|| built_in(&reflection_schema()));

fn built_in(schema: &Value) -> Arc<JsonSchema> {
    Arc::new(
        JsonSchema::compile(schema)
            .unwrap_or_else(|error| unreachable!("a built-in schema: {error}")),
    )
}

/// A JSON schema that an answer must match.
pub(crate) struct OutputSchema {
    compiled: Arc<JsonSchema>,
    /// Whether the schema requires properties, so that a value that matches is hardly there by
    /// chance.
    is_restrictive: bool,
    /// Prompt text that requests the schema; empty if the instructions request it.
    prompt_text: String,
    /// The schema for the model's service; `None` if the instructions are enough.
    pub(crate) for_service: Option<Arc<Value>>,
}

impl OutputSchema {
    /// Compiles a schema that a caller gave.
    pub(crate) fn new(schema: &Value) -> Result<Self, ErrorInfo> {
        let invalid = |why: String| {
            ErrorInfo::new(
                ErrorCode::ValidationError,
                format!("expected_output_schema is not a valid JSON schema: {why}"),
            )
        };
        if !schema.is_object() {
            return Err(invalid("it must be an object".to_owned()));
        }
        let compiled = JsonSchema::compile(schema).map_err(invalid)?;
        let request = format!(
            "## Expected output\nEnd with one JSON value that matches this JSON schema, and nothing else.\n{schema}"
        );
        Ok(Self {
            compiled: Arc::new(compiled),
            is_restrictive: schema["required"]
                .as_array()
                .is_some_and(|required| !required.is_empty()),
            prompt_text: request,
            for_service: Some(Arc::new(schema.clone())),
        })
    }

    /// Returns the schema of an evaluator's answer (SUB-2).
    pub(crate) fn evaluation() -> Self {
        Self {
            compiled: Arc::clone(&EVALUATION),
            is_restrictive: true,
            prompt_text: String::new(),
            for_service: None,
        }
    }

    /// Returns the schema of a reflection (MEM-4).
    pub(crate) fn reflection() -> Self {
        Self {
            compiled: Arc::clone(&REFLECTION),
            is_restrictive: true,
            prompt_text: String::new(),
            for_service: None,
        }
    }

    /// Returns whether the check of an answer is so fast that it need not run on a blocking thread.
    pub(crate) fn is_fast_for(&self, answer: &str) -> bool {
        json_values(answer)
            .iter()
            .all(|found| self.compiled.is_fast_for(found.text))
    }

    /// Returns the text that is added to the task to request the schema.
    pub(crate) fn prompt_text(&self) -> &str {
        &self.prompt_text
    }

    /// Checks an answer, and returns the text of the JSON value that matches, and its number among
    /// the values of the answer. The time is bounded, but a schema may use it up, so the check of a
    /// model's answer runs in the task of the call.
    ///
    /// # Errors
    /// Why the most likely value does not match.
    pub(crate) fn check<'a>(&self, answer: &'a str) -> Result<(&'a str, u32), String> {
        let mut first_violations = None;
        for (number, found) in (0..).zip(json_values(answer)) {
            // A schema that accepts nearly everything would accept any brackets in a text.
            if found.is_in_prose && !self.is_restrictive {
                continue;
            }
            let violations = self.compiled.violations(&found.value);
            if violations.is_empty() {
                return Ok((found.text, number));
            }
            first_violations.get_or_insert_with(|| violations.join("; "));
        }
        Err(first_violations.unwrap_or_else(|| "it contains no JSON value".to_owned()))
    }

    /// Returns the result of the check as `model_completed` records it.
    pub(crate) fn answer_check(&self, answer: &str) -> AnswerCheck {
        match self.check(answer) {
            Ok((_, value)) => AnswerCheck::Match { value },
            Err(violations) => AnswerCheck::Mismatch { violations },
        }
    }
}

/// Returns the JSON value of an answer with this number; the answer itself if it contains none.
pub(crate) fn matching_text(answer: &str, value: u32) -> &str {
    json_values(answer)
        .get(value as usize)
        .map_or(answer, |found| found.text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schema_violation_names_location() {
        let schema = OutputSchema::new(&json!({
            "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]
        }))
        .unwrap();
        let answer = "```json\n{\"n\": 3}\n```";
        assert_eq!(schema.answer_check(answer), AnswerCheck::Match { value: 0 });
        assert_eq!(matching_text(answer, 0), "{\"n\": 3}");
        let answer = "<think>{}</think>Not {\"n\": \"x\"}, but {\"n\": 4}. See [1].";
        assert_eq!(
            schema.check(answer),
            Ok(("{\"n\": 4}", 1)),
            "the value that matches counts"
        );
        assert_eq!(matching_text(answer, 1), "{\"n\": 4}");
        let open = OutputSchema::new(&json!({"type": "array"})).unwrap();
        assert!(
            open.check("I could not find it, see [1].").is_err()
                && open.check("```\n[1]\n```").is_ok()
        );
        assert!(schema.check("{\"n\": \"x\"}").unwrap_err().contains("/n"));
        assert!(schema.check("{}").unwrap_err().contains('n'));
        assert!(schema.check("three").unwrap_err().contains("no JSON"));
        assert!(schema.prompt_text().contains("\"integer\""));
        for bad in [
            json!("x"),
            json!({"type": "nonsense"}),
            json!({"$ref": "https://example.org/a"}),
        ] {
            assert_eq!(
                OutputSchema::new(&bad).err().unwrap().code,
                ErrorCode::ValidationError,
                "{bad}"
            );
        }
    }

    #[test]
    fn judgement_requires_passed_and_summary() {
        let schema = OutputSchema::evaluation();
        for (answer, fits) in [
            ("{\"passed\": true, \"summary\": \"ok\"}", true),
            (
                "Sure:\n```json\n{\"passed\": false, \"summary\": \"no\", \"findings\": [\"x\"]}\n```\n",
                true,
            ),
            ("it passed", false),
            ("{\"passed\": \"yes\", \"summary\": \"ok\"}", false),
            ("{\"passed\": true}", false),
        ] {
            assert_eq!(schema.check(answer).is_ok(), fits, "{answer}");
        }
    }
}
