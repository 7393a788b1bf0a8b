//! Disk and stream failures: they return a typed error, show nothing, and leave nothing.

use std::{io, process::Command};

use futures::{channel::oneshot, future};

use super::*;

const MIB: usize = 1024 * 1024;

/// A file system of limited size, unmounted when dropped; can be created only by root on Linux.
struct SmallDisk {
    folder: tempfile::TempDir,
}

impl SmallDisk {
    fn make(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let is_there = mount(
            &["-t", "tmpfs", "-o", &format!("size={size}"), "none"],
            folder.path(),
        );
        if !is_there {
            println!("skipped: no small disk can be mounted here");
        }
        is_there.then_some(Self { folder })
    }

    fn path(&self) -> &FilePath {
        self.folder.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.folder.path()).status();
    }
}

fn mount(arguments: &[&str], folder: &FilePath) -> bool {
    cfg!(target_os = "linux")
        && Command::new("mount")
            .args(arguments)
            .arg(folder)
            .output()
            .is_ok_and(|output| output.status.success())
}

fn pieces(count: usize) -> Vec<io::Result<Bytes>> {
    (0..count).map(|_| Ok(Bytes::from(vec![7; MIB]))).collect()
}

async fn assert_refused(blobs: &BlobStore, artifact: &str) {
    let whole = blobs
        .put(&path(artifact, 1), Bytes::from(vec![7; 2 * MIB]))
        .await;
    assert!(
        matches!(whole, Err(StoreError::Blob(BlobError::Io(_)))),
        "{whole:?}"
    );
    let streamed = blobs
        .put_stream(
            &path(artifact, 1),
            u64::MAX,
            stream::iter(pieces(3)).boxed(),
        )
        .await;
    assert!(
        matches!(streamed, Err(StoreError::Blob(BlobError::Io(_)))),
        "{streamed:?}"
    );
    assert!(
        streamed.unwrap_err().is_transient(),
        "there may be room later"
    );
}

#[tokio::test]
async fn full_disk_rejects_writes_until_there_is_room() {
    let Some(disk) = SmallDisk::make("1m") else {
        return;
    };
    let blobs = open(disk.path());
    blobs
        .put(&path("small", 1), Bytes::from_static(b"small"))
        .await
        .unwrap();
    let before = tree(disk.path());
    assert_refused(&blobs, "a").await;
    assert_eq!(tree(disk.path()), before);
    assert_eq!(
        blobs.get(&path("small", 1)).await.unwrap().as_deref(),
        Some(&b"small"[..]),
        "reads go on"
    );
    assert!(mount(&["-o", "remount,size=8m"], disk.path()));
    blobs
        .put(&path("a", 1), Bytes::from(vec![7; 2 * MIB]))
        .await
        .unwrap();
}

#[tokio::test]
async fn disk_without_inodes_keeps_no_folder() {
    // The root folder and three more names: too few for the folders of a version.
    let Some(disk) = SmallDisk::make("1m,nr_inodes=5") else {
        return;
    };
    let blobs = open(disk.path());
    assert_refused(&blobs, "a").await;
    assert!(
        tree(disk.path())
            .iter()
            .all(|path| EMPTY_SESSION_FOLDERS.contains(&path.as_str())),
        "{:?}",
        tree(disk.path())
    );
}

#[tokio::test]
async fn read_only_disk_can_still_be_read() {
    let Some(disk) = SmallDisk::make("4m") else {
        return;
    };
    let blobs = open(disk.path());
    blobs
        .put(&path("old", 1), Bytes::from_static(b"old"))
        .await
        .unwrap();
    assert!(mount(&["-o", "remount,ro"], disk.path()));
    let before = tree(disk.path());
    assert_refused(&blobs, "a").await;
    let deleted = blobs.delete(&path("old", 1)).await;
    assert!(
        matches!(deleted, Err(StoreError::Blob(BlobError::Io(_)))),
        "{deleted:?}"
    );
    assert_eq!(tree(disk.path()), before);
    assert_eq!(
        blobs.get(&path("old", 1)).await.unwrap().as_deref(),
        Some(&b"old"[..])
    );
    // An existing home can be opened, a new one cannot be created.
    open(disk.path());
    assert!(
        BlobStore::open(
            &disk.path().join("new"),
            &BlobLocation::File,
            &no_environment
        )
        .is_err()
    );
}

