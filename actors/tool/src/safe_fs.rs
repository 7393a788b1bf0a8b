//! Opens and writes files below a root without following symlinks.
//!
//! The folder of a file is opened beneath the root: on Linux by `openat2`, elsewhere component by
//! component, each opened relative to the previous one. A symlink that was created after the path
//! was resolved causes an error. Only regular files are opened, and opening never waits for a pipe
//! or device. A file is written under a temporary name in its folder and moved into place when it
//! is complete.
//!
//! Writes of one file never overwrite each other unseen (TOOL-4). In this process, a lock covers
//! the check of the file that is replaced and its replacement. Other programs know no lock: the new
//! file is exchanged with the old one, which is checked again, and exchanged back if it was changed
//! meanwhile. A program that has the old file open still writes to it.
//!
//! The temporary file is locked until it is in place, so a process that finds an older one without
//! a lock knows that its writer was killed. After the exchange, its name may hold another program's
//! file, so it gets a name before that is never cleaned up.
//!
//! Elsewhere: which paths may be opened (`path_policy.rs`), and which require permission (the
//! tools).

use std::{
    ffi::OsStr,
    fs::{File, Metadata},
    io::{self, Read, Write},
    os::fd::OwnedFd,
    path::Path,
    time::SystemTime,
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
    let refuse = |what: &str| {
        Err(ErrorInfo::new(
            ErrorCode::UnsupportedMedia,
            format!("`{name}` is {what}"),
        ))
    };
    if metadata.is_dir() {
        return refuse("a folder: use list_files to see what is in it");
    }
    if !metadata.is_file() {
        return refuse("neither a file nor a folder (a pipe, socket or device): it cannot be read");
    }
    Ok((file, metadata))
}

/// Reads up to `max_bytes` of a text file of a project, for a run that did not request it with a
/// tool call. Returns the text, and whether it is the whole file.
///
/// Files that would require permission are rejected: files outside the project, sensitive files,
/// and files with other hard links.
pub fn read_text(
    roots: &PathPolicy,
    project: &Path,
    path: &str,
    max_bytes: u64,
) -> Result<(String, bool), ErrorInfo> {
    let resolved = roots.resolve_existing(project, path)?;
    if !resolved.is_project || roots.read_access(&resolved).is_some() {
        let message = format!(
            "`{}` is not read without being asked for",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::PermissionDenied, message));
    }
    let (file, metadata) = open_file(&resolved)?;
    if has_other_names(&metadata) {
        return Err(path_changed_error(&resolved));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| io_error(&resolved.display_name(), &error))?;
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let is_whole = bytes.len() <= most;
    let text = if is_whole {
        &bytes[..]
    } else {
        // Cut at a character boundary.
        let first = bytes[..most].utf8_chunks().next();
        first.map_or(&[][..], |chunk| chunk.valid().as_bytes())
    };
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        let message = format!(
            "`{}` is UTF-16 text: save it as UTF-8",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
    }
    // Some editors write a byte order mark before the text.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    Ok((String::from_utf8_lossy(text).into_owned(), is_whole))
}

/// Returns the names in a folder of a project; empty if there is no such folder.
pub fn list_dir_names(roots: &PathPolicy, project: &Path, folder: &str) -> Vec<String> {
    let resolved = roots
        .resolve_existing(project, folder)
        .ok()
        .filter(|index| index.is_project);
    let entries = resolved.and_then(|index| std::fs::read_dir(index.path).ok());
    entries
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect()
}

