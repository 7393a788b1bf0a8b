//! The project directory as the file tools see it: which path is meant, and how names are shown.
//!
//! Architecture invariant: whatever a tool opens went through [`locate`], which resolves symlinks
//! and refuses what lies outside; the type is checked before and after opening, so that no FIFO and
//! no device is read. Names are shown escaped, and the escaped form is understood again.
//! Not here: allowed roots beyond the project, permissions.

pub(super) mod walk;

use std::{
    fmt::Write as _,
    fs::{File, Metadata},
    io,
    path::{Component, Path, PathBuf},
};

use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::sync::CancellationToken;

use super::{ToolContext, ToolResult};

/// Something that exists inside the project.
#[derive(Debug, Clone)]
pub(super) struct Place {
    /// Where it is; absolute, symlinks resolved.
    pub(super) path: PathBuf,
    /// The same, seen from the project directory; empty for the project itself.
    pub(super) relative: PathBuf,
}

impl Place {
    /// Returns how people and models see it.
    pub(super) fn shown(&self) -> String {
        if self.relative.as_os_str().is_empty() { ".".to_owned() } else { shown(&self.relative) }
    }
}

/// Finds what `asked` means: relative to the project, or absolute inside it.
///
/// A name in its shown, escaped form is understood as well, where no file of the literal name exists.
pub(super) fn locate(project: &Path, asked: &str) -> Result<Place, ErrorInfo> {
    let literal = resolve(project, asked, Path::new(asked));
    if let Err(error) = &literal
        && error.code == ErrorCode::FileNotFound
        && let Some(meant) = unescaped(asked)
    {
        return resolve(project, asked, &meant).or(literal);
    }
    literal
}

fn resolve(project: &Path, asked: &str, path: &Path) -> Result<Place, ErrorInfo> {
    let name = shown(Path::new(asked));
    let outside = || {
        let message = format!("`{name}` lies outside the project: name a path below the project directory");
        Err(ErrorInfo::new(ErrorCode::OutsideAllowedRoots, message))
    };
    if asked.contains('\0') {
        let message = "the path holds a NUL character: no file can have that name";
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    // Before the disk is asked: an error must not tell what exists outside.
    let inside = path.is_absolute() || stays_inside(path);
    if !inside {
        return outside();
    }
    match project.join(path).canonicalize() {
        Ok(path) => match path.strip_prefix(project) {
            Ok(relative) => Ok(Place { relative: relative.to_owned(), path: path.clone() }),
            Err(_) => outside(),
        },
        Err(_) if path.is_absolute() && !path.strip_prefix(project).is_ok_and(stays_inside) => outside(),
        Err(error) => Err(io_error(&name, &error)),
    }
}

fn stays_inside(relative: &Path) -> bool {
    let mut depth = 0_i64;
    relative.components().all(|part| {
        depth += match part {
            Component::Normal(_) => 1,
            Component::ParentDir => -1,
            Component::CurDir => 0,
            Component::RootDir | Component::Prefix(_) => i64::MIN / 2,
        };
        depth >= 0
    })
}

/// Puts a failure of the file system into words that a model can act on.
pub(super) fn io_error(name: &str, error: &io::Error) -> ErrorInfo {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorInfo::new(
            ErrorCode::FileNotFound,
            format!("there is no `{name}` in the project: look with list_files or glob what there is"),
        ),
        // The system's words, without the path: that is absolute, and the name is told already.
        kind => ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("`{name}` cannot be read: {kind}. Go on without it, or ask for another path."),
        ),
    }
}

/// Opens a regular file; everything else is refused before it is opened.
pub(super) fn open_file(place: &Place) -> Result<(File, Metadata), ErrorInfo> {
    let name = place.shown();
    let refuse = |what: &str| ErrorInfo::new(ErrorCode::UnsupportedMedia, format!("`{name}` is {what}"));
    let before = place.path.symlink_metadata().map_err(|error| io_error(&name, &error))?;
    if before.is_dir() {
        return Err(refuse("a folder: use list_files to see what is in it"));
    }
    let special = "neither a file nor a folder (a pipe, socket or device): it cannot be read";
    if !before.is_file() {
        return Err(refuse(special));
    }
    let file = File::open(&place.path).map_err(|error| io_error(&name, &error))?;
    let after = file.metadata().map_err(|error| io_error(&name, &error))?;
    // Somebody may have put something else there in between.
    if !after.is_file() || !same_file(&before, &after) {
        return Err(refuse("changed while it was opened: try again"));
    }
    Ok((file, after))
}

