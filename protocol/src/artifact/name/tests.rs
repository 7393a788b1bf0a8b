//! Valid and hostile names: a table with the expected verdicts, and properties that hold for every
//! text.

use std::path::{Component, Path};

use proptest::prelude::*;
use serde::Deserialize;

use super::*;

#[derive(Deserialize)]
struct Row {
    name: String,
    verdict: String,
    about: String,
}

fn table() -> Vec<Row> {
    include_str!("../names.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Returns whether all operating systems treat a text as a single path segment.
fn is_one_segment(text: &str) -> bool {
    let parts: Vec<_> = Path::new(text).components().collect();
    matches!(parts[..], [Component::Normal(part)] if part == text)
        && !text.contains(|c: char| c.is_control() || "/\\:*?\"<>|".contains(c))
        && !text.starts_with(['.', ' ', '-'])
        && !text.ends_with(['.', ' ', '-'])
}

fn check(name: &ArtifactName) {
    let text = name.as_str();
    assert!(is_one_segment(text), "{text:?}");
    assert!(text.len() <= ArtifactName::MAX_BYTES, "{text:?}");
    assert!(unicode_normalization::is_nfc(text), "{text:?}");
    assert_eq!(ArtifactName::parse(text).as_ref(), Ok(name), "{text:?}");
}

#[test]
fn names_in_table_have_expected_verdict() {
    let rows = table();
    assert!(rows.len() >= 200, "{} names", rows.len());
    let mut wrong = Vec::new();
    for Row {
        name,
        verdict,
        about,
    } in &rows
    {
        let got = ArtifactName::parse(name);
        if got.is_ok() != (verdict == "accepted") {
            wrong.push(format!("{name:?} ({about}) should be {verdict}: {got:?}"));
        }
        let _ = got.as_ref().map(check);
        check(&ArtifactName::from_filename(name));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn canonically_equivalent_names_are_equal() {
    for (one, other) in [
        ("Cafe\u{301}", "Caf\u{e9}"),
        ("\u{1112}\u{1161}\u{11ab}", "\u{d55c}"),
        ("\u{212b}", "\u{e5}".to_uppercase().as_str()),
        ("q\u{323}\u{307}", "q\u{307}\u{323}"),
        ("\u{f900}", "\u{8c48}"),
        ("\u{958}", "\u{915}\u{93c}"),
    ] {
        assert_eq!(
            ArtifactName::parse(one).unwrap(),
            ArtifactName::parse(other).unwrap(),
            "{one:?}"
        );
    }
    for (one, other) in [
        ("Report", "report"),
        ("a", "\u{430}"),
        ("copy", "сору"),
        ("a.b", "a_b"),
    ] {
        assert_ne!(
            ArtifactName::parse(one).unwrap(),
            ArtifactName::parse(other).unwrap(),
            "{one:?}"
        );
    }
}

#[test]
fn accepted_letters_are_distinct_under_nfkc() {
    let mut seen = std::collections::HashMap::new();
    let lao_digraphs = ['\u{edc}', '\u{edd}']; // each maps to two letters
    for c in (char::MIN..=char::MAX).filter(|c| !lao_digraphs.contains(c)) {
        let Ok(name) = ArtifactName::parse(&c.to_string()) else {
            continue;
        };
        let plain: String = name.as_str().nfkc().collect();
        let first = seen.entry(plain).or_insert_with(|| name.clone());
        assert_eq!(*first, name, "U+{:04X}", u32::from(c));
    }
    assert!(seen.len() > 100_000, "{} letters and digits", seen.len());
}

#[test]
fn rejection_names_the_problem_and_the_rule() {
    for (name, why) in [
        ("", "it is empty"),
        ("a/b", "U+002F is not allowed"),
        ("a\u{202e}b", "U+202E is not a letter or digit"),
        ("\u{301}a", "U+0301 is a mark without a letter"),
        ("ﬁle", "U+FB01 is a compatibility form of plain letters"),
        ("user:x", "selects the user scope"),
        ("nul.txt", "a device name"),
        ("a.", "begins or ends with a dot"),
        (
            "01900000-0000-7000-8000-000000000000",
            "looks like an artifact id",
        ),
        (&"x".repeat(129), "it has 129 bytes"),
    ] {
        let error = ArtifactName::parse(name).unwrap_err().to_string();
        assert!(
            error.contains(why) && error.contains("use 1 to 128 bytes of letters"),
            "{error}"
        );
        assert!(
            !error.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{error:?}"
        );
    }
}

#[test]
fn upload_is_named_after_its_file() {
    let long = format!("{}.tar.gz", "报".repeat(100));
    let cut = format!("{}.tar.gz", "报".repeat(40));
    for (filename, want) in [
        ("report.pdf", "report.pdf"),
        ("C:\\Users\\a\\Bericht 2026.docx", "Bericht 2026.docx"),
        ("../../etc/passwd", "passwd"),
        ("dir/", "dir"),
        ("a:b?.txt", "a_b_.txt"),
        ("user:notes.md", "user_notes.md"),
        ("..", "upload"),
        ("", "upload"),
        ("///", "upload"),
        ("\u{1f600}", "upload"),
        ("\u{1f600}.png", "upload.png"),
        (".bashrc", "bashrc"),
        ("-rf.sh", "rf.sh"),
        ("nul.txt", "_nul.txt"),
        ("COM\u{b9}.log", "_COM1.log"),
        (
            "01900000-0000-7000-8000-000000000000",
            "_01900000-0000-7000-8000-000000000000",
        ),
        ("Cafe\u{301}.md", "Caf\u{e9}.md"),
        ("报告（终稿）.pdf", "报告_终稿_.pdf"),
        ("２０２６ ﬁnal.md", "2026 final.md"),
        ("invoice\u{202e}fdp.exe", "invoice_fdp.exe"),
        ("a\u{ff0f}b\u{2024}md", "a_b_md"),
        ("a   b.txt", "a b.txt"),
        ("a\0.txt", "a_.txt"),
        ("हिन्दी.txt", "हिन्दी.txt"),
        (&long, &cut),
    ] {
        assert_eq!(
            ArtifactName::from_filename(filename).as_str(),
            want,
            "{filename:?}"
        );
    }
}

#[test]
fn number_is_inserted_before_the_extension() {
    let long = format!("{}.pdf", "x".repeat(124));
    let cut = format!("{}_12.pdf", "x".repeat(121));
    for (name, n, want) in [
        ("report.pdf", 1, "report_1.pdf"),
        ("report", 2, "report_2"),
        ("a.tar.gz", 1, "a_1.tar.gz"),
        ("Bericht v1.2", 3, "Bericht v1.2_3"),
        ("报告.md", 1, "报告_1.md"),
        (
            "x.averyveryverylongending",
            1,
            "x.averyveryverylongending_1",
        ),
        (&long, 12, &cut),
    ] {
        assert_eq!(
            ArtifactName::parse(name).unwrap().numbered(n).as_str(),
            want
        );
    }
}

#[test]
fn file_name_gets_extension_of_its_type() {
    let name = ArtifactName::parse("report").unwrap();
    assert_eq!(name.filename("text/markdown"), "report.md");
    assert_eq!(name.filename("image/png"), "report");
    assert_eq!(
        ArtifactName::parse("a.py").unwrap().filename("text/plain"),
        "a.py"
    );
}

/// Returns arbitrary texts, and texts of fragments that are typical for valid and invalid names.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just(String::from("con")),
        Just(String::from(".tar.gz")),
        Just(String::from("user:")),
        "[a-zA-Z0-9_. -]{0,6}",
        "\\PC{0,4}",
        "[\\p{M}\\p{L}\\p{N}]{0,60}",
        any::<char>().prop_map(String::from),
    ];
    prop_oneof![
        any::<String>(),
        prop::collection::vec(piece, 0..8).prop_map(|parts| parts.concat())
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn accepted_names_are_one_path_segment_in_nfc(text in texts()) {
        if let Ok(name) = ArtifactName::parse(&text) {
            check(&name);
            prop_assert_eq!(ArtifactName::from_filename(name.as_str()), name);
        }
    }

    #[test]
    fn file_names_convert_to_valid_names(text in texts(), n in any::<u32>()) {
        let name = ArtifactName::from_filename(&text);
        check(&name);
        let numbered = name.numbered(n);
        check(&numbered);
        prop_assert_ne!(&numbered, &name);
        prop_assert_ne!(&numbered, &name.numbered(n.wrapping_add(1)));
        prop_assert_eq!(split_extension(numbered.as_str()).1, split_extension(name.as_str()).1);
    }
}
