//! Tool `grep`: finds the lines in text files of the project that match a regular expression.
//!
//! Searches regular files only, sequentially and sorted by name. The search of a file ends at its
//! first NUL byte, and the file is then reported as skipped.

use std::{
    fs::File,
    io::{self, Read},
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::Arc,
};

use futures::{FutureExt, future::BoxFuture};
use grep_matcher::LineTerminator;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{BinaryDetection, Searcher, SearcherBuilder, Sink, SinkMatch};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, ToolSpec};
use tokio_util::sync::CancellationToken;

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    path_pattern::PathPattern,
    path_policy::{PathPolicy, path_changed_error},
    project_path::{OutputPage, ResolvedPath, blocking, check_cancelled},
    safe_fs::open_file,
    walk::{WalkEnd, walk},
};

const DEFAULT_MATCHES: u64 = 100;
const MAX_MATCHES: u64 = 1000;
/// Maximum size of a file that is searched, in bytes.
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;
/// Maximum number of characters shown of a matching line.
const MAX_LINE_CHARS: usize = 300;
/// Maximum size of the compiled regular expression, in bytes.
const MAX_REGEX_BYTES: usize = 10 * 1024 * 1024;
/// Maximum size of the searcher's buffer, and so of a line, in bytes.
const MAX_SEARCHER_HEAP_BYTES: usize = 16 * 1024 * 1024;

/// The tool `grep`.
pub(crate) struct Grep {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default = "default_path")]
    path: String,
    glob: Option<String>,
    #[serde(default = "default_matches")]
    limit: u64,
}

fn default_path() -> String {
    ".".to_owned()
}

const fn default_matches() -> u64 {
    DEFAULT_MATCHES
}

impl Grep {
    pub(crate) fn new(roots: Arc<PathPolicy>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "path": {"type": "string", "default": ".", "description": "Folder or file."},
                "glob": {"type": "string", "minLength": 1, "description": "Only these files, such as `*.rs` or `src/**/*.rs`."},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_MATCHES, "default": DEFAULT_MATCHES},
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        let description = "Searches text files of the project, line by line, for a regular expression (Rust syntax) and shows \
                           `path:line: text`. Leaves out .git, .soong-agent, ignored and binary files.";
        Self {
            spec: ToolSpec::read("grep", "Search in files", description, parameters),
            roots,
        }
    }
}

impl Tool for Grep {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let arguments: Arguments = arguments(value.clone())?;
        let resolved = self.roots.resolve_existing(
            &context.project_dir,
            if arguments.path.is_empty() {
                "."
            } else {
                &arguments.path
            },
        )?;
        Ok(if resolved.path.is_dir() {
            None
        } else {
            self.roots.read_access(&resolved)
        })
    }

    fn resolved_path(&self, context: &ToolContext, value: &Value) -> Option<PathBuf> {
        self.roots.path_argument(&context.project_dir, value)
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let roots = Arc::clone(&self.roots);
        async move {
            let arguments: Arguments = arguments(value)?;
            blocking(context, move |context, cancel| {
                grep(&roots, context, &arguments, cancel)
            })
            .await
        }
        .boxed()
    }
}

fn grep(
    roots: &PathPolicy,
    context: &ToolContext,
    arguments: &Arguments,
    cancel: &CancellationToken,
) -> ToolResult {
    let mut builder = RegexMatcherBuilder::new();
    builder.multi_line(true).size_limit(MAX_REGEX_BYTES);
    // With CR LF as the end of a line, a pattern cannot contain CR.
    let line_terminator = if arguments.pattern.contains("\\r") {
        builder.line_terminator(Some(b'\n'));
        LineTerminator::byte(b'\n')
    } else {
        builder.crlf(true);
        LineTerminator::crlf()
    };
    let matcher = builder.build(&arguments.pattern);
    let matcher = matcher.map_err(|error| {
        let message = format!(
            "the pattern is not a valid regular expression: {error}. Escape literal characters."
        );
        ErrorInfo::new(ErrorCode::ValidationError, message)
    })?;
    let resolved = roots.resolve_existing(
        &context.project_dir,
        if arguments.path.is_empty() {
            "."
        } else {
            &arguments.path
        },
    )?;
    let only = match &arguments.glob {
        Some(pattern) if resolved.path.is_dir() => Some(FileFilter::new(
            pattern,
            roots,
            &context.project_dir,
            &resolved,
        )?),
        _ => None,
    };
    let mut search = Search {
        matcher,
        searcher: SearcherBuilder::new()
            // `$` fits before CR LF too.
            .line_terminator(line_terminator)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MAX_SEARCHER_HEAP_BYTES))
            .line_number(true)
            .build(),
        page: OutputPage::new(context.output_limit.bytes),
        limit: arguments.limit.clamp(1, MAX_MATCHES),
        matches: 0,
        is_truncated: false,
        searched_files: 0,
        skipped_files: 0,
        sensitive_files: 0,
    };
    let end = if resolved.path.is_dir() {
        walk(roots, &resolved, true, cancel, |entry, path| {
            let below = entry.path().strip_prefix(&resolved.path).unwrap_or(path);
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            if is_file && only.as_ref().is_none_or(|only| only.matches(below)) {
                let found = resolved.with_relative(path);
                // A folder is searched without permission, so files that require permission to read
                // are skipped.
                match roots.read_access(&found) {
                    None => search.file(&found, cancel),
                    Some(_) => search.sensitive_files += 1,
                }
            }
            if search.is_truncated {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        })?
    } else {
        if roots.read_access(&resolved) != context.granted_access {
            return Err(path_changed_error(&resolved));
        }
        // A named file that cannot be opened is an error. In a folder, such a file is only counted
        // as skipped.
        open_file(&resolved)?;
        search.file(&resolved, cancel);
        WalkEnd::default()
    };
    check_cancelled(cancel)?;
    Ok(search.finish(&end))
}

