//! The shared cases, and texts that demonstrate single rules.

use serde::Deserialize;
use soong_protocol::ErrorCode;

use super::*;

#[derive(Deserialize)]
struct Case {
    id: String,
    category: String,
    content: String,
    old: String,
    new: String,
    expect: Expect,
}

#[derive(Deserialize)]
struct Expect {
    success: bool,
    layer: Option<Layer>,
    new_content: Option<String>,
}

#[test]
fn shared_cases_have_expected_results() {
    let mut count = 0;
    for line in include_str!("../cases.jsonl").lines() {
        let case: Case = serde_json::from_str(line).unwrap();
        let result = matched(&case.content, &case.old);
        let id = &case.id;
        assert_eq!(result.is_ok(), case.expect.success, "{id}: {result:?}");
        match result {
            Ok(found) => {
                let replaced = [
                    &case.content[..found.range.start],
                    &case.new,
                    &case.content[found.range.end..],
                ]
                .concat();
                assert_eq!(Some(replaced), case.expect.new_content, "{id}");
                assert_eq!(Some(found.layer), case.expect.layer, "{id}");
            }
            Err(error) if case.category == "ambiguous" => {
                assert_eq!(error.code(), ErrorCode::AmbiguousMatch, "{id}: {error}");
            }
            Err(error) => {
                let codes = [ErrorCode::NoMatch, ErrorCode::MatchTooDifferent];
                assert!(codes.contains(&error.code()), "{id}: {error}");
            }
        }
        count += 1;
    }
    assert_eq!(count, 49);
}

#[test]
fn empty_old_text_is_rejected() {
    for content in ["", "a"] {
        let error = matched(content, "").unwrap_err();
        assert_eq!(
            (error.code(), &error),
            (ErrorCode::ValidationError, &MatchError::EmptyOld)
        );
    }
}

#[test]
fn ambiguous_match_is_rejected_with_match_count() {
    for (content, old, layer, count) in [
        ("x x x", "x", Layer::Exact, 3),
        ("aaaaa", "aa", Layer::Exact, 2), // overlapping matches are not counted
        ("“x” \"x\" ‘x’", "”x”", Layer::Normalized, 2),
        (
            "one hundred. one hundred. one hundred.",
            "one hXndred",
            Layer::Fuzzy,
            3,
        ),
        ("abcdefgh|abcdefgh", "abcdXfgh", Layer::Fuzzy, 2),
        ("abcdefghabcdefgh", "abcdXfgh", Layer::Fuzzy, 2), // adjacent matches do not overlap
    ] {
        assert_eq!(
            matched(content, old),
            Err(MatchError::Ambiguous { layer, count }),
            "{content}: {old}"
        );
    }
}

#[test]
fn match_reports_layer_similarity_and_range() {
    for (content, old, layer, similarity, matched_text) in [
        ("say «hi» now", "\"hi\"", Layer::Normalized, 1.0, "«hi»"),
        (
            "中文   word",
            "中文word",
            Layer::Normalized,
            1.0 - 3.0 / 9.0,
            "中文   word",
        ),
        (
            "weight: 5㎏.",
            "5kg",
            Layer::Normalized,
            1.0 - 1.0 / 3.0,
            "5㎏",
        ),
        (
            "of  \nit ",
            "of\nit",
            Layer::Normalized,
            1.0 - 2.0 / 7.0,
            "of  \nit",
        ), // trailing spaces not included
        (
            "see information here",
            "informetion",
            Layer::Fuzzy,
            1.0 - 1.0 / 11.0,
            "information",
        ),
        (
            "e\u{301}a",
            "éa",
            Layer::Normalized,
            1.0 - 1.0 / 3.0,
            "e\u{301}a",
        ),
    ] {
        let found = matched(content, old).unwrap();
        assert_eq!(
            (found.layer, &content[found.range]),
            (layer, matched_text),
            "{old}"
        );
        assert!(
            (found.similarity - similarity).abs() < 1e-12,
            "{old}: {}",
            found.similarity
        );
    }
}

#[test]
fn match_splitting_normalized_group_falls_back_to_fuzzy_layer() {
    for (content, old, want) in [
        ("Ⅳx", "Vx", Err(MatchError::NoMatch)),
        ("1㎏", "1k", Err(MatchError::NoMatch)),
        ("ﬁnding", "inding", Ok(Layer::Fuzzy)), // the ligature is one more character
        ("\u{FDFA}", "وسلم", Err(MatchError::NoMatch)),
        ("ﬁ\u{301}x", "fí", Ok(Layer::Normalized)),
        ("ﬁ\u{301}x", "f", Err(MatchError::NoMatch)),
        ("ﬁ\u{301}x", "íx", Err(MatchError::NoMatch)),
    ] {
        assert_eq!(
            matched(content, old).map(|found| found.layer),
            want,
            "{content}: {old}"
        );
    }
}

#[test]
fn fuzzy_match_requires_70_percent_similarity() {
    // Six characters: up to five differences are considered, only one is accepted.
    assert_eq!(
        matched("....abcdef....", "abcxyz"),
        Err(MatchError::TooDifferent { similarity: 0.5 })
    );
    assert_eq!(matched("....abcdef....", "abcdxf").unwrap().range, 4..10);
    assert_eq!(matched("..........", "abcxyz"), Err(MatchError::NoMatch));
    assert_eq!(
        matched("abcde", "abXde"),
        Err(MatchError::NoMatch),
        "five characters are near to anything"
    );
    assert_eq!(matched("", "abcdef"), Err(MatchError::NoMatch));
}

#[test]
fn errors_have_public_codes_and_advice() {
    for (error, code, words) in [
        (MatchError::EmptyOld, "validation_error", "give the text"),
        (
            MatchError::Ambiguous {
                layer: Layer::Exact,
                count: 3,
            },
            "ambiguous_match",
            "in 3 places: add text",
        ),
        (
            MatchError::NoMatch,
            "no_match",
            "read the current text again",
        ),
        (
            MatchError::TooDifferent { similarity: 0.58 },
            "match_too_different",
            "matches only 58 %",
        ),
        (MatchError::OutOfTime, "match_budget_exceeded", "timed out"),
    ] {
        assert_eq!(error.code().as_str(), code);
        assert!(error.to_string().contains(words), "{error}");
    }
    assert_eq!(
        serde_json::to_value(Layer::Normalized).unwrap(),
        Layer::Normalized.as_str()
    );
}
