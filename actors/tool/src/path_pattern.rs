//! Patterns of paths, such as `src/**/*.rs`, for the tools that search.
//!
//! A path fits if it fits the pattern, or the pattern with its brackets or braces taken literally
//! (`pattern_variants.rs`).

use std::path::{Path, PathBuf};

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use soong_protocol::{ErrorCode, ErrorInfo};

use super::{
    path_policy::PathPolicy, pattern_variants::literal_variants, project_path::ResolvedPath,
};

/// A compiled pattern. `*` does not match a slash.
pub(super) struct PathPattern {
    variants: GlobSet,
    /// Folder that an absolute pattern names before its first special character, relative to the
    /// searched folder.
    base: PathBuf,
}

impl PathPattern {
    /// Compiles a pattern for the paths below `folder`: one relative to it, or an absolute one.
    ///
    /// # Errors
    /// `validation_error` if it is no pattern, or an absolute one that starts outside the folder;
    /// `outside_allowed_roots` if that starts where the tools may not read.
    pub(super) fn new(
        pattern: &str,
        roots: &PathPolicy,
        project_dir: &Path,
        folder: &ResolvedPath,
    ) -> Result<Self, ErrorInfo> {
        let pattern = pattern.strip_prefix("./").unwrap_or(pattern);
        if !pattern.starts_with('/') {
            return Ok(Self {
                variants: compile(pattern)?,
                base: PathBuf::new(),
            });
        }
        // The path of the folder may itself contain special characters.
        if let Some(rest) = below_folder(pattern, &folder.path) {
            return Ok(Self {
                variants: compile(rest)?,
                base: PathBuf::new(),
            });
        }
        let (start, rest) = split_before_special(pattern);
        let start = match roots.resolve_existing(project_dir, start) {
            Ok(start) => start,
            // Nothing fits, as for a relative pattern.
            Err(error) if error.code == ErrorCode::FileNotFound => {
                return Ok(Self {
                    variants: GlobSet::empty(),
                    base: PathBuf::new(),
                });
            }
            Err(error) => return Err(error),
        };
        let Ok(base) = start.path.strip_prefix(&folder.path) else {
            let message = format!(
                "the pattern starts in `{}`, outside the searched folder `{}`: set path to a folder that contains it, or write \
                 a relative pattern",
                start.display_name(),
                folder.display_name()
            );
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        };
        Ok(Self {
            variants: compile(rest)?,
            base: base.to_owned(),
        })
    }

    /// Returns whether a path fits. `below`: the path relative to the searched folder.
    pub(super) fn matches(&self, below: &Path) -> bool {
        below
            .strip_prefix(&self.base)
            .is_ok_and(|rest| self.variants.is_match(rest))
    }
}

/// Returns the part of an absolute pattern below a folder.
fn below_folder<'a>(pattern: &'a str, folder: &Path) -> Option<&'a str> {
    let rest = pattern.strip_prefix(folder.to_str()?.trim_end_matches('/'))?;
    rest.strip_prefix('/')
}

/// Splits an absolute pattern into the folder before its first component with a special character,
/// and the rest. A pattern without one is split before its last component.
fn split_before_special(pattern: &str) -> (&str, &str) {
    let special = pattern.find(['*', '?', '[', '{']).unwrap_or(pattern.len());
    let slash = pattern[..special].rfind('/').unwrap_or(0);
    pattern.split_at(slash + 1)
}

fn compile(pattern: &str) -> Result<GlobSet, ErrorInfo> {
    let invalid = |error: globset::Error| {
        let message = format!("the pattern cannot be used: {error}. Write one such as `**/*.rs`.");
        ErrorInfo::new(ErrorCode::ValidationError, message)
    };
    let mut set = GlobSetBuilder::new();
    let mut has_variant = false;
    let mut first_error = None;
    for variant in literal_variants(pattern) {
        match GlobBuilder::new(&variant).literal_separator(true).build() {
            Ok(glob) => {
                set.add(glob);
                has_variant = true;
            }
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        Some(error) if !has_variant => Err(invalid(error)),
        _ => set.build().map_err(invalid),
    }
}
