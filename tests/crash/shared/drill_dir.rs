//! The folder of one drill.

use std::path::{Path, PathBuf};

/// Folder of one drill, with its home, project and files.
pub(crate) struct DrillDir<'a>(pub(crate) &'a Path);

impl DrillDir<'_> {
    pub(crate) fn home(&self) -> PathBuf {
        self.0.join("home")
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.0.join("project")
    }

    /// File with the effects, one per line.
    pub(crate) fn effects(&self) -> PathBuf {
        self.0.join("effects.jsonl")
    }
}
