//! Tests of edits: exact replacements, diffs, and that all changes of a call are made or none.

use serde_json::json;

use super::*;
use crate::{ToolEnvironment, testing::TestProject};

fn tool() -> Edit {
    Edit::new(
        Arc::new(PathPolicy::new(&ToolEnvironment::default())),
        Arc::default(),
    )
}

fn edits(text: &str, edits: &[(&str, &str, bool)]) -> Result<String, ErrorCode> {
    let edits: Vec<Replacement> = edits
        .iter()
        .map(|(old, new, replace_all)| Replacement {
            old: (*old).into(),
            new: (*new).into(),
            replace_all: *replace_all,
        })
        .collect();
    TextChange::Replacements(&edits)
        .apply(text, "f")
        .map_err(|error| error.code)
}

#[test]
fn replacement_is_exact_and_unambiguous() {
    use ErrorCode::{AmbiguousEdit, TextNotFound};
    for (text, edit, want) in [
        ("one two", &[("two", "three", false)][..], Ok("one three")),
        ("one two", &[("one ", "", false)], Ok("two")),
        ("a a", &[("a", "b", false)], Err(AmbiguousEdit)),
        ("a a", &[("a", "b", true)], Ok("b b")),
        ("aaa", &[("aa", "b", false)], Err(AmbiguousEdit)),
        ("one", &[("One", "x", false)], Err(TextNotFound)),
        ("one  two", &[("one two", "x", false)], Err(TextNotFound)),
        ("a\r\nb", &[("a\nb", "x", false)], Ok("x")),
        (
            "a\r\nb\r\n",
            &[("a", "a\nnew", false)],
            Ok("a\r\nnew\r\nb\r\n"),
        ),
        ("a\r\nb\r\n", &[("a\r\n", "a\n", false)], Ok("a\nb\r\n")),
        // Mixed line ends are left as they are.
        ("a\r\nb\nc", &[("a\nb", "x", false)], Err(TextNotFound)),
        ("a\r\nb\nc", &[("c", "c\nd", false)], Ok("a\r\nb\nc\nd")),
        ("好好学习", &[("学习", "休息", false)], Ok("好好休息")),
        ("a b", &[("a", "b", false), ("b b", "c", false)], Ok("c")),
        (
            "a b",
            &[("a", "x", false), ("q", "y", false)],
            Err(TextNotFound),
        ),
        ("", &[("a", "b", false)], Err(TextNotFound)),
    ] {
        assert_eq!(
            edits(text, edit).as_deref().map_err(|code| *code),
            want,
            "{text:?} {edit:?}"
        );
    }
}

#[test]
fn replacement_growth_is_limited() {
    let doubling = [("a", "aa", true); 45];
    assert_eq!(edits("a", &doubling), Err(ErrorCode::PayloadTooLarge));
    let large = "x".repeat(900_000);
    assert_eq!(
        edits(&"a".repeat(1_000_000), &[("a", large.as_str(), true)]),
        Err(ErrorCode::PayloadTooLarge)
    );
}

#[test]
fn diff_is_applied_at_matching_lines_or_rejected() {
    use ErrorCode::{AmbiguousEdit, PatchApplyFailed};
    let diff = |body: &str| format!("--- a/f\n+++ b/f\n{body}");
    let change = "@@ -2,1 +2,1 @@\n-two\n+TWO\n";
    for (text, body, want) in [
        ("one\ntwo\nthree\n", change, Ok("one\nTWO\nthree\n")),
        (
            "zero\none\ntwo\nthree\n",
            change,
            Ok("zero\none\nTWO\nthree\n"),
        ),
        ("two\nx\nthree\ntwo\n", change, Err(AmbiguousEdit)),
        ("one\ntwo\ntwo\n", change, Ok("one\nTWO\ntwo\n")),
        ("one\nTwo\n", change, Err(PatchApplyFailed)),
        ("one\ntwo \n", change, Err(PatchApplyFailed)),
        ("one\n", "@@ -1,0 +2,1 @@\n+two\n", Ok("one\ntwo\n")),
        ("one\ntwo\n", "@@ -1,2 +1,1 @@\n one\n-two\n", Ok("one\n")),
        (
            "one",
            "@@ -1,1 +1,1 @@\n-one\n\\ No newline at end of file\n+ONE\n",
            Ok("ONE\n"),
        ),
        (
            "a\nb\nc\nd\n",
            "@@ -1,1 +1,1 @@\n-a\n+A\n@@ -4,1 +4,1 @@\n-d\n+D\n",
            Ok("A\nb\nc\nD\n"),
        ),
        ("one\n", "no hunk", Err(PatchApplyFailed)),
        ("one\n", "@@ -1,1 +1,1 @@\n-one\n", Err(PatchApplyFailed)),
    ] {
        let got = TextChange::Diff(&diff(body))
            .apply(text, "f")
            .map_err(|error| error.code);
        assert_eq!(
            got.as_deref().map_err(|code| *code),
            want,
            "{text:?} {body:?}"
        );
    }
}

#[tokio::test]
async fn edits_are_applied_atomically() {
    let project = TestProject::new(&[("a.txt", "one\ntwo\n"), ("bytes", "x")]);
    project.write("bytes", &[0xff, 0xfe, 0x00]);
    let content = || std::fs::read_to_string(project.path().join("a.txt")).unwrap();
    let tool = tool();
    let output = project
        .call(
            &tool,
            json!({"path": "a.txt", "edits": [{"old": "two", "new": "2"}]}),
        )
        .await
        .unwrap();
    assert!(
        output.contains("1 line added, 1 removed") && output.contains("-two\n+2\n"),
        "{output}"
    );
    assert_eq!(content(), "one\n2\n");
    for (arguments, code) in [
        (
            json!({"path": "a.txt", "edits": [{"old": "one", "new": "1"}, {"old": "nine", "new": "9"}]}),
            "text_not_found",
        ),
        (json!({"path": "a.txt"}), "validation_error"),
        (
            json!({"path": "a.txt", "edits": [{"old": "one", "new": "one"}]}),
            "validation_error",
        ),
        (
            json!({"path": "a.txt", "edits": [{"old": "one", "new": "x"}], "unified_diff": "x"}),
            "validation_error",
        ),
        (
            json!({"path": "b.txt", "edits": [{"old": "one", "new": "x"}]}),
            "file_not_found",
        ),
        (
            json!({"path": "bytes", "edits": [{"old": "one", "new": "x"}]}),
            "unsupported_media",
        ),
        (
            json!({"path": "../x", "edits": [{"old": "one", "new": "x"}]}),
            "outside_allowed_roots",
        ),
    ] {
        let refused = project.call(&tool, arguments.clone()).await.unwrap_err();
        assert_eq!(refused.code.as_str(), code, "{arguments}: {refused}");
        assert_eq!(content(), "one\n2\n", "{arguments}");
    }
}
