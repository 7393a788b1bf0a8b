//! Tests of the backends of artifact bytes: names, files and folders, disk failures.

mod faults;
#[cfg(feature = "s3")]
mod s3;

use std::{fs, path::Path as FilePath};

use bytes::Bytes;
use futures::{FutureExt, StreamExt, stream};
use soong_protocol::{ArtifactId, ArtifactScope, SessionId};

use super::*;

fn no_environment(_: &str) -> Option<String> {
    None
}

fn open(home: &FilePath) -> BlobStore {
    BlobStore::open(home, &BlobLocation::File, &no_environment).unwrap()
}

fn session(id: &str) -> ArtifactScope {
    ArtifactScope::Session {
        session_id: SessionId::new(id),
    }
}

fn path(artifact: &str, version: u64) -> String {
    version_path(&session("s"), &ArtifactId::new(artifact), version, "f.txt")
}

/// Returns everything below a folder, relative to it, in order.
fn tree(folder: &FilePath) -> Vec<String> {
    fn walk(folder: &FilePath, root: &FilePath, found: &mut Vec<String>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            found.push(
                path.strip_prefix(root)
                    .unwrap()
                    .to_str()
                    .unwrap()
                    .to_owned(),
            );
            if path.is_dir() {
                walk(&path, root, found);
            }
        }
    }
    let mut found = Vec::new();
    walk(folder, folder, &mut found);
    found.sort();
    found
}

/// The folders of a session that has no artifacts.
const EMPTY_SESSION_FOLDERS: [&str; 3] = ["sessions", "sessions/s", "sessions/s/artifacts"];

#[tokio::test]
async fn file_store_satisfies_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    let homes = tempfile::tempdir().unwrap();
    let number = std::cell::Cell::new(0);
    contract::check(scratch.path(), || {
        number.set(number.get() + 1);
        open(&homes.path().join(number.get().to_string()))
    })
    .await;
    let left = tree(homes.path())
        .into_iter()
        .filter(|path| path.contains('#'))
        .count();
    assert_eq!(left, 0, "nothing that was written aside is left");
}

#[tokio::test]
async fn memory_store_satisfies_the_contract() {
    let scratch = tempfile::tempdir().unwrap();
    let nowhere = scratch.path().join("nowhere");
    contract::check(scratch.path(), || {
        BlobStore::open(&nowhere, &BlobLocation::Memory, &no_environment).unwrap()
    })
    .await;
    assert!(!nowhere.exists(), "no folder is made");
}

#[test]
fn file_name_in_path_is_encoded_only_if_unsafe() {
    let id = ArtifactId::new("a1");
    for (scope, filename, want) in [
        (
            session("s"),
            "report v2.md",
            "sessions/s/artifacts/a1/v3/report v2.md",
        ),
        (
            session("s"),
            "报告.md",
            "sessions/s/artifacts/a1/v3/报告.md",
        ),
        (
            session("s"),
            "100%.txt",
            "sessions/s/artifacts/a1/v3/100%25.txt",
        ),
        (
            session("s"),
            "a/b\\c#1",
            "sessions/s/artifacts/a1/v3/a%2Fb%5Cc%231",
        ),
        (session("s"), "..", "sessions/s/artifacts/a1/v3/%2E%2E"),
        (session("s"), ".", "sessions/s/artifacts/a1/v3/%2E"),
        (session("s"), "", "sessions/s/artifacts/a1/v3/%"),
        (
            ArtifactScope::User {
                uid: "../root".into(),
            },
            "x",
            "users/..%2Froot/artifacts/a1/v3/x",
        ),
    ] {
        assert_eq!(version_path(&scope, &id, 3, filename), want, "{filename:?}");
    }
}

#[tokio::test]
async fn version_is_stored_at_its_path() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    for filename in ["报告 100%.md", "plain.txt", "..", "a/b#1", "", "%2E"] {
        let path = version_path(&session("s"), &ArtifactId::new("a"), 1, filename);
        blobs.put(&path, Bytes::from_static(b"one")).await.unwrap();
        assert_eq!(fs::read(home.path().join(&path)).unwrap(), b"one", "{path}");
        let want = home.path().canonicalize().unwrap().join(&path);
        assert_eq!(blobs.local_path(&path), Some(want));
    }
    let memory = BlobStore::open(home.path(), &BlobLocation::Memory, &no_environment).unwrap();
    assert_eq!(memory.local_path(&path("a", 1)), None);
}

