//! Cancels runs, and waits for their end (RT-6).

use std::{sync::Arc, time::Duration};

use futures::FutureExt;
use soong_protocol::{ErrorCode, ErrorInfo};

use super::services::Services;
use crate::run::{EndInput, RunEntry, RunInput};

/// Cancels a run and waits for its end, at most `runtime.cancel_timeout_ms` (RT-6).
pub(super) async fn cancel(
    services: &Arc<Services>,
    entry: &Arc<RunEntry>,
) -> Result<(), ErrorInfo> {
    services.core.runs.cancel(entry);
    let after_ms = services.core.config.runtime.cancel_timeout_ms;
    match tokio::time::timeout(Duration::from_millis(after_ms), entry.wait_outcome()).await {
        Ok(outcome) => outcome.map(|_| ()),
        Err(_) => {
            services
                .core
                .runs
                .notify(entry, RunInput::End(EndInput::CancelTimeout { after_ms }));
            entry
                .wait_cancel_recorded()
                .now_or_never()
                .unwrap_or_else(|| Err(cancel_not_recorded(entry)))
        }
    }
}

/// Cancels a run and waits until the request is durable, at most `runtime.cancel_timeout_ms`.
pub(super) async fn request_cancel(
    services: &Arc<Services>,
    entry: &Arc<RunEntry>,
) -> Result<(), ErrorInfo> {
    services.core.runs.cancel(entry);
    let limit = Duration::from_millis(services.core.config.runtime.cancel_timeout_ms);
    let recorded = tokio::time::timeout(limit, entry.wait_cancel_recorded()).await;
    recorded.unwrap_or_else(|_| Err(cancel_not_recorded(entry)))
}

fn cancel_not_recorded(entry: &RunEntry) -> ErrorInfo {
    let message = format!(
        "run {} is being cancelled, but the request is not stored yet: if the process ends now, the run resumes",
        entry.identity.run_id
    );
    ErrorInfo::retryable(ErrorCode::StorageError, message)
}
