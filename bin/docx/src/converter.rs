//! Converts the events of the Markdown parser into the blocks of a document.
//!
//! Each block is written as XML as soon as it ends, so the document is never held as a tree.

use std::collections::HashMap;

use docx_rs::{
    AlignmentType, Footnote, LevelOverride, Numbering, Paragraph, Run, Shading, Table, TableCell,
    TableRow, WidthType,
};
use pulldown_cmark::{Alignment, CodeBlockKind, Event, LinkType, Tag, TagEnd};

use super::{
    inline::{Emphasis, Inline, run_with_text},
    nesting::{BULLETS, Marker, Nesting},
    styles::ORDERED,
    text::{escape, link_target, xml, xml_with_content},
};

/// Maximum number of columns that Word accepts. Cells beyond it are merged into the last column.
const MAX_COLUMNS: usize = 63;

/// Maximum number of lines of code in one paragraph. Longer paragraphs make word processors slow.
const MAX_CODE_LINES: usize = 100;

/// Width of the text area, in twentieths of a point.
pub(super) const TEXT_WIDTH: usize = 9_070;

/// Placeholder for the number of a footnote until it is known where the footnote is written. No
/// text can contain it, because XML does not allow the character.
const NOTE_NUMBER_PLACEHOLDER: &str = "<w:t xml:space=\"preserve\">\u{1}</w:t>";

/// The XML that docx-rs writes for a row that must not be split across pages.
const NO_SPLIT: &str = "<w:cantSplit />";

/// The parts of a document, as XML.
pub(super) struct DocumentParts {
    pub(super) body: String,
    pub(super) notes: String,
    /// Relationship id and target of each link.
    pub(super) links: Vec<(String, String)>,
    pub(super) numberings: Vec<Numbering>,
}

/// Table that is being converted.
struct TableBuilder {
    alignments: Vec<Alignment>,
    /// XML of the rows converted so far.
    rows: String,
    /// XML of the paragraphs of each cell in the current row.
    cells: Vec<String>,
    is_head: bool,
}

/// Text whose line breaks are preserved.
struct VerbatimBlock {
    text: String,
    style: Option<&'static str>,
}

/// Footnote definition that is being converted, with the state that is restored when it ends.
struct FootnoteBuilder {
    name: String,
    outer: String,
    nest: Nesting,
}

/// Converter from parser events to XML.
#[derive(Default)]
pub(super) struct Converter {
    out: String,
    paragraphs: u32,
    inline: Inline,
    nest: Nesting,
    heading: Option<usize>,
    verbatim: Option<VerbatimBlock>,
    grid: Option<TableBuilder>,
    note: Option<FootnoteBuilder>,
    notes: Vec<(String, String)>,
    /// Number of each referenced footnote, in the order of first references.
    references: HashMap<String, usize>,
    numberings: Vec<Numbering>,
    links: LinkTargets,
}

/// Targets of links, without duplicates, with their relationship ids.
#[derive(Default)]
struct LinkTargets(HashMap<String, String>);

impl LinkTargets {
    fn rid(&mut self, target: String) -> String {
        let next = self.0.len() + 1;
        self.0
            .entry(target)
            .or_insert_with(|| format!("rIdLink{next}"))
            .clone()
    }

    fn list(self) -> Vec<(String, String)> {
        let mut list: Vec<_> = self
            .0
            .into_iter()
            .map(|(target, rid)| (rid, target))
            .collect();
        list.sort_by_key(|(rid, _)| (rid.len(), rid.clone()));
        list
    }
}

impl Converter {
    /// Writes the title of the document.
    pub(super) fn title(&mut self, title: &str) {
        if !title.trim().is_empty() {
            self.inline.text(title);
            self.end_paragraph(Some("Title"));
        }
    }

