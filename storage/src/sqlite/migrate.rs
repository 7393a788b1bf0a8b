//! The database's format: which version a file has, and the way up to this build's (DUR-5).
//!
//! Forward only, by `PRAGMA user_version`; each step is one transaction together with its number.
//! A file that this build cannot serve is looked at read-only and left as it is.
//! Not here: what the tables mean (`sqlite/*.rs`).

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags, Transaction, TransactionBehavior};

use super::store_error;
use crate::store::StoreError;

/// The steps of this build, oldest first; step `n` leads to version `n`, counted from 1.
pub(crate) const STEPS: &[&str] = &[
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
];

/// Refuses a file that is newer than `steps`, no database, or another program's; changes nothing.
///
/// Returns the file's version: 0 where there is no file yet or an empty one.
pub(crate) fn check(path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    match size(path)? {
        None => return Ok(0),
        Some(0) => return empty(path),
        Some(_) => {}
    }
    let conn = look(path).map_err(|error| named(path, error))?;
    let found = version(&conn).map_err(|error| named(path, error))?;
    let known = newest(steps);
    if found > known {
        return Err(StoreError::Newer { found, known });
    }
    let tables: u64 = conn
        .query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get::<_, i64>(0))
        .map(i64::unsigned_abs)
        .map_err(|error| named(path, error))?;
    if found == 0 && tables > 0 {
        return Err(StoreError::Corrupt(format!(
            "{} is a database of another program: move it away or choose another home",
            path.display()
        )));
    }
    Ok(found)
}

/// Returns the size of the file in bytes; `None` = there is none. Refuses what is no ordinary file: to open a pipe would
/// wait for its other end.
fn size(path: &Path) -> Result<Option<u64>, StoreError> {
    let refuse = |what: &str| {
        let why = "and no database: move it away or choose another home";
        Err(StoreError::Corrupt(format!("{} is {what} {why}", path.display())))
    };
    match fs::metadata(path) {
        Ok(file) if file.is_dir() => refuse("a folder"),
        Ok(file) if !file.is_file() => refuse("a pipe, a device or a socket"),
        Ok(file) => Ok(Some(file.len())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && path.is_symlink() => refuse("a link to nothing"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::Io(format!("{}: {error}", path.display()))),
    }
}

/// Refuses an empty database file if other files of a home exist: opening it would silently start a new history.
fn empty(path: &Path) -> Result<u32, StoreError> {
    let traces = [path.with_file_name("sessions"), beside(path, "-wal"), beside(path, "-shm")];
    match traces.iter().find(|trace| trace.exists()) {
        None => Ok(0),
        Some(trace) => Err(StoreError::Corrupt(format!(
            "{} is empty, but {} exists, so the database was truncated: restore a backup; or, to start without its \
             history, move both away",
            path.display(),
            trace.display()
        ))),
    }
}

/// Appends an ending to the file name.
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// Creates a database in the format of `steps` atomically. The file must not exist.
pub(crate) fn create(path: &Path, steps: &[&str]) -> Result<(), StoreError> {
    let failed = |error: std::io::Error| StoreError::Io(format!("{} cannot be made: {error}", path.display()));
    // SQLite would take the log of an earlier database for that of the new one.
    for log in [beside(path, "-wal"), beside(path, "-journal")] {
        if log.metadata().is_ok_and(|log| log.len() > 0) {
            let (path, log) = (path.display(), log.display());
            let why =
                format!("{path} does not exist, but its log {log} does: restore the database, or move the log away");
            return Err(StoreError::Corrupt(why));
        }
    }
    let draft = beside(path, ".new");
    if draft.exists() {
        fs::remove_file(&draft).map_err(failed)?; // of a process that was killed
    }
    let conn = Connection::open(&draft).map_err(|error| named(&draft, error))?;
    // A draft that a crash cuts off is thrown away: nothing of it has to be safe before it is whole.
    conn.query_row("PRAGMA journal_mode = MEMORY", [], |_| Ok(())).map_err(|error| named(&draft, error))?;
    migrate(&draft, &conn, steps)?;
    conn.close().map_err(|(_, error)| named(&draft, error))?;
    let sync = |path: &Path| fs::File::open(path)?.sync_all();
    sync(&draft).and_then(|()| fs::rename(&draft, path)).map_err(failed)?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    sync(folder.unwrap_or(Path::new("."))).map_err(failed)
}

/// The same as [`check`] for the writer: first takes back what a process that was killed while it made the database had
/// begun. Until the database keeps a log (WAL), SQLite can do so only for somebody who may write.
pub(crate) fn check_to_write(path: &Path, steps: &[&str]) -> Result<u32, StoreError> {
    let is_begun = |error: &rusqlite::Error| {
        error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_READONLY_ROLLBACK)
    };
    if size(path)?.is_none() {
        return Ok(0);
    }
    let looked = look(path).and_then(|conn| version(&conn));
    if looked.as_ref().is_err_and(is_begun) {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        // Reading rolls back.
        let found = Connection::open_with_flags(path, flags).and_then(|conn| version(&conn));
        found.map_err(|error| named(path, error))?;
    }
    check(path, steps)
}

