//! A node of a trace's message tree, in OpenAI's form (MSG-1, MSG-7).

use serde::{Deserialize, Serialize, Serializer, ser::SerializeStruct};

use crate::{GoalId, MessageContent, PromptChanges, ProviderData, Timestamp, TraceId, Usd};

/// Maximum length of the description of a message, in characters.
const MAX_DESCRIPTION_CHARS: usize = 80;

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Instructions for the agent.
    System,
    /// The caller, or the parent of a sub-agent.
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
}

impl Role {
    /// Returns the role as the store and providers write it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

/// Author of a message with the role `user`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum MessageOrigin {
    /// The caller: a person, a program, or the parent of a sub-agent.
    Request,
    /// The runtime, with the result of a sub-agent.
    ChildResult,
    /// The runtime, with the reason of a hook.
    Hook,
    /// The runtime, which asks for another answer.
    Correction,
}

/// A tool call that a model requests. The arguments are unvalidated text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// Id that the provider assigned. The tool result refers to it.
    pub id: String,
    /// Name of the requested tool.
    pub name: String,
    /// Arguments as the model wrote them. Valid JSON is not guaranteed.
    pub arguments: String,
}

#[derive(Serialize, Deserialize)]
struct FunctionCall<T> {
    name: T,
    arguments: T,
}

#[derive(Deserialize)]
struct ToolCallJson {
    id: String,
    function: FunctionCall<String>,
}

impl Serialize for ToolCall {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("ToolCall", 3)?;
        form.serialize_field("id", &self.id)?;
        form.serialize_field("type", "function")?;
        form.serialize_field(
            "function",
            &FunctionCall {
                name: &self.name,
                arguments: &self.arguments,
            },
        )?;
        form.end()
    }
}

impl<'de> Deserialize<'de> for ToolCall {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let form = ToolCallJson::deserialize(deserializer)?;
        Ok(Self {
            id: form.id,
            name: form.function.name,
            arguments: form.function.arguments,
        })
    }
}

/// The part of a conversation that a summary replaces (MSG-5).
///
/// The parent of `next` on the main path is the summary, not its `parent_sequence`. The covered
/// messages remain stored, and a path that starts at one of them follows the original links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Covers {
    /// First covered message.
    pub first: u64,
    /// Last covered message.
    pub last: u64,
    /// Message that follows the summary.
    pub next: u64,
    /// Covered system message. It remains in the prompt before the summary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<u64>,
    /// Last covered request of the caller. It remains in the prompt after the summary if no later
    /// request exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
}

/// A message of a trace. `sequence` grows per trace and is never reused; `parent_sequence` forms
/// the tree.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Message {
    /// Trace of the message.
    pub trace_id: TraceId,
    /// Number in the trace, from 1.
    pub sequence: u64,
    /// Preceding message. `None` for the first message and for a summary.
    #[serde(default)]
    pub parent_sequence: Option<u64>,
    /// Author of the message.
    pub role: Role,
    /// For a message with the role `user`, its actual author. Absent for a summary, and in messages
    /// of earlier versions.
    #[serde(default)]
    pub origin: Option<MessageOrigin>,
    /// Text, images and files. Empty if the message contains only tool calls.
    #[serde(default)]
    pub content: MessageContent,
    /// Short text that replaces the output of a tool in later prompts.
    #[serde(default)]
    pub long_term_memory: Option<String>,
    /// Whether `long_term_memory` replaces `content` when the prompt is rebuilt (ART-9).
    #[serde(default)]
    pub include_output_only_once: bool,
    /// The model's reasoning, if the provider returned it. Sent back to the service that made it
    /// only.
    #[serde(default)]
    pub reasoning: Option<String>,
    /// Data of an answer for the service that made it. Not shown to clients.
    #[serde(skip)]
    pub provider_data: Option<Box<ProviderData>>,
    /// For an answer, the context that the runtime sent before it, after the newest message:
    /// artifacts, goals, collaborators, budgets. Absent if nothing had changed. Later prompts
    /// contain it at the same place.
    #[serde(default)]
    pub context_update: Option<String>,
    /// For an answer, the changes of its prompt, if it was the first one after them. Later prompts
    /// keep them until a summary. Not shown to clients.
    #[serde(skip)]
    pub prompt_changes: Option<Box<PromptChanges>>,
    /// Tool calls of an assistant message, in order.
    #[serde(default)]
    pub tool_calls: Vec<ToolCall>,
    /// For a tool message, the id of the call.
    #[serde(default)]
    pub tool_call_id: Option<String>,
    /// Goal that was focused when the message was added.
    #[serde(default)]
    pub goal_id: Option<GoalId>,
    /// One-line description for lists.
    #[serde(default)]
    pub description: String,
    /// Whether the text was cut off. A partial message is never the head and is never sent to a
    /// model (SES-5).
    #[serde(default)]
    pub partial: bool,
    /// Whether the message belongs to a side branch, such as a reflection (MEM-4). Such a message
    /// is never the head and not part of the conversation.
    #[serde(default)]
    pub side_branch: bool,
    /// For a summary, the messages that it replaces. A summary has no parent and is never the head.
    #[serde(default)]
    pub covers: Option<Covers>,
    /// Tokens of the request that led to the message.
    #[serde(default)]
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer.
    #[serde(default)]
    pub completion_tokens: Option<u64>,
    /// Cost of the model call.
    #[serde(default)]
    pub cost: Option<Usd>,
    /// Duration of the model or tool call, in milliseconds.
    #[serde(default)]
    pub duration_ms: Option<u64>,
    /// Why the model stopped, as the provider reported it.
    #[serde(default)]
    pub finish_reason: Option<String>,
    /// Time at which the message was added.
    pub created_at: Timestamp,
}

