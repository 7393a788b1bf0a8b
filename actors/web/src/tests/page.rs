//! Tests of converting HTML to Markdown: the output, and the limits on time and size.

use std::time::{Duration, Instant};

use proptest::{collection::vec, prelude::*, sample::select};
use reqwest::Url;
use tokio_util::sync::CancellationToken;

use crate::page::{Markdown, markdown};

fn made_of(html: &str) -> Markdown {
    markdown(
        html,
        &Url::parse("https://example.org/dir/page?q=1").unwrap(),
        &CancellationToken::new(),
    )
}

#[test]
fn page_becomes_markdown_without_invisible_elements() {
    for (html, want) in [
        (
            "<h1>Title</h1><p>One <b>bold</b> word.</p>",
            "# Title\n\nOne **bold** word.",
        ),
        (
            "<p>a<script>alert(1)</script>b<style>p{}</style>c</p>",
            "abc",
        ),
        (
            "<p>a</p><noscript>no</noscript><template><p>t</p></template><iframe src=x>i</iframe>",
            "a",
        ),
        (
            "<p>seen<span hidden>no</span><span style='Display : NONE'>no</span></p>",
            "seen",
        ),
        (
            "<p>seen<span aria-hidden=true>no</span><span style=visibility:hidden>no</span></p>",
            "seen",
        ),
        ("<!-- comment --><p>x</p><svg><text>no</text></svg>", "x"),
        (
            "<ul><li>one</li><li>two<ul><li>deep</li></ul></li></ul>",
            "- one\n- two\n  - deep",
        ),
        ("<ol start=3><li>c</li><li>d</li></ol>", "3. c\n4. d"),
        ("<a href=other>o</a>", "[o](https://example.org/dir/other)"),
        ("<a href='//b.example/x'>o</a>", "[o](https://b.example/x)"),
        ("<a href='javascript:alert(1)'>o</a>", "o"),
        ("<a href='data:text/html,x'>o</a>", "o"),
        ("<a href='#top'>o</a>", "o"),
        (
            "<img src=a.png alt=A><img src=b.png><img src='data:image/png;base64,AAAA' alt=B>",
            "![A](https://example.org/dir/a.png)",
        ),
        (
            "<pre><code class=language-rust>let a = 1;\n  b</code></pre>",
            "```rust\nlet a = 1;\n  b\n```",
        ),
        ("<blockquote>q</blockquote>", "> q"),
        ("&lt;b&gt; &amp; &eacute; &#x1b;[31m", "\\<b> & é \\[31m"),
        ("a\u{1b}[2Jb\u{7}c\u{e0041}\u{202e}d", "a\\[2Jbcd"),
        ("", ""),
        ("just text", "just text"),
        (
            "<p>unclosed <b>bold<p>next",
            "unclosed **bold**\n\n**next**",
        ),
    ] {
        assert_eq!(made_of(html).text, want, "{html}");
    }
    let titled = made_of("<html><head><title> A \n title </title></head><body>x</body></html>");
    assert_eq!(
        (titled.title.as_deref(), titled.text.as_str()),
        (Some("A title"), "x")
    );
}

#[test]
fn data_table_keeps_cells_and_layout_table_becomes_blocks() {
    for (html, want) in [
        (
            "<table><tr><th>A</th><th>B</th></tr><tr><th>1</th><td>2|3</td></tr></table>",
            "| A | B |\n| --- | --- |\n| 1 | 2\\|3 |",
        ),
        (
            "<table><caption>C</caption><tbody><tr><td>x<br>y</td></tr></tbody></table>",
            "C\n\n| x y |\n| --- |",
        ),
        (
            "<table><tr><td>left</td><td><table><tr><td>in</td></tr></table></td></tr></table>",
            "left\n\n| in |\n| --- |",
        ),
        ("<table></table>", ""),
    ] {
        assert_eq!(made_of(html).text, want, "{html}");
    }
}

