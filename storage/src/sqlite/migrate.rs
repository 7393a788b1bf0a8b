//! Format version of the database, and its migration to the version of this build (DUR-5).
//!
//! Migration is forward only. `PRAGMA user_version` holds the version. One transaction applies a
//! step and sets the version. A file that this build does not support is only opened for reading
//! and is not changed.
//!
//! Elsewhere: the meaning of the tables (the other files of this folder).

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::store_error;
use crate::store::StoreError;

/// The migration steps of this build, oldest first. The first step creates version 1, the second
/// version 2, and so on.
pub(crate) const MIGRATIONS: &[&str] = &[
    include_str!("../../migrations/0001_init.sql"),
    include_str!("../../migrations/0002_artifacts.sql"),
    include_str!("../../migrations/0003_sessions.sql"),
    include_str!("../../migrations/0004_traces.sql"),
    include_str!("../../migrations/0005_task_journals.sql"),
    include_str!("../../migrations/0006_sub_agents.sql"),
    include_str!("../../migrations/0007_cheap_indexes.sql"),
    include_str!("../../migrations/0008_permissions.sql"),
    include_str!("../../migrations/0009_side_branches.sql"),
    include_str!("../../migrations/0010_usage.sql"),
    include_str!("../../migrations/0011_trace_status.sql"),
    include_str!("../../migrations/0012_event_rows.sql"),
    include_str!("../../migrations/0013_prompts.sql"),
    include_str!("../../migrations/0014_message_parts.sql"),
    include_str!("../../migrations/0015_context_updates.sql"),
    include_str!("../../migrations/0016_cache_writes.sql"),
    include_str!("../../migrations/0017_slugs.sql"),
    include_str!("../../migrations/0018_incarnations.sql"),
    include_str!("../../migrations/0019_copied_runs.sql"),
    include_str!("../../migrations/0020_message_origins.sql"),
    include_str!("../../migrations/0021_open_model_calls.sql"),
    include_str!("../../migrations/0022_keyed_requests.sql"),
    include_str!("../../migrations/0023_offered_tools.sql"),
    include_str!("../../migrations/0024_prompt_changes.sql"),
];

/// The schema that all [`MIGRATIONS`] together create. A new database is created from it, because
/// the steps take four times as long.
pub(crate) const SCHEMA: &str = include_str!("../../migrations/schema.sql");

/// Rejects a file that has a newer version than `steps`, is not a database, or belongs to another
/// program. Also rejects an empty file if other files of a home exist. Changes nothing.
///
/// Returns the file's version: 0 if the file does not exist or is empty.
pub(crate) fn check(path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    match file_size(path)? {
        None => return Ok(0),
        Some(0) => return check_empty(path),
        Some(_) => {}
    }
    let conn = open_read_only(path).map_err(|error| with_path(path, error))?;
    let found = version(&conn).map_err(|error| with_path(path, error))?;
    let known = latest_version(steps);
    if found > known {
        return Err(StoreError::NewerFormat { found, known });
    }
    let tables: u64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| {
            row.get::<_, i64>(0)
        })
        .map(i64::unsigned_abs)
        .map_err(|error| with_path(path, error))?;
    if found == 0 && tables > 0 {
        return Err(StoreError::Corrupt(format!(
            "{} is a database of another program: move it to another folder, or choose another home",
            path.display()
        )));
    }
    Ok(found)
}

