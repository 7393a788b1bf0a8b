//! Tests of `list_files` on real files.

use super::*;
use crate::testing::TestProject;

async fn list(project: &TestProject, arguments: Value) -> Result<String, ErrorInfo> {
    project
        .call(&ListFiles::new(Default::default()), arguments)
        .await
}

#[tokio::test]
async fn listing_is_sorted_with_sizes_and_without_ignored_files() {
    let project = TestProject::new(&[
        (".gitignore", "target\n*.log\n"),
        (".git/config", "x"),
        (".soong-agent/tasks/x", "x"),
        ("src/main.rs", "fn main() {}"),
        ("src/sub/deep.rs", "1"),
        ("src/noise.log", "1"),
        ("target/debug/x", "1"),
        ("README.md", "# Hi"),
    ]);
    for (arguments, want) in [
        (
            json!({}),
            ".gitignore\t13\nREADME.md\t4\nsrc/\n[2 files, 1 folders, 17 bytes]",
        ),
        (
            json!({"path": "src", "recursive": true}),
            "src/main.rs\t12\nsrc/sub/\nsrc/sub/deep.rs\t1\n[2 files, 1 folders, 13 bytes]",
        ),
        // Ignored, but requested by name.
        (
            json!({"path": "target/debug"}),
            "target/debug/x\t1\n[1 files, 0 folders, 1 bytes]",
        ),
        (
            json!({"path": ".git"}),
            ".git/config\t1\n[1 files, 0 folders, 1 bytes]",
        ),
        (
            json!({"recursive": true, "limit": 2}),
            ".gitignore\t13\nREADME.md\t4\n[4 files, 2 folders, 30 bytes; 2 of 6 shown: raise limit (at most 1000), or list a folder further down]",
        ),
    ] {
        assert_eq!(
            list(&project, arguments.clone()).await.unwrap(),
            want,
            "{arguments}"
        );
    }
    assert_eq!(
        list(&project, json!({"path": "README.md"}))
            .await
            .unwrap_err()
            .code,
        ErrorCode::ValidationError
    );
    assert_eq!(
        list(&project, json!({"path": ".."}))
            .await
            .unwrap_err()
            .code,
        ErrorCode::OutsideAllowedRoots
    );
    let empty = TestProject::new(&[]);
    assert_eq!(
        list(&empty, json!({})).await.unwrap(),
        "[`.` is empty: 0 files, 0 folders, 0 bytes]"
    );
}

#[tokio::test]
async fn large_folder_is_counted_and_output_limited() {
    let mut project = TestProject::new(&[]);
    for n in 0..3000 {
        project.write(&format!("data/{n:04}.txt"), b"12345");
    }
    let text = list(&project, json!({"recursive": true, "limit": 1000}))
        .await
        .unwrap();
    assert!(text.ends_with("[3000 files, 1 folders, 15000 bytes; 1000 of 3001 shown: raise limit (at most 1000), or list a folder further down]"), "{text}");
    project.output_limit_bytes = 2000;
    let text = list(&project, json!({"recursive": true, "limit": 1000}))
        .await
        .unwrap();
    assert!(
        text.len() <= 2000 && text.contains("the output is limited"),
        "{text}"
    );
}

#[cfg(unix)]
#[tokio::test]
async fn special_entries_are_listed_and_symlinks_not_followed() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let project = TestProject::new(&[("a\nb.txt", "1"), ("closed/x", "1")]);
    symlink("/", project.path().join("link")).unwrap();
    let closed = project.path().join("closed");
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o000)).unwrap();
    let may_read_all = std::fs::read_dir(&closed).is_ok();
    let text = list(&project, json!({"recursive": true})).await.unwrap();
    std::fs::set_permissions(&closed, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(text.starts_with("a\\nb.txt\t1\nclosed/\n"), "{text}");
    assert!(
        text.contains("\nlink\tsymlink\n") && text.contains("1 others"),
        "{text}"
    );
    // A privileged user can read everything, so no folder is named.
    assert!(
        may_read_all || text.contains("could not be read (1): `closed` (permission denied)"),
        "{text}"
    );
}
