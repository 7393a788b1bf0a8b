//! Colors of each kind of token; any text keeps its characters.

use proptest::prelude::*;

use super::*;

/// Returns the code with a letter in front of each colored piece: `c`omment, `s`tring, `n`umber,
/// `k`eyword or key.
fn marked(code: &str, info: &str) -> String {
    let mark = |(style, text): (TextStyle, &str)| match style {
        TextStyle::Dim => format!("c<{text}>"),
        TextStyle::Green => format!("s<{text}>"),
        TextStyle::Yellow => format!("n<{text}>"),
        TextStyle::Blue => format!("k<{text}>"),
        TextStyle::Cyan => format!("?<{text}>"),
        _ => text.to_owned(),
    };
    let lines = colored(code, info);
    lines
        .iter()
        .map(|line| line.pieces().map(mark).collect::<String>())
        .collect::<Vec<_>>()
        .join("\n")
}

#[track_caller]
fn check(info: &str, code: &str, want: &str) {
    assert_eq!(marked(code, info), want, "{info}");
}

#[test]
fn words_strings_numbers_and_comments_are_colored() {
    check(
        "rust",
        "let x: &'a str = \"a\\\"b\"; // \"no\"",
        "k<let> x: &'a str = s<\"a\\\"b\">; c<// \"no\">",
    );
    check("rust", "'\"' '\\n' 'a' fn", "s<'\"'> s<'\\n'> 'a' k<fn>");
    check(
        "rust",
        "r#\"a\"b\"# bar\"x\" 0x1f 1..2 1.5",
        "s<r#\"a\"b\"#> bars<\"x\"> n<0x1f> n<1>..n<2> n<1.5>",
    );
    check(
        "python",
        "def f(s='it', n=10): # d",
        "k<def> f(s=s<'it'>, n=n<10>): c<# d>",
    );
    check(
        "sh",
        "echo \"$# of $x\" # end",
        "k<echo> s<\"$# of $x\"> c<# end>",
    );
    check(
        "sh",
        "echo it\\'s 'a' \\\"hi",
        "k<echo> it\\'s s<'a'> \\\"hi",
    );
    check(
        "console",
        "You can't stop\nif it's",
        "You can't stop\nk<if> it's",
    );
    check(
        "sql",
        "SELECT a FROM t -- all",
        "k<SELECT> a k<FROM> t c<-- all>",
    );
    check("go", "x2 := `a\\` + y", "x2 := s<`a\\`> + y");
}

#[test]
fn comments_and_strings_may_span_lines() {
    check("c", "a /* b\nc */ d /* e", "a c</* b>\nc<c */> d c</* e>");
    check(
        "py",
        "x = \"\"\"a\n'b'\n\"\"\" + 1",
        "x = s<\"\"\"a>\ns<'b'>\ns<\"\"\"> + n<1>",
    );
    check("js", "`a\nb` 'open\nif", "s<`a>\ns<b`> 'open\nk<if>");
}

#[test]
fn keys_and_tags_are_colored() {
    check(
        "json",
        "{\"a\": \"b\", \"c\" : true}",
        "{k<\"a\">: s<\"b\">, k<\"c\"> : k<true>}",
    );
    check(
        "yaml",
        "- name: x\n  on:\nhttp://a: 1 # c",
        "- k<name>: x\n  k<on>:\nk<http://a>: n<1> c<# c>",
    );
    check(
        "toml",
        "[a.b]\nc = \"d=e\" # f",
        "k<[a.b]>\nk<c >= s<\"d=e\"> c<# f>",
    );
    check("yaml", "a: 'C:\\' # b", "k<a>: s<'C:\\'> c<# b>");
    check("toml", "[a] # b\n[1, 2]", "k<[a]> c<# b>\n[n<1>, n<2>]");
    check(
        "html",
        "<a href=\"x\">if it's</a><!-- n -->",
        "<k<a> href=s<\"x\">>if it's</k<a>>c<<!-- n -->>",
    );
}

#[test]
fn diffs_and_unknown_languages() {
    check("text", "if 1", "?<if 1>");
    check("", "a\n\nb", "?<a>\n?<>\n?<b>");
    let styles: Vec<TextStyle> = colored("--- a\n+++ b\n@@ -1 +1 @@\n--- x\n+++ y\n z", "diff")
        .iter()
        .flat_map(|line| line.pieces().map(|(style, _)| style).collect::<Vec<_>>())
        .collect();
    use TextStyle::{Bold, Cyan, Green, Plain, Red};
    assert_eq!(styles, [Bold, Bold, Cyan, Red, Green, Plain]);
}

proptest! {
    #[test]
    fn any_text_keeps_its_characters(
        code in r#"([a-z0-9"'`#/*\\<>!{}: =\n-]|é|好|r#|""")*"#,
        info in prop::sample::select(vec!["rust", "python", "js", "go", "sh", "sql", "json", "yaml", "toml", "html", "lua", "hs", "x"]),
    ) {
        let shown: Vec<String> = colored(&code, info)
            .iter()
            .map(|line| line.pieces().map(|(_, text)| text).collect())
            .collect();
        prop_assert_eq!(shown, code.lines().map(str::to_owned).collect::<Vec<_>>());
    }
}
