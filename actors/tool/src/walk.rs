//! Walks through a project: which entries are skipped, the limits, and the order.
//!
//! Skips `.git`, `.soong-agent`, kernel file systems, and everything that the `.gitignore` and
//! `.ignore` files of the project exclude, unless the walk starts there (TOOL-3a). If the project
//! is a folder of a repository, the ignore files up to the root of the repository count too. Others
//! above it and the git settings of the user have no effect, so that a project looks the same on
//! every machine. Symlinks are reported but not followed.

use std::{
    ops::ControlFlow,
    path::{Path, PathBuf},
};

use ignore::{DirEntry, WalkBuilder};
use soong_protocol::ErrorInfo;
use tokio_util::sync::CancellationToken;

use super::project_path::{ResolvedPath, check_cancelled, escape_path};
use crate::{kernel_files, path_policy::PathPolicy, repository::OuterIgnores};

/// Maximum number of entries that one walk visits.
pub(crate) const MAX_VISITED: u64 = 200_000;
/// Maximum number of unreadable folders that are named.
const MAX_LISTED_UNREADABLE: usize = 5;
const SKIPPED_NAMES: [&str; 2] = [".git", ".soong-agent"];

/// How a walk ended.
#[derive(Default)]
pub(crate) struct WalkEnd {
    /// Whether it stopped at [`MAX_VISITED`].
    pub(crate) reached_limit: bool,
    unreadable: Vec<String>,
    unreadable_count: u64,
}

impl WalkEnd {
    /// Returns the end of a note for the model: which entries are missing. Empty if the walk was
    /// complete.
    pub(crate) fn note_suffix(&self) -> String {
        let mut remark = String::new();
        if self.reached_limit {
            remark.push_str(&format!(
                "; stopped after {MAX_VISITED} entries, ask for a folder further down"
            ));
        }
        if self.unreadable_count > 0 {
            remark.push_str(&format!(
                "; could not be read ({}): {}",
                self.unreadable_count,
                self.unreadable.join(", ")
            ));
        }
        remark
    }
}

/// Visits everything below `start`: folders before their content, siblings by name.
///
/// `each` receives an entry and its path relative to the root that contains `start`.
pub(crate) fn walk(
    roots: &PathPolicy,
    start: &ResolvedPath,
    recursive: bool,
    cancel: &CancellationToken,
    mut each: impl FnMut(&DirEntry, &Path) -> ControlFlow<()>,
) -> Result<WalkEnd, ErrorInfo> {
    let mut end = WalkEnd::default();
    let project = start.root.as_path();
    let own = roots.runtime_home();
    // Start at the root of the project, so that its ignore files apply. Only folders on the path to
    // `start` are entered.
    let mut reached = false;
    let walk = Walk {
        project,
        own: own.as_deref(),
        start,
        recursive,
        cancel,
    };
    walk.visit(project, &mut end, &mut |entry, relative| {
        reached = true;
        each(entry, relative)
    })?;
    let ignored = !reached && !start.relative.as_os_str().is_empty() && end.unreadable_count == 0;
    if ignored {
        // `start` is empty, or is ignored but was requested by name.
        walk.visit(&start.path, &mut end, &mut each)?;
    }
    Ok(end)
}

/// A walk through the entries below a path.
struct Walk<'a> {
    /// Root that the paths are relative to.
    project: &'a Path,
    /// Home of the runtime, which is skipped.
    own: Option<&'a Path>,
    start: &'a ResolvedPath,
    recursive: bool,
    cancel: &'a CancellationToken,
}

impl Walk<'_> {
    /// Visits what is below `start`, beginning at `root`, whose ignore files apply.
    fn visit(
        &self,
        root: &Path,
        end: &mut WalkEnd,
        each: &mut dyn FnMut(&DirEntry, &Path) -> ControlFlow<()>,
    ) -> Result<(), ErrorInfo> {
        let Self {
            project,
            own,
            start,
            recursive,
            cancel,
        } = *self;
        let below_root = start
            .path
            .strip_prefix(root)
            .map_or(0, |way| way.components().count());
        let target = start.path.clone();
        let own = own.map(Path::to_owned);
        // A folder that is requested by name is visited even if it is ignored.
        let outer = if root == project {
            OuterIgnores::read(project)
        } else {
            OuterIgnores::default()
        };
        let mut builder = WalkBuilder::new(root);
        builder
            .hidden(false)
            .parents(false)
            .git_global(false)
            .require_git(false)
            .follow_links(false)
            .max_depth((!recursive).then_some(below_root + 1))
            .sort_by_file_name(Ord::cmp)
            .filter_entry(move |entry| {
                let on_the_way =
                    target.starts_with(entry.path()) || entry.path().starts_with(&target);
                let is_own = own
                    .as_ref()
                    .is_some_and(|own| entry.path().starts_with(own));
                let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
                let is_of_kernel =
                    || is_folder && kernel_files::file_system(entry.path()).is_some();
                let is_ignored = outer.are_ignoring(entry.path(), is_folder);
                on_the_way
                    && !is_own
                    && !is_ignored
                    && !is_of_kernel()
                    && !SKIPPED_NAMES.iter().any(|name| entry.file_name() == *name)
            });
        let mut visited = 0;
        for entry in builder.build() {
            check_cancelled(cancel)?;
            match entry {
                Ok(entry) => {
                    let relative = entry.path().strip_prefix(project).unwrap_or(entry.path());
                    if entry.path() == start.path || !entry.path().starts_with(&start.path) {
                        continue;
                    }
                    visited += 1;
                    if visited > MAX_VISITED {
                        end.reached_limit = true;
                        break;
                    }
                    if each(&entry, relative).is_break() {
                        break;
                    }
                }
                Err(error) => {
                    let (path, why) = describe_error(&error, project);
                    end.unreadable_count += 1;
                    if end.unreadable.len() < MAX_LISTED_UNREADABLE {
                        end.unreadable.push(format!("`{path}` ({why})"));
                    }
                }
            }
        }
        Ok(())
    }
}

/// Returns the path and the reason of an error of the walk, without the absolute path.
fn describe_error(error: &ignore::Error, project: &Path) -> (String, String) {
    fn path_of(error: &ignore::Error) -> Option<PathBuf> {
        match error {
            ignore::Error::WithPath { path, .. } => Some(path.clone()),
            ignore::Error::WithDepth { err, .. } | ignore::Error::WithLineNumber { err, .. } => {
                path_of(err)
            }
            _ => None,
        }
    }
    let path = path_of(error).map(|path| escape_path(path.strip_prefix(project).unwrap_or(&path)));
    let why = error
        .io_error()
        .map_or("unreadable".to_owned(), |error| error.kind().to_string());
    (path.unwrap_or_else(|| "a folder".to_owned()), why)
}
