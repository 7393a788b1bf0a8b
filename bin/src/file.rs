//! Reading files for upload and writing downloads: content types, streaming in pieces, and atomic
//! replacement.

use std::{
    ffi::OsStr,
    io::{self, Write},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, TryStreamExt, stream::BoxStream};
use soong::{ErrorInfo, protocol::media_type};
use soong_client::UploadStream;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::exit::{Exit, Failure};

/// Size of a piece in bytes.
const CHUNK_BYTES: usize = 256 * 1024;

/// Maximum size of a configuration or schema, in bytes.
pub(crate) const MAX_TEXT_BYTES: u64 = 16 * 1024 * 1024;

/// Number of leading bytes examined to detect text.
const SNIFF_BYTES: u64 = 8_192;

/// MIME type if nothing more is known.
pub(crate) const OCTET_STREAM: &str = "application/octet-stream";

/// Returns the content type of a file whose name gives none: an image, PDF document or audio by its
/// first bytes, text if its beginning is UTF-8 without NUL bytes, else bytes. A pipe, device or
/// socket is not read, since that would consume its data.
pub(crate) fn detect_content_type(path: &Path) -> &'static str {
    use std::io::Read;
    let head = || -> std::io::Result<Vec<u8>> {
        let mut head = Vec::new();
        if std::fs::metadata(path)?.is_file() {
            std::fs::File::open(path)?
                .take(SNIFF_BYTES)
                .read_to_end(&mut head)?;
        }
        Ok(head)
    };
    let head = head().unwrap_or_default();
    if let Some(known) = media_type(&head) {
        return known;
    }
    let is_text = !head.contains(&0)
        && match std::str::from_utf8(&head) {
            Ok(text) => !text.is_empty(),
            // The examined part may end within a character.
            Err(error) => error.error_len().is_none() && head.len() as u64 == SNIFF_BYTES,
        };
    if is_text { "text/plain" } else { OCTET_STREAM }
}

/// Returns the content type for a file name, or `None` if its extension is unknown.
pub(crate) fn content_type(name: impl AsRef<OsStr>) -> Option<&'static str> {
    let ending = Path::new(name.as_ref())
        .extension()?
        .to_str()?
        .to_ascii_lowercase();
    Some(match ending.as_str() {
        "md" | "markdown" => "text/markdown",
        "txt" | "text" | "log" | "diff" | "patch" | "py" | "rs" | "js" | "ts" | "tsx" | "jsx"
        | "go" | "c" | "h" | "cc" | "cpp" | "hpp" | "java" | "kt" | "rb" | "php" | "sh"
        | "bash" | "pl" | "lua" | "swift" | "sql" | "css" | "ini" | "cfg" | "conf" | "tex"
        | "rst" => "text/plain",
        "json" => "application/json",
        "jsonl" | "ndjson" => "application/x-ndjson",
        "csv" => "text/csv",
        "tsv" => "text/tab-separated-values",
        "html" | "htm" => "text/html",
        "xml" => "application/xml",
        "yaml" | "yml" => "application/yaml",
        "toml" => "application/toml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "wav" => "audio/wav",
        "mp3" => "audio/mpeg",
        "zip" => "application/zip",
        "docx" => "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
        _ => return None,
    })
}

/// Returns the file name extension of a detected content type.
pub(crate) fn extension(content_type: &str) -> &'static str {
    match content_type {
        "image/png" => "png",
        "image/jpeg" => "jpg",
        "image/gif" => "gif",
        "image/webp" => "webp",
        "application/pdf" => "pdf",
        "audio/wav" => "wav",
        "audio/mpeg" => "mp3",
        "text/plain" => "txt",
        _ => "bin",
    }
}

/// Opens a regular file for upload. Fails with advice if it is missing or not a regular file.
pub(crate) fn open(path: &Path) -> Result<std::fs::File, Failure> {
    let refuse = |error: io::Error| {
        let exit = if error.kind() == io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Failed
        };
        Failure::new(
            exit,
            format!("the file {} cannot be read: {error}", path.display()),
            "Give a file that exists.",
        )
    };
    // Checked first, since opening a pipe or device could block forever.
    let known = std::fs::metadata(path).map_err(refuse)?;
    if known.is_dir() {
        let what = format!("{} is a folder", path.display());
        return Err(Failure::usage(
            what,
            "Give a file. Store several files one by one, or as an archive.",
        ));
    }
    if !known.is_file() {
        let what = format!(
            "{} is not a regular file but a pipe, a device or a socket",
            path.display()
        );
        let advice = "Give a file; `soong artifacts put NAME -` reads standard input.";
        return Err(Failure::usage(what, advice));
    }
    std::fs::File::open(path).map_err(refuse)
}

