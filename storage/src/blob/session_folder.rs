//! Deletion of all files of a session: all of them, or none (SES-4, DUR-8).
//!
//! Local files: the session's folder is moved away in one rename (to `sessions/.deleted/ID`, which
//! is the name of no session). Then everything in it is renamed in place, which needs the same
//! permissions as unlinking. Only then is it unlinked. If anything fails before that, all of it is
//! moved back. Each step can be repeated, so an interrupted deletion is started again from the
//! beginning.
//!
//! In a bucket there are no folders, and a deletion cannot be undone. The objects of the versions
//! are deleted one after the other; if some of them fail, the others are deleted anyway.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path as FilePath, PathBuf},
};

use soong_protocol::SessionId;

use super::{
    ARTIFACTS, Backend, BlobStore,
    body::blocking,
    files::{is_not_found, sync_folder},
    path_segment,
};
use crate::{fault::FaultPoint, store::StoreError};

/// Folder of the sessions, below the home.
const SESSIONS: &str = "sessions";
/// Folder of the sessions that are being deleted, below `SESSIONS`.
const TRASH_FOLDER: &str = ".deleted";
/// Suffix of files that were renamed in place; no version's file name contains a `#`.
const RENAMED_SUFFIX: &str = "#gone";
/// Maximum number of reported files that cannot be deleted.
const MAX_REPORTED: usize = 100;
/// Number of attempts to empty a folder before a folder that is still not empty counts as a
/// failure.
const MAX_EMPTYING_ATTEMPTS: usize = 8;

/// A file or folder that cannot be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndeletedFile {
    /// Path below the home, or in the bucket.
    pub path: String,
    /// Error message.
    pub reason: String,
}

impl BlobStore {
    /// Deletes all files of a session. `versions` are the paths of its artifacts' blobs. Succeeds
    /// if there are no files.
    ///
    /// # Errors
    /// The files that could not be deleted, at most 100 of them. Local files are all kept at their
    /// paths, except those that were already unlinked when the disk failed. In a bucket, the
    /// objects that are not listed are deleted, unless the list has 100 entries.
    pub async fn delete_session_files(
        &self,
        id: &SessionId,
        versions: &[String],
    ) -> Result<(), Vec<UndeletedFile>> {
        let not_removed = |error: StoreError| {
            let path = format!("{SESSIONS}/{}", path_segment(id.as_str()));
            vec![UndeletedFile {
                path,
                reason: error.to_string(),
            }]
        };
        self.hit_fault_point(FaultPoint::BeforeRemoval)
            .map_err(not_removed)?;
        match &self.backend {
            Backend::Files(files) => {
                let folder = SessionFolder::new(files.home(), id);
                let removed = blocking(move || Ok(folder.remove())).await;
                removed.unwrap_or_else(|error| Err(not_removed(error)))
            }
            Backend::Objects(_) => {
                let mut failed = Vec::new();
                for path in versions {
                    if let Err(error) = self.delete(path).await {
                        failed.push(UndeletedFile {
                            path: path.clone(),
                            reason: error.to_string(),
                        });
                        if failed.len() == MAX_REPORTED {
                            break;
                        }
                    }
                }
                if failed.is_empty() {
                    Ok(())
                } else {
                    Err(failed)
                }
            }
        }?;
        self.hit_fault_point(FaultPoint::AfterRemoval)
            .map_err(not_removed)
    }

    /// Removes the folders of a session if they are empty: a save that the deletion of the session
    /// rejected may have created them again. Other writers create them when they need them.
    pub async fn remove_empty_session_folders(&self, id: &SessionId) {
        let Backend::Files(files) = &self.backend else {
            return;
        };
        let folder = SessionFolder::new(files.home(), id).folder;
        let removed = blocking(move || {
            // Fails if the folder has files, or does not exist.
            let _ = fs::remove_dir(folder.join(ARTIFACTS));
            let _ = fs::remove_dir(folder);
            Ok(())
        });
        let _ = removed.await;
    }
}

/// Removes a file or an empty folder; tests replace it.
type Unlink = fn(&FilePath, is_folder: bool) -> io::Result<()>;

/// The folder of a session that is being deleted.
struct SessionFolder {
    home: PathBuf,
    folder: PathBuf,
    trash: PathBuf,
    unlink: Unlink,
}

/// Failed operations, by file.
#[derive(Default)]
struct Failures(Vec<(PathBuf, io::Error)>);

