//! Tests when blocks settle and how a text is finished, and that a text in pieces has the same
//! lines as the complete text.

use proptest::prelude::*;

use super::*;
use crate::markdown::tests::{markdown, page, plains};

/// Renders a text in pieces: the lines settled after each piece, and the final lines.
fn in_steps(pieces: &[&str], whole: &str) -> Vec<Vec<String>> {
    let page = page(20);
    let mut streamed = Streamed::default();
    let mut steps = Vec::new();
    for piece in pieces {
        streamed.push(piece);
        steps.push(plains(&streamed.settled(&page)));
    }
    steps.push(plains(&streamed.finish(whole, &page)));
    steps
}

#[test]
fn block_is_final_once_the_next_one_begins() {
    let none: &[&str] = &[];
    for (pieces, want) in [
        (
            vec!["one", "\n\ntw", "o\n", "\nx"],
            vec![none, none, &["one"], none, &["", "two", "", "x"]],
        ),
        (vec!["one\n#", "\n"], vec![none, &["one"], none]), // `#` by itself may become a word
        (
            vec!["- a\n", "\n- b\n", "\nend\n"],
            vec![none, none, &["• a", "", "• b"], &["", "end"]],
        ),
        (
            vec!["```\na\n\n", "b\n```\n", "c\n"],
            vec![none, none, &["    a", "", "    b"], &["", "c"]],
        ),
        (
            vec!["|a|\n|-|\n", "|b|\n", "\nc\n"],
            vec![none, none, &["a", "─", "b"], &["", "c"]],
        ),
        (
            vec!["a\r", "\n\r", "\nb\r", "\n"],
            vec![none, none, none, &["a"], &["", "b"]],
        ),
        (vec!["", "\n\n", "a\n"], vec![none, none, none, &["a"]]),
    ] {
        let whole = pieces.concat();
        assert_eq!(in_steps(&pieces, &whole), want, "{pieces:?}");
    }
}

#[test]
fn final_text_replaces_or_completes_the_stream() {
    let incomplete = "The text above was …";
    for (pieces, whole, want) in [
        (
            vec!["a\n\nb\n"],
            "a\n\nb, and what was lost",
            vec![vec!["a"], vec!["", "b, and what was lost"]],
        ),
        (
            vec!["\n\na\n\nb\n"],
            "a\n\nb",
            vec![vec!["a"], vec!["", "b"]],
        ), // trimmed by the provider
        (
            vec!["a\n\nb\n"],
            "a and more\n\nb",
            vec![vec!["a"], vec!["", incomplete, "", "a and more", "", "b"]],
        ),
        (
            vec!["a\n\nb\n"],
            "",
            vec![vec!["a"], vec!["", incomplete, ""]],
        ),
        (vec!["lost"], "all", vec![vec![], vec!["all"]]),
        (vec![], "all", vec![vec!["all"]]),
    ] {
        assert_eq!(in_steps(&pieces, whole), want, "{pieces:?} of {whole:?}");
    }
}

#[test]
fn new_text_starts_after_finish() {
    let mut streamed = Streamed::default();
    streamed.push("a\n\nb\n");
    streamed.settled(&page(20));
    streamed.finish("a\n\nb", &page(20));
    assert_eq!(streamed.tail(&page(20), 9), []);
    streamed.push("c\n");
    assert_eq!(plains(&streamed.tail(&page(20), 9)), ["c"]);
    assert_eq!(plains(&streamed.finish("c", &page(20))), ["c"]);
}

#[test]
fn tail_is_the_end_of_unsettled_text() {
    let mut streamed = Streamed::default();
    streamed.push("a\n\n- b\n- c\n- d");
    assert_eq!(plains(&streamed.tail(&page(20), 2)), ["• c", "• d"]);
    assert_eq!(plains(&streamed.settled(&page(20))), ["a"]);
    // The separation from the settled part is as it will be in the final text.
    assert_eq!(
        plains(&streamed.tail(&page(20), 9)),
        ["", "• b", "• c", "• d"]
    );
    assert_eq!(streamed.tail(&page(20), 0), []);
}

#[test]
fn very_long_block_is_parsed_only_a_few_times() {
    let mut streamed = Streamed::default();
    let line = "let **x** = 1;\n";
    let mut whole = "```\n".to_owned();
    streamed.push(&whole);
    for _ in 0..50_000 {
        streamed.push(line);
        whole.push_str(line);
        assert_eq!(streamed.settled(&page(40)), []);
    }
    assert_eq!(
        plains(&streamed.tail(&page(40), 2)),
        ["    let **x** = 1;"; 2]
    );
    streamed.push("```\n");
    whole.push_str("```\n");
    assert_eq!(streamed.finish(&whole, &page(40)).len(), 50_000);
}

/// Cuts a text into pieces.
fn pieces(text: &str, cuts: &[prop::sample::Index]) -> Vec<String> {
    let mut positions: Vec<usize> = cuts
        .iter()
        .map(|cut| text.floor_char_boundary(cut.index(text.len() + 1)))
        .collect();
    positions.extend([0, text.len()]);
    positions.sort_unstable();
    positions
        .windows(2)
        .map(|pair| text[pair[0]..pair[1]].to_owned())
        .collect()
}

fn cuts() -> impl Strategy<Value = Vec<prop::sample::Index>> {
    prop::collection::vec(any::<prop::sample::Index>(), 0..12)
}

proptest! {
    #[test]
    fn streamed_text_renders_like_whole_text(
        text in markdown(), cuts in cuts(), width in 10usize..60, lines in 0usize..9,
    ) {
        let page = page(width);
        let mut streamed = Streamed::default();
        let mut shown = Vec::new();
        for piece in pieces(&text, &cuts) {
            streamed.push(&piece);
            shown.extend(streamed.settled(&page));
            prop_assert!(streamed.settled(&page).is_empty());
            prop_assert!(streamed.tail(&page, lines).len() <= lines);
        }
        shown.extend(streamed.finish(&text, &page));
        prop_assert_eq!(plains(&shown), plains(&render(&text, &page)));
    }
}
