//! Documents: the edits of a run become one version when the run ends, for every kind of end;
//! failed flushes; concurrent writers (ART-3 … ART-6).

use std::sync::{Arc, OnceLock};

use serde_json::json;
use soong::{
    ChildSpec, ErrorCode, RunHandle, RunRequest,
    artifact::Content,
    protocol::{Event, EventRecord, MatchLayer, RunMode, RunStatus, UpdateType},
};
use soong_storage::store::MessagePath;

use crate::support::{
    artifacts::{
        EditHookStore, begin, calls, create, edits, flushes, folder, growing, listed, local_owner,
        open_with_gate, pause, prompt_driven_model, read, rewrite, run, save, text, text_at, turns,
        update, versions,
    },
    history::{check_session, stored},
    world::{TestRuntime, kinds, quick_non_durable_config, wait_until, with_timeout},
};

/// Returns the events of one run.
async fn events_of(world: &TestRuntime, run: &RunHandle) -> Vec<Arc<EventRecord>> {
    let all = stored(world.runtime(), run.trace_id()).await;
    all.into_iter()
        .filter(|event| event.run_id.as_ref() == Some(run.run_id()))
        .collect()
}

/// Checks that the flush comes after the last edit, and that only goal updates occur between the
/// flush and the end of the run.
fn check_flush_ends(events: &[Arc<EventRecord>]) {
    let kinds = kinds(events);
    let flush = kinds
        .iter()
        .position(|kind| *kind == "artifacts_flushed")
        .expect("the run flushes");
    let between = &kinds[flush + 1..kinds.len() - 1];
    assert!(
        between.iter().all(|kind| *kind == "goal_updated"),
        "{kinds:?}"
    );
    let last_edit = kinds
        .iter()
        .rposition(|kind| *kind == "artifact_edited")
        .unwrap_or(0);
    assert!(last_edit < flush, "{kinds:?}");
}

