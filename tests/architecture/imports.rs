//! Allowed imports between modules: a table of edges between the top-level modules of each crate,
//! and a check that siblings in a folder have no import cycle.
//!
//! A parent and its children may use each other. `imports.txt` contains the table: each module and
//! the siblings that it uses.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    CRATES, assert_none,
    modules::{Crate, Edge, circles, siblings},
    read, root,
};

/// Path of the table of allowed edges.
const TABLE: &str = "tests/architecture/imports.txt";

fn crate_edges(folder: &str) -> Vec<Edge> {
    let root_file = ["src/lib.rs", "src/main.rs"]
        .into_iter()
        .map(|file| root().join(folder).join(file));
    Crate::read(&root_file.into_iter().find(|file| file.exists()).unwrap()).edges()
}

/// Parses the table. Each line has the form `crate module: used used`; the key is `crate module`.
fn table(text: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let lines = text
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .filter_map(|line| line.split_once(':'))
        .map(|(module, used)| (module, used.split_whitespace().collect()))
        .collect()
}

#[test]
fn top_level_imports_match_the_table() {
    let text = read(TABLE);
    let mut allowed = table(&text);
    let mut findings = Vec::new();
    for (folder, ..) in CRATES {
        let mut rooms = siblings(&crate_edges(folder));
        for (module, used) in rooms.remove(&Vec::new()).unwrap_or_default() {
            let key = format!("{folder} {module}");
            let mut known = allowed.remove(key.as_str()).unwrap_or_default();
            for (other, example) in &used {
                if !known.remove(other.as_str()) {
                    findings.push(format!(
                        "{key} uses {other} ({example}): avoid it, or allow it in {TABLE}"
                    ));
                }
            }
            findings.extend(
                known
                    .iter()
                    .map(|other| format!("{key} does not use {other}: take it out of {TABLE}")),
            );
        }
    }
    findings.extend(
        allowed
            .keys()
            .map(|module| format!("{module} uses no sibling: take it out of {TABLE}")),
    );
    assert_none(findings);
}

#[test]
fn siblings_have_no_import_cycles() {
    let mut findings = Vec::new();
    for (folder, ..) in CRATES {
        for (room, arrows) in siblings(&crate_edges(folder)) {
            let room = [&[folder.to_owned()], room.as_slice()].concat().join("::");
            let circles = circles(&arrows);
            for (name, circle) in circles
                .iter()
                .flat_map(|circle| circle.iter().map(move |name| (name, circle)))
            {
                let uses = arrows[name]
                    .iter()
                    .filter(|(other, _)| circle.contains(other));
                let uses: Vec<String> = uses
                    .map(|(other, example)| format!("{other} ({example})"))
                    .collect();
                findings.push(format!(
                    "{room}: {name} is in a circle with {}; it uses {}",
                    circle.join(", "),
                    uses.join(", ")
                ));
            }
        }
    }
    assert_none(findings);
}

#[test]
fn edges_are_found_through_reexports_and_macros() {
    for (text, want) in [
        (
            "mod a { use crate::b::B; } mod b { pub struct B; }",
            vec!["a>b"],
        ),
        (
            "mod a { fn f() -> super::b::B {} } mod b { pub struct B; }",
            vec!["a>b"],
        ),
        // Through a re-export of the root module.
        (
            "mod a { use crate::B; } mod b { pub struct B; } pub use b::B;",
            vec!["a>b"],
        ),
        (
            "mod a { use crate::C; } mod b { pub use crate::c::C; } mod c { pub struct C; } use b::C;",
            vec!["a>c", "b>c"],
        ),
        (
            "mod a { fn f() { vec![crate::b::g()]; } } mod b { pub fn g() {} }",
            vec!["a>b"],
        ),
        (
            "mod a { use crate::b::*; fn f() { g() } } mod b { pub fn g() {} pub fn h() {} }",
            vec!["a>b"],
        ),
        ("mod a { use crate::b::*; } mod b { pub fn g() {} }", vec![]),
        // Local names, other crates, tests and nested modules create no edges between siblings.
        (
            "mod a { use std::fmt; fn f(b: u8) { b; } } mod b {}",
            vec![],
        ),
        (
            "mod a { #[cfg(test)] mod tests { use crate::b::B; } } mod b { pub struct B; }",
            vec![],
        ),
        (
            "mod a { mod c { use super::D; } struct D; use c::E; }",
            vec![],
        ),
    ] {
        let rooms = siblings(&Crate::of_text(text).edges());
        let edges = rooms
            .values()
            .flatten()
            .flat_map(|(from, used)| used.keys().map(move |to| format!("{from}>{to}")));
        assert_eq!(edges.collect::<Vec<_>>(), want, "{text}");
    }
}

#[test]
fn import_cycles_are_found_among_siblings() {
    let arrows = |pairs: &[(&str, &str)]| {
        let mut arrows: BTreeMap<String, BTreeMap<String, String>> = BTreeMap::new();
        for (from, to) in pairs {
            arrows
                .entry((*from).to_owned())
                .or_default()
                .insert((*to).to_owned(), String::new());
        }
        arrows
    };
    assert!(circles(&arrows(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    assert_eq!(
        circles(&arrows(&[("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])),
        [["a", "b", "c"]]
    );
    assert_eq!(
        circles(&arrows(&[("a", "b"), ("b", "a"), ("c", "d"), ("d", "c")])).len(),
        2
    );
}
