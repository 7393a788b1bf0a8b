//! Output shared by all cleanup commands: candidates and results. Elsewhere: the selection of
//! candidates.

use std::fmt::Display;

use soong_tui::{table::Column, terminal::TextStyle};

use crate::{context::Context, exit::Failure, print};

/// Prints the candidates. Returns whether there are any.
pub(super) fn print_candidates(
    context: &Context<'_>,
    columns: &[Column],
    rows: &[Vec<String>],
) -> Result<bool, Failure> {
    if rows.is_empty() {
        print::line("nothing to delete")?
    } else {
        print::table(context.terminal, columns, rows)?
    }
    Ok(!rows.is_empty())
}

/// Returns the reason why something is a candidate, or why it could not be deleted.
pub(super) fn reason(why: &str, error: Option<impl Display>) -> String {
    error.map_or_else(|| why.to_owned(), |error| format!("NOT DELETED: {error}"))
}

/// Prints how many things were deleted, or that nothing was. `size` is their total size, if known.
pub(super) fn close(
    context: &Context<'_>,
    all: &str,
    size: Option<String>,
    deleted: Option<usize>,
) -> Result<(), Failure> {
    let size = size.map_or_else(String::new, |size| format!(", {size}"));
    let line = match deleted {
        None => format!("{all}{size}: nothing was deleted; delete with --yes"),
        Some(deleted) => format!("{deleted} of {all} deleted"),
    };
    print::line_or_stderr(context.terminal, TextStyle::Bold, &line)
}
