//! Damaged database files: which errors they give, and that intact data is still read.

use super::*;

#[test]
fn damage_is_reported_and_intact_file_is_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.db");
    let mut store = open(&path);
    let rows = (0..200).map(|n| append(session(&format!("s{n}"))));
    store.commit(&rows.collect::<Vec<_>>()).unwrap();
    assert_eq!(
        SqliteReader::open(&path).unwrap().check_integrity(),
        Ok(vec![]),
        "beside a writer"
    );
    drop(store);
    let before = fs::read(&path).unwrap();
    assert_eq!(
        SqliteReader::open(&path).unwrap().check_integrity(),
        Ok(vec![])
    );
    assert_eq!(fs::read(&path).unwrap(), before);

    let mut reported = 0;
    let mut refused = 0;
    for page in 1..before.len() / 4096 {
        let mut damaged = before.clone();
        damaged[page * 4096..(page + 1) * 4096].fill(0xa5);
        fs::write(&path, &damaged).unwrap();
        match SqliteReader::open(&path).and_then(|reader| reader.check_integrity()) {
            Ok(faults) => reported += usize::from(!faults.is_empty()),
            Err(error) => assert_names_damaged_file(&path, page, &error),
        }
        // A reader reports the damage if it reads the damaged page.
        for n in (0..200).step_by(25) {
            let read = SqliteReader::open(&path)
                .and_then(|reader| reader.trace(&TraceId::new(format!("s{n}"))));
            let _ = read.inspect_err(|error| assert_names_damaged_file(&path, page, error));
        }
        assert!(
            fs::read(&path).unwrap() == damaged,
            "page {page}: who only reads writes nothing"
        );
        // So does a writer; an append that was rejected once is rejected by the next commit too.
        let Ok(mut store) = SqliteStore::open(&path, Durability::Normal) else {
            continue;
        };
        for _ in 0..2 {
            if let Err(error) = store.commit(&[
                append(session("new")),
                append(vec![event("s7", small_event())]),
            ]) {
                assert_names_damaged_file(&path, page, &error);
                refused += 1;
            }
        }
    }
    assert!(
        reported > 0,
        "damage away from the schema is found by looking"
    );
    assert!(refused > 0, "and by writing");
}

#[test]
fn invalid_utf8_is_corruption() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let mut store = SqliteStore::open(&path, Durability::Normal).unwrap();
    store.commit(&[append(session("s"))]).unwrap();
    let conn = rusqlite::Connection::open(&path).unwrap();
    conn.execute("UPDATE trace SET task = CAST(x'41a5' AS TEXT)", [])
        .unwrap();
    let error = SqliteReader::open(&path)
        .unwrap()
        .trace(&TraceId::new("s"))
        .unwrap_err();
    assert!(!error.is_transient(), "{error}");
    assert_names_damaged_file(&path, 0, &error);
}

/// Asserts that the error names the damaged file and says what to do.
#[track_caller]
fn assert_names_damaged_file(path: &Path, page: usize, error: &StoreError) {
    assert!(
        matches!(error, StoreError::Corrupt(_)),
        "page {page}: {error}"
    );
    let message = error.to_string();
    assert_eq!(
        message.matches(&path.display().to_string()).count(),
        1,
        "page {page}: {message}"
    );
    assert!(
        message.contains("restore a backup"),
        "page {page}: {message}"
    );
}
