//! Tests of writing files, and of the permission that a write requires.

use serde_json::json;
use soong_protocol::{ErrorCode, Scope};

use super::*;
use crate::{ToolEnvironment, testing::TestProject};

fn tool() -> Write {
    Write::new(
        Arc::new(PathPolicy::new(&ToolEnvironment::default())),
        Arc::default(),
    )
}

#[tokio::test]
async fn write_reports_result_and_requires_permission_for_folder() {
    let project = TestProject::new(&[("a.txt", "old")]);
    let tool = tool();
    let output = project
        .call(&tool, json!({"path": "new/b.txt", "content": "one\ntwo\n"}))
        .await
        .unwrap();
    assert_eq!(output, "`new/b.txt` written: 2 lines, 8 bytes");
    let refused = project
        .call(&tool, json!({"path": "a.txt", "content": "x"}))
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::PathConflict);
    let output = project
        .call(
            &tool,
            json!({"path": "a.txt", "content": "x", "overwrite": true}),
        )
        .await
        .unwrap();
    assert!(output.starts_with("`a.txt` replaced"), "{output}");
    let refused = project
        .call(
            &tool,
            json!({"path": "no/b", "content": "x", "create_dirs": false}),
        )
        .await
        .unwrap_err();
    assert_eq!(refused.code, ErrorCode::FileNotFound);
    let access = |path: &str| {
        tool.required_access(&project.context(), &json!({"path": path, "content": "x"}))
            .unwrap()
            .unwrap()
    };
    let folder = |path: std::path::PathBuf| Scope::Directory {
        path: path.display().to_string(),
    };
    let root = project.path();
    assert_eq!(
        (access("src/a").scope, access("b").scope),
        (folder(root.join("src")), folder(root))
    );
    assert!(
        access("a.txt").note.is_some() && access("b").note.is_none(),
        "that it replaces is said"
    );
    assert!(
        access(".env").is_sensitive
            && access(".git/hooks/x").is_sensitive
            && !access("b").is_sensitive
    );
}

#[tokio::test]
async fn writing_to_project_root_is_rejected() {
    let project = TestProject::new(&[("src/a", "a")]);
    for path in [".", "./", "src/..", project.path().to_str().unwrap()] {
        let arguments = json!({"path": path, "content": "x", "overwrite": true});
        let refused = tool()
            .required_access(&project.context(), &arguments)
            .unwrap_err();
        assert_eq!(
            refused.code,
            ErrorCode::PathConflict,
            "{path}: nobody is asked for it"
        );
        assert_eq!(
            project.call(&tool(), arguments).await.unwrap_err().code,
            ErrorCode::PathConflict,
            "{path}"
        );
    }
    assert_eq!(
        std::fs::read_dir(project.path()).unwrap().count(),
        1,
        "nothing was written"
    );
}

#[tokio::test]
async fn write_without_matching_permission_does_nothing() {
    let project = TestProject::new(&[]);
    let arguments = json!({"path": "a.txt", "content": "x"});
    let context = project.context();
    assert_eq!(
        tool()
            .call(context.clone(), arguments.clone())
            .await
            .unwrap_err()
            .code,
        ErrorCode::PathConflict
    );
    let other = tool()
        .required_access(&context, &json!({"path": "b.txt", "content": "x"}))
        .unwrap();
    let with_other = ToolContext {
        granted_access: other,
        ..context
    };
    assert_eq!(
        tool().call(with_other, arguments).await.unwrap_err().code,
        ErrorCode::PathConflict
    );
    assert!(!project.path().join("a.txt").exists());
}