/// Returns the size of the file in bytes, or `None` if it does not exist. Rejects everything except
/// a regular file. For example, opening a pipe would block until another process opens its other
/// end.
fn file_size(path: &Path) -> Result<Option<u64>, StoreError> {
    let refuse = |what: &str| {
        let why = "and not a database: move it to another folder, or choose another home";
        Err(StoreError::Corrupt(format!(
            "{} is {what} {why}",
            path.display()
        )))
    };
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => refuse("a folder"),
        Ok(file) if !file.is_file() => refuse("a pipe, a device or a socket"),
        Ok(file) => Ok(Some(file.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_symlink() => {
            refuse("a broken symbolic link")
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Io(format!("{}: {error}", path.display()))),
    }
}

/// Returns version 0 for an empty database file. Rejects the file if other files of a home exist:
/// the database was truncated, and opening it would silently start a new history.
fn check_empty(path: &Path) -> Result<u32, StoreError> {
    let home_files = [
        path.with_file_name("sessions"),
        with_suffix(path, "-wal"),
        with_suffix(path, "-shm"),
    ];
    match home_files.iter().find(|trace| trace.exists()) {
        None => Ok(0),
        Some(trace) => Err(StoreError::Corrupt(format!(
            "{} is empty, but {} exists, so the database was truncated: restore a backup, or, to start without its \
             history, move both to another folder",
            path.display(),
            trace.display()
        ))),
    }
}

/// Appends a suffix to the file name.
fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Creates a database with this schema, atomically. `version` is that of the schema. The file must
/// not exist.
pub(crate) fn create(path: &Path, schema: &str, version: u32) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| {
        StoreError::Io(format!("{} cannot be created: {error}", path.display()))
    };
    // SQLite would apply a log that an earlier database left to the new one.
    for log in [with_suffix(path, "-wal"), with_suffix(path, "-journal")] {
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            let path = path.display();
            let log = log.display();
            let why = format!(
                "{path} does not exist, but its log {log} does: restore the database, or move the log elsewhere"
            );
            return Err(StoreError::Corrupt(why));
        }
    }
    let draft = with_suffix(path, ".new");
    if draft.exists() {
        fs::remove_file(&draft).map_err(failed)?; // left by a killed process
    }
    let conn = Connection::open(&draft).map_err(|error| with_path(&draft, error))?;
    let prepare = |sql: &str| {
        conn.query_row(sql, [], |_| Ok(()))
            .map_err(|error| with_path(&draft, error))
    };
    // Neither a journal on disk nor waiting for the disk is needed: after a crash, the next call
    // deletes the draft.
    prepare("PRAGMA journal_mode = MEMORY")?;
    conn.pragma_update(None, "synchronous", "OFF")
        .map_err(|error| with_path(&draft, error))?;
    apply(&conn, schema, version).map_err(|error| with_path(&draft, error))?;
    assign_store_id(&conn).map_err(|error| with_path(&draft, error))?;
    // The owner uses this mode; changing to it later would wait for the disk.
    prepare("PRAGMA journal_mode = WAL")?;
    conn.close()
        .map_err(|(_, error)| with_path(&draft, error))?;
    let sync = |path: &Path| fs::File::open(path)?.sync_all();
    sync(&draft)
        .and_then(|()| fs::rename(&draft, path))
        .map_err(failed)?;
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    sync(folder.unwrap_or(Path::new("."))).map_err(failed)
}

/// Does the same as [`check`], for the process that will write to the database. Before that, rolls
/// back a transaction that was interrupted before the database was in WAL mode; SQLite needs write
/// access for this rollback.
pub(crate) fn check_to_write(path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    let is_interrupted = |error: &rusqlite::Error| {
        error
            .sqlite_error()
            .is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
    };
    if file_size(path)?.is_none() {
        return Ok(0);
    }
    let looked = open_read_only(path).and_then(|conn| version(&conn));
    if looked.as_ref().is_err_and(is_interrupted) {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Reading rolls the interrupted transaction back.
        let found = Connection::open_with_flags(path, flags).and_then(|conn| version(&conn));
        found.map_err(|error| with_path(path, error))?;
    }
    check(path, steps)
}

fn open_read_only(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )
}

/// Migrates the open database at `path` to the newest version of `steps`.
///
/// A database of an older version, unless it is new, is first copied to a backup file in the same
/// folder.
pub(crate) fn migrate(path: &Path, conn: &Connection, steps: &[&str]) -> Result<(), StoreError> {
    let found = version(conn).map_err(|error| with_path(path, error))?;
    if found > 0 && found < latest_version(steps) {
        back_up(path, conn, found)?;
    }
    for (number, step) in (1_u32..).zip(steps) {
        if number > found {
            apply(conn, step, number).map_err(|error| with_path(path, error))?;
        }
    }
    Ok(())
}

