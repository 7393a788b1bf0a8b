//! Package caches: where package managers keep what they download while a command runs.
//!
//! The user's own caches are read-only to a command, so each project gets folders in the runtime's home. A command can
//! change what later commands of the same project find there, and nothing else.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::environment::Environment;

/// Folder of the home that holds the caches.
const FOLDER: &str = "caches";
/// Variables that name a cache, each with its folder.
const CACHES: [(&str, &str); 5] = [
    ("CARGO_HOME", "cargo"),
    ("npm_config_cache", "npm"),
    ("PIP_CACHE_DIR", "pip"),
    ("GOMODCACHE", "go-mod"),
    ("GOCACHE", "go-build"),
];
/// Cargo's configuration file, in the same folder as its cache.
const CARGO_CONFIG: &str = "config.toml";

/// The caches of one project.
pub(super) struct Caches {
    /// Holds all of them.
    pub(super) folder: PathBuf,
    /// Variables of the environment that lead to them.
    pub(super) variables: Vec<(String, String)>,
}

impl Caches {
    /// Creates the missing folders.
    pub(super) fn of_project(home: &Path, project: &Path, environment: &Environment) -> io::Result<Self> {
        let hash = Sha256::digest(project.as_os_str().as_encoded_bytes());
        let name: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        let folder = home.canonicalize()?.join(FOLDER).join(name);
        let mut variables = Vec::new();
        for (variable, cache) in CACHES {
            let cache = folder.join(cache);
            // A command can have put a link there, which must not be followed.
            if cache.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                fs::remove_file(&cache)?;
            }
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&cache)?;
            variables.push((variable.to_owned(), cache.to_string_lossy().into_owned()));
        }
        link_cargo_config(&folder.join("cargo"), environment);
        Ok(Self { folder, variables })
    }
}

/// Links the user's cargo configuration into the cache. Keeps a file that is already there: it affects this project only.
fn link_cargo_config(cache: &Path, environment: &Environment) {
    let own = environment.get("CARGO_HOME").map(PathBuf::from).or_else(|| environment.below_user("~/.cargo"));
    if let Some(config) = own.map(|folder| folder.join(CARGO_CONFIG)).filter(|config| config.is_file()) {
        // Without it cargo works with its defaults.
        let _ = std::os::unix::fs::symlink(config, cache.join(CARGO_CONFIG));
    }
}
