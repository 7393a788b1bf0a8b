//! Tests of the file with several writers, with an editor saving in between, and after a crash.

use std::os::unix::fs::PermissionsExt;

use soong_protocol::{Tags, Timestamp};

use super::*;
use crate::memory::NewExperience;

fn file(folder: &Path) -> MemoryFile {
    MemoryFile::of_home(folder, &Config::default(), &Environment::default())
}

fn new(reflection: &str, text: &str) -> Changes {
    let new = NewExperience {
        category: "other".to_owned(),
        tags: Tags::default(),
        text: text.to_owned(),
    };
    Changes {
        reflection: reflection.to_owned(),
        trace_id: None,
        at: Timestamp::from_millis(0),
        new: vec![new],
        rated: Vec::new(),
    }
}

#[test]
fn concurrent_writers_lose_nothing_and_assign_unique_ids() {
    let folder = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let folder = folder.path();
            scope.spawn(move || {
                // Each writer has its own handle and cache, as a separate process would.
                let file = file(folder);
                for n in 0..10 {
                    let text = format!("From {writer}, the {n}th.");
                    assert_eq!(
                        file.change(&new(&format!("{writer}-{n}"), &text))
                            .unwrap()
                            .len(),
                        1
                    );
                }
            });
        }
    });
    let book = file(folder.path()).read().unwrap();
    assert_eq!((book.experiences().len(), book.faults()), (80, &[][..]));
    let names: std::collections::BTreeSet<_> = book
        .experiences()
        .iter()
        .map(|known| known.id.as_str())
        .collect();
    assert_eq!((names.len(), names.last()), (80, Some(&"ex_080")));
}

#[test]
fn concurrent_edit_by_user_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(folder.path());
    own.change(&new("r", "First.")).unwrap();
    assert_eq!(own.read().unwrap().experiences().len(), 1);
    let by_hand = fs::read_to_string(own.path())
        .unwrap()
        .replace("First.", "First, as I see it.")
        + "\nA note of mine.\n";
    fs::write(own.path(), &by_hand).unwrap();
    own.change(&new("s", "Second.")).unwrap();
    let text = fs::read_to_string(own.path()).unwrap();
    assert!(text.starts_with(&by_hand), "{text}");
    assert_eq!(own.read().unwrap().experiences().len(), 2);
}

#[test]
fn file_is_replaced_atomically_and_stale_copy_is_removed() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(folder.path());
    own.change(&new("r", "First.")).unwrap();
    let before = fs::read(own.path()).unwrap();
    // The copy that remains if a process is killed before the rename.
    let left = sibling_path(own.path(), ".0123.tmp");
    fs::write(&left, "half of a fi").unwrap();
    assert_eq!(fs::read(own.path()).unwrap(), before);
    own.change(&new("s", "Second.")).unwrap();
    assert!(!left.exists());
    let names: Vec<_> = fs::read_dir(own.path().parent().unwrap())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(names.len(), 2, "the file and its lock: {names:?}");
    let mode = own.path().metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    // Repeating the same change leaves the file untouched, including its modification time.
    let stamp = FileVersion::of(&own.path().metadata().unwrap());
    own.change(&new("s", "Second.")).unwrap();
    assert_eq!(FileVersion::of(&own.path().metadata().unwrap()), stamp);
}

#[test]
fn symlink_is_kept_and_its_target_is_changed() {
    let folder = tempfile::tempdir().unwrap();
    let real = folder.path().join("dotfiles.md");
    fs::write(&real, "Mine.\n").unwrap();
    let own = file(folder.path());
    fs::create_dir(folder.path().join("memory")).unwrap();
    std::os::unix::fs::symlink(&real, own.path()).unwrap();
    own.change(&new("r", "First.")).unwrap();
    assert!(own.path().symlink_metadata().unwrap().is_symlink());
    assert!(fs::read_to_string(&real).unwrap().starts_with("Mine.\n"));
    assert_eq!(own.read().unwrap().experiences().len(), 1);
}

#[test]
fn missing_target_of_a_symlink_is_created() {
    let folder = tempfile::tempdir().unwrap();
    let own = file(folder.path());
    fs::create_dir(folder.path().join("memory")).unwrap();
    std::os::unix::fs::symlink("../dotfiles.md", own.path()).unwrap();
    own.change(&new("r", "First.")).unwrap();
    assert!(own.path().symlink_metadata().unwrap().is_symlink());
    assert!(folder.path().join("dotfiles.md").is_file());
    assert_eq!(own.read().unwrap().experiences().len(), 1);
}

#[test]
fn path_is_taken_from_configuration() {
    let environment = Environment::of([("HOME", "/user")]);
    for (path, want) in [
        (None, "/home/memory/experiences.md"),
        (Some("${SOONG_AGENT_HOME}/x.md"), "/home/x.md"),
        (Some("~/notes/x.md"), "/user/notes/x.md"),
        (Some("/abs/x.md"), "/abs/x.md"),
        (Some("x.md"), "/home/x.md"),
    ] {
        let mut config = Config::default();
        config.memory.experiences_path = path.map(str::to_owned);
        assert_eq!(
            MemoryFile::of_home(Path::new("/home"), &config, &environment).path(),
            Path::new(want)
        );
    }
    assert!(
        file(Path::new("/no/where"))
            .read()
            .unwrap()
            .experiences()
            .is_empty()
    );
}

#[test]
fn unsafe_fields_are_rejected_or_sanitized() {
    let folder = tempfile::tempdir().unwrap();
    let file = file(folder.path());
    for (changes, want) in [
        (new("run\n---", "Text."), "reflection: must be"),
        (new("", "Text."), "reflection: must be"),
        (new("run-1", " \n"), "text: must not be empty"),
    ] {
        let error = file.change(&changes).unwrap_err();
        assert!(
            error.code == ErrorCode::ValidationError && error.message.starts_with(want),
            "{error:?}"
        );
        assert!(!file.path().exists());
    }
    let forged = "other\n---\nid: forged\n---\nx".to_owned();
    let tags = Tags {
        intent: vec!["a], state: [b".to_owned()],
        state: vec!["x\nid: y".to_owned()],
    };
    let odd = NewExperience {
        category: forged,
        tags,
        text: "Text.".to_owned(),
    };
    file.change(&Changes {
        new: vec![odd],
        ..new("run-1", "")
    })
    .unwrap();
    let book = file.read().unwrap();
    let [known] = book.experiences() else {
        panic!("{book:?}")
    };
    assert_eq!(
        (known.id.as_str(), known.category.as_str()),
        ("ex_001", "other_id_forged_x")
    );
    assert_eq!(
        (known.tags.intent.join(" "), known.tags.state.join(" ")),
        ("a-state-b".into(), "x-id-y".into())
    );
}
