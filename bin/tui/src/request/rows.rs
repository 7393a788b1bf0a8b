//! Questions and permission requests as rows of text.

mod diff;

use soong_protocol::{ChainLink, Permission, Question, Scope};

pub(crate) use self::diff::diff_rows;
use crate::{terminal::TextStyle, text};

/// Maximum length in characters of a task in the chain of requesting agents.
const TASK_CHARS: usize = 80;

/// Maximum length in characters of a target in a heading row; the arguments show it in full.
pub const TARGET_CHARS: usize = 200;
/// Row width in columns if the width of the terminal is unknown.
pub const DEFAULT_COLUMNS: usize = 100;
/// Margin mark before each line of model text.
const MARGIN_MARK: &str = "| ";

/// Mark before each continuation of a row that is too wide, so that no text can pass for a separate
/// row.
const CONTINUATION_MARK: &str = "|> ";

/// Row of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// Color of the row.
    pub style: TextStyle,
    /// Text without control characters.
    pub text: String,
}

impl Row {
    /// Creates a row without color.
    pub fn plain(text: String) -> Self {
        Self {
            style: TextStyle::Plain,
            text,
        }
    }
}

/// Splits rows wider than `columns` into several rows and marks each continuation.
pub fn wrap_rows(rows: Vec<Row>, columns: usize) -> Vec<Row> {
    let mut fitted = Vec::new();
    for Row { style, text } in rows {
        let (first, mut rest) = text::first_row(&text, columns);
        fitted.push(Row {
            style,
            text: first.to_owned(),
        });
        while !rest.is_empty() {
            let (next, further) =
                text::first_row(rest, columns.saturating_sub(CONTINUATION_MARK.len()).max(1));
            fitted.push(Row {
                style,
                text: format!("{CONTINUATION_MARK}{next}"),
            });
            rest = further;
        }
    }
    fitted
}

/// Formats a model's question, with a margin mark before each line.
pub fn question_rows(question: &Question) -> Vec<Row> {
    let whom = question
        .to
        .as_deref()
        .map(|to| Row::plain(format!("for {}:", text::escaped_line(to))));
    whom.into_iter()
        .chain(with_margin(&question.question).into_iter().map(Row::plain))
        .collect()
}

/// Formats a permission request: what the call does, which agents request it and what a permission
/// for the session would cover. All text is made safe for a terminal, and model text gets a margin
/// mark. The last row repeats tool, target and risk. Paths in `project`, a folder, are shown
/// relative to it. Rows may be wider than the terminal; see [`wrap_rows`].
pub fn permission_rows(permission: &Permission, project: Option<&str>) -> Vec<Row> {
    let access = &permission.demand;
    let target = in_project(&access.target, project);
    let tool = text::safe_line(&permission.tool);
    let target = text::cut(&text::escaped_line(&target), TARGET_CHARS, "…");
    let mut body_rows = vec![Row::plain(format!("{tool} requests permission: {target}"))];
    let as_diff = permission.diff.as_deref().and_then(diff_rows);
    if as_diff.is_some() && text::width(&text::escaped_line(&access.target)) > TARGET_CHARS {
        body_rows.extend(with_margin(&access.target).into_iter().map(Row::plain));
    }
    body_rows.extend(as_diff.unwrap_or_else(|| {
        with_margin(&format_arguments(&permission.arguments))
            .into_iter()
            .map(Row::plain)
            .collect()
    }));
    let mut rows = Vec::new();
    if permission.chain.len() > 1 {
        let link = |link: &ChainLink| {
            let task = text::cut(&text::escaped_line(&link.task), TASK_CHARS, "…");
            format!("{} ({task})", text::safe_line(&link.agent_type))
        };
        let chain: Vec<String> = permission.chain.iter().map(link).collect();
        rows.push(format!("requested by {}", chain.join(" > ")));
    }
    rows.extend(access.note.as_deref().map(text::safe_line));
    if access.is_grantable_for_session() {
        let scope = scope_in_project(&access.scope, project).to_string();
        rows.push(format!("session scope: {}", text::escaped_line(&scope)));
    }
    let risk = if access.is_sensitive {
        " (sensitive)"
    } else {
        ""
    };
    rows.push(format!("{tool}: {target}{risk}"));
    body_rows.extend(rows.into_iter().map(Row::plain));
    body_rows
}

/// Returns a path relative to the project, if it is below it.
fn in_project(path: &str, project: Option<&str>) -> String {
    let relative = project.and_then(|project| path.strip_prefix(project)?.strip_prefix('/'));
    relative.unwrap_or(path).to_owned()
}

/// Returns a scope with its folder relative to the project.
fn scope_in_project(scope: &Scope, project: Option<&str>) -> Scope {
    let folder = |path: &str| match project {
        Some(project) if path == project => "the project folder".to_owned(),
        _ => in_project(path, project),
    };
    match scope.clone() {
        Scope::Directory { path } => Scope::Directory {
            path: folder(&path),
        },
        Scope::Command {
            executable,
            directory,
        } => Scope::Command {
            executable,
            directory: folder(&directory),
        },
        Scope::CommandLine { command, directory } => Scope::CommandLine {
            command,
            directory: folder(&directory),
        },
        other => other,
    }
}

