//! Artifacts, their versions, and intents of blobs (DUR-8).

use soong_protocol::{Artifact, ArtifactScope, ArtifactSource, Provenance, UpdateType};

use super::world::{World, artifact_id, at, run_id, session_id};
use crate::store::{NewVersion, StoreError, Write};

fn in_session(id: &str) -> ArtifactScope {
    ArtifactScope::Session { session_id: session_id(id) }
}

fn of_user(uid: &str) -> ArtifactScope {
    ArtifactScope::User { uid: uid.into() }
}

fn artifact(id: &str, scope: &ArtifactScope, name: &str, version: u64) -> Artifact {
    Artifact {
        artifact_id: artifact_id(id),
        scope: scope.clone(),
        name: name.into(),
        title: format!("title {version}"),
        filename: format!("{name}.md"),
        content_type: "text/markdown".into(),
        size: version * 100,
        current_version: version,
        source: ArtifactSource::Agent,
        provenance: Provenance { run_id: Some(run_id("a")), ..Provenance::default() },
        created_at: at(1),
        updated_at: at(i64::try_from(version).unwrap()),
    }
}

fn blob(id: &str, version: u64) -> String {
    format!("blobs/{id}/v{version}")
}

fn version(id: &str, scope: &ArtifactScope, name: &str, version: u64) -> Write {
    let update_type = if version == 1 { UpdateType::Create } else { UpdateType::Rewrite };
    let artifact = artifact(id, scope, name, version);
    Write::ArtifactVersion(Box::new(NewVersion { artifact, update_type, path: blob(id, version) }))
}

pub(super) fn versions_follow_one_another_without_gap(mut world: World) {
    world.begin("a");
    let scope = in_session("a");
    world.write(vec![version("x", &scope, "report", 1), version("x", &scope, "report", 2)]);
    world.write(vec![version("x", &scope, "report", 3)]);
    assert_eq!(world.reader.artifact(&scope, "report").unwrap(), Some(artifact("x", &scope, "report", 3)));
    let versions = world.reader.versions(&artifact_id("x")).unwrap();
    let shown: Vec<_> = versions.iter().map(|one| (one.version, one.size, one.update_type, one.created_at)).collect();
    let wanted = [
        (1, 100, UpdateType::Create, at(1)),
        (2, 200, UpdateType::Rewrite, at(2)),
        (3, 300, UpdateType::Rewrite, at(3)),
    ];
    assert_eq!(shown, wanted);
    assert_eq!(world.reader.blob_path(&artifact_id("x"), 2).unwrap(), Some(blob("x", 2)));
    assert_eq!(world.reader.blob_path(&artifact_id("x"), 4).unwrap(), None);

    for wrong in [1, 3, 5] {
        let refused = world.refused(vec![version("x", &scope, "report", wrong)]);
        assert!(matches!(refused, StoreError::Exists(_)), "version {wrong} after 3: {refused}");
    }
    let twice = world.refused(vec![version("x", &scope, "report", 4), version("x", &scope, "report", 4)]);
    assert!(matches!(twice, StoreError::Exists(_)));
    assert_eq!(world.reader.versions(&artifact_id("x")).unwrap().len(), 3);
}

pub(super) fn a_name_is_unique_in_its_scope(mut world: World) {
    world.begin("a");
    world.begin("b");
    let scopes = [in_session("a"), in_session("b"), of_user("local"), of_user("other")];
    for (number, scope) in scopes.iter().enumerate() {
        world.write(vec![version(&format!("x{number}"), scope, "report", 1)]);
        let taken = world.refused(vec![version(&format!("y{number}"), scope, "report", 1)]);
        assert_eq!(taken, StoreError::Exists("artifact report".into()));
    }
    world.write(vec![version("z", &scopes[0], "alpha", 1)]);
    let names: Vec<_> = world.reader.artifacts(&scopes[0]).unwrap().into_iter().map(|one| one.name).collect();
    assert_eq!(names, ["alpha", "report"]);
    assert_eq!(world.reader.artifacts(&scopes[2]).unwrap(), [artifact("x2", &scopes[2], "report", 1)]);
    assert!(world.reader.artifact(&scopes[1], "alpha").unwrap().is_none());
    let twins = vec![version("t1", &scopes[0], "twin", 1), version("t2", &scopes[0], "twin", 1)];
    assert_eq!(world.refused(twins), StoreError::Exists("artifact twin".into()));
    let nowhere = world.refused(vec![version("n", &in_session("nowhere"), "report", 1)]);
    assert_eq!(nowhere, StoreError::Missing("session nowhere".into()));
}

pub(super) fn an_intent_stands_until_its_blob_is_registered_or_gone(mut world: World) {
    world.begin("a");
    let scope = in_session("a");
    let intent = |path: String, second| Write::BlobIntent { path, at: at(second) };
    world.write(vec![intent(blob("x", 1), 1), intent(blob("y", 1), 2), intent(blob("z", 1), 3)]);
    world.write(vec![intent(blob("x", 1), 9)]);
    let all = [blob("x", 1), blob("y", 1), blob("z", 1)];
    assert_eq!(world.reader.blob_intents().unwrap(), all);
    world.write(vec![version("x", &scope, "report", 1)]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[1..]);
    let gone = || Write::BlobGone { path: blob("y", 1) };
    world.write(vec![gone()]);
    world.write(vec![gone()]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[2..]);
    // A refused registration leaves the intent: the file is still nobody's.
    world.refused(vec![version("z", &scope, "report", 1)]);
    assert_eq!(world.reader.blob_intents().unwrap(), all[2..]);
}
