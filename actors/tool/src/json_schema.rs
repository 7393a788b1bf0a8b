//! JSON schemas of drafts 4 to 2020-12, for the arguments of tools and for answers.

use jsonschema::Validator;
use serde_json::Value;

/// Maximum number of violations reported for one value. More would not help a model to correct it.
const MAX_VIOLATIONS: usize = 3;
/// Maximum length of the text of one violation, in characters. The text may quote the whole value.
const MAX_VIOLATION_CHARS: usize = 200;

/// A compiled schema.
#[derive(Debug)]
pub struct JsonSchema(Validator);

impl JsonSchema {
    /// Compiles a schema. Without `$schema`, it is of draft 2020-12.
    ///
    /// # Errors
    /// Returns the reason if the schema is invalid. A reference to another document is an error: no document is loaded.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        jsonschema::validator_for(schema).map(Self).map_err(|error| truncated(&error.to_string()))
    }

    /// Returns whether a value matches.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.0.is_valid(value)
    }

    /// Returns the violations, each with its location: at most three, then "and more" if there are others.
    pub fn violations(&self, value: &Value) -> Vec<String> {
        let mut all = self.0.iter_errors(value).map(|error| {
            let pointer = match error.instance_path().as_str() {
                "" => "/",
                path => path,
            };
            format!("at {}: {}", truncated(pointer), truncated(&error.to_string()))
        });
        let mut violations: Vec<String> = all.by_ref().take(MAX_VIOLATIONS).collect();
        if all.next().is_some() {
            violations.push("and more".to_owned());
        }
        violations
    }
}

/// Returns the beginning of a text.
pub(crate) fn truncated(text: &str) -> String {
    match text.char_indices().nth(MAX_VIOLATION_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_schemas_are_rejected() {
        for schema in [
            json!({"type": "nonsense"}),
            json!({"properties": {"a": {"minimum": "x"}}}),
            json!({"$ref": "https://example.org/a"}),
            json!({"$ref": "file:///etc/passwd"}),
            json!({"$ref": "#/$defs/missing"}),
            json!({"$schema": "https://example.org/draft"}),
            json!({"pattern": "("}),
        ] {
            assert!(JsonSchema::compile(&schema).is_err(), "{schema}");
        }
    }

    /// Each keyword of draft 2020-12 that restricts a value, and the older forms of MCP servers.
    #[test]
    fn keywords_are_enforced() {
        for (schema, good, bad) in [
            (json!({"type": ["string", "null"]}), json!(null), json!(1)),
            (json!({"enum": [1, "a"]}), json!("a"), json!("b")),
            (json!({"const": {"a": 1}}), json!({"a": 1.0}), json!({"a": 2})),
            (json!({"multipleOf": 0.5}), json!(1.5), json!(1.2)),
            (json!({"multipleOf": 0.01}), json!(19.99), json!(19.995)),
            (json!({"pattern": "^(?!no)"}), json!("yes"), json!("no")),
            (json!({"maximum": 3}), json!(3), json!(3.1)),
            (json!({"exclusiveMaximum": 3}), json!(2), json!(3)),
            (json!({"minimum": 3}), json!(3), json!(2)),
            (json!({"exclusiveMinimum": 3}), json!(4), json!(3)),
            (json!({"maxLength": 2}), json!("éé"), json!("abc")),
            (json!({"minLength": 2}), json!("ab"), json!("é")),
            (json!({"pattern": "^a+$"}), json!("aa"), json!("ab")),
            (json!({"maxItems": 1}), json!([1]), json!([1, 2])),
            (json!({"minItems": 1}), json!([1]), json!([])),
            (json!({"uniqueItems": true}), json!([1, 2]), json!([1, 1.0])),
            (json!({"contains": {"type": "string"}, "maxContains": 1}), json!(["a", 1]), json!(["a", "b"])),
            (json!({"contains": {"type": "string"}, "minContains": 2}), json!(["a", "b"]), json!(["a"])),
            (json!({"items": {"type": "string"}}), json!(["a"]), json!([1])),
            (json!({"prefixItems": [{"type": "string"}], "items": false}), json!(["a"]), json!(["a", 1])),
            (json!({"unevaluatedItems": false, "prefixItems": [true]}), json!([1]), json!([1, 2])),
            (json!({"maxProperties": 1}), json!({"a": 1}), json!({"a": 1, "b": 2})),
            (json!({"minProperties": 1}), json!({"a": 1}), json!({})),
            (json!({"required": ["a"]}), json!({"a": null}), json!({})),
            (json!({"dependentRequired": {"a": ["b"]}}), json!({"b": 1}), json!({"a": 1})),
            (json!({"dependentSchemas": {"a": {"required": ["b"]}}}), json!({"a": 1, "b": 1}), json!({"a": 1})),
            (json!({"properties": {"a": {"type": "string"}}}), json!({"a": "x"}), json!({"a": 1})),
            (json!({"patternProperties": {"^x": {"type": "string"}}}), json!({"y": 1}), json!({"x1": 1})),
            (json!({"additionalProperties": false, "properties": {"a": true}}), json!({"a": 1}), json!({"b": 1})),
            (json!({"unevaluatedProperties": false, "properties": {"a": true}}), json!({"a": 1}), json!({"b": 1})),
            (json!({"propertyNames": {"maxLength": 1}}), json!({"a": 1}), json!({"ab": 1})),
            (json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}), json!(1), json!(3)),
            (json!({"anyOf": [{"type": "string"}, {"minimum": 2}]}), json!(2), json!(1)),
            (json!({"oneOf": [{"minimum": 1}, {"maximum": 2}]}), json!(3), json!(1)),
            (json!({"not": {"type": "string"}}), json!(1), json!("a")),
            (json!({"if": {"minimum": 5}, "then": {"maximum": 6}, "else": {"type": "integer"}}), json!(6), json!(1.5)),
            (json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}), json!("x"), json!(1)),
            (
                json!({"properties": {"next": {"$ref": "#"}}, "additionalProperties": false}),
                json!({"next": {}}),
                json!({"next": {"a": 1}}),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"type": "string"}]}),
                json!(["a", 1]),
                json!([1]),
            ),
            (
                json!({"$schema": "http://json-schema.org/draft-04/schema#", "minimum": 1, "exclusiveMinimum": true}),
                json!(2),
                json!(1),
            ),
        ] {
            let compiled = JsonSchema::compile(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
            assert!(compiled.is_valid(&good), "{schema} rejects {good}");
            assert!(!compiled.is_valid(&bad) && !compiled.violations(&bad).is_empty(), "{schema} accepts {bad}");
            assert!(compiled.violations(&good).is_empty());
        }
    }

    #[test]
    fn violations_have_locations_and_a_limit() {
        let schema = json!({"properties": {
            "a": {"type": "string"},
            "b": {"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 1}]},
            "c": {"maxLength": 1}
        }, "required": ["d"]});
        let schema = JsonSchema::compile(&schema).unwrap();
        let found = schema.violations(&json!({"a": 1, "d": 1}));
        assert_eq!(found, ["at /a: 1 is not of type \"string\""]);
        let found = schema.violations(&json!({"a": 1, "b": 0, "c": "x".repeat(9_999)}));
        assert_eq!((found.len(), found[3].as_str()), (4, "and more"), "{found:?}");
        assert!(found.iter().all(|violation| violation.len() < 500), "{found:?}");
    }
}
