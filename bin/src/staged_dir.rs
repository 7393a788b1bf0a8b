//! Atomic creation of folders: the target appears only when it is complete.

use std::{
    io,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

use crate::exit::{Exit, Failure};

/// Fails unless the folder is empty or does not exist.
pub(crate) fn must_be_free(dir: &Path) -> Result<(), Failure> {
    let refuse =
        |exit: Exit, what: String| Err(Failure::new(exit, what, "Use a new or an empty folder."));
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => refuse(
            Exit::Refused,
            format!("the folder {} is not empty", dir.display()),
        ),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            refuse(Exit::Refused, format!("{} is not a folder", dir.display()))
        }
        Err(error) => refuse(
            Exit::Failed,
            format!("the folder {} cannot be read: {error}", dir.display()),
        ),
    }
}

/// A temporary folder next to its target, removed unless it is renamed to the target. Accessible
/// only by its user, like the home.
pub(crate) struct StagedDir {
    folder: TempDir,
    target: PathBuf,
}

impl StagedDir {
    /// Creates a temporary folder for the target `dir`, and the parents of `dir` if necessary.
    pub(crate) fn create(dir: &Path) -> Result<Self, Failure> {
        must_be_free(dir)?;
        let broken = |error: io::Error| write_failure(dir, &error);
        let target = match dir.canonicalize() {
            Ok(target) => target,
            Err(_) => std::path::absolute(dir).map_err(broken)?,
        };
        let (Some(above), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(Failure::usage(
                format!("{} is not a folder name", dir.display()),
                "Use a new folder.",
            ));
        };
        std::fs::create_dir_all(above).map_err(broken)?;
        let mut prefix = name.to_owned();
        prefix.push(".partial-");
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(above)
            .map_err(broken)?;
        Ok(Self { folder, target })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Renames the folder to its target and returns the path.
    pub(crate) fn commit(self) -> Result<PathBuf, Failure> {
        std::fs::rename(self.folder.path(), &self.target)
            .map_err(|error| write_failure(&self.target, &error))?;
        // The folder has been renamed, so nothing must be removed.
        let _ = self.folder.keep();
        Ok(self.target.canonicalize().unwrap_or(self.target))
    }
}

/// Returns the failure for a folder, or a file in it, that cannot be written.
pub(crate) fn write_failure(path: &Path, error: &io::Error) -> Failure {
    let what = format!("{} cannot be written: {error}", path.display());
    Failure::new(
        Exit::Failed,
        what,
        "Check the folder, its permissions and its disk.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn staged_folder_appears_only_when_finished() {
        let dir = tempfile::tempdir().unwrap();
        let names = || std::fs::read_dir(dir.path()).unwrap().count();
        std::fs::create_dir(dir.path().join("empty")).unwrap();
        for (name, count) in [("empty", 1), ("new", 2), ("deep/down", 3)] {
            let target = dir.path().join(name);
            drop(StagedDir::create(&target).unwrap());
            let beside = StagedDir::create(&target).unwrap();
            std::fs::write(beside.path().join("file"), "x").unwrap();
            assert!(!target.join("file").exists());
            assert_eq!(beside.commit().unwrap(), target.canonicalize().unwrap());
            assert!(target.join("file").exists());
            assert_eq!(names(), count);
            assert_eq!(
                StagedDir::create(&target).err().map(|failure| failure.exit),
                Some(Exit::Refused)
            );
        }
    }
}
