//! What an artifact is made of: bytes, a file that is taken in, or a stream; and what counts as text.

use std::path::PathBuf;

use bytes::{Bytes, BytesMut};
use futures::{StreamExt, stream::BoxStream};
use soong_protocol::{ErrorCode, ErrorInfo};

/// Longest summary that is taken from a text, in characters.
const SUMMARY_CHARS: usize = 200;

/// The bytes of a version to be stored.
pub enum Content {
    /// In memory.
    Bytes(Bytes),
    /// A file; it is copied, and stays where it is.
    File(PathBuf),
    /// In pieces, as they come.
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

/// Returns whether a content type says that the bytes are text.
pub fn is_text(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
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

/// Returns whether a content type says that the text is Markdown.
#[cfg(feature = "docx")]
pub(crate) fn is_markdown(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    matches!(kind.as_str(), "text/markdown" | "text/x-markdown")
}

/// Writes any text as Markdown that shows it as it is.
#[cfg(feature = "docx")]
pub(crate) fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Reads bytes as the text that their content type promises.
pub(crate) fn text(label: &str, content_type: &str, bytes: Bytes) -> Result<String, ErrorInfo> {
    let refuse = |why: String| ErrorInfo::new(ErrorCode::UnsupportedMedia, format!("{label:?} is no text: {why}"));
    if !is_text(content_type) {
        return Err(refuse(format!("it is {content_type}, {} bytes", bytes.len())));
    }
    String::from_utf8(bytes.into()).map_err(|error| refuse(format!("it is not UTF-8 ({})", error.utf8_error())))
}

/// Gathers a stream.
pub(crate) async fn collect(
    mut body: BoxStream<'static, Result<Bytes, ErrorInfo>>,
    size: u64,
) -> Result<Bytes, ErrorInfo> {
    let Some(first) = body.next().await else { return Ok(Bytes::new()) };
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

/// Says in a line how a text begins; `None` where there is nothing to say.
pub(crate) fn summary(text: &str) -> Option<String> {
    // Enough to fill the line, however much white space there is.
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
    (!line.is_empty()).then(|| crate::run::shorten(&line, SUMMARY_CHARS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_content_type_says_what_is_text() {
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
    #[cfg(feature = "docx")]
    fn a_fence_is_longer_than_what_stands_in_it() {
        for (text, want) in
            [("", "```\n\n```\n"), ("a\n* b\n\n", "```\na\n* b\n```\n"), ("x ```` y", "`````\nx ```` y\n`````\n")]
        {
            assert_eq!(fenced(text), want);
        }
        assert!(is_markdown("Text/Markdown; charset=utf-8") && !is_markdown("text/plain"));
    }

    #[test]
    fn a_summary_is_one_line_of_200_characters() {
        assert_eq!(summary("  \n "), None);
        assert_eq!(summary("# A\n\n  b\tc ").as_deref(), Some("# A b c"));
        let long = summary(&"好".repeat(300)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (201, true));
        assert!(summary(&"ab ".repeat(1_000_000)).unwrap().len() < 250);
    }
}
