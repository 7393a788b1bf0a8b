//! Schemas of a server's tools in the form that services of models accept: an object without
//! alternatives at its root.
//!
//! OpenAI and Anthropic reject a request with any tool whose schema has `oneOf`, `anyOf`, `allOf`,
//! `enum` or `not` at its root, and so every run. The alternatives are merged into one object,
//! which accepts more; the server checks the arguments itself. Keywords of OpenAPI 3.0 and of older
//! drafts become those of JSON Schema. Pure.

use serde_json::{Map, Value, json};

/// Keywords that a root must not have.
const ROOT_KEYWORDS: [&str; 8] = [
    "oneOf", "anyOf", "allOf", "enum", "not", "const", "if", "$ref",
];
/// Maximum depth to which a schema is normalized; deeper parts stay as they are.
const MAX_DEPTH: usize = 64;

/// Returns the schema in an accepted form, and a note about alternatives for the description of the
/// tool.
///
/// # Errors
/// Why the schema does not describe an object.
pub(super) fn accepted(mut schema: Value) -> Result<(Value, Option<String>), String> {
    normalize(&mut schema, 0);
    let mut note = None;
    let is_plain = !ROOT_KEYWORDS
        .iter()
        .any(|keyword| schema.get(keyword).is_some());
    if !is_plain {
        (schema, note) = flattened(&schema)?;
    }
    let Some(object) = schema.as_object_mut() else {
        return Err("its schema is not an object".to_owned());
    };
    // Arguments are always an object, but some servers omit the type, or allow null besides.
    match object.get("type") {
        None => drop(object.insert("type".to_owned(), "object".into())),
        Some(Value::Array(types)) if types.contains(&"object".into()) => {
            object.insert("type".to_owned(), "object".into());
        }
        Some(kind) if kind != "object" => {
            return Err(format!(
                "its schema must have \"type\": \"object\", not {kind}"
            ));
        }
        Some(_) => {}
    }
    Ok((schema, note))
}

/// Merges the alternatives at the root into one object.
fn flattened(root: &Value) -> Result<(Value, Option<String>), String> {
    let mut merged = Map::new();
    let mut properties = Map::new();
    let mut required: Vec<Value> = Vec::new();
    let mut note = None;
    for (key, value) in root.as_object().into_iter().flatten() {
        if !ROOT_KEYWORDS.contains(&key.as_str()) && key != "properties" && key != "required" {
            merged.insert(key.clone(), value.clone());
        }
    }
    add_part(root, root, &mut properties, &mut required);
    let reference = root.get("$ref").map(|_| resolved(root, root));
    if reference.is_some_and(|part| std::ptr::eq(part, root)) {
        return Err(format!("not a valid schema: there is no {}", root["$ref"]));
    }
    let all = root["allOf"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|part| resolved(root, part));
    for part in reference.into_iter().chain(all) {
        add_part(root, part, &mut properties, &mut required);
    }
    for keyword in ["oneOf", "anyOf"] {
        let Some(alternatives) = root[keyword].as_array() else {
            continue;
        };
        let alternatives: Vec<&Value> = alternatives
            .iter()
            .map(|part| resolved(root, part))
            .collect();
        let mut sets = Vec::new();
        let mut common: Option<Vec<Value>> = None;
        for alternative in &alternatives {
            let mut of_this = Vec::new();
            add_part(root, alternative, &mut properties, &mut of_this);
            let mut names: Vec<&str> = alternative["properties"]
                .as_object()
                .into_iter()
                .flat_map(Map::keys)
                .map(String::as_str)
                .collect();
            if names.is_empty() {
                names = of_this.iter().filter_map(Value::as_str).collect();
            }
            sets.push(names.join(", "));
            match &mut common {
                Some(common) => common.retain(|name| of_this.contains(name)),
                None => common = Some(of_this.clone()),
            }
        }
        required.extend(common.unwrap_or_default());
        sets.retain(|set| !set.is_empty());
        sets.dedup();
        if sets.len() > 1 {
            let which = if keyword == "oneOf" {
                "exactly one"
            } else {
                "at least one"
            };
            note = Some(format!(
                "Pass {which} of these sets of arguments: {}.",
                sets.join(" | ")
            ));
        }
    }
    if properties.is_empty()
        && merged.get("additionalProperties").is_none()
        && merged.get("type") != Some(&json!("object"))
    {
        return Err("its schema describes no object".to_owned());
    }
    let mut unique: Vec<Value> = Vec::new();
    for name in required {
        if !unique.contains(&name) {
            unique.push(name);
        }
    }
    merged.insert("properties".to_owned(), properties.into());
    if !unique.is_empty() {
        merged.insert("required".to_owned(), unique.into());
    }
    merged.insert("type".to_owned(), "object".into());
    Ok((merged.into(), note))
}

