//! Schemas of the records that write themselves: as clients read them, not as they are held.
//!
//! Not here: those of all others, which follow from their fields.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::Value;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{RefOr, schema::Schema},
};

use crate::{Covers, EventRecord, GoalId, Level, Message, Role, RunId, SessionId, Timestamp, ToolCall, TraceId, Usd};

/// Gives a record the schema of the form in which it is written.
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

written_as! { ToolCall = CallForm, Message = MessageForm, EventRecord = EventForm }

/// One request of a model for a tool, in OpenAI's form.
#[derive(Serialize, ToSchema)]
struct CallForm {
    /// The provider's id of the call; answers refer to it.
    id: String,
    /// Always `function`.
    r#type: String,
    /// What is called.
    #[schema(inline)]
    function: FunctionForm,
}

/// A function with its arguments.
#[derive(Serialize, ToSchema)]
struct FunctionForm {
    /// The tool.
    name: String,
    /// Its arguments as the model wrote them: JSON as text.
    arguments: String,
}

/// A message of a trace.
#[derive(Serialize, ToSchema)]
struct MessageForm {
    /// `{trace_id}-{sequence:04}`.
    message_id: String,
    /// The trace it belongs to.
    trace_id: TraceId,
    /// Its number in the trace, from 1.
    sequence: u64,
    /// The message it follows; absent for the first, and for a summary.
    parent_sequence: Option<u64>,
    /// Who speaks.
    role: Role,
    /// The text; empty where the message only calls tools.
    content: String,
    /// What a tool wants to be remembered of its output.
    long_term_memory: Option<String>,
    /// Whether the model reads `content` once only.
    include_output_only_once: Option<bool>,
    /// The model's reasoning, where it told it.
    reasoning: Option<String>,
    /// What an assistant message asks for, in order.
    tool_calls: Option<Vec<ToolCall>>,
    /// Which call a tool message answers.
    tool_call_id: Option<String>,
    /// The goal that was current when it was added.
    goal_id: Option<GoalId>,
    /// A short line for lists.
    description: String,
    /// Whether the text was cut off.
    partial: Option<bool>,
    /// Whether it hangs on a side branch, such as a look back.
    side_branch: Option<bool>,
    /// What it stands for, where it is a summary.
    covers: Option<Covers>,
    /// Tokens of the request that led to it.
    prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    completion_tokens: Option<u64>,
    /// What the model call cost, in USD.
    cost: Option<Usd>,
    /// How long the model or tool took, in milliseconds.
    duration_ms: Option<u64>,
    /// Why the model stopped, in the provider's word.
    finish_reason: Option<String>,
    /// When it was added.
    created_at: Timestamp,
}

/// A stored event in its envelope: the same on every channel.
#[derive(Serialize, ToSchema)]
struct EventForm {
    /// Place on the trace's timeline, from 1 without gaps; the resume cursor.
    event_id: u64,
    /// What happened, such as `run_completed`.
    event: String,
    /// The trace.
    trace_id: TraceId,
    /// The session.
    session_id: SessionId,
    /// The run that acts; absent where none does.
    run_id: Option<RunId>,
    /// Place among the run's events, from 1.
    run_seq: Option<u64>,
    /// Place among the session's events, from 1; the cursor of a whole session.
    session_seq: u64,
    /// When it happened; orders nothing.
    ts: Timestamp,
    /// How much it matters to a person who looks on.
    level: Level,
    /// What belongs to it, by its kind.
    #[schema(value_type = Object)]
    data: Value,
}
