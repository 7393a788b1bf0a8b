//! Content of a step: the call in one line, and rows below it.

use std::{collections::BTreeSet, ops::Range};

use serde_json::Value;
use soong_protocol::Usd;

use super::Children;
use crate::{
    format,
    request::{Row, diff_rows, wrap_rows},
    styled_line::StyledLine,
    terminal::TextStyle,
    text,
};

/// Maximum number of rows of a diff.
const MAX_DIFF_ROWS: usize = 40;
/// Number of lines of the end of a command's output.
const OUTPUT_LINES: usize = 3;
/// Duration from which a step names it, in milliseconds. Steps of commands always do.
const MIN_DURATION_MS: u64 = 1_000;
/// Arguments that name what a call is about, the most telling first.
const TELLING_ARGUMENTS: [&str; 8] = [
    "command", "pattern", "url", "query", "path", "name", "question", "task",
];
/// Tools whose result begins with the path of a file and what was done to it.
const FILE_TOOLS: [&str; 2] = ["edit", "write"];
/// Spaces before the rows below a step.
const INDENT: &str = "  ";

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    Done {
        duration_ms: u64,
        /// Change of a file, as a unified diff.
        diff: Option<String>,
    },
    /// The error's message.
    Failed(String),
    /// Who or what denied it.
    Denied(String),
}

/// A call that has no result yet.
#[derive(Debug, Clone)]
pub(super) struct Call {
    tool: String,
    /// Arguments as JSON, which may be cut.
    arguments: String,
    pub(super) outcome: Option<Outcome>,
    pub(super) children: Children,
}

/// Result of one call, or of several calls that read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Name of the tool.
    pub(super) tool: String,
    has_result: bool,
    style: TextStyle,
    /// Subject of the call.
    target: String,
    /// Number of calls, or of sub-agents.
    count: usize,
    /// Numbers of added and removed lines.
    changed_lines: Option<(usize, usize)>,
    /// Result, duration or error.
    detail: String,
    rows: Vec<Row>,
    fold: Fold,
}

/// Which of many rows are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fold {
    /// The first [`MAX_DIFF_ROWS`], as of a diff.
    First,
    /// The last [`OUTPUT_LINES`], as of a command's output.
    Last,
    /// No rows.
    Hidden,
}

impl Step {
    /// Returns whether the calls were executed and have a result. The command of such a call may
    /// have failed.
    pub fn has_result(&self) -> bool {
        self.has_result
    }

    /// Returns whether the call changed a file.
    pub fn changes_file(&self) -> bool {
        self.has_result && FILE_TOOLS.contains(&self.tool.as_str())
    }

    /// Returns the step as a line of plain text, without the rows below it.
    pub fn summary(&self) -> String {
        let mut line = self.subject(false, usize::MAX);
        if !self.detail.is_empty() {
            line.push(
                TextStyle::Plain,
                &format!(": {}", text::safe_line(&self.detail)),
            );
        }
        line.pieces().map(|(_, text)| text).collect()
    }

    /// Returns whether [`Step::lines`] leaves rows out.
    pub fn is_folded(&self) -> bool {
        self.visible_rows().len() < self.rows.len()
    }

    /// Returns the step with all rows hidden.
    pub(super) fn without_rows(self) -> Self {
        Self {
            fold: Fold::Hidden,
            ..self
        }
    }

    fn visible_rows(&self) -> Range<usize> {
        let count = self.rows.len();
        match self.fold {
            Fold::First => 0..count.min(MAX_DIFF_ROWS),
            Fold::Last => count.saturating_sub(OUTPUT_LINES)..count,
            Fold::Hidden => 0..0,
        }
    }

