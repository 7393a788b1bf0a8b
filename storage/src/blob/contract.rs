//! Contract of all backends for artifact bytes, as checks that any test can call (ART-2, DUR-6).
//!
//! [`check`] runs all of them, each with a new, empty store. They panic if the store violates the
//! contract, and are independent of files and buckets.

#![expect(
    clippy::unwrap_used,
    reason = "a check says what must hold by panicking where it does not"
)]

use std::{
    io,
    path::{Path as FilePath, PathBuf},
};

use bytes::Bytes;
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    channel::oneshot,
    future,
    stream::{self, BoxStream},
};
use soong_protocol::{ArtifactId, ArtifactScope, SessionId};

use super::{BlobStore, objects::PART_BYTES, version_path};
use crate::store::{BlobError, StoreError};

/// Number of versions that are written while others are deleted.
const VERSION_COUNT: u64 = 40;

/// A size that needs several parts, with an incomplete last one.
const LARGE_BYTES: usize = 2 * PART_BYTES + 7;

/// Checks that a store keeps the contract.
///
/// `make` returns a new, empty store at each call. `scratch` is a folder for source files.
///
/// # Panics
/// If the contract is violated; the message names the operation.
pub async fn check(scratch: &FilePath, make: impl Fn() -> BlobStore) {
    let world = || TestBlobs {
        blobs: make(),
        scratch: scratch.to_owned(),
    };
    bytes_round_trip_and_no_version_is_overwritten(world()).await;
    body_of_any_size_round_trips(world()).await;
    streamed_body_replaces_no_existing_version(world()).await;
    oversized_or_failed_stream_leaves_nothing(world()).await;
    dropped_write_leaves_nothing(world()).await;
    file_is_copied_and_source_is_kept(world()).await;
    one_of_two_concurrent_writers_of_a_path_wins(world()).await;
    versions_are_written_and_deleted_concurrently(world()).await;
    many_versions_are_deleted_together(world()).await;
    clear_makes_a_path_writable_again(world()).await;
    invalid_path_is_rejected(world()).await;
}

struct TestBlobs {
    blobs: BlobStore,
    scratch: PathBuf,
}

type Source = BoxStream<'static, io::Result<Bytes>>;

fn path(version: u64, filename: &str) -> String {
    let scope = ArtifactScope::Session {
        session_id: SessionId::new("s"),
    };
    version_path(&scope, &ArtifactId::new("a"), version, filename)
}

/// Returns bytes that differ from part to part.
fn sample(size: usize) -> Bytes {
    (0..size).map(|at| (at / 1000 + at) as u8).collect()
}

/// Splits the bytes into pieces that are not aligned with the parts.
fn pieces(bytes: &Bytes) -> Source {
    let pieces: Vec<_> = bytes
        .chunks(700_001)
        .map(|piece| Ok(bytes.slice_ref(piece)))
        .collect();
    stream::iter(pieces).boxed()
}

impl TestBlobs {
    async fn assert_holds(&self, path: &str, want: &Bytes) {
        let found = self.blobs.get(path).await.unwrap();
        // Not `assert_eq`, which would print megabytes.
        assert!(
            found.as_ref() == Some(want),
            "{path}: other bytes came back"
        );
        let (size, stream) = self.blobs.get_stream(path).await.unwrap().unwrap();
        let streamed: Vec<Bytes> = stream.try_collect().await.unwrap();
        assert!(
            size == want.len() as u64 && streamed.concat() == *want,
            "{path}: other bytes came back in pieces"
        );
    }

    async fn assert_absent(&self, path: &str) {
        assert!(
            self.blobs.get(path).await.unwrap().is_none(),
            "{path} is there"
        );
        assert!(
            self.blobs.get_stream(path).await.unwrap().is_none(),
            "{path} is there in pieces"
        );
        self.blobs
            .put(path, Bytes::from_static(b"next"))
            .await
            .unwrap();
        self.blobs.delete(path).await.unwrap();
    }
}

async fn bytes_round_trip_and_no_version_is_overwritten(world: TestBlobs) {
    let blobs = &world.blobs;
    for filename in [
        "报告 100%.md",
        "plain.txt",
        "..",
        "a/b#1",
        "",
        "%2E",
        "a b+c=d,(e)@f",
    ] {
        let path = path(1, filename);
        blobs.delete(&path).await.unwrap();
        assert_eq!(blobs.get(&path).await.unwrap(), None, "{path}");
        blobs.put(&path, Bytes::from_static(b"one")).await.unwrap();
        let second = blobs.put(&path, Bytes::from_static(b"two")).await;
        assert!(
            matches!(second, Err(StoreError::AlreadyExists(_))),
            "{path}: {second:?}"
        );
        world.assert_holds(&path, &Bytes::from_static(b"one")).await;
        blobs.delete(&path).await.unwrap();
        blobs.delete(&path).await.unwrap();
        world.assert_absent(&path).await;
    }
}

