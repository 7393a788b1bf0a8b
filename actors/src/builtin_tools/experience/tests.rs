//! Tests of `get_experience`.

use serde_json::json;
use soong_protocol::{Config, Timestamp};
use soong_text::Environment;
use soong_tool::testing::TestProject;

use super::*;
use crate::memory::{Changes, NewExperience};

#[tokio::test]
async fn experiences_are_found_by_tags() {
    let home = tempfile::tempdir().unwrap();
    let project = TestProject::new(&[]);
    let memory = Arc::new(MemoryFiles::of_home(
        home.path(),
        &Config::default(),
        &Environment::default(),
    ));
    let tool = GetExperience::new(Some(Arc::clone(&memory)));
    let ask = async |arguments: Value| project.call(&tool, arguments).await;
    assert_eq!(
        ask(json!({})).await.unwrap(),
        "[nothing has been learned yet]"
    );
    let one = |intent: &str, text: &str| NewExperience {
        category: "tool_usage".to_owned(),
        tags: normalize_tags(&[intent.to_owned()], &["rust".to_owned()]),
        text: text.to_owned(),
    };
    let new = vec![
        one("fix-test", "First."),
        one("write-docs", "Second.\u{202e}"),
    ];
    let rated = Vec::new();
    memory
        .of("u")
        .change(&Changes {
            reflection: "r".into(),
            trace_id: None,
            at: Timestamp::from_millis(0),
            new,
            rated,
        })
        .unwrap();
    for (arguments, ids, note) in [
        (json!({"intent": ["Write Docs"]}), &["ex_002"][..], "1 of 2"),
        (
            json!({"state": ["rust"], "intent": ["write-docs"]}),
            &["ex_002", "ex_001"],
            "2 of 2",
        ),
        (json!({}), &["ex_001", "ex_002"], "2 of 2"),
        (json!({"state": ["python"]}), &[], "none of 2 fits"),
    ] {
        let shown = ask(arguments.clone()).await.unwrap();
        let found: Vec<&str> = shown
            .lines()
            .filter_map(|line| line.strip_prefix('[')?.split_once("] tool_usage"))
            .map(|(id, _)| id)
            .collect();
        assert_eq!(found, ids, "{arguments}: {shown}");
        assert!(
            shown.contains(note) && !shown.contains('\u{202e}'),
            "{shown}"
        );
    }
    assert_eq!(
        ask(json!({"state": ["!!"]})).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
    assert_eq!(
        ask(json!({"tags": ["a"]})).await.unwrap_err().code,
        ErrorCode::ValidationError
    );
}
