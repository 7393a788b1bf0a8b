//! Request body in OpenAI's form, serialized directly from the run's data (MOD-2).
//!
//! Texts and files are not copied before they are serialized. Calls of tools are, if they are sent
//! under another name (`names.rs`).
//!
//! Elsewhere: detecting that a model rejects a parameter (`service/failure.rs`), and
//! sending (`service/http.rs`).

use std::{collections::HashMap, fmt, sync::Arc};

use serde::{
    Serialize, Serializer,
    ser::{SerializeMap, SerializeSeq},
};
use serde_json::Value;
use soong_protocol::{Message, PartFile, Role, ToolCall, ToolSpec};

use super::{
    content::{Content, Part},
    reasoning,
    returned::{MessageData, ReturnedData},
};
use crate::{
    ModelCatalog, ModelRequest,
    service::{Adaptation, Call, names::ToolNames},
};

/// Maximum length of the id of a call, in bytes. OpenAI rejects longer ones.
const MAX_ID_BYTES: usize = 40;

/// Body of one request.
#[derive(Clone, Copy)]
pub(super) struct RequestBody<'a>(pub(super) Call<'a>);

impl Serialize for RequestBody<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let call = &self.0;
        let mut form = serializer.serialize_map(None)?;
        form.serialize_entry("model", call.model)?;
        form.serialize_entry("messages", &Messages::of(*call))?;
        if !call.request.tools.is_empty() {
            form.serialize_entry("tools", &Tools(call.request, call.names))?;
        }
        if let Some(limit) = call.max_output_tokens {
            form.serialize_entry(limit_name(call.adaptation), &limit)?;
        }
        let effort = call
            .effort
            .and_then(|effort| reasoning::support(call.model).nearest(effort));
        if let Some(effort) = effort.filter(|_| !call.is_param("reasoning_effort")) {
            form.serialize_entry("reasoning_effort", &effort)?;
        }
        if let Some(temperature) = call.temperature.filter(|_| !call.adaptation.no_temperature) {
            form.serialize_entry("temperature", &temperature)?;
        }
        if let Some(schema) = output_schema(call).filter(|_| !call.is_param("response_format")) {
            let json_schema = JsonSchema {
                name: "answer",
                schema,
                strict: false,
            };
            form.serialize_entry(
                "response_format",
                &ResponseFormat {
                    r#type: "json_schema",
                    json_schema,
                },
            )?;
        }
        let cache_key = call.cache_key.filter(|_| !call.adaptation.no_cache_control);
        if let Some(key) = cache_key.filter(|_| !call.is_param("prompt_cache_key")) {
            form.serialize_entry("prompt_cache_key", key)?;
        }
        form.serialize_entry("stream", &true)?;
        if !call.adaptation.no_stream_options && !call.params.contains_key("stream_options") {
            form.serialize_entry(
                "stream_options",
                &StreamOptions {
                    include_usage: true,
                },
            )?;
        }
        for (name, value) in call.all_params() {
            form.serialize_entry(name, value)?;
        }
        form.end()
    }
}

/// Returns whether a model is one of OpenAI, which rejects long ids. Other services may expect the
/// ids that they have made.
fn is_of_openai(model: &str) -> bool {
    let name = model
        .rsplit('/')
        .next()
        .unwrap_or(model)
        .to_ascii_lowercase();
    let is_numbered = |name: &str| {
        name.strip_prefix('o')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    name.starts_with("gpt-") || name.starts_with("chatgpt") || is_numbered(&name)
}

/// Returns a short id for each id of a call that is too long. It depends on earlier messages only,
/// so that the beginning of a conversation stays the same.
fn short_ids(messages: &[Arc<Message>]) -> HashMap<&str, String> {
    let mut short_ids = HashMap::new();
    for call in messages.iter().flat_map(|message| &message.tool_calls) {
        let number = short_ids.len() + 1;
        if call.id.len() > MAX_ID_BYTES {
            short_ids
                .entry(call.id.as_str())
                .or_insert_with(|| format!("soong_call_{number}"));
        }
    }
    short_ids
}

/// Returns the parameter name of the output limit.
pub(super) fn limit_name(adaptation: Adaptation) -> &'static str {
    if adaptation.uses_max_completion_tokens {
        "max_completion_tokens"
    } else {
        "max_tokens"
    }
}

/// Returns the schema of the answer. It is not sent to an unknown model together with tools,
/// because many local servers then prevent calls of tools.
fn output_schema<'a>(call: &Call<'a>) -> Option<&'a Value> {
    let is_known = || ModelCatalog::built_in().find(call.model).is_some();
    call.output_schema()
        .filter(|_| call.request.tools.is_empty() || is_known())
}

