//! Export of a Markdown document as `.docx` (ART-12).
//!
//! Pure: equal input gives equal bytes, so all ids are counted here and no clock is read. The
//! result contains every character that Markdown shows, in the same order; footnotes become
//! footnotes of the document. Nested blocks are flattened: each paragraph has an indentation level,
//! and deeper levels than `MAX_LEVEL` are reduced to it.
//!
//! `walk` processes the events of the Markdown parser, `nest` tracks lists and quotes, `inline` the
//! text of a paragraph, `text` handles what XML and addresses may contain, `shell` contains styles
//! and page layout, `package` writes the file.
//!
//! Not supported: reading `.docx`.

mod converter;
mod inline;
mod nesting;
mod package;
mod styles;
#[cfg(test)]
mod tests;
mod text;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TextMergeStream};
use soong_protocol::{ErrorCode, ErrorInfo};

/// Deepest level of lists, starting at 0; word processors support nine levels.
const MAX_LEVEL: usize = 8;

/// Converts Markdown to the bytes of a `.docx` file.
///
/// The title is stored in the properties of the file, and printed above the text unless the text
/// begins with a first-level heading. Supports CommonMark with tables, footnotes, task lists,
/// strikethrough and YAML front matter. HTML is included as text.
pub fn docx(title: &str, markdown: &str) -> Result<Vec<u8>, ErrorInfo> {
    let mut events = TextMergeStream::new(Parser::new_ext(markdown, options())).peekable();
    let has_title = matches!(
        events.peek(),
        Some(Event::Start(Tag::Heading {
            level: HeadingLevel::H1,
            ..
        }))
    );
    let mut walk = converter::Converter::default();
    if !has_title {
        walk.title(title);
    }
    for event in events {
        walk.event(event);
    }
    package::pack(title, walk.finish()).map_err(|error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the document could not be packed: {error}"),
        )
    })
}

/// Converts a text to the bytes of a `.docx` file: Markdown as [`docx`] does, any other text
/// verbatim.
pub fn export(title: &str, content_type: &str, text: &str) -> Result<Vec<u8>, ErrorInfo> {
    if is_markdown(content_type) {
        docx(title, text)
    } else {
        docx(title, &fenced(text))
    }
}

/// Returns whether a content type denotes Markdown.
fn is_markdown(content_type: &str) -> bool {
    let kind = content_type
        .split(';')
        .next()
        .unwrap_or("")
        .trim()
        .to_ascii_lowercase();
    matches!(kind.as_str(), "text/markdown" | "text/x-markdown")
}

/// Wraps a text in a Markdown code fence that shows it verbatim.
fn fenced(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("{fence}\n{}\n{fence}\n", text.trim_end_matches('\n'))
}

/// Returns the enabled extensions of CommonMark.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
}
