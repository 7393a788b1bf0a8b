//! Summaries of a conversation: their sections, the validation of the model's answer, and the
//! summary message (CTX-3).
//!
//! A message is a summary if it records which messages it covers.

use soong_protocol::{ErrorCode, ErrorInfo, GoalTree, Message};

use super::truncate::truncate_middle;

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
/// Minimum number of sections of an accepted summary. Not all are required, because models
/// sometimes rename sections.
const MIN_SECTIONS: usize = 3;
/// Note that precedes a summary that lacks the requested sections.
const NO_SECTIONS_NOTE: &str = "(The summary does not have the sections that were asked for.)";
/// First words of a summary message.
const SUMMARY_MARK: &str = "# Summary of messages ";
/// Heading of the goals in a summary message. They follow the summary and are copied, not
/// summarized.
const GOALS_HEADING: &str = "\n\n## Goals at that point\n";
/// Maximum length of the goals in a summary message, in characters.
const MAX_GOALS_CHARS: usize = 6_000;

/// Checks that a model's answer is a summary, and returns it without a code fence around it.
///
/// The answer must contain at least [`MIN_SECTIONS`] of the section headings, and some other text.
/// The meaning of the text is not checked.
pub(crate) fn accept_summary(answer: &str) -> Result<String, ErrorInfo> {
    let text = strip_code_fence(answer.trim());
    if text.is_empty() {
        return Err(invalid_summary("it is empty"));
    }
    let found = SECTIONS
        .iter()
        .filter(|section| text.lines().any(|line| is_heading_of(line, section)))
        .count();
    if found < MIN_SECTIONS {
        let all = SECTIONS.len();
        return Err(invalid_summary(&format!(
            "only {found} of its {all} sections are present"
        )));
    }
    if !has_content(text) {
        return Err(invalid_summary("its sections are empty"));
    }
    Ok(text.to_owned())
}

/// Returns an answer that lacks the requested sections as a summary, after a note that says so.
/// `None` if it contains no text except section headings.
pub(crate) fn plain_summary(answer: &str) -> Option<String> {
    let text = strip_code_fence(answer.trim());
    has_content(text).then(|| format!("{NO_SECTIONS_NOTE}\n\n{text}"))
}

/// Returns the error for a summary that saves less than 20 % of the tokens of the messages.
/// `before` and `after` count only the messages, not the system prompt and the tools.
pub(crate) fn saves_too_little(before: u64, after: u64) -> ErrorInfo {
    ErrorInfo::retryable(
        ErrorCode::ProviderError,
        format!(
            "the summary saves less than 20 % of the messages ({after} tokens instead of {before}); nothing was compacted, \
             the messages are unchanged"
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
        format!(
            "the model's answer is not a valid summary: {why}; nothing was compacted, the messages are unchanged"
        ),
    )
}

/// Removes a code fence if it surrounds the whole text.
fn strip_code_fence(text: &str) -> &str {
    let inside = text
        .strip_prefix("```")
        .and_then(|rest| rest.strip_suffix("```"));
    match inside.and_then(|inside| inside.split_once('\n')) {
        Some((language, inside)) if !language.trim().contains(' ') => inside.trim(),
        _ => text,
    }
}

/// Returns whether a line is the heading of a section, such as `## Artifacts`, `**Artifacts:**` or
/// `2. Artifacts: a, b`.
fn is_heading_of(line: &str, section: &str) -> bool {
    let title = line.trim_start_matches(|c: char| !c.is_alphabetic());
    let head = title.get(..section.len());
    let rest = title.get(section.len()..).unwrap_or_default();
    head.is_some_and(|head| head.eq_ignore_ascii_case(section))
        && !rest.starts_with(char::is_alphanumeric)
}

/// Returns the text of the summary message that replaces the messages `first` to `last`.
///
/// The current goals are appended, rendered from the goal tree and shortened to
/// [`MAX_GOALS_CHARS`].
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

/// Maximum length of the earlier summary in [`omitted_message`], in characters.
const MAX_EARLIER_CHARS: usize = 1_500;

/// Returns the message that replaces messages that are left out without a summary. `earlier`: the
/// summary that they begin with, whose text is kept, shortened.
pub(crate) fn omitted_message(
    earlier: Option<&Message>,
    first: u64,
    last: u64,
    goals: &GoalTree,
) -> String {
    const NOTE: &str =
        "They are left out without a summary, because the context window is too small.";
    let text = match earlier {
        Some(summary) => {
            let text = without_goals(&summary.content);
            format!(
                "{NOTE} Before them:\n\n{}",
                truncate_middle(text, MAX_EARLIER_CHARS)
            )
        }
        None => NOTE.to_owned(),
    };
    summary_message(&text, first, last, goals)
}

/// Returns whether a message is a summary.
pub(crate) fn is_summary(message: &Message) -> bool {
    message.covers.is_some()
}

/// Returns the text of an earlier summary message without its goals, which are outdated.
pub(super) fn without_goals(text: &str) -> &str {
    text.rfind(GOALS_HEADING).map_or(text, |at| &text[..at])
}
