//! Accepts arguments whose shape differs from the schema if their meaning is unambiguous.
//!
//! Pure. There are exactly two conversions: a scalar becomes a list with one item if a list of
//! scalars is expected, and an object becomes JSON text if text for a model or a user is expected
//! (see [`ToolSpec::json_as_text`]).

use serde_json::{Map, Value};
use soong_protocol::ToolSpec;
use soong_text::indented_json;

/// Converted arguments.
#[derive(Debug, PartialEq)]
pub(super) struct CoercedArguments {
    pub(super) arguments: Value,
    /// Description of the conversions, for the model.
    pub(super) note: String,
}

/// Converts arguments that do not fit the schema; `None` if there is nothing to convert.
///
/// The result may still not fit the schema.
pub(super) fn coerce(spec: &ToolSpec, arguments: &Value) -> Option<CoercedArguments> {
    let properties = spec.parameters.get("properties")?;
    let mut changed = arguments.as_object()?.clone();
    let mut notes = Vec::new();
    for (name, value) in &mut changed {
        let Some(schema) = properties.get(name) else {
            continue;
        };
        if is_list_of_scalars(schema) && is_scalar(value) {
            *value = Value::Array(vec![value.take()]);
            notes.push(format!("`{name}` was taken as a list of one"));
        }
    }
    // Programs read the content of a file, so an object is accepted as content only for a JSON
    // file, and is indented.
    let path = arguments.get("path").and_then(Value::as_str);
    let is_indented = match (properties.get("path"), path) {
        (None, _) => Some(false),
        (Some(_), Some(path)) if path.to_ascii_lowercase().ends_with(".json") => Some(true),
        (Some(_), _) => None,
    };
    for parameter in is_indented.iter().flat_map(|_| &spec.json_as_text) {
        let (name, inner) = parameter.split_once('/').unwrap_or((parameter, ""));
        let Some(value) = changed.get_mut(name) else {
            continue;
        };
        let takes_list = properties.get(name).is_some_and(takes_array);
        if convert_to_text(value, inner, takes_list, is_indented == Some(true)) {
            notes.push(format!("the JSON given as `{name}` was taken as text"));
        }
    }
    let note = notes.join("; ");
    (!note.is_empty()).then_some(CoercedArguments {
        arguments: Value::Object(changed),
        note,
    })
}

/// Converts objects to text, each separately if they are in a list. Returns whether there were any.
fn convert_to_text(value: &mut Value, inner: &str, takes_list: bool, is_indented: bool) -> bool {
    match value {
        Value::Array(all) if takes_list || !inner.is_empty() => {
            // `fold` instead of `any`, so that every item is converted.
            all.iter_mut().fold(false, |any, one| {
                convert_to_text(one, inner, takes_list, is_indented) | any
            })
        }
        Value::Object(object) if !inner.is_empty() => object
            .get_mut(inner)
            .is_some_and(|value| convert_to_text(value, "", false, is_indented)),
        Value::Object(_) | Value::Array(_) => {
            let text = if is_indented {
                format!("{}\n", indented_json(value))
            } else {
                value.to_string()
            };
            *value = Value::String(text);
            true
        }
        _ => false,
    }
}

fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_))
}

/// Returns whether a schema accepts lists of scalars, but no scalar.
fn is_list_of_scalars(schema: &Value) -> bool {
    let types = types(schema);
    let is_list =
        types.contains(&"array") && types.iter().all(|kind| matches!(*kind, "array" | "null"));
    let items = schema.get("items").map(self::types).unwrap_or_default();
    let scalars = ["string", "integer", "number", "boolean"];
    is_list && !items.is_empty() && items.iter().all(|kind| scalars.contains(kind))
}

fn takes_array(schema: &Value) -> bool {
    let others = schema.get("anyOf").and_then(Value::as_array);
    types(schema).contains(&"array") || others.is_some_and(|others| others.iter().any(takes_array))
}

fn types(schema: &Value) -> Vec<&str> {
    match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) => all.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    }
}

