//! Tests of the SQLite store: the contract, missing and damaged files, failing disks.

mod damage;
mod format_one;
pub(super) mod plans;
mod rows;

use std::{cell::Cell, fs, path::Path};

use soong_protocol::{
    Artifact, ArtifactId, ArtifactScope, ArtifactSource, ArtifactWrite, Durability, Event,
    EventDraft, NewSession, NewTrace, NewVersion, Provenance, RunEvent, SessionId, SessionWrite,
    Timestamp, TraceId, TraceWrite, UpdateType, Write,
};

use super::{SqliteReader, SqliteStore};
use crate::store::{Append, Reader, Store, StoreError};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, Durability::Normal).unwrap()
}

fn append(writes: Vec<Write>) -> Append {
    Append {
        fence: None,
        writes,
    }
}

fn session(id: &str) -> Vec<Write> {
    let session_id = SessionId::new(id);
    vec![
        Write::Session(SessionWrite::Create(NewSession {
            session_id: session_id.clone(),
            name: None,
            uid: "local".into(),
            project_dir: "p".into(),
            created_at: Timestamp::default(),
        })),
        Write::Trace(TraceWrite::Create(NewTrace {
            trace_id: TraceId::root(&session_id),
            session_id,
            run_mode: soong_protocol::RunMode::Normal,
            task: "t".into(),
            name: "n".into(),
            agent_type: "default".into(),
            parent_trace_id: None,
            parent_goal_id: None,
            uid: "local".into(),
            model: "m".into(),
            created_at: Timestamp::default(),
        })),
    ]
}

fn event(trace: &str, event: impl Into<Event>) -> Write {
    Write::Event(EventDraft::new(
        TraceId::new(trace),
        None,
        Timestamp::default(),
        event,
    ))
}

fn small_event() -> RunEvent {
    RunEvent::CancelRequested {}
}

/// An event with `bytes` bytes of data.
fn large_event(trace: &str, bytes: usize) -> Write {
    let data =
        serde_json::value::RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
    event(
        trace,
        Event::Unknown {
            kind: "bulk".into(),
            data,
        },
    )
}

#[test]
fn contract() {
    let dir = tempfile::tempdir().unwrap();
    let number = Cell::new(0);
    crate::contract::check(|| {
        number.set(number.get() + 1);
        let path = dir.path().join(format!("{}.db", number.get()));
        let store = Box::new(open(&path));
        (store, Box::new(SqliteReader::open(path).unwrap()))
    });
}

#[test]
fn data_survives_reopening() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    store
        .commit(&[
            append(session("a")),
            append(vec![event("a", small_event()), event("a", small_event())]),
        ])
        .unwrap();
    drop(store);
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "the log is folded into the database"
    );

    let mut store = open(&path);
    let reader = SqliteReader::open(&path).unwrap();
    let outcomes = store
        .commit(&[
            append(vec![event("a", small_event())]),
            append(session("a")),
        ])
        .unwrap();
    let ids = &outcomes[0].as_ref().unwrap().events[0];
    assert_eq!((ids.lsn, ids.event_id, ids.session_seq), (3, 3, 3));
    assert!(matches!(outcomes[1], Err(StoreError::AlreadyExists(_))));
    assert_eq!(reader.events(&TraceId::new("a"), 0, 10).unwrap().len(), 3);
}

#[test]
fn unsupported_files_are_rejected_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let newer = dir.path().join("newer.db");
    drop(open(&newer));
    rusqlite::Connection::open(&newer)
        .unwrap()
        .pragma_update(None, "user_version", 99)
        .unwrap();
    let garbage = dir.path().join("garbage.db");
    fs::write(&garbage, "no database ".repeat(500)).unwrap();
    let folder = dir.path().join("folder.db");
    fs::create_dir(&folder).unwrap();
    for path in [&newer, &garbage] {
        let before = fs::read(path).unwrap();
        let by_writer = SqliteStore::open(path, Durability::Full).unwrap_err();
        let by_reader = SqliteReader::open(path).unwrap_err();
        assert_eq!(by_writer, by_reader);
        assert!(
            matches!(
                by_writer,
                StoreError::NewerFormat { found: 99, .. } | StoreError::Corrupt(_)
            ),
            "{by_writer}"
        );
        assert_eq!(fs::read(path).unwrap(), before);
    }
    let by_writer = SqliteStore::open(&folder, Durability::Full).unwrap_err();
    assert_eq!(by_writer, SqliteReader::open(&folder).unwrap_err());
    assert!(
        by_writer
            .to_string()
            .contains("folder.db is a folder and not a database"),
        "{by_writer}"
    );
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    let nothing = SqliteReader::open(dir.path().join("nothing.db")).unwrap_err();
    assert!(matches!(nothing, StoreError::NotFound(_)), "{nothing}");
    assert!(!dir.path().join("nothing.db").exists());
}

