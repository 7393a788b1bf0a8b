//! Artifact ownership and names: separation of users and sessions, and hostile names through every
//! interface (ART-1, ART-2, ART-5, ART-11, ART-14).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use soong::{
    ErrorCode, FaultPoint, RunRequest,
    artifact::{ArtifactOwner, Change, ChangeCondition, EditRequest, Save},
    protocol::{ArtifactName, ArtifactSource, EffectId, Provenance, RunStatus, SessionId},
};

use crate::support::{
    artifacts::{
        begin, calls, create, flushes, listed, local_owner, open_with_gate, pause,
        prompt_driven_model, read, rewrite, run, save, text, turns, update, versions,
    },
    history::stored,
    world::{TestRuntime, quick_non_durable_config, with_timeout},
};

fn place_of(session: &str, uid: &str) -> ArtifactOwner {
    ArtifactOwner {
        session_id: SessionId::new(session),
        uid: uid.into(),
    }
}

/// Runs these turns for a user, and returns the output of the run.
async fn run_as(
    world: &TestRuntime,
    uid: &str,
    session: &str,
    steps: &[serde_json::Value],
) -> String {
    let start = RunRequest::new(turns(steps)).session(session).uid(uid);
    let run = world.runtime().start(start).await.unwrap();
    with_timeout(run.wait()).await.unwrap().output.clone()
}

