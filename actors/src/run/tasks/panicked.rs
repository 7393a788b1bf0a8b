//! Converts panics of the components of a run to errors.

use std::any::Any;

use soong_protocol::{ErrorCode, ErrorInfo};
use soong_text::Redactor;
use tokio::task::JoinError;

/// Logs a panic, and returns it as an error with the panic's message.
pub(crate) fn panic_error(
    redactor: &Redactor,
    component: &str,
    panic: &(dyn Any + Send),
) -> ErrorInfo {
    let text = panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied());
    let text = redactor.text(text.unwrap_or("a panic without a message"));
    tracing::error!(component, panic = %text, "a component of a run panicked");
    let message =
        format!("{component} crashed because of a bug in it, not because of the request: {text}");
    ErrorInfo::new(ErrorCode::InternalError, message)
}

/// Returns the error of a component whose blocking task has panicked.
pub(super) fn failed_task(redactor: &Redactor, component: &str, failed: JoinError) -> ErrorInfo {
    let panic = failed
        .try_into_panic()
        .unwrap_or_else(|_| Box::new("the task was cancelled"));
    panic_error(redactor, component, &*panic)
}
