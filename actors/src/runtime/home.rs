//! Opening a home: its folder, and the lock file that determines its owner (DUR-3).

use std::path::{Path, PathBuf};

use soong_protocol::{ErrorCode, ErrorInfo};

/// Name of the lock file in the home.
const LOCK_FILE: &str = "lock";

/// Ownership of a home. Dropping it unlocks the home.
#[derive(Debug)]
pub(crate) struct HomeLock(std::fs::File);

impl Drop for HomeLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being started may briefly hold it too.
        let _ = self.0.unlock();
    }
}

/// Creates a folder that only its owner can access, since it holds conversations. An existing folder keeps its mode.
fn make_private(folder: &Path) -> std::io::Result<()> {
    if folder.is_dir() {
        return Ok(());
    }
    if let Some(parent) = folder.parent() {
        std::fs::create_dir_all(parent)?;
    }
    let mut builder = std::fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    match builder.create(folder) {
        // Another process created it first.
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => Ok(()),
        made => made,
    }
}

/// Creates the home if it is missing, and takes its lock.
pub(super) fn open(home: &Path) -> Result<(PathBuf, HomeLock), ErrorInfo> {
    let failed = |error: std::io::Error| {
        let message = format!("the home {} cannot be used: {error}", home.display());
        ErrorInfo::new(ErrorCode::StorageError, message)
    };
    make_private(home).map_err(failed)?;
    let home = home.canonicalize().map_err(failed)?;
    let lock = std::fs::File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(home.join(LOCK_FILE))
        .map_err(failed)?;
    match lock.try_lock() {
        Ok(()) => {}
        Err(std::fs::TryLockError::WouldBlock) => {
            let owner = std::fs::read_to_string(home.join(LOCK_FILE)).unwrap_or_default();
            let message = match owner.trim().parse::<u32>() {
                Ok(pid) if pid == std::process::id() => format!(
                    "this process already owns the home {} in another `Runtime`: clone that one, or close it first",
                    home.display()
                ),
                pid => format!(
                    "another process{} owns the home {}: wait for it, or use another home",
                    pid.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
                    home.display()
                ),
            };
            return Err(ErrorInfo::retryable(ErrorCode::HomeLocked, message));
        }
        Err(std::fs::TryLockError::Error(error)) => return Err(failed(error)),
    }
    use std::io::Write;
    let mut file = &lock;
    lock.set_len(0).map_err(failed)?;
    write!(file, "{}", std::process::id()).map_err(failed)?;
    Ok((home, HomeLock(lock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn home_is_unlocked_on_drop_despite_duplicated_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let (_, lock) = open(dir.path()).unwrap();
        let error = open(dir.path()).unwrap_err();
        assert_eq!(error.code, ErrorCode::HomeLocked);
        assert!(error.message.starts_with("this process already owns the home"), "{error}");
        // A child process holds the file like this between fork and exec.
        let _held = lock.0.try_clone().unwrap();
        drop(lock);
        open(dir.path()).unwrap();
    }
}
