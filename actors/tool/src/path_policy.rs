//! Paths that file tools may read and write: the project and the allowed roots (TOOL-4).
//!
//! Architecture invariant: every path that a file tool opens is resolved by [`PathPolicy`]. It
//! resolves symlinks, and rejects paths outside of the roots and paths that belong to the runtime
//! itself. The file is then opened beneath its root without following symlinks (`safe_fs.rs`), so a
//! change in the meantime has no effect. This module also identifies sensitive paths; each tool
//! decides whether they require permission (`Tool::required_access`). Elsewhere: opening files
//! (`safe_fs.rs`).

use std::{
    path::{Component, Path, PathBuf},
    sync::OnceLock,
};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, Scope};

use super::{
    ToolEnvironment,
    guarded::{guarded_home_paths, is_guarded, is_guarded_in_home},
    kernel_files,
    pattern_variants::literal_variants,
    project_path::{ResolvedPath, escape_path, io_error, unescape_path},
};

/// Paths that tools may read and write.
#[derive(Debug, Default)]
pub struct PathPolicy {
    /// Allowed roots in addition to the project, with `~/` and symlinks resolved when the runtime
    /// was built.
    additional_roots: Vec<PathBuf>,
    home: Option<PathBuf>,
    user_home: Option<PathBuf>,
    /// Home of the runtime with symlinks resolved, set once it exists.
    resolved_home: OnceLock<PathBuf>,
    /// Patterns of sensitive files, with `~/` resolved. One without a slash matches names of files
    /// and folders.
    sensitive_patterns: Vec<String>,
    /// The compiled patterns. They are compiled when a path is first checked, because this takes
    /// milliseconds.
    sensitive_files: OnceLock<SensitiveFiles>,
}

/// Compiled patterns of sensitive files.
#[derive(Debug)]
struct SensitiveFiles {
    names: GlobSet,
    paths: GlobSet,
}

impl SensitiveFiles {
    /// Compiles patterns. Brackets and braces are also taken literally, because names contain them,
    /// and so is a pattern that is not valid.
    fn new(patterns: &[String]) -> Self {
        let mut names = GlobSetBuilder::new();
        let mut paths = GlobSetBuilder::new();
        for pattern in patterns {
            let set = if pattern.contains('/') {
                &mut paths
            } else {
                &mut names
            };
            let mut is_valid = false;
            for variant in literal_variants(pattern) {
                if let Ok(glob) = GlobBuilder::new(&variant)
                    .case_insensitive(true)
                    .literal_separator(true)
                    .build()
                {
                    set.add(glob);
                    is_valid = true;
                }
            }
            let literal = GlobBuilder::new(&globset::escape(pattern))
                .case_insensitive(true)
                .build();
            if let Ok(glob) = literal
                && !is_valid
            {
                set.add(glob);
            }
        }
        Self {
            names: names.build().unwrap_or_default(),
            paths: paths.build().unwrap_or_default(),
        }
    }
}

impl PathPolicy {
    /// Makes the policy of a runtime.
    pub fn new(tool_environment: &ToolEnvironment) -> Self {
        let tools = &tool_environment.tools;
        let below_user = |text: &str| tool_environment.environment.expand_home(text);
        let resolved = |path: PathBuf| path.canonicalize().unwrap_or(path);
        let sensitive = tools.sensitive_paths.iter().filter_map(|pattern| {
            if pattern.contains('/') {
                below_user(pattern).map(|path| path.display().to_string())
            } else {
                Some(pattern.clone())
            }
        });
        Self {
            additional_roots: tools
                .allowed_write_roots
                .iter()
                .filter_map(|root| below_user(root))
                .map(resolved)
                .collect(),
            home: tool_environment.home.clone(),
            user_home: tool_environment
                .environment
                .user_home()
                .and_then(|home| home.canonicalize().ok()),
            resolved_home: OnceLock::new(),
            sensitive_patterns: sensitive.collect(),
            sensitive_files: OnceLock::new(),
        }
    }

    /// Resolves `requested_path`: a path relative to the project, or an absolute path inside one of the
    /// roots.
    ///
    /// An escaped name, as the tools show it, is accepted too if no file has the literal name.
    pub(super) fn resolve_existing(
        &self,
        project: &Path,
        requested_path: &str,
    ) -> Result<ResolvedPath, ErrorInfo> {
        let literal = self.resolve(project, requested_path, Path::new(requested_path));
        if let Err(error) = &literal
            && error.code == ErrorCode::FileNotFound
            && let Some(unescaped_path) = unescape_path(requested_path)
        {
            return self
                .resolve(project, requested_path, &unescaped_path)
                .or(literal);
        }
        literal
    }

