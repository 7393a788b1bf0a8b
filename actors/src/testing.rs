//! A model that follows a script, for tests of programs that embed the runtime (feature `testing`).
//!
//! ```
//! use serde_json::json;
//! use soong::{Runtime, testing::{call, script, text}};
//!
//! let builder = Runtime::builder().model("default", script([
//!     call("deploy", json!({ "environment": "staging" })),
//!     text("It is deployed."),
//! ]));
//! ```

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use soong_model::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest};
use soong_protocol::{Delta, ToolCall};

/// Response of a scripted model to one request.
#[derive(Debug, Clone)]
#[must_use]
pub struct Step(Response);

#[derive(Debug, Clone)]
enum Response {
    Answer(Completion),
    Error(ModelError),
    Hang(String),
}

/// Answers with this text, which is streamed word by word.
pub fn text(text: impl Into<String>) -> Step {
    Step(Response::Answer(Completion::text(text)))
}

/// Calls a tool with these arguments.
pub fn call(tool: impl Into<String>, arguments: Value) -> Step {
    calls([(tool, arguments)])
}

/// Calls several tools in one answer.
pub fn calls<T: Into<String>>(calls: impl IntoIterator<Item = (T, Value)>) -> Step {
    let call = |(tool, arguments): (T, Value)| ToolCall {
        id: String::new(),
        name: tool.into(),
        arguments: arguments.to_string(),
    };
    Step(Response::Answer(Completion::tool_calls(calls.into_iter().map(call).collect())))
}

/// Fails. The call is retried if the failure is transient.
pub fn fail(failure: Failure, message: impl Into<String>) -> Step {
    Step(Response::Error(ModelError::new(failure, message)))
}

/// Streams this text and never completes: the call lasts until it times out, its run is cancelled, or its actor
/// crashes.
pub fn hang(text: impl Into<String>) -> Step {
    Step(Response::Hang(text.into()))
}

/// Creates a model that takes one step per request, in this order; a retry is a request too. Further requests are
/// rejected.
///
/// Requests of concurrent runs share the steps. To answer them by their content, use [`respond`].
pub fn script(steps: impl IntoIterator<Item = Step>) -> ScriptedModel {
    let steps = Mutex::new(steps.into_iter().collect::<VecDeque<_>>());
    respond(move |_| {
        let next = steps.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        next.unwrap_or_else(|| fail(Failure::Rejected, "the script has no further step"))
    })
}

/// Creates a model that derives each step from the request.
pub fn respond(step: impl Fn(&ModelRequest) -> Step + Send + Sync + 'static) -> ScriptedModel {
    ScriptedModel { step: Box::new(step), calls: AtomicUsize::new(0) }
}

/// Model that follows a script: see [`script`] and [`respond`].
#[must_use]
pub struct ScriptedModel {
    step: Box<dyn Fn(&ModelRequest) -> Step + Send + Sync>,
    /// Number of tool calls made, which their ids count.
    calls: AtomicUsize,
}

impl std::fmt::Debug for ScriptedModel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ScriptedModel").finish_non_exhaustive()
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
        match (self.step)(request).0 {
            Response::Hang(text) => {
                deltas.push(Delta::Text { text });
                std::future::pending().boxed()
            }
            Response::Error(error) => std::future::ready(Err(error)).boxed(),
            Response::Answer(mut completion) => {
                for word in completion.text.split_inclusive(' ') {
                    deltas.push(Delta::Text { text: word.to_owned() });
                }
                for call in &mut completion.tool_calls {
                    call.id = format!("call_{}", self.calls.fetch_add(1, Relaxed));
                }
                std::future::ready(Ok(completion)).boxed()
            }
        }
    }
}
