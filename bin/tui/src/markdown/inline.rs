//! Converts inline text (emphasis, code, links and images) into colored flowing text.
//!
//! Pure. Each color represents one style; of nested styles, the inner one is shown. The target of a
//! link is always shown, unless it equals the link text.

use pulldown_cmark::{Event, Tag, TagEnd};

use super::flow::Flow;
use crate::terminal::TextStyle;

/// The inline text of a block so far.
#[derive(Debug, Default)]
pub(super) struct Inline {
    flow: Flow,
    /// Open styles, innermost last.
    styles: Vec<TextStyle>,
    /// Open links and images.
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    url: String,
    is_image: bool,
    /// Position at which its text begins.
    from: usize,
}

impl Inline {
    pub(super) fn is_empty(&self) -> bool {
        self.flow.is_empty()
    }

    /// Returns the text and resets it; styles stay open.
    pub(super) fn take_flow(&mut self) -> Flow {
        std::mem::take(&mut self.flow)
    }

    /// Opens a style.
    pub(super) fn open(&mut self, style: TextStyle) {
        self.styles.push(style);
    }

    /// Closes the innermost style.
    pub(super) fn close(&mut self) {
        self.styles.pop();
    }

    /// Appends text in the current style.
    pub(super) fn push(&mut self, text: &str) {
        self.flow.push(
            self.styles.last().copied().unwrap_or(TextStyle::Plain),
            text,
        );
    }

    /// Appends text on a new line.
    pub(super) fn push_line(&mut self, line: &str) {
        if !self.flow.is_empty() {
            self.flow.break_line();
        }
        self.push(line);
    }

    /// Handles an event of inline text; ignores other events.
    pub(super) fn handle_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Emphasis) => self.open(TextStyle::Italic),
            Event::Start(Tag::Strong) => self.open(TextStyle::Bold),
            Event::Start(Tag::Strikethrough) => self.open(TextStyle::Strikethrough),
            Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough) => self.close(),
            Event::Start(Tag::Link { dest_url, .. }) => self.open_link(dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => self.open_link(dest_url, true),
            Event::End(TagEnd::Link | TagEnd::Image) => self.close_link(),
            Event::Text(text) | Event::InlineHtml(text) => self.push(text),
            Event::Code(code) => self.flow.push(TextStyle::Cyan, code),
            Event::SoftBreak => self.push(" "),
            Event::HardBreak => self.flow.break_line(),
            _ => {}
        }
    }

    fn open_link(&mut self, url: &str, is_image: bool) {
        if is_image {
            self.push("[image: ");
        }
        self.links.push(Link {
            url: url.to_owned(),
            is_image,
            from: self.flow.len(),
        });
    }

    fn close_link(&mut self) {
        let Some(Link {
            url,
            is_image,
            from,
        }) = self.links.pop()
        else {
            return;
        };
        let text = self.flow.since(from);
        let equals_url = text == url || url.strip_prefix("mailto:") == Some(text);
        let is_empty = text.is_empty();
        if is_image {
            self.push("]");
        }
        if url.is_empty() || (equals_url && !is_image) {
            return;
        }
        if is_empty && !is_image {
            return self.flow.push(TextStyle::Dim, &url);
        }
        self.push(" ");
        self.flow.push(TextStyle::Dim, &format!("({url})"));
    }
}
