//! Opening and writing files beneath a root without following a link.
//!
//! A path is walked part by part, each part opened from the one before: a link that was put there after the path was
//! resolved is an error, and leads nowhere. Only regular files are opened, and no pipe or device is waited for.
//! A file is written beside its place and moved there when it is whole.
//! Not here: which paths may be opened (`roots.rs`), and which need leave.

use std::{
    fs::{File, Metadata},
    io::{self, Read, Write},
    path::Path,
};

use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::sync::CancellationToken;

use super::{
    kernel_files,
    project::{Place, has_other_names, io_error, stop_if},
    roots::{Roots, changed, of_the_kernel},
};

/// What a file is written as.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Mode {
    /// Whether what is there may be replaced.
    pub(super) overwrite: bool,
    /// Whether folders on the way are made.
    pub(super) create_dirs: bool,
}

/// Opens a regular file; everything else is refused.
pub(super) fn open_file(place: &Place) -> Result<(File, Metadata), ErrorInfo> {
    let name = place.shown();
    let file = unix::open(place).map_err(|error| failed(place, &error))?;
    if kernel_files::file_system_of(&file).is_some() {
        return Err(of_the_kernel(&name));
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

/// Reads the beginning of a text file of a project, at most so many bytes, for an agent that did not ask for it; returns
/// whether that is all of it.
///
/// What would ask for leave is refused: files elsewhere, sensitive ones, and such that have other names.
pub(crate) fn read_text(
    roots: &Roots,
    project: &Path,
    path: &str,
    max_bytes: u64,
) -> Result<(String, bool), ErrorInfo> {
    let place = roots.locate(project, path)?;
    if !place.is_project || roots.reading(&place).is_some() {
        let message = format!("`{}` is not read without being asked for", place.shown());
        return Err(ErrorInfo::new(ErrorCode::PermissionDenied, message));
    }
    let (file, metadata) = open_file(&place)?;
    if has_other_names(&metadata) {
        return Err(changed(&place));
    }
    let mut bytes = Vec::new();
    file.take(max_bytes + 1).read_to_end(&mut bytes).map_err(|error| io_error(&place.shown(), &error))?;
    let most = usize::try_from(max_bytes).unwrap_or(usize::MAX);
    let is_whole = bytes.len() <= most;
    let text = match is_whole {
        true => &bytes[..],
        // Not within a character.
        false => bytes[..most].utf8_chunks().next().map_or(&[][..], |chunk| chunk.valid().as_bytes()),
    };
    if text.starts_with(&[0xff, 0xfe]) || text.starts_with(&[0xfe, 0xff]) {
        let message = format!("`{}` is UTF-16 text: save it as UTF-8", place.shown());
        return Err(ErrorInfo::new(ErrorCode::UnsupportedMedia, message));
    }
    // Some editors write a byte order mark before the text.
    let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text);
    Ok((String::from_utf8_lossy(text).into_owned(), is_whole))
}

/// Lists the names in a folder of a project; none where there is no such folder.
pub(crate) fn names_in(roots: &Roots, project: &Path, folder: &str) -> Vec<String> {
    let place = roots.locate(project, folder).ok().filter(|place| place.is_project);
    let entries = place.and_then(|place| std::fs::read_dir(place.path).ok());
    entries.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// Writes a file as a whole: it is there with all of its content, or as it was. Returns whether it is new.
///
/// `is_same` says of what is there whether it may be replaced; it is asked last of all.
pub(super) fn write_file(
    place: &Place,
    content: &[u8],
    mode: Mode,
    cancel: &CancellationToken,
    is_same: impl FnOnce(&Metadata) -> bool,
) -> Result<bool, ErrorInfo> {
    let Some(file_name) = place.path.file_name() else {
        return Err(ErrorInfo::new(ErrorCode::ValidationError, "the path names no file"));
    };
    let folder = unix::folder(place, mode.create_dirs).map_err(|error| failed(place, &error))?;
    let before = unix::look(&folder, file_name).map_err(|error| failed(place, &error))?;
    if let Some(kind) = before.as_ref().filter(|kind| !kind.is_file) {
        let what = if kind.is_folder { "a folder" } else { "no regular file" };
        let message = format!("`{}` is {what}: choose another path", place.shown());
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    if before.is_some() && !mode.overwrite {
        let message = format!(
            "`{}` exists already: read it and use edit, or write it with overwrite=true to replace all of it",
            place.shown()
        );
        return Err(ErrorInfo::new(ErrorCode::PathConflict, message));
    }
    let mut draft =
        unix::Draft::begin(&folder, before.as_ref().map(|known| known.mode)).map_err(|error| failed(place, &error))?;
    let written = draft.file().write_all(content).and_then(|()| draft.file().sync_all());
    written.map_err(|error| failed(place, &error))?;
    stop_if(cancel)?;
    if mode.overwrite && before.is_some() {
        let now = open_file(place)?.1;
        if !is_same(&now) {
            return Err(changed(place));
        }
    }
    let placed = draft.place(file_name, mode.overwrite && before.is_some());
    placed.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => changed(place),
        _ => failed(place, &error),
    })?;
    Ok(before.is_none())
}

fn failed(place: &Place, error: &io::Error) -> ErrorInfo {
    let name = place.shown();
    match error.kind() {
        // A link where none was when the path was resolved.
        _ if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => changed(place),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => io_error(&name, error),
        io::ErrorKind::StorageFull | io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            let message = format!("`{name}` cannot be opened or written: {}", error.kind());
            ErrorInfo::new(ErrorCode::ValidationError, message)
        }
        _ => io_error(&name, error),
    }
}

