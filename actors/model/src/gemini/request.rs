//! Request body of the Gemini API.

use std::{borrow::Cow, collections::BTreeMap};

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::{Map, Value, json};

use super::{
    contents::Contents,
    thinking::{self, ThinkingConfig},
};
use crate::service::Call;

/// Parameters that are fields of the request itself. All others are fields of `generationConfig`.
const OF_REQUEST: [&str; 6] = [
    "safetySettings",
    "toolConfig",
    "cachedContent",
    "labels",
    "serviceTier",
    "store",
];

/// Body of one request.
pub(super) struct RequestBody<'a>(pub(super) Call<'a>);

#[derive(Serialize)]
struct Instruction<'a> {
    parts: Vec<TextPart<'a>>,
}

#[derive(Serialize)]
struct TextPart<'a> {
    text: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Tools<'a> {
    function_declarations: Vec<Declaration<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declaration<'a> {
    name: &'a str,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters_json_schema: Option<Cow<'a, Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GenerationConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    max_output_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinking_config: Option<ThinkingConfig>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_mime_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_json_schema: Option<Cow<'a, Value>>,
    #[serde(flatten)]
    params: BTreeMap<&'a str, &'a Value>,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = &self.0;
        let request = call.request;
        let mut form = serializer.serialize_map(None)?;
        let system = request.system.iter().filter(|block| !block.is_empty());
        let parts: Vec<TextPart<'_>> = system.map(|block| TextPart { text: block }).collect();
        if !parts.is_empty() {
            form.serialize_entry("systemInstruction", &Instruction { parts })?;
        }
        if !request.tools.is_empty() {
            let function_declarations = request.tools.iter().map(|tool| Declaration {
                name: call.names.outgoing_name(&tool.name),
                description: &tool.description,
                parameters_json_schema: has_properties(&tool.parameters)
                    .then(|| without_const(&tool.parameters)),
            });
            let function_declarations = function_declarations.collect();
            form.serialize_entry(
                "tools",
                &[Tools {
                    function_declarations,
                }],
            )?;
        }
        form.serialize_entry("contents", &Contents::of(call).list())?;
        // Models before Gemini 3 reject a schema together with tools.
        let is_accepted = request.tools.is_empty() || thinking::is_gemini_3(call.model);
        let is_own = call.is_param("responseMimeType") || call.is_param("responseJsonSchema");
        let schema = call.output_schema().filter(|_| is_accepted && !is_own);
        let of_request = |name: &str| OF_REQUEST.contains(&name);
        let config = GenerationConfig {
            max_output_tokens: call.max_output_tokens,
            temperature: call.temperature.filter(|_| !call.adaptation.no_temperature),
            thinking_config: thinking::config(call).filter(|_| !call.is_param("thinkingConfig")),
            response_mime_type: schema.map(|_| "application/json"),
            response_json_schema: schema.map(without_const),
            params: call
                .all_params()
                .filter(|(name, _)| !of_request(name))
                .map(|(name, value)| (name.as_str(), value))
                .collect(),
        };
        form.serialize_entry("generationConfig", &config)?;
        for (name, value) in call.all_params().filter(|(name, _)| of_request(name)) {
            form.serialize_entry(name, value)?;
        }
        form.end()
    }
}

fn has_properties(schema: &Value) -> bool {
    schema["properties"]
        .as_object()
        .is_none_or(|properties| !properties.is_empty())
}

/// Returns a schema in which `const` is an `enum` of one value, because the API ignores `const`.
fn without_const(schema: &Value) -> Cow<'_, Value> {
    fn has_const(value: &Value) -> bool {
        match value {
            Value::Object(map) => map.contains_key("const") || map.values().any(has_const),
            Value::Array(list) => list.iter().any(has_const),
            _ => false,
        }
    }
    fn replaced(value: &Value) -> Value {
        match value {
            Value::Object(map) => {
                let entry = |(name, value): (&String, &Value)| match name.as_str() {
                    // A property may have this name; its value is a schema.
                    "const" if !value.is_object() => ("enum".to_owned(), json!([value])),
                    _ => (name.clone(), replaced(value)),
                };
                Value::Object(map.iter().map(entry).collect::<Map<_, _>>())
            }
            Value::Array(list) => list.iter().map(replaced).collect(),
            other => other.clone(),
        }
    }
    if has_const(schema) {
        Cow::Owned(replaced(schema))
    } else {
        Cow::Borrowed(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn const_becomes_an_enum_of_one_value() {
        let schema = json!({"properties": {"const": {"type": "string"}, "kind": {"const": "a", "type": "string"}}});
        let expected = json!({"properties": {"const": {"type": "string"}, "kind": {"enum": ["a"], "type": "string"}}});
        assert_eq!(*without_const(&schema), expected);
    }
}