/// Writes a file atomically: afterwards it has its complete new content or is unchanged. Returns
/// whether the file is new.
///
/// `is_expected` decides by the content of the existing file whether it may be replaced. It is
/// called before the file is replaced, and again after that with the file that was replaced; if it
/// rejects that one, the replacement is undone.
pub(super) fn write_file(
    resolved: &ResolvedPath,
    content: &[u8],
    mode: WriteMode,
    cancel: &CancellationToken,
    mut is_expected: impl FnMut(&mut File) -> bool,
) -> Result<bool, ErrorInfo> {
    let Some(file_name) = resolved.path.file_name() else {
        return Err(ErrorInfo::new(
            ErrorCode::ValidationError,
            "the path names no file",
        ));
    };
    let fail = |error: io::Error| write_error(resolved, &error);
    let folder = unix::open_parent_dir(resolved, mode.create_dirs).map_err(fail)?;
    let before = unix::entry_stat(&folder, file_name).map_err(fail)?;
    let kind = before.map(|stat| FileType::from_raw_mode(stat.st_mode));
    if let Some(kind) = kind.filter(|kind| *kind != FileType::RegularFile) {
        let what = if kind == FileType::Directory {
            "a folder"
        } else {
            "no regular file"
        };
        let message = format!(
            "`{}` is {what}: choose another path",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    if before.is_some() && !mode.overwrite {
        let message = format!(
            "`{}` exists already: read it and use edit, or write it with overwrite=true to replace all of it",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    let mut draft =
        unix::TempFile::create(&folder, before.as_ref().map(|before| (file_name, before)))
            .map_err(fail)?;
    draft
        .file
        .write_all(content)
        .and_then(|()| draft.file.sync_all())
        .map_err(fail)?;
    let lock = unix::lock_entry(&folder, file_name).map_err(fail)?;
    check_cancelled(cancel)?;
    let is_in_place = match &before {
        Some(before) => draft
            .take_exchange_name()
            .and_then(|()| draft.replace(file_name, before, &mut is_expected)),
        None => draft.persist_new(file_name),
    };
    drop(lock);
    if !is_in_place.map_err(fail)? {
        return Err(path_changed_error(resolved));
    }
    unix::sync_folder(&folder).map_err(fail)?;
    Ok(before.is_none())
}

/// Opens the folder of a file for [`replace_if`] and the like. `path` must be absolute, without
/// symlinks.
fn parent_of(path: &Path) -> io::Result<(OwnedFd, &OsStr)> {
    let no_file = || io::Error::new(io::ErrorKind::InvalidInput, "the path names no file");
    let name = path.file_name().ok_or_else(no_file)?;
    let folder = path.parent().ok_or_else(no_file)?;
    Ok((unix::open_root(folder)?, name))
}

/// Creates a file atomically, with these permissions. Returns `false` if the name exists. `path`
/// must be absolute, without symlinks.
pub fn create_new(path: &Path, content: &[u8], mode: u32) -> io::Result<bool> {
    let (folder, name) = parent_of(path)?;
    let mut draft = unix::TempFile::create(&folder, None)?;
    draft.set_mode(mode)?;
    draft.file.write_all(content)?;
    draft.file.sync_all()?;
    let is_created = draft.persist_new(name)?;
    unix::sync_folder(&folder)?;
    Ok(is_created)
}

/// Replaces the content of a file atomically, if it has the expected content. Returns `false`, and
/// changes nothing, if it does not, or if it is no regular file. Owner and permissions stay. `path`
/// must be absolute, without symlinks.
///
/// `is_expected` is called before and after the replacement, as in the tools that write.
pub fn replace_if(
    path: &Path,
    content: &[u8],
    is_expected: impl FnMut(&mut File) -> bool,
) -> io::Result<bool> {
    replace(path, content, false, is_expected)
}

/// Same as [`replace_if`], for a file whose writers hold a lock, except for editors. What a killed
/// writer has left is always removed by [`remove_drafts_in`], even if it is what an editor saved at
/// the very moment of the kill.
pub fn replace_locked_if(
    path: &Path,
    content: &[u8],
    is_expected: impl FnMut(&mut File) -> bool,
) -> io::Result<bool> {
    replace(path, content, true, is_expected)
}

fn replace(
    path: &Path,
    content: &[u8],
    is_locked: bool,
    mut is_expected: impl FnMut(&mut File) -> bool,
) -> io::Result<bool> {
    let (folder, name) = parent_of(path)?;
    let Some(before) = unix::regular_entry_stat(&folder, name)? else {
        return Ok(false);
    };
    let mut draft = unix::TempFile::create(&folder, Some((name, &before)))?;
    draft.file.write_all(content)?;
    draft.file.sync_all()?;
    if !is_locked {
        draft.take_exchange_name()?;
    }
    let lock = unix::lock_entry(&folder, name)?;
    let is_replaced = draft.replace(name, &before, &mut is_expected)?;
    drop(lock);
    unix::sync_folder(&folder)?;
    Ok(is_replaced)
}

/// Removes a file if it has the expected content. Returns `false`, and changes nothing, if it does
/// not, or if it is no regular file. `path` must be absolute, without symlinks. Where files cannot
/// be renamed without replacing others, the content is only checked before the removal.
pub fn remove_if(path: &Path, mut is_expected: impl FnMut(&mut File) -> bool) -> io::Result<bool> {
    let (folder, name) = parent_of(path)?;
    let Some(before) = unix::regular_entry_stat(&folder, name)? else {
        return Ok(false);
    };
    let lock = unix::lock_entry(&folder, name)?;
    let is_removed = unix::remove_if(&folder, name, &before, &mut is_expected)?;
    drop(lock);
    unix::sync_folder(&folder)?;
    Ok(is_removed)
}

/// Removes the temporary files from before `started` that killed processes left in the folder of
/// `path`, which is relative to the project or absolute. Returns their number. Does nothing if the
/// folder does not exist or may not be used.
///
/// `started` must be before any write that may be in progress and has not locked its file yet.
pub fn remove_drafts_beside(
    roots: &PathPolicy,
    project: &Path,
    path: &str,
    started: SystemTime,
) -> usize {
    let Ok(resolved) = roots.resolve_new(project, path) else {
        return 0;
    };
    let Ok(folder) = unix::open_parent_dir(&resolved, false) else {
        return 0;
    };
    unix::remove_abandoned_drafts(&folder, started)
}

/// Same as [`remove_drafts_beside`], for a folder.
pub fn remove_drafts_in(folder: &Path, started: SystemTime) -> usize {
    unix::open_root(folder).map_or(0, |folder| unix::remove_abandoned_drafts(&folder, started))
}

/// Returns whether an open file has this content.
pub fn has_content(file: &mut File, content: &[u8]) -> bool {
    read_exactly(file, content.len()).is_some_and(|found| found == content)
}

/// Reads an open file if it has exactly this size.
pub(super) fn read_exactly(file: &mut File, size_bytes: usize) -> Option<Vec<u8>> {
    let size = size_bytes as u64;
    if file.metadata().ok()?.len() != size {
        return None;
    }
    let mut content = Vec::new();
    file.take(size + 1).read_to_end(&mut content).ok()?;
    (content.len() == size_bytes).then_some(content)
}

fn write_error(resolved: &ResolvedPath, error: &io::Error) -> ErrorInfo {
    let name = resolved.display_name();
    match error.kind() {
        // A component has become a symlink since the path was resolved.
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
            path_changed_error(resolved)
        }
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => io_error(&name, error),
        io::ErrorKind::StorageFull
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::PermissionDenied => {
            let message = format!("`{name}` cannot be opened or written: {}", error.kind());
            ErrorInfo::new(ErrorCode::ValidationError, message)
        }
        _ => io_error(&name, error),
    }
}

/// Operating system calls.
mod unix {
    use std::{
        ffi::OsStr,
        fs::File,
        hash::{DefaultHasher, Hash, Hasher},
        io,
        os::fd::OwnedFd,
        path::Path,
        sync::{Mutex, MutexGuard, PoisonError},
        time::{Duration, SystemTime},
    };

    #[cfg(target_os = "linux")]
    use rustix::fs::{ResolveFlags, openat2};
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    use rustix::fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr};
    use rustix::{
        fs::{
            AtFlags, CWD, FileType, FlockOperation, Mode, OFlags, Stat, flock, fstat, linkat,
            mkdirat, openat, renameat, statat, unlinkat,
        },
        io::Errno,
    };

    use super::super::project_path::ResolvedPath;

    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    /// Maximum size of an extended attribute, and of the list of their names, in bytes (limits of
    /// Linux).
    const MAX_ATTRIBUTE_BYTES: usize = 65_536;
    const FOLDER: OFlags = OFlags::DIRECTORY
        .union(OFlags::NOFOLLOW)
        .union(OFlags::CLOEXEC)
        .union(OFlags::RDONLY);
    #[cfg(target_os = "linux")]
    const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS);

    /// Opens the root. On Linux no component of its path may be a symlink, because the path was
    /// resolved when it was allowed.
    pub(super) fn open_root(root: &Path) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        match openat2(CWD, root, FOLDER, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
            // Old kernels and some containers do not support this system call.
            Err(Errno::NOSYS | Errno::PERM) => {}
            opened => return Ok(opened?),
        }
        Ok(openat(CWD, root, FOLDER, Mode::empty())?)
    }

    /// Opens the folder that contains a file. If `create` is set, creates the missing folders of
    /// its path.
    pub(super) fn open_parent_dir(resolved: &ResolvedPath, create: bool) -> io::Result<OwnedFd> {
        let root = open_root(&resolved.root)?;
        let parent = resolved.relative.parent().unwrap_or(Path::new(""));
        // Because of the `.`, a symlink at the end fails with `ELOOP` like any other, not with
        // `ENOTDIR`.
        #[cfg(target_os = "linux")]
        match openat2(&root, parent.join("."), FOLDER, Mode::empty(), BENEATH) {
            Err(Errno::NOSYS | Errno::PERM) => {}
            Err(Errno::NOENT) if create => {}
            opened => return Ok(opened?),
        }
        open_each_component(root, parent, create)
    }

    /// Opens a folder below `at` component by component. If `create` is set, creates the missing
    /// ones.
    pub(super) fn open_each_component(
        mut at: OwnedFd,
        path: &Path,
        create: bool,
    ) -> io::Result<OwnedFd> {
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
    pub(super) fn open(resolved: &ResolvedPath) -> io::Result<File> {
        let folder = open_parent_dir(resolved, false)?;
        let Some(name) = resolved.relative.file_name() else {
            return Ok(File::from(folder));
        };
        let stat = statat(&folder, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile | FileType::Directory => {}
            FileType::Symlink => return Err(Errno::LOOP.into()),
            // Opening a device may have side effects. The caller reports everything that is neither
            // a file nor a folder with the same error.
            _ => return File::open("/dev/null"),
        }
        // Do not wait for a pipe or device that has replaced the file in the meantime.
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        Ok(File::from(openat(&folder, name, flags, Mode::empty())?))
    }

    /// Returns the kind and mode of a name in a folder; `None` if there is no such name.
    pub(super) fn entry_stat(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => Ok(None),
            stat => Ok(Some(stat?)),
        }
    }

    /// Returns the metadata of a regular file in a folder; `None` if the name does not exist or is
    /// something else.
    pub(super) fn regular_entry_stat(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Stat>> {
        let stat = entry_stat(folder, name)?;
        Ok(stat.filter(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile))
    }

    /// Locks of entries of folders. An entry has the lock that its hash selects.
    static LOCKS: [Mutex<()>; 64] = [const { Mutex::new(()) }; 64];

    /// Waits until no other write of this process checks and replaces the entry of the folder.
    pub(super) fn lock_entry(
        folder: &OwnedFd,
        name: &OsStr,
    ) -> io::Result<MutexGuard<'static, ()>> {
        let stat = fstat(folder)?;
        let mut hasher = DefaultHasher::new();
        (stat.st_dev, stat.st_ino, name).hash(&mut hasher);
        let index = hasher.finish() as usize % LOCKS.len();
        Ok(LOCKS[index].lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes the names of a folder durable, like the contents of its files.
    pub(super) fn sync_folder(folder: &OwnedFd) -> io::Result<()> {
        match rustix::fs::fsync(folder) {
            Ok(()) | Err(Errno::INVAL) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Exchanges two entries of a folder in one step.
    fn exchange(folder: &OwnedFd, one: &OsStr, other: &OsStr) -> Result<(), Errno> {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        return rustix::fs::renameat_with(
            folder,
            one,
            folder,
            other,
            rustix::fs::RenameFlags::EXCHANGE,
        );
        #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
        return Err(Errno::NOSYS);
    }

    /// Renames an entry of a folder, unless the new name exists.
    fn rename_new(folder: &OwnedFd, from: &OsStr, to: &OsStr) -> Result<(), Errno> {
        #[cfg(any(target_os = "linux", target_vendor = "apple"))]
        return rustix::fs::renameat_with(
            folder,
            from,
            folder,
            to,
            rustix::fs::RenameFlags::NOREPLACE,
        );
        #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
        return Err(Errno::NOSYS);
    }

    /// Beginning of the names of temporary files.
    const DRAFT_PREFIX: &str = ".soong-";
    /// End of the names of temporary files that are being written. A file with this name is never
    /// another program's.
    const DRAFT_SUFFIX: &str = ".tmp";
    /// End of the names of temporary files that are being exchanged. A file with this name may be
    /// another program's.
    const EXCHANGE_SUFFIX: &str = ".replaced";

    fn unique_name(suffix: &str) -> String {
        format!("{DRAFT_PREFIX}{}{suffix}", uuid::Uuid::now_v7().simple())
    }

    /// Returns when a temporary file with this name was created; `None` if it is not the name of
    /// one.
    fn draft_time(name: &str) -> Option<SystemTime> {
        let id = name
            .strip_prefix(DRAFT_PREFIX)?
            .strip_suffix(DRAFT_SUFFIX)?;
        let (seconds, nanos) = uuid::Uuid::try_parse(id).ok()?.get_timestamp()?.to_unix();
        Some(SystemTime::UNIX_EPOCH + Duration::new(seconds, nanos))
    }

    /// Removes the temporary files of a folder from before `started` whose writers were killed.
    /// Returns their number.
    pub(super) fn remove_abandoned_drafts(folder: &OwnedFd, started: SystemTime) -> usize {
        let mut removed = 0;
        let Ok(entries) = rustix::fs::Dir::read_from(folder) else {
            return removed;
        };
        for entry in entries.flatten() {
            let created = entry.file_name().to_str().ok().and_then(draft_time);
            if created.is_none_or(|created| created >= started) {
                continue;
            }
            let flags = OFlags::RDONLY
                | OFlags::NOFOLLOW
                | OFlags::CLOEXEC
                | OFlags::NONBLOCK
                | OFlags::NOCTTY;
            let Ok(file) = openat(folder, entry.file_name(), flags, Mode::empty()) else {
                continue;
            };
            let is_regular = fstat(&file)
                .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile);
            if is_regular
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && unlinkat(folder, entry.file_name(), AtFlags::empty()).is_ok()
            {
                removed += 1;
            }
        }
        removed
    }

    /// Removes a file if it is as expected. It is checked again under another name, where other
    /// programs do not replace it.
    pub(super) fn remove_if(
        folder: &OwnedFd,
        name: &OsStr,
        before: &Stat,
        is_expected: &mut dyn FnMut(&mut File) -> bool,
    ) -> io::Result<bool> {
        if !is_as_expected(folder, name, before, is_expected)? {
            return Ok(false);
        }
        let taken_name = unique_name(EXCHANGE_SUFFIX);
        let moved_name: &OsStr = taken_name.as_ref();
        match rename_new(folder, name, moved_name) {
            Ok(()) => {}
            Err(Errno::NOENT) => return Ok(false),
            // Not supported.
            Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                unlinkat(folder, name, AtFlags::empty())?;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        }
        if is_as_expected(folder, moved_name, before, is_expected).unwrap_or(false) {
            unlinkat(folder, moved_name, AtFlags::empty())?;
            return Ok(true);
        }
        match rename_new(folder, moved_name, name) {
            // Another program has created the name again: its newest file stays, and the older one
            // keeps the other name.
            Ok(()) | Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Gives a new file the access control list and the extended attributes of an entry, except for
    /// those that the system derives from the content or from the writer. Attributes that may not
    /// be set are left out. Returns whether the list is that of the entry.
    #[cfg(any(target_os = "linux", target_vendor = "apple"))]
    fn copy_attributes(folder: &OwnedFd, name: &OsStr, file: &File) -> bool {
        const ACCESS_CONTROL_LIST: &[u8] = b"system.posix_acl_access";
        const LABEL: &[u8] = b"security.selinux";
        const OF_USERS: &[u8] = b"user.";
        // A new file may have inherited a list from its folder.
        let _ = fremovexattr(file, ACCESS_CONTROL_LIST);
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let Ok(from) = openat(folder, name, flags, Mode::empty()) else {
            return false;
        };
        let mut names = vec![0; MAX_ATTRIBUTE_BYTES];
        let names_length = match flistxattr(&from, &mut names[..]) {
            Ok(length) => length,
            // The file system has no attributes.
            Err(error) => return error == Errno::OPNOTSUPP,
        };
        let mut has_equal_list = true;
        let mut value = vec![0; MAX_ATTRIBUTE_BYTES];
        for name in names[..names_length].split(|byte| *byte == 0) {
            let is_list = name == ACCESS_CONTROL_LIST;
            if !is_list && name != LABEL && !name.starts_with(OF_USERS) {
                continue;
            }
            let copied = fgetxattr(&from, name, &mut value[..])
                .and_then(|length| fsetxattr(file, name, &value[..length], XattrFlags::empty()));
            has_equal_list &= copied.is_ok() || !is_list;
        }
        has_equal_list
    }

    #[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
    fn copy_attributes(_: &OwnedFd, _: &OsStr, _: &File) -> bool {
        true
    }

    /// A temporary file that is removed unless it is moved into place.
    pub(super) struct TempFile<'a> {
        folder: &'a OwnedFd,
        name: String,
        pub(super) file: File,
        /// Whether the temporary name may be that of a file of another program, which is not
        /// removed.
        keeps_entry: bool,
    }

    impl<'a> TempFile<'a> {
        /// Creates the file with owner, permissions, access control list and extended attributes of
        /// `like`, the file that it will replace. Owner and attributes stay as they are in a new
        /// file if they cannot be set.
        pub(super) fn create(
            folder: &'a OwnedFd,
            like: Option<(&OsStr, &Stat)>,
        ) -> io::Result<Self> {
            let name = unique_name(DRAFT_SUFFIX);
            let flags =
                OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(openat(folder, &name, flags, Mode::from_raw_mode(0o666))?);
            // Not all file systems have locks. Without one, the file of a killed process stays.
            let _ = flock(&file, FlockOperation::NonBlockingLockExclusive);
            let draft = Self {
                folder,
                name,
                file,
                keeps_entry: false,
            };
            if let Some((replaced_name, stat)) = like {
                let own = fstat(&draft.file)?;
                if (own.st_uid, own.st_gid) != (stat.st_uid, stat.st_gid) {
                    let owner = rustix::fs::Uid::from_raw(stat.st_uid);
                    let group = rustix::fs::Gid::from_raw(stat.st_gid);
                    if rustix::fs::fchown(&draft.file, Some(owner), Some(group)).is_err() {
                        // A member of the group may set the group alone.
                        let _ = rustix::fs::fchown(&draft.file, None, Some(group));
                    }
                }
                // With an access control list, the mode of the group is the mask of the list:
                // without the list, it would give the group more than it had.
                let bits = if copy_attributes(folder, replaced_name, &draft.file) {
                    0o777
                } else {
                    0o707
                };
                rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(stat.st_mode & bits))?;
            }
            Ok(draft)
        }

        pub(super) fn set_mode(&mut self, mode: u32) -> io::Result<()> {
            Ok(rustix::fs::fchmod(&self.file, Mode::from_raw_mode(mode))?)
        }

        /// Moves the file into place. Returns `false` if an entry with the name exists.
        pub(super) fn persist_new(&self, name: &OsStr) -> io::Result<bool> {
            let own_name: &OsStr = self.name.as_ref();
            let renamed = match rename_new(self.folder, own_name, name) {
                Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => {
                    // Not supported. A second link fails as well if the name exists; dropping the
                    // draft removes the first.
                    linkat(self.folder, own_name, self.folder, name, AtFlags::empty())
                }
                renamed => renamed,
            };
            match renamed {
                Ok(()) => Ok(true),
                Err(Errno::EXIST) => Ok(false),
                Err(error) => Err(error.into()),
            }
        }

        /// Gives the file a name that is never cleaned up, because after the exchange it may hold
        /// another program's file.
        pub(super) fn take_exchange_name(&mut self) -> io::Result<()> {
            let exchange_name = unique_name(EXCHANGE_SUFFIX);
            renameat(
                self.folder,
                self.name.as_str(),
                self.folder,
                exchange_name.as_str(),
            )?;
            self.name = exchange_name;
            Ok(())
        }

        /// Replaces the entry with the name, which had the metadata `before`. Returns `false`, and
        /// changes nothing, if it is no longer as expected.
        pub(super) fn replace(
            &mut self,
            name: &OsStr,
            before: &Stat,
            is_expected: &mut dyn FnMut(&mut File) -> bool,
        ) -> io::Result<bool> {
            if !is_as_expected(self.folder, name, before, is_expected)? {
                return Ok(false);
            }
            let own_name = self.name.clone();
            let own_name: &OsStr = own_name.as_ref();
            match exchange(self.folder, own_name, name) {
                Ok(()) => {}
                // Removed since the check.
                Err(Errno::NOENT) => return Ok(false),
                // The kernel, the container or the file system does not support it. Other errors
                // fail this as well.
                Err(_) => {
                    renameat(self.folder, own_name, self.folder, name)?;
                    return Ok(true);
                }
            }
            if is_as_expected(self.folder, own_name, before, is_expected).unwrap_or(false) {
                // The replaced file has the temporary name now, and is removed with it.
                return Ok(true);
            }
            // Another program has replaced or changed the file since the check: it gets its file
            // back.
            self.keeps_entry = true;
            match exchange(self.folder, own_name, name) {
                Ok(()) => {}
                // The other program has removed the name.
                Err(Errno::NOENT) => {
                    self.take_exchange_name()?;
                    return Ok(false);
                }
                Err(error) => return Err(error.into()),
            }
            let own = fstat(&self.file)?;
            let moved = statat(self.folder, own_name, AtFlags::SYMLINK_NOFOLLOW)?;
            if (own.st_dev, own.st_ino) != (moved.st_dev, moved.st_ino) {
                // It has written once more in between: its newest file stays. The older one keeps
                // the temporary name, in case that it has written yet again.
                exchange(self.folder, own_name, name)?;
                self.take_exchange_name()?;
                return Ok(false);
            }
            self.keeps_entry = false;
            Ok(false)
        }
    }

    /// Returns whether an entry is a regular file with unchanged owner and permissions, and the
    /// expected content.
    fn is_as_expected(
        folder: &OwnedFd,
        name: &OsStr,
        before: &Stat,
        is_expected: &mut dyn FnMut(&mut File) -> bool,
    ) -> io::Result<bool> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let mut file = match openat(folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // Removed meanwhile, or replaced by a symlink.
            Err(Errno::NOENT | Errno::LOOP) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let now = fstat(&file)?;
        let is_regular = FileType::from_raw_mode(now.st_mode) == FileType::RegularFile;
        let is_same_owner =
            (now.st_mode, now.st_uid, now.st_gid) == (before.st_mode, before.st_uid, before.st_gid);
        Ok(is_regular && is_same_owner && is_expected(&mut file))
    }

    impl Drop for TempFile<'_> {
        fn drop(&mut self) {
            if self.keeps_entry {
                return;
            }
            // A renamed file no longer has this name. After an exchange, the replaced file has it.
            let _ = unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
#[path = "safe_fs/tests.rs"]
mod tests;
