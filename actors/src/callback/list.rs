//! Calls the registered callbacks around a step, in their order, and reports what they did.
//!
//! Elsewhere: which steps there are (`run/tasks/callbacks.rs`), and what a run does with the
//! results.

use std::{panic::AssertUnwindSafe, sync::Arc};

use futures::FutureExt;
use serde_json::Value;
use soong_protocol::{ErrorCode, ErrorInfo, HookEvent};

use super::{
    After, AfterFn, Before, BeforeFn, Callback, CallbackContext, CallbackFunctions, CallbackResult,
    FailurePolicy,
};

/// The registered callbacks, in order. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Callbacks(Arc<[Callback]>);

/// A step around which callbacks are called.
pub(crate) struct CallbackStep<'a> {
    /// Name of the step in events.
    pub(crate) point: &'static str,
    pub(crate) context: &'a CallbackContext,
    pub(crate) tool_call_id: Option<&'a str>,
}

/// The outcome of the callbacks before a step.
#[derive(Debug)]
pub(crate) enum BeforeResult<I, A> {
    /// The step is to be done with this input.
    Proceed { input: I, is_changed: bool },
    /// The step is not to be done; this is its result.
    Answered(A),
    /// The step is not to be done, because a callback failed.
    Refused(ErrorInfo),
    /// The run is to fail.
    Failed(ErrorInfo),
}

/// The outcome of the callbacks after a step.
#[derive(Debug)]
pub(crate) enum AfterResult<T> {
    /// The result of the step.
    Result { result: T, is_replaced: bool },
    /// The run is to fail.
    Failed(ErrorInfo),
}

/// Events that report what callbacks did, in order.
pub(crate) type Reports = Vec<HookEvent>;

impl Callbacks {
    pub(crate) fn new(callbacks: Vec<Callback>) -> Self {
        Self(callbacks.into())
    }

    /// Returns whether a callback of a run has a function that `select` returns. `is_sub_agent`:
    /// the run is a sub-agent.
    pub(crate) fn has<F>(
        &self,
        is_sub_agent: bool,
        select: impl Fn(&CallbackFunctions) -> Option<&F>,
    ) -> bool {
        self.of_run(is_sub_agent)
            .any(|callback| select(&callback.functions).is_some())
    }

    fn of_run(&self, is_sub_agent: bool) -> impl DoubleEndedIterator<Item = &Callback> {
        self.0
            .iter()
            .filter(move |callback| callback.is_inherited || !is_sub_agent)
    }

    /// Calls the callbacks before a step. `change` applies a change to the input, and returns what
    /// its event records.
    pub(crate) async fn before<I: Clone, T, A>(
        &self,
        step: &CallbackStep<'_>,
        select: impl Fn(&CallbackFunctions) -> Option<&BeforeFn<I, T, A>>,
        mut input: I,
        mut change: impl FnMut(&mut I, T) -> Option<Value>,
    ) -> (BeforeResult<I, A>, Reports) {
        let mut is_changed = false;
        let mut reports = Vec::new();
        for callback in self.of_run(step.context.parent_run_id.is_some()) {
            let Some(function) = select(&callback.functions) else {
                continue;
            };
            let call = AssertUnwindSafe(|| function(step.context.clone(), input.clone()));
            match decision(callback, call).await {
                Ok(Before::Continue) => {}
                Ok(Before::Change(changed)) => {
                    is_changed = true;
                    let change = change(&mut input, changed);
                    reports.push(step.completed(callback, "changed", change));
                }
                Ok(Before::Answer(answer)) => {
                    reports.push(step.completed(callback, "answered", None));
                    return (BeforeResult::Answered(answer), reports);
                }
                Ok(Before::Fail(error)) => {
                    let error = run_failed(callback, &error);
                    reports.push(step.run_failed(callback, &error));
                    return (BeforeResult::Failed(error), reports);
                }
                Err(error) => {
                    reports.push(step.failed(callback, callback.before_failures, &error));
                    if callback.before_failures == FailurePolicy::FailClosed {
                        return (BeforeResult::Refused(error), reports);
                    }
                }
            }
        }
        (BeforeResult::Proceed { input, is_changed }, reports)
    }

