//! Location of task journals: in the project, or under the home if the project cannot be written
//! (TASK-1).
//!
//! Nothing is written through a link that leads out of the project, and a missing project folder is
//! not created. Elsewhere: the content of the file (`line.rs`), opening it (`file.rs`).

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use soong_protocol::{Run, SessionId};

/// Path components of the journal folder in a project.
const PROJECT_FOLDER: [&str; 2] = [".soong-agent", "tasks"];
/// Name of the journal folder in a home.
const HOME_FOLDER: &str = "tasks";
/// Suffix of the name of every journal.
pub(super) const FILE_SUFFIX: &str = ".wal.jsonl";
/// Maximum length of the part of a name that is derived from the task, in characters.
const SLUG_CHARS: usize = 40;

/// Location of a task journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum TaskPlace {
    /// In the project.
    Project,
    /// Under the home, because the project is not writable or must not be written.
    Home,
}

/// Returns the file name of a run's journal. It depends only on the run's record, so it can always
/// be derived again.
pub(super) fn file_name(run: &Run) -> String {
    let stamp = run.created_at.compact();
    let (day, time) = stamp.split_at_checked(8).unwrap_or((&stamp, ""));
    let id: String = run
        .run_id
        .as_str()
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect();
    let tail = &id[id.len().saturating_sub(6)..];
    format!("{day}-{time}-{}-{tail}{FILE_SUFFIX}", slug(&run.task))
}

/// Derives a safe part of a file name from a text: `a-z0-9-`, never empty.
fn slug(text: &str) -> String {
    let mut slug = String::new();
    for c in text.chars().map(|c| c.to_ascii_lowercase()) {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            _ if !slug.is_empty() && !slug.ends_with('-') => slug.push('-'),
            _ => {}
        }
        if slug.len() == SLUG_CHARS {
            break;
        }
    }
    let slug = slug.trim_end_matches('-');
    if slug.is_empty() {
        "task".to_owned()
    } else {
        slug.to_owned()
    }
}

/// Returns the folder of all journals under the home.
pub(super) fn home_tasks(home: &Path) -> PathBuf {
    home.join(HOME_FOLDER)
}

/// Returns the folder of all journals in a project, if it exists and is within the project.
pub(super) fn project_tasks(project: &Path) -> Option<PathBuf> {
    let mut folder = project.to_owned();
    for part in PROJECT_FOLDER {
        folder.push(part);
        is_folder_within(project, &folder)
            .ok()
            .filter(|is_inside| *is_inside)?;
    }
    Some(folder)
}

/// Creates the folder of a session's journals in the project, if necessary.
pub(super) fn create_project_folder(project: &Path, session: &SessionId) -> io::Result<PathBuf> {
    // A missing project folder is not created.
    fs::metadata(project)?;
    let mut folder = project.to_owned();
    for part in PROJECT_FOLDER.into_iter().chain([session.as_str()]) {
        folder.push(part);
        if !is_folder_within(project, &folder)? {
            match fs::create_dir(&folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && folder.is_dir() => {}
                Err(error) => return Err(error),
                Ok(()) if part == PROJECT_FOLDER[0] => write_gitignore(&folder),
                Ok(()) => {}
            }
        }
    }
    // The listing of journals does not follow links.
    if fs::symlink_metadata(&folder)?.is_symlink() {
        let message = format!("{} is a symbolic link", folder.display());
        return Err(io::Error::new(io::ErrorKind::NotADirectory, message));
    }
    Ok(folder)
}

/// Makes Git ignore a new folder. A failure is only logged, because journals can be written anyway.
fn write_gitignore(folder: &Path) {
    let path = folder.join(".gitignore");
    let written = File::options()
        .write(true)
        .create_new(true)
        .open(&path)
        .and_then(|mut file| file.write_all(b"*\n"));
    if let Err(error) = written {
        tracing::debug!(path = %path.display(), %error, "could not write .gitignore");
    }
}