#[derive(Serialize)]
struct ResponseFormat<'a> {
    r#type: &'static str,
    json_schema: JsonSchema<'a>,
}

#[derive(Serialize)]
struct JsonSchema<'a> {
    name: &'static str,
    schema: &'a Value,
    strict: bool,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

struct Messages<'a> {
    call: Call<'a>,
    /// Places of the last two messages before an answer; `None` if the model does not cache at
    /// breakpoints.
    ///
    /// Breakpoints are at the same places as with the Responses API: at the end of the system
    /// prompt and of what sibling runs send too, before context, and at the end of the last two
    /// turns of the user.
    breakpoints: Option<[Option<usize>; 2]>,
    /// Short ids of calls with ids that OpenAI would reject.
    short_ids: HashMap<&'a str, String>,
}

impl<'a> Serialize for Messages<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        let request = self.call.request;
        let blocks: Vec<Part<'a>> = request
            .system
            .iter()
            .filter(|block| !block.is_empty())
            .map(|block| Part::text(&**block))
            .collect();
        match (blocks.is_empty(), self.breakpoints) {
            (true, _) => {}
            (false, Some(_)) => {
                let content = Content::Parts(blocks).with_breakpoint();
                list.serialize_element(&InputMessage {
                    role: "system",
                    content,
                })?;
            }
            (false, None) => list.serialize_element(&System {
                role: "system",
                content: Blocks(request),
            })?,
        }
        let returned = ReturnedData::of(self.call);
        let mut tool_files = Vec::new();
        for (index, message) in request.messages.iter().enumerate() {
            if message.role == Role::User {
                serialize_tool_files(&mut list, &mut tool_files, request)?;
                if index == 0 || request.messages[index - 1].role != Role::User {
                    list.serialize_element(&InputMessage {
                        role: "user",
                        content: self.user_content(index),
                    })?;
                }
                continue;
            }
            if message.role == Role::Tool {
                tool_files.extend(message.content.files());
            } else {
                serialize_tool_files(&mut list, &mut tool_files, request)?;
            }
            let data = returned.data(message);
            // Context joins a result. A message of the user would end the turn: many services then
            // drop the reasoning before it.
            let is_result = message.role == Role::Tool;
            let content = if is_result {
                self.input_content(index)
            } else {
                Content::of(message, request)
            };
            list.serialize_element(&OutgoingMessage {
                message,
                content,
                messages: self,
                data,
            })?;
            if let Some(context) = self.context_after(index).filter(|_| !is_result) {
                list.serialize_element(&InputMessage {
                    role: "user",
                    content: Content::Text(context.into()),
                })?;
            }
        }
        serialize_tool_files(&mut list, &mut tool_files, request)?;
        list.end()
    }
}

impl<'a> Messages<'a> {
    fn of(call: Call<'a>) -> Self {
        let messages = &call.request.messages;
        let is_answer = |index: usize| {
            messages
                .get(index)
                .is_none_or(|message| message.role == Role::Assistant)
        };
        let mut turn_ends = (0..messages.len())
            .rev()
            .filter(|index| !is_answer(*index) && is_answer(index + 1));
        let breakpoints = call
            .caches_at_breakpoints()
            .then(|| [turn_ends.next(), turn_ends.next()]);
        Self {
            call,
            breakpoints,
            short_ids: if is_of_openai(call.model) {
                short_ids(messages)
            } else {
                HashMap::new()
            },
        }
    }

    fn id_of<'s>(&'s self, id: &'s str) -> &'s str {
        self.short_ids.get(id).map_or(id, String::as_str)
    }

    /// Returns the content of all messages of the user from here on, up to the next answer, and of
    /// the context after them. They are sent as one message, because many chat templates reject two
    /// of them in a row.
    fn user_content(&self, first: usize) -> Content<'a> {
        let request = self.call.request;
        let following = request.messages[first + 1..]
            .iter()
            .take_while(|message| message.role == Role::User);
        let last = first + following.count();
        let rest = (first + 1..=last).map(|index| self.input_content(index));
        rest.fold(self.input_content(first), Content::followed_by)
    }

    /// Returns the content of a message that is not an answer, and of the context after it.
    fn input_content(&self, index: usize) -> Content<'a> {
        let request = self.call.request;
        let content = Content::of(&request.messages[index], request);
        let context = self.context_after(index);
        let Some(turn_ends) = self.breakpoints else {
            return content.with_context(context);
        };
        // Always a list: what was sent must not change when a breakpoint moves.
        let content = content.into_list();
        let ends_shared_part = index + 1 == request.cache.shared_messages;
        let content = if ends_shared_part || context.is_some() {
            content.with_breakpoint()
        } else {
            content
        };
        let content = content.with_context(context);
        if turn_ends.contains(&Some(index)) {
            content.with_breakpoint()
        } else {
            content
        }
    }

    /// Returns the context that follows a message.
    fn context_after(&self, index: usize) -> Option<&'a str> {
        let request = self.call.request;
        match request.messages.get(index + 1) {
            Some(next) if next.role == Role::Assistant => next.context_update.as_deref(),
            Some(_) => None,
            None => request.context_update.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct InputMessage<'a> {
    role: &'static str,
    content: Content<'a>,
}

