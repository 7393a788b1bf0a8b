//! Tests of `glob` on real files.

use std::path::Path;

use super::*;
use crate::{project_path::ResolvedPath, testing::TestProject};

#[tokio::test]
async fn star_matches_within_folder_and_double_star_recurses() {
    let project = TestProject::new(&[
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/x/c.rs", ""),
        ("src/d.ts", ""),
        (".git/e.rs", ""),
    ]);
    for (arguments, want) in [
        (json!({"pattern": "*.rs"}), "a.rs\n[1 file]"),
        (
            json!({"pattern": "**/*.rs"}),
            "a.rs\nsrc/b.rs\nsrc/x/c.rs\n[3 files]",
        ),
        (
            json!({"pattern": "./src/*.{rs,ts}"}),
            "src/b.rs\nsrc/d.ts\n[2 files]",
        ),
        (
            json!({"pattern": "*.rs", "path": "src"}),
            "src/b.rs\n[1 file]",
        ),
        (json!({"pattern": "*.py"}), "[no file fits the pattern]"),
    ] {
        assert_eq!(
            project
                .call(&Glob::new(Default::default()), arguments.clone())
                .await
                .unwrap(),
            want,
            "{arguments}"
        );
    }
    for (arguments, code) in [
        (json!({"pattern": "/etc/*"}), ErrorCode::OutsideAllowedRoots),
        (json!({"pattern": "a\\"}), ErrorCode::ValidationError),
        (
            json!({"pattern": "*", "path": "a.rs"}),
            ErrorCode::ValidationError,
        ),
        (
            json!({"pattern": "*", "path": "nope"}),
            ErrorCode::FileNotFound,
        ),
    ] {
        assert_eq!(
            project
                .call(&Glob::new(Default::default()), arguments)
                .await
                .unwrap_err()
                .code,
            code
        );
    }
}

#[tokio::test]
async fn brackets_and_braces_of_real_names_match_themselves() {
    let project = TestProject::new(&[
        ("app/[id]/page.tsx", ""),
        ("app/[...all]/page.ts", ""),
        ("app/i/page.tsx", ""),
        ("{{name}}/setup.py", ""),
        ("a[", ""),
    ]);
    for (pattern, want) in [
        ("app/[id]/*", "app/[id]/page.tsx\napp/i/page.tsx\n[2 files]"),
        (
            "app/[id]/*.{ts,tsx}",
            "app/[id]/page.tsx\napp/i/page.tsx\n[2 files]",
        ),
        ("app/[...all]/page.ts", "app/[...all]/page.ts\n[1 file]"),
        ("{{name}}/*.py", "{{name}}/setup.py\n[1 file]"),
        ("a[", "a[\n[1 file]"),
        ("a[b", "[no file fits the pattern]"),
    ] {
        let found = project
            .call(&Glob::new(Default::default()), json!({"pattern": pattern}))
            .await
            .unwrap();
        assert_eq!(found, want, "{pattern}");
    }
}

#[tokio::test]
async fn pattern_may_be_absolute() {
    let project = TestProject::new(&[
        ("a.rs", ""),
        ("src/b.rs", ""),
        ("src/x/c.rs", ""),
        ("src/[id]/d.rs", ""),
    ]);
    let root = project.path().display().to_string();
    for (pattern, path, want) in [
        (
            "**/*.rs",
            ".",
            "a.rs\nsrc/[id]/d.rs\nsrc/b.rs\nsrc/x/c.rs\n[4 files]",
        ),
        ("*.rs", ".", "a.rs\n[1 file]"),
        ("src/b.rs", ".", "src/b.rs\n[1 file]"),
        ("src/x/*", "src", "src/x/c.rs\n[1 file]"),
        ("src/[id]/*.rs", ".", "src/[id]/d.rs\n[1 file]"),
    ] {
        let arguments = json!({"pattern": format!("{root}/{pattern}"), "path": path});
        let found = project
            .call(&Glob::new(Default::default()), arguments)
            .await
            .unwrap();
        assert_eq!(found, want, "{pattern}");
    }
    for pattern in ["missing/*.rs", "missing.rs", "src/"] {
        let arguments = json!({"pattern": format!("{root}/{pattern}")});
        let found = project
            .call(&Glob::new(Default::default()), arguments)
            .await
            .unwrap();
        assert_eq!(found, "[no file fits the pattern]", "{pattern}");
    }
    let arguments = json!({"pattern": format!("{root}/*.rs"), "path": "src"});
    let error = project
        .call(&Glob::new(Default::default()), arguments)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::ValidationError);
    assert!(
        error.message.contains("outside the searched folder `src`"),
        "{error}"
    );
}

#[test]
fn path_of_the_project_may_contain_special_characters() {
    let folder = |path: &str| ResolvedPath {
        path: path.into(),
        root: path.into(),
        relative: PathBuf::new(),
        is_project: true,
    };
    for (pattern, project) in [
        ("/a[1]/{b}/src/*.rs", "/a[1]/{b}"),
        ("/src/*.rs", "/"),
        ("src/*.rs", "/a[1]"),
    ] {
        let pattern = PathPattern::new(
            pattern,
            &PathPolicy::default(),
            Path::new(project),
            &folder(project),
        )
        .unwrap();
        assert!(
            pattern.matches(Path::new("src/x.rs")) && !pattern.matches(Path::new("x.rs")),
            "{project}"
        );
    }
}
