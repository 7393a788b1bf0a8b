//! Tests of which processes belong to a call.

use super::*;

const SOONG: i32 = 50;
const ROOT: i32 = 100;

fn process(pid: i32, parent: i32, group: i32, session: i32) -> Process {
    Process {
        pid,
        parent,
        group,
        session,
        is_dead: false,
        started: 7,
        is_marked: false,
    }
}

#[test]
fn member_is_recognized_by_parent_group_session_or_tag() {
    let marked = |process: Process| Process {
        is_marked: true,
        ..process
    };
    let dead = |process: Process| Process {
        is_dead: true,
        ..process
    };
    let root = process(ROOT, SOONG, ROOT, ROOT);
    for (name, others, want) in [
        ("nobody", vec![], vec![]),
        ("a child", vec![process(101, ROOT, ROOT, ROOT)], vec![101]),
        (
            "a grandchild with a group of its own",
            vec![process(101, ROOT, 101, ROOT)],
            vec![101],
        ),
        (
            "a child with a session of its own",
            vec![process(101, ROOT, 101, 101)],
            vec![101],
        ),
        (
            "an orphan of the session",
            vec![process(101, 1, 101, ROOT)],
            vec![101],
        ),
        (
            "an orphan of the group",
            vec![process(101, 1, ROOT, 9)],
            vec![101],
        ),
        (
            "a marked orphan",
            vec![marked(process(101, 1, 101, 101))],
            vec![101],
        ),
        (
            "its child",
            vec![
                process(102, 101, 102, 102),
                marked(process(101, 1, 101, 101)),
            ],
            vec![102, 101],
        ),
        (
            "a dead one",
            vec![dead(process(101, ROOT, ROOT, ROOT))],
            vec![],
        ),
        (
            "a child of a dead one",
            vec![
                dead(process(101, ROOT, ROOT, ROOT)),
                process(102, 101, 102, 102),
            ],
            vec![102],
        ),
        (
            "a stranger",
            vec![process(101, 1, 101, 101), process(102, 101, 102, 102)],
            vec![],
        ),
        (
            "another call of ours",
            vec![process(200, SOONG, 200, 200), process(201, 200, 200, 200)],
            vec![],
        ),
        (
            "the system's first process",
            vec![marked(process(1, 0, 1, 1)), process(101, 1, 101, 101)],
            vec![],
        ),
        (
            "ourselves",
            vec![
                marked(process(SOONG, 2, 2, 2)),
                process(101, SOONG, 101, 101),
            ],
            vec![],
        ),
    ] {
        let mut table = others;
        table.push(root.clone());
        let found: Vec<i32> = members(&table, ROOT, SOONG)
            .iter()
            .map(|process| process.pid)
            .collect();
        assert_eq!(found, want, "{name}");
    }
}

#[test]
fn stat_line_is_parsed_with_any_process_name() {
    let numbers = "S 2 3 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0";
    for name in ["sh", "a b", "a) S 9 9", "((", "ü"] {
        let got = parsed(&format!("12 ({name}) {numbers}")).unwrap();
        let want = Process {
            pid: 12,
            parent: 2,
            group: 3,
            session: 4,
            is_dead: false,
            started: 4711,
            is_marked: false,
        };
        assert_eq!(got, want, "{name}");
    }
    assert!(
        parsed("12 (sh) Z 2 3 4 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 4711 0 0")
            .unwrap()
            .is_dead
    );
    for broken in ["", "12", "x (sh) S 2 3 4", "12 (sh) S 2", "12 sh S 2 3 4"] {
        assert_eq!(parsed(broken), None, "{broken}");
    }
}

#[test]
fn tag_is_read_from_environment_and_resource_limits() {
    let mark = ProcessTag::new();
    let number = mark.number();
    let text = mark.text();
    let limit = |soft: &str, hard: &str| {
        format!(
            "Max pending signals 1 1 signals\nMax realtime timeout      {soft}   {hard}   us        \n"
        )
    };
    for (limits, want) in [
        (
            limit(&number.to_string(), &number.to_string()),
            Some(number),
        ),
        (limit("0", &number.to_string()), Some(number)),
        (limit(&number.to_string(), "unlimited"), None),
        (limit("unlimited", "unlimited"), None),
        (limit("200000", "200000"), None),
        (String::new(), None),
    ] {
        assert_eq!(number_in_limits(&limits), want, "{limits}");
    }
    for (environment, want) in [
        (format!("A=1\0SOONG_CALL={text}\0B=2\0"), Some(text.clone())),
        (format!("SOONG_CALL={text}"), Some(text.clone())),
        (format!("XSOONG_CALL={text}\0SOONG_CALLED=1\0"), None),
        (String::new(), None),
    ] {
        assert_eq!(
            text_in_environment(environment.as_bytes()),
            want,
            "{environment}"
        );
    }
    assert_ne!(ProcessTag::new().number(), number);
}
