//! Changes of project files: what `write` and `edit` record, and the content that they keep
//! (TOOL-7).

use serde_json::json;
use soong::{
    ErrorCode, RunHandle, RunRequest,
    protocol::{ArtifactScope, Event, FileChange, RunStatus, SessionId, ToolEvent},
};

use crate::support::{
    artifacts::{local_owner, prompt_driven_model, run, text, turns},
    history::stored,
    world::{TestRuntime, quick_config, quick_non_durable_config, with_timeout},
};

/// Returns the changes that the calls of a run recorded.
async fn changes(world: &TestRuntime, run: &RunHandle) -> Vec<FileChange> {
    let events = stored(world.runtime(), run.trace_id()).await;
    let of_run = events
        .iter()
        .filter(|record| record.run_id.as_ref() == Some(run.run_id()));
    let changes = of_run.filter_map(|record| match &record.event {
        Event::Tool(ToolEvent::Completed { file_change, .. }) => file_change.as_deref().cloned(),
        _ => None,
    });
    changes.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn previous_contents_are_kept_for_users_and_hidden_from_models() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    std::fs::write(world.project().join("picture"), [0xff, 0xfe, 0x00]).unwrap();
    std::fs::write(world.project().join(".env"), "A=1\n").unwrap();
    let (done, _) = run(
        &world,
        "s",
        &[
            json!(["write", {"path": "new/b.txt", "content": "one\n"}]),
            json!(["edit", {"path": "new/b.txt", "edits": [{"old": "one", "new": "two"}]}]),
            json!(["write", {"path": "a.txt", "content": "ALPHA\nbeta\n", "overwrite": true}]),
            json!(["write", {"path": "picture", "content": "text\n", "overwrite": true}]),
            json!(["write", {"path": ".env", "content": "A=2\n", "overwrite": true}]),
            json!(["write", {"path": "a.txt", "content": "not written"}]),
        ],
    )
    .await;
    let changes = changes(&world, &done).await;
    let [created, edited, replaced, picture, sensitive] = &changes[..] else {
        panic!("{changes:#?}")
    };
    assert_eq!(
        created.path,
        world
            .project()
            .join("new/b.txt")
            .canonicalize()
            .unwrap()
            .display()
            .to_string()
    );
    assert!(created.created && created.previous.is_none());
    assert!(
        created
            .diff
            .as_ref()
            .unwrap()
            .ends_with("@@ -0,0 +1 @@\n+one\n"),
        "{created:?}"
    );
    let previous = edited.previous.as_ref().unwrap();
    assert_eq!(
        (edited.created, &edited.diff, &previous.sha256),
        (false, &None, &created.sha256)
    );
    let owner = local_owner("s");
    assert_eq!(
        text(&world, &owner, previous.artifact_id.as_str()).await,
        "one\n"
    );
    assert!(
        replaced
            .diff
            .as_ref()
            .unwrap()
            .contains("-alpha\n+ALPHA\n beta\n"),
        "{replaced:?}"
    );
    let previous = replaced.previous.as_ref().unwrap();
    assert_eq!(
        text(&world, &owner, previous.artifact_id.as_str()).await,
        "alpha\nbeta\n"
    );
    let loaded = world.runtime().artifacts().load(
        &owner,
        picture.previous.as_ref().unwrap().artifact_id.as_str(),
        None,
    );
    assert_eq!(
        (
            &loaded.await.unwrap().bytes().await.unwrap()[..],
            &picture.diff
        ),
        (&[0xff, 0xfe, 0x00][..], &None)
    );
    assert_eq!(
        (sensitive.created, &sensitive.previous, &sensitive.diff),
        (false, &None, &None),
        "it is sensitive"
    );

    let (_, listed) = run(&world, "s", &[json!(["list_artifacts", {}])]).await;
    assert!(
        !listed.output.contains("before a change"),
        "{}",
        listed.output
    );
    let artifacts = world.runtime().artifacts().list(&owner).await.unwrap();
    let is_hidden = |artifact: &soong::protocol::Artifact| {
        artifact.debug
            && artifact.name.is_none()
            && matches!(artifact.scope, ArtifactScope::Session { .. })
    };
    assert!(
        artifacts.len() == 3 && artifacts.iter().all(is_hidden),
        "{artifacts:#?}"
    );
    world.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_keeps_limited_number_of_bytes_also_after_restart() {
    let mut config = quick_config();
    config.artifacts.max_undo_bytes = 25;
    let build = |builder: soong::RuntimeBuilder| builder.config(config.clone());
    let mut world = TestRuntime::with(prompt_driven_model(), build).await;
    let replace =
        |content: &str| json!(["write", {"path": "a.txt", "content": content, "overwrite": true}]);
    let has_previous = async |world: &TestRuntime, session: &str, contents: &[&str]| {
        let steps: Vec<_> = contents.iter().map(|content| replace(content)).collect();
        let (done, _) = run(world, session, &steps).await;
        changes(world, &done)
            .await
            .iter()
            .map(|change| change.previous.is_some())
            .collect::<Vec<_>>()
    };
    // An edit that fails keeps nothing.
    let failing = json!(["edit", {"path": "a.txt", "edits": [{"old": "missing", "new": "x"}]}]);
    run(&world, "s", &[failing.clone(), failing]).await;
    // 11, 12 and 2 bytes are replaced.
    assert_eq!(
        has_previous(&world, "s", &["twelve bytes", "2b", "last text"]).await,
        [true, true, true]
    );
    assert_eq!(
        has_previous(&world, "s", &["nine byte"]).await,
        [false],
        "25 bytes are kept"
    );
    assert_eq!(has_previous(&world, "other", &["nine byte"]).await, [true]);
    world.reopen_with(prompt_driven_model(), build).await;
    assert_eq!(has_previous(&world, "s", &["nine byte"]).await, [false]);
    // A session with the id of a deleted one has the whole quota.
    world
        .runtime()
        .sessions()
        .delete(&SessionId::new("s"))
        .await
        .unwrap();
    assert_eq!(has_previous(&world, "s", &["nine byte"]).await, [true]);
    world.finish().await;
}

/// Edits of one file by several runs: each edit that reports success is in the file (TOOL-4).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_edits_of_one_file_lose_none() {
    const RUNS: usize = 8;
    const EDITS: usize = 40;
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(quick_non_durable_config())
    })
    .await;
    let lines: String = (0..RUNS).map(|run| format!("run {run}\n")).collect();
    std::fs::write(world.project().join("list.txt"), lines).unwrap();
    let mut runs = Vec::new();
    for number in 0..RUNS {
        let head = format!("run {number}\n");
        let mut steps = Vec::new();
        for edit in 0..EDITS {
            let change = json!({"old": head, "new": format!("{head}{number}-{edit}\n")});
            steps.push(json!(["edit", {"path": "list.txt", "edits": [change]}]));
        }
        let request = RunRequest::new(turns(&steps)).session(format!("s{number}"));
        runs.push(world.runtime().start(request).await.unwrap());
    }
    let mut expected = Vec::new();
    let mut refused = 0;
    for (number, run) in runs.iter().enumerate() {
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(
            outcome.status,
            RunStatus::Completed,
            "run {number}: {:?}",
            outcome.error
        );
        let mut edit = 0;
        for record in stored(world.runtime(), run.trace_id()).await {
            match &record.event {
                Event::Tool(ToolEvent::Completed { .. }) => {
                    expected.push(format!("{number}-{edit}"));
                    edit += 1;
                }
                Event::Tool(ToolEvent::Failed { error, .. }) => {
                    assert_eq!(error.code, ErrorCode::PathConflict, "{error}");
                    refused += 1;
                    edit += 1;
                }
                // The file has changed since the approval, which covers the exact change.
                Event::Tool(ToolEvent::Denied { .. }) => {
                    refused += 1;
                    edit += 1;
                }
                _ => {}
            }
        }
        assert_eq!(edit, EDITS, "run {number}");
    }
    let text = std::fs::read_to_string(world.project().join("list.txt")).unwrap();
    let mut found: Vec<String> = text
        .lines()
        .filter(|line| !line.starts_with("run "))
        .map(str::to_owned)
        .collect();
    assert!(
        expected.len() >= RUNS,
        "only {} edits were made",
        expected.len()
    );
    expected.sort();
    found.sort();
    assert_eq!(found, expected, "{refused} edits were refused");
    drop(runs);
    world.finish().await;
}
