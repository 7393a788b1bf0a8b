//! Renders blocks as lines: headings, lists, quotes, code and tables.
//!
//! Pure. Nesting uses a stack, not recursion, since foreign text may be nested without limit. The
//! inner part of a line's prefix (bars, markers, indentation) is kept, up to half of the page.
//! Invariant: no line is wider than the page.

use pulldown_cmark::{CodeBlockKind, Event, Tag, TagEnd};

use super::{PageFormat, code, inline::Inline, table::Table};
use crate::{styled_line::StyledLine, terminal::TextStyle, text};

/// A block that contains other blocks.
#[derive(Debug)]
enum Container {
    Quote,
    List {
        /// Number of the next item; `None` if the items are not numbered.
        next: Option<u64>,
        /// Whether items are separated by blank lines.
        is_loose: bool,
    },
    Item {
        /// Text before the first line.
        marker: String,
        is_drawn: bool,
    },
    Code,
}

impl Container {
    fn width(&self) -> usize {
        match self {
            Self::Quote => 2,
            Self::List { .. } => 0,
            Self::Item { marker, .. } => marker.chars().count(),
            Self::Code => 4,
        }
    }
}

/// Renders the blocks of a text one after the other.
pub(super) struct Writer {
    page: PageFormat,
    lines: Vec<StyledLine>,
    containers: Vec<Container>,
    /// If set, a blank line precedes the next line, with the prefix of this many containers.
    gap: Option<usize>,
    inline: Inline,
    table: Table,
    /// Content of the open code or HTML block.
    raw: Option<String>,
    /// Info string of the open code block.
    info: String,
}

impl Writer {
    pub(super) fn new(page: PageFormat) -> Self {
        Self {
            page: PageFormat {
                width: page.width.max(1),
                ..page
            },
            lines: Vec::new(),
            containers: Vec::new(),
            gap: None,
            inline: Inline::default(),
            table: Table::default(),
            raw: None,
            info: String::new(),
        }
    }

    pub(super) fn finish(mut self) -> Vec<StyledLine> {
        self.flush();
        self.lines
    }

    /// Handles the text between two top-level blocks: definitions of link references are shown.
    pub(super) fn text_between_blocks(&mut self, source: &str) {
        if source.trim_start().starts_with('[') {
            self.inline.open(TextStyle::Dim);
            source
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .for_each(|line| self.inline.push_line(line));
            self.inline.close();
            self.end_block();
        }
    }

