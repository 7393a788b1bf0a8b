//! Reading the store from async code: on a blocking thread, never beside the writer's queue.

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo};
use soong_storage::store::{Reader, StoreError};

/// The reading side of the store for async callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reading(Arc<dyn Reader>);

impl Reading {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> Self {
        Self(reader)
    }

    /// Runs a read on a blocking thread.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = Arc::clone(&self.0);
        match tokio::task::spawn_blocking(move || read(reader.as_ref())).await {
            Ok(outcome) => outcome.map_err(|error| ErrorInfo::from(&error)),
            Err(error) => Err(ErrorInfo::new(ErrorCode::InternalError, format!("a read did not finish: {error}"))),
        }
    }
}
