//! The experiences files of a home, one per user, so that no user sees what another user's runs
//! have learned.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use dashmap::DashMap;
use soong_protocol::Config;
use soong_storage::blob::path_segment;
use soong_text::Environment;

use super::MemoryFile;

/// User of requests that name none.
const LOCAL: &str = "local";

/// Experiences files of a home, by user.
#[derive(Debug)]
pub struct MemoryFiles {
    home: PathBuf,
    local: Arc<MemoryFile>,
    by_user: DashMap<String, Arc<MemoryFile>>,
}

impl MemoryFiles {
    /// Returns the experiences files of a home. Reads nothing yet.
    pub fn of_home(home: &Path, config: &Config, environment: &Environment) -> Self {
        let local = Arc::new(MemoryFile::of_home(home, config, environment));
        Self {
            home: home.to_owned(),
            local,
            by_user: DashMap::new(),
        }
    }

    /// Returns the file of a user. For `local` it is the configured file, for other users
    /// `users/UID/memory/experiences.md` in the home.
    pub fn of(&self, uid: &str) -> Arc<MemoryFile> {
        if uid == LOCAL {
            return Arc::clone(&self.local);
        }
        let folder = self
            .home
            .join("users")
            .join(path_segment(uid))
            .join("memory");
        let fresh = || Arc::new(MemoryFile::at(folder.join("experiences.md")));
        Arc::clone(
            self.by_user
                .entry(uid.to_owned())
                .or_insert_with(fresh)
                .value(),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_own_file_within_home() {
        let memories = MemoryFiles::of_home(
            Path::new("/home"),
            &Config::default(),
            &Environment::default(),
        );
        for (uid, want) in [
            ("local", "/home/memory/experiences.md"),
            ("bob", "/home/users/bob/memory/experiences.md"),
            (
                "../../etc",
                "/home/users/..%2F..%2Fetc/memory/experiences.md",
            ),
            ("..", "/home/users/%2E%2E/memory/experiences.md"),
        ] {
            assert_eq!(memories.of(uid).path(), Path::new(want));
        }
    }
}
