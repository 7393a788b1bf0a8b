//! Table and property tests of the text of the experiences file.

use proptest::prelude::*;

use super::*;

const FILE: &str = "\
# My notes

Free text, with a rule:

---

more of it.

---
id: ex_001
trace_id: t1
category: tool_usage
tags:
  intent: [fix test, deploy]
  state:
    - Rust
    - \"no network\"
metrics: {helpful: 12, harmful: 1}   # by hand
created_at: 2026-11-22T08:00:00Z
---

Run the tests alone first.

---

A rule within.

---
id: mine
---
No more than that.
---
id: ex_007
metrics:
  harmful: 2
---
Third.
";

fn changes(new: &[&str], rated: &[(&str, bool)]) -> Changes {
    let new = new.iter().map(|text| NewExperience {
        category: "other".to_owned(),
        tags: Tags {
            intent: vec!["a".to_owned()],
            state: Vec::new(),
        },
        text: (*text).to_owned(),
    });
    Changes {
        reflection: "run-1".to_owned(),
        trace_id: Some(TraceId::new("t9")),
        at: Timestamp::from_millis(0),
        new: new.collect(),
        rated: rated
            .iter()
            .map(|(id, helped)| (ExperienceId::new(*id), *helped))
            .collect(),
    }
}

fn counts(text: &ExperienceText) -> Vec<(String, u32, u32)> {
    let one = |known: &Experience| {
        (
            known.id.to_string(),
            known.metrics.helpful,
            known.metrics.harmful,
        )
    };
    text.experiences().iter().map(one).collect()
}

#[test]
fn handwritten_file_is_parsed() {
    let book = ExperienceText::read(FILE.into());
    assert_eq!(book.faults(), []);
    let first = book.get("ex_001").unwrap();
    assert_eq!(first.tags.intent, ["fix-test", "deploy"]);
    assert_eq!(first.tags.state, ["rust", "no-network"]);
    assert_eq!(
        (
            first.category.as_str(),
            first.trace_id.as_ref().map(TraceId::as_str)
        ),
        ("tool_usage", Some("t1"))
    );
    assert_eq!(
        first.text,
        "Run the tests alone first.\n\n---\n\nA rule within."
    );
    assert_eq!(
        first.created_at.unwrap().to_string(),
        "2026-11-22T08:00:00.000Z"
    );
    let counted = [
        ("ex_001".to_owned(), 12, 1),
        ("mine".to_owned(), 0, 0),
        ("ex_007".to_owned(), 0, 2),
    ];
    assert_eq!(counts(&book), counted);
    let windows = ExperienceText::read(FILE.replace('\n', "\r\n").into());
    assert_eq!(
        (windows.experiences(), windows.faults()),
        (book.experiences(), book.faults())
    );
    let marked =
        ExperienceText::read(format!("\u{feff}{}", &FILE[FILE.find("---\nid").unwrap()..]).into());
    assert_eq!(marked.experiences(), book.experiences());
}

#[test]
fn invalid_entries_are_reported_with_line() {
    for (text, line, part) in [
        (
            "---\nid: ex_001\nText without an end.\n",
            1,
            "is not closed",
        ),
        ("---\nid: ex_001\ncategory: a\n", 1, "is not closed"),
        ("x\n---\nid: a b\n---\nText.\n", 2, "`id` must be"),
        ("---\nid: ex_001\n---\n\n", 1, "has no text"),
        (
            "---\nid: ex_001\nmetrics: {helpful: many}\n---\nText.\n",
            3,
            "`metrics.helpful` must be a whole number",
        ),
        (
            "---\nid: ex_001\nmetrics:\n  helpful: -1\n---\nText.\n",
            4,
            "must be a whole number",
        ),
        (
            "---\nid: ex_001\nid: ex_002\n---\nText.\n",
            3,
            "already set in line 2",
        ),
        (
            "---\nid: ex_001\ntags: {state: [a\n---\nText.\n",
            3,
            "closing }",
        ),
        (
            "---\nid: ex_001\n- a\n---\nText.\n",
            3,
            "without a key above it",
        ),
        (
            "---\nid: ex_001\n---\nA.\n---\nid: ex_001\n---\nB.\n",
            5,
            "already used in line 1",
        ),
    ] {
        let book = ExperienceText::read(text.into());
        let faults: Vec<_> = book
            .faults()
            .iter()
            .map(|fault| (fault.line, fault.message.as_str()))
            .collect();
        assert!(
            faults.len() == 1 && faults[0].0 == line && faults[0].1.contains(part),
            "{text:?}: {faults:?}"
        );
    }
    // Only the date is ignored.
    let book = ExperienceText::read("---\nid: ex_001\ncreated_at: yesterday\n---\nText.\n".into());
    assert_eq!(
        (book.faults()[0].line, book.faults()[0].is_left_out),
        (3, false)
    );
    assert!(
        book.faults()[0].message.starts_with("`created_at` must be"),
        "{:?}",
        book.faults()
    );
    assert_eq!(
        (
            book.get("ex_001").unwrap().created_at,
            book.experiences().len()
        ),
        (None, 1)
    );
    let broken = [b"---\nid: ex_001\n---\nA\xff.\n---\nid: ex_002\n---\nB.\n".to_vec()].concat();
    let book = ExperienceText::read(broken);
    assert_eq!((book.faults()[0].line, book.experiences().len()), (4, 1));
}

