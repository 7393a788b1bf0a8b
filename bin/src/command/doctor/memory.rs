//! Check of the experiences file: whether it and all its entries can be read.

use std::path::Path;

use soong::{Config, Environment, memory::MemoryFile};
use soong_tui::format;

use super::Check;

/// Name of the check.
const NAME: &str = "memory";

/// Checks the experiences file. Returns `None` if there is no file.
pub(super) fn experiences(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Option<Check> {
    let file = MemoryFile::of_home(home, config, environment);
    if !file.path().exists() {
        return None;
    }
    let advice = "The file is not changed. List its invalid lines with `soong experiences list`, and correct them in an editor.";
    Some(match file.read() {
        Err(error) => Check::warning(
            NAME,
            error.message,
            "Fix its permissions, or set another file: memory.experiences_path.",
        ),
        Ok(book) => match book.faults() {
            [] => Check::ok(
                NAME,
                format::plural(book.experiences().len(), "experience", "experiences") + " usable",
            ),
            [first, others @ ..] => {
                let more = match others.len() {
                    0 => String::new(),
                    count => format!(
                        " (and {})",
                        format::plural(count, "other problem", "other problems")
                    ),
                };
                let path = file.path().display();
                Check::warning(NAME, format!("{path}: {first}{more}"), advice)
            }
        },
    })
}
