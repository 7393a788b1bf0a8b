//! Tests of the content of documents, read back from the file, and of opening them in a word
//! processor.

mod reading;
mod word_processor;

use proptest::prelude::*;
use reading::{ParsedDocx, read};

use super::{docx, fenced, is_markdown};

const SAMPLE: &str = include_str!("tests/sample.md");

fn sample() -> ParsedDocx {
    read(&docx("A <title> & more", SAMPLE).unwrap())
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

#[test]
fn parts_are_well_formed_and_used_styles_are_defined() {
    let file = sample();
    for part in [
        "[Content_Types].xml",
        "_rels/.rels",
        "docProps/core.xml",
        "word/document.xml",
        "word/numbering.xml",
    ] {
        assert!(file.parts.contains_key(part), "{part}");
    }
    let styles = &file.parts["word/styles.xml"];
    for part in ["word/document.xml", "word/footnotes.xml"] {
        for (tag, id) in file.attributes(part, "w:val") {
            if tag == "w:pStyle" || tag == "w:rStyle" {
                assert!(
                    styles.contains(&format!("w:styleId=\"{id}\"")),
                    "{part} uses {id}"
                );
            }
        }
    }
    for level in 1..=6 {
        assert!(styles.contains(&format!("<w:name w:val=\"heading {level}\" />")));
        assert!(
            file.parts["word/document.xml"]
                .contains(&format!("<w:pStyle w:val=\"Heading{level}\" />"))
        );
    }
    assert!(
        file.parts["docProps/core.xml"].contains("<dc:title>A &lt;title&gt; &amp; more</dc:title>")
    );
}

#[test]
fn markdown_constructs_map_to_docx_elements() {
    for (about, markdown, expected) in [
        (
            "bold and italic",
            "***a***",
            "<w:b /><w:bCs /><w:i /><w:iCs /></w:rPr><w:t xml:space=\"preserve\">a<",
        ),
        ("struck", "~~a~~", "<w:strike />"),
        ("code", "`a`", "<w:rStyle w:val=\"VerbatimChar\" />"),
        ("hard break", "a\\\nb", "<w:br w:type=\"textWrapping\" />"),
        (
            "bullet",
            "- a",
            "<w:numId w:val=\"10\" /><w:ilvl w:val=\"0\" />",
        ),
        (
            "nested bullet",
            "- a\n  - b",
            "<w:numId w:val=\"10\" /><w:ilvl w:val=\"1\" />",
        ),
        (
            "number",
            "1. a",
            "<w:numId w:val=\"11\" /><w:ilvl w:val=\"0\" />",
        ),
        (
            "second ordered list",
            "1. a\n\nb\n\n1. c",
            "<w:numId w:val=\"12\" />",
        ),
        ("task", "- [ ] a\n- [x] b", ">☑</w:t><w:tab /></w:r>"),
        ("quote", "> a", "<w:pStyle w:val=\"Quote\" />"),
        (
            "code block",
            "```\n  a\tb\n```",
            "<w:t xml:space=\"preserve\">  a</w:t><w:tab />",
        ),
        (
            "indented code",
            "    a\n      b",
            "<w:br w:type=\"textWrapping\" /><w:t xml:space=\"preserve\">  b<",
        ),
        (
            "table head",
            "|a|\n|-|\n|b|",
            "<w:cantSplit /><w:tblHeader />",
        ),
        ("aligned", "|a|\n|-:|\n|b|", "<w:jc w:val=\"right\" />"),
        ("centred", "|a|\n|:-:|\n|b|", "<w:jc w:val=\"center\" />"),
        ("link", "[a](https://b.c)", "<w:hyperlink r:id=\"rIdLink1\""),
        ("relative link", "[a](b.md)", "> (b.md)</w:t>"),
        ("script", "[a](javascript:x)", "> (javascript:x)</w:t>"),
        ("image", "![a](b.png)", "> (b.png)</w:t>"),
        ("rule", "***", "<w:pStyle w:val=\"HorizontalLine\" />"),
        (
            "footnote",
            "a[^1]\n\n[^1]: b",
            "<w:footnoteReference w:id=\"1\" />",
        ),
        ("html", "<div>\n</div>", ">&lt;div&gt;</w:t>"),
        (
            "break as html",
            "a<br/>b",
            "<w:br w:type=\"textWrapping\" />",
        ),
        ("right to left", "שלום", "<w:bidi />"),
        (
            "escaped once",
            "a & b < c \"d\"",
            ">a &amp; b &lt; c &quot;d&quot;</w:t>",
        ),
        ("front matter", "---\na: b\n---\n", ">a: b</w:t>"),
        ("title", "text", "<w:pStyle w:val=\"Title\" />"),
    ] {
        let file = read(&docx("t", markdown).unwrap());
        let document = &file.parts["word/document.xml"];
        assert!(document.contains(expected), "{about}: {document}");
    }
    let numbering =
        &read(&docx("", "7. a\n8. b\n\n   3. c").unwrap()).parts["word/numbering.xml"].clone();
    assert!(
        numbering.contains("<w:lvlOverride w:ilvl=\"0\"><w:startOverride w:val=\"7\" />"),
        "{numbering}"
    );
    assert!(
        numbering.contains("<w:lvlOverride w:ilvl=\"1\"><w:startOverride w:val=\"3\" />"),
        "{numbering}"
    );
}

#[test]
fn link_targets_are_kept_and_bad_urls_are_dropped() {
    for (address, target) in [
        (
            "https://b.c/d?e=f&g=h#i",
            Some("https://b.c/d?e=f&amp;g=h#i"),
        ),
        ("HTTPS://b.c", Some("https://b.c")),
        ("https://b.c/<ä b>", None),
        (
            "<https://b.c/ä b%20\"[x]#y#z%>",
            Some("https://b.c/%C3%A4%20b%20%22%5Bx%5D#y%23z%25"),
        ),
        ("mailto:a@b.c", Some("mailto:a@b.c")),
        ("file:///etc/passwd", None),
        ("http://", None),
        ("#part", None),
    ] {
        let file = read(&docx("", &format!("[a]({address})")).unwrap());
        let rels = &file.parts["word/_rels/document.xml.rels"];
        match target {
            Some(target) => assert!(
                rels.contains(&format!("Target=\"{target}\" TargetMode")),
                "{rels}"
            ),
            None => assert!(!rels.contains("TargetMode"), "{rels}"),
        }
    }
    let file = read(&docx("", "a[^1]\n\n[^1]: [b](https://c.d)").unwrap());
    assert!(file.parts["word/_rels/footnotes.xml.rels"].contains("Target=\"https://c.d\""));
}

#[test]
fn footnotes_appear_at_first_reference_and_none_is_lost() {
    let file = read(
        &docx("", "a[^x] b[^y] c[^x]\n\n[^y]: two[^x]\n\n    - deep\n[^x]: |t|\n    |-|\n    |u|\n[^z]: three")
            .unwrap(),
    );
    assert_eq!(
        words(&file.text("word/document.xml")),
        ["a", "b", "c1", "[z]", "three"]
    );
    let notes = file.text("word/footnotes.xml");
    assert!(
        notes.contains("two[x]") && notes.contains("deep") && notes.contains('u'),
        "{notes}"
    );
    assert!(!file.parts["word/footnotes.xml"].contains('\u{1}'));
    assert_eq!(
        file.parts["word/footnotes.xml"]
            .matches("<w:footnoteRef />")
            .count(),
        2
    );
}

#[test]
fn title_is_added_unless_text_starts_with_heading() {
    for (title, markdown, expected) in [
        ("T", "a", "T a"),
        ("T", "# H\n\na", "H a"),
        ("T", "## H", "T H"),
        (" ", "a", "a"),
        ("T", "", "T"),
    ] {
        let text = read(&docx(title, markdown).unwrap()).text("word/document.xml");
        assert_eq!(words(&text), words(expected), "{title:?} {markdown:?}");
    }
}

#[test]
fn characters_forbidden_in_xml_are_replaced() {
    let text: String = (0..0x20)
        .chain([0xfffe, 0xffff, 0x7f, 0x85])
        .filter_map(char::from_u32)
        .collect();
    let file = read(
        &docx(
            &text,
            &format!("a\u{1}b `{text}` [c\u{b}](https://d.e/\u{2})\n\n```\nf\u{c}\n```\n"),
        )
        .unwrap(),
    );
    let shown = file.text("word/document.xml");
    assert!(
        shown.contains("a\u{fffd}b") && shown.contains("c\u{fffd}") && shown.contains("f\u{fffd}"),
        "{shown}"
    );
}

#[test]
fn conversion_is_deterministic() {
    let first = docx("t", SAMPLE).unwrap();
    let others = [
        std::thread::spawn(|| docx("t", SAMPLE).unwrap()),
        std::thread::spawn(|| docx("t", SAMPLE).unwrap()),
    ];
    for other in others {
        assert!(other.join().unwrap() == first);
    }
}

#[test]
fn deep_and_large_documents_are_converted() {
    for markdown in [
        format!("{}a", "> ".repeat(1_000)),
        format!("{}a", "- ".repeat(1_000)),
        format!("{}a", "1. ".repeat(1_000)),
        (0..200)
            .map(|depth| format!("{}- a\n", "  ".repeat(depth)))
            .collect(),
        format!("{}a{}", "*".repeat(1_000), "*".repeat(1_000)),
        format!("{}a{}", "[".repeat(1_000), "](b)".repeat(1_000)),
        format!("{}a{}", "![".repeat(1_000), "](b)".repeat(1_000)),
        format!("{}\n\n", "lorem ipsum dolor sit a\n".repeat(20)).repeat(2_000),
        "- a\n".repeat(5_000),
        format!(
            "|{}\n|{}\n|{}",
            "a|".repeat(200),
            "-|".repeat(200),
            "a|".repeat(200)
        ),
    ] {
        let file = read(&docx("", &markdown).unwrap());
        assert!(file.text("word/document.xml").contains('a'));
        for (tag, value) in file.attributes("word/document.xml", "w:val") {
            assert!(
                tag != "w:ilvl" || value.parse::<usize>().unwrap() <= super::MAX_LEVEL,
                "{value}"
            );
        }
    }
}

#[test]
fn words_of_sample_are_kept_in_order() {
    let shown = sample().text("word/document.xml");
    let mut rest = shown.as_str();
    for word in SAMPLE
        .lines()
        .filter(|line| line.starts_with("Word "))
        .flat_map(str::split_whitespace)
    {
        rest = rest
            .split_once(word)
            .unwrap_or_else(|| panic!("{word} is missing in {shown}"))
            .1;
    }
}

/// Generates Markdown with known words: every word is a letter and a number, everything else is
/// markup.
fn markdown() -> impl Strategy<Value = Vec<&'static str>> {
    let mark = prop::sample::select(vec![
        "\n",
        "\n\n",
        "\n- ",
        "\n  - ",
        "\n1. ",
        "\n> ",
        "\n# ",
        "\n\n```\n",
        "\n\n    ",
        " *",
        "* ",
        "**",
        " `",
        "` ",
        "~~",
        " [",
        "](x) ",
        "![",
        "\n***\n",
        "\n|",
        "|",
        "\n|-|-|\n",
        "\\\n",
        "\t",
        "<b>",
        "\n<div>\n",
        "\n- [x] ",
        "&amp;",
        "\u{1}",
        "\n===\n",
        "\n---\n",
        "😀",
        "中",
    ]);
    prop::collection::vec(mark, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn words_of_any_markdown_are_kept_in_order(marks in markdown()) {
        let mut text = String::from("w0w");
        for (at, mark) in marks.iter().enumerate() {
            text.push_str(mark);
            text.push_str(&format!("w{}w", at + 1));
        }
        let shown = read(&docx("", &text).unwrap()).text("word/document.xml");
        let mut rest = shown.as_str();
        for at in 0..=marks.len() {
            // Markdown does not show text after the fence of a code block or beyond the columns of
            // a table.
            let word = format!("w{at}w");
            if !reading::is_shown(&text, &word) {
                continue;
            }
            let Some((_, after)) = rest.split_once(&word) else {
                return Err(TestCaseError::fail(format!("{word} of {text:?} is missing in {shown:?}")));
            };
            rest = after;
        }
    }

    #[test]
    fn any_text_converts_to_readable_file(title in any::<String>(), text in "(\\PC|[\\[\\]()|`*_>#\\-\n ^:!<&\u{1}]){0,200}") {
        let bytes = docx(&title, &text).unwrap();
        read(&bytes);
    }
}

#[test]
fn code_fence_is_longer_than_backticks_in_text() {
    for (text, want) in [
        ("", "```\n\n```\n"),
        ("a\n* b\n\n", "```\na\n* b\n```\n"),
        ("x ```` y", "`````\nx ```` y\n`````\n"),
    ] {
        assert_eq!(fenced(text), want);
    }
    assert!(is_markdown("Text/Markdown; charset=utf-8") && !is_markdown("text/plain"));
}