#[test]
fn full_disk_rejects_the_whole_batch_and_next_one_succeeds() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    let reader = SqliteReader::open(&path).unwrap();
    store
        .commit(&[
            append(session("a")),
            append(vec![event("a", small_event())]),
        ])
        .unwrap();
    store
        .conn
        .as_ref()
        .unwrap()
        .query_row("PRAGMA max_page_count = 1", [], |_| Ok(()))
        .unwrap();

    let batch = || {
        [
            append(session("b")),
            append(vec![large_event("a", 4_000_000)]),
            append(vec![event("a", small_event())]),
        ]
    };
    let full = store.commit(&batch()).unwrap_err();
    assert!(
        matches!(&full, StoreError::Io(why) if why.contains("full")),
        "{full}"
    );
    assert!(full.is_transient());
    assert!(
        reader.session(&SessionId::new("b")).unwrap().is_none(),
        "nothing half-written shows"
    );
    assert_eq!(
        reader.events(&TraceId::new("a"), 0, 10).unwrap().len(),
        1,
        "reads go on"
    );

    let outcomes = store.commit(&batch()).unwrap();
    let ids = &outcomes[2].as_ref().unwrap().events[0];
    assert_eq!(
        (ids.lsn, ids.event_id),
        (3, 3),
        "what was rolled back took no number"
    );
}

#[test]
fn append_that_fails_midway_fails_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    // Simulates a constraint of the tables that the admission checks do not know.
    let poison = "CREATE TRIGGER poison BEFORE INSERT ON event WHEN instr(new.kind, 'poison')
                  BEGIN SELECT RAISE (ABORT, 'poison'); END";
    store.conn.as_ref().unwrap().execute_batch(poison).unwrap();
    let bad = Event::Unknown {
        kind: "poison".into(),
        data: Default::default(),
    };
    let outcomes = store
        .commit(&[
            append(session("a")),
            append(vec![event("a", small_event())]),
            append(vec![event("a", small_event()), event("a", bad.clone())]),
            append(vec![event("a", small_event())]),
        ])
        .unwrap();
    assert_eq!(
        outcomes.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false, true]
    );
    assert_eq!(outcomes[3].as_ref().unwrap().events[0].event_id, 2);
    let alone = store.commit(&[append(vec![event("a", bad)])]).unwrap();
    assert!(
        matches!(alone[0], Err(StoreError::AlreadyExists(_))),
        "{alone:?}"
    );
    assert_eq!(
        store
            .commit(&[append(vec![event("a", small_event())])])
            .unwrap()[0]
            .as_ref()
            .unwrap()
            .events[0]
            .lsn,
        3
    );
}

#[test]
fn missing_database_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    store.commit(&[append(session("a"))]).unwrap();
    store.conn = None;
    let moved = dir.path().join("moved.db");
    fs::rename(&path, &moved).unwrap();
    assert!(matches!(
        store.commit(&[append(session("b"))]),
        Err(StoreError::Io(_))
    ));
    assert!(!path.exists());
    fs::rename(&moved, &path).unwrap();
    assert!(store.commit(&[append(session("b"))]).unwrap()[0].is_ok());
}

#[test]
fn readers_are_not_blocked_by_an_open_write_transaction() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    store.commit(&[append(session("a"))]).unwrap();
    store
        .conn
        .as_ref()
        .unwrap()
        .execute_batch("BEGIN IMMEDIATE; DELETE FROM session")
        .unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(reader.session(&SessionId::new("a")).unwrap().is_some()));
        }
    });
    store
        .conn
        .as_ref()
        .unwrap()
        .execute_batch("ROLLBACK")
        .unwrap();
}