    /// Processes the next event.
    pub(super) fn event(&mut self, event: Event<'_>) {
        match event {
            Event::Start(tag) => self.start(tag),
            Event::End(tag) => self.end(tag),
            Event::Text(text) | Event::Html(text) => match &mut self.verbatim {
                Some(verbatim) => verbatim.text.push_str(&text),
                None => self.inline.text(&text),
            },
            Event::InlineHtml(html) if is_break(&html) => self.inline.line_break(),
            Event::InlineHtml(text) | Event::InlineMath(text) | Event::DisplayMath(text) => {
                self.inline.text(&text)
            }
            Event::Code(text) => self.inline.code(&text),
            Event::SoftBreak => self.inline.text(" "),
            Event::HardBreak => self.inline.line_break(),
            Event::Rule => {
                self.end_open_paragraph();
                self.end_paragraph_of(Paragraph::new(), Some("HorizontalLine"));
            }
            Event::TaskListMarker(done) => {
                if !self.nest.begin_task(done) {
                    self.inline.text(if done { "☑ " } else { "☐ " });
                }
            }
            Event::FootnoteReference(name) => self.footnote_reference(&name),
        }
    }

    /// Completes the document.
    pub(super) fn finish(mut self) -> DocumentParts {
        self.end_open_paragraph();
        // A referenced footnote without a definition would remain empty; the parser does not emit
        // such references.
        let mut notes = vec![String::new(); self.references.len()];
        for (name, text) in self.notes {
            match self
                .references
                .remove(&name)
                .and_then(|number| notes.get_mut(number - 1))
            {
                Some(note) => *note = text.replace(NOTE_NUMBER_PLACEHOLDER, "<w:footnoteRef />"),
                // Append a footnote that is never referenced to the text, so that it is not lost.
                None => {
                    let mark = format!("<w:t xml:space=\"preserve\">[{}]</w:t>", escape(&name));
                    self.out
                        .push_str(&text.replace(NOTE_NUMBER_PLACEHOLDER, &mark));
                }
            }
        }
        let number = |(at, note)| format!("<w:footnote w:id=\"{}\">{note}</w:footnote>", at + 1);
        let notes = notes.into_iter().enumerate().map(number).collect();
        DocumentParts {
            body: self.out,
            notes,
            links: self.links.list(),
            numberings: self.numberings,
        }
    }

    fn start(&mut self, tag: Tag<'_>) {
        match tag {
            Tag::Emphasis => return self.inline.begin(Emphasis::Italic),
            Tag::Strong => return self.inline.begin(Emphasis::Bold),
            Tag::Strikethrough => return self.inline.begin(Emphasis::Strike),
            Tag::Link {
                link_type,
                dest_url,
                ..
            } => return self.begin_link(link_type, &dest_url),
            Tag::Image { dest_url, .. } => return self.inline.begin_image(&dest_url),
            Tag::Superscript | Tag::Subscript | Tag::TableCell => return,
            _ => self.end_open_paragraph(),
        }
        match tag {
            Tag::Heading { level, .. } => self.heading = Some(level as usize),
            Tag::BlockQuote(_) => self.nest.begin_quote(),
            Tag::List(start) => self.begin_list(start),
            Tag::Item => self.nest.begin_item(),
            Tag::CodeBlock(CodeBlockKind::Fenced(_) | CodeBlockKind::Indented) => {
                self.begin_verbatim("", Some("SourceCode"))
            }
            Tag::MetadataBlock(_) => self.begin_verbatim("---\n", Some("SourceCode")),
            Tag::HtmlBlock => self.begin_verbatim("", None),
            Tag::Table(alignments) => {
                self.write_pending_marker();
                self.grid = Some(TableBuilder {
                    alignments,
                    rows: String::new(),
                    cells: Vec::new(),
                    is_head: false,
                });
            }
            Tag::TableHead => {
                self.inline.begin(Emphasis::Bold);
                let _ = self.grid.as_mut().map(|grid| grid.is_head = true);
            }
            Tag::FootnoteDefinition(name) => {
                let nest = std::mem::replace(&mut self.nest, Nesting::of_note());
                self.note = Some(FootnoteBuilder {
                    name: name.into_string(),
                    outer: std::mem::take(&mut self.out),
                    nest,
                });
            }
            // Paragraphs start with their text. The parser options enable none of the other tags.
            _ => {}
        }
    }

