//! Tests of `glob` on real files.

use super::*;
use crate::testing::TestProject;

#[tokio::test]
async fn star_matches_within_folder_and_double_star_recurses() {
    let project =
        TestProject::new(&[("a.rs", ""), ("src/b.rs", ""), ("src/x/c.rs", ""), ("src/d.ts", ""), (".git/e.rs", "")]);
    for (arguments, want) in [
        (json!({"pattern": "*.rs"}), "a.rs\n[1 file]"),
        (json!({"pattern": "**/*.rs"}), "a.rs\nsrc/b.rs\nsrc/x/c.rs\n[3 files]"),
        (json!({"pattern": "./src/*.{rs,ts}"}), "src/b.rs\nsrc/d.ts\n[2 files]"),
        (json!({"pattern": "*.rs", "path": "src"}), "src/b.rs\n[1 file]"),
        (json!({"pattern": "*.py"}), "[no file fits the pattern]"),
    ] {
        assert_eq!(project.call(&Glob::new(Default::default()), arguments.clone()).await.unwrap(), want, "{arguments}");
    }
    for (arguments, code) in [
        (json!({"pattern": "a["}), ErrorCode::ValidationError),
        (json!({"pattern": "*", "path": "a.rs"}), ErrorCode::ValidationError),
        (json!({"pattern": "*", "path": "nope"}), ErrorCode::FileNotFound),
    ] {
        assert_eq!(project.call(&Glob::new(Default::default()), arguments).await.unwrap_err().code, code);
    }
}
