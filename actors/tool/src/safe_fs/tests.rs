//! Tests of opening and writing below a root: special files, swapped paths, interrupted writes.

use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering::SeqCst},
    time::{Duration, Instant},
};

use rustix::io::Errno;

use super::*;
use crate::{path_policy::PathPolicy, project_path::check_cancelled, testing::TestProject};

/// Number of attempts to swap a path between its resolution and its opening.
const RACES: usize = 10_000;

fn modes(overwrite: bool) -> WriteMode {
    WriteMode {
        overwrite,
        create_dirs: true,
    }
}

fn write(
    project: &TestProject,
    path: &str,
    content: &str,
    overwrite: bool,
) -> Result<bool, ErrorInfo> {
    let resolved = PathPolicy::default().resolve_new(&project.path(), path)?;
    write_file(
        &resolved,
        content.as_bytes(),
        modes(overwrite),
        &CancellationToken::new(),
        |_| true,
    )
}

#[test]
fn file_is_replaced_only_with_overwrite() {
    let project = TestProject::new(&[("a", "old")]);
    let content = |name: &str| fs::read_to_string(project.path().join(name)).unwrap();
    assert_eq!(
        write(&project, "a", "new", false).unwrap_err().code,
        ErrorCode::PathConflict
    );
    assert_eq!(content("a"), "old");
    assert!(!write(&project, "a", "new", true).unwrap());
    assert!(write(&project, "x/y/z", "made", false).unwrap());
    assert_eq!(
        (content("a"), content("x/y/z")),
        ("new".to_owned(), "made".to_owned())
    );
    assert_eq!(
        write(&project, "x", "over a folder", true)
            .unwrap_err()
            .code,
        ErrorCode::PathConflict
    );
    let names: Vec<_> = fs::read_dir(project.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "no draft is left: {names:?}");
}

#[test]
fn replaced_file_keeps_mode_and_breaks_hard_links() {
    use std::os::unix::fs::PermissionsExt;
    let project = TestProject::new(&[("run.sh", "old")]);
    let path = project.path().join("run.sh");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
    fs::hard_link(&path, project.path().join("twin")).unwrap();
    write(&project, "run.sh", "new", true).unwrap();
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o750
    );
    assert_eq!(
        fs::read_to_string(project.path().join("twin")).unwrap(),
        "old",
        "the other name may lie outside"
    );
}

/// An access control list with an entry for user 12345, as the kernel stores it: version, then tag,
/// permissions and id.
const ACCESS_CONTROL_LIST: [u8; 44] = [
    2, 0, 0, 0, // version
    0x01, 0, 6, 0, 255, 255, 255, 255, // owner
    0x02, 0, 4, 0, 0x39, 0x30, 0, 0, // user 12345
    0x04, 0, 4, 0, 255, 255, 255, 255, // group
    0x10, 0, 4, 0, 255, 255, 255, 255, // mask
    0x20, 0, 0, 0, 255, 255, 255, 255, // others
];

#[test]
#[cfg(target_os = "linux")]
fn replaced_file_keeps_its_attributes() {
    use rustix::fs::{XattrFlags, getxattr, setxattr};
    let project = TestProject::new(&[("a", "old"), ("plain", "old")]);
    let path = project.path().join("a");
    let attributes = [
        ("user.note", &b"kept"[..]),
        ("system.posix_acl_access", &ACCESS_CONTROL_LIST[..]),
    ];
    for (name, value) in attributes {
        if setxattr(&path, name, value, XattrFlags::empty()) == Err(Errno::OPNOTSUPP) {
            eprintln!("skipped: the file system of the test has no extended attributes");
            return;
        }
    }
    write(&project, "a", "new", true).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    for (name, expected) in attributes {
        let mut value = [0; 100];
        let length = getxattr(&path, name, &mut value[..]).unwrap();
        assert_eq!(&value[..length], expected, "{name}");
    }
    // A list that new files of the folder inherit is not that of the replaced file.
    setxattr(
        project.path(),
        "system.posix_acl_default",
        &ACCESS_CONTROL_LIST[..],
        XattrFlags::empty(),
    )
    .unwrap();
    write(&project, "plain", "new", true).unwrap();
    let plain = project.path().join("plain");
    assert_eq!(
        getxattr(&plain, "system.posix_acl_access", &mut [0; 100][..]),
        Err(Errno::NODATA)
    );
}