async fn body_of_any_size_round_trips(world: TestBlobs) {
    for (version, size) in (1..).zip([
        0,
        1,
        PART_BYTES - 1,
        PART_BYTES,
        PART_BYTES + 1,
        LARGE_BYTES,
    ]) {
        let whole = path(version, "whole");
        let streamed = path(version, "streamed");
        let body = sample(size);
        world.blobs.put(&whole, body.clone()).await.unwrap();
        world.assert_holds(&whole, &body).await;
        let stored = world
            .blobs
            .put_stream(&streamed, size as u64, pieces(&body))
            .await
            .unwrap();
        assert_eq!(stored, size as u64);
        world.assert_holds(&streamed, &body).await;
        world.blobs.delete(&streamed).await.unwrap();
        world.assert_absent(&streamed).await;
    }
}

async fn streamed_body_replaces_no_existing_version(world: TestBlobs) {
    let path = path(1, "f");
    let first = Bytes::from_static(b"first");
    world.blobs.put(&path, first.clone()).await.unwrap();
    for size in [3, LARGE_BYTES] {
        let second = world
            .blobs
            .put_stream(&path, u64::MAX, pieces(&sample(size)))
            .await;
        assert!(
            matches!(second, Err(StoreError::AlreadyExists(_))),
            "{size}: {second:?}"
        );
        world.assert_holds(&path, &first).await;
    }
}

async fn oversized_or_failed_stream_leaves_nothing(world: TestBlobs) {
    for size in [10, LARGE_BYTES] {
        let path = path(1, "f");
        let limit_bytes = size as u64 - 1;
        let refused = world
            .blobs
            .put_stream(&path, limit_bytes, pieces(&sample(size)))
            .await;
        assert_eq!(refused, Err(BlobError::TooLarge { limit_bytes }.into()));
        world.assert_absent(&path).await;
        let broken =
            pieces(&sample(size)).chain(stream::iter([Err(io::Error::other("the line is dead"))]));
        let failed = world
            .blobs
            .put_stream(&path, u64::MAX, broken.boxed())
            .await;
        assert_eq!(
            failed,
            Err(BlobError::SourceUnreadable("the line is dead".into()).into())
        );
        world.assert_absent(&path).await;
    }
}

async fn dropped_write_leaves_nothing(world: TestBlobs) {
    for size in [0, 10, LARGE_BYTES] {
        let path = path(1, "f");
        let (reached, is_reached) = oneshot::channel();
        let stalled = stream::once(async move {
            let _ = reached.send(());
            future::pending().await
        });
        let endless = pieces(&sample(size)).chain(stalled).boxed();
        let mut write = Box::pin(world.blobs.put_stream(&path, u64::MAX, endless));
        future::select(&mut write, is_reached).await;
        assert!(
            world.blobs.get(&path).await.unwrap().is_none(),
            "{size}: it shows before it is whole"
        );
        assert!(write.as_mut().now_or_never().is_none());
        drop(write);
        world.blobs.delete(&path).await.unwrap();
        world.assert_absent(&path).await;
    }
}

async fn file_is_copied_and_source_is_kept(world: TestBlobs) {
    let source = world.scratch.join("made by a tool");
    let body = sample(LARGE_BYTES);
    std::fs::write(&source, &body).unwrap();
    let stored = world
        .blobs
        .put_file(&path(1, "f"), body.len() as u64, &source)
        .await;
    assert_eq!(stored, Ok(body.len() as u64));
    world.assert_holds(&path(1, "f"), &body).await;
    assert!(std::fs::read(&source).unwrap() == body);
    let limit_bytes = body.len() as u64 - 1;
    let refused = world
        .blobs
        .put_file(&path(2, "f"), limit_bytes, &source)
        .await;
    assert_eq!(refused, Err(BlobError::TooLarge { limit_bytes }.into()));
    for wrong in [world.scratch.join("there is none"), world.scratch.clone()] {
        let refused = world.blobs.put_file(&path(2, "f"), u64::MAX, &wrong).await;
        assert!(
            matches!(
                refused,
                Err(StoreError::Blob(BlobError::SourceUnreadable(_)))
            ),
            "{wrong:?}: {refused:?}"
        );
    }
    world.assert_absent(&path(2, "f")).await;
    std::fs::remove_file(source).unwrap();
}