    fn end(&mut self, tag: TagEnd) {
        match tag {
            TagEnd::Emphasis => self.inline.end(Emphasis::Italic),
            TagEnd::Strong => self.inline.end(Emphasis::Bold),
            TagEnd::Strikethrough => self.inline.end(Emphasis::Strike),
            TagEnd::Link => self.inline.end_link(),
            TagEnd::Image => self.inline.end_image(),
            TagEnd::TableCell => self.end_cell(),
            TagEnd::TableHead | TagEnd::TableRow => self.end_row(),
            TagEnd::Table => self.end_table(),
            TagEnd::CodeBlock | TagEnd::HtmlBlock => self.end_verbatim(),
            TagEnd::MetadataBlock(_) => {
                let _ = self
                    .verbatim
                    .as_mut()
                    .map(|verbatim| verbatim.text.push_str("---"));
                self.end_verbatim();
            }
            TagEnd::BlockQuote(_) => {
                self.end_open_paragraph();
                self.nest.end_quote();
            }
            TagEnd::Item => {
                self.end_open_paragraph();
                self.write_pending_marker();
            }
            TagEnd::List(_) => self.nest.end_list(),
            TagEnd::FootnoteDefinition => self.end_note(),
            _ => self.end_open_paragraph(),
        }
    }

    /// Ends the current paragraph, if any, because another block starts or the enclosing block
    /// ends.
    fn end_open_paragraph(&mut self) {
        let style = self.heading.take().map(|level| format!("Heading{level}"));
        if style.is_some()
            || !self.inline.is_empty()
            || matches!(self.nest.pending(), Some(Marker::Task(_)))
        {
            self.end_paragraph(style.as_deref());
        }
    }

    fn end_paragraph(&mut self, style: Option<&str>) {
        self.end_paragraph_of(Paragraph::new(), style);
    }

    /// Writes the current text as a paragraph, with its marker and indentation.
    fn end_paragraph_of(&mut self, mut paragraph: Paragraph, style: Option<&str>) {
        let (runs, right_to_left) = self.inline.take();
        match self.nest.pending() {
            Some(Marker::Task(done)) => {
                paragraph =
                    paragraph.add_run(run_with_text(Run::new(), if done { "☑\t" } else { "☐\t" }))
            }
            Some(Marker::Note) => {
                paragraph =
                    paragraph.add_run(Run::new().style("FootnoteReference").add_text("\u{1}"));
                paragraph = paragraph.add_run(Run::new().add_text(" "));
            }
            Some(Marker::Item) | None => {}
        }
        let paragraph = self.nest.apply(paragraph, style);
        let paragraph = self.paragraph_xml(paragraph, &runs, right_to_left);
        self.out.push_str(&paragraph);
    }

    /// Writes the pending marker of an item or footnote in a paragraph of its own, because its
    /// first block cannot contain it.
    fn write_pending_marker(&mut self) {
        if self.nest.pending().is_some() {
            self.end_paragraph(None);
        }
    }

    /// Returns the XML of a paragraph with its text.
    fn paragraph_xml(&mut self, paragraph: Paragraph, runs: &str, right_to_left: bool) -> String {
        // Paragraphs are numbered here, because the counter of docx-rs differs from one call to the
        // next.
        self.paragraphs += 1;
        let mut paragraph = paragraph.id(format!("{:08X}", self.paragraphs));
        if right_to_left {
            paragraph.property = paragraph.property.bidi(true);
        }
        xml_with_content(&paragraph, "w:p", runs)
    }

    fn begin_list(&mut self, start: Option<u64>) {
        // If an item starts with a list, write the marker of the item first.
        self.write_pending_marker();
        let numbering = match start {
            None => BULLETS,
            Some(start) => {
                let id = BULLETS + 1 + self.numberings.len();
                // The parser accepts at most nine digits.
                let start = usize::try_from(start).unwrap_or(1);
                let first = LevelOverride::new(self.nest.next_level()).start(start);
                self.numberings
                    .push(Numbering::new(id, ORDERED).add_override(first));
                id
            }
        };
        self.nest.begin_list(numbering);
    }

    fn begin_link(&mut self, kind: LinkType, address: &str) {
        let address = if kind == LinkType::Email {
            format!("mailto:{address}")
        } else {
            address.to_owned()
        };
        let rid = link_target(&address).map(|target| self.links.rid(target));
        self.inline.begin_link(rid, &address);
    }

