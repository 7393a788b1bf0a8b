//! JSON schemas of arguments, derived from their types (TOOL-1).

use schemars::{
    JsonSchema, Schema,
    generate::SchemaSettings,
    transform::{RecursiveTransform, Transform},
};
use serde_json::Value;

/// Returns the schema of a type as models see it: one object without references, titles and
/// formats.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12()
        .for_deserialize()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    RecursiveTransform(|schema: &mut Schema| {
        schema.remove("title");
        // Names of Rust's number types. Models do not know them, and some providers reject them.
        schema.remove("format");
    })
    .transform(&mut schema);
    // The documentation of the type itself is for developers.
    schema.remove("description");
    schema.to_value()
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    /// Description at the top.
    #[derive(Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Outer {
        /// What it is called.
        #[schemars(length(min = 1))]
        title: String,
        /// How often.
        times: Option<u64>,
        /// Parts.
        #[serde(default)]
        parts: Vec<Inner>,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is used")]
    struct Inner {
        kind: Kind,
    }

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Kind {
        Small,
        Large,
    }

    #[test]
    fn schema_is_one_inlined_object() {
        let want = json!({
            "type": "object",
            "properties": {
                "title": {"description": "What it is called.", "type": "string", "minLength": 1},
                "times": {"description": "How often.", "type": ["integer", "null"], "minimum": 0},
                "parts": {
                    "description": "Parts.",
                    "type": "array",
                    "items": {
                        "type": "object",
                        "properties": {"kind": {"type": "string", "enum": ["small", "large"]}},
                        "required": ["kind"],
                    },
                },
            },
            "required": ["title"],
            "additionalProperties": false,
        });
        assert_eq!(schema_of::<Outer>(), want);
    }
}