fn look(path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)
}

/// Brings the open database at `path` up to the newest of `steps`.
///
/// A database that has something to lose is copied beside itself first.
pub(crate) fn migrate(path: &Path, conn: &Connection, steps: &[&str]) -> Result<(), StoreError> {
    let found = version(conn).map_err(|error| named(path, error))?;
    if found > 0 && found < newest(steps) {
        back_up(path, conn, found)?;
    }
    for (number, step) in (1_u32..).zip(steps) {
        if number > found {
            apply(conn, step, number).map_err(|error| named(path, error))?;
        }
    }
    Ok(())
}

/// Reads the format's version.
pub(crate) fn version(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA user_version", [], |row| row.get(0))
}

/// Reads the number that tells a database from others: SQLite's `application_id`, which `soong` has no other use for.
pub(crate) fn store_id(conn: &Connection) -> rusqlite::Result<u32> {
    conn.query_row("PRAGMA application_id", [], |row| row.get::<_, i32>(0)).map(i32::cast_unsigned)
}

/// Gives a database a number that has none.
pub(crate) fn identify(conn: &Connection) -> rusqlite::Result<()> {
    if store_id(conn)? != 0 {
        return Ok(());
    }
    let number: i32 = conn.query_row("SELECT 1 + (random() & 0x3fffffff)", [], |row| row.get(0))?;
    conn.pragma_update(None, "application_id", number)
}

/// Takes the number from a copy: where it is restored, it is another store.
pub(crate) fn make_anonymous(copy: &Path) -> rusqlite::Result<()> {
    let conn = Connection::open(copy)?;
    conn.pragma_update(None, "application_id", 0)?;
    conn.close().map_err(|(_, error)| error)
}

/// Returns the version that the last of `steps` leads to.
pub(crate) fn newest(steps: &[&str]) -> u32 {
    u32::try_from(steps.len()).unwrap_or(u32::MAX)
}

fn apply(conn: &Connection, step: &str, number: u32) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(conn, TransactionBehavior::Immediate)?;
    transaction.execute_batch(step)?;
    transaction.pragma_update(None, "user_version", number)?;
    transaction.commit()
}

/// Copies the database to `<file>.v<version>.bak`: whole and on disk, or not at all.
fn back_up(path: &Path, conn: &Connection, version: u32) -> Result<(), StoreError> {
    let whole = beside(path, &format!(".v{version}.bak"));
    let half = beside(&whole, ".half");
    let failed = |error: std::io::Error| StoreError::Io(format!("no backup before a migration: {error}"));
    if half.exists() {
        fs::remove_file(&half).map_err(failed)?;
    }
    let target = half.to_str().ok_or_else(|| StoreError::Io(format!("{} is not valid Unicode", half.display())))?;
    conn.execute("VACUUM INTO ?1", [target]).and_then(|_| make_anonymous(&half)).map_err(|error| named(path, error))?;
    fs::File::open(&half).and_then(|file| file.sync_all()).map_err(failed)?;
    fs::rename(&half, &whole).map_err(failed)?;
    tracing::info!(backup = %whole.display(), "the database was copied before its migration");
    Ok(())
}