    fn footnote_reference(&mut self, name: &str) {
        if self.nest.is_note() {
            // Footnotes cannot contain footnotes.
            return self.inline.superscript(&format!("[{name}]"));
        }
        if let Some(number) = self.references.get(name) {
            return self.inline.superscript(&number.to_string());
        }
        let id = self.references.len() + 1;
        self.references.insert(name.to_owned(), id);
        self.inline
            .push(Run::new().add_footnote_reference(Footnote {
                id,
                content: Vec::new(),
            }));
    }

    fn end_note(&mut self) {
        self.end_open_paragraph();
        self.write_pending_marker();
        if let Some(FootnoteBuilder { name, outer, nest }) = self.note.take() {
            self.nest = nest;
            let text = std::mem::replace(&mut self.out, outer);
            self.notes.push((name, text));
        }
    }

    fn begin_verbatim(&mut self, text: &str, style: Option<&'static str>) {
        self.verbatim = Some(VerbatimBlock {
            text: text.to_owned(),
            style,
        });
    }

    /// Writes the preserved text, with its line breaks.
    fn end_verbatim(&mut self) {
        let Some(VerbatimBlock { text, style }) = self.verbatim.take() else {
            return;
        };
        let lines: Vec<&str> = text
            .strip_suffix('\n')
            .unwrap_or(&text)
            .split('\n')
            .collect();
        for part in lines.chunks(MAX_CODE_LINES) {
            self.inline.text(&part.join("\n"));
            self.end_paragraph(style);
        }
    }

    fn end_cell(&mut self) {
        let (runs, right_to_left) = self.inline.take();
        let alignment = self
            .grid
            .as_ref()
            .and_then(|grid| grid.alignments.get(grid.cells.len()));
        let paragraph = Paragraph::new().style("TableText");
        let paragraph = match alignment {
            Some(Alignment::Center) => paragraph.align(AlignmentType::Center),
            Some(Alignment::Right) => paragraph.align(AlignmentType::Right),
            Some(Alignment::Left) => paragraph.align(AlignmentType::Left),
            Some(Alignment::None) | None => paragraph,
        };
        let paragraph = self.paragraph_xml(paragraph, &runs, right_to_left);
        let Some(grid) = &mut self.grid else { return };
        match grid.cells.get_mut(MAX_COLUMNS - 1) {
            Some(last) => last.push_str(&paragraph),
            None => grid.cells.push(paragraph),
        }
    }

    fn end_row(&mut self) {
        let Some(grid) = &mut self.grid else { return };
        let mut cell = TableCell::new();
        if grid.is_head {
            self.inline.end(Emphasis::Bold);
            cell = cell.shading(Shading::new().fill("E7E6E6"));
        }
        // docx-rs puts an empty paragraph into an empty cell; it is replaced by the cell's own
        // paragraphs.
        let cell = xml(&cell);
        let head = cell.split("<w:p ").next().unwrap_or_default();
        let cells: String = grid
            .cells
            .drain(..)
            .map(|paragraphs| format!("{head}{paragraphs}</w:tc>"))
            .collect();
        let row = xml_with_content(&TableRow::new(Vec::new()).cant_split(), "w:tr", &cells);
        // docx-rs cannot express a row that is repeated on each page. No text can contain the
        // pattern that is replaced.
        let repeated = if std::mem::take(&mut grid.is_head) {
            "<w:cantSplit /><w:tblHeader />"
        } else {
            NO_SPLIT
        };
        grid.rows.push_str(&row.replacen(NO_SPLIT, repeated, 1));
    }

    fn end_table(&mut self) {
        let Some(grid) = self.grid.take() else { return };
        let columns = grid.alignments.len().clamp(1, MAX_COLUMNS);
        let indent = self.nest.indent();
        let width = TEXT_WIDTH
            .saturating_sub(usize::try_from(indent).unwrap_or(0))
            .max(columns);
        let table = Table::new(Vec::new())
            .set_grid(vec![width / columns; columns])
            .width(width, WidthType::Dxa)
            .indent(indent);
        self.out
            .push_str(&xml_with_content(&table, "w:tbl", &grid.rows));
        // Without a paragraph between them, two consecutive tables would be merged.
        let end = self.paragraph_xml(Paragraph::new().style("TableEnd"), "", false);
        self.out.push_str(&end);
    }
}

fn is_break(html: &str) -> bool {
    let tag: String = html.to_ascii_lowercase().split_whitespace().collect();
    matches!(tag.as_str(), "<br>" | "<br/>")
}
