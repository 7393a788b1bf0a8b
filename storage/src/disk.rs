//! Room on a disk: whether a folder still takes new files, by the figures of its file system and by
//! a trial file.
//!
//! Figures alone are not enough, because quotas do not appear in them. A trial file alone is not
//! enough either: it may fit where a larger write does not.

use std::{
    fs::{self, OpenOptions},
    io::{self, ErrorKind, Write},
    path::Path,
};

use crate::store::StoreError;

/// Free space below which a disk counts as full, in bytes: the size of a large write and of the log
/// behind it.
const MIN_FREE_BYTES: u64 = 4 * 1024 * 1024;

/// Size of the trial file, in bytes.
const TRIAL_BYTES: usize = 256 * 1024;

/// Name of the trial file. A file that a killed process has left is replaced by the next trial.
const TRIAL_NAME: &str = ".room-check";

/// Figures of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DiskFigures {
    /// Size, in bytes; 0 if the file system reports none.
    total_bytes: u64,
    /// Free space for this user, in bytes.
    free_bytes: u64,
    /// Number of files that fit; 0 if the file system has no limit.
    total_files: u64,
    /// Number of further files for this user.
    free_files: u64,
}

impl DiskFigures {
    /// Returns what the disk lacks; `None` if it has room.
    fn shortage(self) -> Option<String> {
        if self.total_bytes > 0 && self.free_bytes < MIN_FREE_BYTES {
            return Some(format!(
                "only {} bytes are free; at least {MIN_FREE_BYTES} are needed",
                self.free_bytes
            ));
        }
        if self.total_files > 0 && self.free_files == 0 {
            return Some("the file system has no free inode for another file".to_owned());
        }
        None
    }
}

/// Returns the free space for this user on the disk of `path`, in bytes; `None` if it is unknown.
pub(crate) fn free_bytes(path: &Path) -> Option<u64> {
    figures(path).map(|figures| figures.free_bytes)
}

/// Checks the figures of the disk of `folder`: at least 4 MiB and one inode are free. Blocks,
/// usually briefly.
///
/// # Errors
/// [`StoreError::Io`], with the folder and what it lacks.
pub fn check_figures(folder: &Path) -> Result<(), StoreError> {
    match figures(folder).and_then(DiskFigures::shortage) {
        Some(shortage) => Err(StoreError::Io(format!("{}: {shortage}", folder.display()))),
        None => Ok(()),
    }
}

/// Checks that a file of 256 KiB can be written to `folder`, synced and removed. Blocks.
///
/// # Errors
/// [`StoreError::Io`], with the path of the file.
pub fn write_trial_file(folder: &Path) -> Result<(), StoreError> {
    let trial = folder.join(TRIAL_NAME);
    let written = write_and_sync(&trial);
    let removed = fs::remove_file(&trial);
    written
        .and(removed)
        .map_err(|error| StoreError::Io(format!("{}: {error}", trial.display())))
}

fn write_and_sync(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Some file systems find out only at the sync that there is no room.
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(&vec![0; TRIAL_BYTES])?;
    file.sync_data()
}

#[cfg(unix)]
fn figures(path: &Path) -> Option<DiskFigures> {
    let disk = rustix::fs::statvfs(path).ok()?;
    Some(DiskFigures {
        total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
        free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
        total_files: disk.f_files,
        free_files: disk.f_favail,
    })
}

#[cfg(not(unix))]
fn figures(_: &Path) -> Option<DiskFigures> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOMY: DiskFigures = DiskFigures {
        total_bytes: 1 << 30,
        free_bytes: 1 << 29,
        total_files: 1_000,
        free_files: 1,
    };

    #[test]
    fn shortage_names_what_is_missing() {
        for (figures, expected) in [
            (ROOMY, None),
            (
                DiskFigures {
                    free_bytes: MIN_FREE_BYTES,
                    ..ROOMY
                },
                None,
            ),
            (
                DiskFigures {
                    free_bytes: MIN_FREE_BYTES - 1,
                    ..ROOMY
                },
                Some("bytes are free"),
            ),
            (
                DiskFigures {
                    free_files: 0,
                    ..ROOMY
                },
                Some("no free inode"),
            ),
            // File systems without figures.
            (
                DiskFigures {
                    total_bytes: 0,
                    free_bytes: 0,
                    ..ROOMY
                },
                None,
            ),
            (
                DiskFigures {
                    total_files: 0,
                    free_files: 0,
                    ..ROOMY
                },
                None,
            ),
        ] {
            let shortage = figures.shortage();
            assert_eq!(
                shortage.is_some(),
                expected.is_some(),
                "{figures:?}: {shortage:?}"
            );
            assert!(
                shortage
                    .unwrap_or_default()
                    .contains(expected.unwrap_or_default()),
                "{figures:?}"
            );
        }
    }

    #[test]
    fn trial_leaves_nothing_and_replaces_what_a_killed_process_left() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(TRIAL_NAME), "left").unwrap();
        for _ in 0..2 {
            write_trial_file(folder.path()).unwrap();
            assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        }
        let missing = write_trial_file(&folder.path().join("missing")).unwrap_err();
        assert!(
            missing.is_transient() && missing.to_string().contains("missing"),
            "{missing}"
        );
    }

    #[cfg(unix)]
    #[test]
    fn trial_does_not_follow_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("target");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, folder.path().join(TRIAL_NAME)).unwrap();
        write_trial_file(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(target).unwrap(), "mine");
    }
}
