//! Each element on pages of several widths; any text fits any page and is sanitized.

use proptest::prelude::*;

use super::*;
use crate::{
    terminal::{Paint, TextStyle},
    text,
};

pub(super) const fn page(width: usize) -> PageFormat {
    PageFormat {
        width,
        unicode: true,
    }
}

fn plain(line: &StyledLine) -> String {
    line.to_ansi(Paint { on: false })
}

pub(super) fn plains(lines: &[StyledLine]) -> Vec<String> {
    lines.iter().map(plain).collect()
}

#[track_caller]
fn check(text: &str, width: usize, want: &[&str]) {
    assert_eq!(
        plains(&render(text, &page(width))),
        want,
        "{text:?} on {width} columns"
    );
}

#[track_caller]
fn check_ascii(text: &str, width: usize, want: &[&str]) {
    assert_eq!(
        plains(&render(
            text,
            &PageFormat {
                width,
                unicode: false
            }
        )),
        want,
        "{text:?} on {width} columns"
    );
}

#[test]
fn headings_and_paragraphs_are_separated_and_wrapped() {
    let text = "# A title\nThe first paragraph\nof the text.\n\n\nThe second.\n## Next\n\nEnd";
    let want = [
        "A title",
        "",
        "The first paragraph of the text.",
        "",
        "The second.",
        "",
        "Next",
        "",
        "End",
    ];
    check(text, 80, &want);
    check(text, 40, &want);
    check(
        text,
        20,
        &[
            "A title",
            "",
            "The first paragraph",
            "of the text.",
            "",
            "The second.",
            "",
            "Next",
            "",
            "End",
        ],
    );
    check("Title\n=====\nx", 20, &["Title", "", "x"]);
    check("one  \ntwo\\\nthree", 20, &["one", "two", "three"]);
    check("", 20, &[]);
    check("\n \n", 20, &[]);
}

#[test]
fn list_items_have_hanging_indent() {
    let text = "- one item that is long\n- two\n  1. first\n  2. second one is long\n- [x] did\n- [ ] do\n-\n";
    check(
        text,
        20,
        &[
            "• one item that is",
            "  long",
            "• two",
            "  1. first",
            "  2. second one is",
            "     long",
            "[x] did",
            "[ ] do",
            "•",
        ],
    );
    check_ascii("* a\n  * b", 20, &["- a", "  - b"]);
    check(
        "9. nine\n10. ten\n11. [ ] eleven",
        20,
        &["9. nine", "10. ten", "11. [ ] eleven"],
    );
    check(
        "- a\n\n- b\n\n  c\n\nd",
        20,
        &["• a", "", "• b", "", "  c", "", "d"],
    );
    check("- a\n- b\n\nafter", 20, &["• a", "• b", "", "after"]);
}

#[test]
fn quote_lines_have_a_bar() {
    check(
        "> one two three\n> four\n>\n> - five",
        12,
        &["│ one two", "│ three four", "│", "│ • five"],
    );
    check(
        "a\n> b\n> > c\n\nd",
        40,
        &["a", "", "│ b", "│", "│ │ c", "", "d"],
    );
    check_ascii("> a", 40, &["| a"]);
}

#[test]
fn code_keeps_line_breaks_and_spaces() {
    let text = "```rust\nfn main() {\n\tlet x  = \"long long\";\n\n}\n```";
    check(
        text,
        40,
        &[
            "    fn main() {",
            "        let x  = \"long long\";",
            "",
            "    }",
        ],
    );
    check(
        text,
        20,
        &[
            "    fn main() {",
            "        let x  = \"lo",
            "    ng long\";",
            "",
            "    }",
        ],
    );
    check(
        "a\n\n    **b**\n     c",
        20,
        &["a", "", "    **b**", "     c"],
    );
    check("- a\n\n  ```\n  b\n  ```", 20, &["• a", "", "      b"]);
    check("~~~\nopen", 20, &["    open"]);
}

#[test]
fn inline_text_is_styled() {
    let line = |text: &str| render(text, &page(80)).remove(0);
    assert_eq!(line("# a"), StyledLine::of(TextStyle::Bold, "a"));
    assert_eq!(
        line("a *b* **c** ~~d~~ `e`"),
        StyledLine::of(TextStyle::Plain, "a ")
            .and(TextStyle::Italic, "b")
            .and(TextStyle::Plain, " ")
            .and(TextStyle::Bold, "c")
            .and(TextStyle::Plain, " ")
            .and(TextStyle::Strikethrough, "d")
            .and(TextStyle::Plain, " ")
            .and(TextStyle::Cyan, "e")
    );
    assert_eq!(
        line("[a](u)"),
        StyledLine::of(TextStyle::Plain, "a ").and(TextStyle::Dim, "(u)")
    );
    assert_eq!(
        line("```\na\n```"),
        StyledLine::of(TextStyle::Plain, "    ").and(TextStyle::Cyan, "a")
    );
    assert_eq!(
        line("> a"),
        StyledLine::of(TextStyle::Dim, "│ ").and(TextStyle::Plain, "a")
    );
}

#[test]
fn link_targets_are_shown() {
    for (text, want) in [
        ("[a *b*](https://x.org)", "a b (https://x.org)"),
        ("[https://x.org](https://x.org)", "https://x.org"),
        ("<https://x.org>", "https://x.org"),
        ("<me@x.org>", "me@x.org"),
        ("[](https://x.org)", "https://x.org"),
        ("[a]()", "a"),
        ("![a plan](p.png)", "[image: a plan] (p.png)"),
        ("[![a](p.png)](u)", "[image: a] (p.png) (u)"),
        ("[a][1]\n\n[1]: u \"t\"", "a (u)\n\n[1]: u \"t\""),
        ("[a][1]", "[a][1]"),
        (
            "[safe.org](https://evil.org)",
            "safe.org (https://evil.org)",
        ),
    ] {
        assert_eq!(plains(&render(text, &page(80))).join("\n"), want, "{text}");
    }
}