/// (ART-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_artifact_is_visible_in_all_sessions_of_its_user_only() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    run_as(
        &world,
        "ann",
        "a1",
        &[create("user:notes", "of ann"), create("own", "of a1")],
    )
    .await;
    let list = json!(["list_artifacts", {}]);
    let seen = run_as(&world, "ann", "a2", std::slice::from_ref(&list)).await;
    assert!(
        seen.contains("user:notes (version 1") && !seen.contains("own (version"),
        "{seen}"
    );
    assert_eq!(
        run_as(&world, "ann", "a2", &[read("user:notes")]).await,
        "of ann\n"
    );
    run_as(
        &world,
        "ann",
        "a2",
        &[update("user:notes", "of ann", "of ann, from a2")],
    )
    .await;
    assert_eq!(
        run_as(&world, "ann", "a1", &[read("user:notes")]).await,
        "of ann, from a2\n"
    );
    // Another user, with the tools …
    assert_eq!(
        run_as(&world, "bob", "b", &[list]).await,
        "no artifacts yet"
    );
    for call in [
        read("user:notes"),
        update("user:notes", "ann", "bob"),
        rewrite("user:notes", "bob"),
    ] {
        let output = run_as(&world, "bob", "b", std::slice::from_ref(&call)).await;
        assert!(output.contains("[artifact_not_found]"), "{call}: {output}");
    }
    // … and with the artifact service and the runtime, also by id.
    let (runtime, service) = (world.runtime(), world.runtime().artifacts().service());
    let ann = place_of("a1", "ann");
    let bob = place_of("b", "bob");
    let id = listed(&world, &ann, "user:notes").await.artifact_id;
    for key in [
        "user:notes".to_owned(),
        id.as_str().to_owned(),
        format!("user:{id}"),
    ] {
        assert!(
            service.load(&bob, &key, None).await.unwrap().is_none(),
            "{key}"
        );
        assert!(
            service.list_versions(&bob, &key).await.unwrap().is_empty(),
            "{key}"
        );
        assert!(!service.delete(&bob, &key).await.unwrap(), "{key}");
        let edited = runtime
            .artifacts()
            .edit(&bob, &key, "ann", "bob")
            .await
            .unwrap_err()
            .code;
        assert!(
            matches!(
                edited,
                ErrorCode::ArtifactNotFound | ErrorCode::ValidationError
            ),
            "{key}: {edited}"
        );
        assert_eq!(
            runtime
                .artifacts()
                .load(&bob, &key, None)
                .await
                .err()
                .unwrap()
                .code,
            ErrorCode::ArtifactNotFound
        );
        assert_eq!(
            runtime
                .artifacts()
                .last_version(&bob, &key)
                .await
                .err()
                .unwrap()
                .code,
            ErrorCode::ArtifactNotFound
        );
    }
    assert!(service.list_keys(&bob).await.unwrap().is_empty());
    // The other user can use the same name for a separate artifact.
    save(&world, &bob, "user:notes", "of bob").await;
    assert_eq!(text(&world, &ann, "user:notes").await, "of ann, from a2");
    // Artifacts of another session of the same user are not found either, by name or by id.
    let own = listed(&world, &ann, "own").await.artifact_id;
    assert!(
        service
            .load(&place_of("a2", "ann"), "own", None)
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        service
            .load(&place_of("a2", "ann"), own.as_str(), None)
            .await
            .unwrap()
            .is_none()
    );
    world.finish().await;
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_artifacts_are_stored_immediately() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    let steps = [
        create("user:doc", "0"),
        update("user:doc", "0", "0 1"),
        rewrite("user:doc", "all"),
        pause(),
    ];
    let run = begin(&world, "s", &steps).await;
    gate.reached(1).await;
    assert_eq!(versions(&world, &here, "user:doc").await, [1, 2, 3]);
    let artifact = listed(&world, &here, "user:doc").await;
    assert!(!artifact.dirty);
    assert_eq!(
        (artifact.source, artifact.provenance.run_id.as_ref()),
        (ArtifactSource::Agent, Some(run.run_id()))
    );
    gate.pass();
    with_timeout(run.wait()).await.unwrap();
    let events = stored(world.runtime(), run.trace_id()).await;
    assert!(flushes(&events).is_empty());
    assert_eq!(
        events
            .iter()
            .filter(|event| event.event.kind() == "artifact_saved")
            .count(),
        3
    );
    assert!(
        events
            .iter()
            .all(|event| event.event.kind() != "artifact_edited")
    );
    assert_eq!(versions(&world, &here, "user:doc").await, [1, 2, 3]);
    world.finish().await;
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn user_artifact_edit_is_stored_once_despite_run_crashes() {
    for point in [
        FaultPoint::BeforeAppend,
        FaultPoint::AfterAppend,
        FaultPoint::RunTool,
    ] {
        for nth in 1..=6 {
            let met = std::sync::atomic::AtomicUsize::new(0);
            let hook = move |_: &_, here| {
                if here == point && met.fetch_add(1, std::sync::atomic::Ordering::SeqCst) + 1 == nth
                {
                    panic!("provoked");
                }
            };
            let world = TestRuntime::with(prompt_driven_model(), |builder| {
                builder
                    .config(quick_non_durable_config())
                    .fault_hook(std::sync::Arc::new(hook))
            })
            .await;
            let steps = [
                create("user:doc", "0"),
                update("user:doc", "0", "0 1"),
                update("user:doc", "0", "0 2"),
            ];
            let (run, outcome) = run(&world, "s", &steps).await;
            assert_eq!(outcome.status, RunStatus::Completed);
            assert_eq!(
                text(&world, &local_owner("s"), "user:doc").await,
                "0 2 1",
                "{point:?} number {nth}"
            );
            assert_eq!(
                versions(&world, &local_owner("s"), "user:doc").await,
                [1, 2, 3],
                "{point:?} number {nth}"
            );
            let events = stored(world.runtime(), run.trace_id()).await;
            assert_eq!(
                calls(&events, "update_artifact"),
                [Ok(()), Ok(())],
                "{point:?} number {nth}"
            );
            world.finish().await;
        }
    }
}