#[tokio::test]
async fn path_outside_home_is_rejected() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(&home.path().join("inner"));
    for path in ["../out", "a/../../out", "a//b"] {
        assert!(
            blobs.put(path, Bytes::from_static(b"x")).await.is_err(),
            "{path}"
        );
    }
    assert_eq!(tree(home.path()), ["inner"]);
}

#[tokio::test]
async fn deletion_removes_empty_folders_only() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    for (artifact, version) in [("a", 1), ("a", 2), ("b", 1)] {
        blobs
            .put(&path(artifact, version), Bytes::from_static(b"x"))
            .await
            .unwrap();
    }
    blobs.delete(&path("a", 1)).await.unwrap();
    let a = [
        "sessions/s/artifacts/a",
        "sessions/s/artifacts/a/v2",
        "sessions/s/artifacts/a/v2/f.txt",
    ];
    let b = [
        "sessions/s/artifacts/b",
        "sessions/s/artifacts/b/v1",
        "sessions/s/artifacts/b/v1/f.txt",
    ];
    assert_eq!(
        tree(home.path()),
        [&EMPTY_SESSION_FOLDERS[..], &a, &b].concat()
    );
    blobs.delete(&path("a", 2)).await.unwrap();
    assert_eq!(tree(home.path()), [&EMPTY_SESSION_FOLDERS[..], &b].concat());
    blobs.delete(&path("b", 1)).await.unwrap();
    assert_eq!(tree(home.path()), EMPTY_SESSION_FOLDERS);
}

#[tokio::test]
async fn deletion_removes_partial_files_of_a_crash() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    let folder = home.path().join("sessions/s/artifacts/a/v1");
    fs::create_dir_all(&folder).unwrap();
    for (name, stays) in [
        ("f.txt#1", false),
        ("f.txt#27", false),
        ("f.txt#", true),
        ("f.txt#1x", true),
        ("f.txt1", true),
        ("g.txt#1", true),
    ] {
        fs::write(folder.join(name), "half").unwrap();
        blobs.delete(&path("a", 1)).await.unwrap();
        assert_eq!(folder.join(name).exists(), stays, "{name}");
        let _ = fs::remove_file(folder.join(name));
        fs::create_dir_all(&folder).unwrap();
    }
    blobs.delete(&path("a", 1)).await.unwrap();
    assert_eq!(
        tree(home.path()),
        EMPTY_SESSION_FOLDERS,
        "a folder that is empty goes, even where no file is left"
    );
    fs::remove_dir_all(home.path().join("sessions")).unwrap();
    blobs.delete(&path("a", 1)).await.unwrap();
    assert!(tree(home.path()).is_empty(), "a deletion makes nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_folder_removal_breaks_no_write() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    let rounds = (0..200u64).map(|version| {
        let blobs = blobs.clone();
        let task = async move {
            blobs
                .put(&path("a", version), Bytes::from_static(b"x"))
                .await
                .unwrap();
            assert!(blobs.get(&path("a", version)).await.unwrap().is_some());
            blobs.delete(&path("a", version)).await.unwrap();
        };
        tokio::spawn(task).map(Result::unwrap)
    });
    stream::iter(rounds)
        .buffer_unordered(8)
        .collect::<Vec<()>>()
        .await;
    assert_eq!(tree(home.path()), EMPTY_SESSION_FOLDERS);
}

#[tokio::test]
async fn opening_unusable_location_fails_with_reason() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "").unwrap();
    for home in [file.clone(), file.join("inner")] {
        let error = BlobStore::open(&home, &BlobLocation::File, &no_environment);
        assert!(
            matches!(error, Err(StoreError::Blob(BlobError::Io(_)))),
            "{home:?}: {error:?}"
        );
    }
    let bucket = Bucket {
        name: "b".into(),
        prefix: String::new(),
    };
    for location in [BlobLocation::S3(bucket.clone()), BlobLocation::Gcs(bucket)] {
        if let Some(feature) = location.missing_feature() {
            let error = BlobStore::open(home.path(), &location, &no_environment)
                .unwrap_err()
                .to_string();
            assert!(error.contains(&format!("--features {feature}")), "{error}");
        }
    }
}

#[tokio::test]
async fn removed_folder_is_recreated() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    for artifact in ["a", "b"] {
        blobs
            .put(&path(artifact, 1), Bytes::from_static(b"one"))
            .await
            .unwrap();
    }
    fs::remove_dir_all(home.path().join("sessions/s")).unwrap();
    blobs
        .put(&path("c", 1), Bytes::from_static(b"two"))
        .await
        .unwrap();
    assert_eq!(
        blobs.get(&path("c", 1)).await.unwrap().as_deref(),
        Some(&b"two"[..])
    );
}
