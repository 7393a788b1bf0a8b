//! The base of all actors: mailboxes, restart limits, and the lifetime of a runtime.
//!
//! Independent of runs and sessions.

mod lifetime;
mod mailbox;
pub(crate) mod panic_log;
pub(crate) mod restart;

use std::time::Duration;

pub(crate) use lifetime::Lifetime;
pub(crate) use mailbox::Mailbox;
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::sync::CancellationToken;

/// Id of actors that exist once per runtime.
pub(crate) const SINGLETON_ID: &str = "0";

/// Returns the error of calls that arrive while the runtime closes, or later.
pub(crate) fn closing() -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::Closing,
        "the runtime is closing or closed; accepted work is stored",
    )
}

/// Retries until the attempt succeeds, fails with an error that is not retryable, or the runtime
/// closes.
///
/// The delay starts at 100 ms and doubles up to 5 s. Use it for work that must survive a disk that
/// temporarily refuses (DUR-6).
pub(crate) async fn keep_trying<T, F>(
    closing: &CancellationToken,
    what: &str,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ErrorInfo>
where
    F: Future<Output = Result<T, ErrorInfo>>,
{
    let mut wait = Duration::from_millis(100);
    while !closing.is_cancelled() {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(error) if !error.retryable => return Err(error),
            Err(error) => tracing::warn!(what, %error, "retrying"),
        }
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = closing.cancelled() => {}
        }
        wait = (wait * 2).min(Duration::from_secs(5));
    }
    Err(self::closing())
}