/// (ART-5)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_effect_is_applied_once_after_later_writes() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let (first, _) = run(&world, "s", &[create("doc", "0"), create("user:doc", "0")]).await;
    let here = local_owner("s");
    let service = world.runtime().artifacts().service();
    for key in ["doc", "user:doc"] {
        let request = |call: &str| EditRequest {
            condition: ChangeCondition::default(),
            key: key.to_owned(),
            change: Change::Update {
                old: "0".into(),
                new: "0 +".into(),
            },
            source: ArtifactSource::Agent,
            provenance: Provenance {
                run_id: Some(first.run_id().clone()),
                trace_id: Some(first.trace_id().clone()),
                message_sequence: Some(3),
                tool_call_id: Some(call.to_owned()),
            },
            effect: Some(EffectId {
                run_id: first.run_id().clone(),
                turn: 9,
                tool_call_id: call.to_owned(),
            }),
        };
        let made = service.edit(&here, request("one")).await.unwrap();
        let repeated = service.edit(&here, request("one")).await.unwrap();
        assert_eq!(
            (
                made.artifact.current_version,
                repeated.artifact.current_version
            ),
            (2, 2),
            "{key}"
        );
        service.edit(&here, request("two")).await.unwrap();
        let later = service.edit(&here, request("one")).await.unwrap();
        assert_eq!(
            later.artifact.current_version, 2,
            "{key}: it is what the first one did"
        );
        assert_eq!(text(&world, &here, key).await, "0 + +", "{key}");
    }
    world.finish().await;
}

/// Returns every path below a folder, relative to the folder.
fn paths(folder: &std::path::Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten() {
            let path = entry.unwrap().path();
            found.insert(
                path.strip_prefix(folder)
                    .unwrap()
                    .to_string_lossy()
                    .into_owned(),
            );
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    found
}

/// Returns whether a path below the test folder is a folder or file of an artifact.
fn is_expected(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["home", "sessions" | "users", ..] if parts.len() <= 4 => {
            parts.len() < 4 || parts[3] == "artifacts"
        }
        ["home", "sessions" | "users", _, "artifacts", _] => true,
        ["home", "sessions" | "users", _, "artifacts", _, version] => version.starts_with('v'),
        [
            "home",
            "sessions" | "users",
            _,
            "artifacts",
            _,
            version,
            file,
        ] => version.starts_with('v') && file != "." && file != "..",
        _ => false,
    }
}

