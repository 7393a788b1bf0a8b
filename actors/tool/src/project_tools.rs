//! Registers the tools that read and change the files of a project and run commands in it.

use std::sync::Arc;

use super::{
    PathPolicy, RegisterError, ToolEnvironment, ToolRegistry, bash, edit,
    file_change::PreviousContents, glob, grep, list_files, read, write,
};

impl ToolRegistry {
    /// Registers `read`, `list_files`, `glob`, `grep`, `write`, `edit` and `bash`, in this order.
    ///
    /// `path_policy` decides which files the file tools may access.
    pub fn register_project_tools(
        &mut self,
        tool_environment: &ToolEnvironment,
        path_policy: &Arc<PathPolicy>,
    ) -> Result<(), RegisterError> {
        let path_policy = || Arc::clone(path_policy);
        let previous = Arc::new(PreviousContents::new(tool_environment.max_undo_bytes));
        self.register_built_in(Arc::new(read::ReadTool::new(path_policy())))?;
        self.register_built_in(Arc::new(list_files::ListFiles::new(path_policy())))?;
        self.register_built_in(Arc::new(glob::Glob::new(path_policy())))?;
        self.register_built_in(Arc::new(grep::Grep::new(path_policy())))?;
        self.register_built_in(Arc::new(write::Write::new(
            path_policy(),
            Arc::clone(&previous),
        )))?;
        self.register_built_in(Arc::new(edit::Edit::new(path_policy(), previous)))?;
        self.register_built_in(Arc::new(bash::Bash::new(tool_environment, path_policy())))
    }
}
