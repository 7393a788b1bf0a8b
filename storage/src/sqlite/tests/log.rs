//! The write-ahead log: its size, and the removal of deleted data from it.

use std::fs;

use soong_protocol::{
    Event, EventDraft, NewSession, NewTrace, RunMode, Timestamp, TraceId, TraceWrite,
};

use super::*;

const KIB: u64 = 1_024;

fn session(id: &str) -> Append {
    let session_id = SessionId::new(id);
    let created_at = Timestamp::default();
    let session = NewSession {
        session_id: session_id.clone(),
        name: None,
        uid: "local".into(),
        project_dir: "p".into(),
        created_at,
    };
    let trace = NewTrace {
        trace_id: TraceId::root(&session_id),
        session_id,
        run_mode: RunMode::Normal,
        task: "t".into(),
        name: "n".into(),
        agent_type: "default".into(),
        parent_trace_id: None,
        parent_goal_id: None,
        uid: "local".into(),
        model: "m".into(),
        created_at,
    };
    Append {
        fence: None,
        writes: vec![
            Write::Session(SessionWrite::Create(session)),
            Write::Trace(TraceWrite::Create(trace)),
        ],
    }
}

fn event(session: &str, text: &str) -> Append {
    let data = serde_json::value::RawValue::from_string(format!("{text:?}")).unwrap();
    let event = Event::Unknown {
        kind: "x".into(),
        data,
    };
    let draft = EventDraft::new(TraceId::new(session), None, Timestamp::default(), event);
    Append {
        fence: None,
        writes: vec![Write::Event(draft)],
    }
}

fn commit(store: &mut SqliteStore, append: Append) {
    for outcome in store.commit(&[append]).unwrap() {
        outcome.unwrap();
    }
}

#[test]
fn checkpoint_threshold_follows_free_space() {
    for (free, want) in [
        (None, 4_000),
        (Some(u64::MAX), 4_000),
        (Some(4_000 * 8 * 4 * KIB), 4_000),
        (Some(3_999 * 8 * 4 * KIB), 2_048),
        (Some(8 * KIB * KIB), 256),
        (Some(100 * KIB), 64),
        (Some(0), 64),
    ] {
        assert_eq!(checkpoint_pages(free), want, "{free:?}");
    }
}

#[test]
fn log_stays_small_on_a_small_disk() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
    store.free_bytes = |_| Some(8 * KIB * KIB);
    store.adjust_checkpoint_threshold();
    commit(&mut store, session("s"));
    let reader = super::super::SqliteReader::open(&path).unwrap();
    let mut largest = 0;
    for _ in 0..2_000 {
        commit(&mut store, event("s", &"x".repeat(2_000)));
        largest = largest.max(fs::metadata(dir.path().join("x.db-wal")).unwrap().len());
    }
    drop(reader);
    assert!(
        largest < 2 * KIB * KIB,
        "the log grew to {} KiB",
        largest / KIB
    );
}

#[test]
fn deleted_session_leaves_no_bytes_in_the_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
    let secret = "the-plans-are-in-the-cellar";
    commit(&mut store, session("kept"));
    commit(&mut store, session("gone"));
    for number in 0..400 {
        commit(
            &mut store,
            event("kept", &format!("{number} {}", "y".repeat(300))),
        );
        commit(
            &mut store,
            event("gone", &format!("{number} {secret} {}", "z".repeat(300))),
        );
    }
    let found = || {
        let files = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| fs::read(entry.unwrap().path()).unwrap());
        files
            .map(|bytes| {
                bytes
                    .windows(secret.len())
                    .filter(|part| *part == secret.as_bytes())
                    .count()
            })
            .sum::<usize>()
    };
    assert!(found() >= 400);
    let id = SessionId::new("gone");
    commit(
        &mut store,
        Append {
            fence: None,
            writes: vec![Write::Session(SessionWrite::BeginRemoval(id.clone()))],
        },
    );
    while matches!(
        deletion::stage(store.conn.as_ref().unwrap(), &id),
        Ok(Some(_))
    ) {
        let remove = Write::Session(SessionWrite::RemoveRows {
            session_id: id.clone(),
            limit: 50,
        });
        commit(
            &mut store,
            Append {
                fence: None,
                writes: vec![remove],
            },
        );
    }
    assert_eq!(found(), 0, "while the database is open");
    drop(store);
    assert_eq!(found(), 0, "and behind its end");
}
