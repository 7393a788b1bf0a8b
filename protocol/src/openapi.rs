//! OpenAPI schemas of the records that implement `Serialize` by hand. The schemas describe the
//! serialized form.
//!
//! Elsewhere: the schemas of all other records, which are derived from their fields.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use crate::{
    ArtifactId, ContentPart, Covers, EventRecord, GoalId, Level, Message, MessageContent,
    MessageOrigin, Role, RunId, SessionId, Timestamp, ToolCall, TraceId, Usd,
};

/// Implements the schema traits for a record by delegating to the type of its serialized form.
macro_rules! written_as {
    ($($name:ident = $form:ty),* $(,)?) => {
        $(impl PartialSchema for $name {
            fn schema() -> RefOr<Schema> {
                <$form>::schema()
            }
        }

        impl ToSchema for $name {
            fn name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                <$form>::schemas(schemas);
            }
        })*
    };
}

written_as! { MessageContent = MessageContentForm, ContentPart = ContentPartForm, ToolCall = CallForm, Message = MessageForm, EventRecord = EventForm }

/// Content of a message: a string if it is only text, else a list of parts.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its schema is used")]
enum MessageContentForm {
    /// Only text.
    Text(String),
    /// Text, images and files, in order.
    Parts(Vec<ContentPart>),
}

/// A part of the content of a message: a text, an image, or a file.
///
/// The bytes of an image or file are an artifact of the session. Requests may give them instead, in
/// the forms of OpenAI's APIs (`image_url`, `file`, `input_audio`; also the types `input_text`,
/// `input_image` and `input_file`): they are stored as an artifact.
#[derive(Serialize, ToSchema)]
struct ContentPartForm {
    /// `text`, `image` or `file`; in requests also `image_url` or `input_audio`.
    r#type: String,
    /// The text of a part of type `text`.
    text: Option<String>,
    /// Artifact of the session with the bytes of an image or file.
    artifact_id: Option<ArtifactId>,
    /// MIME type of the bytes.
    content_type: Option<String>,
    /// Number of bytes.
    size: Option<u64>,
    /// Name of the file that was given.
    filename: Option<String>,
    /// Width of an image, in pixels.
    width: Option<u32>,
    /// Height of an image, in pixels.
    height: Option<u32>,
    /// Width and height of an image before it was scaled down for the model.
    scaled_from: Option<Vec<u32>>,
    /// The bytes of an image. Only in requests.
    #[schema(inline)]
    image_url: Option<UrlForm>,
    /// The bytes of a file. Only in requests.
    #[schema(inline)]
    file: Option<FileDataForm>,
    /// The bytes of audio. Only in requests.
    #[schema(inline)]
    input_audio: Option<AudioForm>,
}

/// Bytes of a file.
#[derive(Serialize, ToSchema)]
struct FileDataForm {
    /// `data:` URL with the bytes.
    file_data: String,
    /// Name of the file.
    filename: Option<String>,
}

/// Address of an image.
#[derive(Serialize, ToSchema)]
struct UrlForm {
    /// `data:` URL with the bytes.
    url: String,
}

/// Bytes of audio.
#[derive(Serialize, ToSchema)]
struct AudioForm {
    /// The bytes in base64.
    data: String,
    /// `wav` or `mp3`.
    format: String,
}

/// A tool call that a model requests, in OpenAI's form.
#[derive(Serialize, ToSchema)]
struct CallForm {
    /// Id that the provider assigned. The tool result refers to it.
    id: String,
    /// Always `function`.
    r#type: String,
    /// The called function.
    #[schema(inline)]
    function: FunctionForm,
}

/// A function with its arguments.
#[derive(Serialize, ToSchema)]
struct FunctionForm {
    /// Name of the tool.
    name: String,
    /// Arguments as the model wrote them: JSON as text. Valid JSON is not guaranteed.
    arguments: String,
}

/// A message of a trace.
#[derive(Serialize, ToSchema)]
struct MessageForm {
    /// Unique id: `{trace_id}-{sequence:04}`.
    message_id: String,
    /// Trace of the message.
    trace_id: TraceId,
    /// Number in the trace, from 1.
    sequence: u64,
    /// Preceding message. Absent for the first message and for a summary.
    parent_sequence: Option<u64>,
    /// Author of the message.
    role: Role,
    /// For a message with the role `user`, its actual author. Absent for a summary, and in messages
    /// of earlier versions.
    origin: Option<MessageOrigin>,
    /// Text, or a list of parts if there are images or files. Empty if the message contains only
    /// tool calls.
    content: MessageContent,
    /// Short text that replaces the output of a tool in later prompts.
    long_term_memory: Option<String>,
    /// Whether `long_term_memory` replaces `content` when the prompt is rebuilt.
    include_output_only_once: Option<bool>,
    /// The model's reasoning, if the provider returned it.
    reasoning: Option<String>,
    /// For an answer, the context that the runtime sent before it: artifacts, goals, collaborators,
    /// budgets.
    context_update: Option<String>,
    /// Tool calls of an assistant message, in order.
    tool_calls: Option<Vec<ToolCall>>,
    /// For a tool message, the id of the call.
    tool_call_id: Option<String>,
    /// Goal that was focused when the message was added.
    goal_id: Option<GoalId>,
    /// One-line description for lists.
    description: String,
    /// Whether the text was cut off.
    partial: Option<bool>,
    /// Whether the message belongs to a side branch, such as a reflection.
    side_branch: Option<bool>,
    /// For a summary, the messages that it replaces.
    covers: Option<Covers>,
    /// Tokens of the request that led to the message.
    prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    completion_tokens: Option<u64>,
    /// Cost of the model call, in USD.
    cost: Option<Usd>,
    /// Duration of the model or tool call, in milliseconds.
    duration_ms: Option<u64>,
    /// Why the model stopped, as the provider reported it.
    finish_reason: Option<String>,
    /// Time at which the message was added.
    created_at: Timestamp,
}

/// A stored event in its envelope. All streams and queries use this form.
#[derive(Serialize, ToSchema)]
struct EventForm {
    /// Position on the timeline of the trace, from 1 without gaps. Use it as the cursor to resume a
    /// stream.
    event_id: u64,
    /// Kind of the event, such as `run_completed`.
    event: String,
    /// The trace.
    trace_id: TraceId,
    /// The session.
    session_id: SessionId,
    /// The run that caused the event. Absent if no run did.
    run_id: Option<RunId>,
    /// Position among the events of the run, from 1.
    run_seq: Option<u64>,
    /// Position among the events of the session, from 1. Use it as the cursor of a session stream.
    session_seq: u64,
    /// Time of the event. It never orders events.
    ts: Timestamp,
    /// Severity of the event.
    level: Level,
    /// Data of the event. The fields depend on the kind.
    #[schema(value_type = Object)]
    data: Value,
}