#[test]
fn deleted_session_leaves_no_row_in_any_table() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let store = SqliteStore::open(&path, Durability::Normal).unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    crate::contract::delete_one_of_two_sessions(Box::new(store), Box::new(reader));
    let conn = rusqlite::Connection::open(&path).unwrap();
    let mut tables = conn
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .unwrap();
    let tables: Vec<String> = tables
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    // The remaining rows belong to the other session and to an artifact of the user. A usage sum
    // remains as a row of zeros.
    let left = [
        "artifact 2",
        "artifact_version 2",
        "deleted_lsn 1",
        "deleted_session 1",
        "event 1",
        "message 1",
        "path_range 1",
        "prompt 1",
        "run 1",
        "run_state 1",
    ];
    let left = left
        .into_iter()
        .chain(["session 1", "trace 1", "trace_state 1", "usage_sum 1"])
        .collect::<Vec<_>>();
    let count = |table: &String| {
        let rows: i64 = conn
            .query_row(&format!("SELECT count(*) FROM {table}"), [], |row| {
                row.get(0)
            })
            .unwrap();
        (rows > 0).then(|| format!("{table} {rows}"))
    };
    assert_eq!(
        tables.iter().filter_map(count).collect::<Vec<_>>(),
        left,
        "of {tables:?}"
    );
}

/// Creates the files of a process that was killed while it created the database: pages, and the
/// journal that rolls them back.
fn interrupted_creation(folder: &Path) -> std::path::PathBuf {
    let made = folder.join("made.db");
    let left = folder.join("left.db");
    let conn = rusqlite::Connection::open(&made).unwrap();
    // More than the cache holds, so pages are written before the commit.
    conn.execute_batch("PRAGMA cache_size = 2; BEGIN; CREATE TABLE t (x); CREATE TABLE u (x)")
        .unwrap();
    for _ in 0..20 {
        conn.execute("INSERT INTO t VALUES (zeroblob(4000))", [])
            .unwrap();
    }
    for ending in ["", "-journal"] {
        let name = |path: &Path| format!("{}{ending}", path.display());
        fs::copy(name(&made), name(&left)).unwrap();
    }
    assert!(fs::metadata(&left).unwrap().len() > 0);
    left
}

#[test]
fn interrupted_creation_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = interrupted_creation(dir.path());
    let refused = SqliteReader::open(&path).unwrap_err();
    assert!(
        matches!(refused, StoreError::Io(_)),
        "who only reads leaves it to the writer: {refused}"
    );
    let mut store = open(&path);
    assert!(store.commit(&[append(session("s"))]).unwrap()[0].is_ok());
    let reader = SqliteReader::open(&path).unwrap();
    assert!(reader.session(&SessionId::new("s")).unwrap().is_some());
    assert_eq!(reader.check_integrity().unwrap(), Vec::<String>::new());
}

#[test]
fn copy_is_a_consistent_snapshot_during_writes() {
    let dir = tempfile::tempdir().unwrap();
    let (path, target) = (dir.path().join("a.db"), dir.path().join("copy.db"));
    let mut store = open(&path);
    store.commit(&[append(session("s"))]).unwrap()[0]
        .as_ref()
        .unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        let writer = threads.spawn(|| {
            let mut written = 0_u64;
            // At least until the copy is complete, and beyond.
            while !is_done.load(std::sync::atomic::Ordering::Acquire) || written < 100 {
                for outcome in store
                    .commit(&[append(vec![
                        event("s", small_event()),
                        large_event("s", 20_000),
                    ])])
                    .unwrap()
                {
                    outcome.unwrap();
                }
                written += 2;
            }
            written
        });
        while reader.events(&TraceId::new("s"), 0, 100).unwrap().len() < 20 {
            std::thread::yield_now();
        }
        reader.copy_to(&target).unwrap();
        is_done.store(true, std::sync::atomic::Ordering::Release);
        assert!(writer.join().unwrap() >= 100);
    });
    assert!(
        matches!(reader.copy_to(&target), Err(StoreError::Io(_))),
        "a file that is there stays"
    );
    let copy = SqliteReader::open(&target).unwrap();
    assert_eq!(copy.check_integrity().unwrap(), [""; 0]);
    let session = copy.session(&SessionId::new("s")).unwrap().unwrap();
    let events = copy.events(&TraceId::new("s"), 0, usize::MAX).unwrap();
    assert!(
        events.len() >= 20 && events.len() % 2 == 0,
        "appends are whole: {}",
        events.len()
    );
    assert_eq!(
        session.last_session_seq,
        events.len() as u64,
        "rows and events are of one moment"
    );
    assert_eq!(copy.session_count().unwrap(), 1);
    // The copy is a normal store.
    drop(copy);
    open(&target)
        .commit(&[append(vec![event("s", small_event())])])
        .unwrap()[0]
        .as_ref()
        .unwrap();
}