/// Reads the format version.
pub(crate) fn version(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Reads the number that identifies the store, 0 if it has none. It is saved in `PRAGMA
/// application_id`.
pub(crate) fn store_id(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA application_id", [], |row| row.get::<_, i32>(0))
        .map(i32::cast_unsigned)
}

/// Assigns a random store number to a database that has none.
pub(crate) fn assign_store_id(conn: &Connection) -> rusqlite::Result<()> {
    if store_id(conn)? != 0 {
        return Ok(());
    }
    let number: i32 = conn.query_row("SELECT 1 + (random() & 0x3fffffff)", [], |row| row.get(0))?;
    conn.pragma_update(None, "application_id", number)
}

/// Removes the store number from a copy of a database, because a restored copy is a different
/// store.
pub(crate) fn clear_store_id(copy: &Path) -> rusqlite::Result<()> {
    let conn = Connection::open(copy)?;
    conn.pragma_update(None, "application_id", 0)?;
    conn.close().map_err(|(_, error)| error)
}

/// Returns the version of a database to which all `steps` were applied.
pub(crate) fn latest_version(steps: &[&str]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}

fn apply(conn: &Connection, step: &str, number: u32) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    transaction.execute_batch(step)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}

/// Copies the database to `<file>.v<version>.bak` atomically. Syncs the copy to disk before it gets
/// this name.
fn back_up(path: &Path, conn: &Connection, version: u32) -> Result<(), StoreError> {
    let whole = with_suffix(path, &format!(".v{version}.bak"));
    let partial = with_suffix(&whole, ".half");
    let failed = |error: std::io::Error| {
        StoreError::Io(format!("the backup before the migration failed: {error}"))
    };
    if partial.exists() {
        fs::remove_file(&partial).map_err(failed)?;
    }
    let target = partial
        .to_str()
        .ok_or_else(|| StoreError::Io(format!("{} is not valid Unicode", partial.display())))?;
    conn.execute("VACUUM INTO ?1", [target])
        .and_then(|_| clear_store_id(&partial))
        .map_err(|error| with_path(path, error))?;
    fs::File::open(&partial)
        .and_then(|file| file.sync_all())
        .map_err(failed)?;
    fs::rename(&partial, &whole).map_err(failed)?;
    tracing::info!(backup = %whole.display(), "backed up the database before its migration");
    Ok(())
}

