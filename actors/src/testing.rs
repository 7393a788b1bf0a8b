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
//!
//! [`respond`] answers by the content of the request. The model counts its calls:
//!
//! ```
//! use std::sync::Arc;
//! use soong::{Runtime, model::Failure, testing::{fail, respond, text}};
//!
//! let model = respond(|request| text(format!("{} messages", request.messages.len())));
//! let model = Arc::new(model.at_call(0, fail(Failure::Unavailable, "the service is down")).recording());
//! let builder = Runtime::builder().model("default", Arc::clone(&model));
//! // No run has called it yet:
//! assert_eq!((model.calls(), model.in_flight(), model.requests().len()), (0, 0, 0));
//! ```

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use soong_model::{Completion, DeltaSink, Failure, Model, ModelError, ModelRequest};
use soong_protocol::{Delta, InputKind, ToolCall, Usage};

/// Response of a scripted model to one request: what it streams, and how it ends.
///
/// [`text`], [`call`], [`calls`], [`fail`], [`cut`] and [`hang`] create the usual ones. A
/// [`Completion`] or a [`ModelError`] becomes a step that streams nothing and ends with it.
#[derive(Debug, Clone)]
#[must_use]
pub struct Step {
    deltas: Vec<Delta>,
    /// Time between the last delta and the end.
    pause: Duration,
    end: End,
}

#[derive(Debug, Clone)]
enum End {
    Answer(Completion),
    Error(ModelError),
    Never,
}

impl Step {
    fn new(deltas: Vec<Delta>, end: End) -> Self {
        Self {
            deltas,
            pause: Duration::ZERO,
            end,
        }
    }

    /// Streams these deltas instead of its own.
    pub fn streaming(self, deltas: impl IntoIterator<Item = Delta>) -> Self {
        Self {
            deltas: deltas.into_iter().collect(),
            ..self
        }
    }

    /// Waits for this time after the streamed deltas, before the end of the response.
    pub fn pause(self, pause: Duration) -> Self {
        Self { pause, ..self }
    }

    /// Reports this usage, if the step is an answer. By default, the runtime estimates the usage.
    pub fn usage(mut self, usage: Usage) -> Self {
        if let End::Answer(completion) = &mut self.end {
            completion.usage = Some(usage);
        }
        self
    }
}

impl From<Completion> for Step {
    /// Answers with this completion. Tool calls with an empty id get an id.
    fn from(completion: Completion) -> Self {
        Self::new(Vec::new(), End::Answer(completion))
    }
}

impl From<ModelError> for Step {
    /// Fails with this error.
    fn from(error: ModelError) -> Self {
        Self::new(Vec::new(), End::Error(error))
    }
}

/// Answers with this text, which is streamed word by word.
pub fn text(text: impl Into<String>) -> Step {
    let completion = Completion::text(text);
    let words: Vec<Delta> = completion.text.split_inclusive(' ').map(piece).collect();
    Step::from(completion).streaming(words)
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
    Completion::tool_calls(calls.into_iter().map(call).collect()).into()
}

/// Fails. The call is retried if the failure is transient.
pub fn fail(failure: Failure, message: impl Into<String>) -> Step {
    ModelError::new(failure, message).into()
}

/// Streams this text, then fails: a stream that is cut off. The call is retried if the failure is
/// transient.
pub fn cut(text: impl Into<String>, failure: Failure, message: impl Into<String>) -> Step {
    fail(failure, message).streaming([piece(text)])
}

/// Streams this text and never completes: the call lasts until it times out, its run is cancelled,
/// or its actor crashes.
pub fn hang(text: impl Into<String>) -> Step {
    Step::new(vec![piece(text)], End::Never)
}

fn piece(text: impl Into<String>) -> Delta {
    Delta::Text { text: text.into() }
}

/// Creates a model that takes one step per request, in this order; a retry is a request too.
/// Further requests are rejected.
///
/// Requests of concurrent runs share the steps. To answer them by their content, use [`respond`].
pub fn script(steps: impl IntoIterator<Item = Step>) -> ScriptedModel {
    let steps = Mutex::new(steps.into_iter().collect::<VecDeque<_>>());
    respond(move |_| {
        let next = steps
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front();
        next.unwrap_or_else(|| fail(Failure::Rejected, "the script has no further step"))
    })
}

/// Creates a model that derives each step from the request.
pub fn respond(step: impl Fn(&ModelRequest) -> Step + Send + Sync + 'static) -> ScriptedModel {
    respond_async(move |request| std::future::ready(step(request)))
}

