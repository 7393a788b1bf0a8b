//! Files as left by crashes, full disks and users.

use soong_protocol::{GoalId, SessionId, Timestamp};

use super::*;
use crate::task_journal::line::TaskEvent;

fn run() -> RunId {
    RunId::new("r")
}

fn line(wal_seq: u64) -> TaskLine {
    TaskLine {
        wal_seq,
        session_id: SessionId::new("s"),
        run_id: run(),
        goal_id: Some(GoalId::new("1")),
        event: TaskEvent::GoalFocused {
            goal_id: GoalId::new("1"),
        },
        created_at: Timestamp::from_millis(1_763_700_000_000 + wal_seq as i64),
    }
}

fn lines(upto: u64) -> Vec<TaskLine> {
    (1..=upto).map(line).collect()
}

fn text(lines: &[TaskLine]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [serde_json::to_vec(line).unwrap(), b"\n".to_vec()].concat())
        .collect()
}

/// Writes all lines to the file at `path`, like each attempt does.
fn catch_up(path: &Path, all: &[TaskLine]) -> io::Result<()> {
    let mut file = JournalFile::open(path.to_owned(), &run())?;
    file.append(all)?;
    file.sync()
}

#[test]
fn file_torn_at_any_byte_is_completed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.wal.jsonl");
    let all = lines(30);
    let whole = text(&all);
    let ends: Vec<usize> = (0..=all.len())
        .map(|count| text(&all[..count]).len())
        .collect();
    for cut in whole.len() - 4096..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let whole_lines = ends.iter().rposition(|end| *end <= cut).unwrap();
        let file = JournalFile::open(path.clone(), &run()).unwrap();
        assert_eq!(
            (file.unverified_lines.len(), file.size),
            (whole_lines, ends[whole_lines] as u64),
            "cut at {cut}"
        );
        assert_eq!(
            fs::metadata(&path).unwrap().len(),
            file.size,
            "cut at {cut}: only the torn line is dropped"
        );
        drop(file);
        for _ in 0..2 {
            JournalFile::open(path.clone(), &run())
                .unwrap()
                .append(&all)
                .unwrap();
            assert!(fs::read(&path).unwrap() == whole, "cut at {cut}");
        }
    }
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        1,
        "nothing was set aside"
    );
}

#[test]
fn file_is_continued_or_rewritten() {
    let all = lines(4);
    let whole = text(&all);
    let with = |at: usize, with: &[u8]| {
        let mut parts: Vec<Vec<u8>> = all
            .iter()
            .map(|line| text(std::slice::from_ref(line)))
            .collect();
        parts[at] = with.to_vec();
        parts.concat()
    };
    let other = text(&[TaskLine {
        run_id: RunId::new("other"),
        ..line(1)
    }]);
    let late = text(&[TaskLine {
        created_at: Timestamp::from_millis(1),
        ..line(4)
    }]);
    for (what, before, is_set_aside) in [
        ("no line", Vec::new(), false),
        ("all lines", whole.clone(), false),
        (
            "a last line that is no JSON",
            with(3, b"{\"wal_seq\":4,\n"),
            false,
        ),
        (
            "zeros at the end, after a power loss",
            with(3, &[0; 300]),
            false,
        ),
        ("a broken line in the middle", with(1, b"{\"wal_\n"), true),
        ("zeros in the middle", with(1, &[0; 300]), true),
        ("a line that is missing", with(1, b""), true),
        (
            "a line that is there twice",
            [text(&lines(2)), text(&lines(4)[1..])].concat(),
            true,
        ),
        ("another run's first line", with(0, &other), true),
        (
            "a last line that the database does not know",
            with(3, &late),
            true,
        ),
        ("more lines than the database has", text(&lines(6)), true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.wal.jsonl");
        fs::write(&path, &before).unwrap();
        // Lines that differ from the database's are noticed when they are compared; then the file
        // is opened once more.
        if catch_up(&path, &all).is_err() {
            catch_up(&path, &all).unwrap();
        }
        assert_eq!(
            String::from_utf8(fs::read(&path).unwrap()).unwrap(),
            String::from_utf8(whole.clone()).unwrap(),
            "{what}"
        );
        let damaged_path = dir.path().join("x.wal.jsonl.damaged-1");
        assert_eq!(damaged_path.exists(), is_set_aside, "{what}");
        assert!(
            !is_set_aside || fs::read(&damaged_path).unwrap() == before,
            "{what}: kept as it was"
        );
    }
}

#[test]
fn damaged_files_are_kept_under_distinct_names() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.wal.jsonl");
    for count in 1..=3 {
        fs::write(&path, "no\nline\n").unwrap();
        catch_up(&path, &lines(2)).unwrap();
        assert!(
            dir.path()
                .join(format!("x.wal.jsonl.damaged-{count}"))
                .exists()
        );
    }
}

#[test]
fn removed_file_is_not_complete() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.wal.jsonl");
    let mut file = JournalFile::open(path.clone(), &run()).unwrap();
    file.append(&lines(1)).unwrap();
    fs::remove_file(&path).unwrap();
    file.append(&lines(2)[1..]).unwrap();
    assert!(file.sync().is_err());
    catch_up(&path, &lines(2)).unwrap();
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(catch_up(&path, &lines(2)).is_err(), "a folder is no file");
}