#[test]
fn pathological_pages_neither_overflow_stack_nor_hang() {
    let many = |piece: &str, times: usize| piece.repeat(times);
    let numbered = |piece: &str, times: usize| {
        (0..times)
            .map(|n| piece.replace('#', &n.to_string()))
            .collect::<String>()
    };
    let pages = [
        ("nested divs", many("<div>", 100_000) + "bottom"),
        (
            "nested divs with ends",
            many("<div>", 100_000) + "bottom" + &many("</div>", 100_000),
        ),
        ("nested divs with text", many("<div>x", 100_000)),
        ("nested quotes", many("<blockquote>a<br>", 50_000)),
        ("nested lists", many("<ul><li>a", 5_000)),
        ("nested tables", many("<table><tr><td>a", 30_000)),
        ("nested items", many("<li><details><dl><dd>a", 5_000)),
        (
            "nested styles",
            many("<b><em><code><u><font size=1>a", 20_000),
        ),
        ("nested spans", many("<span>", 100_000)),
        ("nested links", many("<a href=x>a", 50_000)),
        (
            "bold that is never closed",
            numbered("<b class=#>a<p>", 50_000),
        ),
        (
            "bold over paragraphs",
            numbered("<p><b id=#>", 2_000) + &many("</p><p>x", 100_000),
        ),
        ("misnested", many("<b><p><i></b><table><a></i>x</a>", 4_000)),
        ("neighbours in bold", many("<b>x</b>", 100_000)),
        (
            "foster children",
            "<table>".to_owned() + &many("<b>x</b>", 10_000),
        ),
        (
            "attributes",
            format!("<div {}>x</div>", numbered("a#=1 ", 10_000)),
        ),
        (
            "one long link",
            format!("<a href={}>", many("y", 500_000)) + &many("<p>x", 50_000),
        ),
        (
            "a wide table",
            format!(
                "<table><tr>{}</tr>{}",
                many("<td>x", 20_000),
                many("<tr><td>y", 20_000)
            ),
        ),
        (
            "line breaks in quotes",
            many("<blockquote>", 20) + &many("a<br>", 100_000),
        ),
        ("entities", many("&amp;&notin;", 20_000)),
        ("stars", many("*_`[", 200_000)),
        ("open tags", many("<", 500_000)),
        (
            "a comment without end",
            "<!--".to_owned() + &many("-", 500_000),
        ),
        ("select", many("<select><option>", 50_000)),
        ("templates", many("<template>", 50_000)),
        ("foreign", many("<svg><math><mi>", 30_000)),
        ("frames and bodies", many("<body a=1><html b=2>", 10_000)),
        ("preformatted", many("<pre>\n", 5_000)),
        ("headings", many("<h1>a<h2>", 20_000)),
        ("lines", many("\n \n", 200_000)),
    ];
    // Half of the stack that the tool has, to leave a margin.
    let work = move || {
        for (name, html) in pages {
            let start = Instant::now();
            let page = made_of(&html);
            assert!(start.elapsed() < Duration::from_secs(60), "{name}");
            assert!(page.text.len() <= 5 * 1024 * 1024, "{name}");
        }
    };
    std::thread::Builder::new()
        .stack_size(1024 * 1024)
        .spawn(work)
        .unwrap()
        .join()
        .unwrap();
}

#[test]
fn too_deep_nodes_are_moved_up_or_page_is_cut() {
    for (depth, is_cut) in [(10, false), (190, false), (500, false), (100_000, true)] {
        let page =
            made_of(&("<div>".repeat(depth) + "bottom" + &"</div>".repeat(depth) + "<p>after"));
        assert_eq!(page.is_cut, is_cut, "{depth}");
        assert_eq!(
            page.text == "bottom\n\nafter",
            !is_cut,
            "{depth}: {}",
            page.text
        );
    }
}

#[test]
fn conversion_stops_when_cancelled() {
    let cancel = CancellationToken::new();
    cancel.cancel();
    let page = markdown(
        &"<p>x".repeat(100_000),
        &Url::parse("https://example.org").unwrap(),
        &cancel,
    );
    assert!(page.is_cut && page.text.is_empty());
}

/// Tags and fragments that parsers handle in a special way.
const PIECES: [&str; 44] = [
    "<b>",
    "</b>",
    "<i x=1>",
    "</i>",
    "<a href=/x>",
    "</a>",
    "<p>",
    "</p>",
    "<div>",
    "</div>",
    "<table>",
    "</table>",
    "<tr>",
    "</tr>",
    "<td>",
    "</td>",
    "<th>",
    "<ul>",
    "</ul>",
    "<li>",
    "<pre>",
    "</pre>",
    "<code>",
    "</code>",
    "<template>",
    "</template>",
    "<select>",
    "<option>",
    "</select>",
    "<svg>",
    "</svg>",
    "<math>",
    "<font color=a>",
    "</font>",
    "<nobr>",
    "<form>",
    "<caption>",
    "<colgroup>",
    "<body>",
    "</body>",
    "<frameset>",
    "text ",
    "<h1>",
    "<br>",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_tag_sequence_is_converted(
        deep in select(vec!["", "<b>", "<b><div>", "<table><tr><td>", "<font a=1><p>"]),
        pieces in vec(select(&PIECES[..]), 0..400),
    ) {
        let page = made_of(&format!("first<script>unseen</script>{}{}", deep.repeat(150), pieces.concat()));
        prop_assert!(!page.text.contains("unseen"));
        prop_assert!(page.text.contains("first") || pieces.contains(&"<frameset>"), "{}", page.text);
    }
}
