//! Request body of the Responses API.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;
use soong_protocol::Effort;

use super::items::{Content, Item, OwnItem, Part};
use crate::{
    openai::reasoning,
    service::{
        Call,
        conversation::{Turn, turns},
    },
};

/// Minimum output limit that the API accepts.
const MIN_OUTPUT_TOKENS: u64 = 16;

/// Body of one request.
pub(super) struct RequestBody<'a>(pub(super) Call<'a>);

#[derive(Serialize)]
struct Tool<'a> {
    r#type: &'static str,
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
    /// `false`: the schemas of tools may use all of JSON schema.
    strict: bool,
}

#[derive(Serialize)]
struct Reasoning {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<&'static str>,
}

#[derive(Serialize)]
struct CacheOptions {
    ttl: &'static str,
}

#[derive(Serialize)]
struct TextSettings<'a> {
    format: Format<'a>,
}

#[derive(Serialize)]
struct Format<'a> {
    r#type: &'static str,
    name: &'static str,
    schema: &'a Value,
    strict: bool,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = &self.0;
        let request = call.request;
        let mut form = serializer.serialize_map(None)?;
        form.serialize_entry("model", call.model)?;
        form.serialize_entry("stream", &true)?;
        form.serialize_entry("store", &false)?;
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| Tool {
                r#type: "function",
                name: call.names.outgoing_name(&tool.name),
                description: &tool.description,
                parameters: &tool.parameters,
                strict: false,
            });
            form.serialize_entry("tools", &tools.collect::<Vec<_>>())?;
        }
        let turns = turns(call, false);
        form.serialize_entry("input", &input(call, &turns))?;
        if let Some(reasoning) = reasoning(call) {
            if !call.is_param("include") {
                form.serialize_entry("include", &["reasoning.encrypted_content"])?;
            }
            if !call.is_param("reasoning") {
                form.serialize_entry("reasoning", &reasoning)?;
            }
        }
        if !call.adaptation.no_cache_control {
            if let Some(key) = call
                .cache_key
                .filter(|_| !call.is_param("prompt_cache_key"))
            {
                form.serialize_entry("prompt_cache_key", key)?;
            }
            let is_long = request.cache.is_long_lived && call.caches_at_breakpoints();
            if is_long && !call.is_param("prompt_cache_options") {
                form.serialize_entry("prompt_cache_options", &CacheOptions { ttl: "12h" })?;
            }
        }
        if let Some(limit) = call.max_output_tokens {
            form.serialize_entry("max_output_tokens", &limit.max(MIN_OUTPUT_TOKENS))?;
        }
        if let Some(temperature) = call.temperature.filter(|_| !call.adaptation.no_temperature) {
            form.serialize_entry("temperature", &temperature)?;
        }
        if let Some(schema) = call.output_schema().filter(|_| !call.is_param("text")) {
            let format = Format {
                r#type: "json_schema",
                name: "answer",
                schema,
                strict: false,
            };
            form.serialize_entry("text", &TextSettings { format })?;
        }
        for (name, value) in call.all_params() {
            form.serialize_entry(name, value)?;
        }
        form.end()
    }
}

/// Returns the settings of the reasoning. `None` if the model does not reason.
fn reasoning(call: &Call<'_>) -> Option<Reasoning> {
    let support = reasoning::support(call.model);
    if call.adaptation.no_reasoning || support.levels.is_some_and(<[Effort]>::is_empty) {
        return None;
    }
    let effort = call.effort.and_then(|effort| support.nearest(effort));
    let summary = Some("auto").filter(|_| !call.adaptation.no_summary);
    Some(Reasoning { effort, summary })
}

/// Returns the input items.
///
/// Some models cache only at breakpoints, and the service sets one at the newest message only. Ours
/// are:
/// - at the end of the system prompt;
/// - at the end of the part that sibling runs send too;
/// - before each context update, because a rewind replaces it;
/// - at the end of the last two turns of the user: the previous request wrote the first, the next
///   one reads the second.
///
/// The system prompt is a message at the beginning, because newer models place `instructions` after
/// the input, where it is never cached.
fn input<'a>(call: &Call<'a>, turns: &'a [Turn<'a>]) -> Vec<Item<'a>> {
    let request = call.request;
    let has_breakpoints = call.caches_at_breakpoints();
    let mut items = Vec::new();
    let mut turn_ends = Vec::new();
    let blocks = request.system.iter().filter(|block| !block.is_empty());
    let mut system: Vec<Part<'a>> = blocks.map(|block| Part::text(&**block)).collect();
    if let Some(last) = system.last_mut() {
        if has_breakpoints {
            last.set_breakpoint();
        }
        let content = Content::Parts(system);
        items.push(Item::Own(OwnItem::Message {
            role: "developer",
            content,
            more: None,
        }));
    }
    for turn in turns {
        match turn {
            Turn::Model(answer) => items.extend(Item::of_answer(answer)),
            Turn::User { results, inputs } => {
                items.extend(
                    results.iter().map(|result| {
                        Item::Own(OwnItem::of_result(result, request, has_breakpoints))
                    }),
                );
                for input in inputs {
                    if let Some(Item::Own(before)) = items
                        .last_mut()
                        .filter(|_| has_breakpoints && input.is_context())
                    {
                        before.set_breakpoint();
                    }
                    let mut item = OwnItem::of_user(input.parts(request));
                    if has_breakpoints && input.ends_shared_part() {
                        item.set_breakpoint();
                    }
                    items.push(Item::Own(item));
                }
                turn_ends.push(items.len() - 1);
            }
        }
    }
    for end in turn_ends
        .into_iter()
        .rev()
        .take(2)
        .filter(|_| has_breakpoints)
    {
        if let Item::Own(item) = &mut items[end] {
            item.set_breakpoint();
        }
    }
    items
}
