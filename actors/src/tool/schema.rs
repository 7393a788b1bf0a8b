//! Schemas of arguments, from the types that they are read into.
//!
//! Not here: checking arguments against them (`registry.rs`).

use schemars::{JsonSchema, generate::SchemaSettings};
use serde_json::Value;

/// Returns the schema of a type as models are shown it: one plain object, without references.
pub fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    // What the type's own documentation says is for programmers.
    schema.remove("description");
    schema.to_value()
}
