//! Tests of the time limit, and texts that are constructed to waste time.

use super::*;

/// Matches until `is_over` has been called `questions` times. Returns the number of calls.
fn match_with_limit(
    content: &str,
    old: &str,
    questions: usize,
) -> (Result<Match, MatchError>, usize) {
    let mut count = 0;
    let result = find(content, old, &mut || {
        count += 1;
        count >= questions
    });
    (result, count)
}

#[test]
fn expired_budget_stops_every_stage() {
    let same = "a".repeat(40_000);
    let similar = format!("{}b", "a".repeat(300));
    let marks = "\u{301}\u{323}".repeat(200_000);
    let ligatures = "\u{FDFA}".repeat(60_000);
    let words = "some words that are not so rare ".repeat(40_000);
    for (content, old) in [
        (same.as_str(), similar.as_str()), // many spans, one region
        (&marks, "nothing of this"),       // one cluster
        (&ligatures, "nothing of this"),
        (&words, "nothing of this"),
        (&same, "aaaaaaaaab"), // short: uses the preference
    ] {
        let (_, questions) = match_with_limit(content, old, usize::MAX);
        assert!(questions > 3, "asked {questions} times");
        for stop in [1, 2, questions / 2, questions - 1] {
            let (result, count) = match_with_limit(content, old, stop);
            assert_eq!(
                (result, count),
                (Err(MatchError::OutOfTime), stop),
                "of {questions}"
            );
        }
    }
}

#[test]
fn expired_budget_still_reports_ambiguity_found_so_far() {
    // Each line differs only in its last characters, so all are equally near.
    let lines: String = (0..4000)
        .map(|at| format!("a line of text {at:05}\n"))
        .collect();
    let old = "a line of text ?????";
    let (result, questions) = match_with_limit(&lines, old, usize::MAX);
    assert_eq!(
        result,
        Err(MatchError::Ambiguous {
            layer: Layer::Fuzzy,
            count: 4000
        })
    );
    let (result, _) = match_with_limit(&lines, old, questions);
    assert!(
        matches!(result, Err(MatchError::Ambiguous { count: 2..4000, .. })),
        "{result:?}"
    );
}

#[test]
fn region_of_overlapping_spans_gives_longest_earliest_match() {
    let content = "a".repeat(500);
    let old = format!("{}b", "a".repeat(99));
    let found = matched(&content, &old).unwrap();
    assert_eq!((found.layer, found.range), (Layer::Fuzzy, 0..100));
}
