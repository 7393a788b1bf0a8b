//! The library's scripted model: a test decides the outcome of each turn.

use std::{pin::Pin, sync::Arc};

pub use soong::testing::ScriptedModel;
use soong::{
    model::{Completion, ModelError, ModelRequest},
    protocol::{Delta, Message, Role, ToolCall, Usage},
    testing::{Step, hang, respond_async},
};
use tokio::sync::{Notify, futures::OwnedNotified};

/// Response of the model to a request.
pub enum Turn {
    Say(String),
    /// Calls tools, given as name and arguments. Ids consist of the turn and the position.
    Call(Vec<(&'static str, serde_json::Value)>),
    Fail(ModelError),
    /// Streams this text, then nothing until it is cancelled.
    Hang(&'static str),
    /// Streams this text, then fails.
    Break(&'static str, ModelError),
    /// Answers with this text, cut at the token limit.
    Cut(&'static str),
    /// Waits for a notification, then answers with this text.
    When(Arc<Notify>, String),
    /// Streams these deltas, then answers with this completion.
    Whole(Vec<Delta>, Box<Completion>),
}

impl Turn {
    pub fn say(text: impl Into<String>) -> Self {
        Self::Say(text.into())
    }

    pub fn call(name: &'static str, arguments: serde_json::Value) -> Self {
        Self::Call(vec![(name, arguments)])
    }

    /// Returns the step of the library's model for this turn, without the wait of [`Turn::When`].
    pub fn step(self, request: &ModelRequest) -> Step {
        let piece = |text: &str| Delta::Text {
            text: text.to_owned(),
        };
        let usage = Usage {
            prompt_tokens: 10,
            completion_tokens: 5,
            ..Usage::default()
        };
        let text_step = |text: String| Step::from(Completion::text(text)).usage(usage);
        match self {
            Self::Say(text) => {
                let deltas = [piece(&text)];
                text_step(text).streaming(deltas)
            }
            Self::When(_, text) => text_step(text),
            Self::Fail(error) => error.into(),
            Self::Hang(text) => hang(text),
            Self::Break(text, error) => Step::from(error).streaming([piece(text)]),
            Self::Whole(deltas, completion) => Step::from(*completion).streaming(deltas),
            Self::Cut(text) => Step::from(Completion {
                finish_reason: "length".into(),
                ..Completion::text(text)
            })
            .usage(usage),
            Self::Call(calls) => {
                let calls = tool_calls(assistant_count(request), calls);
                Step::from(Completion::tool_calls(calls)).usage(usage)
            }
        }
    }

    /// Returns the notification that the turn waits for.
    ///
    /// It is registered before the call counts as in flight: a test may notify as soon as it sees
    /// the count.
    fn notified(&self) -> Option<Pin<Box<OwnedNotified>>> {
        let Self::When(notify, _) = self else {
            return None;
        };
        let mut notified = Box::pin(Arc::clone(notify).notified_owned());
        notified.as_mut().enable();
        Some(notified)
    }
}

fn tool_calls(turn: usize, calls: Vec<(&'static str, serde_json::Value)>) -> Vec<ToolCall> {
    let call = |(index, (name, arguments)): (usize, (&str, serde_json::Value))| ToolCall {
        id: format!("call_{turn}_{index}"),
        name: name.into(),
        arguments: arguments
            .as_str()
            .map_or_else(|| arguments.to_string(), str::to_owned),
    };
    calls.into_iter().enumerate().map(call).collect()
}

/// Creates a model that derives each turn from the request.
pub fn scripted_model(
    script: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static,
) -> Arc<ScriptedModel> {
    Arc::new(respond_async(move |request| {
        let turn = script(request);
        let notified = turn.notified();
        let step = turn.step(request);
        async move {
            if let Some(notified) = notified {
                notified.await;
            }
            step
        }
    }))
}

/// Returns the number of assistant messages in the request.
pub fn assistant_count(request: &ModelRequest) -> usize {
    request
        .messages
        .iter()
        .filter(|message| message.role == Role::Assistant)
        .count()
}

/// Returns the task of a child run: the first user message that is not context from its parent.
pub fn task_of(request: &ModelRequest) -> &str {
    let is_task = |message: &&Arc<Message>| {
        message.role == Role::User && !message.content.starts_with("## Context\n")
    };
    request
        .messages
        .iter()
        .find(is_task)
        .map_or("", |message| &message.content)
}

/// Returns the last message of the conversation.
pub fn last_of(request: &ModelRequest) -> &str {
    request
        .messages
        .last()
        .map_or("", |message| &message.content)
}

/// Whether the request belongs to a run that may start sub-agents.
pub fn is_parent(request: &ModelRequest) -> bool {
    request.tools.iter().any(|tool| tool.name == "agent")
}