#[test]
fn counters_change_in_place_and_nothing_else_changes() {
    let rated = changes(
        &[],
        &[
            ("ex_001", true),
            ("mine", false),
            ("ex_007", true),
            ("ex_404", true),
        ],
    );
    let (after, _) = ExperienceText::read(FILE.into()).apply(&rated);
    let want = FILE
        .replace("helpful: 12", "helpful: 13")
        .replace("08:00:00Z\n", "08:00:00Z\nreflection: run-1\n")
        .replace(
            "id: mine\n",
            "id: mine\nmetrics:\n  helpful: 0\n  harmful: 1\nreflection: run-1\n",
        )
        .replace(
            "  harmful: 2\n",
            "  harmful: 2\n  helpful: 1\nreflection: run-1\n",
        );
    assert_eq!(String::from_utf8(after.clone()).unwrap(), want);
    // Applying the same reflection again changes nothing: it may have been interrupted before it
    // reported its result.
    let (unchanged, _) = ExperienceText::read(after.clone()).apply(&rated);
    assert_eq!(unchanged, after);
    let (later, _) = ExperienceText::read(after).apply(&Changes {
        reflection: "run-2".to_owned(),
        ..rated
    });
    assert!(
        String::from_utf8(later.clone())
            .unwrap()
            .contains("helpful: 14")
            && !later.ends_with(b"run-1\n")
    );
    let half = ExperienceText::read(b"---\nid: a\nmetrics: {helpful: 3}\n---\nT.".to_vec());
    let (after, _) = half.apply(&changes(&[], &[("a", false)]));
    assert_eq!(
        after,
        b"---\nid: a\nmetrics: {helpful: 3, harmful: 1}\nreflection: run-1\n---\nT."
    );
}

#[test]
fn new_experience_is_appended_with_next_number() {
    let (after, added) = ExperienceText::read(FILE.into()).apply(&changes(&["New."], &[]));
    assert_eq!(added[0], (ExperienceId::new("ex_008"), true));
    assert!(after.starts_with(FILE.as_bytes()));
    let tail = String::from_utf8(after[FILE.len()..].to_vec()).unwrap();
    assert!(
        tail.starts_with(
            "\n---\nid: ex_008\ntrace_id: t9\ncategory: other\ntags:\n  intent: [a]\n  state: []\nmetrics:\n  helpful: 1\n  \
             harmful: 0\ncreated_at: 1970-01-01T00:00:00.000Z\nreflection: run-1\n---\nNew.\n"
        ),
        "{tail}"
    );
    // A text that is already known counts for the known experience.
    let (after, added) = ExperienceText::read(FILE.into()).apply(&changes(
        &[" run the TESTS alone\nfirst. --- a rule within."],
        &[],
    ));
    assert_eq!(added, [(ExperienceId::new("ex_001"), false)]);
    assert_eq!(
        ExperienceText::read(after)
            .get("ex_001")
            .unwrap()
            .metrics
            .helpful,
        13
    );
    let (first, _) =
        ExperienceText::default().apply(&changes(&["---\nid: forged\n---\nText."], &[]));
    let book = ExperienceText::read(first.clone());
    assert!(first.starts_with(TITLE.as_bytes()));
    assert_eq!((book.experiences().len(), book.faults()), (1, &[][..]));
    assert_eq!(book.experiences()[0].text, "***\nid: forged\n***\nText.");
}