/// Creates a model that derives each step from the request, and may wait before it responds: for a
/// time, or for something that the test does.
///
/// The future is dropped when the call is cancelled. It cannot borrow the request.
pub fn respond_async<F>(step: impl Fn(&ModelRequest) -> F + Send + Sync + 'static) -> ScriptedModel
where
    F: Future<Output = Step> + Send + 'static,
{
    ScriptedModel {
        respond: Box::new(move |request| step(request).boxed()),
        at_call: BTreeMap::new(),
        requests: None,
        calls: AtomicUsize::new(0),
        in_flight: AtomicUsize::new(0),
        max_in_flight: AtomicUsize::new(0),
        tool_calls: AtomicUsize::new(0),
        inputs: vec![InputKind::Text],
    }
}

type Respond = dyn Fn(&ModelRequest) -> BoxFuture<'static, Step> + Send + Sync;

/// Model that follows a script: see [`script`], [`respond`] and [`respond_async`]. Its name is
/// `scripted`.
#[must_use]
pub struct ScriptedModel {
    respond: Box<Respond>,
    at_call: BTreeMap<usize, Step>,
    /// Requests so far, if they are recorded.
    requests: Option<Mutex<Vec<ModelRequest>>>,
    calls: AtomicUsize,
    in_flight: AtomicUsize,
    max_in_flight: AtomicUsize,
    /// Number of ids given to tool calls so far.
    tool_calls: AtomicUsize,
    inputs: Vec<InputKind>,
}

impl ScriptedModel {
    /// Takes this step at the call with this number, counted from 0. A retry is a call too. The
    /// call takes no step from the script: the next call takes the step that this one would have
    /// taken.
    pub fn at_call(mut self, number: usize, step: Step) -> Self {
        self.at_call.insert(number, step);
        self
    }

    /// Sets the kinds of content that messages may have. Default: only text.
    pub fn taking(mut self, inputs: impl IntoIterator<Item = InputKind>) -> Self {
        self.inputs = inputs.into_iter().collect();
        self
    }

    /// Records the requests for [`ScriptedModel::requests`].
    pub fn recording(mut self) -> Self {
        self.requests = Some(Mutex::default());
        self
    }

    /// Returns the requests so far, in order. Empty without [`ScriptedModel::recording`].
    pub fn requests(&self) -> Vec<ModelRequest> {
        let recorded = self.requests.as_ref();
        recorded
            .map(|requests| {
                requests
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .clone()
            })
            .unwrap_or_default()
    }

    /// Returns the number of calls so far.
    pub fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }

    /// Returns the number of calls that have neither ended nor been cancelled.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(SeqCst)
    }

    /// Returns the maximum number of simultaneous calls so far.
    pub fn max_in_flight(&self) -> usize {
        self.max_in_flight.load(SeqCst)
    }

    /// Records and counts a call, and returns the future of its step.
    fn receive(&self, request: &ModelRequest) -> BoxFuture<'static, Step> {
        if let Some(requests) = &self.requests {
            requests
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(request.clone());
        }
        let number = self.calls.fetch_add(1, SeqCst);
        match self.at_call.get(&number) {
            Some(step) => std::future::ready(step.clone()).boxed(),
            None => (self.respond)(request),
        }
    }

    /// Gives an id to each tool call that has none.
    fn number(&self, tool_calls: &mut [ToolCall]) {
        for call in tool_calls.iter_mut().filter(|call| call.id.is_empty()) {
            call.id = format!("call_{}", self.tool_calls.fetch_add(1, SeqCst));
        }
    }
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

    fn inputs(&self) -> &[InputKind] {
        &self.inputs
    }

    fn complete<'a>(
        &'a self,
        request: &'a ModelRequest,
        deltas: &'a mut dyn DeltaSink,
    ) -> BoxFuture<'a, Result<Completion, ModelError>> {
        async move {
            let step = self.receive(request);
            let _in_flight = InFlight::begin(self);
            let step = step.await;
            step.deltas.into_iter().for_each(|delta| deltas.push(delta));
            if !step.pause.is_zero() {
                tokio::time::sleep(step.pause).await;
            }
            match step.end {
                End::Answer(mut completion) => {
                    self.number(&mut completion.tool_calls);
                    Ok(completion)
                }
                End::Error(error) => Err(error),
                End::Never => std::future::pending().await,
            }
        }
        .boxed()
    }
}

/// A call that has not ended.
struct InFlight<'a>(&'a ScriptedModel);

impl<'a> InFlight<'a> {
    fn begin(model: &'a ScriptedModel) -> Self {
        let now = model.in_flight.fetch_add(1, SeqCst) + 1;
        model.max_in_flight.fetch_max(now, SeqCst);
        Self(model)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, SeqCst);
    }
}

#[cfg(test)]
mod tests;