impl Failures {
    /// Records a failure. A file that does not exist is not a failure.
    fn record(&mut self, path: &FilePath, outcome: io::Result<()>) {
        if let Err(error) = outcome
            && !is_not_found(&error)
            && self.0.len() < MAX_REPORTED
        {
            self.0.push((path.to_owned(), error));
        }
    }
}

impl SessionFolder {
    fn new(home: &FilePath, id: &SessionId) -> Self {
        let sessions = home.join(SESSIONS);
        let name = path_segment(id.as_str());
        let folder = sessions.join(&name);
        let trash = sessions.join(TRASH_FOLDER).join(&name);
        Self {
            home: home.to_owned(),
            folder,
            trash,
            unlink,
        }
    }

    fn remove(&self) -> Result<(), Vec<UndeletedFile>> {
        // A second pass is needed if an earlier deletion was interrupted after the rename, and a
        // late write has recreated the folder.
        for _ in 0..2 {
            let mut failures = Failures::default();
            if !exists(&self.trash) {
                failures.record(&self.folder, self.move_to_trash());
            }
            if failures.0.is_empty() && exists(&self.trash) {
                rename_all_in_place(&self.trash, &mut failures);
                if failures.0.is_empty() {
                    unlink_all(&self.trash, self.unlink, &mut failures);
                }
            }
            if !failures.0.is_empty() {
                return Err(self.restore(failures));
            }
            if !exists(&self.folder) {
                break;
            }
        }
        if let Err(error) = self.sync_parents() {
            // All files are unlinked. At worst a power loss restores files that no row refers to.
            tracing::warn!(folder = %self.folder.display(), %error, "could not sync the folder of a deleted session");
        }
        Ok(())
    }

    fn move_to_trash(&self) -> io::Result<()> {
        if !exists(&self.folder) {
            return Ok(());
        }
        if let Some(parent) = self.trash.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(&self.folder, &self.trash)
    }