/// (ART-2)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_name_escapes_the_artifact_folders() {
    let table = include_str!("../../protocol/src/artifact/names.jsonl");
    let mut names: Vec<(String, bool)> = table
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|row| {
            (
                row["name"].as_str().unwrap().to_owned(),
                row["verdict"] == "accepted",
            )
        })
        // In a key, the prefix `user:` selects the scope, so only the rest must be a valid name.
        .map(|(name, accepted)| match name.strip_prefix("user:") {
            Some(rest) => (name.clone(), ArtifactName::parse(rest).is_ok()),
            None => (name, accepted),
        })
        .collect();
    // Rejecting a name is cheap, storing one is not: test every third accepted name.
    let mut accepted = 0;
    names.retain(|(_, is_accepted)| {
        accepted += usize::from(*is_accepted);
        !is_accepted || accepted % 3 == 0
    });
    names.extend([
        ("../../../evil".to_owned(), false),
        ("/tmp/evil".to_owned(), false),
        ("a\0b".to_owned(), false),
    ]);
    let world = TestRuntime::with(prompt_driven_model(), |builder| {
        builder.config(quick_non_durable_config())
    })
    .await;
    run(&world, "s", &[]).await;
    let here = local_owner("s");
    let service = world.runtime().artifacts().service();
    let root = world.home().parent().unwrap().to_owned();
    let before = paths(&root);
    // First through the library; below, by a model in another session.
    let mut contents: BTreeMap<String, String> = BTreeMap::new();
    for (place_in_table, (name, accepted)) in names.iter().enumerate() {
        let saved = service
            .save(
                &here,
                Save::new(name.clone(), "text/plain", format!("{place_in_table}")),
            )
            .await;
        match saved {
            Ok(artifact) => {
                assert!(*accepted, "{name:?} was saved");
                contents.insert(artifact.key(), format!("{place_in_table}"));
            }
            Err(error) => {
                assert!(!accepted, "{name:?}: {error}");
                assert_eq!(error.code, ErrorCode::ValidationError, "{name:?}");
            }
        }
    }
    // Names that differ in case or contain look-alike letters are different artifacts. Two Unicode
    // spellings of one name are the same artifact.
    for (name, content) in &contents {
        assert_eq!(text(&world, &here, name).await, *content, "{name:?}");
    }
    assert_eq!(
        service.list_keys(&here).await.unwrap().len(),
        contents.len()
    );
    for (names, accepted) in [true, false].map(|which| {
        (
            names
                .iter()
                .filter(|(_, accepted)| *accepted == which)
                .map(|(name, _)| name)
                .collect::<Vec<_>>(),
            which,
        )
    }) {
        let step = if accepted { 2 } else { 6 };
        // A failed call skips the calls after it, so each rejected name gets a separate turn.
        let steps: Vec<serde_json::Value> = if accepted {
            vec![
                names
                    .iter()
                    .step_by(step)
                    .map(|name| create(name, "x"))
                    .collect(),
            ]
        } else {
            names
                .iter()
                .step_by(step)
                .map(|name| create(name, "x"))
                .collect()
        };
        let start = RunRequest::new(turns(&steps)).session("t").max_turns(1_000);
        let run = world.runtime().start(start).await.unwrap();
        with_timeout(run.wait()).await.unwrap();
        let events = stored(world.runtime(), run.trace_id()).await;
        let own: Vec<_> = events
            .into_iter()
            .filter(|event| event.run_id.as_ref() == Some(run.run_id()))
            .collect();
        for (name, ended) in names
            .iter()
            .step_by(step)
            .zip(calls(&own, "create_artifact"))
        {
            match (accepted, ended) {
                (true, Ok(())) => {}
                // Another spelling of an existing name fails, and the calls after it are skipped.
                (true, Err(code)) => assert!(
                    code == "artifact_exists" || code == "skipped",
                    "{name:?}: {code}"
                ),
                (false, ended) => assert_eq!(ended, Err("validation_error".to_owned()), "{name:?}"),
            }
        }
    }
    for (name, _) in names.iter().step_by(7) {
        let uploaded = world
            .runtime()
            .artifacts()
            .upload(&local_owner("s"), name, "text/plain", "x".into())
            .await
            .unwrap();
        assert!(
            ArtifactName::parse(uploaded.name.as_deref().unwrap()).is_ok(),
            "{name:?}"
        );
    }
    let new: Vec<String> = paths(&root)
        .difference(&before)
        .filter(|path| !is_expected(path))
        .cloned()
        .collect();
    assert!(new.is_empty(), "something lies elsewhere: {new:?}");
    assert!(!std::path::Path::new("/tmp/evil").exists());
    world.finish().await;
}

/// (ART-1)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_case_sensitive_and_unicode_normalized() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = local_owner("s");
    run(
        &world,
        "s",
        &[
            create("Report", "upper"),
            create("report", "lower"),
            create("REPORT", "loud"),
        ],
    )
    .await;
    for (name, want) in [("Report", "upper"), ("report", "lower"), ("REPORT", "loud")] {
        assert_eq!(text(&world, &here, name).await, want);
    }
    // The composed and the decomposed form name the same artifact, through every interface.
    let nfc = "Übung";
    let nfd = "U\u{308}bung";
    run(&world, "s", &[create(nfd, "one")]).await;
    let (_, outcome) = run(&world, "s", &[create(nfc, "two")]).await;
    assert!(
        outcome.output.contains("[artifact_exists]"),
        "{}",
        outcome.output
    );
    run(&world, "s", &[update(nfc, "one", "one two")]).await;
    assert_eq!(text(&world, &here, nfd).await, "one two");
    let saved = save(&world, &here, nfd, "three").await;
    assert_eq!(
        (saved.name.as_deref(), saved.current_version),
        (Some(nfc), 3)
    );
    assert_eq!(versions(&world, &here, nfc).await, [1, 2, 3]);
    let uploaded = world
        .runtime()
        .artifacts()
        .upload(&here, nfd, "text/plain", "x".into())
        .await
        .unwrap();
    assert_eq!(uploaded.name.as_deref(), Some("Übung_1"));
    world
        .runtime()
        .artifacts()
        .delete(&here, nfd)
        .await
        .unwrap();
    assert!(
        world
            .runtime()
            .artifacts()
            .load(&here, nfc, None)
            .await
            .is_err()
    );
    world.finish().await;
}
