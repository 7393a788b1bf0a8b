//! Tests of path resolution and of what is shown; and the project that the tools' tests work in.

use std::fs;

use serde_json::Value;
use soong_protocol::{RunId, SessionId, TraceId};

use super::*;
use crate::tool::Tool;

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
            progress: crate::tool::Progress::default(),
            tasks: tokio_util::task::TaskTracker::new(),
            artifact_service: None,
        }
    }

    /// Calls a tool and returns what a model would read: the output, or the error.
    pub(crate) async fn call(&self, tool: &dyn Tool, arguments: Value) -> Result<String, ErrorInfo> {
        tool.call(self.context(), arguments).await.map(|output| output.output)
    }
}

#[test]
fn a_path_must_lead_into_the_project() {
    let project = TestProject::new(&[("src/a.rs", "a")]);
    let root = project.path();
    let inside = root.join("src/a.rs").to_str().unwrap().to_owned();
    for (asked, want) in [
        ("src/a.rs", Ok("src/a.rs")),
        ("./src/../src/a.rs", Ok("src/a.rs")),
        (".", Ok(".")),
        ("", Ok(".")),
        (&inside, Ok("src/a.rs")),
        ("..", Err(ErrorCode::OutsideAllowedRoots)),
        ("src/../../x", Err(ErrorCode::OutsideAllowedRoots)),
        ("../nope/nope", Err(ErrorCode::OutsideAllowedRoots)),
        ("/", Err(ErrorCode::OutsideAllowedRoots)),
        ("/nope/nope", Err(ErrorCode::OutsideAllowedRoots)),
        ("nope", Err(ErrorCode::FileNotFound)),
        ("src/a.rs/b", Err(ErrorCode::FileNotFound)),
        ("a\0b", Err(ErrorCode::ValidationError)),
        ("\\x00", Err(ErrorCode::FileNotFound)),
        ("\\", Err(ErrorCode::FileNotFound)),
        ("\\..\\é", Err(ErrorCode::FileNotFound)),
    ] {
        let got = locate(&root, asked).map(|place| place.shown()).map_err(|error| error.code);
        assert_eq!(got.as_deref().map_err(|code| *code), want, "{asked:?}");
    }
    let missing = locate(&root, "nope").unwrap_err();
    assert!(missing.message.contains("`nope`") && !missing.message.contains(root.to_str().unwrap()), "{missing}");
}

#[cfg(unix)]
#[test]
fn a_symlink_out_of_the_project_is_refused_and_one_inside_is_followed() {
    let project = TestProject::new(&[("real/a", "a")]);
    let root = project.path();
    std::os::unix::fs::symlink("/", root.join("out")).unwrap();
    std::os::unix::fs::symlink("real", root.join("in")).unwrap();
    std::os::unix::fs::symlink("loop", root.join("loop")).unwrap();
    assert_eq!(locate(&root, "out/etc").unwrap_err().code, ErrorCode::OutsideAllowedRoots);
    assert_eq!(locate(&root, "in/a").unwrap().shown(), "real/a");
    assert!(locate(&root, "loop").is_err());
}

#[cfg(unix)]
#[test]
fn a_pipe_is_refused_without_being_opened() {
    let project = TestProject::new(&[]);
    let made = std::process::Command::new("mkfifo").arg(project.path().join("pipe")).status();
    if !made.is_ok_and(|status| status.success()) {
        return;
    }
    let place = locate(&project.path(), "pipe").unwrap();
    assert_eq!(open_file(&place).unwrap_err().code, ErrorCode::UnsupportedMedia);
}

#[cfg(unix)]
#[test]
fn an_odd_name_is_shown_on_one_line_and_understood_again() {
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
        let text = shown(Path::new(name));
        assert!(!text.contains(['\n', '`', '\u{1b}', '\u{202e}']), "{text:?}");
        let place = locate(&project.path(), &text).unwrap();
        assert_eq!(place.relative.as_os_str(), name, "{text:?}");
    }
}

#[test]
fn a_page_ends_at_a_whole_line_and_within_its_limit() {
    let mut page = Page::new(1024);
    let lines = (0..100).filter(|_| page.line("0123456789")).count();
    assert!(lines > 0 && lines < 100 && page.full);
    let text = page.close(&"é".repeat(2000));
    assert!(text.len() <= 1024 && text.ends_with("…]"), "{}", text.len());
    assert_eq!(text.lines().count(), lines + 1);
}
