//! Inline text: emphasis, code, links and images become flowing text with hues.
//!
//! Pure. A hue stands for one style: where two apply, the inner one is shown. What is behind a link
//! is always shown, unless it is what the link says.

use pulldown_cmark::{Event, Tag, TagEnd};

use super::flow::Flow;
use crate::terminal::Hue;

/// The inline text of a block, as far as it came.
#[derive(Debug, Default)]
pub(super) struct Inline {
    flow: Flow,
    /// The styles that are open, innermost last.
    hues: Vec<Hue>,
    /// The links and images that are open.
    links: Vec<Link>,
}

#[derive(Debug)]
struct Link {
    url: String,
    is_image: bool,
    /// Where its text begins.
    from: usize,
}

impl Inline {
    pub(super) fn is_empty(&self) -> bool {
        self.flow.is_empty()
    }

    /// Hands over the text; styles stay open.
    pub(super) fn hand_over(&mut self) -> Flow {
        std::mem::take(&mut self.flow)
    }

    /// Opens a style.
    pub(super) fn open(&mut self, hue: Hue) {
        self.hues.push(hue);
    }

    /// Closes the innermost style.
    pub(super) fn close(&mut self) {
        self.hues.pop();
    }

    /// Adds text as it stands.
    pub(super) fn push(&mut self, text: &str) {
        self.flow.push(self.hues.last().copied().unwrap_or(Hue::Plain), text);
    }

    /// Adds a line as it stands.
    pub(super) fn push_line(&mut self, line: &str) {
        if !self.flow.is_empty() {
            self.flow.break_line();
        }
        self.push(line);
    }

    /// Takes what belongs to inline text; other events have no consequence.
    pub(super) fn take(&mut self, event: &Event<'_>) {
        match event {
            Event::Start(Tag::Emphasis) => self.open(Hue::Italic),
            Event::Start(Tag::Strong) => self.open(Hue::Bold),
            Event::Start(Tag::Strikethrough) => self.open(Hue::Struck),
            Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough) => self.close(),
            Event::Start(Tag::Link { dest_url, .. }) => self.open_link(dest_url, false),
            Event::Start(Tag::Image { dest_url, .. }) => self.open_link(dest_url, true),
            Event::End(TagEnd::Link | TagEnd::Image) => self.close_link(),
            Event::Text(text) | Event::InlineHtml(text) => self.push(text),
            Event::Code(code) => self.flow.push(Hue::Cyan, code),
            Event::SoftBreak => self.push(" "),
            Event::HardBreak => self.flow.break_line(),
            _ => {}
        }
    }

    fn open_link(&mut self, url: &str, is_image: bool) {
        if is_image {
            self.push("[image: ");
        }
        self.links.push(Link { url: url.to_owned(), is_image, from: self.flow.len() });
    }

    fn close_link(&mut self) {
        let Some(Link { url, is_image, from }) = self.links.pop() else { return };
        let said = self.flow.since(from);
        let says_it = said == url || url.strip_prefix("mailto:") == Some(said);
        let says_nothing = said.is_empty();
        if is_image {
            self.push("]");
        }
        if url.is_empty() || (says_it && !is_image) {
            return;
        }
        if says_nothing && !is_image {
            return self.flow.push(Hue::Dim, &url);
        }
        self.push(" ");
        self.flow.push(Hue::Dim, &format!("({url})"));
    }
}