/// Glob filter for files. It is matched against the file name if the pattern contains no slash,
/// else against the path relative to the searched folder.
struct FileFilter {
    pattern: PathPattern,
    by_name: bool,
}

impl FileFilter {
    fn new(
        pattern: &str,
        roots: &PathPolicy,
        project_dir: &Path,
        folder: &ResolvedPath,
    ) -> Result<Self, ErrorInfo> {
        let by_name = !pattern.contains('/');
        Ok(Self {
            pattern: PathPattern::new(pattern, roots, project_dir, folder)?,
            by_name,
        })
    }

    fn matches(&self, path: &Path) -> bool {
        let path = if self.by_name {
            path.file_name().map(Path::new)
        } else {
            Some(path)
        };
        path.is_some_and(|path| self.pattern.matches(path))
    }
}

/// State of a search.
struct Search {
    matcher: RegexMatcher,
    searcher: Searcher,
    page: OutputPage,
    limit: u64,
    matches: u64,
    /// Whether a match was omitted because the page is full or the limit is reached.
    is_truncated: bool,
    searched_files: u64,
    skipped_files: u64,
    /// Number of files that were skipped because reading them requires permission.
    sensitive_files: u64,
}

impl Search {
    fn file(&mut self, resolved: &ResolvedPath, cancel: &CancellationToken) {
        let file = match open_file(resolved) {
            // Skip huge files: a sparse file can be huge even if it occupies little disk space.
            Ok((file, known)) if known.len() <= MAX_FILE_BYTES => file,
            _ => {
                self.skipped_files += 1;
                return;
            }
        };
        self.searched_files += 1;
        let name = resolved.display_name();
        let mut rows = MatchCollector {
            name: &name,
            page: &mut self.page,
            remaining: self.limit - self.matches,
            collected: 0,
            more: false,
            binary: false,
        };
        let reader = CancellableReader { file, cancel };
        let failed = self
            .searcher
            .search_reader(&self.matcher, reader, &mut rows)
            .is_err();
        let collected = rows.collected;
        let more = rows.more;
        let binary = rows.binary;
        self.matches += collected;
        self.is_truncated |= more;
        if failed || binary {
            self.searched_files -= 1;
            self.skipped_files += 1;
        }
    }

    fn finish(self, end: &WalkEnd) -> ToolOutput {
        let mut note = match self.matches {
            0 => "no line fits".to_owned(),
            1 => "1 line".to_owned(),
            lines => format!("{lines} lines"),
        };
        note.push_str(&format!(" in {} text files", self.searched_files));
        if self.skipped_files > 0 {
            note.push_str(&format!(
                ", {} binary, huge or unreadable files skipped",
                self.skipped_files
            ));
        }
        if self.sensitive_files > 0 {
            note.push_str(&format!(
                ", {} sensitive files left out",
                self.sensitive_files
            ));
        }
        if self.is_truncated {
            note.push_str(
                "; there are more: search in a folder, with a glob, or for something rarer",
            );
        }
        note.push_str(&end.note_suffix());
        ToolOutput::text(
            format!("{} lines found", self.matches),
            self.page.finish(&note),
        )
    }
}

/// Reader that reports the end of the file once the call is cancelled, so that the search of a
/// large file stops early.
struct CancellableReader<'a> {
    file: File,
    cancel: &'a CancellationToken,
}

impl Read for CancellableReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.cancel.is_cancelled() {
            Ok(0)
        } else {
            self.file.read(buffer)
        }
    }
}

/// Collects the matches of one file.
struct MatchCollector<'a> {
    name: &'a str,
    page: &'a mut OutputPage,
    remaining: u64,
    collected: u64,
    more: bool,
    binary: bool,
}

impl Sink for MatchCollector<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let number = found.line_number().unwrap_or(0);
        let text = truncated(String::from_utf8_lossy(found.bytes()).trim_end());
        if self.remaining == 0
            || !self
                .page
                .push_line(&format!("{}:{number}: {text}", self.name))
        {
            self.more = true;
            return Ok(false);
        }
        self.remaining -= 1;
        self.collected += 1;
        Ok(true)
    }

    fn binary_data(&mut self, _: &Searcher, _: u64) -> io::Result<bool> {
        self.binary = true;
        Ok(false)
    }
}

fn truncated(line: &str) -> String {
    match line.char_indices().nth(MAX_LINE_CHARS) {
        Some((end, _)) => format!("{}… [cut]", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
#[path = "grep/tests.rs"]
mod tests;
