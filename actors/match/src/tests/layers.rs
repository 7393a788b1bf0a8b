//! Property tests of each layer, compared with the naive reference.

use unicode_normalization::UnicodeNormalization as _;

use super::{
    super::{
        approximate,
        columns::{Alphabet, Columns, Pattern},
        normalised::NormalizedText,
    },
    reference::{self, Nearest},
    *,
};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Runs only the third layer, and converts its result to the type of the reference.
fn approximate(content: &str, old: &str) -> Nearest {
    match approximate::find(content, old, &mut WorkBudget::new(&mut || false)) {
        Ok(found) => {
            let m = old.chars().count();
            let start = content[..found.range.start].chars().count();
            let len = content[found.range].chars().count();
            Nearest::Found(
                ((1.0 - found.similarity) * m as f64).round() as usize,
                start..start + len,
            )
        }
        Err(MatchError::NoMatch) => Nearest::NoMatch,
        Err(MatchError::Ambiguous {
            layer: Layer::Fuzzy,
            count,
        }) => Nearest::Ambiguous(count),
        Err(MatchError::TooDifferent { similarity }) => {
            Nearest::TooDifferent(((1.0 - similarity) * old.chars().count() as f64).round() as usize)
        }
        Err(error) => panic!("{error:?}"),
    }
}

fn near_pairs() -> impl Strategy<Value = (String, String)> {
    prop_oneof![
        text_with_edited_passage(LETTERS, 1..60, 1..24, 8),
        text_with_edited_passage(MIXED, 1..60, 1..24, 8),
        text_with_edited_passage(MIXED, 20..60, 10..40, 12),
        text_with_edited_passage(FEW, 1..40, 5..22, 5),
        text_with_edited_passage(FEW, 10..50, 5..30, 3),
        (small_text(FEW, 0..40), small_text(FEW, 1..24)),
        (small_text(LETTERS, 0..60), small_text(LETTERS, 1..24)),
    ]
}

proptest! {
    #![proptest_config(config(3000))]

    #[test]
    fn fuzzy_layer_agrees_with_exhaustive_search((content, old) in near_pairs()) {
        prop_assert_eq!(approximate(&content, &old), reference::nearest(&content, &old));
    }

    #[test]
    fn normalization_of_odd_text_agrees_with_reference(text in small_text(ODD, 0..24)) {
        let normal = with_unlimited_budget(|budget| NormalizedText::of(&text, budget));
        prop_assert_eq!(normal.text, reference::normalised(&text));
    }

    #[test]
    fn normalization_of_any_text_agrees_with_reference(text in "\\PC{0,20}") {
        let normal = with_unlimited_budget(|budget| NormalizedText::of(&text, budget));
        prop_assert_eq!(normal.text, reference::normalised(&text));
    }

    #[test]
    fn original_range_normalizes_to_the_selected_text(
        text in small_text(ODD, 1..24), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(),
    ) {
        // A mark that contributes its own space may lose the space after Latin or CJK, but keeps it
        // if it is alone.
        let text = text.replace(['゛', '¨'], "");
        let normal = with_unlimited_budget(|budget| NormalizedText::of(&text, budget));
        let ends: Vec<usize> = normal.text.char_indices().map(|(at, _)| at).chain([normal.text.len()]).collect();
        let (from, to) = (from.index(ends.len()), to.index(ends.len()));
        let (from, to) = (from.min(to), from.max(to));
        let wanted = &normal.text[ends[from]..ends[to]];
        // Other texts cannot be found, because their own normalized form differs.
        let can_be_wanted = from < to && reference::normalised(wanted) == wanted;
        if let Some(range) = normal.original_range(ends[from]..ends[to]).filter(|_| can_be_wanted) {
            prop_assert_eq!(reference::normalised(&text[range]), wanted);
        }
    }

    #[test]
    fn match_range_is_on_char_boundaries_and_normalizes_to_old_text(
        (content, old) in prop_oneof![text_with_edited_passage(ODD, 1..30, 1..8, 0), text_with_edited_passage(ODD, 1..30, 1..12, 1)],
        typed in any::<bool>(),
    ) {
        let old = if typed { old.nfkc().collect() } else { old };
        match matched(&content, &old) {
            Ok(found) => {
                let range = found.range;
                prop_assert!(content.is_char_boundary(range.start) && content.is_char_boundary(range.end));
                prop_assert!(!range.is_empty());
                prop_assert!((0.0..=1.0).contains(&found.similarity));
                let changed = [&content[..range.start], "NEW", &content[range.end..]].concat();
                prop_assert!(changed.starts_with(&content[..range.start]) && changed.ends_with(&content[range.end..]));
                match found.layer {
                    Layer::Exact => prop_assert_eq!(&content[range], old.as_str()),
                    Layer::Normalized if content.contains(['゛', '¨']) => {}
                    Layer::Normalized => {
                        prop_assert_eq!(reference::normalised(&content[range]), reference::normalised(&old));
                    }
                    Layer::Fuzzy => prop_assert!(found.similarity >= 0.7 - 1e-9),
                }
            }
            Err(MatchError::EmptyOld) => prop_assert!(old.is_empty()),
            Err(error) => prop_assert!(error != MatchError::OutOfTime),
        }
    }

    #[test]
    fn single_exact_occurrence_wins_over_near_matches((content, old) in near_pairs()) {
        let old = if old.is_empty() { "a".to_owned() } else { old };
        let places: Vec<usize> = content.match_indices(&old).map(|(at, _)| at).collect();
        let result = matched(&content, &old);
        match places[..] {
            [] => prop_assert!(result.map(|found| found.layer) != Ok(Layer::Exact)),
            [at] => {
                let wanted = Match { layer: Layer::Exact, similarity: 1.0, range: at..at + old.len() };
                prop_assert_eq!(result, Ok(wanted));
            }
            _ => {
                let refused = MatchError::Ambiguous { layer: Layer::Exact, count: places.len() };
                prop_assert_eq!(result, Err(refused));
            }
        }
    }

    #[test]
    fn matching_never_panics(content in any::<String>(), old in any::<String>(), more in small_text(ODD, 0..20)) {
        let _ = matched(&content, &old);
        let _ = matched(&format!("{content}{more}{old}"), &format!("{more}{old}"));
        let _ = matched(&more, &content);
    }
}