#[test]
fn cancelled_write_changes_nothing() {
    let project = TestProject::new(&[("a", "old")]);
    let resolved = PathPolicy::default()
        .resolve_existing(&project.path(), "a")
        .unwrap();
    let cancel = CancellationToken::new();
    cancel.cancel();
    assert!(check_cancelled(&cancel).is_err());
    assert!(write_file(&resolved, b"new", modes(true), &cancel, |_| true).is_err());
    assert!(
        write_file(
            &resolved,
            b"new",
            modes(true),
            &CancellationToken::new(),
            |_: &mut File| false
        )
        .is_err()
    );
    assert_eq!(fs::read_to_string(project.path().join("a")).unwrap(), "old");
    assert_eq!(fs::read_dir(project.path()).unwrap().count(), 1);
}

#[test]
fn special_files_are_rejected_without_blocking() {
    let project = TestProject::new(&[]);
    let make = |program: &str, arguments: &[&str]| {
        let made = std::process::Command::new(program)
            .args(arguments)
            .current_dir(project.path())
            .status();
        made.is_ok_and(|status| status.success())
    };
    let mut tried = Vec::new();
    for (name, made) in [
        ("pipe", make("mkfifo", &["pipe"])),
        ("zero", make("mknod", &["zero", "c", "1", "5"])),
        ("folder", make("mkdir", &["folder"])),
    ] {
        if made {
            let start = Instant::now();
            let resolved = PathPolicy::default()
                .resolve_existing(&project.path(), name)
                .unwrap();
            assert_eq!(
                open_file(&resolved).unwrap_err().code,
                ErrorCode::UnsupportedMedia,
                "{name}"
            );
            assert_eq!(
                write(&project, name, "x", true).unwrap_err().code,
                ErrorCode::PathConflict,
                "{name}"
            );
            assert!(start.elapsed().as_secs() < 5, "{name} was waited for");
            tried.push(name);
        }
    }
    let _socket = std::os::unix::net::UnixListener::bind(project.path().join("socket")).unwrap();
    let socket_path = PathPolicy::default()
        .resolve_existing(&project.path(), "socket")
        .unwrap();
    assert_eq!(
        open_file(&socket_path).unwrap_err().code,
        ErrorCode::UnsupportedMedia
    );
    assert!(tried.contains(&"folder"));
}

/// Swaps a name between a file or folder of the project and a symlink to the outside, as fast as
/// possible.
fn with_swapping<T>(
    project: &TestProject,
    name: &str,
    outside: &std::path::Path,
    work: impl FnOnce() -> T,
) -> T {
    let own = project.path().join("own");
    let link = project.path().join("link");
    let resolved = project.path().join(name);
    fs::rename(&resolved, &own).unwrap();
    std::os::unix::fs::symlink(outside, &link).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(SeqCst) {
                for from in [&own, &link] {
                    fs::rename(from, &resolved).unwrap();
                    fs::rename(&resolved, from).unwrap();
                }
            }
        });
        let result = work();
        done.store(true, SeqCst);
        result
    })
}

