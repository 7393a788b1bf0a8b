//! What a command may read and write (TOOL-5).
//!
//! Writing: the project, the configured roots, a directory of the call's own. Reading: everything but the runtime's
//! home and the user's sensitive directories. What lies in both is out of reach.

use std::path::{Path, PathBuf};

use crate::{
    process::{Reach, confinement::grants_around},
    tool::Surroundings,
};

/// The device that everybody writes to.
const NULL_DEVICE: &str = "/dev/null";

/// Works out the reach of a command of `project` that has `own` for temporary files.
pub(super) fn reach(surroundings: &Surroundings, project: &Path, own: &Path) -> Reach {
    let user_home = surroundings.environment.get("HOME").map(PathBuf::from);
    let home = resolved(surroundings.home.as_deref());
    let sensitive = sensitive_directories(&surroundings.tools.sensitive_paths, user_home.as_deref());
    let hidden: Vec<PathBuf> = home.iter().cloned().chain(sensitive).collect();
    let roots = surroundings.tools.allowed_write_roots.iter();
    let roots = roots.filter_map(|root| resolved(Some(&expanded(root, user_home.as_deref())?)));
    // A root that somebody has set within the home is in the home all the same.
    let roots = roots.filter(|root| !home.as_ref().is_some_and(|home| root.starts_with(home)));
    let mut write: Vec<PathBuf> = Vec::new();
    for root in roots {
        write.extend(grants_around(&root, &below(&root, &hidden)));
    }
    if home.as_deref() != Some(project) {
        write.extend(grants_around(project, &below(project, &hidden)));
    }
    write.push(own.to_owned());
    Reach { read: grants_around(Path::new("/"), &hidden), write, devices: vec![NULL_DEVICE.into()] }
}

/// What is hidden below a root that was named on purpose; the root itself is not.
fn below(root: &Path, hidden: &[PathBuf]) -> Vec<PathBuf> {
    hidden.iter().filter(|path| path.starts_with(root) && *path != root).cloned().collect()
}

/// Returns the sensitive directories that there are: patterns of the form `~/DIRECTORY/**`.
fn sensitive_directories(patterns: &[String], user_home: Option<&Path>) -> Vec<PathBuf> {
    let directory = |pattern: &String| {
        let name = pattern.strip_suffix("/**").filter(|name| name.starts_with("~/"))?;
        let is_plain = !name.contains(['*', '?', '[', '{']);
        let path = is_plain.then(|| expanded(name, user_home)).flatten()?;
        resolved(Some(&path)).filter(|path| path.is_dir())
    };
    patterns.iter().filter_map(directory).collect()
}

/// Puts the user's home in; `None` = it is not known, or the path is not absolute.
fn expanded(path: &str, user_home: Option<&Path>) -> Option<PathBuf> {
    let path = match path.strip_prefix("~/") {
        Some(rest) => user_home?.join(rest),
        None => PathBuf::from(path),
    };
    path.is_absolute().then_some(path)
}

fn resolved(path: Option<&Path>) -> Option<PathBuf> {
    path?.canonicalize().ok()
}

#[cfg(test)]
#[path = "reach/tests.rs"]
mod tests;
