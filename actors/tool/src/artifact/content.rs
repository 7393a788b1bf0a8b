//! Content of an artifact: bytes, a file to be copied, or a stream; and which content types are
//! text.

use std::{borrow::Cow, path::PathBuf};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::BoxStream};
use soong_protocol::{ErrorCode, ErrorInfo};
use soong_text::{ByteRedactor, Redactor};

/// Maximum length of a generated summary, in characters.
const SUMMARY_CHARS: usize = 200;

/// Content of a version to be stored.
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// A file, which is copied and not modified.
    File(PathBuf),
    /// A stream of chunks.
    Stream(BoxStream<'static, Result<Bytes, ErrorInfo>>),
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::File(path) => write!(f, "the file {}", path.display()),
            Self::Stream(_) => f.write_str("a stream"),
        }
    }
}

impl From<Bytes> for Content {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Bytes(text.into())
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Bytes(text.to_owned().into())
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl Content {
    /// Redacts secrets in a text (SAFE-1). Bytes or a file that are not UTF-8 stay unchanged, and
    /// so do the parts of a stream that are not. A file of more than `max_bytes` stays unchanged
    /// too; the store rejects it later.
    pub async fn redacted(self, redactor: &Redactor, max_bytes: u64) -> Result<Self, ErrorInfo> {
        let redact =
            |bytes: Bytes| match std::str::from_utf8(&bytes).map(|text| redactor.text(text)) {
                Ok(Cow::Owned(clean)) => Bytes::from(clean),
                _ => bytes,
            };
        Ok(match self {
            Self::Bytes(bytes) => Self::Bytes(redact(bytes)),
            // Too large: the store rejects it. Other files are replaced by their redacted content
            // only if they contain a secret.
            Self::File(path)
                if std::fs::metadata(&path).is_ok_and(|known| known.len() > max_bytes) =>
            {
                Self::File(path)
            }
            Self::File(path) => {
                let read = tokio::task::spawn_blocking({
                    let path = path.clone();
                    move || std::fs::read(path)
                });
                match read.await {
                    Ok(Ok(bytes)) => {
                        let bytes = Bytes::from(bytes);
                        let redacted = redact(bytes.clone());
                        if redacted == bytes {
                            Self::File(path)
                        } else {
                            Self::Bytes(redacted)
                        }
                    }
                    // The store reports the error when it reads the file.
                    _ => Self::File(path),
                }
            }
            Self::Stream(stream) => Self::Stream(redacted_stream(stream, redactor)),
        })
    }
}

/// Redacts secrets in a streamed text.
fn redacted_stream(
    stream: BoxStream<'static, Result<Bytes, ErrorInfo>>,
    redactor: &Redactor,
) -> BoxStream<'static, Result<Bytes, ErrorInfo>> {
    let state = (stream, ByteRedactor::new(redactor), false);
    futures::stream::unfold(state, |(mut stream, mut redactor, is_over)| async move {
        if is_over {
            return None;
        }
        Some(match stream.next().await {
            Some(Ok(piece)) => (Ok(redactor.push(&piece)), (stream, redactor, false)),
            Some(Err(error)) => (Err(error), (stream, redactor, true)),
            None => (Ok(redactor.end()), (stream, redactor, true)),
        })
    })
    .boxed()
}

/// Returns whether a content type denotes text.
pub fn is_text(content_type: &str) -> bool {
    let kind = content_type
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || kind.ends_with("+yaml")
        || matches!(
            kind.strip_prefix("application/"),
            Some(
                "json"
                    | "xml"
                    | "yaml"
                    | "x-yaml"
                    | "toml"
                    | "javascript"
                    | "x-sh"
                    | "sql"
                    | "x-ndjson"
                    | "jsonl"
                    | "typescript"
            )
        )
}

/// Decodes bytes as text. Fails with `unsupported_media` if the content type is not text or the
/// bytes are not UTF-8.
pub fn text(label: &str, content_type: &str, bytes: Bytes) -> Result<String, ErrorInfo> {
    let refuse = |why: String| {
        ErrorInfo::new(
            ErrorCode::UnsupportedMedia,
            format!("{label:?} is not text: {why}"),
        )
    };
    if !is_text(content_type) {
        return Err(refuse(format!(
            "it is {content_type}, {} bytes",
            bytes.len()
        )));
    }
    String::from_utf8(bytes.into())
        .map_err(|error| refuse(format!("it is not UTF-8 ({})", error.utf8_error())))
}

/// Collects a stream.
pub async fn collect_stream(
    mut body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
    size: u64,
) -> Result<Bytes, ErrorInfo> {
    let Some(first) = body.next().await else {
        return Ok(Bytes::new());
    };
    let first = first?;
    if first.len() as u64 >= size {
        return Ok(first);
    }
    let mut all = BytesMut::from(first.as_ref());
    while let Some(piece) = body.next().await {
        all.extend_from_slice(&piece?);
    }
    Ok(all.freeze())
}

/// Returns the beginning of a text on one line, or `None` if the text is blank.
pub fn summary(text: &str) -> Option<String> {
    // Enough to fill the line, however much whitespace the text contains.
    let mut line = String::new();
    let mut chars = 0;
    for word in text.split_whitespace() {
        if chars > SUMMARY_CHARS {
            break;
        }
        if !line.is_empty() {
            line.push(' ');
            chars += 1;
        }
        for c in word.chars().take(SUMMARY_CHARS + 1) {
            line.push(c);
            chars += 1;
        }
    }
    (!line.is_empty()).then(|| soong_text::shorten(&line, SUMMARY_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_detected_by_content_type() {
        for (content_type, want) in [
            ("text/markdown", true),
            ("text/plain; charset=utf-8", true),
            ("TEXT/HTML", true),
            ("application/json", true),
            ("application/ld+json", true),
            ("image/svg+xml", true),
            ("image/png", false),
            ("application/pdf", false),
            ("application/octet-stream", false),
            ("", false),
        ] {
            assert_eq!(is_text(content_type), want, "{content_type:?}");
        }
    }

    #[test]
    fn summary_is_one_line_of_at_most_200_characters() {
        assert_eq!(summary("  \n "), None);
        assert_eq!(summary("# A\n\n  b\tc ").as_deref(), Some("# A b c"));
        let long = summary(&"好".repeat(300)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (201, true));
        assert!(summary(&"ab ".repeat(1_000_000)).unwrap().len() < 250);
    }
}