/// Adds the path to an error and, if the file is not a database, advice for the user.
fn with_path(path: &Path, error: rusqlite::Error) -> StoreError {
    match store_error(error) {
        StoreError::Corrupt(why) => StoreError::Corrupt(format!(
            "{} is not a database that soong can read ({why}): restore a backup, or move it to another folder",
            path.display()
        )),
        StoreError::Io(why) => StoreError::Io(format!("{}: {why}", path.display())),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &[
        "CREATE TABLE a (x)",
        "CREATE TABLE b (y); INSERT INTO b SELECT x FROM a",
    ];

    #[test]
    fn older_database_is_backed_up_and_migrated() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.db");
        let conn = Connection::open(&path).unwrap();
        migrate(&path, &conn, &TWO[..1]).unwrap();
        conn.execute("INSERT INTO a VALUES (7)", []).unwrap();
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "a first step has nothing to copy"
        );

        assert_eq!(check(&path, TWO).unwrap(), 1);
        migrate(&path, &conn, TWO).unwrap();
        assert_eq!(
            conn.query_row("SELECT y FROM b", [], |row| row.get::<_, i64>(0))
                .unwrap(),
            7
        );
        let copy = dir.path().join("old.db.v1.bak");
        assert_eq!(check(&copy, TWO).unwrap(), 1);
        assert_eq!(version(&conn).unwrap(), 2);
    }

    #[test]
    fn failed_migration_step_keeps_the_previous_version() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let conn = Connection::open(&path).unwrap();
        let broken = &[
            "CREATE TABLE a (x)",
            "CREATE TABLE b (y); CREATE TABLE a (again)",
        ];
        assert!(migrate(&path, &conn, broken).is_err());
        assert_eq!(version(&conn).unwrap(), 1);
        let b = conn.query_row(
            "SELECT count(*) FROM sqlite_schema WHERE name = 'b'",
            [],
            |row| row.get::<_, i64>(0),
        );
        assert_eq!(b.unwrap(), 0);
    }

    #[test]
    fn create_replaces_draft_of_killed_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        fs::write(dir.path().join("x.db.new"), "half of").unwrap();
        create(&path, "CREATE TABLE a (x)", 2).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(check(&path, TWO).unwrap(), 2);
        fs::write(dir.path().join("z.db-wal"), "of a database that is gone").unwrap();
        let refused = create(&dir.path().join("z.db"), "CREATE TABLE a (x)", 2).unwrap_err();
        assert!(refused.to_string().contains("z.db-wal"), "{refused}");
        let other = dir.path().join("y.db");
        assert!(
            create(&other, "CREATE TABLE a (x); CREATE TABLE a (again)", 2).is_err()
                && !other.exists()
        );
    }

    #[test]
    fn schema_of_a_new_database_is_that_of_all_migrations() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("migrated.db");
        let conn = Connection::open(&path).unwrap();
        migrate(&path, &conn, MIGRATIONS).unwrap();
        let mut query = conn
            .prepare("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY rowid")
            .unwrap();
        let statements: Vec<String> = query
            .query_map([], |row| row.get(0))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let migrated: String = statements
            .iter()
            .map(|statement| format!("{statement};\n"))
            .collect();
        let (_, created) = SCHEMA.split_once("\n\n").unwrap();
        assert_eq!(
            created, migrated,
            "after its first comment, migrations/schema.sql must be:\n{migrated}"
        );
    }

    #[test]
    fn emptied_databases_and_pipes_are_rejected() {
        for trace in ["sessions", "x.db-wal", "x.db-shm"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.db");
            fs::write(&path, "").unwrap();
            assert_eq!(
                check_to_write(&path, TWO).unwrap(),
                0,
                "of a process that was killed while it made it"
            );
            fs::create_dir(dir.path().join(trace)).unwrap();
            for refused in [check(&path, TWO), check_to_write(&path, TWO)] {
                assert!(
                    matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains(trace)),
                    "{refused:?}"
                );
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.db");
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        for refused in [check(&pipe, TWO), check_to_write(&pipe, TWO)] {
            assert!(
                matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains("a pipe")),
                "{refused:?}"
            );
        }
    }

    #[test]
    fn unsupported_files_are_rejected_and_left_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let newer = dir.path().join("newer.db");
        Connection::open(&newer)
            .unwrap()
            .pragma_update(None, "user_version", 9)
            .unwrap();
        let foreign = dir.path().join("foreign.db");
        Connection::open(&foreign)
            .unwrap()
            .execute_batch("CREATE TABLE theirs (x)")
            .unwrap();
        let garbage = dir.path().join("garbage.db");
        fs::write(
            &garbage,
            "these are not the pages you are looking for".repeat(200),
        )
        .unwrap();
        for path in [newer, foreign, garbage] {
            let before = fs::read(&path).unwrap();
            let refused = check(&path, TWO).unwrap_err();
            match path.file_stem().and_then(|stem| stem.to_str()) {
                Some("newer") => {
                    assert_eq!(refused, StoreError::NewerFormat { found: 9, known: 2 })
                }
                _ => assert!(
                    matches!(&refused, StoreError::Corrupt(why) if why.contains("move it to another folder")),
                    "{refused}"
                ),
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            3,
            "nothing was left beside them"
        );
    }
}