/// (ART-3)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saving_a_name_twice_creates_versions_1_and_2() {
    let (world, _) = open_with_gate(|builder| builder).await;
    run(&world, "s", &[]).await;
    let here = local_owner("s");
    let first = save(&world, &here, "data.csv", "a,b\n").await;
    let second = save(&world, &here, "data.csv", "a,b\n").await;
    assert_eq!(
        (first.current_version, second.current_version),
        (1, 2),
        "the same bytes are a version too"
    );
    assert_eq!(first.artifact_id, second.artifact_id);
    save(&world, &here, "data.csv", "c\n").await;
    assert_eq!(versions(&world, &here, "data.csv").await, [1, 2, 3]);
    assert_eq!(text_at(&world, &here, "data.csv", 1).await, "a,b\n");
    assert_eq!(text(&world, &here, "data.csv").await, "c\n");
    world.finish().await;
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_edits_are_stored_as_one_version_numbered_4() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let steps = [
        create("plan", "“one” two three"),
        update("plan", "\"one\" two", "ONE two"),
        update("plan", "three", "THREE"),
        update("plan", "ONE two THRXE", "all"),
    ];
    let (run, outcome) = run(&world, "s", &steps).await;
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    let here = local_owner("s");
    let events = events_of(&world, &run).await;
    let want = [
        (1, "“one” two three"),
        (2, "ONE two three"),
        (3, "ONE two THREE"),
        (4, "all"),
    ];
    assert_eq!(
        edits(&events, "plan"),
        want.map(|(version, text)| (version, text.to_owned()))
    );
    assert_eq!(flushes(&events), [[("plan".to_owned(), 4)]]);
    check_flush_ends(&events);
    assert_eq!(versions(&world, &here, "plan").await, [4]);
    assert_eq!(text_at(&world, &here, "plan", 4).await, "all");
    let version = world
        .runtime()
        .artifacts()
        .service()
        .get_version(&here, "plan", 4)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        version.update_type,
        UpdateType::Create,
        "the edit that changed most counts"
    );
    let changes = [
        ("\"one\" two", "ONE two"),
        ("three", "THREE"),
        ("ONE two THRXE", "all"),
    ];
    assert_eq!(
        version.changes,
        changes.map(|(old, new)| (old.to_owned(), new.to_owned()))
    );
    let from = &version.provenance;
    assert_eq!(
        (from.run_id.as_ref(), from.trace_id.as_ref()),
        (Some(run.run_id()), Some(run.trace_id()))
    );
    let messages = world
        .runtime()
        .traces()
        .messages(run.trace_id(), MessagePath::All)
        .await
        .unwrap();
    let calling_message = messages
        .iter()
        .find(|message| Some(message.sequence) == from.message_sequence)
        .unwrap();
    assert_eq!(
        Some(&calling_message.tool_calls[0].id),
        from.tool_call_id.as_ref()
    );
    assert!(calling_message.tool_calls[0].arguments.contains("THRXE"));
    // The outcome refers to the stored version.
    assert_eq!(
        (outcome.artifacts.len(), outcome.artifacts[0].version),
        (1, 4)
    );
    assert!(
        outcome
            .output
            .starts_with("<artifact version=\"4\"><id>plan</id>"),
        "{}",
        outcome.output
    );
    check_session(world.runtime(), run.session_id()).await;
    world.finish().await;
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn version_numbers_are_sparse_and_keep_the_update_type() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = local_owner("s");
    let (_, _) = run(&world, "s", &[]).await;
    save(&world, &here, "doc", "0").await;
    run(&world, "s", &growing("doc", 3)[1..]).await;
    assert_eq!(versions(&world, &here, "doc").await, [1, 4]);
    run(
        &world,
        "s",
        &[
            update("doc", "“never mind”", "x"),
            update("doc", "0 1 2 4", "fuzzy"),
        ],
    )
    .await;
    run(
        &world,
        "s",
        &[
            update("doc", "fuzzy", "a"),
            rewrite("doc", "b"),
            update("doc", "b", "c"),
        ],
    )
    .await;
    let service = world.runtime().artifacts().service();
    let kept_versions = service.list_versions(&here, "doc").await.unwrap();
    let kinds: Vec<_> = kept_versions
        .iter()
        .map(|version| (version.version, version.update_type))
        .collect();
    let want = [
        (1, UpdateType::Create),
        (4, UpdateType::Update),
        (5, UpdateType::UpdateFuzzy),
        (8, UpdateType::Rewrite),
    ];
    assert_eq!(kinds, want);
    assert_eq!(
        kept_versions[3].changes,
        [
            ("fuzzy".to_owned(), "a".to_owned()),
            ("b".to_owned(), "c".to_owned())
        ]
    );
    // A run that does not edit the document stores no version of it and reports no flush.
    let (idle, _) = run(&world, "s", &[read("doc"), create("other", "x")]).await;
    assert_eq!(
        flushes(&events_of(&world, &idle).await),
        [[("other".to_owned(), 1)]]
    );
    let (idle, _) = run(&world, "s", &[read("doc")]).await;
    assert!(flushes(&events_of(&world, &idle).await).is_empty());
    assert_eq!(versions(&world, &here, "doc").await, [1, 4, 5, 8]);
    check_session(world.runtime(), idle.session_id()).await;
    world.finish().await;
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn creating_an_existing_name_fails_and_results_are_escaped() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let titled =
        json!(["create_artifact", {"name": "doc", "content": "x", "title": "<b>\"A\" & B</b>"}]);
    let (made, outcome) = run(&world, "s", &[titled]).await;
    let title = "<title>&lt;b&gt;&quot;A&quot; &amp; B&lt;/b&gt;</title>";
    assert!(outcome.output.contains(title), "{}", outcome.output);
    let (later_run, outcome) = run(&world, "s", &[create("doc", "y")]).await;
    assert!(
        outcome.output.contains("[artifact_exists]"),
        "{}",
        outcome.output
    );
    for (call, code) in [
        (update("nothing", "x", "y"), "artifact_not_found"),
        (rewrite("nothing", "y"), "artifact_not_found"),
        (
            json!(["create_artifact", {"name": "p", "content": "x", "content_type": "image/png"}]),
            "unsupported_media",
        ),
        (create("../evil", "y"), "validation_error"),
    ] {
        let (_, outcome) = run(&world, "s", std::slice::from_ref(&call)).await;
        assert!(
            outcome.output.contains(&format!("[{code}]")),
            "{call}: {}",
            outcome.output
        );
    }
    assert!(flushes(&events_of(&world, &later_run).await).is_empty());
    assert_eq!(text(&world, &local_owner("s"), "doc").await, "x");
    assert_eq!(
        world
            .runtime()
            .artifacts()
            .list(&local_owner("s"))
            .await
            .unwrap()
            .len(),
        1
    );
    check_session(world.runtime(), made.session_id()).await;
    world.finish().await;
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_run_end_flushes_before_the_terminal_event() {
    for (end, status) in [
        (None, RunStatus::Completed),
        (Some(json!("fail")), RunStatus::Failed),
        (Some(read("doc")), RunStatus::Failed), // exceeds the turn limit
        (Some(json!("hang")), RunStatus::Cancelled),
        (Some(pause()), RunStatus::Cancelled),
    ] {
        let (world, gate) = open_with_gate(|builder| builder).await;
        let steps: Vec<_> = growing("doc", 2).into_iter().chain(end.clone()).collect();
        let start = RunRequest::new(turns(&steps)).session("s").max_turns(4);
        let run = world.runtime().start(start).await.unwrap();
        if status == RunStatus::Cancelled {
            wait_until("it has made its edits", || {
                serde_json::to_string(&world.runtime().tree().snapshot())
                    .unwrap()
                    .contains("\"turn\":4")
            })
            .await;
            if end == Some(pause()) {
                gate.reached(1).await;
            }
            with_timeout(run.cancel()).await.unwrap();
        }
        let outcome = with_timeout(run.wait()).await.unwrap();
        assert_eq!(outcome.status, status, "{end:?}: {:?}", outcome.error);
        let events = events_of(&world, &run).await;
        assert_eq!(flushes(&events), [[("doc".to_owned(), 3)]], "{end:?}");
        check_flush_ends(&events);
        assert_eq!(
            text_at(&world, &local_owner("s"), "doc", 3).await,
            "0 1 2",
            "{end:?}"
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edit_in_flight_at_cancel_is_part_of_the_version() {
    for nth in 1..=4 {
        let cancelled: Arc<OnceLock<RunHandle>> = Arc::default();
        let slot = Arc::clone(&cancelled);
        let tokio = tokio::runtime::Handle::current();
        // Cancel the run while this edit is being committed.
        let hook = move |edit, is_committed| {
            if (edit, is_committed) == (nth, false) {
                let run = slot.wait().clone();
                let (sender, receiver) = std::sync::mpsc::channel();
                tokio.spawn(async move {
                    let mut cancelling = Box::pin(run.cancel());
                    let _ = futures::poll!(&mut cancelling);
                    sender.send(()).unwrap();
                    cancelling.await.unwrap();
                });
                receiver.recv().unwrap();
            }
            Ok(())
        };
        let world = TestRuntime::with(prompt_driven_model(), |builder| {
            builder.wrap_store(move |store| Box::new(EditHookStore::new(store, hook)))
        })
        .await;
        let run = begin(&world, "s", &growing("doc", 5)).await;
        assert!(cancelled.set(run.clone()).is_ok());
        let outcome = with_timeout(run.wait()).await.unwrap();
        let events = events_of(&world, &run).await;
        assert_eq!(outcome.status, RunStatus::Cancelled);
        assert_eq!(
            edits(&events, "doc").len(),
            nth,
            "the edit that was on its way is made, and none behind it"
        );
        assert_eq!(flushes(&events), [[("doc".to_owned(), nth as u64)]]);
        check_flush_ends(&events);
        let completed = events
            .iter()
            .filter(|record| record.event.kind() == "tool_completed")
            .count();
        assert_eq!(completed, nth, "an edit that was made is reported as made");
        assert_eq!(
            text_at(&world, &local_owner("s"), "doc", nth as u64).await,
            edits(&events, "doc")[nth - 1].1
        );
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (ART-4)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_flush_stores_other_documents_and_loses_no_edit() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    let run_a = begin(
        &world,
        "s",
        &[
            create("bad", "1"),
            create("good", "1"),
            create("worse", "1"),
            update("bad", "1", "1 2"),
            pause(),
        ],
    )
    .await;
    gate.reached(1).await;
    let in_the_way: Vec<_> = [
        listed(&world, &here, "bad").await,
        listed(&world, &here, "worse").await,
    ]
    .iter()
    .map(|artifact| folder(&world, artifact))
    .collect();
    for file in &in_the_way {
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, "in the way").unwrap();
    }
    gate.pass();
    let outcome = with_timeout(run_a.wait()).await.unwrap();
    assert_eq!(outcome.status, RunStatus::Failed);
    let error = outcome.error.clone().unwrap();
    assert_eq!(
        (error.code, &error.details),
        (
            ErrorCode::StorageError,
            &json!({"artifacts": ["bad", "worse"]})
        )
    );
    let events = events_of(&world, &run_a).await;
    assert_eq!(flushes(&events), [[("good".to_owned(), 1)]]);
    let failed = events
        .iter()
        .find(|event| event.event.kind() == "artifacts_flushed")
        .unwrap();
    let failed: serde_json::Value = serde_json::from_str(&failed.data).unwrap();
    assert_eq!(
        (&failed["failed"][0]["name"], &failed["failed"][1]["name"]),
        (&json!("bad"), &json!("worse"))
    );
    check_flush_ends(&events);
    // The edits are kept, and the documents are dirty.
    for (name, want, stored) in [
        ("bad", "1 2", vec![]),
        ("good", "1", vec![1]),
        ("worse", "1", vec![]),
    ] {
        assert_eq!(text(&world, &here, name).await, want);
        assert_eq!(versions(&world, &here, name).await, stored);
        assert_eq!(
            listed(&world, &here, name).await.dirty,
            stored.is_empty(),
            "{name}"
        );
    }
    // The next run of the session stores the remaining documents, whether or not it edits them.
    for file in &in_the_way {
        std::fs::remove_file(file).unwrap();
    }
    let (next, outcome) = run(&world, "s", &[update("bad", "2", "2 3")]).await;
    assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
    assert_eq!(
        flushes(&events_of(&world, &next).await),
        [[("bad".to_owned(), 3), ("worse".to_owned(), 1)]]
    );
    assert_eq!(text_at(&world, &here, "bad", 3).await, "1 2 3");
    assert!(!listed(&world, &here, "worse").await.dirty);
    check_session(world.runtime(), next.session_id()).await;
    world.finish().await;
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parent_and_children_edit_concurrently_and_lose_no_line() {
    const LINES: usize = 12;
    let (world, gate) = open_with_gate(|builder| builder).await;
    // Each edit inserts a line before `END`, so an edit that was overtaken by another one has to
    // match the changed text.
    let lines = |who: usize| -> Vec<_> {
        (0..LINES)
            .map(|n| update("doc", "END", &format!("{who}-{n}\nEND")))
            .collect()
    };
    let steps: Vec<_> = [create("doc", "END"), pause()]
        .into_iter()
        .chain(lines(0))
        .chain([pause()])
        .collect();
    let start = RunRequest::new(turns(&steps))
        .session("s")
        .mode(RunMode::Normal);
    let parent = world.runtime().start(start).await.unwrap();
    gate.reached(1).await;
    let mut children = Vec::new();
    for who in 1..=3 {
        let steps: Vec<_> = [pause()].into_iter().chain(lines(who)).collect();
        children.push(parent.spawn(ChildSpec::new(turns(&steps))).await.unwrap());
    }
    gate.reached(4).await;
    (0..4).for_each(|_| gate.pass());
    for child in &children {
        let outcome = with_timeout(child.wait()).await.unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        assert!(outcome.artifacts[0].version > 1);
    }
    gate.pass();
    assert_eq!(
        with_timeout(parent.wait()).await.unwrap().status,
        RunStatus::Completed
    );
    let here = local_owner("s");
    let whole = text(&world, &here, "doc").await;
    for who in 0..4 {
        let own: Vec<&str> = whole
            .lines()
            .filter(|line| line.starts_with(&format!("{who}-")))
            .collect();
        let want: Vec<String> = (0..LINES).map(|n| format!("{who}-{n}")).collect();
        assert_eq!(own, want, "in the order of its writer, each once");
    }
    assert_eq!(whole.lines().count(), 4 * LINES + 1);
    let artifact = listed(&world, &here, "doc").await;
    assert_eq!(
        (artifact.current_version, artifact.dirty),
        (1 + 4 * LINES as u64, false)
    );
    assert_eq!(
        versions(&world, &here, "doc").await.last(),
        Some(&artifact.current_version)
    );
    check_session(world.runtime(), parent.session_id()).await;
    world.finish().await;
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn external_write_first_stores_the_edits_of_the_run() {
    for way in ["save", "edit", "upload"] {
        let (world, gate) = open_with_gate(|builder| builder).await;
        let here = local_owner("s");
        let steps: Vec<_> = growing("doc", 2)
            .into_iter()
            .chain([pause(), update("doc", "2", "2 run"), pause()])
            .collect();
        let run = begin(&world, "s", &steps).await;
        gate.reached(1).await;
        assert_eq!(versions(&world, &here, "doc").await, [] as [u64; 0]);
        let runtime = world.runtime();
        match way {
            "save" => assert_eq!(
                save(&world, &here, "doc", "0 1 2 client")
                    .await
                    .current_version,
                4
            ),
            "edit" => {
                let edited =
                    with_timeout(runtime.artifacts().edit(&here, "doc", "1 2", "1 2 client"))
                        .await
                        .unwrap();
                assert_eq!(
                    (edited.artifact.current_version, edited.layer),
                    (4, Some(MatchLayer::Exact))
                );
            }
            _ => {
                let upload = with_timeout(runtime.artifacts().upload(
                    &here,
                    "doc",
                    "text/plain",
                    "0 1 2 client".into(),
                ))
                .await;
                // The name is taken, so the upload becomes another artifact (ART-11), and the
                // document is not changed.
                assert_eq!(upload.unwrap().name.as_deref(), Some("doc_1"));
            }
        }
        let stored: &[u64] = if way == "upload" { &[] } else { &[3, 4] };
        assert_eq!(versions(&world, &here, "doc").await, stored, "{way}");
        assert_eq!(
            with_timeout(run.status()).await.unwrap(),
            RunStatus::Running
        );
        gate.pass();
        gate.reached(2).await;
        let (want, revision) = if way == "upload" {
            ("0 1 2 run", 4)
        } else {
            ("0 1 2 run client", 5)
        };
        assert_eq!(text(&world, &here, "doc").await, want, "{way}");
        let artifact = listed(&world, &here, "doc").await;
        assert_eq!(
            (artifact.current_version, artifact.dirty),
            (revision, true),
            "{way}"
        );
        gate.pass();
        assert_eq!(
            with_timeout(run.wait()).await.unwrap().status,
            RunStatus::Completed
        );
        let all: Vec<u64> = stored.iter().copied().chain([revision]).collect();
        assert_eq!(versions(&world, &here, "doc").await, all, "{way}");
        let events = events_of(&world, &run).await;
        assert_eq!(flushes(&events), [[("doc".to_owned(), revision)]]);
        assert_eq!(calls(&events, "update_artifact"), [Ok(()), Ok(()), Ok(())]);
        check_session(world.runtime(), run.session_id()).await;
        world.finish().await;
    }
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn saves_between_edits_keep_their_content() {
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(quick_non_durable_config())
    })
    .await;
    let here = local_owner("s");
    let rewrite = |n: usize| json!(["rewrite_artifact", {"name": "doc", "content": format!("run {n} ").repeat(500)}]);
    let steps: Vec<_> = [create("doc", "0")]
        .into_iter()
        .chain((0..60).map(rewrite))
        .collect();
    let run = begin(&world, "s", &steps).await;
    let savers = (0..4).map(|saver| {
        let runtime = world.runtime().clone();
        let here = here.clone();
        tokio::spawn(async move {
            let mut saved = Vec::new();
            for n in 0..8 {
                let text = format!("saver {saver}, {n} ").repeat(1 + n * 4_000);
                // As a stream, like the body of a client's request, or as one text.
                let pieces: Vec<_> = text
                    .as_bytes()
                    .chunks(70_000)
                    .map(|piece| Ok(piece.to_vec().into()))
                    .collect();
                let stream = Content::Stream(Box::pin(futures::stream::iter(pieces)));
                let content = if n % 2 == 0 {
                    text.clone().into()
                } else {
                    stream
                };
                match runtime
                    .artifacts()
                    .put(&here, "doc", "text/markdown", content)
                    .await
                {
                    Ok(artifact) => saved.push((artifact.current_version, text)),
                    Err(error) => assert_eq!(error.code, ErrorCode::SessionNotFound, "{error}"),
                }
            }
            saved
        })
    });
    let savers: Vec<_> = savers.collect();
    let mut numbers = Vec::new();
    for saver in savers {
        for (version, text) in saver.await.unwrap() {
            assert!(
                text_at(&world, &here, "doc", version).await == text,
                "version {version} holds what was saved"
            );
            numbers.push(version);
        }
    }
    with_timeout(run.wait()).await.unwrap();
    numbers.sort_unstable();
    assert!(
        numbers.is_sorted_by(|a, b| a < b),
        "each save has a number of its own: {numbers:?}"
    );
    for version in versions(&world, &here, "doc").await {
        assert!(
            !text_at(&world, &here, "doc", version).await.is_empty(),
            "version {version} can be read"
        );
    }
    world.finish().await;
}

/// (ART-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_during_a_run_show_edits_but_versions_stored_text() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    run(&world, "s", &[create("doc", "0")]).await;
    let run = begin(
        &world,
        "s",
        &[
            update("doc", "0", "one\ntwo\nthree"),
            create("new", "n"),
            pause(),
        ],
    )
    .await;
    gate.reached(1).await;
    let (runtime, service) = (world.runtime(), world.runtime().artifacts().service());
    let artifact = listed(&world, &here, "doc").await;
    assert_eq!(
        (
            artifact.current_version,
            artifact.stored_version,
            artifact.dirty,
            artifact.size
        ),
        (2, 1, true, 13)
    );
    assert_eq!(text(&world, &here, "doc").await, "one\ntwo\nthree");
    assert_eq!(text_at(&world, &here, "doc", 1).await, "0");
    assert_eq!(versions(&world, &here, "doc").await, [1]);
    assert_eq!(versions(&world, &here, "new").await, [] as [u64; 0]);
    let error = runtime
        .artifacts()
        .load(&here, "doc", Some(2))
        .await
        .err()
        .unwrap();
    assert_eq!(error.code, ErrorCode::VersionNotFound);
    assert!(error.message.ends_with("stored versions: 1"), "{error}");
    assert!(service.load(&here, "doc", Some(2)).await.unwrap().is_none());
    assert_eq!(
        runtime
            .artifacts()
            .load(&here, "none", None)
            .await
            .err()
            .unwrap()
            .code,
        ErrorCode::ArtifactNotFound
    );
    gate.pass();
    with_timeout(run.wait()).await.unwrap();
    assert_eq!(versions(&world, &here, "doc").await, [1, 2]);
    world.finish().await;
}

/// (ART-6)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn model_reads_by_line_and_version_and_sees_the_versions() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let page = |more: serde_json::Value| {
        let mut arguments = json!({"name": "doc"});
        arguments
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        json!(["read_artifact", arguments])
    };
    run(&world, "s", &[create("doc", "old")]).await;
    run(&world, "s", &[rewrite("doc", "one\ntwo\nthree\n")]).await;
    for (call, want) in [
        (page(json!({})), "one\ntwo\nthree\n"),
        (
            page(json!({"offset": 2, "limit": 1})),
            "two\n[lines 2 to 2 of 3; continue with offset=3]",
        ),
        (page(json!({"offset": 3})), "three\n"),
        (page(json!({"offset": 4})), "[the text has 3 lines]"),
        (page(json!({"version": 1})), "old\n"),
        (page(json!({"version": 3})), "stored versions: 1, 2"),
        (page(json!({"offset": 0})), "[validation_error]"),
        (
            json!(["read_artifact", {"name": "none", "version": 1}]),
            "[artifact_not_found]",
        ),
        (
            json!(["list_artifacts", {}]),
            "doc (version 2, text/markdown, 14 bytes): doc\n",
        ),
    ] {
        let (_, outcome) = run(&world, "s", std::slice::from_ref(&call)).await;
        assert!(
            outcome.output.ends_with(want) || outcome.output.contains(want),
            "{call}: {}",
            outcome.output
        );
    }
    let (own, outcome) = run(
        &world,
        "s",
        &[
            update("doc", "two", "TWO"),
            page(json!({"offset": 2, "limit": 1})),
        ],
    )
    .await;
    assert!(
        outcome.output.starts_with("TWO\n"),
        "a model reads its own edits: {}",
        outcome.output
    );
    let events = events_of(&world, &own).await;
    assert!(
        events
            .iter()
            .any(|event| matches!(event.event, Event::Artifact(_)))
    );
    // A document whose first version is stored at the end of the run.
    let read = json!(["read_artifact", {"name": "fresh", "version": 1}]);
    let (_, outcome) = run(&world, "s", &[create("fresh", "new"), read]).await;
    let output = &outcome.output;
    assert!(
        output.contains("[version_not_found]") && output.contains("none stored yet"),
        "{output}"
    );
    world.finish().await;
}