    /// Returns the lines of the step, at most `width` columns wide. Of many rows, some are shown.
    pub fn lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let visible = self.visible_rows();
        let note = |count: usize, suffix: &str| {
            (count > 0 && self.fold != Fold::Hidden).then(|| {
                dim_row(format!(
                    "({} {suffix})",
                    format::plural(count, "line", "lines")
                ))
            })
        };
        let before = note(visible.start, "before");
        let after = note(self.rows.len() - visible.end, "more");
        let rows: Vec<Row> = before
            .into_iter()
            .chain(self.rows[visible].iter().cloned())
            .chain(after)
            .collect();
        self.with_rows(&rows, width, unicode)
    }

    /// Returns the lines of the step with all its rows, at most `width` columns wide. Rows that are
    /// wider are wrapped.
    pub fn all_lines(&self, width: usize, unicode: bool) -> Vec<StyledLine> {
        let rows = wrap_rows(self.rows.clone(), width.saturating_sub(INDENT.len()).max(1));
        self.with_rows(&rows, width, unicode)
    }

    fn with_rows(&self, rows: &[Row], width: usize, unicode: bool) -> Vec<StyledLine> {
        let (mark, ellipsis) = match (self.style, unicode) {
            (TextStyle::Red, true) => ("✗ ", "…"),
            (TextStyle::Yellow, true) => ("⊘ ", "…"),
            (_, true) => ("● ", "…"),
            (TextStyle::Red, false) => ("x ", "..."),
            (TextStyle::Yellow, false) => ("- ", "..."),
            (_, false) => ("* ", "..."),
        };
        let detail = match self.detail.as_str() {
            "" => String::new(),
            detail => format!("  {}", text::safe_line(detail)),
        };
        // The detail says how the call ended, so the subject is cut first. A detail may be as long
        // as an error message.
        let room = width
            .saturating_sub(text::width(mark) + text::width(&detail))
            .max(width / 2);
        let mut head = StyledLine::of(self.style, mark);
        head.append(&self.subject(unicode, room));
        head.push(TextStyle::Dim, &detail);
        let rows = rows
            .iter()
            .map(|row| StyledLine::of(TextStyle::Plain, INDENT).and(row.style, &row.text));
        std::iter::once(head)
            .chain(rows)
            .map(|line| line.cut(width, ellipsis))
            .collect()
    }

    /// Returns the tool, what the call is about, and the numbers of changed lines, at most `width`
    /// columns wide.
    fn subject(&self, unicode: bool, width: usize) -> StyledLine {
        let (times, ellipsis) = if unicode { ("×", "…") } else { ("x", "...") };
        let mut line = StyledLine::of(TextStyle::Bold, text::safe_line(&self.tool));
        if !self.target.is_empty() {
            line.push(
                TextStyle::Plain,
                &format!(" {}", text::escaped_line(&self.target)),
            );
        }
        let mut end = StyledLine::default();
        if self.count > 1 {
            end.push(TextStyle::Plain, &format!(" {times}{}", self.count));
        }
        if let Some((added, removed)) = self.changed_lines {
            end.push(TextStyle::Green, &format!(" +{added}"));
            end.push(TextStyle::Red, &format!(" -{removed}"));
        }
        let mut line = line.cut(width.saturating_sub(end.width()), ellipsis);
        line.append(&end);
        line
    }

    /// Merges steps of one reading tool.
    pub(super) fn merged(mut steps: Vec<Self>) -> Option<Self> {
        let count = steps.len();
        let targets: BTreeSet<String> = steps.iter().map(|step| step.target.clone()).collect();
        let last = steps.pop()?;
        if count == 1 {
            return Some(last);
        }
        let (target, count) = match targets.len() {
            1 => (last.target.clone(), count),
            files if last.tool == "read" => (format!("{files} files"), 1),
            _ => (String::new(), count),
        };
        Some(Self {
            target,
            count,
            detail: String::new(),
            ..last
        })
    }
}

impl Call {
    pub(super) fn new(tool: &str, arguments: &str) -> Self {
        let tool = tool.to_owned();
        let arguments = arguments.to_owned();
        Self {
            tool,
            arguments,
            outcome: None,
            children: Children::default(),
        }
    }

    /// Returns the step of the call with this result. `None` if its outcome was not reported.
    pub(super) fn step(self, result: Option<&str>) -> Option<Step> {
        let target = telling_argument(&self.arguments);
        let empty = Step {
            tool: self.tool,
            has_result: matches!(self.outcome, Some(Outcome::Done { .. })),
            style: TextStyle::Green,
            target,
            count: 1,
            changed_lines: None,
            detail: String::new(),
            rows: Vec::new(),
            fold: Fold::First,
        };
        Some(match self.outcome? {
            Outcome::Failed(message) => Step {
                style: TextStyle::Red,
                detail: message,
                ..empty
            },
            Outcome::Denied(how) => Step {
                style: TextStyle::Yellow,
                detail: how,
                ..empty
            },
            Outcome::Done { duration_ms, .. } if self.children.count > 0 => {
                let types = self.children.types.join(", ");
                let detail = self.children.describe(duration_ms);
                Step {
                    target: types,
                    count: self.children.count,
                    detail,
                    ..empty
                }
            }
            Outcome::Done { duration_ms, diff } => {
                empty.with_result(result.unwrap_or_default(), duration_ms, diff.as_deref())
            }
        })
    }
}

