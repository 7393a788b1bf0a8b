//! Purpose of a file, judged by its name, its extension and its first lines.

use super::plain_line;

const MAX_CHARS: usize = 140;

/// Returns the extension of a path in lower case, without the dot. Empty if there is none.
pub(super) fn ending(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    match name.rsplit_once('.') {
        Some((stem, ending)) if !stem.is_empty() => ending.to_ascii_lowercase(),
        _ => String::new(),
    }
}

/// Returns the language or format of an extension.
pub(super) fn language(ending: &str) -> Option<&'static str> {
    Some(match ending {
        "rs" => "Rust",
        "py" | "pyi" => "Python",
        "js" | "mjs" | "cjs" | "jsx" => "JavaScript",
        "ts" | "tsx" => "TypeScript",
        "go" => "Go",
        "java" => "Java",
        "kt" => "Kotlin",
        "c" | "h" => "C",
        "cc" | "cpp" | "hpp" | "cxx" => "C++",
        "cs" => "C#",
        "rb" => "Ruby",
        "php" => "PHP",
        "swift" => "Swift",
        "sh" | "bash" => "shell",
        "sql" => "SQL",
        "md" | "markdown" => "Markdown",
        "rst" | "adoc" | "txt" => "text",
        "toml" => "TOML",
        "json" | "jsonl" => "JSON",
        "yaml" | "yml" => "YAML",
        "xml" => "XML",
        "html" | "htm" => "HTML",
        "css" | "scss" => "CSS",
        "csv" | "tsv" => "tables",
        _ => return None,
    })
}

/// Returns how informative a file is; lower is read first. `None` if it is not worth reading.
pub(super) fn rank(path: &str) -> Option<u8> {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    if name.starts_with("readme") {
        return Some(0);
    }
    match name.as_str() {
        "cargo.toml" | "package.json" | "pyproject.toml" | "go.mod" | "pom.xml" => return Some(1),
        "cargo.lock" | "package-lock.json" => return None,
        _ => {}
    }
    let stem = name.split('.').next().unwrap_or_default();
    let is_entry = matches!(stem, "lib" | "main" | "mod" | "__init__" | "index" | "app");
    language(&ending(path)).map(|_| if is_entry { 2 } else { 3 })
}

/// Describes a file by its name alone.
pub(super) fn by_name(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let known = match name.as_str() {
        "cargo.toml" => "manifest of a Rust package",
        "cargo.lock" | "package-lock.json" | "uv.lock" | "poetry.lock" => {
            "locked versions of dependencies"
        }
        "package.json" => "manifest of a JavaScript package",
        "pyproject.toml" | "setup.py" => "manifest of a Python package",
        "go.mod" => "manifest of a Go module",
        "makefile" | "justfile" => "build commands",
        "dockerfile" => "recipe of a container image",
        ".gitignore" => "names what git ignores",
        "main.rs" => "entry point of a Rust program",
        "lib.rs" => "root of a Rust library",
        "mod.rs" => "root of a Rust module",
        "__init__.py" => "root of a Python package",
        _ if name.starts_with("readme") => "introduction for readers",
        _ if name.starts_with("license") || name.starts_with("licence") => "license",
        _ if name.starts_with("changelog") => "history of changes",
        _ => "",
    };
    if !known.is_empty() {
        return known.to_owned();
    }
    let ending = ending(path);
    let is_test =
        format!("/{path}").contains("/test") || name.contains("_test.") || name.contains(".test.");
    match (language(&ending), ending.as_str()) {
        (Some(language), _) if is_test => format!("{language} test"),
        (Some(language @ ("Markdown" | "text")), _) => format!("document ({language})"),
        (Some(language @ ("TOML" | "JSON" | "YAML" | "XML" | "tables")), _) => {
            format!("data or settings ({language})")
        }
        (Some(language), _) => format!("{language} source"),
        (None, "png" | "jpg" | "jpeg" | "gif" | "svg" | "webp" | "ico") => "image".to_owned(),
        (None, "zip" | "gz" | "tar" | "xz" | "7z") => "archive".to_owned(),
        (None, "") => "kind unknown (no ending)".to_owned(),
        (None, other) => plain_line(&format!("kind unknown (.{other})"), 40),
    }
}

/// Describes a file by its first lines, in the form that `read` returns, else by its name.
pub(super) fn by_content(path: &str, page: &str) -> String {
    let lines: Vec<&str> = page
        .lines()
        .filter_map(|line| line.split_once('\t').map(|(_, text)| text))
        .collect();
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let summary = match name.as_str() {
        "cargo.toml" | "pyproject.toml" => manifest(&lines, '='),
        "package.json" => manifest(&lines, ':'),
        _ => match ending(path).as_str() {
            "md" | "markdown" => heading(&lines),
            "rs" => comment(&lines, &["//!"]),
            "py" => docstring(&lines).or_else(|| comment(&lines, &["# ", "#\t"])),
            "sh" | "bash" | "rb" | "toml" | "yaml" | "yml" => comment(&lines, &["# "]),
            _ => comment(&lines, &["///", "//", "/**", "/*", " *", "--"]),
        },
    };
    let base = by_name(path);
    match summary
        .map(|summary| plain_line(&summary, MAX_CHARS))
        .filter(|summary| !summary.is_empty())
    {
        Some(summary) => format!("{base}: {summary}"),
        None => base,
    }
}

/// Reads `name` and `description` of a package.
fn manifest(lines: &[&str], separator: char) -> Option<String> {
    let value = |wanted: &str| {
        lines.iter().find_map(|line| {
            let (key, value) = line.split_once(separator)?;
            let value = value.trim().trim_end_matches(',');
            let text = value.strip_prefix('"')?.split('"').next()?;
            (key.trim().trim_matches('"') == wanted).then(|| text.to_owned())
        })
    };
    match (value("name"), value("description")) {
        (Some(name), Some(description)) => Some(format!("{name}, {description}")),
        (name, description) => name.or(description),
    }
}

fn heading(lines: &[&str]) -> Option<String> {
    lines
        .iter()
        .find_map(|line| line.trim_start().strip_prefix('#'))
        .map(|rest| rest.trim_start_matches('#').to_owned())
}

/// Returns the first paragraph of comments at the top of a file.
fn comment(lines: &[&str], marks: &[&str]) -> Option<String> {
    let body = |line: &str| {
        let mark = marks.iter().find(|mark| line.starts_with(**mark))?;
        Some(line[mark.len()..].trim_end_matches("*/").trim().to_owned())
    };
    let start = lines
        .iter()
        .take(10)
        .position(|line| body(line).is_some_and(|text| !text.is_empty()))?;
    let paragraph = lines[start..]
        .iter()
        .map_while(|line| body(line).filter(|text| !text.is_empty()));
    Some(paragraph.take(3).collect::<Vec<_>>().join(" "))
}

fn docstring(lines: &[&str]) -> Option<String> {
    let start = lines
        .iter()
        .take(10)
        .position(|line| line.trim_start().starts_with("\"\"\""))?;
    let first = lines[start].trim().trim_matches('"').trim();
    let text = if first.is_empty() {
        lines.get(start + 1)?.trim()
    } else {
        first
    };
    Some(text.trim_matches('"').to_owned())
}
