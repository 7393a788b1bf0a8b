//! The Git repository that contains a project, if the project is a folder below its root: the
//! ignore files and the notes for agents between that root and the project apply too.
//!
//! Git is not run. A repository counts only if its `.git` belongs to the owner of the project:
//! another user of the machine could create one in a shared parent folder, such as `/tmp`.

use std::{
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use ignore::{
    Match,
    gitignore::{Gitignore, GitignoreBuilder},
};

/// Names of ignore files, the more important one last.
const IGNORE_FILES: [&str; 2] = [".gitignore", ".ignore"];

/// Returns the root of the repository that contains a project. `None` if the project is that root,
/// or is in no repository.
pub fn repository_root(project: &Path) -> Option<PathBuf> {
    let owner = std::fs::metadata(project).ok()?.uid();
    let root = project
        .ancestors()
        .find(|folder| folder.join(".git").exists())?;
    let is_own = std::fs::symlink_metadata(root.join(".git")).is_ok_and(|git| git.uid() == owner);
    (root != project && is_own).then(|| root.to_owned())
}

/// The ignore files of the folders above a project.
#[derive(Default)]
pub(crate) struct OuterIgnores {
    /// One for each folder, the nearest first.
    files: Vec<Gitignore>,
}

impl OuterIgnores {
    /// Reads the ignore files from the root of the repository down to the project, whose own
    /// exceptions count before those above it. Patterns that are invalid are skipped, as Git does.
    /// There are none if the repository ignores the project itself, as one with the user's settings
    /// in the home folder does.
    pub(crate) fn read(project: &Path) -> Self {
        let Some(root) = repository_root(project) else {
            return Self::default();
        };
        let mut files = Vec::new();
        for folder in project
            .ancestors()
            .take_while(|folder| folder.starts_with(&root))
        {
            let mut builder = GitignoreBuilder::new(folder);
            for name in IGNORE_FILES {
                let _ = builder.add(folder.join(name));
            }
            files.extend(builder.build().ok().filter(|ignores| !ignores.is_empty()));
        }
        let found = Self { files };
        let mut folders = project.ancestors().take_while(|folder| *folder != root);
        let is_project_ignored = folders.any(|folder| found.are_ignoring(folder, true));
        if is_project_ignored {
            Self::default()
        } else {
            found
        }
    }

    /// Returns whether a path below the project is ignored. The nearest file that says something
    /// about it decides.
    pub(crate) fn are_ignoring(&self, path: &Path, is_folder: bool) -> bool {
        for ignores in self
            .files
            .iter()
            .filter(|ignores| path != ignores.path() && path.starts_with(ignores.path()))
        {
            match ignores.matched(path, is_folder) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_and_ignore_files_above_the_project_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let project = root.join("packages/api");
        std::fs::create_dir_all(&project).unwrap();
        assert_eq!(repository_root(&project), None, "there is no repository");
        std::fs::create_dir(root.join(".git")).unwrap();
        std::fs::write(
            root.join(".gitignore"),
            "dist/\n*.log\n/packages/api/only\n",
        )
        .unwrap();
        std::fs::write(root.join("packages/.gitignore"), "!keep.log\n").unwrap();
        std::fs::write(project.join(".gitignore"), "!own.log\n").unwrap();
        assert_eq!(repository_root(&project), Some(root.clone()));
        assert_eq!(repository_root(&root), None, "the project is the root");
        let ignores = OuterIgnores::read(&project);
        for (path, is_folder, is_ignored) in [
            ("dist", true, true),
            ("dist", false, false),
            ("src/x.log", false, true),
            ("keep.log", false, false),
            ("own.log", false, false),
            ("only", false, true),
            ("src", true, false),
        ] {
            assert_eq!(
                ignores.are_ignoring(&project.join(path), is_folder),
                is_ignored,
                "{path}"
            );
        }
        std::fs::write(root.join(".gitignore"), "*\n").unwrap();
        assert!(
            !OuterIgnores::read(&project).are_ignoring(&project.join("src"), true),
            "the project itself is ignored"
        );
        assert!(
            !OuterIgnores::read(&root).are_ignoring(&root.join("a.log"), false),
            "those of the root are its own"
        );
    }
}
