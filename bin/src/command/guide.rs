//! `soong guide`: prints a page of the user guide, or the list of its pages.

use soong_tui::terminal::{Terminal, TextStyle};

use crate::{
    cli,
    exit::{Exit, Failure},
    guide::{PAGES, page},
    print, report,
};

pub(super) fn guide(options: &cli::Guide, terminal: &Terminal) -> Result<Exit, Failure> {
    if let Some(page) = options.topic.as_deref().and_then(page) {
        for line in report::render(page.text, terminal) {
            print::line(&line)?;
        }
        return Ok(Exit::Success);
    }
    let width = PAGES
        .iter()
        .map(|page| page.topic.len())
        .max()
        .unwrap_or_default();
    for page in PAGES {
        print::line(&format!("{:width$}  {}", page.topic, page.title()))?;
    }
    print::line_or_stderr(
        terminal,
        TextStyle::Plain,
        "\nPrint a page with: soong guide TOPIC",
    )?;
    Ok(Exit::Success)
}
