//! Health of a runtime: parts that it has lost permanently, and disks that reject writes.
//!
//! Elsewhere: when a part is given up (`runtime/supervisor.rs`).

use std::collections::BTreeMap;

use soong_protocol::{ErrorInfo, Write};
use soong_storage::store::{Append, StoreError, format_store_id};

use super::RuntimeInfo;
use crate::{
    disk::CHECK_TIMEOUT,
    events::{is_cursor_in_range, unknown_cursor_error},
};

impl RuntimeInfo<'_> {
    /// Returns the id of this store. A restored backup has a different id. Cursors are valid for
    /// one store only.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn store_id(self) -> Result<String, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(|reader| reader.store_id())
            .await
            .map(format_store_id)
    }

    /// Rejects a cursor of another store, one beyond `last`, the number of the last event, and one
    /// of a deleted session whose id was used again: it is before `first`, the number of the first
    /// event, and not the number just before it.
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
        let store = self
            .runtime
            .inner
            .services
            .core
            .reader
            .read(|reader| reader.store_id())
            .await?;
        let is_other = store_id.is_some_and(|id| id != format_store_id(store));
        if is_other || !is_in_range {
            Err(unknown_cursor_error(cursor, last, store))
        } else {
            Ok(())
        }
    }

    /// Returns why the runtime accepts no new work, if it has permanently lost a part that it needs
    /// (`runtime_failed`). Its runs are interrupted; they resume when the home is opened again.
    pub fn failure(self) -> Option<ErrorInfo> {
        self.runtime.inner.services.core.lifetime.failure().cloned()
    }

    /// Checks that the disks of the home accept writes: they have at least 4 MiB and a free inode,
    /// take a trial file, and no run waits for one. If the last commit, or the last write of an
    /// artifact, was rejected, another is tried.
    ///
    /// # Errors
    /// `storage_error`, retryable.
    pub async fn check_storage(self) -> Result<(), ErrorInfo> {
        self.check_disks()
            .await
            .map_err(|error| ErrorInfo::from(&error))
    }

    async fn check_disks(self) -> Result<(), StoreError> {
        let services = &self.runtime.inner.services;
        let journal = &services.core.journal;
        let blobs = &services.core.artifacts.store().blobs;
        if let Some(refusal) = journal.last_error() {
            let probe = journal.append_and_wait(Append {
                fence: None,
                writes: vec![Write::Probe],
            });
            tokio::time::timeout(CHECK_TIMEOUT, probe)
                .await
                .unwrap_or(Err(refusal))?;
        }
        let blob_refusal = blobs.last_error();
        services
            .disk_checks
            .check(blobs.local_folders(), blob_refusal.is_some())
            .await?;
        if let Some(refusal) = blob_refusal {
            tokio::time::timeout(CHECK_TIMEOUT, blobs.check())
                .await
                .unwrap_or(Err(refusal))?;
        }
        match journal.storage_waits().error() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Returns whether the writer thread is running. Without it, stored data cannot be changed.
    pub fn can_write(self) -> bool {
        !self.runtime.inner.services.core.journal.is_closed()
    }

    /// Lists the model profiles whose gateway was given up, by name, with the reason. Other
    /// profiles work.
    pub fn failed_profiles(self) -> BTreeMap<String, ErrorInfo> {
        let gateways = self
            .runtime
            .inner
            .services
            .resolver
            .models
            .all()
            .into_iter();
        gateways
            .filter_map(|gateway| Some((gateway.profile.to_string(), gateway.failure()?)))
            .collect()
    }
}
