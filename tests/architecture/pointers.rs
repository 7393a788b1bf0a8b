//! A module header says after "Elsewhere:" which file holds a related thing. Each such path exists: it
//! is relative to the folder of the module's children, to that of its file, or to a folder above, up to
//! the repository.

use std::path::Path;

use super::{Source, assert_none, crate_files, root};

const MARKS: [&str; 3] = ["Elsewhere:", "Not in this module:", "Not in this module,"];

/// Endings of files that headers refer to.
const ENDINGS: [&str; 5] = [".rs", ".md", ".toml", ".txt", ".sql"];

/// Returns the paths in the paragraphs of the header that say where something else is.
fn pointers(text: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut is_pointing = false;
    for line in text.lines() {
        let Some(line) = line.strip_prefix("//!") else {
            break;
        };
        let mut rest = line.trim();
        if rest.is_empty() {
            is_pointing = false;
        }
        for mark in MARKS {
            if let Some((_, after)) = rest.split_once(mark) {
                is_pointing = true;
                rest = after;
            }
        }
        if is_pointing {
            let quoted = rest.split('`').skip(1).step_by(2);
            paths.extend(quoted.filter(|word| is_path(word)).map(str::to_owned));
        }
    }
    paths
}

fn is_path(word: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    word.chars().all(is_plain)
        && (word.contains('/') || ENDINGS.iter().any(|ending| word.ends_with(ending)))
}

/// Returns whether the path of a header exists, seen from its file.
fn is_found(file: &str, path: &str) -> bool {
    let module = file.trim_end_matches(".rs");
    let folders = Path::new(module).ancestors();
    let mut candidates = folders.map(|folder| root().join(folder).join(path));
    candidates.any(|candidate| candidate.exists())
}

fn findings(source: &Source) -> Vec<String> {
    let mut findings = Vec::new();
    for path in pointers(&source.text) {
        if !is_found(&source.path, &path) {
            findings.push(format!(
                "{}: there is no `{path}`, neither beside this file nor in a folder above it",
                source.path
            ));
        }
    }
    findings
}

#[test]
fn headers_point_to_files_that_exist() {
    assert_none(crate_files().iter().flat_map(findings).collect());
}

#[test]
fn pointer_check_finds_exactly_the_missing_files() {
    let source = Source {
        path: "actors/src/run/machine/hooks.rs".to_owned(),
        text: "//! Hooks, as `no/such/file.rs` says.\n\
               //!\n\
               //! Elsewhere: stop hooks (`machine/jobs/stop_hooks.rs`), calling them\n\
               //! (`tasks/hook_calls.rs`), and others (`absent.rs`, [`Hook`](crate::Hook)).\n\
               //!\n\
               //! `absent/too.rs`\n"
            .to_owned(),
    };
    let found = findings(&source);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].contains("`absent.rs`"), "{found:?}");
}