/// Adds the properties of a part of the root, and the names of those that it requires. A property
/// that several parts define in different ways accepts what any of them does.
fn add_part(
    root: &Value,
    part: &Value,
    properties: &mut Map<String, Value>,
    required: &mut Vec<Value>,
) {
    let part = resolved(root, part);
    for (name, schema) in part["properties"].as_object().into_iter().flatten() {
        match properties.get_mut(name) {
            Some(known) if known == schema => {}
            Some(known) => match known.get_mut("anyOf").and_then(Value::as_array_mut) {
                Some(alternatives) if !alternatives.contains(schema) => {
                    alternatives.push(schema.clone())
                }
                Some(_) => {}
                None => *known = json!({ "anyOf": [known.take(), schema] }),
            },
            None => drop(properties.insert(name.clone(), schema.clone())),
        }
    }
    required.extend(part["required"].as_array().into_iter().flatten().cloned());
}

/// Returns the part of the root that a reference such as `#/$defs/x` names; the schema itself if it
/// is no reference.
fn resolved<'a>(root: &'a Value, schema: &'a Value) -> &'a Value {
    let pointer = schema["$ref"]
        .as_str()
        .and_then(|reference| reference.strip_prefix('#'));
    pointer
        .and_then(|pointer| root.pointer(pointer))
        .unwrap_or(schema)
}

/// Replaces keywords of OpenAPI 3.0 and of older drafts, in all parts of the schema.
fn normalize(schema: &mut Value, depth: usize) {
    if depth > MAX_DEPTH {
        return;
    }
    match schema {
        Value::Object(object) => {
            normalize_keywords(object);
            for (key, part) in object {
                // The names below `properties` are no keywords.
                match part {
                    Value::Object(named)
                        if matches!(key.as_str(), "properties" | "$defs" | "definitions") =>
                    {
                        named
                            .values_mut()
                            .for_each(|part| normalize(part, depth + 1));
                    }
                    _ if matches!(
                        key.as_str(),
                        "enum" | "const" | "default" | "example" | "examples"
                    ) => {}
                    part => normalize(part, depth + 1),
                }
            }
        }
        Value::Array(parts) => parts.iter_mut().for_each(|part| normalize(part, depth + 1)),
        _ => {}
    }
}

