//! Tool `edit`: changes parts of a file by exact replacements or a unified diff (TOOL-4).
//!
//! All changes of a call are made, or none. Elsewhere: how the text changes (`change.rs`), which
//! files may be written (`path_policy.rs`), how a file is replaced (`safe_fs.rs`).

mod change;

use std::{io::Read as _, path::PathBuf, sync::Arc};

use change::TextChange;
use futures::{FutureExt, future::BoxFuture};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorCode, ErrorInfo, ToolSpec};

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    diff::{preview, unified_diff},
    file_change::{PreviousContents, file_change, shortened},
    path_policy::{PathPolicy, path_changed_error},
    project_path::{ResolvedPath, blocking, io_error},
    safe_fs::{WriteMode, has_content, open_file, write_file},
    schema::schema_of,
};

/// Maximum size of a file that can be edited, in bytes.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// The tool `edit`.
pub(crate) struct Edit {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
    previous: Arc<PreviousContents>,
}

/// Either edits, or a unified diff.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(length(min = 1))]
    path: String,
    #[serde(default)]
    edits: Vec<Replacement>,
    /// Instead of edits: a diff of this file.
    unified_diff: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Replacement {
    /// Exact text of the file; must occur once unless replace_all.
    #[schemars(length(min = 1))]
    old: String,
    new: String,
    #[serde(default)]
    replace_all: bool,
}

impl Edit {
    pub(crate) fn new(roots: Arc<PathPolicy>, previous: Arc<PreviousContents>) -> Self {
        let description = "Edits a text file of the project by replacements, made in the given order, or by a unified diff. Either all \
                           changes are made or none.";
        let spec = ToolSpec::write("edit", "Edit a file", description, schema_of::<Arguments>());
        Self {
            spec,
            roots,
            previous,
        }
    }

    fn resolve(
        &self,
        context: &ToolContext,
        arguments: &Arguments,
    ) -> Result<(ResolvedPath, AccessRequest), ErrorInfo> {
        let resolved = self
            .roots
            .resolve_existing(&context.project_dir, &arguments.path)?;
        let access = self.roots.write_access(&resolved);
        Ok((resolved, access))
    }
}

impl Tool for Edit {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let arguments: Arguments = arguments(value.clone())?;
        arguments.change()?;
        Ok(Some(self.resolve(context, &arguments)?.1))
    }

    fn resolved_path(&self, context: &ToolContext, value: &Value) -> Option<PathBuf> {
        self.roots.path_argument(&context.project_dir, value)
    }

    fn preview(&self, context: &ToolContext, value: &Value) -> Option<String> {
        let arguments: Arguments = arguments(value.clone()).ok()?;
        let (resolved, _) = self.resolve(context, &arguments).ok()?;
        // The request is stored, so it must not contain text that requires permission to read.
        if self.roots.read_access(&resolved).is_some() {
            return None;
        }
        let text = read_editable_text(&resolved).ok()?;
        let new = arguments
            .change()
            .ok()?
            .apply(&text, &resolved.display_name())
            .ok()?;
        preview(&text, &new)
    }

    fn call(&self, context: ToolContext, value: Value) -> BoxFuture<'static, ToolResult> {
        let placed = arguments::<Arguments>(value)
            .and_then(|wanted| Ok((self.resolve(&context, &wanted)?, wanted)));
        let roots = Arc::clone(&self.roots);
        let previous = Arc::clone(&self.previous);
        async move {
            let ((resolved, access), wanted) = placed?;
            if context.granted_access.as_ref() != Some(&access) {
                return Err(path_changed_error(&resolved));
            }
            let edited_path = resolved.clone();
            let (text, new) = blocking(context.clone(), move |_, _| {
                let text = read_editable_text(&edited_path)?;
                let new = wanted.change()?.apply(&text, &edited_path.display_name())?;
                if new == text {
                    let message = format!(
                        "`{}` would stay as it is: the edits change nothing",
                        edited_path.display_name()
                    );
                    return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
                }
                Ok((text, new))
            })
            .await?;
            // Only now: an edit that fails must not use up what the session may keep.
            let replaced = previous.keep(&context, &resolved, &roots).await;
            blocking(context, move |_, cancel| {
                let mode = WriteMode {
                    overwrite: true,
                    create_dirs: false,
                };
                write_file(&resolved, new.as_bytes(), mode, cancel, |file| {
                    has_content(file, text.as_bytes())
                })?;
                let replaced = replaced.filter(|replaced| replaced.is_content(text.as_bytes()));
                // The output contains the diff.
                let file_change = file_change(&resolved, &new, false, replaced, false);
                Ok(ToolOutput {
                    file_change,
                    ..edit_output(&resolved, &text, &new)
                })
            })
            .await
        }
        .boxed()
    }
}

impl Arguments {
    fn change(&self) -> Result<TextChange<'_>, ErrorInfo> {
        match (&self.edits[..], &self.unified_diff) {
            ([_, ..], None) => Ok(TextChange::Replacements(&self.edits)),
            ([], Some(diff)) => Ok(TextChange::Diff(diff)),
            _ => {
                let message = "give either `edits` or `unified_diff`";
                Err(ErrorInfo::new(ErrorCode::ValidationError, message))
            }
        }
    }
}

pub(super) fn read_editable_text(resolved: &ResolvedPath) -> Result<String, ErrorInfo> {
    let (file, metadata) = open_file(resolved)?;
    let name = resolved.display_name();
    if metadata.len() > MAX_FILE_BYTES {
        let message = format!(
            "`{name}` has {} bytes: at most {MAX_FILE_BYTES} can be edited",
            metadata.len()
        );
        return Err(ErrorInfo::new(ErrorCode::PayloadTooLarge, message));
    }
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES)
        .read_to_end(&mut bytes)
        .map_err(|error| io_error(&name, &error))?;
    String::from_utf8(bytes).map_err(|_| {
        ErrorInfo::new(
            ErrorCode::UnsupportedMedia,
            format!("`{name}` is not UTF-8 text: only text can be edited"),
        )
    })
}

fn edit_output(resolved: &ResolvedPath, old: &str, new: &str) -> ToolOutput {
    let name = resolved.display_name();
    let Some(diff) = unified_diff(old, new) else {
        let title = format!("`{name}` edited");
        return ToolOutput::text(
            title.clone(),
            format!("{title}: too many lines differ to show them"),
        );
    };
    let (added, removed) = diff.lines().skip(2).fold((0, 0), |(added, removed), line| {
        match line.as_bytes().first() {
            Some(b'+') => (added + 1, removed),
            Some(b'-') => (added, removed + 1),
            _ => (added, removed),
        }
    });
    let lines = if added == 1 { "line" } else { "lines" };
    let title = format!("`{name}` edited: {added} {lines} added, {removed} removed");
    ToolOutput::text(title.clone(), format!("{title}\n{}", shortened(&diff)))
}

#[cfg(test)]
#[path = "edit/tests.rs"]
mod tests;
