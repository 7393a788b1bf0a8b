//! What a body is, by its content type, and its text.
//!
//! Not here: HTML to Markdown (`page.rs`), limits on the size (`client.rs`).

use encoding_rs::{Encoding, UTF_8, WINDOWS_1252};

/// How far into a page its own words on its encoding are looked for, in bytes; as browsers do.
const META_BYTES: usize = 1024;
/// How far into a body without a type is looked to tell HTML, in bytes.
const SNIFFED_BYTES: usize = 512;

/// A content type, as a header says it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::tool) struct Media {
    /// Such as `text/html`, in lower case; empty = the server says none.
    pub(in crate::tool) essence: String,
    charset: Option<&'static Encoding>,
}

impl Media {
    /// Reads a header.
    pub(in crate::tool) fn of(header: Option<&str>) -> Self {
        let mut parts = header.unwrap_or_default().split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let charset = parts.filter_map(|part| part.split_once('=')).find_map(|(name, value)| {
            let label = value.trim().trim_matches(['"', '\'']);
            name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(label.as_bytes())).flatten()
        });
        Self { essence, charset }
    }

    /// Returns whether it is text, or may be where the server says nothing.
    pub(in crate::tool) fn may_be_text(&self) -> bool {
        let (kind, name) = self.essence.split_once('/').unwrap_or_default();
        let known = ["json", "xml", "xhtml+xml", "javascript", "ecmascript", "x-ndjson", "yaml", "x-yaml", "toml"];
        self.essence.is_empty()
            || kind == "text"
            || name.ends_with("+json")
            || name.ends_with("+xml")
            || (kind == "application" && known.contains(&name))
    }

    /// Returns whether a body of this type is HTML.
    pub(in crate::tool) fn is_html(&self, text: &str) -> bool {
        match self.essence.as_str() {
            "text/html" | "application/xhtml+xml" => true,
            "" => {
                let head = text.trim_start().chars().take(SNIFFED_BYTES).collect::<String>().to_ascii_lowercase();
                ["<!doctype html", "<html", "<head", "<body"].iter().any(|start| head.starts_with(start))
            }
            _ => false,
        }
    }

    /// Decodes a body; `None` where it is no text, whatever its type says.
    ///
    /// A byte order mark wins over the header, which wins over the page's own word; without any of them it is
    /// UTF-8 where it can be, and Windows-1252 otherwise.
    pub(in crate::tool) fn decode(&self, body: &[u8]) -> Option<String> {
        let marked = Encoding::for_bom(body).map(|(encoding, _)| encoding);
        let encoding = marked.or(self.charset).or_else(|| meta_charset(body)).unwrap_or_else(|| guessed(body));
        let (text, _, _) = encoding.decode(body);
        (!text.contains('\0')).then(|| text.into_owned())
    }
}

/// Tells UTF-8 from what is not; a character that the end cut in two is no sign against it.
fn guessed(body: &[u8]) -> &'static Encoding {
    match std::str::from_utf8(body) {
        Err(error) if error.error_len().is_some() => WINDOWS_1252,
        _ => UTF_8,
    }
}

/// Finds `<meta charset=…>`, or its older form, at the beginning of a page.
fn meta_charset(body: &[u8]) -> Option<&'static Encoding> {
    let head = String::from_utf8_lossy(&body[..body.len().min(META_BYTES)]).to_ascii_lowercase();
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | ':');
    head.split("<meta").skip(1).find_map(|meta| {
        let tag = meta.split('>').next()?;
        let (_, value) = tag.split_once("charset")?;
        let value = value.trim_start().strip_prefix('=')?.trim_start().trim_start_matches(['"', '\'']);
        let label = &value[..value.find(|c| !is_name(c)).unwrap_or(value.len())];
        let encoding = Encoding::for_label(label.as_bytes())?;
        // The page could be read as ASCII this far: it is not UTF-16.
        Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
    })
}