/// Adds a note to the output of a call: as the field `note` if the output is a JSON object without
/// that field, else after the text.
pub fn with_note(output: String, note: &str) -> String {
    match serde_json::from_str::<Map<String, Value>>(&output) {
        Ok(mut object) if !object.contains_key("note") => {
            object.shift_insert(0, "note".to_owned(), note.into());
            Value::Object(object).to_string()
        }
        _ => format!("{output}\n[note: {note}]"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(json_as_text: &[&str], properties: Value) -> ToolSpec {
        let schema = json!({"type": "object", "properties": properties});
        let json_as_text = json_as_text
            .iter()
            .map(|parameter| (*parameter).to_owned())
            .collect();
        ToolSpec {
            json_as_text,
            ..ToolSpec::read("x", "X", "Does it.", schema)
        }
    }

    #[test]
    fn scalar_is_wrapped_if_schema_accepts_only_a_list() {
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let maybe = json!({"type": ["array", "null"], "items": {"type": "integer"}});
        let either = json!({"type": ["array", "string"], "items": {"type": "string"}});
        let objects = json!({"type": "array", "items": {"type": "object"}});
        for (schema, given, want) in [
            (&texts, json!("a"), Some(json!(["a"]))),
            (&maybe, json!(3), Some(json!([3]))),
            (&texts, json!(["a"]), None),
            (&texts, json!({"a": 1}), None),
            (&texts, json!(null), None),
            (&either, json!("a"), None),
            (&objects, json!("a"), None),
        ] {
            let coerced = coerce(&spec(&[], json!({"p": schema})), &json!({"p": given}));
            assert_eq!(
                coerced.map(|coerced| coerced.arguments),
                want.map(|want| json!({"p": want})),
                "{schema} {given}"
            );
        }
    }

    #[test]
    fn object_becomes_text_only_for_marked_parameters() {
        let text = json!({"type": "string"});
        let task =
            json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]});
        let goals = json!({"type": "array", "items": {"type": "object", "properties": {"content": {"type": "string"}}}});
        for (marks, schema, given, want) in [
            (&["p"][..], &text, json!({"a": 1}), Some(json!("{\"a\":1}"))),
            (
                &["p"],
                &text,
                json!(["a", {"b": 2}]),
                Some(json!("[\"a\",{\"b\":2}]")),
            ),
            (
                &["p"],
                &task,
                json!(["a", {"b": 2}]),
                Some(json!(["a", "{\"b\":2}"])),
            ),
            (
                &["p/content"],
                &goals,
                json!([{"content": {"a": 1}}, {"content": "b"}]),
                Some(json!([{"content": "{\"a\":1}"}, {"content": "b"}])),
            ),
            (&["p"], &text, json!("a"), None),
            (&["q"], &text, json!({"a": 1}), None),
            (&[], &text, json!({"a": 1}), None),
        ] {
            let coerced = coerce(&spec(marks, json!({"p": schema})), &json!({"p": given}));
            assert_eq!(
                coerced.map(|coerced| coerced.arguments),
                want.map(|want| json!({"p": want})),
                "{schema} {given}"
            );
        }
    }

    #[test]
    fn json_content_is_accepted_only_for_json_files() {
        let file = spec(
            &["content"],
            json!({"path": {"type": "string"}, "content": {"type": "string"}}),
        );
        let call = |path: &str| coerce(&file, &json!({"path": path, "content": {"a": [1]}}));
        let want = json!({"path": "x.JSON", "content": "{\n  \"a\": [\n    1\n  ]\n}\n"});
        assert_eq!(call("x.JSON").unwrap().arguments, want);
        assert_eq!(call("x.py"), None);
    }

    #[test]
    fn note_is_added_inside_object_and_after_text() {
        assert_eq!(
            with_note("{\"a\":1}".to_owned(), "n"),
            "{\"note\":\"n\",\"a\":1}"
        );
        assert_eq!(with_note("text".to_owned(), "n"), "text\n[note: n]");
    }
}