#[test]
fn path_swapped_after_check_gives_no_access_outside() {
    use std::io::Read;
    let outside = TestProject::new(&[("file", "SECRET"), ("folder/file", "SECRET")]);
    for (swapped, target) in [("file", "file"), ("folder", "folder")] {
        let project = TestProject::new(&[("file", "own"), ("folder/file", "own")]);
        let path = if swapped == "file" {
            "file"
        } else {
            "folder/file"
        };
        // Resolved once while the path is valid, as a check before the swap would have seen it.
        let roots = PathPolicy::default();
        let known = roots.resolve_existing(&project.path(), path).unwrap();
        let mut read = 0;
        let mut written = 0;
        let mut refused = 0;
        with_swapping(&project, swapped, &outside.path().join(target), || {
            for round in 0..RACES {
                let resolved = match round % 2 {
                    0 => known.clone(),
                    _ => roots
                        .resolve_existing(&project.path(), path)
                        .unwrap_or_else(|_| known.clone()),
                };
                let mut text = String::new();
                match open_file(&resolved) {
                    Ok((mut file, _)) => {
                        file.read_to_string(&mut text).unwrap();
                        assert_ne!(text, "SECRET", "round {round} of {swapped}");
                        read += 1;
                    }
                    Err(_) => refused += 1,
                }
                if round % 4 == 0 {
                    let mode = WriteMode {
                        overwrite: true,
                        create_dirs: false,
                    };
                    let done =
                        write_file(&resolved, b"own", mode, &CancellationToken::new(), |_| true);
                    written += usize::from(done.is_ok());
                }
            }
        });
        assert!(
            read > 0 && refused > 0,
            "{swapped}: {read} read, {refused} refused, {written} written"
        );
        let content = |path: &str| fs::read_to_string(outside.path().join(path)).unwrap();
        assert_eq!(
            (content("file"), content("folder/file")),
            ("SECRET".to_owned(), "SECRET".to_owned())
        );
        assert_eq!(
            fs::read_dir(outside.path()).unwrap().count(),
            2,
            "nothing was put there"
        );
        assert_eq!(
            fs::read_dir(outside.path().join("folder")).unwrap().count(),
            1,
            "nothing was put there"
        );
    }
}

#[test]
#[cfg(target_os = "linux")]
fn root_replaced_by_symlink_is_not_opened() {
    let project = TestProject::new(&[("above/root/a", "old"), ("elsewhere/root/a", "other")]);
    let root = project.path().join("above/root");
    let resolved = PathPolicy::default().resolve_existing(&root, "a").unwrap();
    fs::rename(project.path().join("above"), project.path().join("before")).unwrap();
    std::os::unix::fs::symlink(
        project.path().join("elsewhere"),
        project.path().join("above"),
    )
    .unwrap();
    assert_eq!(
        open_file(&resolved).unwrap_err().code,
        ErrorCode::PathConflict
    );
    assert!(
        write_file(
            &resolved,
            b"new",
            modes(true),
            &CancellationToken::new(),
            |_| true
        )
        .is_err()
    );
    assert_eq!(
        fs::read_to_string(project.path().join("elsewhere/root/a")).unwrap(),
        "other"
    );
}

#[test]
fn folder_is_opened_safely_without_openat2() {
    let outside = TestProject::new(&[("a", "SECRET")]);
    let project = TestProject::new(&[("x/y/a", "own"), ("file", "own")]);
    std::os::unix::fs::symlink(outside.path(), project.path().join("x/link")).unwrap();
    for (path, create, want) in [
        ("", false, None),
        ("x/y", false, None),
        ("x/link", false, Some(Errno::LOOP)),
        ("x/link/b", true, Some(Errno::LOOP)),
        ("file", false, Some(Errno::NOTDIR)),
        ("new/deep", false, Some(Errno::NOENT)),
        ("new/deep", true, None),
    ] {
        let root = fs::File::open(project.path()).unwrap().into();
        let opened = unix::open_each_component(root, Path::new(path), create);
        let error = opened.err().and_then(|error| error.raw_os_error());
        assert_eq!(error, want.map(Errno::raw_os_error), "{path:?}");
    }
    assert!(project.path().join("new/deep").is_dir());
    assert_eq!(
        fs::read_dir(outside.path()).unwrap().count(),
        1,
        "nothing was put there"
    );
}