async fn one_of_two_concurrent_writers_of_a_path_wins(world: TestBlobs) {
    for (version, sizes) in (1..).zip([[10, 20], [10, LARGE_BYTES], [LARGE_BYTES, LARGE_BYTES + 1]])
    {
        let path = path(version, "f");
        let bodies = sizes.map(sample);
        let clone = world.blobs.clone();
        let (one, two) = future::join(
            world.blobs.put_stream(&path, u64::MAX, pieces(&bodies[0])),
            clone.put_stream(&path, u64::MAX, pieces(&bodies[1])),
        )
        .await;
        let winner = match (one, two) {
            (Ok(_), Err(StoreError::AlreadyExists(_))) => 0,
            (Err(StoreError::AlreadyExists(_)), Ok(_)) => 1,
            neither => panic!("{sizes:?}: {neither:?}"),
        };
        world.assert_holds(&path, &bodies[winner]).await;
    }
}

async fn versions_are_written_and_deleted_concurrently(world: TestBlobs) {
    let blobs = &world.blobs;
    for version in 1..=VERSION_COUNT {
        let written = path(version, "f");
        let removed = path(version - 1, "f");
        let both = future::join(blobs.put(&written, sample(9)), blobs.delete(&removed)).await;
        assert_eq!(both, (Ok(()), Ok(())), "{written}");
        assert_eq!(blobs.get(&removed).await, Ok(None));
    }
    world
        .assert_holds(&path(VERSION_COUNT, "f"), &sample(9))
        .await;
}

async fn many_versions_are_deleted_together(TestBlobs { blobs, .. }: TestBlobs) {
    let paths: Vec<String> = (1..=600).map(|version| path(version, "f")).collect();
    for index in [0, 1, 299, 599] {
        blobs.put(&paths[index], sample(10)).await.unwrap();
    }
    blobs.put(&path(1_000, "f"), sample(10)).await.unwrap();
    let twice = paths.iter().chain(&paths[..2]).cloned().collect::<Vec<_>>();
    let both = future::join(blobs.delete_all(&twice), blobs.delete_all(&paths)).await;
    assert_eq!((both.0.len(), both.1.len()), (602, 600));
    assert!(
        both.0.iter().chain(&both.1).all(Result::is_ok),
        "what is gone already is fine: {both:?}"
    );
    for path in &paths {
        assert_eq!(blobs.get(path).await.unwrap(), None, "{path}");
    }
    assert_eq!(
        blobs.get(&path(1_000, "f")).await.unwrap(),
        Some(sample(10)),
        "the others stay"
    );
    let one_is_none = blobs.delete_all(&["/no/path".to_owned()]).await;
    assert!(
        matches!(one_is_none[..], [Err(StoreError::Blob(BlobError::Io(_)))]),
        "{one_is_none:?}"
    );
    assert!(blobs.delete_all(&[]).await.is_empty());
}

async fn clear_makes_a_path_writable_again(TestBlobs { blobs, .. }: TestBlobs) {
    let path = path(1, "f");
    blobs.prepare(&path).await.unwrap();
    blobs.put(&path, sample(10)).await.unwrap();
    blobs.prepare(&path).await.unwrap();
    assert_eq!(blobs.get(&path).await.unwrap(), None);
    blobs.put(&path, sample(20)).await.unwrap();
    assert_eq!(blobs.get(&path).await.unwrap(), Some(sample(20)));
}

async fn invalid_path_is_rejected(world: TestBlobs) {
    for path in [
        "",
        "/",
        "/a",
        "a/",
        "../out",
        "a/../../out",
        "a//b",
        "a/b#1",
        "a/./b",
    ] {
        let bytes = Bytes::from_static(b"x");
        assert!(
            world.blobs.put(path, bytes.clone()).await.is_err(),
            "{path}"
        );
        assert!(
            world
                .blobs
                .put_stream(path, 9, pieces(&bytes))
                .await
                .is_err(),
            "{path}"
        );
        assert!(world.blobs.get(path).await.is_err(), "{path}");
        assert!(world.blobs.delete(path).await.is_err(), "{path}");
        assert_eq!(world.blobs.local_path(path), None, "{path}");
    }
}
