//! Names of parameters and fields: one name for each core type, the type's own.
//!
//! A reader who has met a type once knows its values everywhere. A second name is for a value in
//! another role, such as the parent of a run beside the run.

use super::{assert_none, code, crate_files};

/// Core types, each with the names of its values.
const NAMES: [(&str, &[&str]); 15] = [
    ("RunEntry", &["entry", "parent"]),
    ("RunSpec", &["spec"]),
    ("EventBus", &["bus"]),
    ("JournalHandle", &["journal"]),
    ("ArtifactOwner", &["owner"]),
    ("Permission", &["permission", "granted"]),
    ("Question", &["question"]),
    ("AccessRequest", &["access", "granted_access", "demand"]),
    ("CheckedToolCall", &["call"]),
    ("CallObserver", &["observer"]),
    ("Reservation", &["reservation"]),
    ("ResumeReason", &["reason", "resume_reason", "restarted"]),
    ("EventRecord", &["record"]),
    ("Ending", &["ending"]),
    ("Redactor", &["redactor"]),
];

/// Returns the name and the core type of each parameter and field of a line.
fn declarations(line: &str) -> Vec<(&str, &'static str, &'static [&'static str])> {
    let mut found = Vec::new();
    for (position, _) in line.match_indices(": ") {
        let name_start = line[..position]
            .rfind(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .map_or(0, |at| at + 1);
        let name = &line[name_start..position];
        let Some(core_type) = type_of(&line[position + 2..]) else {
            continue;
        };
        if let Some((type_name, names)) = NAMES.iter().find(|(name, _)| *name == core_type) {
            found.push((name, *type_name, *names));
        }
    }
    found
}

/// Returns the type at the start of a text, without references and the smart pointers around it.
fn type_of(text: &str) -> Option<&str> {
    let mut rest = text;
    loop {
        let before = rest;
        for prefix in [
            "&", "mut ", "Arc<", "Box<", "Option<", "'a ", "'_ ", "'static ",
        ] {
            rest = rest.strip_prefix(prefix).unwrap_or(rest);
        }
        if rest == before {
            break;
        }
    }
    let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
    // A path, or a value.
    let is_type = !rest[end..].starts_with(['(', ':', ' ', '.']);
    is_type.then_some(&rest[..end])
}

#[test]
fn values_of_core_types_have_one_name() {
    let mut findings = Vec::new();
    for source in crate_files() {
        for (number, line) in code(&source) {
            for (name, type_name, names) in declarations(line) {
                if !names.contains(&name.trim_start_matches('_')) && name != "_" {
                    let path = &source.path;
                    let expected = names[0];
                    findings.push(format!(
                        "{path}:{number}: `{name}: {type_name}`: name it `{expected}`"
                    ));
                }
            }
        }
    }
    assert_none(findings);
}

#[test]
fn declarations_are_found_behind_references_and_pointers() {
    for (line, expected) in [
        ("live: &Arc<RunEntry>,", Some("live")),
        ("fn f(&self, hub: Arc<EventBus>, n: u64) {", Some("hub")),
        ("pub(crate) asked: Option<Box<Permission>>,", Some("asked")),
        ("let entry = RunEntry::new();", None),
        ("owner: ArtifactOwner { session_id },", None),
        ("entries: Vec<RunEntry>,", None),
    ] {
        let names: Vec<&str> = declarations(line)
            .into_iter()
            .map(|(name, ..)| name)
            .collect();
        assert_eq!(names.first().copied(), expected, "{line}");
    }
}
