//! Tests of path resolution and formatting, and the test project of all tool tests.

use std::fs;

use serde_json::Value;
use soong_protocol::{RunId, SessionId, TraceId};

use super::*;
use crate::tool::{Tool, path_policy::PathPolicy};

/// A project in a temporary folder.
pub(crate) struct TestProject {
    folder: tempfile::TempDir,
    pub(crate) output_limit_bytes: usize,
    pub(crate) cancel: CancellationToken,
}

impl TestProject {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
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

    pub(crate) fn path(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        let path = self.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn context(&self) -> ToolContext {
        ToolContext {
            session_id: SessionId::new("s"),
            trace_id: TraceId::new("s"),
            run_id: RunId::new("r"),
            uid: "u".into(),
            turn: 1,
            message_sequence: None,
            tool_call_id: "c".to_owned(),
            goal_id: None,
            project_dir: self.path().into(),
            output_limit_bytes: self.output_limit_bytes,
            output_limit_tokens: u64::MAX,
            cancel: self.cancel.clone(),
            granted_access: None,
            progress: crate::tool::Progress::default(),
            cleanup_tasks: tokio_util::task::TaskTracker::new(),
            artifact_service: None,
        }
    }

    /// Calls a tool with the permission that it requires, and returns what a model would read: the output or the error.
    pub(crate) async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<String, ErrorInfo> {
        let mut context = self.context();
        context.granted_access = tool.required_access(&context, &arguments)?;
        tool.call(context, arguments).await.map(|output| output.output)
    }
}

#[cfg(unix)]
#[test]
fn unusual_file_name_round_trips_on_one_line() {
    use std::os::unix::ffi::OsStrExt;
    for bytes in [
        b"a\nb".as_slice(),
        b"tick`tick",
        b"back\\slash",
        b"\\n",
        b"\xff\xfe raw",
        "dir\u{202e}txt".as_bytes(),
        "schön 好".as_bytes(),
        b"\x1b[2J",
    ] {
        let name = std::ffi::OsStr::from_bytes(bytes);
        let project = TestProject::new(&[]);
        fs::write(project.path().join(name), "x").unwrap();
        let text = escape_path(Path::new(name));
        assert!(!text.contains(['\n', '`', '\u{1b}', '\u{202e}']), "{text:?}");
        let resolved = PathPolicy::default().resolve_existing(&project.path(), &text).unwrap();
        assert_eq!(resolved.relative.as_os_str(), name, "{text:?}");
    }
}

#[test]
fn page_ends_at_line_boundary_within_limit() {
    let mut page = OutputPage::new(1024);
    let lines = (0..100).filter(|_| page.push_line("0123456789")).count();
    assert!(lines > 0 && lines < 100 && page.is_full);
    let text = page.finish(&"é".repeat(2000));
    assert!(text.len() <= 1024 && text.ends_with("…]"), "{}", text.len());
    assert_eq!(text.lines().count(), lines + 1);
}
