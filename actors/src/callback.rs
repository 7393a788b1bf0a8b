//! Callbacks of a program around its runs, their model calls and their tool calls (HOOK-2).
//!
//! A callback observes a step, changes its input or result, answers in its place, or fails the run.
//! Callbacks before a step are called in the order in which they are registered, callbacks after it
//! in reverse order.
//!
//! Order before a tool call: callbacks, `PreToolUse` hooks, permission, execution. Changed
//! arguments are checked against the schema of the tool, and a permission is bound to them.
//!
//! Changes and answers of callbacks are recorded as the event `callback_completed`. After a crash,
//! a step whose change or answer is recorded is not passed to the callbacks again. A model call
//! that is repeated is a new step.
//!
//! ```
//! use soong::{
//!     Runtime,
//!     callback::{Before, Callback},
//!     tool::ToolOutput,
//! };
//!
//! // Answers calls of `webfetch` from an artifact if there is one, and stores the others.
//! let cache = Callback::new("cache")
//!     .before_tool(|context, call| async move {
//!         if call.name != "webfetch" {
//!             return Ok(Before::Continue);
//!         }
//!         let name = format!("page {}.txt", call.arguments["url"].as_str().unwrap_or_default().replace('/', "_"));
//!         Ok(match context.artifacts().load(&name, None).await? {
//!             Some(page) => Before::Answer(Ok(ToolOutput::from(String::from_utf8_lossy(&page).into_owned()))),
//!             None => Before::Continue,
//!         })
//!     });
//! let builder = Runtime::builder().callback(cache);
//! ```

mod context;
mod list;

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use serde_json::Value;
use soong_model::{Completion, ModelRequest};
use soong_protocol::ErrorInfo;
use soong_tool::{ToolError, ToolResult};

pub use self::context::CallbackContext;
pub(crate) use self::list::{AfterResult, BeforeResult, CallbackStep, Callbacks, Reports};

/// Default time limit of one call of a callback.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// The decision of a callback before a step.
#[derive(Debug, Clone, PartialEq)]
pub enum Before<T, A> {
    /// The step is done as it is.
    Continue,
    /// The step is done with this input.
    Change(T),
    /// The step is not done; this is its result. The remaining callbacks before the step are not
    /// called.
    Answer(A),
    /// The run fails with this message, as `callback_failed`.
    Fail(ErrorInfo),
}

/// The decision of a callback after a step.
#[derive(Debug, Clone, PartialEq)]
pub enum After<T> {
    /// The result stays as it is.
    Keep,
    /// This is the result instead.
    Replace(T),
    /// The run fails with this message, as `callback_failed`.
    Fail(ErrorInfo),
}

/// The consequence of a failure: a callback returns an error, panics, or exceeds its time limit.
/// Each failure is reported as the event `callback_failed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    /// Before a tool call, the call is refused. At every other step, the run fails.
    FailClosed,
    /// The callback is ignored.
    FailOpen,
}

/// A tool call, as callbacks see it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallbackToolCall {
    /// Id of the call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    /// Arguments, which fit the schema of the tool.
    pub arguments: Value,
}

pub(crate) type CallbackResult<D> = BoxFuture<'static, Result<D, ToolError>>;
type BeforeFn<I, T, A> =
    Arc<dyn Fn(CallbackContext, I) -> CallbackResult<Before<T, A>> + Send + Sync>;
type AfterFn<I, T> = Arc<dyn Fn(CallbackContext, I, T) -> CallbackResult<After<T>> + Send + Sync>;

/// The functions of a callback.
#[derive(Default, Clone)]
pub(crate) struct CallbackFunctions {
    pub(crate) before_agent: Option<BeforeFn<String, String, String>>,
    pub(crate) after_agent: Option<AfterFn<(), String>>,
    pub(crate) before_model: Option<BeforeFn<ModelRequest, ModelRequest, Completion>>,
    pub(crate) after_model: Option<AfterFn<(), Completion>>,
    pub(crate) before_tool: Option<BeforeFn<CallbackToolCall, Value, ToolResult>>,
    pub(crate) after_tool: Option<AfterFn<CallbackToolCall, ToolResult>>,
}

