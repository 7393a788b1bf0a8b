//! Format of a body by its content type, and its decoded text.
//!
//! Elsewhere: HTML to Markdown (`page.rs`), size limits (`client.rs`).

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// Number of bytes at the start of a page that are searched for its `<meta>` charset; the same as
/// in browsers.
const META_CHARSET_BYTES: usize = 1024;
/// Number of characters at the start of a body without a content type that are checked to detect
/// HTML.
const HTML_DETECTION_CHARS: usize = 512;

/// Content type of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ContentType {
    /// Such as `text/html`, in lower case; empty if the server sent none.
    pub(crate) essence: String,
    charset: Option<&'static Encoding>,
}

impl ContentType {
    /// Parses the value of a `DocumentParts-Type` header.
    pub(crate) fn parse(header: Option<&str>) -> Self {
        let mut parts = header.unwrap_or_default().split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let charset = parts
            .filter_map(|part| part.split_once('='))
            .find_map(|(name, value)| {
                let label = value.trim().trim_matches(['"', '\'']);
                name.trim()
                    .eq_ignore_ascii_case("charset")
                    .then(|| Encoding::for_label(label.as_bytes()))
                    .flatten()
            });
        Self { essence, charset }
    }

    /// Returns whether the type is text, or is unknown because the server sent none.
    pub(crate) fn may_be_text(&self) -> bool {
        let (kind, name) = self.essence.split_once('/').unwrap_or_default();
        let known = [
            "json",
            "xml",
            "xhtml+xml",
            "javascript",
            "ecmascript",
            "x-ndjson",
            "yaml",
            "x-yaml",
            "toml",
        ];
        self.essence.is_empty()
            || kind == "text"
            || name.ends_with("+json")
            || name.ends_with("+xml")
            || (kind == "application" && known.contains(&name))
    }

    /// Returns whether a body of this type is HTML.
    pub(crate) fn is_html(&self, text: &str) -> bool {
        match self.essence.as_str() {
            "text/html" | "application/xhtml+xml" => true,
            "" => {
                let head = text
                    .trim_start()
                    .chars()
                    .take(HTML_DETECTION_CHARS)
                    .collect::<String>()
                    .to_ascii_lowercase();
                ["<!doctype html", "<html", "<head", "<body"]
                    .iter()
                    .any(|start| head.starts_with(start))
            }
            _ => false,
        }
    }

    /// Decodes a body; `None` if it is not text, whatever its type.
    ///
    /// A byte order mark takes precedence over the header, and the header over the `<meta>`
    /// charset. Without any of them, the body is decoded as UTF-8 if it is valid, and otherwise as
    /// Windows-1252.
    pub(crate) fn decode(&self, body: &[u8]) -> Option<String> {
        let marked = Encoding::for_bom(body).map(|(encoding, _)| encoding);
        let encoding = marked
            .or(self.charset)
            .or_else(|| meta_charset(body))
            .unwrap_or_else(|| guess_encoding(body));
        let (text, _, _) = encoding.decode(body);
        (!text.contains('\0')).then(|| text.into_owned())
    }
}

/// Guesses between UTF-8 and Windows-1252. An incomplete character at the end is accepted as UTF-8.
fn guess_encoding(body: &[u8]) -> &'static Encoding {
    match std::str::from_utf8(body) {
        Err(error) if error.error_len().is_some() => WINDOWS_1252,
        _ => UTF_8,
    }
}

/// Finds `<meta charset=…>`, or its older form, at the start of a page.
fn meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head =
        String::from_utf8_lossy(&body[..body.len().min(META_CHARSET_BYTES)]).to_ascii_lowercase();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
    head.split("<meta").skip(1).find_map(|meta| {
        let tag = meta.split('>').next()?;
        let (_, value) = tag.split_once("charset")?;
        let value = value
            .trim_start()
            .strip_prefix('=')?
            .trim_start()
            .trim_start_matches(['"', '\'']);
        let label = &value[..value.find(|c| !is_name(c)).unwrap_or(value.len())];
        let encoding = Encoding::for_label(label.as_bytes())?;
        // The tag was read as ASCII, so the page is not UTF-16.
        Some(if encoding.is_ascii_compatible() {
            encoding
        } else {
            UTF_8
        })
    })
}
