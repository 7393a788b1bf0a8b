//! An artifact system whose documents are edited during a run and become one version at its end.

use soong::{
    artifact::matcher,
    protocol::{ArtifactSource, ErrorCode, MatchLayer},
};

use crate::support::{
    artifacts::{
        begin, create, listed, local_owner, open_with_gate, pause, prompt_driven_model, rewrite,
        run, save, text, update, versions,
    },
    world::{TestRuntime, with_timeout},
};

/// The edits of a run become one version, so that the numbers have gaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edits_answer_as_short_xml_and_versions_are_sparse() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    let here = local_owner("s");
    let tick = |step: usize| {
        update(
            "task_plan",
            &format!("{step}. [ ]"),
            &format!("{step}. [x]"),
        )
    };
    let (_, first) = run(
        &world,
        "s",
        &[create(
            "task_plan",
            "1. [ ]\n2. [ ]\n3. [ ]\n4. [ ]\n5. [ ]\n6. [ ]\n",
        )],
    )
    .await;
    assert!(
        first
            .output
            .starts_with("<artifact version=\"1\"><id>task_plan</id>"),
        "{}",
        first.output
    );
    assert!(
        first.output.contains("created") && first.output.ends_with("</artifact>"),
        "{}",
        first.output
    );
    for (steps, stored) in [
        (vec![tick(1), tick(2)], vec![1, 3]),
        (vec![tick(3), tick(4), tick(5), tick(6)], vec![1, 3, 7]),
        (vec![rewrite("task_plan", "all done")], vec![1, 3, 7, 8]),
    ] {
        let (_, outcome) = run(&world, "s", &steps).await;
        let last = stored.last().unwrap();
        assert!(
            outcome
                .output
                .starts_with(&format!("<artifact version=\"{last}\">")),
            "{}",
            outcome.output
        );
        assert_eq!(versions(&world, &here, "task_plan").await, stored);
    }
    let (_, second_outcome) = run(&world, "s", &[create("task_plan", "another")]).await;
    assert!(
        second_outcome
            .output
            .contains(ErrorCode::ArtifactExists.as_str()),
        "{}",
        second_outcome.output
    );
    assert_eq!(text(&world, &here, "task_plan").await, "all done");
    world.finish().await;
}

/// During a run, lists and contents show its edits; versions are those that are stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_see_edits_of_an_active_run_but_not_as_versions() {
    let (world, gate) = open_with_gate(|builder| builder).await;
    let here = local_owner("s");
    let steps = [
        create("report", "draft"),
        update("report", "draft", "second draft"),
        pause(),
    ];
    let active = begin(&world, "s", &steps).await;
    gate.reached(1).await;
    let artifact = listed(&world, &here, "report").await;
    assert_eq!(
        (
            artifact.current_version,
            artifact.stored_version,
            artifact.dirty
        ),
        (2, 0, true)
    );
    assert_eq!(text(&world, &here, "report").await, "second draft");
    assert!(versions(&world, &here, "report").await.is_empty());
    let artifacts = world.runtime().artifacts();
    let missing = artifacts.version(&here, "report", 2).await.unwrap_err();
    assert_eq!(missing.code, ErrorCode::VersionNotFound);
    let missing = artifacts.last_version(&here, "report").await.err().unwrap();
    assert_eq!(
        missing.code,
        ErrorCode::VersionNotFound,
        "an export has the last stored version"
    );

    // An upload does not wait for the end of the run.
    let upload = || {
        artifacts.upload(
            &here,
            "sales figures (final).csv",
            "text/csv",
            "a,b\n".into(),
        )
    };
    let first = upload().await.unwrap();
    let second = upload().await.unwrap();
    assert_eq!(
        (first.source, first.dirty),
        (ArtifactSource::UserUpload, false)
    );
    assert_eq!(
        (first.key(), second.key()),
        (
            "sales figures _final_.csv".into(),
            "sales figures _final__1.csv".into()
        )
    );
    gate.pass();
    with_timeout(active.wait()).await.unwrap();
    assert_eq!(versions(&world, &here, "report").await, [2]);
    world.finish().await;
}

/// A passage is searched as given, then with other characters for the same text, then by
/// similarity.
#[test]
fn passages_are_found_in_three_layers() {
    let found = |content: &str, old: &str| {
        let found = matcher::find(content, old, &mut || false);
        found
            .map(|found| (found.layer, content[found.range].to_owned()))
            .map_err(|error| error.code())
    };
    for (content, old, layer, replaced) in [
        ("a plan, a step", "plan", MatchLayer::Exact, "plan"),
        ("say “yes” now", "\"yes\"", MatchLayer::Normalized, "“yes”"),
        (
            "one — two",
            "one - two",
            MatchLayer::Normalized,
            "one — two",
        ),
        (
            "a\u{a0}b\u{3000}c",
            "a b c",
            MatchLayer::Normalized,
            "a\u{a0}b\u{3000}c",
        ),
        (
            "part Ⅳ of it",
            "part IV of",
            MatchLayer::Normalized,
            "part Ⅳ of",
        ),
        (
            "one  \ntwo",
            "one\ntwo",
            MatchLayer::Normalized,
            "one  \ntwo",
        ),
        (
            "写中文 word 的",
            "中文word",
            MatchLayer::Normalized,
            "中文 word",
        ),
        (
            "the quick brown fox",
            "the quikc brown",
            MatchLayer::Fuzzy,
            "the quick brown",
        ),
    ] {
        assert_eq!(
            found(content, old),
            Ok((layer, replaced.to_owned())),
            "{old:?} in {content:?}"
        );
    }
    assert_eq!(
        found("a step, a step", "a step"),
        Err(ErrorCode::AmbiguousMatch)
    );
    assert_eq!(
        found("the quick brown fox", "something else entirely"),
        Err(ErrorCode::NoMatch)
    );
}

/// Each name belongs to its session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_use_the_same_name_independently() {
    let world = TestRuntime::open(prompt_driven_model()).await;
    for session in ["one", "two"] {
        run(&world, session, &[]).await;
        save(
            &world,
            &local_owner(session),
            "report",
            format!("of {session}"),
        )
        .await;
    }
    with_timeout(
        world
            .runtime()
            .sessions()
            .delete(&local_owner("one").session_id),
    )
    .await
    .unwrap();
    assert_eq!(text(&world, &local_owner("two"), "report").await, "of two");
    let gone = world
        .runtime()
        .artifacts()
        .load(&local_owner("one"), "report", None)
        .await
        .err()
        .unwrap();
    assert!(
        matches!(
            gone.code,
            ErrorCode::ArtifactNotFound | ErrorCode::SessionNotFound
        ),
        "{gone}"
    );
    world.finish().await;
}
