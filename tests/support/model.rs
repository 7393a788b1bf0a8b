//! A scripted model: a test decides the outcome of each turn.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering::SeqCst},
};

use futures::future::{BoxFuture, FutureExt};
use soong::{
    model::{Completion, DeltaSink, Model, ModelError, ModelRequest},
    protocol::{Delta, Role, ToolCall, Usage},
};
use tokio::sync::Notify;

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
}

type Script = dyn Fn(&ModelRequest) -> Turn + Send + Sync;

/// Scripted model that counts its calls and the maximum number of simultaneous calls.
pub struct ScriptedModel {
    script: Box<Script>,
    calls: AtomicUsize,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
}

/// Creates a model that derives each turn from the request.
pub fn scripted_model(script: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> Arc<ScriptedModel> {
    Arc::new(ScriptedModel {
        script: Box::new(script),
        calls: AtomicUsize::new(0),
        in_flight: AtomicUsize::new(0),
        max_in_flight: AtomicUsize::new(0),
    })
}

impl ScriptedModel {
    pub fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    pub fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    pub fn max_in_flight(&self) -> usize {
        self.max_in_flight.load(SeqCst)
    }
}

struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

impl Model for ScriptedModel {
    fn name(&self) -> &str {
        "scripted"
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            self.calls.fetch_add(1, SeqCst);
            let turn = (self.script)(request);
            // Register before the call counts as in flight: a test may notify as soon as it sees the count.
            let mut notified = match &turn {
                Turn::When(told, _) => Some(Box::pin(Arc::clone(told).notified_owned())),
                _ => None,
            };
            if let Some(told) = &mut notified {
                told.as_mut().enable();
            }
            let now = self.in_flight.fetch_add(1, SeqCst) + 1;
            self.max_in_flight.fetch_max(now, SeqCst);
            let _guard = InFlight(&self.in_flight);
            let usage = Some(Usage { prompt_tokens: 10, completion_tokens: 5, ..Usage::default() });
            let said = |text: String| Completion { text, usage, finish_reason: "stop".into(), ..Completion::default() };
            match turn {
                Turn::Say(text) => {
                    deltas.push(Delta::Text { text: text.clone() });
                    Ok(said(text))
                }
                Turn::When(_, text) => {
                    if let Some(told) = notified {
                        told.await;
                    }
                    Ok(said(text))
                }
                Turn::Fail(error) => Err(error),
                Turn::Hang(text) => {
                    deltas.push(Delta::Text { text: text.into() });
                    std::future::pending().await
                }
                Turn::Break(text, error) => {
                    deltas.push(Delta::Text { text: text.into() });
                    Err(error)
                }
                Turn::Whole(pieces, completion) => {
                    pieces.into_iter().for_each(|piece| deltas.push(piece));
                    Ok(*completion)
                }
                Turn::Cut(text) => Ok(Completion { finish_reason: "length".into(), ..said(text.into()) }),
                Turn::Call(calls) => {
                    let turn = assistant_count(request);
                    let tool_calls = calls
                        .into_iter()
                        .enumerate()
                        .map(|(place, (name, arguments))| ToolCall {
                            id: format!("call_{turn}_{place}"),
                            name: name.into(),
                            arguments: arguments.as_str().map_or_else(|| arguments.to_string(), str::to_owned),
                        })
                        .collect();
                    Ok(Completion { tool_calls, usage, finish_reason: "tool_calls".into(), ..Completion::default() })
                }
            }
        }
        .boxed()
    }
}

/// Returns the number of assistant messages in the request.
pub fn assistant_count(request: &ModelRequest) -> usize {
    request.messages.iter().filter(|message| message.role == Role::Assistant).count()
}

/// Returns the first user message, which is the task of a child run.
pub fn task_of(request: &ModelRequest) -> &str {
    request.messages.iter().find(|message| message.role == Role::User).map_or("", |message| &message.content)
}

/// Returns the last message of the conversation.
pub fn last_of(request: &ModelRequest) -> &str {
    request.messages.last().map_or("", |message| &message.content)
}

/// Whether the request belongs to a run that may start sub-agents.
pub fn is_parent(request: &ModelRequest) -> bool {
    request.tools.iter().any(|tool| tool.name == "agent")
}
