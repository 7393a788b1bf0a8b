//! JSON schemas of drafts 4 to 2020-12, for the arguments of tools and for answers.
//!
//! Schemas and values come from models and servers, so the work that they cause is bounded
//! (`json_schema/steps.rs`).

mod steps;

use jsonschema::{PatternOptions, Validator};
use serde_json::Value;
use steps::Steps;

/// Maximum number of violations reported for one value. More would not help a model to correct it.
const MAX_VIOLATIONS: usize = 3;
/// Maximum length of the text of one violation, in characters. The text may quote the whole value.
const MAX_VIOLATION_CHARS: usize = 200;

/// Maximum number of steps of a check after which each violation is looked up. The lookup may
/// collect many violations.
const MAX_STEPS_FOR_VIOLATIONS: usize = 20_000;
/// Maximum number of steps back of the match of a pattern that needs them (look-around,
/// backreferences).
const MAX_BACKTRACKS: usize = 10_000;

/// Maximum number of steps of a check that takes no more than some tens of microseconds.
const MAX_FAST_STEPS: usize = 2_000;
/// Maximum length of a text whose value is checked as fast, in bytes.
const MAX_FAST_BYTES: usize = 8 * 1024;

/// A compiled schema.
#[derive(Debug)]
pub struct JsonSchema {
    steps: Steps,
    validator: Validator,
}

impl JsonSchema {
    /// Compiles a schema. Without `$schema`, it is of draft 2020-12.
    ///
    /// # Errors
    /// Returns the reason if the schema is invalid, or expands to too many schemas. A reference to
    /// another document is an error: no document is loaded.
    pub fn compile(schema: &Value) -> Result<Self, String> {
        let steps = Steps::new(schema).map_err(|reason| truncated(&reason))?;
        let patterns = PatternOptions::fancy_regex().backtrack_limit(MAX_BACKTRACKS);
        let validator = jsonschema::options()
            .with_pattern_options(patterns)
            .build(schema);
        let validator = validator.map_err(|error| truncated(&error.to_string()))?;
        Ok(Self { steps, validator })
    }

    /// Returns whether the check of a JSON text is so fast that it need not run on a blocking
    /// thread.
    pub fn is_fast_for(&self, json: &str) -> bool {
        if json.len() > MAX_FAST_BYTES {
            return false;
        }
        match serde_json::from_str(json) {
            // It may contain an object, which is checked in its place.
            Ok(Value::String(_)) => false,
            Ok(value) => self.steps.count_up_to(MAX_FAST_STEPS, &value).is_ok(),
            // There is no value to check.
            Err(_) => true,
        }
    }

    /// Returns whether a value matches. A value whose check takes too many steps does not match.
    pub fn is_valid(&self, value: &Value) -> bool {
        self.steps.count(value).is_ok() && self.validator.is_valid(value)
    }

