//! Applies an edit to a text: exact, unique replacements, or the hunks of a unified diff.
//!
//! Pure. Invariant: an ambiguous change is rejected, and then nothing is changed: a text to replace
//! that occurs more than once, or a hunk whose lines do not occur, or occur more than once and not
//! at the stated position.

use soong_protocol::{ErrorCode, ErrorInfo};

use super::{MAX_FILE_BYTES, Replacement};

/// Maximum number of bytes that the edits of a call search: the length of the file for each edit.
const MAX_SEARCHED_BYTES: usize = 2 * 1024 * 1024 * 1024;
/// Maximum number of lines that are compared to find a hunk that is not at its stated position.
const MAX_COMPARED_LINES: usize = 1_000_000_000;

/// A change of a text.
pub(super) enum TextChange<'a> {
    Replacements(&'a [Replacement]),
    Diff(&'a str),
}

impl TextChange<'_> {
    /// Returns the changed text. `name` is the name of the file, for errors.
    ///
    /// If all lines of the text end in CR LF, and the change names no CR, the change is meant for
    /// lines that end in LF: models read them so. The lines of the result end in CR LF again.
    pub(super) fn apply(&self, text: &str, name: &str) -> Result<String, ErrorInfo> {
        let crlf_count = text.matches("\r\n").count();
        let is_crlf = crlf_count > 0
            && crlf_count == text.matches('\n').count()
            && crlf_count == text.matches('\r').count();
        if !is_crlf || self.names_cr() {
            return self.apply_exactly(text, name);
        }
        let changed = self.apply_exactly(&text.replace("\r\n", "\n"), name)?;
        Ok(changed.replace('\n', "\r\n"))
    }

    fn names_cr(&self) -> bool {
        match self {
            Self::Replacements(edits) => edits
                .iter()
                .any(|edit| edit.old.contains('\r') || edit.new.contains('\r')),
            Self::Diff(diff) => diff.contains('\r'),
        }
    }

    fn apply_exactly(&self, text: &str, name: &str) -> Result<String, ErrorInfo> {
        match self {
            Self::Replacements(edits) => {
                if text.len().saturating_mul(edits.len()) > MAX_SEARCHED_BYTES {
                    let message = format!(
                        "`{name}` is too large for {} edits in one call: make fewer at once",
                        edits.len()
                    );
                    return Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message));
                }
                let mut numbered = edits.iter().enumerate();
                numbered.try_fold(text.to_owned(), |text, (at, edit)| {
                    replace(&text, edit, at + 1, name)
                })
            }
            Self::Diff(diff) => patch(text, diff, name),
        }
    }
}

fn replace(text: &str, edit: &Replacement, number: usize, name: &str) -> Result<String, ErrorInfo> {
    let positions: Vec<usize> = text
        .match_indices(&edit.old)
        .map(|(at, _)| at)
        .take(1_000)
        .collect();
    // Overlapping occurrences count too, because either could be meant.
    let overlaps = positions.first().is_some_and(|first| {
        let next = first + edit.old.chars().next().map_or(1, char::len_utf8);
        positions.len() == 1 && text[next..].contains(&edit.old)
    });
    match positions.len() {
        0 => {
            let lines =
                if text.contains("\r\n") && edit.old.contains('\n') && !edit.old.contains("\r\n") {
                    " (the file's lines end in CR LF)"
                } else {
                    ""
                };
            let message = format!(
                "edit {number}: the text to replace does not stand in `{name}`{lines}: read the file, and give it exactly \
                 as it stands there"
            );
            Err(ErrorInfo::new(ErrorCode::TextNotFound, message))
        }
        1 if !overlaps => {
            check_size(text, edit, 1, name)?;
            Ok(text.replacen(&edit.old, &edit.new, 1))
        }
        _ if edit.replace_all => {
            check_size(text, edit, text.matches(&edit.old).count(), name)?;
            Ok(text.replace(&edit.old, &edit.new))
        }
        _ => {
            let lines: Vec<String> = positions
                .iter()
                .take(5)
                .map(|at| {
                    (text[..*at].bytes().filter(|byte| *byte == b'\n').count() + 1).to_string()
                })
                .collect();
            let message = format!(
                "edit {number}: the text to replace stands in `{name}` more than once (lines {}): give more of the text \
                 around it, or replace_all=true",
                lines.join(", ")
            );
            Err(ErrorInfo::new(ErrorCode::AmbiguousEdit, message))
        }
    }
}

