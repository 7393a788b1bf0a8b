//! Export of a Markdown document as `.docx` (ART-12).
//!
//! Pure: text in, bytes out; equal input gives equal bytes, so every id is counted here and no clock
//! is read. Every character that Markdown shows is in the result, in its order; footnotes stand where
//! footnotes stand. Nesting of any depth is flat here: a paragraph knows how deep it lies, and what
//! lies deeper than [`MAX_LEVEL`] stays at that level.
//!
//! `walk` follows the events of the Markdown parser, `nest` knows lists and quotes, `inline` the text
//! of one paragraph, `text` what XML and addresses may hold, `shell` styles and page, `package` the
//! file. Not here: reading `.docx`.

mod inline;
mod nest;
mod package;
mod shell;
#[cfg(test)]
mod tests;
mod text;
mod walk;

use pulldown_cmark::{Event, HeadingLevel, Options, Parser, Tag, TextMergeStream};
use soong_protocol::{ErrorCode, ErrorInfo};

/// Deepest level of lists, from 0: word processors know nine.
const MAX_LEVEL: usize = 8;

/// Turns Markdown into the bytes of a `.docx` file.
///
/// The title goes into the file's properties, and above the text unless that begins with a heading
/// of the first level. Understands CommonMark with tables, footnotes, task lists, struck-out text
/// and YAML front matter; HTML stays the text that it is.
pub fn docx(title: &str, markdown: &str) -> Result<Vec<u8>, ErrorInfo> {
    let mut events = TextMergeStream::new(Parser::new_ext(markdown, options())).peekable();
    let has_title = matches!(events.peek(), Some(Event::Start(Tag::Heading { level: HeadingLevel::H1, .. })));
    let mut walk = walk::Walk::default();
    if !has_title {
        walk.title(title);
    }
    for event in events {
        walk.event(event);
    }
    package::pack(title, walk.finish())
        .map_err(|error| ErrorInfo::new(ErrorCode::InternalError, format!("the document could not be packed: {error}")))
}

/// What is read beyond CommonMark.
fn options() -> Options {
    Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
}
