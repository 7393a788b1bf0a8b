//! Opens and writes files below a root without following symlinks.
//!
//! The folder of a file is opened beneath the root: on Linux by `openat2`, elsewhere component by component, each
//! opened relative to the previous one. A symlink that was created after the path was resolved causes an error. Only
//! regular files are opened, and opening never waits for a pipe or device. A file is written under a temporary name in
//! its folder and moved into place when it is complete.
//!
//! Elsewhere: which paths may be opened (`path_policy.rs`), and which require permission (the tools).

use std::{
    fs::{File, Metadata},
    io::{self, Read, Write},
    path::Path,
};

use rustix::fs::FileType;
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::sync::CancellationToken;

use super::{
    kernel_files,
    path_policy::{PathPolicy, kernel_file_error, path_changed_error},
    project_path::{ResolvedPath, check_cancelled, has_other_names, io_error},
};

/// How a file is written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct WriteMode {
    /// Whether an existing file may be replaced.
    pub(super) overwrite: bool,
    /// Whether missing folders are created.
    pub(super) create_dirs: bool,
}

/// Opens a regular file and rejects everything else.
pub(super) fn open_file(resolved: &ResolvedPath) -> Result<(File, Metadata), ErrorInfo> {
    let name = resolved.display_name();
    let file = unix::open(resolved).map_err(|error| write_error(resolved, &error))?;
    if kernel_files::file_system_of(&file).is_some() {
        return Err(kernel_file_error(&name));
    }
    let metadata = file.metadata().map_err(|error| io_error(&name, &error))?;
    let refuse = |what: &str| Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, format!("`{name}` is {what}")));
    if metadata.is_dir() {
        return refuse("a folder: use list_files to see what is in it");
    }
    if !metadata.is_file() {
        return refuse("neither a file nor a folder (a pipe, socket or device): it cannot be read");
    }
    Ok((file, metadata))
}

/// Reads up to `max_bytes` of a text file of a project, for a run that did not request it with a tool call. Returns the
/// text, and whether it is the whole file.
///
/// Files that would require permission are rejected: files outside the project, sensitive files, and files with other
/// hard links.
pub fn read_text(roots: &PathPolicy, project: &Path, path: &str, max_bytes: u64) -> Result<(String, bool), ErrorInfo> {
    let resolved = roots.resolve_existing(project, path)?;
    if !resolved.is_project || roots.read_access(&resolved).is_some() {
        let message = format!("`{}` is not read without being asked for", resolved.display_name());
        return Err(ErrorInfo::new(ErrorCode::PermissionDenied, message));
    }
    let (file, metadata) = open_file(&resolved)?;
    if has_other_names(&metadata) {
        return Err(path_changed_error(&resolved));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| io_error(&resolved.display_name(), &error))?;
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let is_whole = bytes.len() <= most;
    let text = match is_whole {
        true => &bytes[..],
        // Cut at a character boundary.
        false => bytes[..most].utf8_chunks().next().map_or(&[][..], |chunk| chunk.valid().as_bytes()),
    };
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        let message = format!("`{}` is UTF-16 text: save it as UTF-8", resolved.display_name());
        return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
    }
    // Some editors write a byte order mark before the text.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    Ok((String::from_utf8_lossy(text).into_owned(), is_whole))
}