impl Step {
    /// Adds what the result of a successful call says. `diff`: the change of a file, if the result
    /// does not contain it.
    fn with_result(self, result: &str, duration_ms: u64, diff: Option<&str>) -> Self {
        let duration = format::duration(duration_ms);
        if self.tool == "bash"
            && let Some((output, end)) = command_end(result)
        {
            let lines = output.lines().filter(|line| !line.trim().is_empty());
            let rows = lines
                .map(|line| dim_row(text::safe_line_keep_spaces(line)))
                .collect();
            let style = if end == "exit 0" {
                self.style
            } else {
                TextStyle::Red
            };
            return Self {
                style,
                detail: format!("{end}, {duration}"),
                rows,
                fold: Fold::Last,
                ..self
            };
        }
        let (first, rest) = result.split_once('\n').unwrap_or((result, ""));
        if FILE_TOOLS.contains(&self.tool.as_str())
            && let Some((path, change)) = file_change(first)
        {
            let changed_lines = changed_lines(change);
            let detail = if changed_lines.is_some() {
                String::new()
            } else {
                change.to_owned()
            };
            let rows = diff_rows(diff.unwrap_or(rest)).unwrap_or_default();
            return Self {
                target: path.to_owned(),
                changed_lines,
                detail,
                rows,
                ..self
            };
        }
        let size = (self.tool == "webfetch").then(|| format::bytes(result.len() as u64));
        let duration = (duration_ms >= MIN_DURATION_MS).then_some(duration);
        let detail: Vec<String> = size.into_iter().chain(duration).collect();
        Self {
            detail: detail.join(", "),
            ..self
        }
    }
}

impl Children {
    /// Returns the sums of the sub-agents.
    fn describe(&self, duration_ms: u64) -> String {
        let failed = (self.failed > 0).then(|| format!("{} failed", self.failed));
        let tokens = format!("{} tokens", self.spent.tokens());
        let cost = (self.spent.cost > Some(Usd::default())).then(|| self.spent.usd_or(""));
        let parts = failed
            .into_iter()
            .chain([format::duration(duration_ms), tokens])
            .chain(cost);
        parts.collect::<Vec<_>>().join(", ")
    }
}

fn dim_row(text: String) -> Row {
    Row {
        style: TextStyle::Dim,
        text,
    }
}

/// Returns the argument that says most about a call. The JSON may be cut inside a string of its
/// object; nothing is returned if it is cut elsewhere.
fn telling_argument(arguments: &str) -> String {
    let completed = || {
        format!(
            "{}…\"}}",
            arguments.trim_end_matches('…').trim_end_matches('\\')
        )
    };
    let read = serde_json::from_str(arguments).or_else(|_| serde_json::from_str(&completed()));
    let Ok(Value::Object(fields)) = read else {
        return String::new();
    };
    let named = TELLING_ARGUMENTS.iter().find_map(|name| fields.get(*name));
    match named.or_else(|| fields.values().find(|value| value.is_string())) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(several)) => format::plural(several.len(), "item", "items"),
        _ => String::new(),
    }
}

/// Divides the result of a command into its output and how it ended.
fn command_end(result: &str) -> Option<(&str, String)> {
    let starts = ["[exit status ", "[killed "];
    let is_at_start = starts
        .iter()
        .any(|start| result.starts_with(start))
        .then_some(0);
    // The command may have printed the same before.
    let last = starts
        .iter()
        .filter_map(|start| result.rfind(&format!("\n{start}")))
        .max()
        .map(|at| at + 1);
    let start = last.or(is_at_start)?;
    let end = result[start + 1..].split(']').next()?;
    let end = end
        .strip_prefix("exit status ")
        .map_or_else(|| end.to_owned(), |status| format!("exit {status}"));
    Some((&result[..start], end))
}

/// Divides the first line of the result of a file tool into the path and what was done.
fn file_change(line: &str) -> Option<(&str, &str)> {
    let (path, change) = line.strip_prefix('`')?.split_once("` ")?;
    let change = ["edited: ", "written: ", "replaced: "]
        .iter()
        .find_map(|verb| change.strip_prefix(verb))?;
    Some((path, change))
}

/// Reads `3 lines added, 1 removed` or `1 line added, 0 removed`. Earlier versions wrote `1 lines
/// added`.
fn changed_lines(change: &str) -> Option<(usize, usize)> {
    let (added, removed) = change.split_once(" added, ")?;
    let (added, _) = added.split_once(" line")?;
    Some((
        added.parse().ok()?,
        removed.strip_suffix(" removed")?.parse().ok()?,
    ))
}
