//! Access of `bash` commands to files (TOOL-5).
//!
//! A command can write to the project, the additional roots, the configured writable folders, the
//! package cache of the project, and a temporary folder that exists only during the call. It can
//! read everything except the runtime's home and the sensitive files and folders of the user. A
//! writable path inside a hidden folder is writable. A hidden path inside a writable folder is
//! hidden.

use std::{
    io,
    path::{Path, PathBuf},
};

use globset::GlobBuilder;
use soong_sandbox::SandboxPolicy;
use soong_text::Environment;

use crate::{ToolEnvironment, path_policy::PathPolicy};

/// Devices that commands can use.
const DEVICES: [&str; 6] = [
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
];

/// Returns the file access policy of a command that runs in `project`. `call_folders` are
/// additional writable folders.
///
/// # Errors
/// The path of the project does not exist or contains a symlink. A session stores the resolved
/// path, so the path was changed after the session was created.
pub(super) fn sandbox_policy(
    tool_environment: &ToolEnvironment,
    roots: &PathPolicy,
    project: &Path,
    call_folders: impl IntoIterator<Item = PathBuf>,
    shared_memory_bytes: u64,
) -> io::Result<SandboxPolicy> {
    if !is_resolved(project) {
        let message = format!(
            "{} is not the folder any more that it was: a symlink leads there",
            project.display()
        );
        return Err(io::Error::other(message));
    }
    let home = roots.runtime_home().as_deref().and_then(canonical);
    let sensitive = sensitive_paths(
        &tool_environment.tools.sensitive_paths,
        &tool_environment.environment,
    );
    let writable = tool_environment.tools.bash.writable.iter();
    let writable =
        writable.filter_map(|folder| canonical(&tool_environment.environment.expand_home(folder)?));
    // Excludes roots inside the runtime's home, and roots that were replaced by a symlink: its
    // target may be any folder.
    let extra = roots
        .additional_roots()
        .iter()
        .filter(|root| !roots.is_in_runtime_home(root) && is_resolved(root))
        .cloned();
    let directory = project.to_owned();
    let project = Some(project.to_owned()).filter(|project| home.as_ref() != Some(project));
    Ok(SandboxPolicy {
        write: extra
            .chain(writable.filter(|folder| !roots.is_in_runtime_home(folder)))
            .chain(project)
            .chain(call_folders)
            .collect(),
        hidden: home.iter().cloned().chain(sensitive).collect(),
        read_only: roots.guarded_at_home(&directory),
        devices: DEVICES
            .map(PathBuf::from)
            .into_iter()
            .filter(|device| device.exists())
            .collect(),
        shared_memory_bytes: Some(shared_memory_bytes),
    })
}

/// Returns the existing files and folders that match the patterns of sensitive paths. Only patterns
/// that start with `~/` are considered. The pattern `~/FOLDER/**` means the folder. Wildcards are
/// supported only in the last component.
fn sensitive_paths(patterns: &[String], environment: &Environment) -> Vec<PathBuf> {
    let below_user = patterns.iter().filter(|pattern| pattern.starts_with("~/"));
    let found = below_user.flat_map(|pattern| {
        let path = environment.expand_home(pattern.strip_suffix("/**").unwrap_or(pattern));
        path.map_or_else(Vec::new, |path| matching_paths(&path))
    });
    found
        .filter_map(|path| canonical(&path))
        .filter(|path| path.is_absolute())
        .collect()
}

/// Returns the paths that match `path`, whose last component may be a glob pattern. A path without
/// a pattern is returned even if it does not exist.
fn matching_paths(path: &Path) -> Vec<PathBuf> {
    let (Some(folder), Some(name)) = (
        path.parent(),
        path.file_name().and_then(|name| name.to_str()),
    ) else {
        return Vec::new();
    };
    if !name.contains(['*', '?', '[', '{']) {
        return vec![path.to_owned()];
    }
    let Ok(glob) = GlobBuilder::new(name).build() else {
        return Vec::new();
    };
    let glob = glob.compile_matcher();
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries
        .filter(|entry| glob.is_match(entry.file_name()))
        .map(|entry| entry.path())
        .collect()
}

fn canonical(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns whether a path exists and contains no symlink.
fn is_resolved(path: &Path) -> bool {
    canonical(path).as_deref() == Some(path)
}

#[cfg(test)]
#[path = "sandbox_policy/tests.rs"]
mod tests;