/// Names in the folder of a project, in order.
fn names(project: &TestProject) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(project.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Another program changes the file between the check and the replacement: it keeps its file.
#[test]
fn file_that_is_replaced_after_the_check_is_kept() {
    type Change = fn(&std::path::Path);
    let changes: [(&str, Change, Option<&str>); 4] = [
        (
            "another file of the same length",
            |path| fs::rename(path.with_file_name("other"), path).unwrap(),
            Some("two"),
        ),
        (
            "other content in the same file",
            |path| fs::write(path, "two").unwrap(),
            Some("two"),
        ),
        ("no file", |path| fs::remove_file(path).unwrap(), None),
        (
            "a link",
            |path| {
                fs::remove_file(path).unwrap();
                std::os::unix::fs::symlink("other", path).unwrap();
            },
            Some("two"),
        ),
    ];
    for (what, change, want) in changes {
        let project = TestProject::new(&[("a", "one"), ("other", "two")]);
        let path = project.path().join("a");
        let resolved = PathPolicy::default()
            .resolve_existing(&project.path(), "a")
            .unwrap();
        let mut checks = 0;
        let outcome = write_file(
            &resolved,
            b"new",
            modes(true),
            &CancellationToken::new(),
            |file| {
                let is_expected = has_content(file, b"one");
                checks += 1;
                if checks == 1 {
                    change(&path);
                }
                is_expected
            },
        );
        assert_eq!(outcome.unwrap_err().code, ErrorCode::PathConflict, "{what}");
        assert_eq!(fs::read_to_string(&path).ok().as_deref(), want, "{what}");
        assert!(
            names(&project)
                .iter()
                .all(|name| !name.starts_with(".soong-")),
            "{what}: {:?}",
            names(&project)
        );
    }
}

/// Two writes of this process cannot both check the same content.
#[test]
fn second_write_waits_for_the_first() {
    let project = TestProject::new(&[("a", "one")]);
    let path = project.path();
    let write_checked = move |content: &'static str, during_check: &dyn Fn()| {
        let resolved = PathPolicy::default().resolve_existing(&path, "a").unwrap();
        write_file(
            &resolved,
            content.as_bytes(),
            modes(true),
            &CancellationToken::new(),
            |file| {
                let is_expected = has_content(file, b"one");
                during_check();
                is_expected
            },
        )
    };
    let other = write_checked.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::sync::Mutex::new(None);
    let first = write_checked("first", &|| {
        let mut thread = thread.lock().unwrap();
        if thread.is_none() {
            let other = other.clone();
            let sender = sender.clone();
            *thread = Some(std::thread::spawn(move || {
                sender.send(other("second", &|| {})).unwrap()
            }));
            let early = receiver.recv_timeout(std::time::Duration::from_millis(100));
            assert!(
                early.is_err(),
                "the second write has ended before the first"
            );
        }
    });
    assert!(first.is_ok());
    thread.into_inner().unwrap().unwrap().join().unwrap();
    let second = receiver.recv().unwrap();
    assert_eq!(second.unwrap_err().code, ErrorCode::PathConflict);
    assert_eq!(
        fs::read_to_string(project.path().join("a")).unwrap(),
        "first"
    );
}