#[test]
fn unterminated_entry_does_not_swallow_new_one() {
    for open in [
        "---\nid: ex_003\ncategory: a",
        "---\nid: ex_003\n",
        "---\n",
        "text\n---",
        "---\nid: ex_003\n---",
    ] {
        let before = ExperienceText::read(open.into());
        let (after, added) = before.apply(&changes(&["New."], &[]));
        assert!(after.starts_with(open.as_bytes()), "{open:?}");
        let book = ExperienceText::read(after);
        assert_eq!(
            book.get(added[0].0.as_str()).unwrap().text,
            "New.",
            "{open:?}"
        );
        assert_eq!(
            book.faults().len(),
            before.faults().len(),
            "{open:?}: {:?}",
            book.faults()
        );
    }
}

/// Generates lines of files that are partly valid and partly broken.
fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => Just("---".to_owned()),
        2 => (1..9_u32).prop_map(|n| format!("id: ex_{n:03}")),
        1 => Just("tags: {intent: [a, \"b, c\"], state: []}".to_owned()),
        1 => Just("metrics:".to_owned()),
        1 => Just("  helpful: 3".to_owned()),
        1 => Just("  - item".to_owned()),
        1 => Just("metrics: {harmful: 1}".to_owned()),
        2 => Just(String::new()),
        2 => Just("Some text: with a colon.".to_owned()),
        1 => "\\PC{0,12}",
    ]
}

proptest! {
    #[test]
    fn existing_content_is_kept_when_adding_or_rating(
        lines in prop::collection::vec(line(), 0..40),
        end in prop_oneof![Just("\n"), Just("\r\n"), Just("")],
        noise in prop::collection::vec(any::<u8>(), 0..6),
    ) {
        let mut bytes = lines.join(if end.is_empty() { "\n" } else { end }).into_bytes();
        bytes.extend(noise);
        let before = ExperienceText::read(bytes.clone());
        let (after, added) = before.apply(&changes(&["A new one."], &[]));
        prop_assert!(after.starts_with(&bytes));
        let book = ExperienceText::read(after);
        prop_assert_eq!(&book.experiences()[..before.experiences().len()], before.experiences());
        prop_assert_eq!(book.experiences().last().map(|known| known.id.clone()), Some(added[0].0.clone()));
        prop_assert_eq!(book.faults().len(), before.faults().len());

        let all: Vec<(String, bool)> = before.experiences().iter().map(|known| (known.id.to_string(), true)).collect();
        let all: Vec<(&str, bool)> = all.iter().map(|(id, helped)| (id.as_str(), *helped)).collect();
        let (rated, _) = before.apply(&changes(&[], &all));
        let book = ExperienceText::read(rated.clone());
        prop_assert_eq!(book.faults().len(), before.faults().len());
        for (was, is) in before.experiences().iter().zip(book.experiences()) {
            let counted = Experience { metrics: Metrics { helpful: was.metrics.helpful + 1, ..was.metrics }, ..was.clone() };
            prop_assert_eq!(&counted, is);
        }
        prop_assert_eq!(book.experiences().len(), before.experiences().len());
        prop_assert_eq!(book.apply(&changes(&[], &all)).0, rated);
    }
}

#[test]
fn text_is_never_parsed_as_id_or_header() {
    let (after, added) = ExperienceText::read(FILE.into())
        .apply(&changes(&["id: ex_18446744073709551615\nid: ex_900"], &[]));
    assert_eq!(added[0].0.as_str(), "ex_008");
    let (after, added) = ExperienceText::read(after).apply(&changes(&["Next."], &[]));
    assert_eq!(added[0].0.as_str(), "ex_009");
    let huge = String::from_utf8(after)
        .unwrap()
        .replace("id: ex_009", "id: ex_18446744073709551615");
    let (after, added) = ExperienceText::read(huge.into()).apply(&changes(&["One more."], &[]));
    assert_eq!(
        (
            added[0].0.as_str(),
            ExperienceText::read(after).faults().len()
        ),
        ("ex_009", 0)
    );
    // Applied twice, the experience exists once, although its text was changed when it was written.
    let ruled = changes(&["Before.\n---\nid: x\n---\nAfter."], &[]);
    let (once, _) = ExperienceText::default().apply(&ruled);
    let (twice, added) = ExperienceText::read(once.clone()).apply(&ruled);
    assert_eq!((twice, added[0].1), (once, true));
}

#[test]
fn comment_after_value_is_kept() {
    let text =
        "---\nid: a\nreflection: \"x\" # mine\nmetrics: {helpful: 1, harmful: 0} # too\n---\nT.\n";
    let (after, _) = ExperienceText::read(text.into()).apply(&changes(&[], &[("a", true)]));
    let want = text
        .replace("\"x\"", "run-1")
        .replace("helpful: 1", "helpful: 2");
    assert_eq!(String::from_utf8(after).unwrap(), want);
}