impl Message {
    /// Creates a message with this content. The caller sets further fields.
    pub fn new(
        trace_id: TraceId,
        sequence: u64,
        parent: Option<u64>,
        role: Role,
        content: impl Into<MessageContent>,
        at: Timestamp,
    ) -> Self {
        let content = content.into();
        let description = match content.files().next() {
            Some(file) if content.trim().is_empty() => {
                one_line(&file.description(), MAX_DESCRIPTION_CHARS)
            }
            _ => one_line(&content, MAX_DESCRIPTION_CHARS),
        };
        Self {
            description,
            trace_id,
            sequence,
            parent_sequence: parent,
            role,
            origin: None,
            content,
            long_term_memory: None,
            include_output_only_once: false,
            reasoning: None,
            provider_data: None,
            context_update: None,
            prompt_changes: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            goal_id: None,
            partial: false,
            side_branch: false,
            covers: None,
            prompt_tokens: None,
            completion_tokens: None,
            cost: None,
            duration_ms: None,
            finish_reason: None,
            created_at: at,
        }
    }

    /// Returns the data for the service that made the answer, if it describes exactly the text, the
    /// reasoning and the calls of the message.
    pub fn matching_provider_data(&self) -> Option<&ProviderData> {
        let reasoning = self.reasoning.as_deref().map_or(0, str::len);
        let described = (self.content.len(), reasoning, self.tool_calls.len());
        self.provider_data
            .as_deref()
            .filter(|data| data.described() == described)
    }

    /// Returns whether the caller wrote the message. Earlier versions stored no origin: their
    /// messages with the role `user` count as requests, except summaries.
    pub fn is_request(&self) -> bool {
        let is_from_caller = self
            .origin
            .is_none_or(|origin| origin == MessageOrigin::Request);
        self.role == Role::User && self.covers.is_none() && is_from_caller
    }

    /// Returns the id as clients see it: `{trace_id}-{sequence:04}`.
    pub fn message_id(&self) -> String {
        format!("{}-{:04}", self.trace_id, self.sequence)
    }
}

impl Serialize for Message {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut form = serializer.serialize_struct("Message", 24)?;
        form.serialize_field("message_id", &self.message_id())?;
        form.serialize_field("trace_id", &self.trace_id)?;
        form.serialize_field("sequence", &self.sequence)?;
        macro_rules! when {
            ($present:expr, $field:ident) => {
                if $present {
                    form.serialize_field(stringify!($field), &self.$field)?;
                }
            };
        }
        when!(self.parent_sequence.is_some(), parent_sequence);
        form.serialize_field("role", &self.role)?;
        when!(self.origin.is_some(), origin);
        form.serialize_field("content", &self.content)?;
        when!(self.long_term_memory.is_some(), long_term_memory);
        when!(self.include_output_only_once, include_output_only_once);
        when!(self.reasoning.is_some(), reasoning);
        when!(self.context_update.is_some(), context_update);
        when!(!self.tool_calls.is_empty(), tool_calls);
        when!(self.tool_call_id.is_some(), tool_call_id);
        when!(self.goal_id.is_some(), goal_id);
        form.serialize_field("description", &self.description)?;
        when!(self.partial, partial);
        when!(self.side_branch, side_branch);
        when!(self.covers.is_some(), covers);
        when!(self.prompt_tokens.is_some(), prompt_tokens);
        when!(self.completion_tokens.is_some(), completion_tokens);
        when!(self.cost.is_some(), cost);
        when!(self.duration_ms.is_some(), duration_ms);
        when!(self.finish_reason.is_some(), finish_reason);
        form.serialize_field("created_at", &self.created_at)?;
        form.end()
    }
}

/// Returns the first `max` characters of `text` on one line, followed by `…` if text was cut off.
pub(crate) fn one_line(text: &str, max: usize) -> String {
    let mut line = String::new();
    let mut length = 0;
    for word in text.split_whitespace() {
        if length >= max {
            line.push('…');
            return line;
        }
        if !line.is_empty() {
            line.push(' ');
            length += 1;
        }
        for c in word.chars() {
            if length >= max {
                line.push('…');
                return line;
            }
            line.push(c);
            length += 1;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_round_trips() {
        let mut message = Message::new(
            TraceId::new("t"),
            7,
            Some(6),
            Role::Assistant,
            String::new(),
            Timestamp::default(),
        );
        message.tool_calls = vec![ToolCall {
            id: "c1".into(),
            name: "read".into(),
            arguments: "{\"path\":\"a\"}".into(),
        }];
        message.finish_reason = Some("tool_calls".into());
        let json = serde_json::to_value(&message).unwrap();
        assert_eq!(json["message_id"], "t-0007");
        assert_eq!(json["tool_calls"][0]["function"]["name"], "read");
        assert_eq!(serde_json::from_value::<Message>(json).unwrap(), message);
    }

    #[test]
    fn one_line_collapses_whitespace_and_truncates() {
        assert_eq!(one_line("a\n  b\tc", 80), "a b c");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(one_line("好好好好", 2), "好好…");
        assert_eq!(one_line("", 3), "");
    }
}