#[cfg(unix)]
fn same_file(before: &Metadata, after: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (before.dev(), before.ino()) == (after.dev(), after.ino())
}

#[cfg(not(unix))]
fn same_file(_: &Metadata, _: &Metadata) -> bool {
    true
}

/// Shows a path: characters that could forge a line, hide, or break out of Markdown are escaped.
pub(super) fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\t' => text.push_str("\\t"),
                '\r' => text.push_str("\\r"),
                c if c == '`' || c.is_control() || is_invisible(c) => {
                    let _ = write!(text, "\\u{{{:x}}}", u32::from(c));
                }
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Marks that turn the writing direction, join, or take no room: they make two names look alike.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Reads a name in its shown form; `None` where it holds nothing escaped, or is no such form.
fn unescaped(text: &str) -> Option<PathBuf> {
    if !text.contains('\\') {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest.get(at + 1..)?;
        let (kind, after) = (escape.chars().next()?, escape.get(1..)?);
        rest = after;
        match kind {
            '\\' => bytes.push(b'\\'),
            'n' => bytes.push(b'\n'),
            't' => bytes.push(b'\t'),
            'r' => bytes.push(b'\r'),
            'x' => {
                bytes.push(u8::from_str_radix(after.get(..2)?, 16).ok()?);
                rest = &after[2..];
            }
            'u' => {
                let (code, tail) = after.strip_prefix('{')?.split_once('}')?;
                let c = char::from_u32(u32::from_str_radix(code, 16).ok()?)?;
                bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                rest = tail;
            }
            _ => return None,
        }
    }
    bytes.extend_from_slice(rest.as_bytes());
    // A NUL would cut the name short for the system.
    (!bytes.contains(&0)).then(|| path_of(bytes)).flatten()
}

#[cfg(unix)]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStringExt;
    Some(std::ffi::OsString::from_vec(bytes).into())
}

#[cfg(not(unix))]
fn path_of(bytes: Vec<u8>) -> Option<PathBuf> {
    String::from_utf8(bytes).ok().map(PathBuf::from)
}

/// Runs the blocking part of a tool off the async threads.
///
/// The token that `work` gets is tripped by a cancel, and also when the future is dropped for any
/// other reason (a timeout, say): nothing must go on working for nobody.
pub(super) async fn blocking<W>(context: ToolContext, work: W) -> ToolResult
where
    W: FnOnce(&ToolContext, &CancellationToken) -> ToolResult + Send + 'static,
{
    let token = context.cancel.child_token();
    let _tripped_on_drop = token.clone().drop_guard();
    match tokio::task::spawn_blocking(move || work(&context, &token)).await {
        Ok(result) => result,
        Err(error) => Err(ErrorInfo::new(ErrorCode::InternalError, format!("the tool broke off: {error}"))),
    }
}

/// Returns an error once the call is cancelled.
pub(super) fn stop_if(cancel: &CancellationToken) -> Result<(), ErrorInfo> {
    if cancel.is_cancelled() {
        return Err(ErrorInfo::new(ErrorCode::Cancelled, "cancelled"));
    }
    Ok(())
}

/// Room that a [`Page`] keeps for its closing note, in bytes.
const NOTE_ROOM_BYTES: usize = 512;

/// Output that ends at a whole line before it outgrows its limit.
pub(super) struct Page {
    text: String,
    limit_bytes: usize,
    /// Whether a line found no more room; later ones are refused too.
    pub(super) full: bool,
}

impl Page {
    /// Makes an empty page for at most `limit_bytes`, the note included.
    pub(super) fn new(limit_bytes: usize) -> Self {
        Self { text: String::new(), limit_bytes: limit_bytes.saturating_sub(NOTE_ROOM_BYTES), full: false }
    }

    /// Adds a line where there is room; returns whether there was.
    pub(super) fn line(&mut self, line: &str) -> bool {
        self.full |= self.text.len() + line.len() + 1 > self.limit_bytes;
        if !self.full {
            self.text.push_str(line);
            self.text.push('\n');
        }
        !self.full
    }

    /// Ends the page with a note in brackets. A note that is too long is cut.
    pub(super) fn close(mut self, note: &str) -> String {
        let end = note.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= NOTE_ROOM_BYTES - 8);
        let end = end.last().unwrap_or(0);
        let cut = if end < note.len() { "…" } else { "" };
        let _ = write!(self.text, "[{}{cut}]", &note[..end]);
        self.text
    }
}

#[cfg(test)]
#[path = "project/tests.rs"]
pub(crate) mod tests;