/// Returns the names in a folder of a project; empty if there is no such folder.
pub fn list_dir_names(roots: &PathPolicy, project: &Path, folder: &str) -> Vec<String> {
    let resolved = roots.resolve_existing(project, folder).ok().filter(|place| place.is_project);
    let entries = resolved.and_then(|place| std::fs::read_dir(place.path).ok());
    entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Writes a file atomically: afterwards it has its complete new content or is unchanged. Returns whether the file is
/// new.
///
/// `may_replace` decides by the metadata of the existing file whether it may be replaced. It is called directly before the
/// file is replaced.
pub(super) fn write_file(
    resolved: &ResolvedPath,
    content: &[u8],
    mode: WriteMode,
    cancel: &CancellationToken,
    may_replace: impl FnOnce(&Metadata) -> bool,
) -> Result<bool, ErrorInfo> {
    let Some(file_name) = resolved.path.file_name() else {
        return Err(ErrorInfo::new(ErrorCode::ValidationError, "the path names no file"));
    };
    let fail = |error: io::Error| write_error(resolved, &error);
    let folder = unix::open_parent_dir(resolved, mode.create_dirs).map_err(fail)?;
    let before = unix::entry_stat(&folder, file_name).map_err(fail)?;
    let kind = before.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if let Some(kind) = kind.filter(|kind| *kind != FileType::RegularFile) {
        let what = if kind == FileType::Directory { "a folder" } else { "no regular file" };
        let message = format!("`{}` is {what}: choose another path", resolved.display_name());
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    if before.is_some() && !mode.overwrite {
        let message = format!(
            "`{}` exists already: read it and use edit, or write it with overwrite=true to replace all of it",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    let mut draft = unix::TempFile::create(&folder, before.as_ref()).map_err(fail)?;
    draft.file.write_all(content).and_then(|()| draft.file.sync_all()).map_err(fail)?;
    check_cancelled(cancel)?;
    if before.is_some() && !may_replace(&open_file(resolved)?.1) {
        return Err(path_changed_error(resolved));
    }
    draft.persist(file_name, before.is_some()).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => path_changed_error(resolved),
        _ => fail(error),
    })?;
    Ok(before.is_none())
}

fn write_error(place: &ResolvedPath, error: &io::Error) -> ErrorInfo {
    let name = place.display_name();
    match error.kind() {
        // A component has become a symlink since the path was resolved.
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => path_changed_error(place),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => io_error(&name, error),
        io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            let message = format!("`{name}` cannot be opened or written: {}", error.kind());
            ErrorInfo::new(ErrorCode::ValidationError, message)
        }
        _ => io_error(&name, error),
    }
}

/// Operating system calls.
mod unix {
    use std::{ffi::OsStr, fs::File, io, os::fd::OwnedFd, path::Path};

    #[cfg(target_os = "linux")]
    use rustix::fs::{ResolveFlags, openat2};
    use rustix::{
        fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, linkat, mkdirat, openat, renameat, statat, unlinkat},
        io::Errno,
    };

    use super::super::project_path::ResolvedPath;

    const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);
    #[cfg(target_os = "linux")]
    const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

    /// Opens the root. On Linux no component of its path may be a symlink, because the path was resolved when it was
    /// allowed.
    fn open_root(place: &ResolvedPath) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        match openat2(CWD, &place.root, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Old kernels and some containers do not support this system call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?),
        }
        Ok(openat(CWD, &place.root, FOLDER, Mode::empty())?)
    }

    /// Opens the folder that contains a file. If `create` is set, creates the missing folders of its path.
    pub(super) fn open_parent_dir(place: &ResolvedPath, create: bool) -> io::Result<OwnedFd> {
        let root = open_root(place)?;
        let parent = place.relative.parent().unwrap_or(Path::new(""));
        // Because of the `.`, a symlink at the end fails with `ELOOP` like any other, not with `ENOTDIR`.
        #[cfg(target_os = "linux")]
        match openat2(&root, parent.join("."), FOLDER, Mode::empty(), BENEATH) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            Err(Errno::NOENT) if create => {}
            opened => return Ok(opened?),
        }
        open_each_component(root, parent, create)
    }

    /// Opens a folder below `at` component by component. If `create` is set, creates the missing ones.
    pub(super) fn open_each_component(mut at: OwnedFd, path: &Path, create: bool) -> io::Result<OwnedFd> {
        for part in path {
            let mut next = openat(&at, part, FOLDER, Mode::empty());
            if create && matches!(next, Err(Errno::NOENT)) {
                match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                    Ok(()) | Err(Errno::EXIST) => next = openat(&at, part, FOLDER, Mode::empty()),
                    Err(error) => return Err(error.into()),
                }
            }
            at = next.map_err(|error| {
                // `O_DIRECTORY` reports another error for a symlink.
                let is_link = statat(&at, part, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
                if is_link { Errno::LOOP } else { error }
            })?;
        }
        Ok(at)
    }

    /// Opens a regular file or a folder for reading, and `/dev/null` in place of everything else.
    pub(super) fn open(place: &ResolvedPath) -> io::Result<File> {
        let folder = open_parent_dir(place, false)?;
        let Some(name) = place.relative.file_name() else { return Ok(File::from(folder)) };
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP.into()),
            // Opening a device may have side effects. The caller reports everything that is neither a file nor a
            // folder with the same error.
            _ => return File::open("/dev/null"),
        }
        // Do not wait for a pipe or device that has replaced the file in the meantime.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(openat(&folder, name, flags, Mode::empty())?))
    }

    /// Returns the kind and mode of a name in a folder; `None` if there is no such name.
    pub(super) fn entry_stat(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat?)),
        }
    }

    /// A temporary file that is removed unless it is moved into place.
    pub(super) struct TempFile<'a> {
        folder: &'a OwnedFd,
        name: String,
        pub(super) file: File,
    }

    impl<'a> TempFile<'a> {
        /// Creates the file with the permissions of `like`, the file that it will replace.
        pub(super) fn create(folder: &'a OwnedFd, like: Option<&Stat>) -> io::Result<Self> {
            let name = format!(".soong-{}.tmp", uuid::Uuid::now_v7().simple());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(openat(folder, &name, flags, Mode::from_raw_mode(0o666))?);
            let draft = Self { folder, name, file };
            if let Some(stat) = like {
                rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
            }
            Ok(draft)
        }

        /// Moves the file into place. If `over` is set, replaces the existing file; otherwise fails if a file exists.
        pub(super) fn persist(self, name: &OsStr, over: bool) -> io::Result<()> {
            if over {
                renameat(self.folder, self.name.as_str(), self.folder, name)?;
            } else {
                // Creating a second link fails if the name exists. Dropping the draft removes the temporary name.
                linkat(self.folder, self.name.as_str(), self.folder, name, AtFlags::empty())?;
            }
            // Makes the name durable, like the content.
            match rustix::fs::fsync(self.folder) {
                Ok(()) | Err(Errno::INVAL) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    impl Drop for TempFile<'_> {
        fn drop(&mut self) {
            // A renamed file no longer has this name, and no other file ever has it.
            let _ = unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
#[path = "safe_fs/tests.rs"]
mod tests;
