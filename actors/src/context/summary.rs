//! Summaries: their sections, the check whether an answer is one, and the message they are turned into (CTX-3).
//!
//! A message is a summary if it records which messages it covers.

use soong_protocol::{ErrorCode, ErrorInfo, GoalTree, Message};

use super::clip::truncate_middle;

/// Sections of a summary, in order.
pub(crate) const SECTIONS: [&str; 7] = [
    "Request and intent",
    "Artifacts",
    "Tool interactions",
    "Errors and fixes",
    "Pending tasks",
    "Current work",
    "Next step",
];
/// Minimum number of sections of an accepted summary. Not all are required, because models rename one or two.
const MIN_SECTIONS: usize = 3;
/// Note before a summary without the requested sections.
const NO_SECTIONS_NOTE: &str = "(The summary does not have the sections that were asked for.)";
/// Beginning of a message that replaces others.
const SUMMARY_MARK: &str = "# Summary of messages ";
/// Heading after the summary itself, followed by the current plan, which is copied and not summarized.
const GOALS_HEADING: &str = "\n\n## Goals at that point\n";
/// Maximum length of that plan, in characters.
const MAX_GOALS_CHARS: usize = 6_000;

/// Checks that an answer is a summary, and returns it without surrounding text.
///
/// It must contain at least three of the sections and some text below the headings. The content is not judged.
pub(crate) fn accept_summary(answer: &str) -> Result<String, ErrorInfo> {
    let text = strip_code_fence(answer.trim());
    if text.is_empty() {
        return Err(invalid_summary("it is empty"));
    }
    let found = SECTIONS.iter().filter(|section| text.lines().any(|line| is_heading_of(line, section))).count();
    if found < MIN_SECTIONS {
        let all = SECTIONS.len();
        return Err(invalid_summary(&format!("only {found} of its {all} sections are there")));
    }
    if !has_content(text) {
        return Err(invalid_summary("its sections are empty"));
    }
    Ok(text.to_owned())
}

/// Returns an answer without the requested sections as a summary with a note, or `None` if it contains only headings.
pub(crate) fn plain_summary(answer: &str) -> Option<String> {
    let text = strip_code_fence(answer.trim());
    has_content(text).then(|| format!("{NO_SECTIONS_NOTE}\n\n{text}"))
}

/// Returns the error for a summary that saves less than 20 % of the messages. Both counts are tokens of messages.
pub(crate) fn saves_too_little(before: u64, after: u64) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::ProviderError,
        format!(
            "the summary saves less than 20 % of the messages ({after} tokens instead of {before}); nothing was compacted, \
             the messages stay as they are"
        ),
    )
}

/// Returns whether a text contains anything except section headings.
fn has_content(text: &str) -> bool {
    text.lines().any(|line| {
        let is_heading = SECTIONS.iter().any(|section| is_heading_of(line, section));
        !is_heading && line.chars().any(char::is_alphanumeric)
    })
}

fn invalid_summary(why: &str) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::ProviderError,
        format!("the model's answer is no summary: {why}; nothing was compacted, the messages stay as they are"),
    )
}

/// Removes a code fence around the whole text.
fn strip_code_fence(text: &str) -> &str {
    let inside = text.strip_prefix("```").and_then(|rest| rest.strip_suffix("```"));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((language, inside)) if !language.trim().contains(' ') => inside.trim(),
        _ => text,
    }
}

/// Returns whether a line is the heading of a section, such as `## Artifacts`, `**Artifacts:**` or `2. Artifacts: a,
/// b`.
fn is_heading_of(line: &str, section: &str) -> bool {
    let title = line.trim_start_matches(|c: char| !c.is_alphabetic());
    let head = title.get(..section.len());
    let rest = title.get(section.len()..).unwrap_or_default();
    head.is_some_and(|head| head.eq_ignore_ascii_case(section)) && !rest.starts_with(char::is_alphanumeric)
}

/// Returns the message that replaces the messages `first` to `last`.
///
/// It contains the current goals as they are, not as the summary describes them.
pub(crate) fn summary_message(summary: &str, first: u64, last: u64, goals: &GoalTree) -> String {
    let mut text = format!(
        "{SUMMARY_MARK}{first}–{last}\n\nThis stands for the messages {first} to {last} of this conversation, which \
         are no longer shown. Go on from here; do not begin anew.\n\n{}",
        summary.trim()
    );
    if !goals.goals.is_empty() {
        text.push_str(GOALS_HEADING);
        text.push_str(truncate_middle(&goals.render(true), MAX_GOALS_CHARS).trim_end());
    }
    text
}

/// Returns whether a message is a summary that replaces others.
pub(crate) fn is_summary(message: &Message) -> bool {
    message.covers.is_some()
}

/// Returns an earlier summary without its plan, which is outdated.
pub(super) fn without_goals(text: &str) -> &str {
    text.rfind(GOALS_HEADING).map_or(text, |at| &text[..at])
}
