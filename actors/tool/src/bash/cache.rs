//! Package caches: folders for the downloads of package managers during a command.
//!
//! The caches of the user are read-only to a command, so each project has its own folders in the
//! runtime's home. A command can change what later commands of the same project find there, and
//! nothing else.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};
use soong_text::Environment;

/// Folder of the home that contains the caches.
const CACHES_DIR: &str = "caches";
/// Environment variables that set a cache location, each with its folder.
const CACHES: [(&str, &str); 5] = [
    ("CARGO_HOME", "cargo"),
    ("npm_config_cache", "npm"),
    ("PIP_CACHE_DIR", "pip"),
    ("GOMODCACHE", "go-mod"),
    ("GOCACHE", "go-build"),
];
/// Configuration file of Cargo, in the same folder as its cache.
const CARGO_CONFIG: &str = "config.toml";

/// Package caches of one project.
pub(super) struct PackageCaches {
    /// Folder that contains all caches of the project.
    pub(super) folder: PathBuf,
    /// Environment variables that point to the caches.
    pub(super) variables: Vec<(String, String)>,
}

impl PackageCaches {
    /// Creates the missing folders.
    pub(super) fn of_project(
        home: &Path,
        project: &Path,
        environment: &Environment,
    ) -> io::Result<Self> {
        let hash = Sha256::digest(project.as_os_str().as_encoded_bytes());
        let name: String = hash
            .iter()
            .take(8)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let folder = home.canonicalize()?.join(CACHES_DIR).join(name);
        let mut variables = Vec::new();
        for (variable, cache) in CACHES {
            let cache = folder.join(cache);
            // An earlier command may have created a symlink here, which must not be followed.
            if cache.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
                fs::remove_file(&cache)?;
            }
            fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&cache)?;
            variables.push((variable.to_owned(), cache.to_string_lossy().into_owned()));
        }
        link_cargo_config(&folder.join("cargo"), environment);
        Ok(Self { folder, variables })
    }
}

/// Links the user's Cargo configuration into the cache. Keeps an existing file: it affects only
/// this project.
fn link_cargo_config(cache: &Path, environment: &Environment) {
    let own = environment
        .get("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| environment.expand_home("~/.cargo"));
    if let Some(config) = own
        .map(|folder| folder.join(CARGO_CONFIG))
        .filter(|config| config.is_file())
    {
        // If linking fails, Cargo uses its defaults.
        let _ = std::os::unix::fs::symlink(config, cache.join(CARGO_CONFIG));
    }
}
