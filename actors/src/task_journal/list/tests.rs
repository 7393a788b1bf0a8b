//! Tests of which journals are deleted.

use soong_protocol::{GoalTree, RunMode, StatsPair};

use super::*;
use crate::task_journal::TaskCreated;

struct TestFolders(tempfile::TempDir);

impl TestFolders {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn home(&self) -> PathBuf {
        self.0.path().join("home")
    }

    fn project(&self) -> PathBuf {
        self.0.path().join("project")
    }

    /// Writes a journal with this text below a folder of journals.
    fn put(&self, tasks: &Path, session: &str, name: &str, text: &[u8]) -> PathBuf {
        let path = tasks.join(session).join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    fn tasks(&self) -> PathBuf {
        self.project().join(".soong-agent/tasks")
    }

    fn clean_up(&self, request: TaskCleanup) -> Vec<PathBuf> {
        let report = clean_up_tasks(Some(&self.home()), &request).unwrap();
        assert!(report.failed.is_empty() && report.dry_run == request.dry_run);
        assert!(
            report
                .candidates
                .iter()
                .all(|candidate| candidate.deleted != request.dry_run)
        );
        report
            .candidates
            .into_iter()
            .map(|candidate| candidate.path)
            .collect()
    }
}

fn line(wal_seq: u64, session: &str, event: TaskEvent) -> Vec<u8> {
    let session_id = SessionId::new(session);
    let run_id = RunId::new("r");
    let line = TaskLine {
        wal_seq,
        session_id,
        run_id,
        goal_id: None,
        event,
        created_at: Timestamp::default(),
    };
    [serde_json::to_vec(&line).unwrap(), b"\n".to_vec()].concat()
}

fn created(session: &str, project: &Path) -> Vec<u8> {
    let created = TaskCreated {
        mission: "explore".into(),
        task: "explore".into(),
        mode: RunMode::Orchestrator,
        model: "m".into(),
        agent_type: "orchestrator".into(),
        project_dir: project.to_owned(),
        goal_tree: GoalTree::new("explore"),
    };
    line(1, session, TaskEvent::TaskCreated(Box::new(created)))
}

fn end(session: &str, status: TaskStatus) -> Vec<u8> {
    let stats = StatsPair::zero();
    let event = match status {
        TaskStatus::Completed => TaskEvent::TaskCompleted {
            summary: "x".into(),
            stats,
        },
        TaskStatus::Cancelled => TaskEvent::TaskCancelled {
            end_reason: soong_protocol::EndReason::Cancelled,
            stats,
        },
        _ => {
            let error = ErrorInfo::new(ErrorCode::Interrupted, "x");
            TaskEvent::TaskFailed {
                error,
                end_reason: soong_protocol::EndReason::Interrupted,
                stats,
            }
        }
    };
    line(2, session, event)
}

#[test]
fn task_2_cleanup_deletes_only_ended_tasks() {
    let folder = TestFolders::new();
    let tasks = folder.tasks();
    let begun = created("s", &folder.project());
    let ended = |status| [begun.clone(), end("s", status)].concat();
    let completed = ended(TaskStatus::Completed);
    for (name, text) in [
        ("completed", completed.clone()),
        ("failed", ended(TaskStatus::Failed)),
        ("cancelled", ended(TaskStatus::Cancelled)),
        ("at-work", begun.clone()),
        ("torn", completed[..completed.len() - 1].to_vec()),
        (
            "torn-in-the-line",
            completed[..completed.len() - 9].to_vec(),
        ),
        (
            "with-more-behind",
            [completed.clone(), b"{\"wal".to_vec()].concat(),
        ),
        (
            "gap",
            [
                begun.clone(),
                line(
                    3,
                    "s",
                    TaskEvent::TaskCompleted {
                        summary: "x".into(),
                        stats: StatsPair::zero(),
                    },
                ),
            ]
            .concat(),
        ),
        (
            "of-another-session",
            [begun.clone(), end("t", TaskStatus::Completed)].concat(),
        ),
        ("no-line", b"task_completed\n".to_vec()),
        ("empty", Vec::new()),
    ] {
        folder.put(&tasks, "s", &format!("{name}.wal.jsonl"), &text);
    }
    let listed = project_tasks(Some(&folder.home()), &folder.project()).unwrap();
    assert_eq!(listed.len(), 11);
    let whole = listed
        .iter()
        .find(|task| task.path.ends_with("completed.wal.jsonl"))
        .unwrap();
    assert_eq!(
        (whole.status, whole.lines, whole.mission.as_str()),
        (TaskStatus::Completed, 2, "explore")
    );
    assert_eq!(
        (whole.kept_in, whole.run_id.as_ref().unwrap().as_str()),
        (TaskPlace::Project, "r")
    );

    let plain = || TaskCleanup::dry_run_for(folder.project());
    let path = |name: &str| tasks.join("s").join(format!("{name}.wal.jsonl"));
    for (request, want) in [
        (plain(), vec!["completed"]),
        (
            TaskCleanup {
                include_failed: true,
                ..plain()
            },
            vec!["completed", "failed"],
        ),
        (
            TaskCleanup {
                include_cancelled: true,
                ..plain()
            },
            vec!["cancelled", "completed"],
        ),
        (
            TaskCleanup {
                older_than_ms: Some(3_600_000),
                ..plain()
            },
            vec![],
        ),
        (
            TaskCleanup {
                older_than_ms: Some(0),
                ..plain()
            },
            vec!["completed"],
        ),
    ] {
        let mut found = folder.clean_up(request.clone());
        found.sort();
        assert_eq!(
            found,
            want.into_iter().map(path).collect::<Vec<_>>(),
            "{request:?}"
        );
        assert!(path("completed").exists(), "a dry run deletes nothing");
    }
    let all = TaskCleanup {
        dry_run: false,
        include_failed: true,
        include_cancelled: true,
        ..plain()
    };
    assert_eq!(folder.clean_up(all.clone()).len(), 3);
    assert_eq!(project_tasks(None, &folder.project()).unwrap().len(), 8);
    assert_eq!(folder.clean_up(all), Vec::<PathBuf>::new());
}

#[test]
fn age_is_taken_from_file_modification_time() {
    let folder = TestFolders::new();
    let text = [
        created("s", &folder.project()),
        end("s", TaskStatus::Completed),
    ]
    .concat();
    let path = folder.put(&folder.tasks(), "s", "x.wal.jsonl", &text);
    let old = SystemTime::now() - Duration::from_secs(7_200);
    fs::File::options()
        .append(true)
        .open(&path)
        .unwrap()
        .set_modified(old)
        .unwrap();
    for (hours, goes) in [(1, true), (3, false)] {
        let request = TaskCleanup {
            older_than_ms: Some(hours * 3_600_000),
            ..TaskCleanup::dry_run_for(folder.project())
        };
        let report = clean_up_tasks(None, &request).unwrap();
        assert_eq!(report.candidates.len(), usize::from(goes), "{hours} h");
        for candidate in report.candidates {
            assert_eq!(
                candidate.reason,
                "the task was completed, last written 7200 s ago"
            );
            assert_eq!(
                candidate.modified_at,
                to_timestamp(fs::metadata(&path).unwrap().modified().unwrap())
            );
        }
    }
    // A journal that was written since it was listed is kept.
    assert!(!delete(&path, Timestamp::from_millis(1)).unwrap() && path.exists());
}

#[test]
fn task_2_other_files_are_never_deleted() {
    let folder = TestFolders::new();
    let text = [
        created("s", &folder.project()),
        end("s", TaskStatus::Completed),
    ]
    .concat();
    let tasks = folder.tasks();
    let project = folder.project();
    let other_files = [
        folder.put(&tasks, "s", "notes.md", &text),
        folder.put(&tasks, "s", "x.wal.jsonl.damaged-1", &text),
        folder.put(&tasks, "s", "x.jsonl", &text),
        folder.put(&tasks, "s/deeper", "x.wal.jsonl", &text),
        folder.put(&tasks, "no session", "x.wal.jsonl", &text),
        folder.put(&tasks, ".", "x.wal.jsonl", &text),
        folder.put(
            &project.join(".soong-agent/plans"),
            "s",
            "x.wal.jsonl",
            &text,
        ),
        folder.put(
            &folder.home().join("tasks"),
            "s",
            "other-project.wal.jsonl",
            &created("s", Path::new("/other")),
        ),
    ];
    fs::create_dir_all(tasks.join("s/y.wal.jsonl")).unwrap();
    #[cfg(unix)]
    {
        let outside = folder.put(folder.0.path(), "s", "outside.wal.jsonl", &text);
        std::os::unix::fs::symlink(&outside, tasks.join("s/link.wal.jsonl")).unwrap();
        std::os::unix::fs::symlink(outside.parent().unwrap(), tasks.join("linked")).unwrap();
    }
    let goes = [
        folder.put(&tasks, "s", "x.wal.jsonl", &text),
        folder.put(
            &tasks,
            "emptied",
            "x.wal.jsonl",
            &[
                created("emptied", &project),
                end("emptied", TaskStatus::Completed),
            ]
            .concat(),
        ),
        folder.put(
            &folder.home().join("tasks"),
            "s",
            "this-project.wal.jsonl",
            &text,
        ),
    ];
    let request = TaskCleanup {
        dry_run: false,
        ..TaskCleanup::dry_run_for(&project)
    };
    let mut deleted = folder.clean_up(request);
    deleted.sort();
    let mut want = goes.to_vec();
    want.sort();
    assert_eq!(deleted, want);
    assert!(
        other_files.iter().all(|path| path.exists()),
        "{other_files:?}"
    );
    assert!(
        !tasks.join("emptied").exists(),
        "an empty folder is left by nobody"
    );
    assert!(tasks.join("s").exists() && folder.home().join("tasks/s").exists());
    #[cfg(unix)]
    assert!(folder.0.path().join("s/outside.wal.jsonl").exists());
}

#[test]
fn project_without_journals_lists_no_tasks() {
    let folder = TestFolders::new();
    fs::create_dir(folder.project()).unwrap();
    assert_eq!(project_tasks(None, &folder.project()).unwrap(), []);
    assert_eq!(
        project_tasks(Some(&folder.home()), &folder.project()).unwrap(),
        []
    );
    fs::write(folder.project().join(".soong-agent"), "a file").unwrap();
    assert_eq!(project_tasks(None, &folder.project()).unwrap(), []);
}
