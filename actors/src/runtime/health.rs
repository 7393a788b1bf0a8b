//! Health of a runtime: parts that it has lost permanently, and disks that reject writes.
//!
//! Elsewhere: when a part is given up (`runtime/supervisor.rs`).

use std::{collections::BTreeMap, time::Duration};

use soong_protocol::{ErrorInfo, Write};
use soong_storage::store::Append;

use super::RuntimeInfo;
use crate::events::{format_store_id, is_cursor_in_range, unknown_cursor_error};

/// Maximum time to write a page; a slower disk counts as rejecting writes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

impl RuntimeInfo<'_> {
    /// Returns the id of this store. A restored backup has a different id. Cursors are valid for one store only.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn store_id(self) -> Result<String, ErrorInfo> {
        self.runtime.inner.services.reader.read(|reader| reader.store_id()).await.map(format_store_id)
    }

    /// Rejects a cursor of another store, one beyond `last`, the number of the last event, and one of a deleted session
    /// whose id was used again: it is before `first`, the number of the first event, and not the number just before it.
    ///
    /// # Errors
    /// `cursor_unknown`, with the number to restart from in its details; `storage_error`.
    pub async fn check_cursor(
        self,
        cursor: u64,
        first: u64,
        last: u64,
        store_id: Option<&str>,
    ) -> Result<(), ErrorInfo> {
        let is_in_range = is_cursor_in_range(cursor, first, last);
        if cursor == 0 || (is_in_range && store_id.is_none()) {
            return Ok(());
        }
        let store = self.runtime.inner.services.reader.read(|reader| reader.store_id()).await?;
        let is_other = store_id.is_some_and(|id| id != format_store_id(store));
        if is_other || !is_in_range { Err(unknown_cursor_error(cursor, last, store)) } else { Ok(()) }
    }

    /// Returns why the runtime accepts no new work, if it has permanently lost a part that it needs
    /// (`runtime_failed`). Its runs are interrupted; they resume when the home is opened again.
    pub fn failure(self) -> Option<ErrorInfo> {
        self.runtime.inner.services.lifetime.failure().cloned()
    }

    /// Checks that the disk accepts writes: if the last commit was rejected, tries another write.
    ///
    /// # Errors
    /// `storage_error`, retryable.
    pub async fn check_storage(self) -> Result<(), ErrorInfo> {
        let journal = &self.runtime.inner.services.journal;
        let Some(refusal) = journal.last_error() else { return Ok(()) };
        let probe = journal.append_and_wait(Append { fence: None, writes: vec![Write::Probe] });
        match tokio::time::timeout(PROBE_TIMEOUT, probe).await {
            Ok(written) => written.map(|_| ()).map_err(|error| ErrorInfo::from(&error)),
            Err(_) => Err(ErrorInfo::from(&refusal)),
        }
    }

    /// Returns whether the writer thread is running. Without it, stored data cannot be changed.
    pub fn can_write(self) -> bool {
        !self.runtime.inner.services.journal.is_closed()
    }

    /// Lists the model profiles whose gateway was given up, by name, with the reason. Other profiles work.
    pub fn failed_profiles(self) -> BTreeMap<String, ErrorInfo> {
        let gateways = self.runtime.inner.services.resolver.models.all().into_iter();
        gateways.filter_map(|gateway| Some((gateway.profile.to_string(), gateway.failure()?))).collect()
    }
}