/// Serializes the files of the preceding tool results as a user message, if there are any.
fn serialize_tool_files<'a, L: SerializeSeq>(
    list: &mut L,
    files: &mut Vec<&'a PartFile>,
    request: &'a ModelRequest,
) -> Result<(), L::Error> {
    match Content::of_tool_files(&std::mem::take(files), request) {
        Some(content) => list.serialize_element(&InputMessage {
            role: "user",
            content,
        }),
        None => Ok(()),
    }
}

#[derive(Serialize)]
struct System<'a> {
    role: &'static str,
    content: Blocks<'a>,
}

/// The system blocks as one text, because many chat templates reject more than one leading system
/// message.
struct Blocks<'a>(&'a ModelRequest);

impl fmt::Display for Blocks<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut blocks = self.0.system.iter().filter(|block| !block.is_empty());
        if let Some(first) = blocks.next() {
            f.write_str(first)?;
        }
        blocks.try_for_each(|block| write!(f, "\n\n{block}"))
    }
}

impl Serialize for Blocks<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A message without fields that are specific to Soong.
struct OutgoingMessage<'a> {
    message: &'a Message,
    content: Content<'a>,
    messages: &'a Messages<'a>,
    data: MessageData<'a>,
}

impl Serialize for OutgoingMessage<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Form<'a> {
            role: &'static str,
            content: Option<&'a Content<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            reasoning_content: Option<&'a str>,
            #[serde(skip_serializing_if = "<[Value]>::is_empty")]
            reasoning_details: &'a [Value],
            #[serde(skip_serializing_if = "Option::is_none")]
            extra_content: Option<&'a Value>,
            #[serde(skip_serializing_if = "Vec::is_empty")]
            tool_calls: Vec<OutgoingCall<'a>>,
            #[serde(skip_serializing_if = "Option::is_none")]
            tool_call_id: Option<&'a str>,
        }
        let Self {
            message,
            content,
            messages,
            data,
        } = self;
        let calls = messages.call.names.outgoing_calls(&message.tool_calls);
        let only_calls = message.role == Role::Assistant
            && message.content.is_empty()
            && !message.tool_calls.is_empty();
        Form {
            role: message.role.as_str(),
            content: Some(content).filter(|_| !only_calls),
            reasoning_content: data.reasoning,
            reasoning_details: &data.reasoning_details,
            extra_content: data.extra,
            tool_calls: calls
                .iter()
                .enumerate()
                .map(|(index, call)| {
                    OutgoingCall::of(call, messages.id_of(&call.id), data.call(index))
                })
                .collect(),
            tool_call_id: message.tool_call_id.as_deref().map(|id| messages.id_of(id)),
        }
        .serialize(serializer)
    }
}

/// A tool call with the data of the service about it.
#[derive(Serialize)]
struct OutgoingCall<'a> {
    id: &'a str,
    r#type: &'static str,
    function: OutgoingFunction<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    extra_content: Option<&'a Value>,
}

#[derive(Serialize)]
struct OutgoingFunction<'a> {
    name: &'a str,
    arguments: &'a str,
}

impl<'a> OutgoingCall<'a> {
    fn of(call: &'a ToolCall, id: &'a str, extra_content: Option<&'a Value>) -> Self {
        let function = OutgoingFunction {
            name: &call.name,
            arguments: &call.arguments,
        };
        Self {
            id,
            r#type: "function",
            function,
            extra_content,
        }
    }
}

struct Tools<'a>(&'a ModelRequest, &'a ToolNames);

impl<'a> Serialize for Tools<'a> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let tool = |spec: &'a Arc<ToolSpec>| Tool {
            kind: "function",
            function: Function::of(spec, self.1),
        };
        serializer.collect_seq(self.0.tools.iter().map(tool))
    }
}

#[derive(Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a serde_json::Value,
}

impl<'a> Function<'a> {
    fn of(spec: &'a ToolSpec, names: &'a ToolNames) -> Self {
        Self {
            name: names.outgoing_name(&spec.name),
            description: &spec.description,
            parameters: &spec.parameters,
        }
    }
}
