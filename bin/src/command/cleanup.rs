//! How every cleanup tells what may go, and what has gone. Not here: which things those are.

use std::fmt::Display;

use crate::{context::Context, exit::Failure, print, terminal::Hue};

/// Lists what may go; returns whether there is anything.
pub(super) fn list(head: &[&str], rows: &[Vec<String>]) -> Result<bool, Failure> {
    match rows.is_empty() {
        true => print::line("nothing may go")?,
        false => print::table(head, rows)?,
    }
    Ok(!rows.is_empty())
}

/// Says why something may go, or why it could not.
pub(super) fn reason(why: &str, error: Option<impl Display>) -> String {
    error.map_or_else(|| why.to_owned(), |error| format!("NOT DELETED: {error}"))
}

/// Says how many things went, or that none did; `size` is what they take up, where that is known.
pub(super) fn close(
    context: &Context<'_>,
    all: &str,
    size: Option<String>,
    deleted: Option<usize>,
) -> Result<(), Failure> {
    let size = size.map_or_else(String::new, |size| format!(", {size}"));
    let line = match deleted {
        None => format!("{all}{size}: nothing was deleted; --yes deletes"),
        Some(deleted) => format!("{deleted} of {all} deleted"),
    };
    print::aside(context.terminal, Hue::Bold, &line)
}