/// A file that another program writes between the check and the change stays.
#[test]
fn file_that_changes_meanwhile_is_neither_replaced_nor_removed() {
    type Change = fn(&Path);
    let nothing: Change = |_| {};
    let other: Change = |path| fs::rename(path.with_file_name("other"), path).unwrap();
    let rewritten: Change = |path| fs::write(path, "two").unwrap();
    let removed: Change = |path| fs::remove_file(path).unwrap();
    for (content, change, is_changed, remaining) in [
        ("one", nothing, false, None),
        ("two", nothing, true, Some("two")),
        ("one", other, true, Some("two")),
        ("one", rewritten, true, Some("two")),
        ("one", removed, true, None),
    ] {
        for removes in [false, true] {
            let project = TestProject::new(&[("a", content), ("other", "two")]);
            let path = project.path().canonicalize().unwrap().join("a");
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640))
                .unwrap();
            let mut checks = 0;
            let check = |file: &mut fs::File| {
                let is_expected = has_content(file, b"one");
                checks += 1;
                if checks == 1 {
                    change(&path);
                }
                is_expected
            };
            let outcome = if removes {
                remove_if(&path, check)
            } else {
                replace_if(&path, b"new", check)
            };
            assert_eq!(outcome.unwrap(), !is_changed, "{content} {removes}");
            let wanted = if is_changed || removes {
                remaining
            } else {
                Some("new")
            };
            assert_eq!(
                fs::read_to_string(&path).ok().as_deref(),
                wanted,
                "{content} {removes}"
            );
            if !is_changed && !removes {
                let mode = std::os::unix::fs::PermissionsExt::mode(
                    &path.metadata().unwrap().permissions(),
                );
                assert_eq!(mode & 0o777, 0o640);
            }
            assert!(
                names(&project)
                    .iter()
                    .all(|name| !name.starts_with(".soong-")),
                "{:?}",
                names(&project)
            );
        }
    }
}

#[test]
fn new_file_does_not_replace_another() {
    let project = TestProject::new(&[("a", "one")]);
    let folder = project.path().canonicalize().unwrap();
    assert!(!create_new(&folder.join("a"), b"new", 0o600).unwrap());
    assert!(create_new(&folder.join("b"), b"new", 0o600).unwrap());
    assert_eq!(fs::read_to_string(folder.join("a")).unwrap(), "one");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &folder.join("b").metadata().unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(names(&project), ["a", "b"]);
}

#[test]
fn draft_of_a_killed_writer_is_removed() {
    let id = uuid::Uuid::now_v7().simple();
    let abandoned = format!("sub/.soong-{id}.tmp");
    let written = format!("sub/.soong-{}.tmp", uuid::Uuid::now_v7().simple());
    let replaced = format!("sub/.soong-{id}.replaced");
    let project = TestProject::new(&[
        (&abandoned, "half"),
        (&written, "half"),
        (&replaced, "of another program"),
        ("sub/.soong-notes.tmp", "of a user"),
        ("sub/a", "one"),
    ]);
    // A living writer holds the lock of its file.
    let locked_file = fs::File::open(project.path().join(&written)).unwrap();
    locked_file.try_lock().unwrap();
    let roots = PathPolicy::default();
    let now = SystemTime::now();
    let before = now - Duration::from_secs(3_600);
    for (path, started, removed) in [
        ("sub/a", before, 0),
        ("sub/a", now, 1),
        ("sub/new", now, 0),
        ("missing/new", now, 0),
        ("../a", now, 0),
    ] {
        assert_eq!(
            remove_drafts_beside(&roots, &project.path(), path, started),
            removed,
            "{path}"
        );
    }
    assert!(!project.path().join(&abandoned).exists());
    for kept_path in [written.as_str(), &replaced, "sub/.soong-notes.tmp", "sub/a"] {
        assert!(project.path().join(kept_path).exists(), "{kept_path}");
    }
    drop(locked_file);
    assert_eq!(
        remove_drafts_in(&project.path().canonicalize().unwrap().join("sub"), now),
        1
    );
}

/// A draft is locked as long as it is written.
#[test]
fn draft_that_is_being_written_is_not_removed() {
    let project = TestProject::new(&[("a", "one")]);
    let resolved = PathPolicy::default()
        .resolve_existing(&project.path(), "a")
        .unwrap();
    let outcome = write_file(
        &resolved,
        b"new",
        modes(true),
        &CancellationToken::new(),
        |_| {
            assert_eq!(
                remove_drafts_beside(
                    &PathPolicy::default(),
                    &project.path(),
                    "a",
                    SystemTime::now()
                ),
                0
            );
            true
        },
    );
    assert!(!outcome.unwrap());
    assert_eq!(fs::read_to_string(project.path().join("a")).unwrap(), "new");
}
