//! Whose experiences are: each user of a home has a file of their own, so that none is told what another's runs have
//! learned.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use dashmap::DashMap;
use soong_protocol::Config;
use soong_storage::blob::segment;

use super::MemoryFile;
use crate::environment::Environment;

/// The user of whoever names none.
const LOCAL: &str = "local";

/// The experiences of a home, by user.
#[derive(Debug)]
pub struct Memories {
    home: PathBuf,
    local: Arc<MemoryFile>,
    others: DashMap<String, Arc<MemoryFile>>,
}

impl Memories {
    /// Names the files of a home. Nothing is read yet.
    pub fn of_home(home: &Path, config: &Config, environment: &Environment) -> Self {
        let local = Arc::new(MemoryFile::of_home(home, config, environment));
        Self { home: home.to_owned(), local, others: DashMap::new() }
    }

    /// Returns a user's: of `local` what the configuration names, of others `users/UID/memory/experiences.md` in the
    /// home.
    pub fn of(&self, uid: &str) -> Arc<MemoryFile> {
        if uid == LOCAL {
            return Arc::clone(&self.local);
        }
        let folder = self.home.join("users").join(segment(uid)).join("memory");
        let fresh = || Arc::new(MemoryFile::at(folder.join("experiences.md")));
        Arc::clone(self.others.entry(uid.to_owned()).or_insert_with(fresh).value())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_file_of_their_own_and_none_leaves_the_home() {
        let memories = Memories::of_home(Path::new("/home"), &Config::default(), &Environment::default());
        for (uid, want) in [
            ("local", "/home/memory/experiences.md"),
            ("bob", "/home/users/bob/memory/experiences.md"),
            ("../../etc", "/home/users/..%2F..%2Fetc/memory/experiences.md"),
            ("..", "/home/users/%2E%2E/memory/experiences.md"),
        ] {
            assert_eq!(memories.of(uid).path(), Path::new(want));
        }
    }
}
