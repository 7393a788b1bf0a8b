//! The text of one paragraph while it is read: runs, links, and how they look.

use docx_rs::{BreakType, Hyperlink, HyperlinkData, Run, RunProperty, VertAlignType};

use super::text::{around, clean, is_right_to_left, xml};

/// What is open around a run; counted, since emphasis nests.
#[derive(Default)]
struct Look {
    bold: usize,
    italic: usize,
    strike: usize,
}

/// A link that is being read.
struct Link {
    /// Its relationship; `None` = the address is written behind the text.
    rid: Option<String>,
    address: String,
    text: String,
    runs: String,
}

/// The text of the paragraph that is being read.
#[derive(Default)]
pub(super) struct Inline {
    /// What was read, as XML.
    runs: String,
    look: Look,
    link: Option<Link>,
    /// Addresses of the images whose alternative text is being read.
    images: Vec<String>,
    right_to_left: Option<bool>,
}

/// The weight, slope or stroke of text.
#[derive(Clone, Copy)]
pub(super) enum Emphasis {
    Bold,
    Italic,
    Strike,
}

impl Inline {
    fn count(&mut self, emphasis: Emphasis) -> &mut usize {
        match emphasis {
            Emphasis::Bold => &mut self.look.bold,
            Emphasis::Italic => &mut self.look.italic,
            Emphasis::Strike => &mut self.look.strike,
        }
    }

    /// Begins emphasis.
    pub(super) fn begin(&mut self, emphasis: Emphasis) {
        *self.count(emphasis) += 1;
    }

    /// Ends emphasis.
    pub(super) fn end(&mut self, emphasis: Emphasis) {
        let count = self.count(emphasis);
        *count = count.saturating_sub(1);
    }

    /// Adds text; line feeds and tabs in it are kept.
    pub(super) fn text(&mut self, text: &str) {
        let run = self.run();
        self.push_text(run, text);
    }

    /// Adds text of a program.
    pub(super) fn code(&mut self, text: &str) {
        let run = self.run().style("VerbatimChar");
        self.push_text(run, text);
    }

    /// Adds small raised text.
    pub(super) fn raised(&mut self, text: &str) {
        let mut run = Run::new();
        run.run_property = RunProperty::new().vert_align(VertAlignType::SuperScript);
        self.push(filled(run, text));
    }

    /// Adds a line break.
    pub(super) fn line_break(&mut self) {
        let run = self.run().add_break(BreakType::TextWrapping);
        self.push(run);
    }

    /// Adds a run as it is.
    pub(super) fn push(&mut self, run: Run) {
        let runs = self.link.as_mut().map_or(&mut self.runs, |link| &mut link.runs);
        runs.push_str(&xml(&run));
    }

    /// Begins a link.
    pub(super) fn begin_link(&mut self, rid: Option<String>, address: &str) {
        self.end_link();
        let (address, text) = (address.to_owned(), String::new());
        self.link = Some(Link { rid, address, text, runs: String::new() });
    }

    /// Ends the link that is open, if one is.
    pub(super) fn end_link(&mut self) {
        let Some(Link { rid, address, text, runs }) = self.link.take() else { return };
        let Some(rid) = rid else {
            self.runs.push_str(&runs);
            return self.address(&address, &text);
        };
        let link = HyperlinkData::External { rid, path: String::new() };
        let link = Hyperlink { link, history: None, children: Vec::new() };
        self.runs.push_str(&around(&link, "w:hyperlink", &runs));
    }

    /// Begins an image, of which the alternative text is read.
    pub(super) fn begin_image(&mut self, address: &str) {
        self.images.push(address.to_owned());
    }

    /// Ends an image: its address is written behind the alternative text.
    pub(super) fn end_image(&mut self) {
        if let Some(address) = self.images.pop() {
            self.address(&address, "");
        }
    }

    /// Whether nothing has been read.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.link.is_none()
    }

    /// Takes what was read, as XML, and whether it is written from right to left.
    pub(super) fn take(&mut self) -> (String, bool) {
        self.end_link();
        (std::mem::take(&mut self.runs), self.right_to_left.take().unwrap_or(false))
    }

    /// Writes an address behind a text that does not say it.
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
        self.push(filled(run, text));
    }

    fn run(&self) -> Run {
        let mut run = Run::new();
        if self.link.as_ref().is_some_and(|link| link.rid.is_some()) {
            run = run.style("Hyperlink");
        }
        if self.look.bold > 0 {
            run = run.bold();
        }
        if self.look.italic > 0 {
            run = run.italic();
        }
        if self.look.strike > 0 {
            run = run.strike();
        }
        run
    }
}

/// Fills a run with text; line feeds become breaks, tabs become tabs.
pub(super) fn filled(mut run: Run, text: &str) -> Run {
    let text = clean(text);
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
