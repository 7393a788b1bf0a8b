//! State of the disks of a home: appends that wait for one, and a check that the folders of the
//! home take new files.
//!
//! Elsewhere: the check of one folder (`storage/src/disk.rs`), when a rejected append is repeated
//! (`run/actor/append.rs`).

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use soong_storage::{
    disk::{check_figures, write_trial_file},
    store::StoreError,
};
use tokio::{task::JoinHandle, time::Instant};

/// Maximum time of a check; a slower disk counts as rejecting writes.
pub(crate) const CHECK_TIMEOUT: Duration = Duration::from_secs(1);

/// Time for which the result of a check is returned again, because anyone may ask for it.
const RESULT_LIFETIME: Duration = Duration::from_secs(1);

/// Time after a successful trial during which only free space and inodes are checked, because a
/// trial writes to the disk.
const TRIAL_INTERVAL: Duration = Duration::from_secs(10);

/// Counts the appends that the disk rejected and that wait to be repeated. Clones share the count.
#[derive(Debug, Clone, Default)]
pub(crate) struct StorageWaits(Arc<Mutex<StorageWaitState>>);

#[derive(Debug, Default)]
struct StorageWaitState {
    count: usize,
    /// Error of the append that was rejected last.
    last_error: Option<StoreError>,
}

/// One append that waits to be repeated, until this is dropped.
#[derive(Debug)]
pub(crate) struct StorageWait(StorageWaits);

impl StorageWaits {
    /// Counts an append that was rejected with `error`.
    pub(crate) fn begin(&self, error: &StoreError) -> StorageWait {
        let mut state = self.lock();
        state.count += 1;
        state.last_error = Some(error.clone());
        StorageWait(self.clone())
    }

    /// Returns the last error if an append waits.
    pub(crate) fn error(&self) -> Option<StoreError> {
        let state = self.lock();
        if state.count == 0 {
            None
        } else {
            state.last_error.clone()
        }
    }

    fn lock(&self) -> MutexGuard<'_, StorageWaitState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for StorageWait {
    fn drop(&mut self) {
        self.0.lock().count -= 1;
    }
}

/// Checks of the folders of a home. Callers share one check and its result.
#[derive(Debug)]
pub(crate) struct DiskChecks {
    home: PathBuf,
    state: tokio::sync::Mutex<CheckState>,
}

#[derive(Debug, Default)]
struct CheckState {
    /// A check that has not ended; a disk can block for any time.
    running: Option<Running>,
    last: Option<Checked>,
    /// When the last trial that was successful began.
    last_trial: Option<Instant>,
}

#[derive(Debug)]
struct Running {
    has_trial: bool,
    begun: Instant,
    check: JoinHandle<Result<(), StoreError>>,
}

#[derive(Debug)]
struct Checked {
    begun: Instant,
    result: Result<(), StoreError>,
}

impl DiskChecks {
    pub(crate) fn new(home: PathBuf) -> Self {
        Self {
            home,
            state: tokio::sync::Mutex::default(),
        }
    }

    /// Checks that the home and `others`, folders that may be on other disks, have room. With
    /// `needs_trial`, because a write was rejected, a trial file is written to each disk in any
    /// case; otherwise at most every 10 s.
    ///
    /// # Errors
    /// [`StoreError::Io`] of the first folder that has no room, or if a disk does not answer within
    /// 1 s.
    pub(crate) async fn check(
        &self,
        others: Vec<PathBuf>,
        needs_trial: bool,
    ) -> Result<(), StoreError> {
        let mut state = self.state.lock().await;
        let CheckState {
            running,
            last,
            last_trial,
        } = &mut *state;
        loop {
            if let Some(last) = last
                && running.is_none()
                && last.begun.elapsed() < RESULT_LIFETIME
                && (last.result.is_err() || !needs_trial)
            {
                return last.result.clone();
            }
            let current = running.get_or_insert_with(|| {
                let has_trial =
                    needs_trial || last_trial.is_none_or(|begun| begun.elapsed() >= TRIAL_INTERVAL);
                let mut folders = vec![self.home.clone()];
                folders.extend(others.iter().cloned());
                let check = tokio::task::spawn_blocking(move || check_folders(&folders, has_trial));
                Running {
                    has_trial,
                    begun: Instant::now(),
                    check,
                }
            });
            // A disk that hangs holds up no caller for longer than this, however many ask.
            let Ok(ended) =
                tokio::time::timeout_at(current.begun + CHECK_TIMEOUT, &mut current.check).await
            else {
                let home = self.home.display();
                return Err(StoreError::Io(format!(
                    "{home}: the disk has not answered for {CHECK_TIMEOUT:?}"
                )));
            };
            let result = ended.unwrap_or_else(|error| {
                Err(StoreError::Io(format!("the check did not finish: {error}")))
            });
            let begun = current.begun;
            let has_trial = current.has_trial;
            *running = None;
            if has_trial && result.is_ok() {
                *last_trial = Some(begun);
            }
            *last = Some(Checked {
                begun,
                result: result.clone(),
            });
            // A check of an earlier caller may be old, or lack the trial that is needed.
            if begun.elapsed() < CHECK_TIMEOUT && (has_trial || !needs_trial || result.is_err()) {
                return result;
            }
        }
    }
}

/// Checks each folder that is on another disk than those before it.
fn check_folders(folders: &[PathBuf], has_trial: bool) -> Result<(), StoreError> {
    let mut disks = BTreeSet::new();
    for folder in folders {
        if !disks.insert(disk_id(folder)) {
            continue;
        }
        check_figures(folder)?;
        if has_trial {
            write_trial_file(folder)?;
        }
    }
    Ok(())
}

/// Returns what identifies the disk of a folder: its device number, or the folder itself if there
/// is none.
fn disk_id(folder: &Path) -> (Option<u64>, Option<PathBuf>) {
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt;
        if let Ok(metadata) = folder.metadata() {
            return (Some(metadata.dev()), None);
        }
    }
    (None, Some(folder.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_counted_until_they_are_dropped() {
        let waits = StorageWaits::default();
        assert_eq!(waits.error(), None);
        let first = waits.begin(&StoreError::Io("full".to_owned()));
        let second = waits.begin(&StoreError::Io("still full".to_owned()));
        drop(second);
        assert_eq!(waits.error(), Some(StoreError::Io("still full".to_owned())));
        drop(first);
        assert_eq!(waits.error(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn result_is_shared_for_a_second_and_a_rejected_write_is_tried_at_once() {
        let home = tempfile::tempdir().unwrap();
        let checks = DiskChecks::new(home.path().to_owned());
        checks.check(Vec::new(), false).await.unwrap();
        let home = home.path().to_owned();
        std::fs::remove_dir(&home).unwrap();
        checks.check(Vec::new(), false).await.unwrap();
        let refused = checks.check(Vec::new(), true).await.unwrap_err();
        assert!(refused.is_transient(), "{refused}");
        std::fs::create_dir(&home).unwrap();
        assert_eq!(checks.check(Vec::new(), true).await, Err(refused));
        tokio::time::advance(RESULT_LIFETIME).await;
        checks.check(Vec::new(), false).await.unwrap();
        std::fs::remove_dir(&home).unwrap();
        tokio::time::advance(TRIAL_INTERVAL).await;
        checks.check(Vec::new(), false).await.unwrap_err();
    }
}
