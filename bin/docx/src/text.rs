//! Text in a document: valid XML characters, valid addresses, and writing direction.
//!
//! Elements are serialized as soon as they are complete, because a tree of docx-rs elements for one
//! megabyte of Markdown took gigabytes of memory.

use std::borrow::Cow;

use docx_rs::BuildXML;

/// Returns the XML of an element.
pub(super) fn xml(element: &impl BuildXML) -> String {
    // docx-rs writes UTF-8.
    String::from_utf8_lossy(&element.build()).into_owned()
}

/// Returns the XML of an element named `name`, with `content` inserted at its end.
pub(super) fn xml_with_content(element: &impl BuildXML, name: &str, content: &str) -> String {
    let outer = xml(element);
    let end = format!("</{name}>");
    let head = outer.strip_suffix(&end).map(str::to_owned);
    let head = head.or_else(|| Some(format!("{}>", outer.strip_suffix(" />")?)));
    format!("{}{content}{end}", head.unwrap_or(outer))
}

/// Replaces characters that XML 1.0 does not allow by U+FFFD, so that no text makes the file
/// invalid.
pub(super) fn replace_invalid_chars(text: &str) -> Cow<'_, str> {
    let forbidden = |c: char| matches!(c, '\0'..='\u{8}' | '\u{b}' | '\u{c}' | '\u{e}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}');
    if text.contains(forbidden) {
        text.replace(forbidden, "\u{fffd}").into()
    } else {
        text.into()
    }
}

/// Cleans and escapes a text for XML that is not written by docx-rs.
pub(super) fn escape(text: &str) -> String {
    replace_invalid_chars(text)
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// Returns the target of a link that a word processor may follow. Returns `None` if the address
/// should only be shown as text.
///
/// Characters that are not valid in an address are percent-encoded, because Word rejects a file
/// with an invalid target.
pub(super) fn link_target(address: &str) -> Option<String> {
    let (scheme, rest) = address.split_once(':')?;
    let scheme = scheme.to_ascii_lowercase();
    let is_followable = match scheme.as_str() {
        "http" | "https" | "ftp" => rest
            .strip_prefix("//")
            .is_some_and(|host| host.starts_with(|c: char| c.is_alphanumeric())),
        "mailto" | "tel" => !rest.is_empty(),
        _ => false,
    };
    if !is_followable {
        return None;
    }
    let bytes = rest.as_bytes();
    let mut encoded = format!("{scheme}:");
    for (at, &byte) in bytes.iter().enumerate() {
        let is_hex_digit = |at: usize| bytes.get(at).is_some_and(u8::is_ascii_hexdigit);
        let plain = match byte {
            b'%' => is_hex_digit(at + 1) && is_hex_digit(at + 2),
            // A second `#` is not valid in a fragment.
            b'#' => !rest[..at].contains('#'),
            _ => byte.is_ascii_alphanumeric() || b"-._~:/?@!$&'()*+,;=".contains(&byte),
        };
        if plain {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    Some(encoded)
}

/// Returns whether the first letter of a text belongs to a right-to-left script, or `None` if there
/// is no letter.
pub(super) fn is_right_to_left(text: &str) -> Option<bool> {
    let letter = text.chars().find(|c| c.is_alphabetic())?;
    Some(
        matches!(letter, '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}' | '\u{10800}'..='\u{10fff}' | '\u{1e800}'..='\u{1efff}'),
    )
}
