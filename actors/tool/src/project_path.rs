//! The project directory as the file tools see it: how names are shown, and pages of output.
//!
//! Names are shown escaped, and the tools accept the escaped form as input. Elsewhere: which paths
//! may be used (`path_policy.rs`), opening files (`safe_fs.rs`).

use std::{
    fmt::Write as _,
    fs::Metadata,
    io,
    path::{Path, PathBuf},
};

use soong_protocol::{ErrorCode, ErrorInfo};
use tokio_util::sync::CancellationToken;

use super::ToolContext;

/// Path of a file or folder inside the project or an allowed root.
#[derive(Debug, Clone)]
pub(super) struct ResolvedPath {
    /// Absolute path, with symlinks resolved.
    pub(super) path: PathBuf,
    /// Root that contains it.
    pub(super) root: PathBuf,
    /// Path relative to the root; empty for the root itself.
    pub(super) relative: PathBuf,
    /// Whether the root is the project.
    pub(super) is_project: bool,
}

impl ResolvedPath {
    /// Returns the path as users and models see it.
    pub(super) fn display_name(&self) -> String {
        self.display_name_of(&self.relative)
    }

    /// Returns how another path of the same root is shown; `relative` is relative to the root.
    pub(super) fn display_name_of(&self, relative: &Path) -> String {
        if !self.is_project {
            return escape_path(&self.root.join(relative));
        }
        if relative.as_os_str().is_empty() {
            return ".".to_owned();
        }
        escape_path(relative)
    }

    /// Returns a path of the same root; `relative` is relative to the root.
    pub(super) fn with_relative(&self, relative: &Path) -> Self {
        Self {
            path: self.root.join(relative),
            relative: relative.to_owned(),
            ..self.clone()
        }
    }

    /// Returns whether it is a file with other hard links, which may be outside the root.
    pub(super) fn has_other_hard_links(&self) -> bool {
        self.path
            .symlink_metadata()
            .is_ok_and(|known| has_other_names(&known))
    }
}

/// Returns whether a file has other hard links, which may be outside the root.
#[cfg(unix)]
pub(super) fn has_other_names(known: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    known.is_file() && known.nlink() > 1
}

#[cfg(not(unix))]
pub(super) fn has_other_names(_: &Metadata) -> bool {
    false
}

/// Converts a file system error into an error that a model can act on.
pub(super) fn io_error(name: &str, error: &io::Error) -> ErrorInfo {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ErrorInfo::new(
            ErrorCode::FileNotFound,
            format!(
                "there is no `{name}` in the project: look with list_files or glob what there is"
            ),
        ),
        // Only the kind of the error: its full text would contain the absolute path.
        kind => ErrorInfo::new(
            ErrorCode::ValidationError,
            format!("`{name}` cannot be read: {kind}. Go on without it, or ask for another path."),
        ),
    }
}

/// Formats a path. Characters that could forge a line, hide, or break out of Markdown are escaped.
pub(super) fn escape_path(path: &Path) -> String {
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

/// Returns whether a character changes the writing direction, joins, or has no width. Such
/// characters make two names look alike.
fn is_invisible(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Parses an escaped name; `None` if it contains no escape or an invalid one.
pub(super) fn unescape_path(text: &str) -> Option<PathBuf> {
    if !text.contains('\\') {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        bytes.extend_from_slice(&rest.as_bytes()[..at]);
        let escape = rest.get(at + 1..)?;
        let kind = escape.chars().next()?;
        let after = escape.get(1..)?;
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
    // The system would end the name at a NUL.
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

/// Runs the blocking part of a tool on a blocking thread.
///
/// The token of `work` is cancelled when the call is cancelled, and when the future is dropped for
/// another reason such as a timeout, so that the work does not continue without a caller.
pub async fn blocking<T, W>(context: ToolContext, work: W) -> Result<T, ErrorInfo>
where
    T: Send + 'static,
    W: FnOnce(&ToolContext, &CancellationToken) -> Result<T, ErrorInfo> + Send + 'static,
{
    let token = context.cancel.child_token();
    let _tripped_on_drop = token.clone().drop_guard();
    match tokio::task::spawn_blocking(move || work(&context, &token)).await {
        Ok(result) => result,
        Err(error) => Err(ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the tool broke off: {error}"),
        )),
    }
}

/// Returns an error if the call is cancelled.
pub(super) fn check_cancelled(cancel: &CancellationToken) -> Result<(), ErrorInfo> {
    if cancel.is_cancelled() {
        return Err(ErrorInfo::new(ErrorCode::Cancelled, "cancelled"));
    }
    Ok(())
}

/// Space that a [`OutputPage`] reserves for its closing note, in bytes.
pub(super) const RESERVED_NOTE_BYTES: usize = 512;

/// Output that ends with a whole line before it exceeds its limit.
pub struct OutputPage {
    text: String,
    limit_bytes: usize,
    /// Whether a line did not fit. Later lines are rejected too.
    pub(super) is_full: bool,
}

impl OutputPage {
    /// Makes an empty page of at most `limit_bytes`, including the note.
    pub fn new(limit_bytes: usize) -> Self {
        Self {
            text: String::new(),
            limit_bytes: limit_bytes.saturating_sub(RESERVED_NOTE_BYTES),
            is_full: false,
        }
    }

    /// Adds a line if it fits, and returns whether it does.
    pub fn push_line(&mut self, line: &str) -> bool {
        self.is_full |= self.text.len() + line.len() + 1 > self.limit_bytes;
        if !self.is_full {
            self.text.push_str(line);
            self.text.push('\n');
        }
        !self.is_full
    }

    /// Ends the page with a note in brackets. A note that is too long is shortened.
    pub fn finish(mut self, note: &str) -> String {
        let end = note
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .take_while(|end| *end <= RESERVED_NOTE_BYTES - 8);
        let end = end.last().unwrap_or(0);
        let cut = if end < note.len() { "…" } else { "" };
        let _ = write!(self.text, "[{}{cut}]", &note[..end]);
        self.text
    }
}

#[cfg(test)]
#[path = "project_path/tests.rs"]
mod tests;