    /// Handles the next event.
    pub(super) fn handle_event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) if is_block(&tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) if self.raw.is_some() => {
                self.raw.get_or_insert_default().push_str(&text);
            }
            Event::TaskListMarker(is_done) => self.task(is_done),
            Event::Rule => {
                self.flush();
                let dash = if self.page.unicode { "─" } else { "-" };
                self.emit(&StyledLine::of(
                    TextStyle::Dim,
                    dash.repeat(self.content_columns()),
                ));
                self.end_block();
            }
            inline => self.inline.handle_event(&inline),
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        self.flush();
        match tag {
            Tag::Paragraph => self.loosen(),
            Tag::Heading { .. } | Tag::TableHead => self.inline.open(TextStyle::Bold),
            Tag::BlockQuote(_) => self.containers.push(Container::Quote),
            Tag::List(next) => self.containers.push(Container::List {
                next,
                is_loose: false,
            }),
            Tag::Item => self.start_item(),
            Tag::CodeBlock(kind) => {
                self.raw = Some(String::new());
                self.info = if let CodeBlockKind::Fenced(info) = kind {
                    info.into_string()
                } else {
                    String::new()
                };
            }
            Tag::HtmlBlock => self.raw = Some(String::new()),
            Tag::Table(alignments) => self.table = Table::new(alignments),
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Paragraph => self.end_block(),
            TagEnd::HtmlBlock => {
                let html = self.raw.take().unwrap_or_default();
                html.lines().for_each(|line| self.inline.push_line(line));
                self.end_block();
            }
            TagEnd::Heading(_) => {
                self.inline.close();
                self.end_block();
            }
            TagEnd::BlockQuote(_) | TagEnd::List(_) => {
                self.flush();
                self.containers.pop();
                self.end_block();
            }
            TagEnd::Item => self.end_item(),
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::TableCell => self.table.end_cell(self.inline.take_flow()),
            TagEnd::TableHead => {
                self.inline.close();
                self.table.end_row();
            }
            TagEnd::TableRow => self.table.end_row(),
            TagEnd::Table => {
                let table = std::mem::take(&mut self.table);
                table
                    .lines(self.content_columns(), &self.page)
                    .iter()
                    .for_each(|line| self.emit(line));
                self.end_block();
            }
            inline => self.inline.handle_event(&Event::End(inline)),
        }
    }

    fn start_item(&mut self) {
        let bullet = if self.page.unicode { "• " } else { "- " };
        let marker = match self.containers.last_mut() {
            Some(Container::List {
                next: Some(number), ..
            }) => {
                let marker = format!("{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            _ => bullet.to_owned(),
        };
        self.containers.push(Container::Item {
            marker,
            is_drawn: false,
        });
    }

    /// Replaces the bullet by a task's check box, or adds the box after the number.
    fn task(&mut self, is_done: bool) {
        if let Some(Container::Item { marker, .. }) = self.containers.last_mut() {
            let number = if marker.starts_with(|c: char| c.is_ascii_digit()) {
                marker.as_str()
            } else {
                ""
            };
            *marker = format!("{number}[{}] ", if is_done { 'x' } else { ' ' });
        }
    }

    fn end_item(&mut self) {
        self.flush();
        if let Some(Container::Item {
            is_drawn: false, ..
        }) = self.containers.last()
        {
            self.emit(&StyledLine::default());
        }
        self.containers.pop();
        match self.containers.last() {
            Some(Container::List { is_loose: true, .. }) => self.end_block(),
            _ => self.gap = None,
        }
    }

    /// Marks a list as loose if an item contains a paragraph.
    fn loosen(&mut self) {
        if let [.., Container::List { is_loose, .. }, Container::Item { .. }] =
            self.containers.as_mut_slice()
        {
            *is_loose = true;
        }
    }

    fn end_code(&mut self) {
        let code = text::safe_block(&self.raw.take().unwrap_or_default());
        self.containers.push(Container::Code);
        let room = self.content_columns();
        for line in code::colored(&code, &self.info) {
            line.split(room).iter().for_each(|part| self.emit(part));
        }
        self.containers.pop();
        self.end_block();
    }

    /// Ends a block, so that the next one is separated by a blank line.
    fn end_block(&mut self) {
        self.flush();
        let depth = self.containers.len();
        self.gap = Some(self.gap.map_or(depth, |due| due.min(depth)));
    }

    /// Emits the pending inline text.
    fn flush(&mut self) {
        if !self.inline.is_empty() {
            let flow = self.inline.take_flow();
            flow.wrapped(self.content_columns())
                .iter()
                .for_each(|line| self.emit(line));
        }
    }

    /// Returns the number of columns after the prefix of a line.
    fn content_columns(&self) -> usize {
        let before: usize = self
            .prefix_containers(self.containers.len())
            .iter()
            .map(Container::width)
            .sum();
        self.page.width - before
    }

    /// Returns those of the outer `depth` containers that are part of the prefix.
    fn prefix_containers(&self, depth: usize) -> &[Container] {
        let containers = &self.containers[..depth.min(self.containers.len())];
        let mut before = 0;
        let too_many = containers.iter().rposition(|container| {
            before += container.width();
            before > self.page.width / 2
        });
        &containers[too_many.map_or(0, |at| at + 1)..]
    }

    /// Returns the prefix of a line; `is_blank` selects the prefix of a blank line.
    fn prefix(&self, depth: usize, is_blank: bool) -> StyledLine {
        let mut before = StyledLine::default();
        for container in self.prefix_containers(depth) {
            match container {
                Container::Quote => {
                    before.push(TextStyle::Dim, if self.page.unicode { "│ " } else { "| " })
                }
                Container::Item {
                    marker,
                    is_drawn: false,
                } if !is_blank => before.push(TextStyle::Plain, marker),
                other => before.push(TextStyle::Plain, &" ".repeat(other.width())),
            }
        }
        before
    }

    fn emit(&mut self, line: &StyledLine) {
        if let Some(depth) = self.gap.take().filter(|_| !self.lines.is_empty()) {
            let mut blank = self.prefix(depth, true);
            blank.trim_end();
            self.lines.push(blank);
        }
        let mut whole = self.prefix(self.containers.len(), false);
        whole.append(line);
        whole.trim_end();
        self.lines.push(whole);
        // The markers have been drawn now. The markers of outer items were drawn before.
        for container in self.containers.iter_mut().rev() {
            match container {
                Container::Item { is_drawn: true, .. } => break,
                Container::Item { is_drawn, .. } => *is_drawn = true,
                _ => {}
            }
        }
    }
}

/// Returns whether a tag starts a block or a part of one, such as a list item.
fn is_block(tag: &Tag<'_>) -> bool {
    !matches!(
        tag,
        Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. } | Tag::Image { .. }
    )
}
