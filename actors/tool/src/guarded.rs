//! Guarded files: files of a project that other programs run or obey, such as hooks, editor
//! settings and instructions for agents. Writing one requires permission, unless a grant names
//! exactly that path.
//!
//! Accesses the file system only to detect bare git repositories.

use std::{
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use unicode_normalization::UnicodeNormalization;

const PATTERNS: &str = include_str!("guarded.txt");
const HOME_PATTERNS: &str = include_str!("guarded_home.txt");
/// Entries of a git repository. A write is guarded if two of them exist or would exist, or one
/// together with `config` or `hooks`.
const REPOSITORY_ENTRIES: [&str; 4] = ["head", "objects", "refs", "commondir"];
/// Short names of `.git` on some file systems.
const GIT_SHORT_NAMES: [&str; 2] = ["git~1", "git~2"];

struct GuardedPattern {
    is_anchored: bool,
    parts: Vec<&'static str>,
}

static GUARDED: LazyLock<Vec<GuardedPattern>> = LazyLock::new(|| {
    lines(PATTERNS)
        .map(|line| GuardedPattern::new(line, line.starts_with('/')))
        .collect()
});
static GUARDED_AT_HOME: LazyLock<Vec<GuardedPattern>> = LazyLock::new(|| {
    lines(HOME_PATTERNS)
        .map(|line| GuardedPattern::new(line, true))
        .collect()
});

fn lines(table: &'static str) -> impl Iterator<Item = &'static str> {
    table
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
}

/// Returns whether a file is guarded; `relative` is its path in the project `root`.
pub(super) fn is_guarded(root: &Path, relative: &Path) -> bool {
    let names: Vec<String> = relative.components().filter_map(normalized_name).collect();
    GUARDED.iter().any(|pattern| pattern.matches(&names)) || is_in_repository(root, relative)
}

/// Returns whether a file in the user's home directory is guarded; `relative` is its path in that
/// directory.
pub(super) fn is_guarded_in_home(relative: &Path) -> bool {
    let names: Vec<String> = relative.components().filter_map(normalized_name).collect();
    GUARDED_AT_HOME
        .iter()
        .any(|pattern| pattern.matches(&names))
}

/// Returns the guarded paths of the user's home directory, whether or not they exist.
pub(super) fn guarded_home_paths(user_home: &Path) -> Vec<PathBuf> {
    let of_pattern = |pattern: &GuardedPattern| {
        let (name, folders) = pattern
            .parts
            .split_last()
            .map_or(("", &[][..]), |(name, folders)| (*name, folders));
        let folder = user_home.join(folders.join("/"));
        // A pattern with a trailing `*` yields the path without it, and every existing path that
        // matches.
        let mut paths = vec![folder.join(name.trim_end_matches('*'))];
        if name.ends_with('*') {
            let entries = folder.read_dir().into_iter().flatten().flatten();
            let meant = entries
                .filter(|entry| is_name(name, &entry.file_name().to_string_lossy().to_lowercase()));
            paths.extend(meant.map(|entry| entry.path()));
        }
        paths
    };
    GUARDED_AT_HOME.iter().flat_map(of_pattern).collect()
}

impl GuardedPattern {
    fn new(line: &'static str, is_anchored: bool) -> Self {
        let parts = line
            .trim_start_matches('/')
            .trim_end_matches("/**")
            .split('/')
            .collect();
        Self { is_anchored, parts }
    }

    fn matches(&self, names: &[String]) -> bool {
        let starts = if self.is_anchored {
            0..1
        } else {
            0..names.len()
        };
        starts.into_iter().any(|start| {
            let names = &names[start.min(names.len())..];
            names.len() >= self.parts.len()
                && self
                    .parts
                    .iter()
                    .zip(names)
                    .all(|(part, name)| is_name(part, name))
        })
    }
}

fn is_name(pattern: &str, name: &str) -> bool {
    let pattern = pattern.to_lowercase();
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == pattern,
    }
}

/// Returns a name as the most tolerant file system treats it: without case, ignorable characters,
/// and trailing dots and spaces.
fn normalized_name(part: Component<'_>) -> Option<String> {
    let Component::Normal(text) = part else {
        return None;
    };
    let is_ignorable = |c: &char| matches!(*c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let folded: String = text
        .to_string_lossy()
        .chars()
        .filter(|c| !is_ignorable(c))
        .nfkc()
        .collect();
    let name = folded.to_lowercase();
    let name = name
        .split(':')
        .next()
        .unwrap_or_default()
        .trim_end_matches(['.', ' ']);
    Some(if GIT_SHORT_NAMES.contains(&name) {
        ".git".to_owned()
    } else {
        name.to_owned()
    })
}

/// Whether a folder on the path is a bare git repository, or becomes one with this write.
fn is_in_repository(root: &Path, relative: &Path) -> bool {
    let mut folder = root.to_owned();
    relative.components().any(|part| {
        let Some(entry) = normalized_name(part) else {
            return false;
        };
        let has = |known: &&&str| entry == **known || exists(&folder, known);
        let count = REPOSITORY_ENTRIES.iter().filter(has).count();
        let is_repository =
            count >= 2 || (count == 1 && ["config", "hooks"].contains(&entry.as_str()));
        folder.push(part);
        is_repository
    })
}

fn exists(folder: &Path, name: &str) -> bool {
    let upper = name.to_uppercase();
    [name, &upper]
        .iter()
        .any(|name| folder.join(name).symlink_metadata().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_that_configure_other_programs_are_guarded() {
        let none = Path::new("/nowhere");
        for (path, want) in [
            (".vscode/settings.json", true),
            ("sub/.vscode/tasks.json", true),
            (".VSCode/settings.json", true),
            (".cargo/config.toml", true),
            (".husky/pre-commit", true),
            (".git/hooks/pre-commit", true),
            (".GIT/config", true),
            ("git~1/config", true),
            (".git./config", true),
            (".g\u{200c}it/config", true),
            (".gitmodules", true),
            (".gitattributes", true),
            (".mcp.json", true),
            (".claude/settings.json", true),
            (".agents/x.md", true),
            ("AGENTS.md", true),
            ("docs/AGENTS.md", true),
            ("agents.md", true),
            (".github/workflows/ci.yml", true),
            (".gitlab-ci.yml", true),
            ("Jenkinsfile", true),
            (".envrc", true),
            (".pre-commit-config.yaml", true),
            ("gradle/wrapper/gradle-wrapper.properties", true),
            (".soong-agent/plans/x.md", true),
            ("src/main.rs", false),
            ("package.json", false),
            ("Makefile", false),
            ("claude_client.py", false),
            ("src/github/workflows.rs", false),
            (".gitignore", true),
            ("gradle/other.txt", false),
            ("HEAD", false),
            ("agents/x.rs", false),
        ] {
            assert_eq!(is_guarded(none, Path::new(path)), want, "{path}");
        }
    }

    #[test]
    fn a_bare_repository_is_guarded_from_its_second_entry_on() {
        let folder = tempfile::tempdir().unwrap();
        for (made, path, want) in [
            ("repo/", "repo/HEAD", false),
            ("repo/HEAD", "repo/refs/heads/main", true),
            ("repo/HEAD", "repo/objects/x", true),
            ("repo/HEAD", "repo/config", true),
            ("repo/objects/", "repo/config", true),
            ("repo/objects/", "repo/hooks/pre-commit", true),
            ("repo/objects/", "other/config", false),
        ] {
            let made = folder.path().join(made);
            std::fs::create_dir_all(if made.ends_with("HEAD") {
                made.parent().unwrap()
            } else {
                &made
            })
            .unwrap();
            if made.ends_with("HEAD") {
                std::fs::write(&made, "ref: refs/heads/main").unwrap();
            }
            assert_eq!(is_guarded(folder.path(), Path::new(path)), want, "{path}");
        }
    }
}