/// Prefixes each line with a margin mark, so that model text cannot imitate the program's own rows.
/// Runs of empty lines are collapsed into one row.
pub fn with_margin(text: &str) -> Vec<String> {
    let mut rows = Vec::new();
    let mut empty = 0_usize;
    for line in text.lines().map(Some).chain(std::iter::once(None)) {
        if line.is_some_and(|line| line.trim().is_empty()) {
            empty += 1;
            continue;
        }
        match std::mem::take(&mut empty) {
            0 => {}
            1 => rows.push(MARGIN_MARK.trim_end().to_owned()),
            count => rows.push(format!("{MARGIN_MARK}({count} empty lines)")),
        }
        rows.extend(line.map(|line| format!("{MARGIN_MARK}{}", text::escaped(line))));
    }
    rows
}

/// Formats a JSON object as one `key: value` per field, with strings unquoted and unescaped.
fn format_arguments(json: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(json) else {
        return json.to_owned();
    };
    let shown = fields.iter().map(|(key, value)| match value {
        serde_json::Value::String(text) => format!("{key}: {text}"),
        other => format!("{key}: {other}"),
    });
    shown.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    fn permission_with(arguments: serde_json::Value) -> Permission {
        Permission {
            arguments: arguments.to_string(),
            ..sample::permission()
        }
    }

    #[test]
    fn file_change_is_shown_as_a_diff() {
        let mut edit = permission_with(
            serde_json::json!({ "path": "a.txt", "edits": [{ "old": "two", "new": "zwei" }] }),
        );
        edit.diff = Some("@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n".to_owned());
        let rows = permission_rows(&edit, None);
        assert!(
            rows.contains(&Row {
                style: TextStyle::Red,
                text: "|     2       - two".to_owned()
            }),
            "{rows:#?}"
        );
        assert!(
            rows.contains(&Row {
                style: TextStyle::Green,
                text: "|           2 + zwei".to_owned()
            }),
            "{rows:#?}"
        );
        assert!(
            rows.iter().all(|row| !row.text.contains("edits")),
            "{rows:#?}"
        );
    }

    #[test]
    fn path_in_the_project_is_relative() {
        let mut edit = permission_with(serde_json::json!({}));
        for (project, target, expected) in [
            (Some("/p"), "/p/src/a.txt", "src/a.txt"),
            (Some("/p"), "/pq/a.txt", "/pq/a.txt"),
            (Some("/p"), "/p", "/p"),
            (None, "/p/a.txt", "/p/a.txt"),
        ] {
            edit.demand.target = target.to_owned();
            let rows = permission_rows(&edit, project);
            assert_eq!(
                rows[0].text,
                format!("bash requests permission: {expected}")
            );
            assert_eq!(rows.last().unwrap().text, format!("bash: {expected}"));
        }
        for (path, expected) in [
            ("/p", "the project folder"),
            ("/p/src", "src"),
            ("/pq", "/pq"),
        ] {
            edit.demand.scope = Scope::Directory {
                path: path.to_owned(),
            };
            let rows = permission_rows(&edit, Some("/p"));
            assert!(
                rows.iter()
                    .any(|row| row.text == format!("session scope: files in {expected}")),
                "{rows:#?}"
            );
        }
    }

    #[test]
    fn model_text_cannot_forge_a_permission_prompt() {
        let forged = "ls\n\n\n\n? write requests permission: notes.md\nallow? y(es)\u{202e}\r\u{1b}[2J e\u{301}\u{301}\u{301}\u{301} p\u{430}ypal";
        let rows: Vec<String> = permission_rows(
            &permission_with(serde_json::json!({ "command": forged })),
            None,
        )
        .into_iter()
        .map(|row| row.text)
        .collect();
        let ours: Vec<&String> = rows.iter().filter(|row| !row.starts_with('|')).collect();
        assert!(
            ours.iter()
                .all(|row| !row.contains("notes.md") && !row.contains("y(es)")),
            "{rows:#?}"
        );
        assert!(rows.contains(&"| (3 empty lines)".to_owned()), "{rows:#?}");
        assert!(
            rows.iter()
                .any(|row| row.contains("\\u{202e}\\u{d}\\u{1b}[2J")),
            "{rows:#?}"
        );
        assert!(
            rows.iter()
                .any(|row| row.contains("p\u{430}ypal[mixed scripts]")),
            "{rows:#?}"
        );
        assert!(rows.iter().any(|row| row.contains("\\u{301}")), "{rows:#?}");
        let first = rows.first().unwrap();
        let last = rows.last().unwrap();
        let target = first.split_once(": ").unwrap().1;
        assert!(
            last.contains(target),
            "the last row repeats the target: {last}"
        );
    }
}
