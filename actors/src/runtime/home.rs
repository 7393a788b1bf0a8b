//! Opening a home: its folder, and the lock file that determines its owner (DUR-3).

use std::{
    fs::{File, TryLockError},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::{Pid, test_kill_process};
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio::time::Instant;

/// Name of the lock file in the home.
const LOCK_FILE: &str = "lock";
/// Maximum time to wait for the lock of an owner that has exited.
const LEFTOVER_LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between attempts during that time.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Ownership of a home. Dropping it unlocks the home.
#[derive(Debug)]
pub(crate) struct HomeLock(File);

impl Drop for HomeLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child process that is being started may briefly hold it
        // too.
        let _ = self.0.unlock();
    }
}

/// Creates a folder that only its owner can access, since it holds conversations. An existing
/// folder keeps its mode.
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
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && folder.is_dir() => {
            Ok(())
        }
        made => made,
    }
}

/// Returns whether a process exists. Also `true` if that cannot be determined.
fn process_exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_none_or(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Takes the lock of a home. Fails with `home_locked` if another process owns it.
///
/// A process that was killed may have been starting another process, which holds the lock file
/// until it runs its program. So if the owner has exited, this waits for the lock, at most
/// [`LEFTOVER_LOCK_TIMEOUT`].
async fn take_lock(lock: &File, home: &Path) -> Result<(), ErrorInfo> {
    let deadline = Instant::now() + LEFTOVER_LOCK_TIMEOUT;
    loop {
        match lock.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(unusable(home, &error)),
        }
        let named = std::fs::read_to_string(home.join(LOCK_FILE)).unwrap_or_default();
        let owner = named.trim().parse::<u32>().ok();
        let is_alive = owner.is_none_or(process_exists);
        if is_alive || Instant::now() >= deadline {
            return Err(locked(home, owner, is_alive));
        }
        tokio::time::sleep(LOCK_RETRY_INTERVAL).await;
    }
}

fn unusable(home: &Path, error: &std::io::Error) -> ErrorInfo {
    let message = format!("the home {} cannot be used: {error}", home.display());
    ErrorInfo::new(ErrorCode::StorageError, message)
}

fn locked(home: &Path, owner: Option<u32>, is_alive: bool) -> ErrorInfo {
    let message = match owner {
        Some(pid) if !is_alive => format!(
            "another process holds the lock of the home {}, although its owner (pid {pid}) has exited: wait for it, or use \
             another home",
            home.display()
        ),
        Some(pid) if pid == std::process::id() => format!(
            "this process already owns the home {} in another `Runtime`: clone that one, or close it first",
            home.display()
        ),
        owner => format!(
            "another process{} owns the home {}: wait for it, or use another home",
            owner.map(|pid| format!(" (pid {pid})")).unwrap_or_default(),
            home.display()
        ),
    };
    ErrorInfo::retryable(ErrorCode::HomeLocked, message)
}

/// Creates the home if it is missing, and takes its lock.
pub(super) async fn open(home: &Path) -> Result<(PathBuf, HomeLock), ErrorInfo> {
    let failed = |error: std::io::Error| unusable(home, &error);
    make_private(home).map_err(failed)?;
    let home = home.canonicalize().map_err(failed)?;
    let lock = File::options()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .open(home.join(LOCK_FILE))
        .map_err(failed)?;
    take_lock(&lock, &home).await?;
    use std::io::Write;
    let mut file = &lock;
    lock.set_len(0).map_err(failed)?;
    write!(file, "{}", std::process::id()).map_err(failed)?;
    Ok((home, HomeLock(lock)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn home_is_unlocked_on_drop_despite_duplicated_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        let (_, lock) = open(dir.path()).await.unwrap();
        let error = open(dir.path()).await.unwrap_err();
        assert_eq!(error.code, ErrorCode::HomeLocked);
        assert!(
            error
                .message
                .starts_with("this process already owns the home"),
            "{error}"
        );
        // A child process holds the file like this between fork and exec.
        let _held = lock.0.try_clone().unwrap();
        drop(lock);
        open(dir.path()).await.unwrap();
    }

    /// Time is paused: it advances while a task waits.
    #[tokio::test(start_paused = true)]
    async fn lock_of_a_killed_owner_is_awaited() {
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        let dead = ended.id();
        ended.wait().unwrap();
        let living = std::process::id();
        for (owner, released_after_ms, opens) in [
            (dead, Some(1_000), true),
            (dead, None, false),
            (living, Some(1_000), false),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let (_, lock) = open(dir.path()).await.unwrap();
            std::fs::write(dir.path().join(LOCK_FILE), owner.to_string()).unwrap();
            let release = async {
                if let Some(wait_ms) = released_after_ms {
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                    lock.0.unlock().unwrap();
                }
            };
            let (opened, ()) = tokio::join!(open(dir.path()), release);
            let code = opened.err().map(|error| error.code);
            let wanted = if opens {
                None
            } else {
                Some(ErrorCode::HomeLocked)
            };
            assert_eq!(code, wanted, "{owner} {released_after_ms:?}");
        }
    }
}
