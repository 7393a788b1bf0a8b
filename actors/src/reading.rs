//! Reading the store from async code: on a blocking thread, never beside the writer's queue, a few reads at a time.

use std::sync::Arc;

use soong_protocol::{ErrorCode, ErrorInfo};
use soong_storage::store::{Reader, StoreError};
use tokio::sync::Semaphore;

/// Name of the database in the home.
pub(crate) const DATABASE: &str = "sessions.sqlite";

/// Most reads at a time: as many as the store keeps connections open for. Others wait in turn, which costs less than to
/// connect anew.
const AT_ONCE: usize = 4;

/// The reading side of the store for async callers. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Reading {
    reader: Arc<dyn Reader>,
    turns: Arc<Semaphore>,
}

impl Reading {
    pub(crate) fn new(reader: Arc<dyn Reader>) -> Self {
        Self { reader, turns: Arc::new(Semaphore::new(AT_ONCE)) }
    }

    /// Runs a read on a blocking thread.
    pub(crate) async fn read<T, F>(&self, read: F) -> Result<T, ErrorInfo>
    where
        T: Send + 'static,
        F: FnOnce(&dyn Reader) -> Result<T, StoreError> + Send + 'static,
    {
        let reader = Arc::clone(&self.reader);
        // It is never closed. A read goes on though its caller leaves, and so its turn does.
        let turn = Arc::clone(&self.turns).acquire_owned().await;
        let work = move || {
            let _turn = turn;
            read(reader.as_ref())
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(outcome) => outcome.map_err(|error| ErrorInfo::from(&error)),
            Err(error) => Err(ErrorInfo::new(ErrorCode::InternalError, format!("a read did not finish: {error}"))),
        }
    }
}
