//! Artifacts, their versions, and blob intents (DUR-8).

use soong_protocol::{
    Artifact, ArtifactEvent, ArtifactScope, ArtifactSource, ArtifactWrite, BlobWrite, DocumentEdit,
    EffectId, NewDocumentVersion, NewEdit, NewVersion, Provenance, Splice, UpdateType, Write,
};

use super::world::{TestStore, artifact_id, at, event, run_id, session_id, trace_id};
use crate::store::{RecentArtifacts, StoreError};

fn in_session(id: &str) -> ArtifactScope {
    ArtifactScope::Session {
        session_id: session_id(id),
    }
}

fn of_user(uid: &str) -> ArtifactScope {
    ArtifactScope::User { uid: uid.into() }
}

pub(super) fn artifact(id: &str, scope: &ArtifactScope, name: &str, version: u64) -> Artifact {
    Artifact {
        artifact_id: artifact_id(id),
        scope: scope.clone(),
        name: Some(name.into()),
        withdrawn: None,
        title: format!("title {version}"),
        filename: format!("{name}.md"),
        content_type: "text/markdown".into(),
        size: version * 100,
        current_version: version,
        stored_version: version,
        dirty: false,
        source: ArtifactSource::Agent,
        debug: false,
        provenance: Provenance {
            run_id: Some(run_id("a")),
            ..Provenance::default()
        },
        summary: Some(format!("summary {version}")),
        metadata: [("by".to_owned(), "hand".into())].into_iter().collect(),
        created_at: at(1),
        updated_at: at(i64::try_from(version).unwrap()),
    }
}

fn blob(id: &str, version: u64) -> String {
    format!("blobs/{id}/v{version}")
}

pub(super) fn version(id: &str, scope: &ArtifactScope, name: &str, version: u64) -> Write {
    let update_type = if version == 1 {
        UpdateType::Create
    } else {
        UpdateType::Rewrite
    };
    let artifact = artifact(id, scope, name, version);
    Write::Artifact(ArtifactWrite::Version(Box::new(NewVersion {
        artifact,
        update_type,
        path: blob(id, version),
    })))
}

