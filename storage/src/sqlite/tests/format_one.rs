//! A database of format 1, written by plain SQL: it is opened and migrated without loss, after a
//! backup copy (DUR-5).

use std::path::Path;

use rusqlite::Connection;
use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactSource, ArtifactWrite, NewVersion, Provenance,
    Role, RunId, SessionId, TraceId, UpdateType, Write,
};

use super::{append, open};
use crate::{
    sqlite::{
        SqliteReader,
        migrate::{MIGRATIONS, latest_version, version},
    },
    store::{MessagePath, Reader, Store},
};

/// A session with a run, messages, artifacts of both scopes, and an announced file.
const ROWS: &str = r#"
INSERT INTO session VALUES (1, 's', 'talk', 'ann', '/p', 3, 1, 3, 10, 20);
INSERT INTO trace VALUES (1, 's', 1, NULL, NULL, 'normal', 'default', 'm', 'n', 'ann', 'task', 10);
INSERT INTO trace_state VALUES (1, 'completed', NULL, 0, 3, 3, 3, 3, 7, 5, 0, 0, 0, NULL, 9, 20, 'done', NULL);
INSERT INTO run VALUES (1, 'r', 1, 1, NULL, NULL, 0, 'normal', 'ann', 'task', '{"agent_type":"default","model":"m"}', 10);
INSERT INTO run_state VALUES (1, 1, 'completed', 'completed', 2, 3, 7, 5, 0, 0, 0, NULL, 9, 10, 20, 1, 4, 3, NULL);
INSERT INTO event VALUES (1, 1, 1, 1, 1, 1, 1, 10, 'loop_started', '{"mode":"normal","agent_type":"default","model":"m"}');
INSERT INTO event VALUES (2, 1, 2, 1, 2, 1, 2, 20, 'artifact_saved',
    '{"name":"report","artifact_id":"a1","version":2,"content_type":"text/markdown","size":6,"source":"agent"}');
INSERT INTO event VALUES (3, 1, 3, 1, 3, 1, 3, 20, 'goal_added', '{"goal":{"id":"1","number":"1","description":"d",
    "reason":"r","type":"normal","status":"pending","sub_trace_ids":[],"created_sequence":1,
    "created_at":"2025-11-21T04:00:00.000Z"}}');
INSERT INTO message VALUES (1, 1, 1, NULL, 'user', NULL, 0, NULL, NULL, NULL, NULL, 10, NULL, NULL, 'task', 'task', NULL, NULL);
INSERT INTO message VALUES (2, 1, 2, 1, 'assistant', NULL, 0, 7, 5, NULL, 9, 15, NULL, 'tool_calls', 'calls read', '', NULL,
    '[{"id":"c","type":"function","function":{"name":"read","arguments":"{}"}}]');
INSERT INTO message VALUES (3, 1, 3, 2, 'tool', NULL, 0, NULL, NULL, NULL, 1, 16, 'c', NULL, 'text', 'text', NULL, NULL);
INSERT INTO artifact VALUES (1, 'a1', 1, NULL, 'report', 'Report', 'report.md', 'text/markdown', 6, 2, 'agent',
    '{"run_id":"r"}', 11, 12);
INSERT INTO artifact VALUES (2, 'a2', NULL, 'ann', 'notes', 'notes', 'notes.txt', 'text/plain', 3, 1, 'tool', '{}', 13, 13);
INSERT INTO artifact_version VALUES (1, 1, 4, 'create', 'agent', '{}', 'sessions/s/artifacts/a1/v1/report.md', 11);
INSERT INTO artifact_version VALUES (1, 2, 6, 'rewrite', 'agent', '{"run_id":"r"}', 'sessions/s/artifacts/a1/v2/report.md', 12);
INSERT INTO artifact_version VALUES (2, 1, 3, 'create', 'tool', '{}', 'users/ann/artifacts/a2/v1/notes.txt', 13);
INSERT INTO blob_intent VALUES ('sessions/s/artifacts/a9/v1/half', 14);
"#;

fn write_format_one(path: &Path) {
    let conn = Connection::open(path).unwrap();
    conn.execute_batch(MIGRATIONS[0]).unwrap();
    conn.execute_batch(ROWS).unwrap();
    conn.pragma_update(None, "user_version", 1).unwrap();
}

