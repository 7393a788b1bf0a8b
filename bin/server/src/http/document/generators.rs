//! Rewrites parts of the document that client generators do not support, in a simpler form with the
//! same meaning.
//!
//! Pure. The generators reject tuples (`items: false`), alternatives inside of `allOf`, and bytes
//! as arrays of numbers.

use serde_json::{Map, Value, json};

/// Maximum length of a chain of references.
const MAX_DEPTH: usize = 8;

/// Rewrites the whole document.
pub(super) fn simplify(document: &mut Value) {
    let schemas = document["components"]["schemas"].clone();
    rewrite(document, &schemas);
    for item in document
        .get_mut("paths")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flat_map(Map::values_mut)
    {
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            let content = operation
                .pointer_mut("/requestBody/content")
                .and_then(Value::as_object_mut);
            for media in content.into_iter().flat_map(Map::values_mut) {
                media.get_mut("schema").into_iter().for_each(without_null);
            }
            let responses = operation
                .get_mut("responses")
                .and_then(Value::as_object_mut);
            for content in responses
                .into_iter()
                .flat_map(Map::values_mut)
                .filter_map(|one| one.get_mut("content"))
            {
                // Generators do not support bytes of any content type.
                if let Some(any) = content.get("*/*").cloned() {
                    content["application/octet-stream"] = any;
                }
            }
        }
    }
}

/// Removes the alternative `null` of an optional body: the body is omitted instead.
fn without_null(schema: &mut Value) {
    let Some([one, other]) = schema["oneOf"].as_array().map(Vec::as_slice) else {
        return;
    };
    if other["type"] == "null" {
        *schema = one.clone();
    }
}

fn rewrite(value: &mut Value, schemas: &Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, schemas)),
        Value::Object(_) => {
            if value["items"]["format"] == "u-int8" {
                *value = json!({ "type": "string", "format": "binary" });
            } else if value["items"] == json!(false) {
                let items = value["prefixItems"][0].clone();
                let count = value["prefixItems"].as_array().map_or(0, Vec::len);
                *value = json!({ "type": "array", "items": items, "minItems": count, "maxItems": count });
            } else if let Some(merged) = merged(value, schemas) {
                *value = merged;
            }
            value
                .as_object_mut()
                .into_iter()
                .flat_map(Map::values_mut)
                .for_each(|part| rewrite(part, schemas));
        }
        _ => {}
    }
}

/// Returns the schema that a reference points to.
fn resolved<'a>(schema: &'a Value, schemas: &'a Value) -> &'a Value {
    let mut schema = schema;
    for _ in 0..MAX_DEPTH {
        match schema["$ref"]
            .as_str()
            .and_then(|name| name.rsplit_once('/'))
        {
            Some((_, name)) => schema = &schemas[name],
            None => break,
        }
    }
    schema
}

/// Merges the parts of `allOf` into one object if one of them has alternatives; otherwise returns
/// `None`.
fn merged(schema: &Value, schemas: &Value) -> Option<Value> {
    let parts: Vec<&Value> = schema["allOf"]
        .as_array()?
        .iter()
        .map(|part| resolved(part, schemas))
        .collect();
    parts.iter().find(|part| part.get("oneOf").is_some())?;
    let mut properties = Map::new();
    let mut required = Vec::new();
    for part in parts {
        match part["oneOf"].as_array() {
            None => add(&mut properties, &mut required, part),
            Some(variants) => {
                let mut all = Vec::new();
                for variant in variants {
                    let mut own = Vec::new();
                    add(&mut properties, &mut own, variant);
                    all.push(own);
                }
                let in_each = |name: &Value| all.iter().all(|own| own.contains(name));
                required.extend(
                    all.first()
                        .into_iter()
                        .flatten()
                        .filter(|name| in_each(name))
                        .cloned(),
                );
            }
        }
    }
    let mut merged = json!({ "type": "object", "required": required, "properties": properties });
    if let Some(description) = schema.get("description") {
        merged["description"] = description.clone();
    }
    Some(merged)
}

/// Adds the properties of an object. If several variants have the same property, its values are
/// combined.
fn add(properties: &mut Map<String, Value>, required: &mut Vec<Value>, object: &Value) {
    for (name, property) in object["properties"].as_object().into_iter().flatten() {
        match properties
            .get_mut(name)
            .and_then(|known| known["enum"].as_array_mut())
        {
            Some(known) => known.extend(property["enum"].as_array().into_iter().flatten().cloned()),
            None => drop(properties.insert(name.clone(), property.clone())),
        }
    }
    required.extend(object["required"].as_array().into_iter().flatten().cloned());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemas_are_simplified_for_client_generators() {
        let mut document = json!({
            "paths": {"/a": {
                "put": {"requestBody": {"content": {"application/octet-stream": {"schema":
                    {"type": "array", "items": {"type": "integer", "format": "u-int8"}}}}}},
                "post": {"requestBody": {"content": {"application/json": {"schema":
                    {"oneOf": [{"$ref": "#/components/schemas/Pair"}, {"type": "null"}]}}}}},
                "get": {"responses": {}},
            }},
            "components": {"schemas": {
                "Pair": {"type": "object", "properties": {"pair":
                    {"type": "array", "items": false, "prefixItems": [{"type": "string"}, {"type": "string"}]}}},
                "Scope": {"oneOf": [
                    {"type": "object", "required": ["scope", "id"], "properties": {"scope": {"enum": ["a"]}, "id": {"type": "string"}}},
                    {"type": "object", "required": ["scope"], "properties": {"scope": {"enum": ["b"]}}},
                ]},
                "Whole": {"description": "W", "allOf": [
                    {"$ref": "#/components/schemas/Scope"},
                    {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}},
                ]},
            }},
        });
        simplify(&mut document);
        let body = |method: &str, kind: &str| {
            document["paths"]["/a"][method]["requestBody"]["content"][kind]["schema"].clone()
        };
        assert_eq!(
            body("put", "application/octet-stream"),
            json!({"type": "string", "format": "binary"})
        );
        assert_eq!(
            body("post", "application/json"),
            json!({"$ref": "#/components/schemas/Pair"})
        );
        assert_eq!(document["paths"]["/a"]["get"], json!({"responses": {}}));
        let schemas = &document["components"]["schemas"];
        assert_eq!(
            schemas["Pair"]["properties"]["pair"],
            json!({"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2})
        );
        assert_eq!(
            schemas["Whole"],
            json!({"type": "object", "description": "W", "required": ["scope", "n"], "properties":
                {"scope": {"enum": ["a", "b"]}, "id": {"type": "string"}, "n": {"type": "integer"}}})
        );
    }
}
