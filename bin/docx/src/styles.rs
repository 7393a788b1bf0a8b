//! Everything in a document except its text: styles, numbering and page layout.
//!
//! The fonts are available on every system, or have a metric-compatible substitute; East Asian text
//! uses a separate font. The styles have the names that word processors know, so that headings
//! appear in their outline.

use docx_rs::{
    AbstractNumbering, BorderType, Docx, Level, LevelJc, LevelText, LineSpacing, NumberFormat,
    Numbering, PageMargin, ParagraphBorder, ParagraphBorderPosition, ParagraphBorders, RunFonts,
    Shading, Start, Style, StyleType, VertAlignType, XMLDocx,
};

use super::{MAX_LEVEL, nesting::BULLETS};

/// Id of the abstract numbering of all ordered lists. docx-rs uses ids below 10 itself.
pub(super) const ORDERED: usize = 11;
/// Id of the abstract numbering of all unordered lists.
const UNORDERED: usize = 10;

/// Builds a document without text.
pub(super) fn empty_document(numberings: Vec<Numbering>) -> XMLDocx {
    let mut docx = Docx::new()
        // A4; `TEXT_WIDTH` is the width between the margins.
        .page_size(11_906, 16_838)
        .page_margin(PageMargin {
            top: 1_418,
            left: 1_418,
            bottom: 1_418,
            right: 1_418,
            header: 709,
            footer: 709,
            gutter: 0,
        })
        .default_fonts(fonts("Arial"))
        .default_size(21)
        .default_line_spacing(LineSpacing::new().before(0).after(120).line(276));
    for style in styles() {
        docx = docx.add_style(style);
    }
    docx = docx
        .add_abstract_numbering(levels(UNORDERED, |level| {
            ("bullet", ["•", "◦", "▪"][level % 3].to_owned())
        }))
        .add_abstract_numbering(levels(ORDERED, |level| {
            (
                ["decimal", "lowerLetter", "lowerRoman"][level % 3],
                format!("%{}.", level + 1),
            )
        }))
        .add_numbering(Numbering::new(BULLETS, UNORDERED));
    for numbering in numberings {
        docx = docx.add_numbering(numbering);
    }
    docx.content_type = docx.content_type.add_footnotes();
    docx.build()
}

fn fonts(name: &str) -> RunFonts {
    RunFonts::new()
        .ascii(name)
        .hi_ansi(name)
        .cs(name)
        .east_asia("Microsoft YaHei")
}

fn levels(
    id: usize,
    format_of_level: impl Fn(usize) -> (&'static str, String),
) -> AbstractNumbering {
    (0..=MAX_LEVEL).fold(AbstractNumbering::new(id), |numbering, level| {
        let (format, text) = format_of_level(level);
        let format = NumberFormat::new(format);
        let text = LevelText::new(text);
        // Indentation is set on each paragraph instead, because paragraphs may also be in quotes.
        numbering.add_level(Level::new(
            level,
            Start::new(1),
            format,
            text,
            LevelJc::new("left"),
        ))
    })
}

fn paragraph(id: &str, name: &str, before: u32, after: u32) -> Style {
    let spacing = LineSpacing::new().before(before).after(after);
    Style::new(id, StyleType::Paragraph)
        .name(name)
        .based_on("Normal")
        .line_spacing(spacing)
}

/// Returns a border on one side. Without the empty ones, docx-rs would draw all four.
fn border(position: ParagraphBorderPosition, size: usize, space: usize) -> ParagraphBorders {
    let line = ParagraphBorder::new(position)
        .val(BorderType::Single)
        .size(size)
        .space(space)
        .color("BFBFBF");
    ParagraphBorders::with_empty().set(line)
}

fn styles() -> Vec<Style> {
    let mut styles: Vec<Style> = [
        (36, 360),
        (30, 320),
        (26, 280),
        (24, 240),
        (22, 220),
        (21, 200),
    ]
    .into_iter()
    .enumerate()
    .map(|(at, (size, before))| {
        let id = format!("Heading{}", at + 1);
        let name = format!("heading {}", at + 1);
        let mut style = paragraph(&id, &name, before, 120)
            .next("Normal")
            .size(size)
            .bold()
            .outline_lvl(at);
        style.paragraph_property = style.paragraph_property.keep_next(true).keep_lines(true);
        style
    })
    .collect();
    styles.push(
        paragraph("Title", "Title", 0, 240)
            .next("Normal")
            .size(44)
            .bold(),
    );
    let mut quote = paragraph("Quote", "Quote", 0, 120).color("595959");
    quote.paragraph_property =
        quote
            .paragraph_property
            .set_borders(border(ParagraphBorderPosition::Left, 18, 8));
    styles.push(quote);
    let mut code = paragraph("SourceCode", "Source Code", 60, 120)
        .size(19)
        .fonts(fonts("Courier New"));
    code.paragraph_property = code
        .paragraph_property
        .shading(Shading::new().fill("F2F2F2"));
    styles.push(code);
    let mut line = paragraph("HorizontalLine", "Horizontal Line", 0, 240).size(8);
    line.paragraph_property =
        line.paragraph_property
            .set_borders(border(ParagraphBorderPosition::Bottom, 8, 1));
    styles.push(line);
    styles.push(paragraph("ListParagraph", "List Paragraph", 0, 60));
    styles.push(paragraph("TableText", "Table Text", 40, 40));
    styles.push(paragraph("TableEnd", "Table End", 0, 0).size(12));
    styles.push(paragraph("FootnoteText", "footnote text", 0, 40).size(18));
    let character = |id: &str, name: &str| Style::new(id, StyleType::Character).name(name);
    let mut code = character("VerbatimChar", "Verbatim Char")
        .fonts(fonts("Courier New"))
        .size(20);
    code.run_property = code.run_property.shading(Shading::new().fill("F2F2F2"));
    styles.push(code);
    styles.push(
        character("Hyperlink", "Hyperlink")
            .color("0563C1")
            .underline("single"),
    );
    let mut reference = character("FootnoteReference", "footnote reference");
    reference.run_property = reference
        .run_property
        .vert_align(VertAlignType::SuperScript);
    styles.push(reference);
    styles
}
