//! Skills and experiences, in the form of their files.

use serde_json::json;
use soong::{RunRequest, memory::ExperienceText, model::ModelRequest, protocol::RunStatus};

use crate::support::{
    model::{Turn, assistant_count, last_of, scripted_model},
    world::{TestRuntime, quick_config, with_timeout},
};

/// Blocks with their tags on one line and a time without zone.
const EXPERIENCES: &str = "\
---
id: ex_001
trace_id: trace-0415
category: tool_usage
tags: {state: [\"large_file\", \"dirty_repo\"], intent: [\"batch_edit\", \"safe_modify\"]}
metrics: {helpful: 12, harmful: 0}
created_at: 2026-02-12 15:30
---
Commit before a batch of edits.
---
id: ex_002
trace_id: trace-0416
category: logic_flow
tags: {state: [\"docker\", \"ci\"], intent: [\"optimization\"]}
metrics: {helpful: 1, harmful: 0}
created_at: 2026-02-13 09:05
---
Order the layers by how often they change.
";

/// Opens a home with these experiences. The model tags each task with `docker` and `optimization`.
async fn open(script: impl Fn(&ModelRequest) -> Turn + Send + Sync + 'static) -> TestRuntime {
    let model = scripted_model(move |request| {
        if request
            .system
            .first()
            .is_some_and(|system| system.starts_with("You describe a task with a few tags"))
        {
            Turn::say(r#"{"state": ["docker", "ci"], "intent": ["optimization"]}"#)
        } else {
            script(request)
        }
    });
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("home/memory");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("experiences.md"), EXPERIENCES).unwrap();
    TestRuntime::open_in(dir, model, |builder| builder.config(quick_config())).await
}

#[test]
fn file_of_experiences_is_read_in_its_printed_form() {
    let book = ExperienceText::read(EXPERIENCES.into());
    assert!(book.faults().is_empty(), "{:?}", book.faults());
    let first = serde_json::to_value(book.get("ex_001").unwrap()).unwrap();
    assert_eq!(first["category"], "tool_usage");
    assert_eq!(
        first["tags"],
        json!({"intent": ["batch-edit", "safe-modify"], "state": ["large-file", "dirty-repo"]})
    );
    assert_eq!(
        (&first["trace_id"], &first["metrics"]),
        (&json!("trace-0415"), &json!({"helpful": 12, "harmful": 0}))
    );
    assert!(
        first["created_at"]
            .as_str()
            .unwrap()
            .starts_with("2026-02-12T15:30:00"),
        "{first}"
    );
    assert_eq!(first["text"], "Commit before a batch of edits.");
    assert_eq!(book.experiences().len(), 2);
}

/// The task is described by tags, the matching lessons follow the first message; later messages get
/// none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_trace_gets_the_lessons_that_match_its_tags() {
    let world = open(|request| Turn::say(last_of(request))).await;
    let start = |text: &str| world.runtime().start(RunRequest::new(text).session("s"));
    let run = start("Make the Docker build of this project faster.")
        .await
        .unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    let lessons = "## Relevant experience (参考经验)\n- [ex_002] Order the layers by how often they change. (Helpful: 1)";
    assert_eq!(
        output,
        format!("Make the Docker build of this project faster.\n\n{lessons}")
    );
    let run = start("And the tests?").await.unwrap();
    assert_eq!(
        with_timeout(run.wait()).await.unwrap().output,
        "And the tests?"
    );
    world.finish().await;
}

/// An agent asks for lessons by intent and state.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_searches_experiences_with_a_tool() {
    let world = open(|request| match assistant_count(request) {
        0 => Turn::call(
            "get_experience",
            json!({"intent": "batch_edit", "state": "dirty_repo"}),
        ),
        _ => Turn::say(last_of(request)),
    })
    .await;
    let run = world.runtime().start("Edit them all.").await.unwrap();
    let outcome = with_timeout(run.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Completed);
    assert!(
        outcome.output.contains("ex_001") && outcome.output.contains("Commit before a batch"),
        "{}",
        outcome.output
    );
    world.finish().await;
}

/// Skills come with the program, and from the folder `skills` of the project. An agent loads one
/// with the tool `skill`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skills_are_built_in_or_in_the_project() {
    let model = scripted_model(|request| match assistant_count(request) {
        0 => Turn::call("skill", json!({"name": "deconstruct"})),
        _ => Turn::say(format!("{}\n{}", request.system.concat(), last_of(request))),
    });
    let world = TestRuntime::open(model).await;
    let folder = world.project().join("skills");
    std::fs::create_dir(&folder).unwrap();
    let skill = "---\nname: deconstruct\ndescription: How a picture is taken apart.\n---\nStart at the border.\n";
    std::fs::write(folder.join("deconstruct.md"), skill).unwrap();
    let run = world.runtime().start("go").await.unwrap();
    let output = with_timeout(run.wait()).await.unwrap().output.clone();
    for name in ["planning", "research", "browser", "deconstruct"] {
        assert!(output.contains(&format!("- {name}: ")), "{name}: {output}");
    }
    assert!(output.contains("Start at the border."), "{output}");
    world.finish().await;
}
