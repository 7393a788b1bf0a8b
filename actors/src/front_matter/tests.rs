//! Table tests of front matter: valid input, and invalid input with the position and reason.

use proptest::prelude::*;

use super::*;

/// Renders the parsed values as `key@line=value`, followed by `|` and the body.
fn shown(text: &str) -> String {
    let read = FrontMatter::read(text, &[]).unwrap_or_else(|fault| panic!("{text:?}: {fault:?}"));
    let entries = read.entries.iter().map(|entry| {
        let value = match &entry.value {
            Value::Plain(text) => text.clone(),
            Value::Quoted(text) => format!("{text:?}"),
            Value::List(items) => format!("{items:?}"),
            Value::Nested => "nested".to_owned(),
            Value::Empty => unreachable!(),
        };
        format!("{}@{}={value}", entry.key, entry.line)
    });
    format!("{}|{}", entries.collect::<Vec<_>>().join(" "), read.body)
}

#[test]
fn valid_front_matter_is_parsed() {
    for (text, want) in [
        ("---\n---\n", "|"),
        ("---\n---", "|"),
        ("---\n# only a comment\n---\nB", "|B"),
        (
            "---\nname: a\n---\n\nBody.\n\nMore.\n\n",
            "name@2=a|Body.\n\nMore.",
        ),
        (
            "\u{feff}--- \r\nname:   a b  \r\n---\r\nBody\r\n",
            "name@2=a b|Body",
        ),
        (
            "---\n# c\n\nn: 1\n  # c\nt: 0.5\n---\n---\n",
            "n@4=1 t@6=0.5|---",
        ),
        (
            "---\na: \"x: \\\"y\\\" \\\\ \\n\" # c\nb: 'it''s' \n---\n",
            "a@2=\"x: \\\"y\\\" \\\\ \" b@3=\"it's\"|",
        ),
        (
            "---\na: []\nb: [ x , \"y, z\",'w' ] # c\nc: [x,]\n---\n",
            "a@2=[] b@3=[\"x\", \"y, z\", \"w\"] c@4=[\"x\"]|",
        ),
        (
            "---\na: # c\n- x\n- \"y z\"\nb:\n\n  # c\n  - w\n---\nB",
            "a@2=[\"x\", \"y z\"] b@5=[\"w\"]|B",
        ),
        (
            "---\na: -1\nb: -x\nc: \"\"\n---\n",
            "a@2=-1 b@3=-x c@4=\"\"|",
        ),
        // Texts over several lines.
        (
            "---\na: |\n  one\n  two\nb: >-\n  one\n  two\n---\n",
            "a@2=\"one\\ntwo\" b@5=\"one two\"|",
        ),
        (
            "---\na:\n  on the next line\nb: one\n  two\n---\n",
            "a@2=on the next line b@4=one two|",
        ),
        ("---\na: x # c\nb: issue#12\n---\n", "a@2=x b@3=issue#12|"),
        (
            "---\na: {b: c}\nd: [[x]]\ne: z\n---\n",
            "a@2=nested d@3=nested e@4=z|",
        ),
        // No YAML, because quotes are missing.
        (
            "---\na: Use it: so n#1, it's\nb: c\n---\n",
            "a@2=\"Use it: so n#1, it's\" b@3=c|",
        ),
        (
            "---\na: [ray[train], torch]\nb: c: d\n---\n",
            "a@2=\"[ray[train], torch]\" b@3=\"c: d\"|",
        ),
    ] {
        assert_eq!(shown(text), want, "{text:?}");
    }
}

#[test]
fn invalid_front_matter_is_rejected_with_line_and_key() {
    for (text, line, key, part) in [
        ("", 1, None, "must begin with"),
        ("name: a\n", 1, None, "must begin with"),
        ("\n---\nname: a\n---\n", 1, None, "must begin with"),
        ("----\nname: a\n---\n", 1, None, "must begin with"),
        ("---\nname: a\n", 1, None, "is not closed"),
        ("---\nname\n---\n", 2, None, "expected keys"),
        ("---\n- a\n---\n", 2, None, "expected keys"),
        ("---\na: 1\n  b: 2\n---\n", 3, None, "no YAML"),
        ("---\na: [x]\n- y\n---\n", 3, None, "no YAML"),
        (
            "---\na: 1\nb: 2\na: 3\n---\n",
            4,
            Some("a"),
            "already set in line 2",
        ),
        ("---\na:\nb: 2\n---\n", 2, Some("a"), "no value"),
        ("---\na:\n---\n", 2, Some("a"), "no value"),
        ("---\na:\n-\n---\n", 3, None, "an item without"),
    ] {
        let fault = FrontMatter::read(text, &[]).expect_err(text);
        assert_eq!(
            (fault.line, fault.key.as_deref()),
            (line, key),
            "{text:?}: {fault:?}"
        );
        assert!(fault.message.contains(part), "{text:?}: {fault:?}");
    }
    let deep = format!("---\na: {}\n---\n", "[".repeat(10_000));
    let read = FrontMatter::read(&deep, &[]).unwrap();
    assert_eq!(
        read.text("a"),
        Ok(Some("[".repeat(10_000).as_str())),
        "no YAML, so it is a text without quotes"
    );
}

