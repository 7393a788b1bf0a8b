//! Contents of rows: events of an append share a row, and each text is stored once.

use std::sync::Arc;

use rusqlite::Connection;
use soong_protocol::{Event, Message, MessageEvent, Role, Timestamp, TraceId, Write};

use super::{append, event, open, session, small_event};
use crate::{
    sqlite::SqliteReader,
    store::{MessagePath, Reader, Store, StoreError},
};

const TEXT: &str = "the text of a message";

/// A message of trace `a` with its event.
fn message(sequence: u64, role: Role) -> [Write; 2] {
    let parent = (sequence > 1).then(|| sequence - 1);
    let message = Message::new(
        TraceId::new("a"),
        sequence,
        parent,
        role,
        TEXT,
        Timestamp::default(),
    );
    let added = MessageEvent::added(&message);
    [Write::Message(Arc::new(message)), event("a", added)]
}

#[test]
fn events_of_an_append_share_a_row_that_refers_to_messages() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    let writes = [
        vec![event("a", small_event())],
        Vec::from(message(1, Role::User)),
        vec![event("a", small_event())],
    ];
    store
        .commit(&[
            append(session("a")),
            append(writes.concat()),
            append(vec![event("a", small_event())]),
        ])
        .unwrap();
    let conn = Connection::open(&path).unwrap();
    let mut query = conn
        .prepare("SELECT lsn, kind, data FROM event ORDER BY lsn")
        .unwrap();
    let rows: Vec<(u64, String, String)> = query
        .query_map([], |row| {
            Ok((
                row.get::<_, i64>(0)?.unsigned_abs(),
                row.get(1)?,
                row.get(2)?,
            ))
        })
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let small = Event::from(small_event());
    let kind = small.kind();
    let data = small.data_json();
    assert_eq!(
        rows,
        [
            (
                1,
                format!("{kind},message_added,{kind}"),
                format!("[{data},1,{data}]")
            ),
            (4, kind.to_owned(), data)
        ]
    );
    let events = SqliteReader::open(&path)
        .unwrap()
        .events(&TraceId::new("a"), 1, 1)
        .unwrap();
    assert!(events[0].data.contains(TEXT), "{}", events[0].data);
}

#[test]
fn event_whose_message_is_missing_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    store
        .commit(&[
            append(session("a")),
            append(Vec::from(message(1, Role::User))),
        ])
        .unwrap();
    Connection::open(&path)
        .unwrap()
        .execute_batch("DELETE FROM message")
        .unwrap();
    let error = SqliteReader::open(&path)
        .unwrap()
        .events(&TraceId::new("a"), 0, 9)
        .unwrap_err();
    assert!(
        matches!(&error, StoreError::Corrupt(why) if why.contains("refers to 1")),
        "{error}"
    );
}

#[test]
fn system_prompt_is_stored_once_per_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("soong.db");
    let mut store = open(&path);
    let prompt = |trace: &str, sequence, text: &str| {
        let message = Message::new(
            TraceId::new(trace),
            sequence,
            None,
            Role::System,
            text.repeat(50),
            Timestamp::default(),
        );
        Write::Message(Arc::new(message))
    };
    let first = session("a");
    let second = session("b");
    store
        .commit(&[
            append([first, second].concat()),
            append(vec![
                prompt("a", 1, "first"),
                prompt("a", 2, "second"),
                prompt("a", 3, "first"),
            ]),
            append(vec![prompt("b", 1, "first")]),
        ])
        .unwrap();
    let conn = Connection::open(&path).unwrap();
    let count = |sql: &str| conn.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) FROM prompt"), 3);
    assert_eq!(count("SELECT sum(length(content)) FROM message"), 0);
    let reader = SqliteReader::open(&path).unwrap();
    let texts = |trace| {
        let messages = reader
            .messages(&TraceId::new(trace), MessagePath::All)
            .unwrap();
        messages
            .into_iter()
            .map(|message| message.content)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        texts("a"),
        ["first".repeat(50), "second".repeat(50), "first".repeat(50)]
    );
    assert_eq!(texts("b"), ["first".repeat(50)]);
}
