//! Whether a runtime works: the parts that it has lost for good, and a disk that takes nothing.
//!
//! Not here: when a part is given up (`runtime/supervisor.rs`).

use std::{collections::BTreeMap, time::Duration};

use soong_protocol::{ErrorInfo, Write};
use soong_storage::store::Append;

use super::Runtime;
use crate::events::{cursor_unknown, store_name};

/// How long a disk may take to write a page before it counts as refusing.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

impl Runtime {
    /// Returns the id of this store. A restored backup has another one; cursors are valid for one store only.
    ///
    /// # Errors
    /// `storage_error`.
    pub async fn store_id(&self) -> Result<String, ErrorInfo> {
        self.inner.services.reader.read(|reader| reader.store_id()).await.map(store_name)
    }

    /// Refuses a cursor of another store, or one beyond `last`, the number of the last event.
    ///
    /// # Errors
    /// `cursor_unknown`, with where to start again in its details; `storage_error`.
    pub async fn check_cursor(&self, cursor: u64, last: u64, store_id: Option<&str>) -> Result<(), ErrorInfo> {
        if cursor == 0 || (cursor <= last && store_id.is_none()) {
            return Ok(());
        }
        let store = self.inner.services.reader.read(|reader| reader.store_id()).await?;
        let is_other = store_id.is_some_and(|id| id != store_name(store));
        if is_other || cursor > last { Err(cursor_unknown(cursor, last, store)) } else { Ok(()) }
    }

    /// Returns why the runtime takes no new work, if a part that it cannot work without is lost for good
    /// (`runtime_failed`). Its runs are interrupted; they resume when the home is opened again.
    pub fn failure(&self) -> Option<ErrorInfo> {
        self.inner.services.lifetime.failure().cloned()
    }

    /// Checks that the disk takes what is written, where the last commit was refused: by writing once more.
    ///
    /// # Errors
    /// `storage_error`, retryable.
    pub async fn check_storage(&self) -> Result<(), ErrorInfo> {
        let journal = &self.inner.services.journal;
        let Some(refusal) = journal.refusal() else { return Ok(()) };
        let probe = journal.append_and_wait(Append { fence: None, writes: vec![Write::Probe] });
        match tokio::time::timeout(PROBE_LIMIT, probe).await {
            Ok(written) => written.map(|_| ()).map_err(|error| ErrorInfo::from(&error)),
            Err(_) => Err(ErrorInfo::from(&refusal)),
        }
    }

    /// Returns whether there is a writer: without one nothing that is stored can be changed.
    pub fn can_write(&self) -> bool {
        !self.inner.services.journal.is_closed()
    }

    /// Lists the model profiles whose gateway is lost for good, with the reason, by name. Other profiles work.
    pub fn failed_profiles(&self) -> BTreeMap<String, ErrorInfo> {
        let gateways = self.inner.services.resolver.models.all().into_iter();
        gateways.filter_map(|gateway| Some((gateway.profile.to_string(), gateway.failure()?))).collect()
    }
}