#[test]
fn value_of_wrong_type_is_rejected() {
    let text = "---\nn: 5\nq: \"5\"\nt: word\nl: [a]\nf: true\n---\n";
    let read = FrontMatter::read(text, &[]).unwrap();
    assert_eq!(read.text("n"), Ok(Some("5")));
    assert_eq!(read.text("none"), Ok(None));
    assert_eq!(read.list("l"), Ok(Some(vec!["a".to_owned()])));
    assert_eq!(read.flag("f"), Ok(Some(true)));
    assert_eq!(read.number("n", "", |n: &u32| *n == 5), Ok(Some(5)));
    let faults = [
        read.text("l").err(),
        read.list("t").err(),
        read.flag("t").err(),
        read.number::<u32>("q", "a number", |_| true).err(),
        read.number::<u32>("n", "a small number", |n| *n < 5).err(),
        read.required("none").err(),
        read.reject_unknown_keys(&["n", "q", "t", "l"]).err(),
    ];
    let messages: Vec<String> = faults
        .into_iter()
        .map(|fault| {
            fault.map_or_else(String::new, |f| {
                format!("{} {} {}", f.line, f.key.unwrap(), f.message)
            })
        })
        .collect();
    assert_eq!(
        messages,
        [
            "5 l must be a single text",
            "4 t must be a list: `[a, b]`, or one line `- a` per item",
            "4 t must be `true` or `false`, without quotes",
            "3 q must be a number",
            "2 n must be a small number",
            "1 none is missing: add a line `none: …` to the front matter",
            "6 f is not a known key; known keys: n, q, t, l",
        ]
    );
}

proptest! {
    #[test]
    fn quoted_text_round_trips(text in "[ -~äé好😀\t]{0,40}", body in "[a-z\n-]{0,20}") {
        let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\t', "\\t");
        let single = text.replace('\'', "''");
        let file = format!("---\na: \"{escaped}\"\nb: ['{single}', \"{escaped}\"]\nc:\n  - '{single}'\n---\n{body}");
        let read = FrontMatter::read(&file, &[]).unwrap();
        prop_assert_eq!(read.text("a"), Ok(Some(text.as_str())));
        prop_assert_eq!(read.list("b"), Ok(Some(vec![text.clone(), text.clone()])));
        prop_assert_eq!(read.list("c"), Ok(Some(vec![text.clone()])));
        prop_assert_eq!(read.body, body.trim());
    }

    #[test]
    fn parsing_never_panics(text in "(---\n)?([a-b:\\-\\[\\]\"', #|\\\\é\n]){0,60}(\n---\n)?") {
        let _ = FrontMatter::read(&text, &[]);
    }
}

#[test]
fn foreign_keys_are_skipped_with_their_values() {
    let text = "---\nname: a\nlist:\n- x\nhooks:\n  PreToolUse:\n    - matcher: Bash\n\n  Stop: >-\n    more\nmetadata: {a: b}\n\
                tools:\n- Read\n- Grep\nmultiline: [\n  a,\n]\nlast: z\n---\nText\n";
    let read = FrontMatter::read(text, &["hooks", "metadata", "tools", "multiline"]).unwrap();
    let foreign: Vec<(&str, usize)> = read
        .foreign()
        .iter()
        .map(|(key, line)| (key.as_str(), *line))
        .collect();
    assert_eq!(
        foreign,
        [
            ("hooks", 5),
            ("metadata", 11),
            ("tools", 12),
            ("multiline", 15)
        ]
    );
    assert_eq!(
        (read.text("name"), read.text("last")),
        (Ok(Some("a")), Ok(Some("z")))
    );
    assert_eq!(
        (read.list("list"), read.body),
        (Ok(Some(vec!["x".to_owned()])), "Text")
    );
    assert_eq!(read.text("hooks"), Ok(None));
}
