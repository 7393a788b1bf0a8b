//! Rule ids: each id that code or a page cites is defined in the guide, and each defined id is
//! cited.

use std::collections::BTreeSet;

use super::{assert_none, read, rust_files, text_files};

/// Path of the page that defines the rules.
const PAGE: &str = "bin/guide/reference/rules.md";

/// Names of standards that look like rule ids, such as `SHA-256`.
const STANDARDS: [&str; 7] = ["AES", "CVE", "ISO", "RFC", "SHA", "SSH", "UTF"];

/// Returns the rule ids in a text: two to six capitals, a hyphen, a number, optionally a letter
/// (`RUN-6a`).
///
/// The ids of the state machine's invariants (`R4`) have no hyphen.
fn cited(text: &str) -> BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-' && c != '_');
    words
        .filter(|word| is_rule(word) || is_invariant(word))
        .collect()
}

fn is_rule(word: &str) -> bool {
    let Some((noun, number)) = word.split_once('-') else {
        return false;
    };
    let digits = number.trim_end_matches(|c: char| c.is_ascii_lowercase());
    (2..=6).contains(&noun.len())
        && noun.bytes().all(|byte| byte.is_ascii_uppercase())
        && !STANDARDS.contains(&noun)
        && number.len() - digits.len() <= 1
        && (1..=2).contains(&digits.len())
        && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn is_invariant(word: &str) -> bool {
    matches!(word.as_bytes(), [b'R', b'1'..=b'9'])
}

/// Returns the ids that the page defines: each is in bold at the start of a list item.
fn defined(page: &str) -> BTreeSet<&str> {
    let items = page.lines().filter_map(|line| line.strip_prefix("- **"));
    items
        .filter_map(|item| item.split_once("**"))
        .map(|(id, _)| id)
        .collect()
}

#[test]
fn cited_rules_are_defined_and_defined_rules_are_cited() {
    let page = read(PAGE);
    let defined = defined(&page);
    let sources = ["protocol", "storage", "actors", "bin", "tests", "examples"]
        .into_iter()
        .flat_map(rust_files);
    let files = sources
        // The test cases of this file are not citations.
        .filter(|file| file.path != "tests/architecture/rules.rs")
        .chain(text_files(&["md", "toml", "sql"]))
        // Names of licenses look like citations.
        .filter(|file| {
            file.path != PAGE && file.path != "CHANGELOG.md" && file.path != "deny.toml"
        });
    let mut unused = defined.clone();
    let mut findings = Vec::new();
    for file in files {
        for id in cited(&file.text) {
            unused.remove(id);
            if !defined.contains(id) {
                findings.push(format!(
                    "{} cites {id}, which {PAGE} does not define",
                    file.path
                ));
            }
        }
    }
    findings.extend(
        unused
            .iter()
            .map(|id| format!("{PAGE} defines {id}, and no code or test cites it: remove it")),
    );
    assert_none(findings);
}

#[test]
fn rule_ids_are_distinguished_from_other_words() {
    for (text, want) in [
        ("kept whole (DUR-4), RUN-6a", vec!["DUR-4", "RUN-6a"]),
        ("R4 and (R5): `R6`", vec!["R4", "R5", "R6"]),
        (
            "UTF-8 SHA-256 X-1 R10 rfc-1 A-B DUR- RUN-1234 TOOL-3ab",
            vec![],
        ),
    ] {
        assert_eq!(cited(text).into_iter().collect::<Vec<_>>(), want, "{text}");
    }
    let page = "# Rules\n\n- **DUR-4** A call\n  that **EVT-1** names.\n- **R1** Ended.\n";
    assert_eq!(
        defined(page).into_iter().collect::<Vec<_>>(),
        ["DUR-4", "R1"]
    );
}