/// Returns the source as a stream of pieces.
pub(crate) fn read_chunks(source: impl AsyncRead + Unpin + Send + 'static) -> UploadStream {
    let step = |mut source| async move {
        let mut piece = BytesMut::with_capacity(CHUNK_BYTES);
        let read = AsyncReadExt::read_buf(&mut source, &mut piece).await?;
        Ok::<_, io::Error>((read > 0).then(|| (piece.freeze(), source)))
    };
    futures::stream::try_unfold(source, step).boxed()
}

/// Writes a stream of bytes to a file. The file appears or is replaced only when the stream is
/// complete; after an error the previous file is unchanged. Returns the number of bytes.
pub(crate) async fn write(
    path: &Path,
    mut body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
) -> Result<u64, Failure> {
    let failed = |error: io::Error| {
        let what = format!("the file {} cannot be written: {error}", path.display());
        Failure::new(
            Exit::Failed,
            what,
            "Check the folder, its permissions and its disk.",
        )
    };
    let mut target = WriteTarget::new(path).map_err(failed)?;
    let mut size = 0;
    while let Some(piece) = body.try_next().await? {
        size += piece.len() as u64;
        target.file().write_all(&piece).map_err(failed)?;
    }
    target.finish().map_err(failed)?;
    Ok(size)
}

/// Destination of a download.
enum WriteTarget {
    /// A temporary file in the target's folder, removed unless it is renamed to the target.
    Temporary(tempfile::NamedTempFile, PathBuf),
    /// A pipe or device, written directly.
    Direct(std::fs::File),
}

impl WriteTarget {
    fn new(path: &Path) -> io::Result<Self> {
        // A symbolic link is kept; the file that it refers to is replaced.
        let target = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let metadata = std::fs::metadata(&target).ok();
        if metadata.as_ref().is_some_and(std::fs::Metadata::is_dir) {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if metadata
            .as_ref()
            .is_some_and(|metadata| !metadata.is_file())
        {
            return Ok(Self::Direct(
                std::fs::File::options().write(true).open(target)?,
            ));
        }
        let folder = target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        let rights = metadata.as_ref().map(std::fs::Metadata::permissions);
        let beside = tempfile::Builder::new()
            .prefix(".soong-")
            .permissions(PermissionsExt::from_mode(0o666))
            .tempfile_in(folder)?;
        if let Some(rights) = rights {
            beside.as_file().set_permissions(rights)?;
        }
        Ok(Self::Temporary(beside, target))
    }

    fn file(&mut self) -> &mut std::fs::File {
        match self {
            Self::Temporary(file, _) => file.as_file_mut(),
            Self::Direct(file) => file,
        }
    }

    fn finish(self) -> io::Result<()> {
        match self {
            Self::Temporary(file, target) => {
                file.persist(target).map(drop).map_err(|error| error.error)
            }
            Self::Direct(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use soong::ErrorCode;

    use super::*;

    #[test]
    fn content_type_is_guessed_from_file_name() {
        for (name, want) in [
            ("a.md", Some("text/markdown")),
            ("A.JPG", Some("image/jpeg")),
            ("x.tar.gz", None),
            ("main.rs", Some("text/plain")),
            ("picture.svg", Some("image/svg+xml")),
            (".md", None),
            ("README", None),
            ("", None),
        ] {
            assert_eq!(content_type(name), want, "{name:?}");
        }
    }

    #[tokio::test]
    async fn incomplete_download_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let existing = dir.path().join("there");
        let new = dir.path().join("new");
        let link = dir.path().join("link");
        std::fs::write(&existing, "old").unwrap();
        std::fs::set_permissions(&existing, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&existing, &link).unwrap();
        let piece = |text: &'static str| Ok(Bytes::from(text));
        let broken = || Err(ErrorInfo::new(ErrorCode::Closing, "gone"));
        for path in [&existing, &new, &link] {
            let body = futures::stream::iter([piece("ne"), broken()]).boxed();
            assert!(write(path, body).await.is_err());
        }
        assert_eq!(std::fs::read_to_string(&existing).unwrap(), "old");
        assert_eq!(
            std::fs::read_dir(dir.path()).unwrap().count(),
            2,
            "nothing half-written stays"
        );
        for path in [&link, &new] {
            let body = futures::stream::iter([piece("ne"), piece("w")]).boxed();
            assert_eq!(write(path, body).await.unwrap(), 3);
        }
        assert_eq!(std::fs::read_to_string(&existing).unwrap(), "new");
        assert!(link.is_symlink());
        assert_eq!(
            std::fs::metadata(&existing).unwrap().permissions().mode() & 0o777,
            0o640
        );
    }

    #[tokio::test]
    async fn file_is_read_in_chunks() {
        let bytes: Vec<u8> = (0..700_000u32).map(|n| n as u8).collect();
        let read: Vec<Bytes> = read_chunks(std::io::Cursor::new(bytes.clone()))
            .try_collect()
            .await
            .unwrap();
        assert!(read.len() > 2 && read.concat() == bytes);
    }
}
