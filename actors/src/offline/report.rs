//! The report writer: combines findings deterministically.
//!
//! Invariant: backticks contain only paths, so that the evaluator can check each of them.

use serde_json::json;

use super::{
    NOTICE, Turn,
    conversation::Conversation,
    count,
    listing::{Listing, languages},
    outcome::Outcome,
    plain_line,
    plan::Scope,
};

const FINDING_MARK: &str = "=== Findings ";
const STATUS_MARK: &str = "Status: ";
const SCOPE_MARK: &str = "Scope: ";
const ASKED_MARK: &str = "Asked: ";
/// Maximum size of all findings in a task, and of one finding, in bytes.
const MAX_FINDINGS_BYTES: usize = 60_000;
const MAX_FINDING_BYTES: usize = 6_000;
/// Last line of a report. Its presence shows that the report is not truncated.
pub(super) const LAST_LINE: &str =
    "_Made by rules from what the tools showed; no language model was used._";

/// Returns the task: the user's request, the findings of the last evaluation, and the explorers'
/// results.
pub(super) fn task(
    request: &str,
    objections: &[String],
    found: &[(Scope, Option<Outcome>)],
) -> String {
    let mut text = match objections {
        [] => "Write a report on the project.\n".to_owned(),
        _ => "Write a report on the project again: the first one did not pass its check.\n"
            .to_owned(),
    };
    text.push_str(&format!("\n{ASKED_MARK}{}\n", plain_line(request, 300)));
    for objection in objections.iter().take(20) {
        text.push_str(&format!(
            "- The check found: {}\n",
            plain_line(objection, 200)
        ));
    }
    text.push_str(
        "\nUse the findings below and nothing else. A section for each, under its own heading; put paths, and only \
         paths, in backticks; say what is missing.\n",
    );
    for (number, (scope, outcome)) in found.iter().enumerate() {
        let head = format!(
            "\n{FINDING_MARK}{}: {}\n{SCOPE_MARK}{}\n",
            number + 1,
            scope.label,
            scope.to_json()
        );
        let (status, body) = match outcome {
            Some(outcome) if outcome.is_complete() => {
                ("completed".to_owned(), outcome.summary.as_str())
            }
            Some(outcome) => {
                let why = outcome.error.as_deref().unwrap_or("it did not say why");
                (
                    plain_line(&format!("{}: {why}", outcome.status), 200),
                    outcome.summary.as_str(),
                )
            }
            None => ("no result came back".to_owned(), ""),
        };
        let room = MAX_FINDINGS_BYTES
            .saturating_sub(text.len() + head.len())
            .min(MAX_FINDING_BYTES);
        text.push_str(&format!("{head}{STATUS_MARK}{status}\n"));
        text.push_str(&fitting_lines(body, room));
    }
    text
}

/// Returns the lines of `body` that fit, with a note if some were cut.
fn fitting_lines(body: &str, room: usize) -> String {
    let mut text = String::new();
    for line in body.lines() {
        // No line of a finding may look like the start of the next finding.
        let line = if line.starts_with("===") || line.starts_with('#') {
            format!(" {line}")
        } else {
            line.to_owned()
        };
        if text.len() + line.len() + 1 > room {
            text.push_str("(the rest was cut)\n");
            return text;
        }
        text.push_str(&line);
        text.push('\n');
    }
    text
}

/// Returns whether a task was written by this model.
pub(super) fn is_asked(task: &str) -> bool {
    task.starts_with("Write a report") && task.contains(FINDING_MARK)
}

/// Decides the report writer's next turn.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    if conversation.offers("list_files") && !conversation.has_called("list_files") {
        let list = json!({"path": ".", "recursive": true, "limit": 1000});
        return Turn::call_tools(
            "Looking at the project once more before writing.",
            vec![("list_files", list)],
        );
    }
    let listing = conversation
        .calls("list_files")
        .find_map(|exchange| exchange.ok())
        .map(Listing::parse);
    Turn::answer(write(conversation.task, listing.as_ref()))
}