/// A callback: functions that are called around the steps of runs. Register it with
/// `RuntimeBuilder::callback`.
///
/// Each function gets a [`CallbackContext`] and may use `?` on any error: see [`ToolError`].
#[derive(Clone)]
#[must_use = "a callback has no effect until it is registered with `RuntimeBuilder::callback`"]
pub struct Callback {
    pub(crate) name: Arc<str>,
    pub(crate) functions: CallbackFunctions,
    pub(crate) timeout: Duration,
    pub(crate) before_failures: FailurePolicy,
    pub(crate) after_failures: FailurePolicy,
    pub(crate) is_inherited: bool,
}

impl Callback {
    /// Creates a callback without functions. The name identifies it in events and errors.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into().into(),
            functions: CallbackFunctions::default(),
            timeout: DEFAULT_TIMEOUT,
            before_failures: FailurePolicy::FailClosed,
            after_failures: FailurePolicy::FailOpen,
            is_inherited: true,
        }
    }

    /// Sets the function that is called with the task before a run begins its conversation. It may
    /// change the task, or answer it without a model call.
    ///
    /// It is not called for runs that a program drives, for reflections, and for runs that get no
    /// new message.
    pub fn before_agent<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Before<String, String>, ToolError>> + Send + 'static,
    {
        self.functions.before_agent =
            Some(Arc::new(move |context, task| call(context, task).boxed()));
        self
    }

    /// Sets the function that is called with the answer of a run before the run ends. A replaced
    /// answer is also the one in the conversation.
    pub fn after_agent<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, String) -> R + Send + Sync + 'static,
        R: Future<Output = Result<After<String>, ToolError>> + Send + 'static,
    {
        self.functions.after_agent = Some(Arc::new(move |context, (), answer| {
            call(context, answer).boxed()
        }));
        self
    }

    /// Sets the function that is called with the request before each model call of a turn, also
    /// with a fallback. It may change the request, or answer it. An answer without usage counts no
    /// tokens.
    pub fn before_model<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, ModelRequest) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Before<ModelRequest, Completion>, ToolError>> + Send + 'static,
    {
        self.functions.before_model = Some(Arc::new(move |context, request| {
            call(context, request).boxed()
        }));
        self
    }

    /// Sets the function that is called with each answer of a model. Text that was streamed before
    /// is not taken back; the answer that is stored counts.
    pub fn after_model<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, Completion) -> R + Send + Sync + 'static,
        R: Future<Output = Result<After<Completion>, ToolError>> + Send + 'static,
    {
        self.functions.after_model = Some(Arc::new(move |context, (), answer| {
            call(context, answer).boxed()
        }));
        self
    }

    /// Sets the function that is called before each tool call. It may change the arguments, give a
    /// result in place of the tool, or refuse the call with an error as its result.
    pub fn before_tool<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, CallbackToolCall) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Before<Value, ToolResult>, ToolError>> + Send + 'static,
    {
        self.functions.before_tool = Some(Arc::new(move |context, request| {
            call(context, request).boxed()
        }));
        self
    }

    /// Sets the function that is called with the result of each tool call that was executed. The
    /// tools `goal`, `agent`, `evaluate` and `ask_human`, which the run executes itself, are not
    /// reported.
    pub fn after_tool<F, R>(mut self, call: F) -> Self
    where
        F: Fn(CallbackContext, CallbackToolCall, ToolResult) -> R + Send + Sync + 'static,
        R: Future<Output = Result<After<ToolResult>, ToolError>> + Send + 'static,
    {
        self.functions.after_tool = Some(Arc::new(move |context, request, result| {
            call(context, request, result).boxed()
        }));
        self
    }

    /// Sets the time limit of one call. Default: 30 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets what happens if a function before a step fails. Default: [`FailurePolicy::FailClosed`].
    pub fn on_failure_before(mut self, policy: FailurePolicy) -> Self {
        self.before_failures = policy;
        self
    }

    /// Sets what happens if a function after a step fails. Default: [`FailurePolicy::FailOpen`].
    pub fn on_failure_after(mut self, policy: FailurePolicy) -> Self {
        self.after_failures = policy;
        self
    }

    /// Calls the functions only for runs of users. By default, they are also called for sub-agents.
    pub fn not_for_sub_agents(mut self) -> Self {
        self.is_inherited = false;
        self
    }
}

impl std::fmt::Debug for Callback {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Callback")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
