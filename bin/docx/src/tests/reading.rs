//! Reads a document back: checks its parts as XML, and extracts the text they show.

use std::{
    collections::BTreeMap,
    io::{Cursor, Read as _},
};

use pulldown_cmark::{Event, Parser};
use quick_xml::{Reader, events::Event as Xml};

/// Parts of a document by path.
pub(super) struct ParsedDocx {
    pub(super) parts: BTreeMap<String, String>,
}

/// Reads a file. Panics if a part is not well-formed XML.
pub(super) fn read(bytes: &[u8]) -> ParsedDocx {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut parts = BTreeMap::new();
    for at in 0..archive.len() {
        let mut file = archive.by_index(at).unwrap();
        assert_eq!(
            file.last_modified(),
            Some(zip::DateTime::default()),
            "{}",
            file.name()
        );
        let mut text = String::new();
        file.read_to_string(&mut text).unwrap();
        check(file.name(), &text);
        parts.insert(file.name().to_owned(), text);
    }
    ParsedDocx { parts }
}

/// Checks that all tags are closed, all attributes can be parsed, and all characters are allowed.
fn check(name: &str, text: &str) {
    let allowed = |c: char| matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{fffd}' | '\u{10000}'..);
    assert!(
        text.chars().all(allowed),
        "{name} holds a forbidden character"
    );
    let mut open = 0;
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    loop {
        match reader
            .read_event()
            .unwrap_or_else(|error| panic!("{name}: {error}: {text}"))
        {
            Xml::Start(tag) => {
                open += 1;
                tag.attributes()
                    .for_each(|attribute| drop(attribute.unwrap()));
            }
            Xml::Empty(tag) => tag
                .attributes()
                .for_each(|attribute| drop(attribute.unwrap())),
            Xml::End(_) => open -= 1,
            Xml::GeneralRef(entity) => {
                let known = ["amp", "lt", "gt", "quot", "apos"]
                    .map(str::as_bytes)
                    .contains(&&*entity);
                assert!(known, "{name}: {entity:?}");
            }
            Xml::Eof => break,
            _ => {}
        }
    }
    assert_eq!(open, 0, "{name} is cut off");
}

impl ParsedDocx {
    /// Returns the text that a part shows, with line feeds for breaks and ends of paragraphs.
    pub(super) fn text(&self, part: &str) -> String {
        let mut reader = Reader::from_str(&self.parts[part]);
        let mut shown = String::new();
        let mut inside = false;
        loop {
            match reader.read_event().unwrap() {
                Xml::Start(tag) => inside = tag.name().as_ref() == b"w:t",
                Xml::End(tag) => {
                    inside = false;
                    if tag.name().as_ref() == b"w:p" {
                        shown.push('\n');
                    }
                }
                Xml::Empty(tag) if tag.name().as_ref() == b"w:br" => shown.push('\n'),
                Xml::Empty(tag) if tag.name().as_ref() == b"w:tab" => shown.push('\t'),
                Xml::Text(text) if inside => shown.push_str(std::str::from_utf8(&text).unwrap()),
                Xml::GeneralRef(entity) if inside => shown.push_str(match &*entity {
                    b"amp" => "&",
                    b"lt" => "<",
                    b"gt" => ">",
                    b"quot" => "\"",
                    _ => "'",
                }),
                Xml::Eof => return shown,
                _ => {}
            }
        }
    }

    /// Returns all values of an attribute, each with its tag.
    pub(super) fn attributes(&self, part: &str, name: &str) -> Vec<(String, String)> {
        let mut reader = Reader::from_str(&self.parts[part]);
        let mut found = Vec::new();
        loop {
            match reader.read_event().unwrap() {
                Xml::Start(tag) | Xml::Empty(tag) => {
                    if let Some(value) = tag.try_get_attribute(name).unwrap() {
                        let tag = String::from_utf8(tag.name().as_ref().to_vec()).unwrap();
                        found.push((tag, String::from_utf8(value.value.to_vec()).unwrap()));
                    }
                }
                Xml::Eof => return found,
                _ => {}
            }
        }
    }
}

/// Returns whether Markdown shows a word at all. The language of a code block and cells beyond the
/// columns of a table are not shown.
pub(super) fn is_shown(markdown: &str, word: &str) -> bool {
    Parser::new_ext(markdown, super::super::options()).any(|event| match event {
        Event::Text(text) | Event::Code(text) | Event::Html(text) | Event::InlineHtml(text) => {
            text.contains(word)
        }
        _ => false,
    })
}
