//! Artifact bytes: files under the home, whole or not there (ART-2).
//!
//! A path names one version and is never written twice. Names that people or models chose are
//! kept readable where they are safe as one path segment, and percent-encoded elsewhere.
//! Not here: which versions exist, and the intents by which orphans are found (`store.rs`).

use std::path::Path as FilePath;

use bytes::Bytes;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, local::LocalFileSystem, path::Path};
use soong_protocol::{ArtifactId, ArtifactScope};

use crate::store::StoreError;

/// The bytes of artifacts, one file per version; cloneable.
#[derive(Debug, Clone)]
pub struct Blobs {
    files: std::sync::Arc<LocalFileSystem>,
}

impl Blobs {
    /// Opens the folder `home`, making it if need be.
    ///
    /// # Errors
    /// [`StoreError::Io`] where the folder can be neither found nor made.
    pub fn open(home: &FilePath) -> Result<Self, StoreError> {
        std::fs::create_dir_all(home).map_err(|error| StoreError::Io(format!("{}: {error}", home.display())))?;
        let files = LocalFileSystem::new_with_prefix(home).map_err(io)?.with_fsync(true);
        Ok(Self { files: files.into() })
    }

    /// Stores the bytes of a new version: after this they are on disk, whole.
    ///
    /// # Errors
    /// [`StoreError::Exists`] where the path is taken, its file unchanged; [`StoreError::Io`]
    /// where the disk refuses, and then no file of that path is to be seen.
    pub async fn put(&self, path: &str, bytes: Bytes) -> Result<(), StoreError> {
        let options = PutOptions::from(PutMode::Create);
        match self.files.put_opts(&parsed(path)?, bytes.into(), options).await {
            Ok(_) => Ok(()),
            Err(object_store::Error::AlreadyExists { .. }) => Err(StoreError::Exists(format!("the file {path}"))),
            Err(error) => Err(io(error)),
        }
    }

    /// Reads the bytes of a version; `None` where there is no such file.
    pub async fn get(&self, path: &str) -> Result<Option<Bytes>, StoreError> {
        match self.files.get(&parsed(path)?).await {
            Ok(found) => found.bytes().await.map(Some).map_err(io),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(io(error)),
        }
    }

    /// Removes the file of a version; one that is gone already is fine.
    pub async fn delete(&self, path: &str) -> Result<(), StoreError> {
        match self.files.delete(&parsed(path)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(io(error)),
        }
    }
}

/// Returns where the bytes of a version lie, relative to the home.
///
/// Equal arguments give equal paths, different ones different paths; none leaves the home.
pub fn version_path(scope: &ArtifactScope, id: &ArtifactId, version: u64, filename: &str) -> String {
    let (kind, owner) = match scope {
        ArtifactScope::Session { session_id } => ("sessions", session_id.as_str()),
        ArtifactScope::User { uid } => ("users", uid.as_str()),
    };
    let (owner, id, filename) = (segment(owner), segment(id.as_str()), segment(filename));
    format!("{kind}/{owner}/artifacts/{id}/v{version}/{filename}")
}

/// Makes a text one path segment. Letters of any script stay as they are; `Path::from` would
/// encode them all.
fn segment(text: &str) -> String {
    match text {
        // A lone '%' is what no other text encodes to.
        "" => return "%".to_owned(),
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | ' ' | '@' | '+' | '=' | ',' | '(' | ')') {
            safe.push(c);
        } else {
            for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                safe.push_str(&format!("%{byte:02X}"));
            }
        }
    }
    safe
}

/// Takes a path as it is: it was made by [`version_path`], and must not be encoded twice.
fn parsed(path: &str) -> Result<Path, StoreError> {
    Path::parse(path).map_err(|error| StoreError::Io(error.to_string()))
}

fn io(error: object_store::Error) -> StoreError {
    StoreError::Io(error.to_string())
}

#[cfg(test)]
mod tests {
    use soong_protocol::SessionId;

    use super::*;

    fn session(id: &str) -> ArtifactScope {
        ArtifactScope::Session { session_id: SessionId::new(id) }
    }

    #[test]
    fn a_name_stays_readable_where_it_is_safe() {
        let id = ArtifactId::new("a1");
        for (scope, filename, want) in [
            (session("s"), "report v2.md", "sessions/s/artifacts/a1/v3/report v2.md"),
            (session("s"), "报告.md", "sessions/s/artifacts/a1/v3/报告.md"),
            (session("s"), "100%.txt", "sessions/s/artifacts/a1/v3/100%25.txt"),
            (session("s"), "a/b\\c#1", "sessions/s/artifacts/a1/v3/a%2Fb%5Cc%231"),
            (session("s"), "..", "sessions/s/artifacts/a1/v3/%2E%2E"),
            (session("s"), ".", "sessions/s/artifacts/a1/v3/%2E"),
            (session("s"), "", "sessions/s/artifacts/a1/v3/%"),
            (ArtifactScope::User { uid: "../root".into() }, "x", "users/..%2Froot/artifacts/a1/v3/x"),
        ] {
            assert_eq!(version_path(&scope, &id, 3, filename), want, "{filename:?}");
        }
    }

    #[tokio::test]
    async fn bytes_come_back_and_no_version_is_written_twice() {
        let home = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(home.path()).unwrap();
        for filename in ["报告 100%.md", "plain.txt", "..", "a/b#1", "", "%2E"] {
            let path = version_path(&session("s"), &ArtifactId::new("a"), 1, filename);
            assert_eq!(blobs.get(&path).await.unwrap(), None, "{path}");
            blobs.put(&path, Bytes::from_static(b"one")).await.unwrap();
            assert_eq!(std::fs::read(home.path().join(&path)).unwrap(), b"one", "{path}");
            let again = blobs.put(&path, Bytes::from_static(b"two")).await;
            assert!(matches!(again, Err(StoreError::Exists(_))), "{again:?}");
            assert_eq!(blobs.get(&path).await.unwrap().as_deref(), Some(&b"one"[..]), "{path}");
            blobs.delete(&path).await.unwrap();
            blobs.delete(&path).await.unwrap();
            assert_eq!(blobs.get(&path).await.unwrap(), None, "{path}");
        }
    }

    #[tokio::test]
    async fn a_path_out_of_the_home_is_refused() {
        let home = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(&home.path().join("inner")).unwrap();
        for path in ["../out", "a/../../out", "a//b"] {
            assert!(blobs.put(path, Bytes::from_static(b"x")).await.is_err(), "{path}");
        }
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 1);
    }
}