#[test]
fn tables_are_aligned_and_truncated_to_width() {
    let text =
        "|Name|Count|Note|\n|:--|--:|:-:|\n|a|1|short|\n|好|22222|a very long cell `c`|\n|b|";
    check(
        text,
        40,
        &[
            "Name │ Count │        Note",
            "─────┼───────┼───────────────────",
            "a    │     1 │       short",
            "好   │ 22222 │ a very long cell c",
            "b    │       │",
        ],
    );
    check(
        text,
        20,
        &[
            "Name │ Count │ Note",
            "─────┼───────┼──────",
            "a    │     1 │ short",
            "好   │ 22222 │ a ve…",
            "b    │       │",
        ],
    );
    check(
        "|a|b|c|\n|-|-|-|\n|dd|ee|ff|",
        6,
        &["a│b│c", "─┼─┼──", "…│…│ff"],
    );
    check("|a|b|c|\n|-|-|-|", 3, &["a│…", "─┼─"]);
    check_ascii(
        "|a|bbbbbbbb|\n|-|-|\n|c|d|",
        10,
        &["a | bbb...", "--+-------", "c | d"],
    );
}

#[test]
fn rules_and_html_are_shown() {
    check("a\n\n---\n\nb", 5, &["a", "", "─────", "", "b"]);
    check_ascii("***", 5, &["-----"]);
    check(
        "<div>\n<b>x</b>\n</div>\n\na <i>b</i> &lt; &amp;",
        20,
        &["<div>", "<b>x</b>", "</div>", "", "a <i>b</i> < &"],
    );
}

#[test]
fn terminal_control_characters_are_replaced() {
    for (text, want) in [
        ("a\u{1b}[2Jb", "a\u{fffd}[2Jb"),
        ("a&#27;[2Jb&#x202e;", "a\u{fffd}[2Jb\u{fffd}"),
        ("`a\u{9b}b`", "a\u{fffd}b"),
        ("[a](<\u{1b}]0;x\u{7}>)", "a (\u{fffd}]0;x\u{fffd})"),
        ("```\na\u{1b}\rb\n```", "    a\u{fffd}\n    b"),
        ("over\rwritten", "over written"),
        ("<p>\u{1b}c</p>", "<p>\u{fffd}c</p>"),
        ("|a\u{8}|\n|-|", "a\u{fffd}\n──"),
    ] {
        assert_eq!(
            plains(&render(text, &page(80))).join("\n"),
            want,
            "{text:?}"
        );
    }
}

#[test]
fn deep_nesting_and_long_blocks_fit_the_width() {
    for text in [
        ">".repeat(20_000) + "x",
        "- ".repeat(2_000) + "x",
        "*".repeat(20_000) + "x",
        "[".repeat(20_000) + "x",
        format!("|{}\n|{}", "a|".repeat(2_000), "-|".repeat(2_000)),
    ] {
        for width in [1, 10, 80] {
            let lines = render(&text, &page(width));
            assert!(
                lines.iter().all(|line| line.width() <= width),
                "{width}: {}",
                &text[..10]
            );
        }
    }
}

/// Generates text with many Markdown elements. Definitions of references are excluded: see
/// `streamed`.
pub(super) fn markdown() -> impl Strategy<Value = String> {
    let parts = vec![
        "a",
        "word",
        "two words ",
        "好",
        "👩\u{200d}🔬",
        "e\u{301}",
        " ",
        "  ",
        "    ",
        "\t",
        "\n",
        "\n",
        "\n\n",
        "# ",
        "#",
        "## x\n",
        "- ",
        "* ",
        "+ ",
        "1. ",
        "2) ",
        "> ",
        ">",
        "```",
        "```rs\n",
        "~~~\n",
        "`",
        "*",
        "**",
        "_",
        "~~",
        "[",
        "](u)",
        "!",
        "](",
        ")",
        "<div>",
        "<!--",
        "-->",
        "</div>\n",
        "<b>",
        "<pre>",
        "|",
        "|a|b|\n|-|-|\n",
        "---\n",
        "|-|-|\n",
        "===\n",
        "-",
        "=",
        "- [x] ",
        "\\",
        "\\\n",
        "  \n",
        "&#27;",
        "&amp;",
        "\u{1b}",
        "\u{202e}",
        "\r\n",
        "\r",
        "https://example.com/a/long/path",
        "<https://x.org>",
        "\u{a0}",
        "0",
        "longwordthatneverends",
    ];
    prop::collection::vec(prop::sample::select(parts), 0..40).prop_map(|parts| parts.concat())
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![3 => markdown(), 1 => any::<String>()]
}

proptest! {
    #[test]
    fn any_text_fits_the_width_without_control_characters(text in any_text(), width in 1usize..60, unicode: bool) {
        for line in render(&text, &PageFormat { width, unicode }) {
            prop_assert!(line.width() <= width, "{line:?}");
            let shown = plain(&line);
            prop_assert_eq!(text::safe_line_keep_spaces(&shown), shown.as_str());
        }
    }

    #[test]
    fn paragraphs_keep_every_letter(words in prop::collection::vec("[a-z0-9好é]{1,30}", 1..40), width in 2usize..60) {
        let shown = plains(&render(&words.join(" "), &page(width))).concat();
        prop_assert_eq!(shown.replace(' ', ""), words.concat());
    }
}