/// The system's part.
mod unix {
    use std::{ffi::OsStr, fs::File, io, os::fd::OwnedFd};

    use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, mkdirat, openat, renameat, statat, unlinkat};

    use super::super::project::Place;

    const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC).union(OFlags::RDONLY);

    /// What is known of a name in a folder.
    pub(super) struct Known {
        pub(super) is_file: bool,
        pub(super) is_folder: bool,
        pub(super) mode: u32,
    }

    /// Opens the root itself. On Linux no part of the way to it may be a symlink: it was resolved when it was allowed.
    fn root(place: &Place) -> io::Result<OwnedFd> {
        #[cfg(target_os = "linux")]
        match rustix::fs::openat2(CWD, &place.root, FOLDER, Mode::empty(), rustix::fs::ResolveFlags::NO_SYMLINKS) {
            // Old kernels, and some containers, do not have the call.
            Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => {}
            opened => return Ok(opened?),
        }
        Ok(openat(CWD, &place.root, FOLDER, Mode::empty())?)
    }

    /// A loop of links and a link that must not be followed are told alike.
    fn no_link(error: rustix::io::Errno, at: &OwnedFd, name: &OsStr) -> io::Error {
        let is_link = statat(at, name, AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink);
        if is_link { rustix::io::Errno::LOOP.into() } else { error.into() }
    }

    pub(super) fn open(place: &Place) -> io::Result<File> {
        let mut at = root(place)?;
        let mut parts = place.relative.iter().peekable();
        while let Some(part) = parts.next() {
            if parts.peek().is_some() {
                at = openat(&at, part, FOLDER, Mode::empty()).map_err(|error| no_link(error, &at, part))?;
                continue;
            }
            let stat = statat(&at, part, AtFlags::SYMLINK_NOFOLLOW)?;
            // Opening a device may do something: what is neither file nor folder is not opened for its content.
            let flags = match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile | FileType::Directory => OFlags::RDONLY,
                FileType::Symlink => return Err(rustix::io::Errno::LOOP.into()),
                _ => return special(),
            };
            // Whatever is put in its place meanwhile is not waited for.
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
            at = openat(&at, part, flags, Mode::empty()).map_err(|error| no_link(error, &at, part))?;
        }
        Ok(File::from(at))
    }

    fn special() -> io::Result<File> {
        // Anything that is neither a file nor a folder is told alike.
        Ok(File::from(openat(CWD, "/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?))
    }

    /// Opens the folder that a file lies in; makes what is missing of the way to it, where that is wished.
    pub(super) fn folder(place: &Place, create: bool) -> io::Result<OwnedFd> {
        let mut at = root(place)?;
        let Some(above) = place.relative.parent() else { return Ok(at) };
        for part in above {
            let next = match openat(&at, part, FOLDER, Mode::empty()) {
                Err(rustix::io::Errno::NOENT) if create => {
                    match mkdirat(&at, part, Mode::from_raw_mode(0o777)) {
                        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                    openat(&at, part, FOLDER, Mode::empty())
                }
                next => next,
            };
            at = next.map_err(|error| no_link(error, &at, part))?;
        }
        Ok(at)
    }

    pub(super) fn look(folder: &OwnedFd, name: &OsStr) -> io::Result<Option<Known>> {
        match statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => {
                let kind = FileType::from_raw_mode(stat.st_mode);
                let (is_file, is_folder) = (kind == FileType::RegularFile, kind == FileType::Directory);
                Ok(Some(Known { is_file, is_folder, mode: stat.st_mode & 0o7777 }))
            }
            Err(rustix::io::Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// A file on its way to its place; one that does not come there is removed.
    pub(super) struct Draft<'a> {
        folder: &'a OwnedFd,
        name: String,
        file: File,
        is_placed: bool,
    }

    impl<'a> Draft<'a> {
        pub(super) fn begin(folder: &'a OwnedFd, mode: Option<u32>) -> io::Result<Self> {
            let name = format!(".soong-{}.tmp", uuid::Uuid::now_v7().simple());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = File::from(openat(folder, &name, flags, Mode::from_raw_mode(0o666))?);
            let draft = Self { folder, name, file, is_placed: false };
            if let Some(mode) = mode {
                rustix::fs::fchmod(&draft.file, Mode::from_raw_mode(mode & 0o777))?;
            }
            Ok(draft)
        }

        pub(super) fn file(&mut self) -> &mut File {
            &mut self.file
        }

        /// Moves the file to its place: over what is there, or only where nothing is.
        pub(super) fn place(mut self, name: &OsStr, over: bool) -> io::Result<()> {
            if over {
                renameat(self.folder, self.name.as_str(), self.folder, name)?;
                self.is_placed = true;
            } else {
                // A second name fails where the first is taken; the draft's own goes with it.
                rustix::fs::linkat(self.folder, self.name.as_str(), self.folder, name, AtFlags::empty())?;
            }
            // The name lasts as well as the content.
            match rustix::fs::fsync(self.folder) {
                Ok(()) | Err(rustix::io::Errno::INVAL) => Ok(()),
                Err(error) => Err(error.into()),
            }
        }
    }

    impl Drop for Draft<'_> {
        fn drop(&mut self) {
            if !self.is_placed {
                let _ = unlinkat(self.folder, self.name.as_str(), AtFlags::empty());
            }
        }
    }
}

#[cfg(test)]
#[path = "beneath/tests.rs"]
mod tests;