    /// Returns the violations, each with its location: at most three, then "and more" if there are
    /// others.
    pub fn violations(&self, value: &Value) -> Vec<String> {
        let steps = match self.steps.count(value) {
            Ok(steps) => steps,
            Err(reason) => return vec![reason],
        };
        // The validator remembers results only if it does not collect violations.
        if self.validator.is_valid(value) {
            return Vec::new();
        }
        if steps > MAX_STEPS_FOR_VIOLATIONS {
            return vec![
                "it does not match the schema, and is too large for a list of the violations"
                    .to_owned(),
            ];
        }
        let mut all = self.validator.iter_errors(value).map(|error| {
            let pointer = match error.instance_path().as_str() {
                "" => "/",
                path => path,
            };
            format!(
                "at {}: {}",
                truncated(pointer),
                truncated(&error.to_string())
            )
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
            (
                json!({"const": {"a": 1}}),
                json!({"a": 1.0}),
                json!({"a": 2}),
            ),
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
            (
                json!({"contains": {"type": "string"}, "maxContains": 1}),
                json!(["a", 1]),
                json!(["a", "b"]),
            ),
            (
                json!({"contains": {"type": "string"}, "minContains": 2}),
                json!(["a", "b"]),
                json!(["a"]),
            ),
            (
                json!({"items": {"type": "string"}}),
                json!(["a"]),
                json!([1]),
            ),
            (
                json!({"prefixItems": [{"type": "string"}], "items": false}),
                json!(["a"]),
                json!(["a", 1]),
            ),
            (
                json!({"unevaluatedItems": false, "prefixItems": [true]}),
                json!([1]),
                json!([1, 2]),
            ),
            (
                json!({"maxProperties": 1}),
                json!({"a": 1}),
                json!({"a": 1, "b": 2}),
            ),
            (json!({"minProperties": 1}), json!({"a": 1}), json!({})),
            (json!({"required": ["a"]}), json!({"a": null}), json!({})),
            (
                json!({"dependentRequired": {"a": ["b"]}}),
                json!({"b": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"dependentSchemas": {"a": {"required": ["b"]}}}),
                json!({"a": 1, "b": 1}),
                json!({"a": 1}),
            ),
            (
                json!({"properties": {"a": {"type": "string"}}}),
                json!({"a": "x"}),
                json!({"a": 1}),
            ),
            (
                json!({"patternProperties": {"^x": {"type": "string"}}}),
                json!({"y": 1}),
                json!({"x1": 1}),
            ),
            (
                json!({"additionalProperties": false, "properties": {"a": true}}),
                json!({"a": 1}),
                json!({"b": 1}),
            ),
            (
                json!({"unevaluatedProperties": false, "properties": {"a": true}}),
                json!({"a": 1}),
                json!({"b": 1}),
            ),
            (
                json!({"propertyNames": {"maxLength": 1}}),
                json!({"a": 1}),
                json!({"ab": 1}),
            ),
            (
                json!({"allOf": [{"minimum": 1}, {"maximum": 2}]}),
                json!(1),
                json!(3),
            ),
            (
                json!({"anyOf": [{"type": "string"}, {"minimum": 2}]}),
                json!(2),
                json!(1),
            ),
            (
                json!({"oneOf": [{"minimum": 1}, {"maximum": 2}]}),
                json!(3),
                json!(1),
            ),
            (json!({"not": {"type": "string"}}), json!(1), json!("a")),
            (
                json!({"if": {"minimum": 5}, "then": {"maximum": 6}, "else": {"type": "integer"}}),
                json!(6),
                json!(1.5),
            ),
            (
                json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}}),
                json!("x"),
                json!(1),
            ),
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
            let compiled =
                JsonSchema::compile(&schema).unwrap_or_else(|error| panic!("{schema}: {error}"));
            assert!(compiled.is_valid(&good), "{schema} rejects {good}");
            assert!(
                !compiled.is_valid(&bad) && !compiled.violations(&bad).is_empty(),
                "{schema} accepts {bad}"
            );
            assert!(compiled.violations(&good).is_empty());
        }
    }

    /// Returns a schema whose references double per level.
    fn doubling(levels: usize) -> Value {
        let mut definitions = serde_json::Map::new();
        definitions.insert("a0".to_owned(), json!({"type": "string"}));
        for level in 1..=levels {
            let reference = json!({"$ref": format!("#/$defs/a{}", level - 1)});
            definitions.insert(
                format!("a{level}"),
                json!({"allOf": [reference, reference]}),
            );
        }
        json!({"$ref": format!("#/$defs/a{levels}"), "$defs": definitions})
    }

    #[test]
    fn check_is_fast_if_it_takes_few_steps() {
        let usual = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
        for (schema, json, is_fast) in [
            (usual.clone(), r#"{"path": "a"}"#.to_owned(), true),
            (
                usual.clone(),
                format!(r#"{{"path": "{}"}}"#, "a".repeat(10_000)),
                false,
            ),
            (usual.clone(), "no JSON".to_owned(), true),
            // It may contain an object, which is checked in its place.
            (usual, r#""{\"path\": \"a\"}""#.to_owned(), false),
            (doubling(5), "1".to_owned(), true),
            (doubling(14), "1".to_owned(), false),
            (json!({"items": {"$ref": "#"}}), nested(3).to_string(), true),
        ] {
            let compiled = JsonSchema::compile(&schema).unwrap();
            assert_eq!(compiled.is_fast_for(&json), is_fast, "{schema}");
        }
    }

    /// Returns `[[…]]` with this depth.
    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!([]), |inner, _| json!([inner]))
    }

    #[test]
    fn schemas_that_expand_too_much_are_refused() {
        assert!(
            JsonSchema::compile(&doubling(10))
                .unwrap()
                .is_valid(&json!("x"))
        );
        let nested_unevaluated = |levels: usize| {
            (0..levels).fold(
                json!({"properties": {"a": true}}),
                |inner, _| json!({"unevaluatedProperties": false, "anyOf": [inner]}),
            )
        };
        assert!(JsonSchema::compile(&nested_unevaluated(3)).is_ok());
        let names: Vec<String> = (0..12).map(|number| format!("c{number}")).collect();
        let all: Vec<Value> = names
            .iter()
            .map(|name| json!({"$ref": format!("#/$defs/{name}")}))
            .collect();
        let clique: serde_json::Map<String, Value> = names
            .iter()
            .map(|name| (name.clone(), json!({"allOf": all})))
            .collect();
        let chain: serde_json::Map<String, Value> = (0..2_000)
            .map(|level| {
                (
                    format!("l{level}"),
                    json!({"allOf": [{"$ref": format!("#/$defs/l{}", level + 1)}]}),
                )
            })
            .chain([("l2000".to_owned(), json!(true))])
            .collect();
        for (schema, part) in [
            (
                doubling(26),
                "it expands to more than 100000 schemas at #/$defs/a",
            ),
            (
                nested_unevaluated(30),
                "it expands to more than 100000 schemas",
            ),
            (
                json!({"$ref": "#/$defs/c0", "$defs": clique}),
                "it expands to more than",
            ),
            (
                json!({"$ref": "#/$defs/l0", "$defs": chain}),
                "it nests more than 512 schemas",
            ),
            (
                json!({"pattern": "\\d".repeat(11_000)}),
                "its patterns have more than",
            ),
        ] {
            let error = JsonSchema::compile(&schema).unwrap_err();
            assert!(error.contains(part), "{part}: {error}");
        }
    }

    #[test]
    fn large_ordinary_schemas_and_values_are_accepted() {
        for pattern in ["^[^<>]{1,2000}$", "^.{1,4000}$", "^\\p{L}{1,50}$"] {
            assert!(
                JsonSchema::compile(&json!({"pattern": pattern})).is_ok(),
                "{pattern}"
            );
        }
        let countries: Vec<String> = (0..250).map(|number| format!("country {number}")).collect();
        let row = json!({"type": "object", "properties": {"country": {"enum": countries}, "n": {"type": "integer"}}});
        let table = JsonSchema::compile(&json!({"type": "array", "items": row})).unwrap();
        let rows: Vec<Value> = (0..8_000)
            .map(|n| json!({"country": countries[n % 250], "n": n}))
            .collect();
        assert!(table.is_valid(&json!(rows)));
        let words: Vec<String> = (0..600).map(|number| format!("word {number}")).collect();
        let members: serde_json::Map<String, Value> = (0..40)
            .map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/word"})))
            .collect();
        assert!(
            JsonSchema::compile(
                &json!({"properties": members, "$defs": {"word": {"enum": words}}})
            )
            .is_ok()
        );
        let text =
            JsonSchema::compile(&json!({"anyOf": [{"type": "string"}, {"type": "null"}]})).unwrap();
        assert!(text.is_valid(&json!("x".repeat(5_000_000))));
        let tree = json!({
            "$ref": "#/$defs/node",
            "$defs": {"node": {"anyOf": [{"type": "null"}, {"properties": {"child": {"$ref": "#/$defs/node"}}}]}},
        });
        let deep = (0..100).fold(json!(null), |child, _| json!({"child": child}));
        assert!(JsonSchema::compile(&tree).unwrap().is_valid(&deep));
        let draft7 = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"a": {"$ref": "#/definitions/a", "items": {"$ref": "#/nope"}}},
            "definitions": {"a": {"type": "string"}},
        });
        assert!(
            JsonSchema::compile(&draft7)
                .unwrap()
                .is_valid(&json!({"a": "x"})),
            "keywords beside $ref are ignored"
        );
        // The deepest nesting that is accepted fits on the stack.
        let chain: serde_json::Map<String, Value> = (0..240)
            .map(|level| {
                (
                    format!("l{level}"),
                    json!({"allOf": [{"$ref": format!("#/$defs/l{}", level + 1)}]}),
                )
            })
            .chain([("l240".to_owned(), json!({"type": "string"}))])
            .collect();
        let chain = JsonSchema::compile(&json!({"$ref": "#/$defs/l0", "$defs": chain})).unwrap();
        assert!(chain.is_valid(&json!("x")) && !chain.violations(&json!(1)).is_empty());
    }

    #[test]
    fn values_that_take_too_many_steps_do_not_match() {
        let tangled = json!({
            "$ref": "#/$defs/a",
            "$defs": {"a": {"items": {"allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}]}}},
        });
        let schema = JsonSchema::compile(&tangled).unwrap();
        assert!(schema.is_valid(&nested(10)) && schema.violations(&nested(10)).is_empty());
        assert!(!schema.is_valid(&nested(40)));
        let violations = schema.violations(&nested(40));
        assert!(
            violations[0].contains("takes more than 2000000 steps, at #/$defs/a"),
            "{violations:?}"
        );
        // A recursive schema without multiplication takes as many steps as the value has parts.
        let tree = json!({"$ref": "#/$defs/t", "$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}});
        let schema = JsonSchema::compile(&tree).unwrap();
        assert!(schema.is_valid(&nested(100)) && !schema.is_valid(&json!([[1]])));
        assert!(schema.is_valid(&json!(vec![json!([]); 20_000])));
        // A pattern that needs backtracking ends at its limit.
        let backtracking = JsonSchema::compile(&json!({"pattern": "^(?=a)(a|a)*b$"})).unwrap();
        assert!(!backtracking.is_valid(&json!("a".repeat(5_000))));
        assert!(backtracking.violations(&json!("a".repeat(500_000)))[0].contains("steps"));
        assert!(
            JsonSchema::compile(&json!({"$ref": "#"}))
                .unwrap()
                .is_valid(&json!(1)),
            "a cycle for the same value"
        );
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
        assert_eq!(
            (found.len(), found[3].as_str()),
            (4, "and more"),
            "{found:?}"
        );
        assert!(
            found.iter().all(|violation| violation.len() < 500),
            "{found:?}"
        );
    }
}
