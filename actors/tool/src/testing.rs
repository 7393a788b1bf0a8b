//! A project for tests of tools.
#![allow(clippy::unwrap_used, reason = "an I/O error here fails the test")]

use std::{fs, path::PathBuf};

use serde_json::Value;
use soong_protocol::{ErrorInfo, InputKind, RunId, SessionId, TraceId};
use tokio_util::sync::CancellationToken;

use crate::{OutputLimit, Progress, Tool, ToolContext, ToolServices};

/// A project in a temporary folder.
pub struct TestProject {
    folder: tempfile::TempDir,
    /// Maximum output that a model reads in full, in bytes.
    pub output_limit_bytes: usize,
    /// Cancels the calls.
    pub cancel: CancellationToken,
}

impl TestProject {
    /// Creates a project with these files: path and content.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let project = Self {
            folder: tempfile::tempdir().unwrap(),
            output_limit_bytes: 64 * 1024,
            cancel: CancellationToken::new(),
        };
        for (path, content) in files {
            project.write(path, content.as_bytes());
        }
        project
    }

    /// Returns the folder of the project, with symlinks resolved.
    pub fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// Writes a file, and creates its folders.
    pub fn write(&self, path: &str, content: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    /// Returns the context of a call in this project.
    pub fn context(&self) -> ToolContext {
        ToolContext {
            session_incarnation: 1,
            session_id: SessionId::new("s"),
            trace_id: TraceId::new("s"),
            run_id: RunId::new("r"),
            uid: "u".into(),
            turn: 1,
            message_sequence: None,
            tool_call_id: "c".to_owned(),
            goal_id: None,
            project_dir: self.path().into(),
            output_limit: OutputLimit {
                kinds: std::sync::Arc::new([InputKind::Text]),
                bytes: self.output_limit_bytes,
                tokens: u64::MAX,
            },
            cancel: self.cancel.clone(),
            granted_access: None,
            progress: Progress::default(),
            cleanup_tasks: tokio_util::task::TaskTracker::new(),
            services: ToolServices::default(),
        }
    }

    /// Calls a tool, with the access that it requires granted, and returns its output or its error.
    pub async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<String, ErrorInfo> {
        let mut context = self.context();
        context.granted_access = tool.required_access(&context, &arguments)?;
        tool.call(context, arguments)
            .await
            .map(|output| output.output)
    }
}
