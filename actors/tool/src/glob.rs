//! Tool `glob`: finds the files of the project whose path matches a pattern.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use serde::Deserialize;
use serde_json::{Value, json};
use soong_protocol::{ErrorCode, ErrorInfo, ToolSpec};
use tokio_util::sync::CancellationToken;

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    path_pattern::PathPattern,
    path_policy::PathPolicy,
    project_path::{OutputPage, blocking},
    walk::walk,
};

const MAX_PATHS: u64 = 1000;

/// The tool `glob`.
pub(crate) struct Glob {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
}

#[derive(Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default = "default_path")]
    path: String,
}

fn default_path() -> String {
    ".".to_owned()
}

impl Glob {
    pub(crate) fn new(roots: Arc<PathPolicy>) -> Self {
        let parameters = json!({
            "type": "object",
            "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "path": {"type": "string", "default": ".", "description": "Folder where the pattern starts."},
            },
            "required": ["pattern"],
            "additionalProperties": false,
        });
        let description = "Finds files of the project by a pattern such as `**/*.rs` or `src/*.{ts,tsx}`; `*` stays within a \
                           folder. Leaves out .git, .soong-agent and ignored files.";
        Self {
            spec: ToolSpec::read("glob", "Find files", description, parameters),
            roots,
        }
    }
}

impl Tool for Glob {
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
                find(&roots, context, &arguments, cancel)
            })
            .await
        }
        .boxed()
    }
}

fn find(
    roots: &PathPolicy,
    context: &ToolContext,
    arguments: &Arguments,
    cancel: &CancellationToken,
) -> ToolResult {
    let resolved = roots.resolve_existing(
        &context.project_dir,
        if arguments.path.is_empty() {
            "."
        } else {
            &arguments.path
        },
    )?;
    if !resolved.path.is_dir() {
        let message = format!(
            "`{}` is no folder: give the folder as path and the name as pattern",
            resolved.display_name()
        );
        return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
    }
    let pattern = PathPattern::new(&arguments.pattern, roots, &context.project_dir, &resolved)?;
    let mut page = OutputPage::new(context.output_limit.bytes);
    let mut found = 0_u64;
    let mut listed = 0_u64;
    let end = walk(roots, &resolved, true, cancel, |entry, path| {
        let is_folder = entry.file_type().is_none_or(|kind| kind.is_dir());
        let below = entry.path().strip_prefix(&resolved.path).unwrap_or(path);
        if !is_folder && pattern.matches(below) {
            found += 1;
            if listed < MAX_PATHS && page.push_line(&resolved.display_name_of(path)) {
                listed += 1;
            }
        }
        ControlFlow::Continue(())
    })?;
    let mut note = match found {
        0 => "no file fits the pattern".to_owned(),
        1 => "1 file".to_owned(),
        _ => format!("{found} files"),
    };
    if listed < found {
        note.push_str(&format!(
            "; the first {listed} are shown: make the pattern narrower"
        ));
    }
    note.push_str(&end.note_suffix());
    Ok(ToolOutput::text(
        format!("{found} files fit"),
        page.finish(&note),
    ))
}

#[cfg(test)]
#[path = "glob/tests.rs"]
mod tests;
