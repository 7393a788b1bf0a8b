//! Tool `list_files`: lists a folder of the project.
//!
//! Each entry is one line: `path/` for a folder, `path<TAB>size` for a file. Paths are relative to
//! the project, so that other tools accept them unchanged. A note in brackets at the end contains
//! the totals.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use ignore::DirEntry;
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{ErrorCode, ErrorInfo, ToolSpec};
use tokio_util::sync::CancellationToken;

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    path_policy::PathPolicy,
    project_path::{OutputPage, ResolvedPath, blocking},
    walk::{WalkEnd, walk},
};

const DEFAULT_ENTRIES: u64 = 200;
const MAX_ENTRIES: u64 = 1000;

/// The tool `list_files`.
pub(crate) struct ListFiles {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
}

#[derive(Deserialize)]
struct Arguments {
    #[serde(default = "default_path")]
    path: String,
    #[serde(default)]
    recursive: bool,
    #[serde(default = "default_entries")]
    limit: u64,
}

fn default_path() -> String {
    ".".to_owned()
}

const fn default_entries() -> u64 {
    DEFAULT_ENTRIES
}

impl ListFiles {
    pub(crate) fn new(roots: Arc<PathPolicy>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "path": {"type": "string", "default": "."},
                "recursive": {"type": "boolean", "default": false},
                "limit": {"type": "integer", "minimum": 1, "maximum": MAX_ENTRIES, "default": DEFAULT_ENTRIES},
            },
            "additionalProperties": false,
        });
        let description = "Lists a folder of the project: folders end in `/`, files have their size in bytes. Leaves out \
                           .git, .soong-agent and ignored files.";
        Self {
            spec: ToolSpec::read("list_files", "List files", description, parameters),
            roots,
        }
    }
}

impl Tool for ListFiles {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn resolved_path(&self, context: &ToolContext, value: &Value) -> Option<PathBuf> {
        self.roots.path_argument(&context.project_dir, value)
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let roots = Arc::clone(&self.roots);
        async move {
            let arguments: Arguments = arguments(value)?;
            blocking(context, move |context, cancel| {
                list(&roots, context, &arguments, cancel)
            })
            .await
        }
        .boxed()
    }
}

fn list(
    roots: &PathPolicy,
    context: &ToolContext,
    arguments: &Arguments,
    cancel: &CancellationToken,
) -> ToolResult {
    let requested_path = if arguments.path.is_empty() {
        "."
    } else {
        &arguments.path
    };
    let resolved = roots.resolve_existing(&context.project_dir, requested_path)?;
    let name = resolved.display_name();
    if !resolved.path.is_dir() {
        let message = format!("`{name}` is no folder: use read to see a file");
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    let mut listing = Listing::new(
        context.output_limit.bytes,
        arguments.limit.clamp(1, MAX_ENTRIES),
    );
    let end = walk(
        roots,
        &resolved,
        arguments.recursive,
        cancel,
        |entry, path| {
            listing.add_entry(entry, &resolved.display_name_of(path));
            ControlFlow::Continue(())
        },
    )?;
    let title = format!("{} entries in `{name}`", listing.shown);
    Ok(ToolOutput::text(title, listing.finish(&resolved, &end)))
}

/// The listing while it is built.
struct Listing {
    page: OutputPage,
    limit: u64,
    shown: u64,
    files: u64,
    folders: u64,
    others: u64,
    bytes: u64,
}

impl Listing {
    fn new(limit_bytes: usize, limit: u64) -> Self {
        Self {
            page: OutputPage::new(limit_bytes),
            limit,
            shown: 0,
            files: 0,
            folders: 0,
            others: 0,
            bytes: 0,
        }
    }

    fn add_entry(&mut self, entry: &DirEntry, name: &str) {
        let kind = entry.file_type();
        let row = if kind.is_some_and(|kind| kind.is_dir()) {
            self.folders += 1;
            format!("{name}/")
        } else if kind.is_some_and(|kind| kind.is_file()) {
            self.files += 1;
            match entry.metadata() {
                Ok(metadata) => {
                    self.bytes += metadata.len();
                    format!("{name}\t{}", metadata.len())
                }
                // The file was removed in the meantime, or its metadata is not accessible.
                Err(_) => format!("{name}\tunknown size"),
            }
        } else {
            self.others += 1;
            let what = if kind.is_some_and(|kind| kind.is_symlink()) {
                "symlink"
            } else {
                "special"
            };
            format!("{name}\t{what}")
        };
        if self.shown < self.limit && self.page.push_line(&row) {
            self.shown += 1;
        }
    }

    fn finish(self, resolved: &ResolvedPath, end: &WalkEnd) -> String {
        let total = self.files + self.folders + self.others;
        let mut note = match total {
            0 => format!(
                "`{}` is empty: 0 files, 0 folders, 0 bytes",
                resolved.display_name()
            ),
            _ => format!(
                "{} files, {} folders, {} bytes",
                self.files, self.folders, self.bytes
            ),
        };
        if self.others > 0 {
            note.push_str(&format!(", {} others", self.others));
        }
        if self.shown < total {
            let why = if self.page.is_full {
                "the output is limited"
            } else {
                "raise limit (at most 1000)"
            };
            note.push_str(&format!(
                "; {} of {total} shown: {why}, or list a folder further down",
                self.shown
            ));
        }
        note.push_str(&end.note_suffix());
        self.page.finish(&note)
    }
}

#[cfg(test)]
#[path = "list_files/tests.rs"]
mod tests;
