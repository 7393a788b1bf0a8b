//! Some files decide for each event what changes with it, or what is said about it. They have no
//! default, so the compiler names the places that a new event concerns.

use syn::{ExprMatch, Pat, Path, spanned::Spanned, visit::Visit};

use super::{assert_none, production, read};

/// Files that decide for each event.
const CONSUMERS: [&str; 12] = [
    "protocol/src/event/ended_model_call.rs",
    "protocol/src/event/stats.rs",
    "storage/src/sqlite/event_effects.rs",
    "storage/src/sqlite/row_updates.rs",
    "actors/src/run/machine/state.rs",
    "actors/src/run/machine/budget.rs",
    "actors/src/run/machine/callbacks.rs",
    "actors/src/run/machine/sub_agents/children.rs",
    "actors/src/run/machine/tool_calls/approval.rs",
    "actors/src/run/machine/turn/compaction.rs",
    "actors/src/task_journal/projection.rs",
    "bin/src/event_sentences.rs",
];

/// Finds the default arms of matches on events.
#[derive(Default)]
struct DefaultArms {
    lines: Vec<usize>,
}

impl DefaultArms {
    fn in_file(text: &str) -> Vec<usize> {
        let mut arms = Self::default();
        let file = syn::parse_file(text).unwrap();
        arms.visit_file(&file);
        arms.lines
    }
}

impl<'a> Visit<'a> for DefaultArms {
    fn visit_expr_match(&mut self, expr: &'a ExprMatch) {
        let is_on_events = expr.arms.iter().any(|arm| names_event(&arm.pat));
        for arm in &expr.arms {
            if is_on_events && matches!(arm.pat, Pat::Wild(_)) {
                self.lines.push(arm.pat.span().start().line);
            }
        }
        syn::visit::visit_expr_match(self, expr);
    }
}

/// Returns whether a pattern names a variant of `Event`, or of the events of a noun.
fn names_event(pattern: &Pat) -> bool {
    match pattern {
        Pat::Struct(pattern) => is_of_event(&pattern.path),
        Pat::TupleStruct(pattern) => is_of_event(&pattern.path),
        Pat::Path(pattern) => is_of_event(&pattern.path),
        Pat::Or(pattern) => pattern.cases.iter().any(names_event),
        _ => false,
    }
}

fn is_of_event(path: &Path) -> bool {
    let mut names = path.segments.iter().rev().skip(1);
    names.any(|segment| segment.ident.to_string().ends_with("Event"))
}

#[test]
fn consumers_decide_for_each_event() {
    let mut findings = Vec::new();
    for path in CONSUMERS {
        let text = read(path);
        let text = production(&text).join("\n");
        for line in DefaultArms::in_file(&text) {
            findings.push(format!(
                "{path}:{line}: a default for events: name the others, so that a new one is seen"
            ));
        }
    }
    assert_none(findings);
}

#[test]
fn default_check_finds_exactly_the_wrong_lines() {
    let text = "
        fn f() {
            match event {
                ModelEvent::Started { .. } => {}
                _ => {}
            }
            match code {
                ErrorCode::Cancelled => {}
                _ => {}
            }
            match event {
                Event::Tool(_) | Event::Hook(_) => {}
                _ => {}
            }
            match event {
                Event::Tool(_) => {}
                other => show(other),
            }
        }
    ";
    assert_eq!(DefaultArms::in_file(text), [5, 13]);
}