proptest! {
    #![proptest_config(config(40))]

    #[test]
    fn fuzzy_layer_agrees_with_search_for_multi_word_patterns(
        (content, old) in prop_oneof![
            text_with_edited_passage(LETTERS, 100..260, 60..200, 30),
            text_with_edited_passage(MIXED, 100..260, 60..200, 60),
            text_with_edited_passage(FEW, 100..260, 60..140, 30),
        ],
    ) {
        prop_assert_eq!(approximate(&content, &old), reference::nearest(&content, &old));
    }
}

/// Computes the distance of each column by the plain recurrence.
fn plain_columns(text: &[u32], old: &[u32], limit: usize, anchored: bool) -> Vec<Option<usize>> {
    let mut column: Vec<usize> = (0..=old.len()).collect();
    let mut bottoms = Vec::new();
    for (at, symbol) in text.iter().enumerate() {
        let mut next = vec![if anchored { at + 1 } else { 0 }];
        for (row, other) in old.iter().enumerate() {
            let diagonal = column[row] + usize::from(symbol != other);
            next.push(diagonal.min(column[row + 1] + 1).min(next[row] + 1));
        }
        bottoms.push(Some(next[old.len()]).filter(|distance| *distance <= limit));
        column = next;
    }
    bottoms
}

proptest! {
    #![proptest_config(config(1500))]

    #[test]
    fn bit_columns_equal_distance_columns(
        (content, old) in prop_oneof![
            text_with_edited_passage(FEW, 1..400, 1..330, 40),
            text_with_edited_passage(LETTERS, 1..400, 1..330, 80),
            text_with_edited_passage(MIXED, 1..400, 120..330, 60),
        ],
        part in 0..=100_usize,
        anchored in any::<bool>(),
        // Room for some symbols only; the words of the others are rebuilt in each column.
        room in prop::sample::select(vec![0_usize, 6, 1 << 20]),
    ) {
        let old = if old.is_empty() { "a".to_owned() } else { old };
        let alphabet = Alphabet::of(&old);
        let (text, old) = (alphabet.encode(&content), alphabet.encode(&old));
        let limit = old.len() * part / 100;
        let pattern = Pattern::within(old.iter().copied(), room);
        let mut columns = Columns::new(&pattern, limit, anchored);
        let found: Vec<Option<usize>> = text.iter().map(|&symbol| columns.push(symbol)).collect();
        prop_assert_eq!(found, plain_columns(&text, &old, limit, anchored));
    }
}