#[cfg(unix)]
#[tokio::test]
async fn read_only_folder_rejects_writes() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    let folder = home.path().join("sessions/s/artifacts");
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o555)).unwrap();
    if fs::create_dir(folder.join("probe")).is_ok() {
        println!("skipped: permissions do not bind this user");
        return;
    }
    assert_refused(&blobs, "a").await;
    assert_eq!(tree(home.path()), EMPTY_SESSION_FOLDERS);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
    blobs
        .put(&path("a", 1), Bytes::from_static(b"x"))
        .await
        .unwrap();
}

#[tokio::test]
async fn file_in_place_of_folder_is_kept_and_write_rejected() {
    for obstacle in [
        "sessions",
        "sessions/s",
        "sessions/s/artifacts/a",
        "sessions/s/artifacts/a/v1",
    ] {
        let home = tempfile::tempdir().unwrap();
        let blobs = open(home.path());
        fs::create_dir_all(home.path().join(obstacle).parent().unwrap()).unwrap();
        fs::write(home.path().join(obstacle), "mine").unwrap();
        let before = tree(home.path());
        assert_refused(&blobs, "a").await;
        // No such version can exist, so the deletion succeeds.
        blobs.delete(&path("a", 1)).await.unwrap();
        assert_eq!(tree(home.path()), before, "{obstacle}");
        assert_eq!(fs::read(home.path().join(obstacle)).unwrap(), b"mine");
    }
}

#[tokio::test]
async fn folder_in_place_of_file_is_no_version() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    fs::create_dir_all(home.path().join(path("a", 1))).unwrap();
    let before = tree(home.path());
    let put = blobs.put(&path("a", 1), Bytes::from_static(b"x")).await;
    assert!(matches!(put, Err(StoreError::AlreadyExists(_))), "{put:?}");
    assert_eq!(blobs.get(&path("a", 1)).await.unwrap(), None);
    assert!(blobs.delete(&path("a", 1)).await.is_err());
    assert_eq!(tree(home.path()), before);
}

#[tokio::test]
async fn failed_stream_leaves_no_file_or_folder() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    for count in [0, 1, 3] {
        let mut given = pieces(count);
        given.push(Err(io::Error::other("gone")));
        let result = blobs
            .put_stream(&path("a", 1), u64::MAX, stream::iter(given).boxed())
            .await;
        assert_eq!(
            result,
            Err(BlobError::SourceUnreadable("gone".into()).into())
        );
        let limit_bytes = (count * MIB) as u64;
        let result = blobs
            .put_stream(
                &path("a", 1),
                limit_bytes,
                stream::iter(pieces(count + 1)).boxed(),
            )
            .await;
        assert_eq!(result, Err(BlobError::TooLarge { limit_bytes }.into()));
        assert!(
            tree(home.path())
                .iter()
                .all(|path| EMPTY_SESSION_FOLDERS.contains(&path.as_str())),
            "{:?}",
            tree(home.path())
        );
    }
}

#[tokio::test]
async fn abandoned_write_removes_its_file() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    let (reached, is_reached) = oneshot::channel();
    let stalled = stream::once(async move {
        let _ = reached.send(());
        future::pending().await
    });
    let mut write = Box::pin(blobs.put_stream(
        "sessions/s/artifacts/a/v1/f.txt",
        u64::MAX,
        stream::iter(pieces(3)).chain(stalled).boxed(),
    ));
    future::select(&mut write, is_reached).await;
    assert!(
        home.path()
            .join("sessions/s/artifacts/a/v1/f.txt#1")
            .exists(),
        "it is written aside"
    );
    assert!(!home.path().join("sessions/s/artifacts/a/v1/f.txt").exists());
    drop(write);
    assert_eq!(tree(home.path()), EMPTY_SESSION_FOLDERS);
}

/// A deletion runs after a dropped write, whatever the disk was doing when the write was dropped.
#[tokio::test]
async fn deletion_waits_for_dropped_write() {
    let home = tempfile::tempdir().unwrap();
    let blobs = open(home.path());
    for polls in 0..12 {
        let mut write = Box::pin(blobs.put_stream(
            "sessions/s/artifacts/a/v1/f.txt",
            u64::MAX,
            stream::iter(pieces(3)).boxed(),
        ));
        for _ in 0..polls {
            if write.as_mut().now_or_never().is_none() {
                tokio::task::yield_now().await;
            } else {
                break;
            }
        }
        drop(write);
        blobs
            .delete("sessions/s/artifacts/a/v1/f.txt")
            .await
            .unwrap();
        assert!(
            tree(home.path())
                .iter()
                .all(|path| EMPTY_SESSION_FOLDERS.contains(&path.as_str())),
            "{polls}: {:?}",
            tree(home.path())
        );
    }
}
