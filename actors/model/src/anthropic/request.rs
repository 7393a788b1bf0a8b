//! Request body of the Messages API.

use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;
use soong_protocol::Effort;

use super::{
    blocks::{Block, CacheControl, OwnBlock},
    thinking,
};
use crate::{
    ModelRequest,
    service::{
        Call,
        conversation::{Turn, turns},
    },
};

/// Body of one request.
pub(super) struct RequestBody<'a>(pub(super) Call<'a>);

#[derive(Serialize)]
struct Tool<'a> {
    name: &'a str,
    description: &'a str,
    input_schema: &'a Value,
}

#[derive(Serialize)]
struct OutputConfig<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    effort: Option<Effort>,
    #[serde(skip_serializing_if = "Option::is_none")]
    format: Option<Format<'a>>,
}

#[derive(Serialize)]
struct Format<'a> {
    r#type: &'static str,
    schema: &'a Value,
}

#[derive(Serialize)]
struct MessageForm<'a> {
    role: &'static str,
    content: Vec<Block<'a>>,
}

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = &self.0;
        let request = call.request;
        let mut form = serializer.serialize_map(None)?;
        form.serialize_entry("model", call.model)?;
        form.serialize_entry("max_tokens", &thinking::max_tokens(call))?;
        form.serialize_entry("stream", &true)?;
        let mark = CacheControl::new(request.cache.is_long_lived);
        let system = system(request, mark);
        if !system.is_empty() {
            form.serialize_entry("system", &system)?;
        }
        if !request.tools.is_empty() {
            let tools = request.tools.iter().map(|tool| Tool {
                name: call.names.outgoing_name(&tool.name),
                description: &tool.description,
                input_schema: &tool.parameters,
            });
            form.serialize_entry("tools", &tools.collect::<Vec<_>>())?;
        }
        // Reasoning of another Claude model may be sent: the API ignores what the model cannot read.
        let turns = turns(call, true);
        form.serialize_entry("messages", &messages(&turns, request, mark))?;
        let settings = thinking::settings(call);
        if let Some(thinking) = settings
            .thinking
            .as_ref()
            .filter(|_| !call.is_param("thinking"))
        {
            form.serialize_entry("thinking", thinking)?;
        }
        let format = call.output_schema().map(|schema| Format {
            r#type: "json_schema",
            schema,
        });
        if (settings.effort.is_some() || format.is_some()) && !call.is_param("output_config") {
            form.serialize_entry(
                "output_config",
                &OutputConfig {
                    effort: settings.effort,
                    format,
                },
            )?;
        }
        if let Some(temperature) = call.temperature.filter(|_| !call.adaptation.no_temperature) {
            form.serialize_entry("temperature", &temperature)?;
        }
        for (name, value) in call.all_params() {
            form.serialize_entry(name, value)?;
        }
        form.end()
    }
}

/// Returns the system prompt. Its last block carries a cache mark, so the API caches the tools and
/// the whole system prompt.
fn system(request: &ModelRequest, mark: CacheControl) -> Vec<Block<'_>> {
    let blocks = request
        .system
        .iter()
        .filter(|block| !block.trim().is_empty());
    let mut blocks: Vec<Block<'_>> = blocks
        .map(|block| Block::Own(OwnBlock::text(&**block)))
        .collect();
    if let Some(last) = blocks.last_mut() {
        last.set_cache_control(mark);
    }
    blocks
}

/// Returns the messages.
///
/// The API allows four cache marks. The system prompt carries one. Here, the last two messages of
/// the user carry one each: this request reads what the previous request cached up to the first,
/// and the next request reads what this one caches up to the second. The fourth is at the end of
/// the messages that sibling runs also send.
fn messages<'a>(
    turns: &'a [Turn<'_>],
    request: &'a ModelRequest,
    mark: CacheControl,
) -> Vec<MessageForm<'a>> {
    const CACHED: usize = 2;
    let mut messages: Vec<MessageForm<'a>> = Vec::with_capacity(turns.len());
    for turn in turns {
        let (role, content) = match turn {
            Turn::Model(answer) => ("assistant", Block::of_answer(answer)),
            Turn::User { results, inputs } => {
                let results = results
                    .iter()
                    .map(|result| OwnBlock::of_result(result, request));
                let parts = inputs.iter().flat_map(|input| {
                    let mut blocks: Vec<Block<'a>> = OwnBlock::of_parts(input.parts(request))
                        .into_iter()
                        .map(Block::Own)
                        .collect();
                    if let Some(last) = blocks.last_mut().filter(|_| input.ends_shared_part()) {
                        last.set_cache_control(mark);
                    }
                    blocks
                });
                ("user", results.map(Block::Own).chain(parts).collect())
            }
        };
        match messages.last_mut() {
            // Two messages of one role follow each other if an answer without content was between
            // them.
            Some(last) if last.role == role => last.content.extend(content),
            _ if content.is_empty() => {}
            _ => messages.push(MessageForm { role, content }),
        }
    }
    let of_user = messages
        .iter_mut()
        .rev()
        .filter(|message| message.role == "user");
    for message in of_user.take(CACHED) {
        message
            .content
            .iter_mut()
            .rev()
            .find_map(|block| block.set_cache_control(mark).then_some(()));
    }
    messages
}
