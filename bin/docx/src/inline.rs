//! Converts the inline content of a paragraph to XML: text, links, images and emphasis. A *run*
//! here is a piece of text with uniform formatting, as in WordprocessingML.

use docx_rs::{BreakType, Hyperlink, HyperlinkData, Run, RunProperty, VertAlignType};

use super::text::{is_right_to_left, replace_invalid_chars, xml, xml_with_content};

/// Nesting depth of each kind of emphasis.
#[derive(Default)]
struct EmphasisDepth {
    bold: usize,
    italic: usize,
    strike: usize,
}

/// Link that is being converted.
struct OpenLink {
    /// Relationship id of the link. `None`: no hyperlink is written; the address follows the text
    /// in parentheses.
    rid: Option<String>,
    address: String,
    text: String,
    runs: String,
}

/// Inline content of the current paragraph.
#[derive(Default)]
pub(super) struct Inline {
    /// XML of the content so far, without the open link.
    runs: String,
    emphasis: EmphasisDepth,
    link: Option<OpenLink>,
    /// Addresses of the images whose alternative text is being converted, outermost first.
    images: Vec<String>,
    /// Whether the first letter is of a right-to-left script. `None`: no letter so far.
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

    /// Starts emphasis, which may be nested.
    pub(super) fn begin(&mut self, emphasis: Emphasis) {
        *self.count(emphasis) += 1;
    }

    /// Ends the innermost emphasis of this kind.
    pub(super) fn end(&mut self, emphasis: Emphasis) {
        let count = self.count(emphasis);
        *count = count.saturating_sub(1);
    }

    /// Appends text in the current emphasis. Line feeds become line breaks; tabs are kept.
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

    /// Appends a run to the open link, or else to the paragraph.
    pub(super) fn push(&mut self, run: Run) {
        let runs = self
            .link
            .as_mut()
            .map_or(&mut self.runs, |link| &mut link.runs);
        runs.push_str(&xml(&run));
    }

    /// Starts a link. An open link is ended first, since links cannot be nested.
    pub(super) fn begin_link(&mut self, rid: Option<String>, address: &str) {
        self.end_link();
        let address = address.to_owned();
        let text = String::new();
        self.link = Some(OpenLink {
            rid,
            address,
            text,
            runs: String::new(),
        });
    }

    /// Ends the current link, if any.
    pub(super) fn end_link(&mut self) {
        let Some(OpenLink {
            rid,
            address,
            text,
            runs,
        }) = self.link.take()
        else {
            return;
        };
        let Some(rid) = rid else {
            self.runs.push_str(&runs);
            return self.address(&address, &text);
        };
        let link = HyperlinkData::External {
            rid,
            path: String::new(),
        };
        let link = Hyperlink {
            link,
            history: None,
            children: Vec::new(),
        };
        self.runs
            .push_str(&xml_with_content(&link, "w:hyperlink", &runs));
    }

    /// Starts an image. The text that is appended until [`Self::end_image`] is its alternative
    /// text.
    pub(super) fn begin_image(&mut self, address: &str) {
        self.images.push(address.to_owned());
    }

    /// Ends the innermost image, and appends its address in parentheses.
    pub(super) fn end_image(&mut self) {
        if let Some(address) = self.images.pop() {
            self.address(&address, "");
        }
    }

    /// Returns whether the paragraph has no content and no open link.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.link.is_none()
    }

    /// Ends the paragraph, and returns its XML and whether it is written from right to left.
    pub(super) fn take(&mut self) -> (String, bool) {
        self.end_link();
        (
            std::mem::take(&mut self.runs),
            self.right_to_left.take().unwrap_or(false),
        )
    }

    /// Appends an address in parentheses, unless it is empty or equal to `text`.
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

/// Adds text to a run. Line feeds become line breaks and tabs become tab elements; invalid
/// characters are replaced.
pub(super) fn run_with_text(mut run: Run, text: &str) -> Run {
    let text = replace_invalid_chars(text);
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            run = run.add_break(BreakType::TextWrapping);
        }
        for (number, piece) in line
            .strip_suffix('\r')
            .unwrap_or(line)
            .split('\t')
            .enumerate()
        {
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