/// Creates the folder of a session's journals under the home, if necessary.
pub(super) fn create_home_folder(home: &Path, session: &SessionId) -> io::Result<PathBuf> {
    let folder = home_tasks(home).join(session.as_str());
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// Returns whether there is a folder at `path`; rejects other files, and links that lead out of
/// `project`.
pub(super) fn is_folder_within(project: &Path, path: &Path) -> io::Result<bool> {
    let found = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found?,
    };
    let refuse = |why: &str| {
        Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} {why}", path.display()),
        ))
    };
    if found.is_symlink() {
        let is_inside = path.canonicalize().is_ok_and(|target| {
            target.is_dir()
                && project
                    .canonicalize()
                    .is_ok_and(|project| target.starts_with(project))
        });
        return if is_inside {
            Ok(true)
        } else {
            refuse("is a link that does not lead to a folder of the project")
        };
    }
    if found.is_dir() {
        Ok(true)
    } else {
        refuse("is not a folder")
    }
}

/// Returns whether the error means that journals can never be written there, so that a retry is
/// useless.
///
/// A full or failing disk is not such an error, because a retry may succeed (DUR-6).
pub(super) fn is_permanent_error(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(
        error.kind(),
        K::NotFound | K::PermissionDenied | K::ReadOnlyFilesystem | K::NotADirectory
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_name_is_a_safe_slug_of_the_task() {
        for (task, want) in [
            ("Explore this project!", "explore-this-project"),
            ("  ../../etc/passwd\0", "etc-passwd"),
            ("探索", "task"),
            ("", "task"),
            ("---", "task"),
            ("Grüße, Äpfel & Öl", "gr-e-pfel-l"),
            (
                "a-0123456789012345678901234567890123456789",
                "a-01234567890123456789012345678901234567",
            ),
            (
                "0123456789012345678901234567890123456 89 x",
                "0123456789012345678901234567890123456-89",
            ),
            (
                "012345678901234567890123456789012345678 9",
                "012345678901234567890123456789012345678",
            ),
        ] {
            assert_eq!(slug(task), want, "{task:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn symlinks_are_followed_only_within_project() {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("project");
        let outside = dir.path().join("outside");
        let session = SessionId::new("s");
        for folder in [&project.join("inside"), &outside] {
            fs::create_dir_all(folder).unwrap();
        }
        let link = project.join(".soong-agent");
        for (target, is_taken) in [
            (&outside, false),
            (&dir.path().join("nowhere"), false),
            (&project.join("inside"), true),
        ] {
            std::os::unix::fs::symlink(target, &link).unwrap();
            let made = create_project_folder(&project, &session);
            assert_eq!(made.is_ok(), is_taken, "{target:?}: {made:?}");
            assert!(made.is_ok_and(|_| true) || project_tasks(&project).is_none());
            fs::remove_file(&link).unwrap();
        }
        assert_eq!(
            fs::read_dir(&outside).unwrap().count(),
            0,
            "nothing was written there"
        );
        assert!(project.join("inside/tasks/s").is_dir());
        fs::create_dir(&link).unwrap();
        std::os::unix::fs::symlink(project.join("inside"), link.join("tasks")).unwrap();
        std::os::unix::fs::symlink(project.join("inside"), project.join("inside/linked")).unwrap();
        assert!(create_project_folder(&project, &session).is_ok());
        assert!(
            create_project_folder(&project, &SessionId::new("linked"))
                .is_err_and(|error| is_permanent_error(&error))
        );
        fs::remove_dir_all(&link).unwrap();
        fs::write(&link, "a file").unwrap();
        assert!(
            create_project_folder(&project, &session)
                .is_err_and(|error| is_permanent_error(&error))
        );
        let gone = dir.path().join("gone");
        assert!(
            create_project_folder(&gone, &session).is_err_and(|error| is_permanent_error(&error))
        );
        assert!(!gone.exists());
    }

    #[test]
    fn gitignore_is_written_only_into_new_folder() {
        let project = tempfile::tempdir().unwrap();
        let own = project.path().join(".soong-agent");
        let session = SessionId::new("s");
        create_project_folder(project.path(), &session).unwrap();
        assert_eq!(fs::read_to_string(own.join(".gitignore")).unwrap(), "*\n");
        fs::remove_file(own.join(".gitignore")).unwrap();
        create_project_folder(project.path(), &SessionId::new("t")).unwrap();
        assert!(
            !own.join(".gitignore").exists(),
            "what the user removed stays away"
        );
    }
}