    /// Calls the callbacks after a step, in reverse order.
    pub(crate) async fn after<I: Clone, T: Clone>(
        &self,
        step: &CallbackStep<'_>,
        select: impl Fn(&CallbackFunctions) -> Option<&AfterFn<I, T>>,
        input: I,
        mut result: T,
    ) -> (AfterResult<T>, Reports) {
        let mut is_replaced = false;
        let mut reports = Vec::new();
        for callback in self.of_run(step.context.parent_run_id.is_some()).rev() {
            let Some(function) = select(&callback.functions) else {
                continue;
            };
            let call =
                AssertUnwindSafe(|| function(step.context.clone(), input.clone(), result.clone()));
            match decision(callback, call).await {
                Ok(After::Keep) => {}
                Ok(After::Replace(other)) => {
                    result = other;
                    is_replaced = true;
                    reports.push(step.completed(callback, "replaced", None));
                }
                Ok(After::Fail(error)) => {
                    let error = run_failed(callback, &error);
                    reports.push(step.run_failed(callback, &error));
                    return (AfterResult::Failed(error), reports);
                }
                Err(error) => {
                    reports.push(step.failed(callback, callback.after_failures, &error));
                    if callback.after_failures == FailurePolicy::FailClosed {
                        return (AfterResult::Failed(error), reports);
                    }
                }
            }
        }
        (
            AfterResult::Result {
                result,
                is_replaced,
            },
            reports,
        )
    }
}

impl CallbackStep<'_> {
    fn completed(&self, callback: &Callback, decision: &str, change: Option<Value>) -> HookEvent {
        HookEvent::CallbackCompleted {
            callback: callback.name.to_string(),
            point: self.point.to_owned(),
            decision: decision.to_owned(),
            tool_call_id: self.tool_call_id.map(str::to_owned),
            change,
            error: None,
        }
    }

    fn run_failed(&self, callback: &Callback, error: &ErrorInfo) -> HookEvent {
        HookEvent::CallbackCompleted {
            callback: callback.name.to_string(),
            point: self.point.to_owned(),
            decision: "failed".to_owned(),
            tool_call_id: self.tool_call_id.map(str::to_owned),
            change: None,
            error: Some(error.clone()),
        }
    }

    fn failed(&self, callback: &Callback, policy: FailurePolicy, error: &ErrorInfo) -> HookEvent {
        HookEvent::CallbackFailed {
            callback: callback.name.to_string(),
            point: self.point.to_owned(),
            is_closed: policy == FailurePolicy::FailClosed,
            tool_call_id: self.tool_call_id.map(str::to_owned),
            error: error.clone(),
        }
    }
}

/// Calls a function of a callback within its time limit.
///
/// # Errors
/// `callback_failed` if the function returns an error, panics, or exceeds the limit.
async fn decision<D>(
    callback: &Callback,
    call: AssertUnwindSafe<impl FnOnce() -> CallbackResult<D>>,
) -> Result<D, ErrorInfo> {
    let name = &callback.name;
    let failed = |how: String| {
        ErrorInfo::new(
            ErrorCode::CallbackFailed,
            format!("callback {name:?} {how}"),
        )
    };
    let work = AssertUnwindSafe(async move { call.0().await }).catch_unwind();
    match tokio::time::timeout(callback.timeout, work).await {
        Ok(Ok(Ok(decision))) => Ok(decision),
        Ok(Ok(Err(error))) => Err(failed(format!("failed: {}", error.into_info().message))),
        Ok(Err(panic)) => {
            let text = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref().copied());
            Err(failed(format!(
                "panicked: {}",
                text.unwrap_or("without a message")
            )))
        }
        Err(_) => Err(failed(format!(
            "took longer than {} ms",
            callback.timeout.as_millis()
        ))),
    }
}

/// Returns the error of a run that a callback fails.
fn run_failed(callback: &Callback, error: &ErrorInfo) -> ErrorInfo {
    let message = format!(
        "callback {:?} failed the run: {}",
        callback.name, error.message
    );
    ErrorInfo {
        details: error.details.clone(),
        ..ErrorInfo::new(ErrorCode::CallbackFailed, message)
    }
}