    /// Makes the removal of the folder durable, before the rows are deleted.
    fn sync_parents(&self) -> io::Result<()> {
        for folder in [self.trash.parent(), self.folder.parent()]
            .into_iter()
            .flatten()
        {
            match sync_folder(folder) {
                Err(error) if !is_not_found(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Moves the remaining files back; returns the files that could not be deleted.
    fn restore(&self, failures: Failures) -> Vec<UndeletedFile> {
        let undeleted = failures.0.into_iter().map(|(path, error)| {
            // Users know the file by its original path.
            let path = match path.strip_prefix(&self.trash) {
                Ok(inner) if inner.as_os_str().is_empty() => self.folder.clone(),
                Ok(inner) => self.folder.join(
                    inner
                        .components()
                        .map(|part| original_name(part.as_os_str()))
                        .collect::<PathBuf>(),
                ),
                Err(_) => path,
            };
            let path = path
                .strip_prefix(&self.home)
                .unwrap_or(&path)
                .display()
                .to_string();
            UndeletedFile {
                path,
                reason: error.to_string(),
            }
        });
        let named = undeleted.collect();
        restore_names(&self.trash);
        if exists(&self.trash) && exists(&self.folder) {
            // A late write has recreated the folder; no row refers to its content.
            if let Err(error) = fs::remove_dir_all(&self.folder) {
                tracing::error!(folder = %self.folder.display(), %error, "could not restore the files of a session: a late write has recreated its folder");
            }
        }
        if exists(&self.trash)
            && !exists(&self.folder)
            && let Err(error) =
                fs::rename(&self.trash, &self.folder).and_then(|()| self.sync_parents())
        {
            tracing::error!(folder = %self.trash.display(), %error, "could not restore the files of a session; they are still in the folder for deleted sessions");
        }
        named
    }
}

fn exists(path: &FilePath) -> bool {
    path.symlink_metadata().is_ok()
}

/// Returns the entries of a folder, each with whether it is a folder. Links are not folders.
fn entries(folder: &FilePath) -> io::Result<Vec<(PathBuf, bool)>> {
    fs::read_dir(folder)?
        .map(|entry| {
            let entry = entry?;
            Ok((entry.path(), entry.file_type()?.is_dir()))
        })
        .collect()
}

/// Renames everything in a folder in place, depth first. A file that can be renamed can be
/// unlinked.
fn rename_all_in_place(folder: &FilePath, failures: &mut Failures) {
    let inside = match entries(folder) {
        Ok(inside) => inside,
        Err(error) => return failures.record(folder, Err(error)),
    };
    for (path, is_folder) in inside {
        if is_folder {
            rename_all_in_place(&path, failures);
        }
        let name = path.file_name().unwrap_or_default();
        if original_name(name) == name {
            let mut renamed = path.clone().into_os_string();
            renamed.push(RENAMED_SUFFIX);
            failures.record(&path, fs::rename(&path, renamed));
        }
    }
}

/// Undoes [`rename_all_in_place`], even if it was interrupted.
fn restore_names(folder: &FilePath) {
    for (path, is_folder) in entries(folder).unwrap_or_default() {
        let before = path.with_file_name(original_name(path.file_name().unwrap_or_default()));
        if before != path
            && let Err(error) = fs::rename(&path, &before)
        {
            tracing::error!(file = %path.display(), %error, "could not restore the name of a session's file");
            continue;
        }
        if is_folder {
            restore_names(&before);
        }
    }
}

/// Returns a name without the suffix that [`rename_all_in_place`] has appended.
fn original_name(name: &OsStr) -> &OsStr {
    name.to_str()
        .and_then(|name| name.strip_suffix(RENAMED_SUFFIX))
        .map_or(name, OsStr::new)
}

/// Unlinks a folder and everything in it, as far as possible.
fn unlink_all(folder: &FilePath, unlink: Unlink, failures: &mut Failures) {
    let before = failures.0.len();
    // A write that began before the folder was moved away may add a file after its entries were
    // listed.
    for attempts_left in (0..MAX_EMPTYING_ATTEMPTS).rev() {
        let inside = match entries(folder) {
            Ok(inside) => inside,
            Err(error) => return failures.record(folder, Err(error)),
        };
        for (path, is_folder) in inside {
            if is_folder {
                unlink_all(&path, unlink, failures)
            } else {
                failures.record(&path, unlink(&path, false))
            }
        }
        // After such a failure the folder cannot be empty, which is not reported separately.
        if failures.0.len() > before || before == MAX_REPORTED {
            return;
        }
        match unlink(folder, true) {
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty && attempts_left > 0 => {
            }
            outcome => return failures.record(folder, outcome),
        }
    }
}

fn unlink(path: &FilePath, is_folder: bool) -> io::Result<()> {
    if is_folder {
        fs::remove_dir(path)
    } else {
        fs::remove_file(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILES: [&str; 4] = [
        "artifacts/a/v1/one.md",
        "artifacts/a/v2/two.md",
        "artifacts/b/v1/three",
        "note.txt",
    ];

    fn session(home: &FilePath) -> SessionFolder {
        let session_folder = SessionFolder::new(home, &SessionId::new("s"));
        for file in FILES {
            let path = session_folder.folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, file).unwrap();
        }
        session_folder
    }

    /// Returns the files of the session that are complete and at their original paths.
    fn intact_files(session_folder: &SessionFolder) -> Vec<&'static str> {
        let whole = |file: &&&str| {
            fs::read_to_string(session_folder.folder.join(file)).is_ok_and(|text| text == **file)
        };
        FILES.iter().filter(whole).copied().collect()
    }

    #[test]
    fn late_write_is_deleted_too() {
        fn with_a_late_one(path: &FilePath, is_folder: bool) -> io::Result<()> {
            if !is_folder && !path.ends_with("late") {
                fs::write(path.with_file_name("late"), "late")?;
            }
            unlink(path, is_folder)
        }
        let home = tempfile::tempdir().unwrap();
        let session_folder = SessionFolder {
            unlink: with_a_late_one,
            ..session(home.path())
        };
        assert_eq!(session_folder.remove(), Ok(()));
        assert!(!exists(&session_folder.folder) && !exists(&session_folder.trash));
    }

    #[test]
    fn only_files_of_the_session_are_deleted() {
        let home = tempfile::tempdir().unwrap();
        let session_folder = session(home.path());
        let other = session_folder.folder.with_file_name("t");
        fs::create_dir_all(&other).unwrap();
        assert_eq!(session_folder.remove(), Ok(()));
        assert!(
            !exists(&session_folder.folder) && !exists(&session_folder.trash) && exists(&other)
        );
        assert_eq!(session_folder.remove(), Ok(()), "again");
        let nothing = SessionFolder::new(&home.path().join("none"), &SessionId::new("s"));
        assert_eq!(nothing.remove(), Ok(()), "no home, no files");
    }

    #[test]
    fn interrupted_deletion_is_completed() {
        for step in [
            "aside",
            "some are loose",
            "all are loose",
            "some are unlinked",
            "a late write made it anew",
        ] {
            let home = tempfile::tempdir().unwrap();
            let session_folder = session(home.path());
            session_folder.move_to_trash().unwrap();
            match step {
                "some are loose" => rename_all_in_place(
                    &session_folder.trash.join("artifacts/a"),
                    &mut Failures::default(),
                ),
                "all are loose" => {
                    rename_all_in_place(&session_folder.trash, &mut Failures::default())
                }
                "some are unlinked" => {
                    rename_all_in_place(&session_folder.trash, &mut Failures::default());
                    fs::remove_file(
                        session_folder
                            .trash
                            .join(format!("note.txt{RENAMED_SUFFIX}")),
                    )
                    .unwrap();
                }
                "a late write made it anew" => drop(session(home.path())),
                _ => {}
            }
            assert_eq!(session_folder.remove(), Ok(()), "{step}");
            assert!(
                !exists(&session_folder.folder) && !exists(&session_folder.trash),
                "{step}"
            );
        }
    }

    #[test]
    fn folder_that_cannot_be_moved_is_kept_whole_and_reported() {
        let home = tempfile::tempdir().unwrap();
        let session_folder = session(home.path());
        fs::write(session_folder.trash.parent().unwrap(), "in the way").unwrap();
        let failed = session_folder.remove().unwrap_err();
        assert_eq!(
            failed
                .iter()
                .map(|one| one.path.as_str())
                .collect::<Vec<_>>(),
            ["sessions/s"]
        );
        assert_eq!(intact_files(&session_folder), FILES);
        fs::remove_file(session_folder.trash.parent().unwrap()).unwrap();
        assert_eq!(session_folder.remove(), Ok(()));
    }

    #[test]
    fn failed_file_rename_restores_the_folder() {
        let home = tempfile::tempdir().unwrap();
        let session_folder = session(home.path());
        // A non-empty folder with the new name, because permissions do not restrict tests that run
        // as root.
        let way = session_folder
            .folder
            .join(format!("artifacts/b{RENAMED_SUFFIX}"));
        fs::create_dir_all(way.join("x")).unwrap();
        let failed = session_folder.remove().unwrap_err();
        assert_eq!(
            failed
                .iter()
                .map(|one| one.path.as_str())
                .collect::<Vec<_>>(),
            ["sessions/s/artifacts/b"]
        );
        assert!(!exists(&session_folder.trash));
        assert!(
            intact_files(&session_folder).contains(&"artifacts/a/v1/one.md")
                && intact_files(&session_folder).contains(&"note.txt")
        );
    }

    #[test]
    fn undeletable_file_is_restored_and_reported() {
        let home = tempfile::tempdir().unwrap();
        let mut session_folder = session(home.path());
        session_folder.unlink = |path, is_folder| {
            if path.to_string_lossy().contains("two.md") {
                Err(io::Error::other("no"))
            } else {
                unlink(path, is_folder)
            }
        };
        let failed = session_folder.remove().unwrap_err();
        let want = UndeletedFile {
            path: "sessions/s/artifacts/a/v2/two.md".into(),
            reason: "no".into(),
        };
        assert_eq!(
            (failed, intact_files(&session_folder)),
            (vec![want], vec!["artifacts/a/v2/two.md"])
        );
        session_folder.unlink = unlink;
        assert_eq!(session_folder.remove(), Ok(()));
    }

    #[tokio::test]
    async fn only_objects_of_the_session_are_deleted() {
        let location = super::super::BlobLocation::Memory;
        let blobs = BlobStore::open(FilePath::new("nowhere"), &location, &|_| None).unwrap();
        for path in [
            "sessions/s/artifacts/a/v1/x",
            "sessions/s/artifacts/a/v2/x",
            "users/u/artifacts/b/v1/x",
        ] {
            blobs
                .put(path, bytes::Bytes::from_static(b"x"))
                .await
                .unwrap();
        }
        let versions =
            ["v1", "v2", "v3"].map(|version| format!("sessions/s/artifacts/a/{version}/x"));
        assert_eq!(
            blobs
                .delete_session_files(&SessionId::new("s"), &versions)
                .await,
            Ok(()),
            "what is gone is fine"
        );
        for path in &versions {
            assert_eq!(blobs.get(path).await.unwrap(), None);
        }
        assert!(
            blobs
                .get("users/u/artifacts/b/v1/x")
                .await
                .unwrap()
                .is_some()
        );
    }
}