struct Finding<'a> {
    scope: Scope,
    status: &'a str,
    body: String,
}

fn findings(task: &str) -> Vec<Finding<'_>> {
    let blocks = task.split("\n=== Findings ").skip(1);
    let read = |block| {
        let mut lines = str::lines(block).skip(1);
        let scope = lines
            .next()?
            .strip_prefix(SCOPE_MARK)
            .and_then(Scope::from_json)?;
        let status = lines.next()?.strip_prefix(STATUS_MARK)?;
        Some(Finding {
            scope,
            status,
            body: lines.collect::<Vec<_>>().join("\n").trim().to_owned(),
        })
    };
    blocks.filter_map(read).collect()
}

fn write(task: &str, listing: Option<&Listing>) -> String {
    let found = findings(task);
    let request = task
        .lines()
        .find_map(|line| line.strip_prefix(ASKED_MARK))
        .unwrap_or_default();
    let mut text = format!("# Report on the project\n\n{}\n", overview(&found, listing));
    if !request.is_empty() {
        text.push_str(&format!("\nWhat was asked: {request}\n"));
    }
    for finding in &found {
        text.push_str(&section(finding, listing));
    }
    let missing: Vec<&Finding<'_>> = found
        .iter()
        .filter(|finding| finding.status != "completed")
        .collect();
    if !missing.is_empty() {
        text.push_str("\n## What is missing\n\n");
        for finding in missing {
            text.push_str(&format!(
                "- {} ({})\n",
                finding.scope.label,
                plain_line(finding.status, 200)
            ));
        }
    }
    text.push_str(&format!("\n{LAST_LINE}\n"));
    text
}

fn overview(found: &[Finding<'_>], listing: Option<&Listing>) -> String {
    let parts = count(found.len() as u64, "part");
    let Some(listing) = listing else {
        return format!("{parts} of the project were looked at.");
    };
    if listing.total_files == 0 {
        return format!("The project holds no files. {parts} looked at.");
    }
    let files = count(listing.total_files, "file");
    let bytes = count(listing.total_bytes, "byte");
    let mut text = format!("The project holds {files}, {bytes} in all; {parts} looked at.");
    let languages = languages(
        listing
            .files
            .iter()
            .map(|(path, size)| (path.as_str(), *size)),
        5,
    );
    if !languages.is_empty() {
        text.push_str(&format!(" Main languages and formats: {languages}."));
    }
    if listing.is_truncated {
        text.push_str(&format!(
            " The listing showed {} of the files; the others are only counted.",
            listing.files.len()
        ));
    }
    text
}

fn section(finding: &Finding<'_>, listing: Option<&Listing>) -> String {
    let scope = &finding.scope;
    let mut text = format!("\n## {}\n\n", scope.label);
    let own = scope
        .folders
        .iter()
        .chain(scope.direct.iter().filter(|folder| *folder != "./"));
    let unnamed: Vec<String> = own
        .map(|own| format!("`{own}`"))
        .filter(|own| !scope.label.contains(own))
        .collect();
    if !unnamed.is_empty() {
        text.push_str(&format!("Also here: {}.\n\n", unnamed.join(", ")));
    }
    if finding.status != "completed" {
        text.push_str(&format!(
            "This part was not explored to its end ({}).",
            plain_line(finding.status, 200)
        ));
        if let Some(listing) = listing.filter(|listing| !listing.is_truncated) {
            let own = listing
                .files
                .iter()
                .filter(|(path, _)| scope.contains(path));
            let (files, bytes) = own.fold((0, 0), |sum, (_, size)| (sum.0 + 1, sum.1 + size));
            text.push_str(&format!(
                " The listing shows {}, {}.",
                count(files, "file"),
                count(bytes, "byte")
            ));
        }
        text.push('\n');
    }
    // Each explorer adds the notice; once per report is enough.
    let body = finding.body.replace(&format!("({NOTICE}.)"), "");
    text.push_str(body.trim());
    text.push('\n');
    text
}
