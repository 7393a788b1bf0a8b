//! The evaluator: reads the report, and checks that it is complete and names only existing paths.
//!
//! It can fail the report: a folder without a section, a path that does not exist, and a report
//! that is truncated or cannot be read are each a finding.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    NOTICE, Turn, conversation::Conversation, listing::Listing, plain_line, plan::Scope,
    report::LAST_LINE,
};

const CHECK_MARK: &str = "Check: ";
/// Maximum numbers of report pages read, of paths looked up one by one, and of findings reported.
const MAX_PAGES: usize = 6;
const MAX_LOOKED_UP: usize = 60;
const MAX_FINDINGS: usize = 20;

/// Items to check.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Check {
    artifact: String,
    #[serde(default)]
    headings: Vec<String>,
    #[serde(default)]
    folders: Vec<String>,
}

/// Returns the context of an evaluation.
pub(super) fn context(artifact: &str, scopes: &[Scope]) -> String {
    let check = Check {
        artifact: artifact.to_owned(),
        headings: scopes.iter().map(|scope| scope.label.clone()).collect(),
        folders: scopes
            .iter()
            .flat_map(|scope| scope.folders.clone())
            .collect(),
    };
    let json = serde_json::to_string(&check).unwrap_or_default();
    format!(
        "Judge whether the artifact {artifact} is whole and true: it has a section for each part that was explored, \
         names each explored folder, and every path in backticks exists.\n{CHECK_MARK}{json}"
    )
}

fn check(conversation: &Conversation<'_>) -> Option<Check> {
    serde_json::from_str(conversation.find_line_after(CHECK_MARK)?.trim()).ok()
}

/// Returns whether the request asks for an evaluation.
pub(super) fn is_asked(conversation: &Conversation<'_>) -> bool {
    let task = conversation.task.trim_start().to_lowercase();
    let is_evaluation = ["evaluate", "judge", "check whether"]
        .iter()
        .any(|word| task.starts_with(word));
    is_evaluation
        || check(conversation).is_some()
        || conversation.system_contains("You judge whether a goal is met")
}

/// Decides the evaluator's next turn.
pub(super) fn next(conversation: &Conversation<'_>) -> Turn {
    let check = check(conversation).unwrap_or_else(|| Check {
        artifact: "report".to_owned(),
        ..Check::default()
    });
    if !conversation.has_called("read_artifact") && !conversation.has_called("list_files") {
        let mut calls = Vec::new();
        if conversation.offers("read_artifact") {
            calls.push(("read_artifact", json!({"name": check.artifact})));
        }
        if conversation.offers("list_files") {
            calls.push((
                "list_files",
                json!({"path": ".", "recursive": true, "limit": 1000}),
            ));
        }
        if !calls.is_empty() {
            return Turn::call_tools("Reading the report, and looking at the project.", calls);
        }
    }
    let Some(report) = read(conversation) else {
        return verdict(
            &[format!("the artifact {} could not be read", check.artifact)],
            "nothing could be checked",
        );
    };
    let pages = conversation.calls("read_artifact").count();
    let went_on = conversation
        .calls("read_artifact")
        .last()
        .is_some_and(|exchange| exchange.ok().is_some());
    if !report.contains(LAST_LINE) && went_on && pages < MAX_PAGES && report.lines().count() > 20 {
        let offset = report.lines().count() + 1;
        return Turn::call_tools(
            "Reading on.",
            vec![(
                "read_artifact",
                json!({"name": check.artifact, "offset": offset}),
            )],
        );
    }
    let unknown = unknown_paths(conversation, &report);
    let calls = lookups(conversation, &unknown);
    if !calls.is_empty() {
        return Turn::call_tools("Looking up paths that the listing did not show.", calls);
    }
    let (findings, remark) = judge(conversation, &check, &report, &unknown);
    verdict(&findings, &remark)
}

/// Returns the pages of the report that were read.
fn read(conversation: &Conversation<'_>) -> Option<String> {
    let pages: Vec<&str> = conversation
        .calls("read_artifact")
        .filter_map(|exchange| exchange.ok())
        .collect();
    (!pages.is_empty()).then(|| pages.join("\n"))
}

