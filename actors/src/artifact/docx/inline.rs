//! Text of the current paragraph: runs, links, and formatting.

use docx_rs::{BreakType, Hyperlink, HyperlinkData, Run, RunProperty, VertAlignType};

use super::text::{is_right_to_left, replace_invalid_chars, xml, xml_with_content};

/// Number of open elements of each kind of emphasis, which may be nested.
#[derive(Default)]
struct EmphasisDepth {
    bold: usize,
    italic: usize,
    strike: usize,
}

/// Link that is being converted.
struct OpenLink {
    /// Relationship id. `None`: the address is written after the text.
    rid: Option<String>,
    address: String,
    text: String,
    runs: String,
}

/// Text of the current paragraph.
#[derive(Default)]
pub(super) struct Inline {
    /// XML of the text converted so far.
    runs: String,
    emphasis: EmphasisDepth,
    link: Option<OpenLink>,
    /// Addresses of the open images, whose alternative text is being converted.
    images: Vec<String>,
    right_to_left: Option<bool>,
}

/// Kind of emphasis.
#[derive(Clone, Copy)]
pub(super) enum Emphasis {
    Bold,
    Italic,
    Strike,
}

impl Inline {
    fn count(&mut self, emphasis: Emphasis) -> &mut usize {
        match emphasis {
            Emphasis::Bold => &mut self.emphasis.bold,
            Emphasis::Italic => &mut self.emphasis.italic,
            Emphasis::Strike => &mut self.emphasis.strike,
        }
    }

    /// Starts emphasis.
    pub(super) fn begin(&mut self, emphasis: Emphasis) {
        *self.count(emphasis) += 1;
    }

    /// Ends emphasis.
    pub(super) fn end(&mut self, emphasis: Emphasis) {
        let count = self.count(emphasis);
        *count = count.saturating_sub(1);
    }

    /// Appends text. Line feeds and tabs are kept.
    pub(super) fn text(&mut self, text: &str) {
        let run = self.run();
        self.push_text(run, text);
    }

    /// Appends inline code.
    pub(super) fn code(&mut self, text: &str) {
        let run = self.run().style("VerbatimChar");
        self.push_text(run, text);
    }

    /// Appends superscript text.
    pub(super) fn superscript(&mut self, text: &str) {
        let mut run = Run::new();
        run.run_property = RunProperty::new().vert_align(VertAlignType::SuperScript);
        self.push(run_with_text(run, text));
    }

    /// Appends a line break.
    pub(super) fn line_break(&mut self) {
        let run = self.run().add_break(BreakType::TextWrapping);
        self.push(run);
    }

    /// Appends a run unchanged.
    pub(super) fn push(&mut self, run: Run) {
        let runs = self.link.as_mut().map_or(&mut self.runs, |link| &mut link.runs);
        runs.push_str(&xml(&run));
    }

    /// Starts a link.
    pub(super) fn begin_link(&mut self, rid: Option<String>, address: &str) {
        self.end_link();
        let (address, text) = (address.to_owned(), String::new());
        self.link = Some(OpenLink { rid, address, text, runs: String::new() });
    }

    /// Ends the current link, if any.
    pub(super) fn end_link(&mut self) {
        let Some(OpenLink { rid, address, text, runs }) = self.link.take() else { return };
        let Some(rid) = rid else {
            self.runs.push_str(&runs);
            return self.address(&address, &text);
        };
        let link = HyperlinkData::External { rid, path: String::new() };
        let link = Hyperlink { link, history: None, children: Vec::new() };
        self.runs.push_str(&xml_with_content(&link, "w:hyperlink", &runs));
    }

    /// Starts an image. Its alternative text follows.
    pub(super) fn begin_image(&mut self, address: &str) {
        self.images.push(address.to_owned());
    }

    /// Ends an image, and appends its address to the alternative text.
    pub(super) fn end_image(&mut self) {
        if let Some(address) = self.images.pop() {
            self.address(&address, "");
        }
    }

    /// Returns whether the paragraph is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.link.is_none()
    }

    /// Takes the XML of the paragraph, and whether its text is written from right to left.
    pub(super) fn take(&mut self) -> (String, bool) {
        self.end_link();
        (std::mem::take(&mut self.runs), self.right_to_left.take().unwrap_or(false))
    }

    /// Appends an address in parentheses, unless the text is the address itself.
    fn address(&mut self, address: &str, text: &str) {
        if !address.is_empty() && address != text {
            self.text(&format!(" ({address})"));
        }
    }

    fn push_text(&mut self, run: Run, text: &str) {
        self.right_to_left = self.right_to_left.or_else(|| is_right_to_left(text));
        if let Some(link) = &mut self.link {
            link.text.push_str(text);
        }
        self.push(run_with_text(run, text));
    }

    fn run(&self) -> Run {
        let mut run = Run::new();
        if self.link.as_ref().is_some_and(|link| link.rid.is_some()) {
            run = run.style("Hyperlink");
        }
        if self.emphasis.bold > 0 {
            run = run.bold();
        }
        if self.emphasis.italic > 0 {
            run = run.italic();
        }
        if self.emphasis.strike > 0 {
            run = run.strike();
        }
        run
    }
}

/// Fills a run with text. Line feeds and tabs become the corresponding elements.
pub(super) fn run_with_text(mut run: Run, text: &str) -> Run {
    let text = replace_invalid_chars(text);
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            run = run.add_break(BreakType::TextWrapping);
        }
        for (number, piece) in line.strip_suffix('\r').unwrap_or(line).split('\t').enumerate() {
            if number > 0 {
                run = run.add_tab();
            }
            if !piece.is_empty() {
                run = run.add_text(piece);
            }
        }
    }
    run
}
