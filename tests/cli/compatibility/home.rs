//! A home of an earlier version, unpacked and moved to a folder of its own.

use std::{
    collections::BTreeMap,
    fs,
    io::{Cursor, Read},
    os::unix::fs::PermissionsExt,
    path::Path,
};

use rusqlite::Connection;
use sha2::{Digest, Sha256};

use crate::process::TestHome;

/// The home that version 0.1 made.
pub(crate) const HOME_0_1: &[u8] = include_bytes!("../../fixtures/home-0.1.zip");
/// Folder of the home and its project when the archive was made.
const MADE_IN: &str = "/tmp/soong-fixture-root";

/// Unpacks a home and replaces its paths. Returns it with the expected events of each trace.
pub(crate) fn unpack(archive: &[u8]) -> (TestHome, BTreeMap<String, Vec<String>>) {
    let world = TestHome::empty();
    let root = world.dir.path().canonicalize().unwrap();
    let root = root.to_str().unwrap();
    let mut expected = BTreeMap::new();
    let mut archive = zip::ZipArchive::new(Cursor::new(archive)).unwrap();
    for at in 0..archive.len() {
        let mut entry = archive.by_index(at).unwrap();
        let name = entry.name().to_owned();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if !name.contains("sqlite") {
            bytes = String::from_utf8(bytes)
                .unwrap()
                .replace(MADE_IN, root)
                .into_bytes();
        }
        match name.strip_prefix("expected/") {
            Some(trace) => {
                let lines = String::from_utf8(bytes)
                    .unwrap()
                    .lines()
                    .map(str::to_owned)
                    .collect();
                expected.insert(trace.trim_end_matches(".jsonl").to_owned(), lines);
            }
            None => {
                let path = world.dir.path().join(name);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, bytes).unwrap();
                fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
            }
        }
    }
    assert!(!expected.is_empty());
    relocate(&world.home().join("sessions.sqlite"), root);
    (world, expected)
}

/// Replaces the folder in every text column of a database. The fingerprint of a permission is a
/// hash that covers its path, so it is computed again.
fn relocate(database: &Path, root: &str) {
    let database = Connection::open(database).unwrap();
    let names = |query: &str| -> Vec<String> {
        let mut statement = database.prepare(query).unwrap();
        statement
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    };
    let permissions = fingerprints(&database);
    for (_, stored, computed) in &permissions {
        assert_eq!(
            stored, computed,
            "a fingerprint is made as the version of the home made it"
        );
    }
    for table in names("SELECT name FROM sqlite_master WHERE type = 'table'") {
        for column in names(&format!(
            "SELECT name FROM pragma_table_info('{table}') WHERE type = 'TEXT'"
        )) {
            let replace = format!(
                "UPDATE \"{table}\" SET \"{column}\" = replace(\"{column}\", ?1, ?2) WHERE instr(\"{column}\", ?1) > 0"
            );
            database.execute(&replace, (MADE_IN, root)).unwrap();
        }
    }
    for (row, _, fingerprint) in fingerprints(&database) {
        database
            .execute(
                "UPDATE permission SET fingerprint = ?1 WHERE rowid = ?2",
                (fingerprint, row),
            )
            .unwrap();
    }
}

/// Returns row id, stored fingerprint and computed fingerprint of each permission.
fn fingerprints(database: &Connection) -> Vec<(i64, String, String)> {
    let mut statement = database
        .prepare("SELECT rowid, fingerprint, tool, arguments, demand FROM permission")
        .unwrap();
    let rows = statement.query_map([], |row| {
        let parts: [String; 3] = [row.get(2)?, row.get(3)?, row.get(4)?];
        let mut hash = Sha256::new();
        for part in parts {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        let computed = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok((row.get(0)?, row.get(1)?, computed))
    });
    rows.unwrap().map(Result::unwrap).collect()
}