pub(super) fn versions_are_numbered_without_gaps(mut world: TestStore) {
    world.start_run("a");
    let scope = in_session("a");
    world.write(vec![
        version("x", &scope, "report", 1),
        version("x", &scope, "report", 2),
    ]);
    world.write(vec![version("x", &scope, "report", 3)]);
    assert_eq!(
        world.reader.artifact(&scope, "report").unwrap(),
        Some(artifact("x", &scope, "report", 3))
    );
    let versions = world.reader.versions(&artifact_id("x")).unwrap();
    let shown: Vec<_> = versions
        .iter()
        .map(|one| (one.version, one.size, one.update_type, one.created_at))
        .collect();
    let wanted = [
        (1, 100, UpdateType::Create, at(1)),
        (2, 200, UpdateType::Rewrite, at(2)),
        (3, 300, UpdateType::Rewrite, at(3)),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(
        world.reader.blob_path(&artifact_id("x"), 2).unwrap(),
        Some(blob("x", 2))
    );
    assert_eq!(
        world
            .reader
            .blob_path_and_type(&artifact_id("x"), 2)
            .unwrap(),
        Some((blob("x", 2), "text/markdown".to_owned()))
    );
    assert_eq!(world.reader.blob_path(&artifact_id("x"), 4).unwrap(), None);

    for wrong in [1, 3, 5] {
        let refused = world.write_rejected(vec![version("x", &scope, "report", wrong)]);
        assert!(
            matches!(refused, StoreError::AlreadyExists(_)),
            "version {wrong} after 3: {refused}"
        );
    }
    let twice = world.write_rejected(vec![
        version("x", &scope, "report", 4),
        version("x", &scope, "report", 4),
    ]);
    assert!(matches!(twice, StoreError::AlreadyExists(_)));
    assert_eq!(world.reader.versions(&artifact_id("x")).unwrap().len(), 3);
}

pub(super) fn artifact_name_is_unique_in_its_scope(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    let scopes = [
        in_session("a"),
        in_session("b"),
        of_user("local"),
        of_user("other"),
    ];
    for (number, scope) in scopes.iter().enumerate() {
        world.write(vec![version(&format!("x{number}"), scope, "report", 1)]);
        let error = world.write_rejected(vec![version(&format!("y{number}"), scope, "report", 1)]);
        assert_eq!(error, StoreError::AlreadyExists("artifact report".into()));
    }
    world.write(vec![version("z", &scopes[0], "alpha", 1)]);
    let names: Vec<_> = world
        .reader
        .artifacts(&scopes[0])
        .unwrap()
        .into_iter()
        .filter_map(|one| one.name)
        .collect();
    assert_eq!(names, ["alpha", "report"]);
    assert_eq!(
        world.reader.artifacts(&scopes[2]).unwrap(),
        [artifact("x2", &scopes[2], "report", 1)]
    );
    assert!(
        world
            .reader
            .artifact(&scopes[1], "alpha")
            .unwrap()
            .is_none()
    );
    let twins = vec![
        version("t1", &scopes[0], "twin", 1),
        version("t2", &scopes[0], "twin", 1),
    ];
    assert_eq!(
        world.write_rejected(twins),
        StoreError::AlreadyExists("artifact twin".into())
    );
    let nowhere = world.write_rejected(vec![version("n", &in_session("nowhere"), "report", 1)]);
    assert_eq!(nowhere, StoreError::NotFound("session nowhere".into()));
}

pub(super) fn recent_artifacts_are_listed_with_counts(mut world: TestStore) {
    world.start_run("a");
    let scopes = [in_session("a"), of_user("local")];
    for (index, scope) in scopes.iter().enumerate() {
        assert_eq!(
            world.reader.recent_artifacts(scope, 5).unwrap(),
            RecentArtifacts::default()
        );
        let made = |id: &str, name: Option<&str>, debug, second| {
            let artifact = artifact(&format!("{id}{index}"), scope, "x", 1);
            let artifact = Artifact {
                name: name.map(str::to_owned),
                debug,
                updated_at: at(second),
                ..artifact
            };
            let path = blob(artifact.artifact_id.as_str(), 1);
            Write::Artifact(ArtifactWrite::Version(Box::new(NewVersion {
                artifact,
                update_type: UpdateType::Create,
                path,
            })))
        };
        world.write(vec![
            made("p", Some("first"), false, 10),
            made("q", Some("last"), false, 30),
            made("r", Some("second"), false, 20),
            made("s", Some("debug"), true, 40),
            made("t", None, false, 50),
            made("u", None, true, 60),
        ]);
        let recent = world.reader.recent_artifacts(scope, 2).unwrap();
        let names: Vec<_> = recent
            .named
            .iter()
            .filter_map(|artifact| artifact.name.as_deref())
            .collect();
        assert_eq!(
            (names, recent.named_count, recent.unnamed_count),
            (vec!["last", "second"], 3, 1)
        );
    }
}

pub(super) fn intent_ends_with_registration_or_deletion(mut world: TestStore) {
    world.start_run("a");
    let scope = in_session("a");
    let intent = |path: String, second| {
        Write::Blob(BlobWrite::Intent {
            path,
            at: at(second),
        })
    };
    world.write(vec![
        intent(blob("x", 1), 1),
        intent(blob("y", 1), 2),
        intent(blob("z", 1), 3),
    ]);
    world.write(vec![intent(blob("x", 1), 9)]);
    let all = [blob("x", 1), blob("y", 1), blob("z", 1)];
    assert_eq!(world.reader.blob_intents().unwrap(), all);
    world.write(vec![version("x", &scope, "report", 1)]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[1..]);
    let gone = || Write::Blob(BlobWrite::Deleted { path: blob("y", 1) });
    world.write(vec![gone()]);
    world.write(vec![gone()]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[2..]);
    // A rejected registration keeps the intent, because no version refers to the file.
    world.write_rejected(vec![version("z", &scope, "report", 1)]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[2..]);
}

pub(super) fn splice(start: u64, removed: u64, inserted: &str) -> Splice {
    Splice {
        start,
        removed,
        inserted: inserted.into(),
    }
}

/// The document `d` of session `a` with a revision; `stored` is its last stored version.
fn document(revision: u64, stored: u64) -> Artifact {
    let name = artifact("d", &in_session("a"), "plan", revision);
    Artifact {
        stored_version: stored,
        dirty: revision > stored,
        ..name
    }
}

pub(super) fn edit(revision: u64, call: &str, update_type: UpdateType, splice: Splice) -> Write {
    let edit = DocumentEdit {
        artifact_id: artifact_id("d"),
        revision,
        update_type,
        splice,
        old: (update_type == UpdateType::Update).then(|| "old".into()),
        effect: EffectId {
            run_id: run_id("a"),
            turn: 2,
            tool_call_id: call.into(),
        },
        trace_id: trace_id("a"),
        outcome: format!("{{\"call\":\"{call}\"}}"),
        created_at: at(i64::try_from(revision).unwrap()),
    };
    // The store must ignore this stored version and keep its own.
    Write::Artifact(ArtifactWrite::Edit(Box::new(NewEdit {
        artifact: document(revision, 99),
        edit,
    })))
}

pub(super) fn flush(version: u64) -> Write {
    Write::Artifact(ArtifactWrite::DocumentVersion(Box::new(
        NewDocumentVersion {
            artifact_id: artifact_id("d"),
            version,
            size: version * 10,
            update_type: UpdateType::Update,
            provenance: Provenance {
                tool_call_id: Some(format!("c{version}")),
                ..Provenance::default()
            },
            path: blob("d", version),
            at: at(50),
        },
    )))
}

fn numbers_and_dirty_flag(world: &TestStore) -> (u64, u64, bool) {
    let found = world
        .reader
        .artifact(&in_session("a"), "plan")
        .unwrap()
        .unwrap();
    (found.current_version, found.stored_version, found.dirty)
}

pub(super) fn edits_are_kept_in_order_and_flushed_as_versions(mut world: TestStore) {
    world.start_run("a");
    let deleted_event = |second| {
        event(
            "a",
            Some("a"),
            second,
            ArtifactEvent::Deleted {
                name: None,
                artifact_id: artifact_id("d"),
            },
        )
    };
    world.write(vec![
        edit(1, "c1", UpdateType::Create, splice(0, 0, "one old two")),
        deleted_event(1),
    ]);
    world.write(vec![
        edit(2, "c2", UpdateType::Update, splice(4, 3, "new")),
        deleted_event(2),
    ]);
    assert_eq!(numbers_and_dirty_flag(&world), (2, 0, true));
    assert!(
        world.reader.versions(&artifact_id("d")).unwrap().is_empty(),
        "an edit is no version"
    );
    assert_eq!(
        world.reader.unflushed_documents(&run_id("a")).unwrap(),
        [document(2, 0)]
    );

    for wrong in [1, 2, 4] {
        let refused = world.write_rejected(vec![edit(
            wrong,
            "late",
            UpdateType::Update,
            splice(0, 0, "x"),
        )]);
        assert!(
            matches!(refused, StoreError::AlreadyExists(_)),
            "revision {wrong} after 2: {refused}"
        );
    }
    world.write(vec![Write::Blob(BlobWrite::Intent {
        path: blob("d", 2),
        at: at(3),
    })]);
    world.write(vec![flush(2)]);
    assert_eq!(numbers_and_dirty_flag(&world), (2, 2, false));
    assert!(world.reader.blob_intents().unwrap().is_empty());
    assert!(
        world
            .reader
            .unflushed_documents(&run_id("a"))
            .unwrap()
            .is_empty()
    );
    assert!(
        matches!(
            world.write_rejected(vec![flush(2)]),
            StoreError::AlreadyExists(_)
        ),
        "flushing twice"
    );
    assert!(
        matches!(
            world.write_rejected(vec![flush(3)]),
            StoreError::NotFound(_)
        ),
        "a text that is not there yet"
    );

    // An edit may come between reading a text and registering it as a version.
    world.write(vec![edit(
        3,
        "c3",
        UpdateType::Rewrite,
        splice(0, 11, "all new"),
    )]);
    world.write(vec![edit(4, "c4", UpdateType::Update, splice(0, 3, "ALL"))]);
    world.write(vec![flush(3)]);
    assert_eq!(numbers_and_dirty_flag(&world), (4, 3, true));
    world.write(vec![flush(4)]);
    let versions = world.reader.versions(&artifact_id("d")).unwrap();
    let shown: Vec<_> = versions
        .iter()
        .map(|one| (one.version, one.size, one.changes.len()))
        .collect();
    assert_eq!(shown, [(2, 20, 1), (3, 30, 0), (4, 40, 1)]);
    assert_eq!(versions[0].changes, [("old".to_owned(), "new".to_owned())]);
    assert_eq!(versions[2].provenance.tool_call_id.as_deref(), Some("c4"));
}

pub(super) fn text_is_rebuilt_from_edits(mut world: TestStore) {
    world.start_run("a");
    world.write(vec![
        edit(1, "c1", UpdateType::Create, splice(0, 0, "one old two")),
        edit(2, "c2", UpdateType::Update, splice(4, 3, "new")),
    ]);
    world.write(vec![edit(3, "c2", UpdateType::Update, splice(0, 3, "1"))]);
    let edits = |after, upto| world.reader.edits(&artifact_id("d"), after, upto).unwrap();
    let text = |upto| {
        edits(0, upto).iter().fold(String::new(), |text, edit| {
            edit.splice.apply(&text).unwrap()
        })
    };
    assert_eq!(
        (text(1), text(2), text(3)),
        (
            "one old two".into(),
            "one new two".into(),
            "1 new two".into()
        )
    );
    assert_eq!(
        edits(1, 2)
            .iter()
            .map(|edit| edit.revision)
            .collect::<Vec<_>>(),
        [2]
    );
    let of_turn = world.reader.turn_edits(&run_id("a"), 2).unwrap();
    let calls: Vec<_> = of_turn
        .iter()
        .map(|edit| (edit.effect.tool_call_id.as_str(), edit.outcome.as_str()))
        .collect();
    assert_eq!(
        calls,
        [
            ("c1", r#"{"call":"c1"}"#),
            ("c2", r#"{"call":"c2"}"#),
            ("c2", r#"{"call":"c2"}"#)
        ]
    );
    assert!(world.reader.turn_edits(&run_id("a"), 1).unwrap().is_empty());
    assert!(
        world
            .reader
            .turn_edits(&run_id("nobody"), 2)
            .unwrap()
            .is_empty()
    );
}

pub(super) fn version_is_rejected_while_edits_are_unflushed(mut world: TestStore) {
    world.start_run("a");
    let save = |number| version("d", &in_session("a"), "plan", number);
    world.write(vec![save(1)]);
    world.write(vec![edit(2, "c2", UpdateType::Update, splice(0, 0, "x"))]);
    assert_eq!(numbers_and_dirty_flag(&world), (2, 1, true));
    assert!(matches!(
        world.write_rejected(vec![save(3)]),
        StoreError::AlreadyExists(_)
    ));
    world.write(vec![flush(2), save(3)]);
    assert_eq!(numbers_and_dirty_flag(&world), (3, 3, false));
    let error = world.write_rejected(vec![version("other", &in_session("a"), "plan", 1)]);
    assert_eq!(error, StoreError::AlreadyExists("artifact plan".into()));
}

pub(super) fn deleted_artifact_leaves_intents_for_its_blobs(mut world: TestStore) {
    world.start_run("a");
    let gone = || {
        Write::Artifact(ArtifactWrite::Deleted {
            artifact_id: artifact_id("d"),
            at: at(60),
        })
    };
    world.write(vec![
        version("d", &in_session("a"), "plan", 1),
        version("d", &in_session("a"), "plan", 2),
    ]);
    world.write(vec![edit(3, "c3", UpdateType::Update, splice(0, 0, "x"))]);
    assert_eq!(
        world.reader.blob_paths(&artifact_id("d")).unwrap(),
        [blob("d", 1), blob("d", 2)]
    );
    world.write(vec![gone()]);
    assert!(
        world
            .reader
            .artifact(&in_session("a"), "plan")
            .unwrap()
            .is_none()
    );
    assert!(world.reader.versions(&artifact_id("d")).unwrap().is_empty());
    assert!(
        world
            .reader
            .edits(&artifact_id("d"), 0, 9)
            .unwrap()
            .is_empty()
    );
    assert_eq!(
        world.reader.blob_intents().unwrap(),
        [blob("d", 1), blob("d", 2)]
    );
    assert!(matches!(
        world.write_rejected(vec![gone()]),
        StoreError::NotFound(_)
    ));
    let late = world.write_rejected(vec![edit(4, "c4", UpdateType::Update, splice(0, 0, "y"))]);
    assert!(
        matches!(late, StoreError::NotFound(_)),
        "an edit of what is gone: {late}"
    );
    world.write(vec![version("e", &in_session("a"), "plan", 1)]);
}

pub(super) fn unnamed_artifacts_are_found_by_id(mut world: TestStore) {
    world.start_run("a");
    world.start_run("b");
    let scope = in_session("a");
    for id in ["n1", "n2"] {
        let mut captured = artifact(id, &scope, "-", 1);
        captured.name = None;
        captured.debug = true;
        let new = NewVersion {
            artifact: captured,
            update_type: UpdateType::Create,
            path: blob(id, 1),
        };
        world.write(vec![Write::Artifact(ArtifactWrite::Version(Box::new(new)))]);
    }
    world.write(vec![version("z", &scope, "zeta", 1)]);
    world.write(vec![
        version("u", &of_user("local"), "mine", 1),
        version("y", &in_session("b"), "other", 3 - 2),
    ]);
    let labels = |list: Vec<Artifact>| {
        list.iter()
            .map(|one| one.label().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        labels(world.reader.artifacts(&scope).unwrap()),
        ["zeta", "n1", "n2"]
    );
    let found = world.reader.artifact(&scope, "n1").unwrap().unwrap();
    assert!(found.debug && found.name.is_none());
    assert!(
        world
            .reader
            .artifact(&in_session("b"), "n1")
            .unwrap()
            .is_none(),
        "an id opens no other scope"
    );
    let all = world.reader.session_artifacts().unwrap();
    assert!(
        all.iter().all(|(_, bytes)| *bytes == 100),
        "the bytes of all versions: {all:?}"
    );
    let all = all.into_iter().map(|(artifact, _)| artifact).collect();
    assert_eq!(labels(all), ["n1", "n2", "zeta", "other"], "no user's");
}
