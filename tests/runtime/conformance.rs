//! Runs the equivalent of every example that the five source documents print: code, records,
//! listings and texts.
//!
//! `bin/guide/reference/conformance.md` lists what the documents ask for and where Soong differs.
//! Each module belongs to a section of that page. The requests that the last document prints as
//! `curl` lines are in `tests/server/conformance.rs`.

use std::{collections::BTreeSet, fs, path::Path};

mod agent_core;
mod documents;
mod memory;
mod named_artifacts;
mod records;
mod traces;

/// The page gives each capability a state, and names exactly these tests.
#[test]
fn page_has_states_and_names_the_tests() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let page = fs::read_to_string(root.join("bin/guide/reference/conformance.md")).unwrap();
    let (capabilities, examples) = page.split_once("## Printed examples").unwrap();
    let rows = |text: &str| -> Vec<Vec<String>> {
        let cells = |line: &str| {
            line.trim_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect()
        };
        text.lines()
            .filter(|line| line.starts_with("| "))
            .map(cells)
            .collect()
    };
    let mut count = 0;
    for row in rows(capabilities)
        .iter()
        .filter(|row| row.len() == 3 && row[1] != "State")
    {
        assert!(
            ["works", "differs", "later"].contains(&row[1].as_str()) && !row[2].is_empty(),
            "{row:?}"
        );
        count += 1;
    }
    assert!(count > 135, "{count} capabilities");
    let named: BTreeSet<String> = rows(examples)
        .iter()
        .filter(|row| row[1] != "Test")
        .flat_map(|row| {
            row[1]
                .split(", ")
                .map(|name| name.trim_matches('`').to_owned())
                .collect::<Vec<_>>()
        })
        .collect();
    let mut files = vec![root.join("tests/server/conformance.rs")];
    let folder = fs::read_dir(root.join("tests/runtime/conformance")).unwrap();
    files.extend(folder.map(|entry| entry.unwrap().path()));
    let mut tests = BTreeSet::new();
    for text in files.iter().map(|file| fs::read_to_string(file).unwrap()) {
        for (at, _) in text
            .match_indices("\n#[tokio::test")
            .chain(text.match_indices("\n#[test]"))
        {
            let function = text[at..].split_once("fn ").unwrap().1;
            tests.insert(function.split_once('(').unwrap().0.to_owned());
        }
    }
    assert_eq!(named, tests);
}