    /// Resolves the path of a file that may not exist. Symlinks in the existing part of the path
    /// are resolved.
    pub(super) fn resolve_new(
        &self,
        project: &Path,
        requested_path: &str,
    ) -> Result<ResolvedPath, ErrorInfo> {
        let found = self.resolve_existing(project, requested_path);
        match &found {
            Err(error) if error.code == ErrorCode::FileNotFound => {}
            // The relative path of a root is empty, so a write would create a file of the same name
            // inside the root.
            Ok(resolved) if resolved.relative.as_os_str().is_empty() => {
                let message = format!(
                    "`{}` is a folder: choose another path",
                    resolved.display_name()
                );
                return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
            }
            _ => return found,
        }
        let path = Path::new(requested_path);
        let refuse = |why: &str| {
            let message = format!("`{}` names no file: {why}", escape_path(path));
            Err(ErrorInfo::new(ErrorCode::ValidationError, message))
        };
        let mut parent = path;
        let mut missing = Vec::new();
        loop {
            let Some(Component::Normal(name)) = parent.components().next_back() else {
                return refuse("what does not exist yet is named without `..`");
            };
            missing.push(name.to_owned());
            parent = parent.parent().unwrap_or(Path::new(""));
            // `symlink_metadata` also succeeds for a broken symlink.
            if project.join(path).symlink_metadata().is_ok() {
                return refuse("it is a link that leads nowhere");
            }
            let base = self.resolve_existing(project, &parent.to_string_lossy());
            match base {
                Ok(mut parent_path) => {
                    if !parent_path.path.is_dir() {
                        return refuse("a part of its path is a file");
                    }
                    for name in missing.iter().rev() {
                        parent_path.path.push(name);
                        parent_path.relative.push(name);
                    }
                    return Ok(parent_path);
                }
                Err(error) if error.code == ErrorCode::FileNotFound => {
                    if project.join(parent).symlink_metadata().is_ok() {
                        return refuse("a part of its path is a link that leads nowhere");
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the file or folder to which the argument `path` of a call resolves; the project if
    /// there is no such argument.
    pub(super) fn path_argument(&self, project: &Path, arguments: &Value) -> Option<PathBuf> {
        let path = arguments.get("path").map_or(Some("."), Value::as_str)?;
        self.resolve_existing(project, path)
            .or_else(|_| self.resolve_new(project, path))
            .ok()
            .map(|resolved| resolved.path)
    }

    fn resolve(
        &self,
        project: &Path,
        requested_path: &str,
        path: &Path,
    ) -> Result<ResolvedPath, ErrorInfo> {
        let name = escape_path(Path::new(requested_path));
        if requested_path.contains('\0') {
            let message = "the path holds a NUL character: no file can have that name";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        let outside = || {
            let also = if self.additional_roots.is_empty() {
                ""
            } else {
                ", or one below an allowed root"
            };
            let message = format!(
                "`{name}` lies outside the project: name a path below the project directory{also}"
            );
            Err(ErrorInfo::new(ErrorCode::OutsideAllowedRoots, message))
        };
        let roots =
            || std::iter::once(project).chain(self.additional_roots.iter().map(PathBuf::as_path));
        // Checked before any file system access, so that an error does not reveal what exists
        // outside the roots.
        let could_be_inside = if path.is_absolute() {
            roots().any(|root| path.strip_prefix(root).is_ok_and(is_lexically_inside))
        } else {
            is_lexically_inside(path)
        };
        if !could_be_inside && !path.is_absolute() {
            return outside();
        }
        match project.join(path).canonicalize() {
            Ok(found) if self.is_in_runtime_home(&found) => Err(runtime_home_error(&name)),
            Ok(found) => {
                match roots().find_map(|root| Some((root, found.strip_prefix(root).ok()?))) {
                    Some(_) if kernel_files::file_system(&found).is_some() => {
                        Err(kernel_file_error(&name))
                    }
                    Some((root, relative)) => Ok(ResolvedPath {
                        is_project: root == project,
                        root: root.to_owned(),
                        relative: relative.to_owned(),
                        path: found.clone(),
                    }),
                    None => outside(),
                }
            }
            Err(_) if !could_be_inside => outside(),
            Err(error) => Err(io_error(&name, &error)),
        }
    }

    /// Returns whether a path is the runtime's home or inside it.
    pub(super) fn is_in_runtime_home(&self, path: &Path) -> bool {
        self.runtime_home()
            .is_some_and(|home| path.starts_with(home))
    }

    /// Returns the allowed roots in addition to the project. A root that has become a symlink since
    /// then no longer leads to the intended folder.
    pub(super) fn additional_roots(&self) -> &[PathBuf] {
        &self.additional_roots
    }

    /// Returns the guarded paths of the user's home directory, if a command that runs in `project`
    /// could change them.
    pub(super) fn guarded_at_home(&self, project: &Path) -> Vec<PathBuf> {
        let home = self
            .user_home
            .as_ref()
            .filter(|home| home.starts_with(project));
        home.map_or_else(Vec::new, |home| guarded_home_paths(home))
    }

    /// Returns the runtime's home, which no tool can access.
    pub(super) fn runtime_home(&self) -> Option<PathBuf> {
        let home = self.home.as_ref()?;
        if let Some(resolved) = self.resolved_home.get() {
            return Some(resolved.clone());
        }
        match home.canonicalize() {
            Ok(resolved) => Some(self.resolved_home.get_or_init(|| resolved).clone()),
            Err(_) => Some(home.clone()),
        }
    }

    /// Returns whether a path requires permission even though reading is free and writing is
    /// allowed.
    pub(super) fn is_sensitive(&self, resolved: &ResolvedPath) -> bool {
        let files = self
            .sensitive_files
            .get_or_init(|| SensitiveFiles::new(&self.sensitive_patterns));
        files.paths.is_match(&resolved.path)
            || resolved
                .relative
                .iter()
                .any(|part| files.names.is_match(Path::new(part)))
    }

    /// Returns the permission that is required to read a file; `None` unless the file is sensitive
    /// or has other hard links.
    pub(super) fn read_access(&self, resolved: &ResolvedPath) -> Option<AccessRequest> {
        let other_names = resolved.has_other_hard_links();
        if !self.is_sensitive(resolved) && !other_names {
            return None;
        }
        let note = other_names
            .then(|| "the file has other hard links, which may be outside the project".to_owned());
        Some(AccessRequest {
            is_sensitive: true,
            note,
            ..self.file_access(resolved)
        })
    }

    /// Returns the permission that is required to write a file.
    pub(super) fn write_access(&self, resolved: &ResolvedPath) -> AccessRequest {
        let root = resolved
            .path
            .ancestors()
            .nth(resolved.relative.components().count())
            .unwrap_or(&resolved.path);
        let path_in_user_home = self
            .user_home
            .as_ref()
            .and_then(|home| resolved.path.strip_prefix(home).ok());
        let is_guarded = is_guarded(root, &resolved.relative)
            || path_in_user_home.is_some_and(is_guarded_in_home);
        let note =
            is_guarded.then(|| "other programs run this file or follow its settings".to_owned());
        AccessRequest {
            is_sensitive: is_guarded || self.is_sensitive(resolved),
            note,
            ..self.file_access(resolved)
        }
    }

    fn file_access(&self, resolved: &ResolvedPath) -> AccessRequest {
        let path = resolved
            .path
            .parent()
            .unwrap_or(&resolved.path)
            .display()
            .to_string();
        let target = resolved.path.display().to_string();
        AccessRequest {
            target,
            scope: Scope::Directory { path },
            is_sensitive: false,
            note: None,
        }
    }
}

fn runtime_home_error(name: &str) -> ErrorInfo {
    let message = format!("`{name}` belongs to soong itself, and no tool looks or writes there");
    ErrorInfo::new(ErrorCode::OutsideAllowedRoots, message)
}

/// Returns the error for a file on a kernel file system.
pub(super) fn kernel_file_error(name: &str) -> ErrorInfo {
    let message =
        format!("`{name}` is on a file system of the kernel, and no tool looks or writes there");
    ErrorInfo::new(ErrorCode::OutsideAllowedRoots, message)
}

/// Returns the error for a file that has changed since it was checked.
pub(super) fn path_changed_error(resolved: &ResolvedPath) -> ErrorInfo {
    let message = format!(
        "`{}` changed while it was looked at: try again",
        resolved.display_name()
    );
    ErrorInfo::new(ErrorCode::PathConflict, message)
}

fn is_lexically_inside(relative: &Path) -> bool {
    let mut depth = 0_i64;
    relative.components().all(|part| {
        depth += match part {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            Component::CurDir => 0,
            Component::RootDir | Component::Prefix(_) => i64::MIN / 2,
        };
        depth >= 0
    })
}

#[cfg(test)]
#[path = "path_policy/tests.rs"]
mod tests;
