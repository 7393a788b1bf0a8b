//! What a command may read and write (TOOL-5).
//!
//! Writing: the project, the configured roots, a directory of the call's own. Reading: everything but the runtime's
//! home and the user's sensitive directories. What lies in both is out of reach.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::{
    environment::Environment,
    process::Reach,
    tool::{Surroundings, roots::Roots},
};

/// The device that everybody writes to.
const NULL_DEVICE: &str = "/dev/null";

/// Works out the reach of a command of `project` that has `own` for temporary files.
///
/// # Errors
/// Where a symlink leads to the project: a session names it by the path without any, so somebody has put one there.
pub(super) fn reach(surroundings: &Surroundings, roots: &Roots, project: &Path, own: &Path) -> io::Result<Reach> {
    if !is_resolved(project) {
        let message = format!("{} is not the folder any more that it was: a symlink leads there", project.display());
        return Err(io::Error::other(message));
    }
    let home = roots.own().as_deref().and_then(resolved);
    let sensitive = sensitive_directories(&surroundings.tools.sensitive_paths, &surroundings.environment);
    // A root that somebody has set within the home is in the home all the same; one that has become a symlink since
    // may lead anywhere.
    let extra = roots.extra().iter().filter(|root| !roots.is_own(root) && is_resolved(root)).cloned();
    let project = Some(project.to_owned()).filter(|project| home.as_ref() != Some(project));
    Ok(Reach {
        write: extra.chain(project).chain([own.to_owned()]).collect(),
        hidden: home.iter().cloned().chain(sensitive).collect(),
        devices: vec![NULL_DEVICE.into()],
    })
}

/// Returns the sensitive directories that there are: patterns of the form `~/DIRECTORY/**`.
fn sensitive_directories(patterns: &[String], environment: &Environment) -> Vec<PathBuf> {
    let directory = |pattern: &String| {
        let name = pattern.strip_suffix("/**").filter(|name| name.starts_with("~/"))?;
        let is_plain = !name.contains(['*', '?', '[', '{']);
        let path = is_plain.then(|| environment.below_user(name)).flatten()?;
        resolved(&path).filter(|path| path.is_absolute() && path.is_dir())
    };
    patterns.iter().filter_map(directory).collect()
}

fn resolved(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// Returns whether a path exists and has no symlink in it.
fn is_resolved(path: &Path) -> bool {
    resolved(path).as_deref() == Some(path)
}

#[cfg(test)]
#[path = "reach/tests.rs"]
mod tests;