/// Returns the texts in backticks. By the convention of the report, these are paths.
fn named_paths(report: &str) -> BTreeSet<&str> {
    let in_line = |line| str::split(line, '`').skip(1).step_by(2);
    report
        .lines()
        .flat_map(in_line)
        .filter(|path| !path.is_empty())
        .collect()
}

/// Returns the named paths that the listing does not contain.
fn unknown_paths(conversation: &Conversation<'_>, report: &str) -> Vec<String> {
    let listing = conversation
        .calls("list_files")
        .find(|exchange| exchange.text("path") == Some("."));
    let listing = listing
        .and_then(|exchange| exchange.ok())
        .map(Listing::parse)
        .unwrap_or_default();
    let known = |path: &str| {
        matches!(path, "." | "./")
            || listing.files.contains_key(path)
            || listing.folders.contains(path)
    };
    named_paths(report)
        .into_iter()
        .filter(|path| !known(path))
        .map(str::to_owned)
        .collect()
}

/// Returns calls that look up paths one by one. Made only once.
fn lookups(conversation: &Conversation<'_>, unknown: &[String]) -> Vec<(&'static str, Value)> {
    let has_looked_up =
        conversation.has_called("read") || conversation.calls("list_files").count() > 1;
    if has_looked_up {
        return Vec::new();
    }
    let ask = |path: &String| {
        if path.ends_with('/') {
            conversation
                .offers("list_files")
                .then(|| ("list_files", json!({"path": path, "limit": 1})))
        } else {
            conversation
                .offers("read")
                .then(|| ("read", json!({"path": path, "max_lines": 1})))
        }
    };
    unknown.iter().take(MAX_LOOKED_UP).filter_map(ask).collect()
}

fn judge(
    conversation: &Conversation<'_>,
    check: &Check,
    report: &str,
    unknown: &[String],
) -> (Vec<String>, String) {
    let mut findings = Vec::new();
    if !report.contains(LAST_LINE) {
        findings.push(
            "the report has no closing line: it is not whole, or could not be read to its end"
                .to_owned(),
        );
    }
    let headings: BTreeSet<&str> = report
        .lines()
        .filter_map(|line| line.trim().strip_prefix("## "))
        .collect();
    let without_section = check
        .headings
        .iter()
        .filter(|heading| !headings.contains(heading.trim()));
    findings.extend(
        without_section
            .map(|heading| format!("there is no section on {}", plain_line(heading, 120))),
    );
    let named = named_paths(report);
    let unnamed = check
        .folders
        .iter()
        .filter(|folder| !named.contains(folder.as_str()));
    findings.extend(
        unnamed.map(|folder| format!("the folder {} is not named", plain_line(folder, 120))),
    );
    let looked_up = |path: &str| {
        conversation
            .exchanges
            .iter()
            .find(|exchange| exchange.text("path") == Some(path))
    };
    let mut unchecked = 0;
    for path in unknown {
        match looked_up(path) {
            Some(exchange) if exchange.error().is_some_and(is_missing) => {
                findings.push(format!(
                    "{} is named and does not exist",
                    plain_line(path, 120)
                ));
            }
            Some(_) => {}
            None => unchecked += 1,
        }
    }
    let mut remark = format!(
        "{} sections and {} paths checked",
        check.headings.len(),
        named.len() - unchecked
    );
    if unchecked > 0 {
        remark.push_str(&format!(", {unchecked} paths not checked"));
    }
    (findings, remark)
}

/// Whether an error means that the path does not exist. A file that is binary or too large exists.
fn is_missing(error: &str) -> bool {
    ["file_not_found", "outside_allowed_roots", "there is no"]
        .iter()
        .any(|mark| error.contains(mark))
}

fn verdict(findings: &[String], remark: &str) -> Turn {
    let passed = findings.is_empty();
    let outcome = if passed {
        "nothing is wrong".to_owned()
    } else {
        format!("{} found wrong", findings.len())
    };
    let reported: Vec<&String> = findings.iter().take(MAX_FINDINGS).collect();
    let summary = format!("{remark}: {outcome} ({NOTICE})");
    Turn::answer(json!({"passed": passed, "summary": summary, "findings": reported}).to_string())
}