/// Says which file failed; a file that is no database is told so in words.
fn named(path: &Path, error: rusqlite::Error) -> StoreError {
    match store_error(error) {
        StoreError::Corrupt(why) => StoreError::Corrupt(format!(
            "{} is no database that soong can read ({why}): move it away or restore a backup",
            path.display()
        )),
        StoreError::Io(why) => StoreError::Io(format!("{}: {why}", path.display())),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &[&str] = &["CREATE TABLE a (x)", "CREATE TABLE b (y); INSERT INTO b SELECT x FROM a"];

    #[test]
    fn an_older_file_is_copied_and_then_brought_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("old.db");
        let conn = Connection::open(&path).unwrap();
        migrate(&path, &conn, &TWO[..1]).unwrap();
        conn.execute("INSERT INTO a VALUES (7)", []).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "a first step has nothing to copy");

        assert_eq!(check(&path, TWO).unwrap(), 1);
        migrate(&path, &conn, TWO).unwrap();
        assert_eq!(conn.query_row("SELECT y FROM b", [], |row| row.get::<_, i64>(0)).unwrap(), 7);
        let copy = dir.path().join("old.db.v1.bak");
        assert_eq!(check(&copy, TWO).unwrap(), 1);
        assert_eq!(version(&conn).unwrap(), 2);
    }

    #[test]
    fn a_step_that_fails_leaves_the_version_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        let conn = Connection::open(&path).unwrap();
        let broken = &["CREATE TABLE a (x)", "CREATE TABLE b (y); CREATE TABLE a (again)"];
        assert!(migrate(&path, &conn, broken).is_err());
        assert_eq!(version(&conn).unwrap(), 1);
        let b = conn.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'b'", [], |row| row.get::<_, i64>(0));
        assert_eq!(b.unwrap(), 0);
    }

    #[test]
    fn create_replaces_the_draft_of_a_killed_process() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.db");
        fs::write(dir.path().join("x.db.new"), "half of").unwrap();
        create(&path, TWO).unwrap();
        assert_eq!(check(&path, TWO).unwrap(), 2);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join("z.db-wal"), "of a database that is gone").unwrap();
        let refused = create(&dir.path().join("z.db"), TWO).unwrap_err();
        assert!(refused.to_string().contains("z.db-wal"), "{refused}");
        let broken = &["CREATE TABLE a (x)", "CREATE TABLE a (again)"];
        let other = dir.path().join("y.db");
        assert!(create(&other, broken).is_err() && !other.exists());
    }

    #[test]
    fn empty_files_and_pipes_are_refused() {
        for trace in ["sessions", "x.db-wal", "x.db-shm"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.db");
            fs::write(&path, "").unwrap();
            assert_eq!(check_to_write(&path, TWO).unwrap(), 0, "of a process that was killed while it made it");
            fs::create_dir(dir.path().join(trace)).unwrap();
            for refused in [check(&path, TWO), check_to_write(&path, TWO)] {
                assert!(matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains(trace)), "{refused:?}");
            }
            assert_eq!(fs::metadata(&path).unwrap().len(), 0);
        }
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe.db");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR).unwrap();
        for refused in [check(&pipe, TWO), check_to_write(&pipe, TWO)] {
            assert!(matches!(&refused, Err(StoreError::Corrupt(why)) if why.contains("a pipe")), "{refused:?}");
        }
    }

    #[test]
    fn files_that_cannot_be_served_are_refused_and_left_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let newer = dir.path().join("newer.db");
        Connection::open(&newer).unwrap().pragma_update(None, "user_version", 9).unwrap();
        let foreign = dir.path().join("foreign.db");
        Connection::open(&foreign).unwrap().execute_batch("CREATE TABLE theirs (x)").unwrap();
        let garbage = dir.path().join("garbage.db");
        fs::write(&garbage, "these are not the pages you are looking for".repeat(200)).unwrap();
        for path in [newer, foreign, garbage] {
            let before = fs::read(&path).unwrap();
            let refused = check(&path, TWO).unwrap_err();
            match path.file_stem().and_then(|stem| stem.to_str()) {
                Some("newer") => assert_eq!(refused, StoreError::Newer { found: 9, known: 2 }),
                _ => assert!(matches!(&refused, StoreError::Corrupt(why) if why.contains("move it away")), "{refused}"),
            }
            assert_eq!(fs::read(&path).unwrap(), before);
        }
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 3, "nothing was left beside them");
    }
}