fn normalize_keywords(object: &mut Map<String, Value>) {
    for (exclusive, limit) in [
        ("exclusiveMinimum", "minimum"),
        ("exclusiveMaximum", "maximum"),
    ] {
        let Some(Value::Bool(is_exclusive)) = object.get(exclusive) else {
            continue;
        };
        let is_exclusive = *is_exclusive;
        object.remove(exclusive);
        if is_exclusive && let Some(value) = object.remove(limit) {
            object.insert(exclusive.to_owned(), value);
        }
    }
    if let Some(Value::Bool(_)) = object.get("required") {
        object.remove("required");
    }
    if let Some(Value::String(kind)) = object.get_mut("type") {
        kind.make_ascii_lowercase();
        match kind.as_str() {
            "any" => drop(object.remove("type")),
            "file" => *kind = "string".to_owned(),
            _ => {}
        }
    }
    if object.remove("nullable") == Some(Value::Bool(true))
        && let Some(Value::String(kind)) = object.get("type")
    {
        let kinds = json!([kind, "null"]);
        object.insert("type".to_owned(), kinds);
        if let Some(Value::Array(values)) = object.get_mut("enum")
            && !values.contains(&Value::Null)
        {
            values.push(Value::Null);
        }
    }
    // Some services reject a list without the schema of its items.
    if object.get("type") == Some(&json!("array"))
        && !object.contains_key("items")
        && !object.contains_key("prefixItems")
    {
        object.insert("items".to_owned(), json!({}));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(properties: Value, required: Value) -> Value {
        json!({"type": "object", "properties": properties, "required": required})
    }

    #[test]
    fn alternatives_at_the_root_become_one_object() {
        let id = json!({"id": {"type": "string"}});
        let name = json!({"name": {"type": "string"}});
        let both = json!({"id": {"type": "string"}, "name": {"type": "string"}});
        for (schema, properties, required, note) in [
            (
                json!({"type": "object", "oneOf": [object(id.clone(), json!(["id"])), object(name.clone(), json!(["name"]))]}),
                both.clone(),
                Value::Null,
                Some("Pass exactly one of these sets of arguments: id | name."),
            ),
            (
                json!({"anyOf": [object(id.clone(), json!(["id"])), object(both.clone(), json!(["id", "name"]))]}),
                both.clone(),
                json!(["id"]),
                Some("Pass at least one of these sets of arguments: id | id, name."),
            ),
            (
                json!({"type": "object", "allOf": [{"$ref": "#/$defs/a"}, object(name.clone(), json!(["name"]))],
                    "$defs": {"a": object(id.clone(), json!(["id"]))}}),
                both.clone(),
                json!(["id", "name"]),
                None,
            ),
            (
                json!({"$ref": "#/definitions/a", "definitions": {"a": object(id.clone(), json!(["id"]))}}),
                id.clone(),
                json!(["id"]),
                None,
            ),
            (
                json!({"type": "object", "properties": both, "required": ["id"], "not": {"required": ["id", "name"]}}),
                both.clone(),
                json!(["id"]),
                None,
            ),
            (
                json!({"oneOf": [object(json!({"v": {"type": "string"}}), json!(["v"])), object(json!({"v": {"type": "integer"}}), json!(["v"]))]}),
                json!({"v": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}),
                json!(["v"]),
                None,
            ),
        ] {
            let (got, got_note) = accepted(schema.clone()).unwrap();
            assert_eq!(
                (&got["properties"], &got["required"], &got["type"]),
                (&properties, &required, &json!("object")),
                "{schema}"
            );
            assert!(
                ROOT_KEYWORDS
                    .iter()
                    .all(|keyword| got.get(keyword).is_none()),
                "{got}"
            );
            assert_eq!(got_note.as_deref(), note, "{schema}");
        }
        for schema in [
            json!({"enum": ["a", "b"]}),
            json!({"type": "string"}),
            json!({"oneOf": [{"type": "string"}]}),
            json!(true),
        ] {
            assert!(accepted(schema.clone()).is_err(), "{schema}");
        }
        let plain = object(json!({"a": {"oneOf": [{"type": "string"}]}}), json!(["a"]));
        assert_eq!(
            accepted(plain.clone()).unwrap(),
            (plain, None),
            "below the root, alternatives stay"
        );
    }

    #[test]
    fn keywords_of_older_dialects_are_replaced() {
        for (property, expected) in [
            (
                json!({"type": "integer", "minimum": 1, "exclusiveMinimum": true}),
                json!({"type": "integer", "exclusiveMinimum": 1}),
            ),
            (
                json!({"type": "integer", "maximum": 1, "exclusiveMaximum": false}),
                json!({"type": "integer", "maximum": 1}),
            ),
            (
                json!({"type": "string", "nullable": true}),
                json!({"type": ["string", "null"]}),
            ),
            (
                json!({"type": "string", "nullable": true, "enum": ["a"]}),
                json!({"type": ["string", "null"], "enum": ["a", null]}),
            ),
            (
                json!({"type": "string", "nullable": false}),
                json!({"type": "string"}),
            ),
            (
                json!({"type": "STRING", "required": true}),
                json!({"type": "string"}),
            ),
            (json!({"type": "any"}), json!({})),
            (
                json!({"type": "array"}),
                json!({"type": "array", "items": {}}),
            ),
            (
                json!({"type": "string", "enum": [{"nullable": true}]}),
                json!({"type": "string", "enum": [{"nullable": true}]}),
            ),
        ] {
            let (schema, _) =
                accepted(object(json!({"required": property}), json!(["required"]))).unwrap();
            assert_eq!(schema["properties"]["required"], expected);
            assert_eq!(
                schema["required"],
                json!(["required"]),
                "a property may have the name of a keyword"
            );
        }
    }
}
