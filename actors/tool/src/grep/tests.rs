//! Tests of `grep` on real files.

use super::*;
use crate::testing::TestProject;

#[tokio::test]
async fn matches_are_listed_with_path_and_line() {
    let project = TestProject::new(&[
        ("a.rs", "fn one() {}\n// TODO\nfn two() {}\n"),
        ("src/b.txt", "fn three\n"),
        ("long", &format!("{}fn\n", "好".repeat(1000))),
        (".gitignore", "skip\n"),
        ("skip", "fn skipped\n"),
    ]);
    project.write("bin", b"fn binary\0\n");
    for (arguments, want) in [
        (
            json!({"pattern": "^fn "}),
            "a.rs:1: fn one() {}\na.rs:3: fn two() {}\nsrc/b.txt:1: fn three\n[3 lines in 4 text files, 1 binary, huge or unreadable files skipped]",
        ),
        (
            json!({"pattern": "^fn ", "glob": "*.txt"}),
            "src/b.txt:1: fn three\n[1 line in 1 text files]",
        ),
        (
            json!({"pattern": "^fn ", "glob": format!("{}/src/*", project.path().display())}),
            "src/b.txt:1: fn three\n[1 line in 1 text files]",
        ),
        (
            json!({"pattern": "^fn ", "path": "src/b.txt", "glob": "/else/*"}),
            "src/b.txt:1: fn three\n[1 line in 1 text files]",
        ),
        (
            json!({"pattern": "^fn ", "path": "src", "glob": "b.*"}),
            "src/b.txt:1: fn three\n[1 line in 1 text files]",
        ),
        (
            json!({"pattern": "todo", "path": "a.rs"}),
            "[no line fits in 1 text files]",
        ),
        (
            json!({"pattern": "^fn ", "limit": 1}),
            "a.rs:1: fn one() {}\n[1 line in 2 text files; there are more: search in a folder, with a glob, or for something rarer]",
        ),
    ] {
        assert_eq!(
            project
                .call(&Grep::new(Default::default()), arguments.clone())
                .await
                .unwrap(),
            want,
            "{arguments}"
        );
    }
    let long = project
        .call(
            &Grep::new(Default::default()),
            json!({"pattern": "fn$", "path": "long"}),
        )
        .await
        .unwrap();
    assert!(long.contains("… [cut]") && long.len() < 1200, "{long}");
}

#[tokio::test]
async fn invalid_pattern_or_path_is_rejected() {
    let project = TestProject::new(&[("a", "a")]);
    for (arguments, code) in [
        (json!({"pattern": "("}), ErrorCode::ValidationError),
        (
            json!({"pattern": "a{1000}{1000}{1000}"}),
            ErrorCode::ValidationError,
        ),
        (
            json!({"pattern": "a", "glob": "a\\"}),
            ErrorCode::ValidationError,
        ),
        (
            json!({"pattern": "a", "path": "../x"}),
            ErrorCode::OutsideAllowedRoots,
        ),
        (
            json!({"pattern": "a", "path": "b"}),
            ErrorCode::FileNotFound,
        ),
    ] {
        assert_eq!(
            project
                .call(&Grep::new(Default::default()), arguments.clone())
                .await
                .unwrap_err()
                .code,
            code,
            "{arguments}"
        );
    }
    project.cancel.cancel();
    let cancelled = project
        .call(&Grep::new(Default::default()), json!({"pattern": "a"}))
        .await
        .unwrap_err();
    assert_eq!(cancelled.code, ErrorCode::Cancelled);
}
