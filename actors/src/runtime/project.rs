//! Project folders of new sessions: how they are resolved, and which ones are rejected.
//!
//! Elsewhere: what tools can reach in them (`soong_tool::PathPolicy`).

use std::path::{Path, PathBuf};

use serde_json::json;
use soong_protocol::{ErrorCode, ErrorInfo};
use soong_tool::kernel_files;

/// Resolves a project directory: follows symlinks once; for a file, returns its parent (RT-2).
pub(super) fn resolve_project(dir: &Path) -> Result<PathBuf, ErrorInfo> {
    let refuse = |error: std::io::Error| {
        let message = format!(
            "the project directory {} cannot be used: {error}",
            dir.display()
        );
        ErrorInfo::new(ErrorCode::FileNotFound, message)
    };
    let resolved = dir.canonicalize().map_err(refuse)?;
    match resolved.parent() {
        Some(parent) if resolved.is_file() => Ok(parent.to_owned()),
        _ => Ok(resolved),
    }
}

/// Rejects a resolved folder that no session may use: on a kernel or device file system, or within
/// the home of soong.
pub(super) fn check(dir: &Path, home: &Path) -> Result<(), ErrorInfo> {
    let refuse = |why: &str| {
        let message = format!(
            "the project folder {} cannot be used: {why}. Name another folder",
            dir.display()
        );
        Err(invalid_project_dir(message))
    };
    if dir.starts_with(home) || dir.ancestors().any(|above| is_same_folder(above, home)) {
        return refuse("it is in the home of soong, which tools cannot access");
    }
    if is_device_folder(dir) {
        return refuse("it is a device folder");
    }
    match kernel_files::file_system(dir) {
        Some(name) => refuse(&format!("it is on a kernel file system ({name})")),
        None => Ok(()),
    }
}

/// Rejects the user's home folder and its parents: files written there can change what other
/// programs execute.
pub(super) fn check_is_not_user_home(
    dir: &Path,
    user_home: Option<&PathBuf>,
) -> Result<(), ErrorInfo> {
    let user_home = user_home.and_then(|home| home.canonicalize().ok());
    let is_above = dir.parent().is_none() || user_home.is_some_and(|home| home.starts_with(dir));
    if !is_above {
        return Ok(());
    }
    let message = format!(
        "{} is your home folder or one of its parents: an agent that may write or run commands there can change what \
         your other programs execute. Change to a project folder, or name one with --path. In a container, set its \
         working directory to the project. To start here anyway: --here, or allow_home_project over HTTP",
        dir.display()
    );
    Err(invalid_project_dir(message))
}

/// Returns the error for an invalid value of the field `project_dir`.
fn invalid_project_dir(message: String) -> ErrorInfo {
    ErrorInfo {
        details: json!({ "field": "project_dir" }),
        ..ErrorInfo::new(ErrorCode::ValidationError, message)
    }
}

/// Whether two paths refer to the same folder, also through mounts.
fn is_same_folder(one: &Path, other: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |path: &Path| path.metadata().ok().map(|known| (known.dev(), known.ino()));
    identity(one).is_some_and(|one| identity(other) == Some(one))
}

/// Whether a folder is on the file system of `/dev`. Other file systems mounted below it, such as
/// `/dev/shm`, are not.
fn is_device_folder(dir: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| path.metadata().ok().map(|known| known.dev());
    let devices = device(Path::new("/dev"));
    dir == Path::new("/dev")
        || (devices != device(Path::new("/")) && devices.is_some() && device(dir) == devices)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_folders_and_soong_home_are_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let home = root.join("home");
        std::fs::create_dir_all(home.join("sessions")).unwrap();
        std::fs::create_dir(root.join("project")).unwrap();
        assert!(check(&root.join("project"), &home).is_ok());
        for dir in [home.clone(), home.join("sessions")] {
            assert!(
                check(&dir, &home)
                    .unwrap_err()
                    .message
                    .contains("home of soong"),
                "{dir:?}"
            );
        }
        if cfg!(target_os = "linux") {
            for dir in ["/proc", "/proc/self", "/sys", "/dev"] {
                assert_eq!(
                    check(Path::new(dir), &home).unwrap_err().code,
                    ErrorCode::ValidationError,
                    "{dir}"
                );
            }
        }
    }

    #[test]
    fn user_home_and_its_parents_are_rejected_as_default() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let user = root.join("user");
        std::fs::create_dir_all(user.join("project")).unwrap();
        for (dir, is_refused) in [
            (user.clone(), true),
            (root.clone(), true),
            (PathBuf::from("/"), true),
            (user.join("project"), false),
        ] {
            assert_eq!(
                check_is_not_user_home(&dir, Some(&user)).is_err(),
                is_refused,
                "{dir:?}"
            );
        }
        assert!(check_is_not_user_home(&user, None).is_ok());
    }
}