#[test]
fn format_1_database_is_backed_up_and_migrated_without_loss() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    write_format_one(&path);
    let mut store = open(&path);
    let reader = SqliteReader::open(&path).unwrap();
    let session = SessionId::new("s");
    let trace = TraceId::new("s");
    let of_session = ArtifactScope::Session {
        session_id: session.clone(),
    };
    let of_user = ArtifactScope::User { uid: "ann".into() };

    let report = reader.artifact(&of_session, "report").unwrap().unwrap();
    assert_eq!(
        (
            report.artifact_id.as_str(),
            report.title.as_str(),
            report.filename.as_str()
        ),
        ("a1", "Report", "report.md")
    );
    assert_eq!(
        (
            report.current_version,
            report.stored_version,
            report.dirty,
            report.size
        ),
        (2, 2, false, 6)
    );
    assert_eq!(
        (report.source, report.debug),
        (ArtifactSource::Agent, false)
    );
    assert_eq!(
        report.provenance,
        Provenance {
            run_id: Some(RunId::new("r")),
            ..Provenance::default()
        }
    );
    assert_eq!(
        (report.created_at.as_millis(), report.updated_at.as_millis()),
        (11, 12)
    );
    assert_eq!((report.summary.clone(), report.metadata.len()), (None, 0));
    let notes = reader.artifact(&of_user, "notes").unwrap().unwrap();
    assert_eq!(
        (notes.key().as_str(), notes.current_version, notes.dirty),
        ("user:notes", 1, false)
    );
    assert_eq!(reader.artifacts(&of_session).unwrap().len(), 1);
    let versions = reader.versions(&report.artifact_id).unwrap();
    let version_fields: Vec<_> = versions
        .iter()
        .map(|one| {
            (
                one.version,
                one.size,
                one.update_type,
                one.content_type.as_str(),
            )
        })
        .collect();
    assert_eq!(
        version_fields,
        [
            (1, 4, UpdateType::Create, "text/markdown"),
            (2, 6, UpdateType::Rewrite, "text/markdown")
        ]
    );
    let second = reader.blob_path(&report.artifact_id, 2).unwrap();
    assert_eq!(
        second.as_deref(),
        Some("sessions/s/artifacts/a1/v2/report.md")
    );
    assert_eq!(
        reader.blob_intents().unwrap(),
        ["sessions/s/artifacts/a9/v1/half"]
    );
    assert!(reader.edits(&report.artifact_id, 0, 9).unwrap().is_empty());

    let messages = reader.messages(&trace, MessagePath::Main).unwrap();
    let roles: Vec<Role> = messages.iter().map(|message| message.role).collect();
    assert_eq!(roles, [Role::User, Role::Assistant, Role::Tool]);
    assert_eq!(
        (messages[2].content.as_str(), &messages[2].long_term_memory),
        ("text", &None)
    );
    assert!(
        messages
            .iter()
            .all(|message| !message.include_output_only_once)
    );
    assert_eq!(messages[1].tool_calls[0].name, "read");
    assert_eq!(reader.run(&RunId::new("r")).unwrap().unwrap().turn, 2);
    assert_eq!(reader.run_events(&RunId::new("r")).unwrap().len(), 3);
    let goals_at = |lsn| {
        reader
            .goal_tree_at(&trace, lsn)
            .unwrap()
            .unwrap()
            .goals
            .len()
    };
    assert_eq!(
        (goals_at(2), goals_at(3)),
        (0, 1),
        "goal changes are found in rows of the old format"
    );

    // New versions can be added.
    let next = Artifact {
        current_version: 3,
        stored_version: 3,
        ..report
    };
    let wanted = NewVersion {
        artifact: next,
        update_type: UpdateType::Update,
        path: "p".into(),
    };
    let acks = store
        .commit(&[append(vec![Write::Artifact(ArtifactWrite::Version(
            Box::new(wanted),
        ))])])
        .unwrap();
    assert!(acks[0].is_ok(), "{acks:?}");
    assert_eq!(reader.versions(&ArtifactId::new("a1")).unwrap().len(), 3);

    // The copy is the file before the migration.
    let copy = Connection::open(dir.path().join("soong.db.v1.bak")).unwrap();
    assert_eq!(version(&copy).unwrap(), 1);
    let names: i64 = copy
        .query_row("SELECT count(name) FROM artifact", [], |row| row.get(0))
        .unwrap();
    assert_eq!(names, 2);
    assert_eq!(
        version(&Connection::open(&path).unwrap()).unwrap(),
        latest_version(MIGRATIONS)
    );
}

#[test]
fn migrated_file_is_not_backed_up_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    write_format_one(&path);
    drop(open(&path));
    let copy = dir.path().join("soong.db.v1.bak");
    let before = std::fs::read(&copy).unwrap();
    drop(open(&path));
    assert_eq!(std::fs::read(&copy).unwrap(), before);
    let copies = std::fs::read_dir(dir.path()).unwrap().filter(|entry| {
        entry
            .as_ref()
            .unwrap()
            .file_name()
            .to_string_lossy()
            .contains("bak")
    });
    assert_eq!(copies.count(), 1);
}
