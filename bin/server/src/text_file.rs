//! Reading small text files that may come from another user.

use std::{
    io,
    os::unix::fs::{FileTypeExt, OpenOptionsExt},
    path::Path,
};

use rustix::fs::OFlags;

/// Reads a text file of at most `max_bytes`, or a character device such as `/dev/null`.
///
/// Rejects folders, sockets and pipes. The file is opened without blocking, because opening a pipe
/// would otherwise wait for its other end.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = std::fs::File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let known = file.metadata()?;
    if !known.is_file() && !known.file_type().is_char_device() {
        let what = if known.is_dir() {
            "a folder"
        } else {
            "a pipe or a socket"
        };
        return Err(io::Error::other(format!(
            "it is {what}, not a regular file"
        )));
    }
    io::Read::read_to_string(
        &mut io::Read::take(file, max_bytes.saturating_add(1)),
        &mut text,
    )?;
    if text.len() as u64 > max_bytes {
        return Err(io::Error::other(format!(
            "it is larger than {max_bytes} bytes"
        )));
    }
    Ok(text)
}