/// Rejects a replacement that would make the text larger than the maximum file size, before it is
/// made.
fn check_size(text: &str, edit: &Replacement, count: usize, name: &str) -> Result<(), ErrorInfo> {
    let added = edit
        .new
        .len()
        .saturating_sub(edit.old.len())
        .saturating_mul(count);
    match text.len().saturating_add(added) as u64 {
        size if size > MAX_FILE_BYTES => {
            let message =
                format!("`{name}` would have {size} bytes: at most {MAX_FILE_BYTES} can be edited");
            Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message))
        }
        _ => Ok(()),
    }
}

/// Old and new lines of a hunk, and the index of the first old line, from 0.
struct Hunk<'a> {
    start: usize,
    old: Vec<&'a str>,
    new: Vec<&'a str>,
}

fn patch(text: &str, diff: &str, name: &str) -> Result<String, ErrorInfo> {
    let broken = |why: String| {
        let message = format!(
            "the diff cannot be used: {why}. Write a unified diff of one file, or use edits"
        );
        ErrorInfo::new(ErrorCode::PatchApplyFailed, message)
    };
    let parsed = diffy::Patch::from_str(diff).map_err(|error| broken(error.to_string()))?;
    if parsed.hunks().is_empty() {
        return Err(broken("it has no hunk".to_owned()));
    }
    let hunks = parsed.hunks().iter().map(|hunk| {
        let mut old = Vec::new();
        let mut new = Vec::new();
        for line in hunk.lines() {
            match line {
                diffy::Line::Context(line) => {
                    old.push(*line);
                    new.push(*line);
                }
                diffy::Line::Delete(line) => old.push(*line),
                diffy::Line::Insert(line) => new.push(*line),
            }
        }
        Hunk {
            start: hunk.old_range().start().saturating_sub(1),
            old,
            new,
        }
    });
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut result = String::with_capacity(text.len());
    let mut done = 0;
    let mut shift = 0_isize;
    for (number, hunk) in hunks.enumerate() {
        let at = find_hunk(&lines, &hunk, done, shift)
            .map_err(|why| why.into_error(number + 1, name))?;
        shift = at as isize - hunk.start as isize;
        lines[done..at]
            .iter()
            .chain(&hunk.new)
            .for_each(|line| result.push_str(line));
        done = at + hunk.old.len();
    }
    lines[done..].iter().for_each(|line| result.push_str(line));
    Ok(result)
}

/// Why a hunk does not fit.
enum HunkMismatch {
    NotFound,
    Ambiguous,
}

impl HunkMismatch {
    fn into_error(self, number: usize, name: &str) -> ErrorInfo {
        match self {
            Self::NotFound => ErrorInfo::new(
                ErrorCode::PatchApplyFailed,
                format!(
                    "hunk {number}: its lines do not stand in `{name}` as they are: read the file, and diff that"
                ),
            ),
            Self::Ambiguous => ErrorInfo::new(
                ErrorCode::AmbiguousEdit,
                format!(
                    "hunk {number}: its lines stand in `{name}` in more places than one, and not where it says: give more \
                     lines around the change"
                ),
            ),
        }
    }
}

/// Returns the index at which the old lines of a hunk are, at or after `from`: the stated position,
/// shifted like the previous hunk, or else the only match.
fn find_hunk(
    lines: &[&str],
    hunk: &Hunk<'_>,
    from: usize,
    shift: isize,
) -> Result<usize, HunkMismatch> {
    let matches_at = |at: usize| {
        at >= from
            && lines
                .get(at..at + hunk.old.len())
                .is_some_and(|old_lines| old_lines == hunk.old.as_slice())
    };
    // The header of a hunk that only adds lines states the line before them.
    let stated_line = if hunk.old.is_empty() && !lines.is_empty() {
        hunk.start + 1
    } else {
        hunk.start
    };
    if let Some(at) = stated_line
        .checked_add_signed(shift)
        .filter(|at| matches_at(*at))
    {
        return Ok(at);
    }
    if hunk.old.is_empty() {
        return Err(HunkMismatch::NotFound);
    }
    // Lines that repeat would be compared for each position.
    if lines.len().saturating_mul(hunk.old.len()) > MAX_COMPARED_LINES {
        return Err(HunkMismatch::NotFound);
    }
    let mut positions = (from..lines.len()).filter(|at| matches_at(*at));
    match (positions.next(), positions.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(HunkMismatch::NotFound),
        (Some(_), Some(_)) => Err(HunkMismatch::Ambiguous),
    }
}
