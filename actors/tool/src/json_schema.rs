//! JSON schemas of drafts 4 to 2020-12, for the arguments of tools and for answers.

use std::{error::Error, fmt};

use boon::{CompileError, Compiler, Draft, SchemaIndex, Schemas, UrlLoader, ValidationError};
use serde_json::Value;

/// Address of a schema within its compiler. Relative references are resolved against it.
const ADDRESS: &str = "https://schema.invalid/schema.json";
/// Maximum number of violations reported for one value. More would not help a model to correct it.
const MAX_VIOLATIONS: usize = 3;
/// Maximum length of the text of one violation, in characters. The text may quote the whole value.
const MAX_VIOLATION_CHARS: usize = 200;

/// A compiled schema.
pub struct JsonSchema {
    schemas: Schemas,
    index: SchemaIndex,
}

impl fmt::Debug for JsonSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JsonSchema").finish_non_exhaustive()
    }
}

impl JsonSchema {
    /// Compiles a schema. Without `$schema`, it is of draft 2020-12.
    ///
    /// # Errors
    /// Why the schema is invalid. A reference to another document is an error: no document is loaded.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let mut compiler = Compiler::new();
        compiler.set_default_draft(Draft::V2020_12);
        compiler.use_loader(Box::new(NoDocuments));
        let mut schemas = Schemas::new();
        let added = compiler.add_resource(ADDRESS, schema.clone()).map_err(Box::new);
        match added.and_then(|()| compiler.compile(ADDRESS, &mut schemas).map_err(Box::new)) {
            Ok(index) => Ok(Self { schemas, index }),
            Err(error) => Err(match &*error {
                CompileError::ValidationError { src, .. } => described(src).join("; "),
                error => truncated(&format!("{error:#}").replace(ADDRESS, "")),
            }),
        }
    }

    /// Returns whether a value matches.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.schemas.validate(value, self.index).is_ok()
    }

    /// Returns the violations, each with its location: at most three, then "and more" if there are others.
    pub fn violations(&self, value: &Value) -> Vec<String> {
        self.schemas.validate(value, self.index).map_or_else(|error| described(&error), |()| Vec::new())
    }
}

/// Describes an error: its first causes, with their locations.
fn described(error: &ValidationError<'_, '_>) -> Vec<String> {
    let mut causes = Vec::new();
    add_causes(error, &mut causes);
    let mut described: Vec<String> = causes
        .iter()
        .take(MAX_VIOLATIONS)
        .map(|cause| {
            let location = cause.instance_location.to_string();
            let location = if location.is_empty() { "/" } else { &location };
            format!("at {}: {}", truncated(location), truncated(&cause.kind.to_string()))
        })
        .collect();
    if causes.len() > MAX_VIOLATIONS {
        described.push("and more".to_owned());
    }
    described
}

/// Adds the errors without further causes. Stops when there are more than can be described.
fn add_causes<'e, 's, 'v>(error: &'e ValidationError<'s, 'v>, causes: &mut Vec<&'e ValidationError<'s, 'v>>) {
    if causes.len() > MAX_VIOLATIONS {
        return;
    }
    if error.causes.is_empty() {
        causes.push(error);
    }
    error.causes.iter().for_each(|cause| add_causes(cause, causes));
}

/// Returns the beginning of a text.
pub(crate) fn truncated(text: &str) -> String {
    match text.char_indices().nth(MAX_VIOLATION_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Refuses every document, so that no schema reads a file or an address.
struct NoDocuments;

impl UrlLoader for NoDocuments {
    fn load(&self, url: &str) -> Result<Value, Box<dyn Error>> {
        Err(format!("a schema cannot refer to another document, such as {url}").into())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn invalid_schemas_are_rejected() {
        for (schema, reason) in [
            (json!({"type": "nonsense"}), "at /type: "),
            (json!({"properties": {"a": {"minimum": "x"}}}), "at /properties/a/minimum: want number"),
            (json!({"$ref": "https://example.org/a"}), "another document, such as https://example.org/a"),
            (json!({"$ref": "file:///etc/passwd"}), "another document, such as file:///etc/passwd"),
            (json!({"$ref": "#/$defs/missing"}), "missing"),
            (json!({"$schema": "https://example.org/draft"}), "https://example.org/draft"),
            (json!({"pattern": "("}), "("),
        ] {
            let error = JsonSchema::compile(&schema).expect_err(&schema.to_string());
            assert!(error.contains(reason), "{schema}: {error}");
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
        assert_eq!(found, ["at /a: want string, but got number"]);
        let found = schema.violations(&json!({"a": 1, "b": 0, "c": "x".repeat(9_999)}));
        assert_eq!((found.len(), found[3].as_str()), (4, "and more"), "{found:?}");
        assert!(found.iter().all(|violation| violation.len() < 500), "{found:?}");
    }
}
