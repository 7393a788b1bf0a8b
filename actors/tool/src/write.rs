//! Tool `write`: writes a whole file of the project (TOOL-4).
//!
//! An existing file is replaced only if the call sets `overwrite`. Elsewhere: which files may be
//! written (`path_policy.rs`), atomic writing (`safe_fs.rs`), changing a part of a file (the tool
//! `edit`).

use std::{cell::Cell, fs::File, path::PathBuf, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{AccessRequest, ErrorInfo, ToolSpec};

use super::{
    Tool, ToolContext, ToolOutput, ToolResult, arguments,
    diff::preview,
    edit,
    file_change::{PreviousContents, file_change},
    path_policy::{PathPolicy, path_changed_error},
    project_path::{ResolvedPath, blocking},
    safe_fs::{WriteMode, write_file},
    schema::schema_of,
};

/// The tool `write`.
pub(crate) struct Write {
    spec: ToolSpec,
    roots: Arc<PathPolicy>,
    previous: Arc<PreviousContents>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Arguments {
    #[schemars(length(min = 1))]
    path: String,
    content: String,
    /// Whether to replace an existing file.
    #[serde(default)]
    overwrite: bool,
    #[serde(default = "default_create_dirs")]
    create_dirs: bool,
}

const fn default_create_dirs() -> bool {
    true
}

impl Write {
    pub(crate) fn new(roots: Arc<PathPolicy>, previous: Arc<PreviousContents>) -> Self {
        let description =
            "Writes a whole text file of the project. To change part of a file, use edit.";
        let spec = ToolSpec::write(
            "write",
            "Write a file",
            description,
            schema_of::<Arguments>(),
        );
        Self {
            spec: spec.with_json_as_text(&["content"]),
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
            .resolve_new(&context.project_dir, &arguments.path)?;
        let mut access = self.roots.write_access(&resolved);
        let exists = resolved.path.symlink_metadata().is_ok();
        access.note = exists.then(|| "the file exists and would be replaced".to_owned());
        Ok((resolved, access))
    }
}

impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn required_access(
        &self,
        context: &ToolContext,
        value: &Value,
    ) -> Result<Option<AccessRequest>, ErrorInfo> {
        let (_, access) = self.resolve(context, &arguments(value.clone())?)?;
        Ok(Some(access))
    }

    fn resolved_path(&self, context: &ToolContext, value: &Value) -> Option<PathBuf> {
        self.roots.path_argument(&context.project_dir, value)
    }

    fn preview(&self, context: &ToolContext, value: &Value) -> Option<String> {
        let arguments: Arguments = arguments(value.clone()).ok()?;
        let (resolved, access) = self.resolve(context, &arguments).ok()?;
        // The permission request is stored with this preview, so the preview must not contain the
        // text of a file that requires permission to read.
        if self.roots.read_access(&resolved).is_some() {
            return None;
        }
        // `resolve` sets the note only if the file exists.
        let old = if access.note.is_some() {
            edit::read_editable_text(&resolved).ok()?
        } else {
            String::new()
        };
        preview(&old, &arguments.content)
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
            let replaced = if wanted.overwrite {
                previous.keep(&context, &resolved, &roots).await
            } else {
                None
            };
            blocking(context, move |_, cancel| {
                let mode = WriteMode {
                    overwrite: wanted.overwrite,
                    create_dirs: wanted.create_dirs,
                };
                let is_same_file = Cell::new(true);
                let is_expected = |file: &mut File| {
                    is_same_file.set(
                        replaced
                            .as_ref()
                            .is_some_and(|replaced| replaced.is_content_of(file)),
                    );
                    true
                };
                let is_new = write_file(
                    &resolved,
                    wanted.content.as_bytes(),
                    mode,
                    cancel,
                    is_expected,
                )?;
                let what = if is_new { "written" } else { "replaced" };
                let lines = wanted.content.lines().count();
                let bytes = wanted.content.len();
                let title = format!("`{}` {what}", resolved.display_name());
                let output = format!("{title}: {lines} lines, {bytes} bytes");
                let may_show = roots.read_access(&resolved).is_none();
                let replaced = replaced.filter(|_| is_same_file.get());
                let file_change =
                    file_change(&resolved, &wanted.content, is_new, replaced, may_show);
                Ok(ToolOutput {
                    file_change,
                    ..ToolOutput::text(title, output)
                })
            })
            .await
        }
        .boxed()
    }
}

#[cfg(test)]
#[path = "write/tests.rs"]
mod tests;