#[test]
fn stored_blobs_are_paged_without_deleted_sessions() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.db");
    let mut store = open(&path);
    let version = |session: &str, artifact: &str, version: u64| {
        let artifact = Artifact {
            artifact_id: ArtifactId::new(artifact),
            scope: ArtifactScope::Session {
                session_id: SessionId::new(session),
            },
            name: Some(artifact.into()),
            withdrawn: None,
            title: artifact.into(),
            filename: artifact.into(),
            content_type: "text/plain".into(),
            size: version,
            current_version: version,
            stored_version: version,
            dirty: false,
            source: ArtifactSource::Api,
            debug: false,
            provenance: Provenance::default(),
            summary: None,
            metadata: serde_json::Map::new(),
            created_at: Timestamp::default(),
            updated_at: Timestamp::default(),
        };
        let path = format!("{}/{version}", artifact.filename);
        Write::Artifact(ArtifactWrite::Version(Box::new(NewVersion {
            artifact,
            update_type: UpdateType::Create,
            path,
        })))
    };
    let blobs = [("s", "a", 1), ("s", "a", 2), ("t", "b", 1), ("s", "c", 1)];
    let mut writes = [session("s"), session("t")].concat();
    writes.extend(blobs.map(|(session, artifact, number)| version(session, artifact, number)));
    store.commit(&[append(writes)]).unwrap()[0]
        .as_ref()
        .unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    let all = |limit: usize| {
        let mut found = Vec::new();
        let mut cursor = None;
        loop {
            let page = reader.stored_blobs(limit, cursor.as_deref()).unwrap();
            assert!(page.items.len() <= limit);
            found.extend(
                page.items
                    .into_iter()
                    .map(|blob| (blob.path, blob.artifact_id.to_string(), blob.size)),
            );
            cursor = page.next_cursor;
            if cursor.is_none() {
                return found;
            }
        }
    };
    let want = |of: &[&str]| -> Vec<(String, String, u64)> {
        let of = blobs.iter().filter(|(session, ..)| of.contains(session));
        let mut all: Vec<_> = of
            .map(|(_, id, n)| (format!("{id}/{n}"), (*id).to_owned(), *n))
            .collect();
        all.sort();
        all
    };
    for limit in 1..=5 {
        assert_eq!(all(limit), want(&["s", "t"]), "{limit}");
    }
    assert!(matches!(
        reader.stored_blobs(1, Some("x")),
        Err(StoreError::InvalidCursor(_))
    ));
    store
        .commit(&[append(vec![Write::Session(SessionWrite::BeginRemoval(
            SessionId::new("s"),
        ))])])
        .unwrap()[0]
        .as_ref()
        .unwrap();
    assert_eq!((all(9), reader.session_count().unwrap()), (want(&["t"]), 1));
}

#[test]
fn invalid_statement_is_an_internal_error_and_not_retried() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    store.commit(&[append(session("a"))]).unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    rusqlite::Connection::open(&path)
        .unwrap()
        .execute_batch("DROP TABLE message; DROP TABLE question")
        .unwrap();
    for error in [
        reader
            .questions(&crate::store::QuestionFilter::default())
            .unwrap_err(),
        reader
            .messages(&TraceId::new("a"), crate::store::MessagePath::All)
            .unwrap_err(),
    ] {
        assert!(
            matches!(error, StoreError::Internal(_)) && !error.is_transient(),
            "{error:?}"
        );
    }
    let message = soong_protocol::Message::new(
        TraceId::new("a"),
        1,
        None,
        soong_protocol::Role::User,
        "hello",
        Timestamp::default(),
    );
    let outcomes = store
        .commit(&[
            append(vec![Write::Message(std::sync::Arc::new(message))]),
            append(vec![event("a", small_event())]),
        ])
        .unwrap();
    assert!(
        matches!(outcomes[0], Err(StoreError::Internal(_))),
        "{outcomes:?}"
    );
    assert!(
        outcomes[1].is_ok(),
        "its neighbour is not refused for it: {outcomes:?}"
    );
}
