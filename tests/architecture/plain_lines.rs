//! Plain lines: one binding and one assignment a line, `if` for a bool, and lines that a reader takes
//! in at once.

use super::{assert_none, code, crate_files};

/// Maximum mean length of a line of code, in characters without indentation. Lines without code do
/// not count.
const MAX_MEAN_CHARS: f64 = 29.0;

/// Returns the fault of a line that does several things at once.
fn fault(line: &str) -> Option<&'static str> {
    let line = line.trim_start();
    if line.starts_with("let (") && assigns_tuple(line) {
        return Some("binds several names to a tuple: write a `let` for each");
    }
    if line.starts_with('(') && assigns_tuple(line) {
        return Some("assigns to several places: write an assignment for each");
    }
    let arm = line
        .strip_prefix("true ")
        .or_else(|| line.strip_prefix("false "));
    let is_arm_of_bool = |rest: &str| rest.starts_with("=>") || rest.starts_with("if ");
    arm.is_some_and(is_arm_of_bool)
        .then_some("matches on a bool: write `if`")
}

/// Returns whether a tuple is assigned to a tuple.
fn assigns_tuple(line: &str) -> bool {
    let Some((target, value)) = line.split_once(") = ") else {
        return false;
    };
    // A pattern that can fail to match is decided by all values at once.
    let is_refutable = target[1..].contains("Some(") || target.contains("Ok(");
    if is_refutable || target.contains("=>") || target.contains('|') {
        return false;
    }
    let Some(elements) = value.strip_prefix('(') else {
        return false;
    };
    let mut depth = 0;
    for c in elements.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' if depth == 0 => return false,
            ')' | ']' | '}' => depth -= 1,
            ',' if depth == 0 => return true,
            _ => {}
        }
    }
    // The tuple continues on the next line.
    elements.is_empty()
}

#[test]
fn lines_do_one_thing() {
    let mut findings = Vec::new();
    let mut lines = 0;
    let mut chars = 0;
    for source in crate_files() {
        for (number, line) in code(&source) {
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            lines += 1;
            chars += line.chars().count();
            if let Some(fault) = fault(line) {
                findings.push(format!("{}:{number}: {fault}", source.path));
            }
        }
    }
    let mean_chars = chars as f64 / lines as f64;
    println!("{lines} lines of code, {mean_chars:.1} characters each, {chars} in all");
    assert!(mean_chars < MAX_MEAN_CHARS, "{mean_chars:.1}");
    assert_none(findings);
}

#[test]
fn faults_are_found_exactly() {
    for line in [
        "let (a, b) = (1, f(2));",
        "let (mut a, b): (u8, u8) = (",
        "(self.a, self.b) = (1, 2);",
        "true => 1,",
        "false if a => 1,",
    ] {
        assert!(fault(line).is_some(), "{line}");
    }
    for line in [
        "let (a, b) = pair();",
        "let (a, b) = (self.pair)(1);",
        "let a = (1, 2);",
        "(a, b) = pair();",
        "Some((a, b)) => a = (b, 1),",
        "let (Some(a), Ok(b)) = (first(), second()) else {",
    ] {
        assert_eq!(fault(line), None, "{line}");
    }
}
