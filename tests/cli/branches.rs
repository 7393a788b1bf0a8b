//! Rewinding and forking sessions from the command line, with and without an owner of the home.

use crate::process::{KillOnDrop, TestHome};
use crate::service::ManualModelService;
use serde_json::{Value, json};

fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

/// Returns the heading of each message of a session: its number, its role and its annotation.
fn heads(world: &TestHome, session: &str, more: &[&str]) -> Vec<String> {
    let shown = world
        .run(&[&["traces", "messages", session], more].concat())
        .expect_code(0);
    let heads = shown.out.lines().filter(|line| {
        // Markdown headings in messages also begin with `#`.
        line.strip_prefix('#')
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    });
    let bare = |line: &str| line.trim_start_matches('#').replace(" answers call-0", "");
    heads.map(bare).collect()
}

fn artifact(world: &TestHome, session: &str, name: &str) -> String {
    world
        .run(&["artifacts", "get", name, "--session", session])
        .expect_code(0)
        .out
}

/// Creates a session `s` with two answers and a document that the first run creates and the second
/// run changes.
fn talked(world: &TestHome) {
    let service = ManualModelService::new();
    for (prompt, call, args) in [
        (
            "Plan",
            "create_artifact",
            json!({ "name": "plan", "content": "one" }),
        ),
        (
            "Change it",
            "update_artifact",
            json!({ "name": "plan", "old": "one", "new": "two" }),
        ),
    ] {
        let running = begin(world, &service, &["run", "--session", "s", prompt]);
        let mut request = service.next();
        request.call(call, &args);
        request.end();
        service.next().answer("Done.");
        running.finish().expect_code(0);
    }
}

#[test]
fn session_is_forked_switched_and_rewound() {
    let world = TestHome::new();
    talked(&world);
    let whole = [
        "1 system",
        "2 user",
        "3 assistant",
        "4 tool",
        "5 assistant",
        "6 user",
        "7 assistant",
        "8 tool",
    ];
    let with = |last: &str| -> Vec<String> {
        whole
            .iter()
            .copied()
            .chain([last])
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(heads(&world, "s", &[]), with("9 assistant (head)"));
    assert_eq!(artifact(&world, "s", "plan"), "two");

    // Fork at a message with a tool call: the copy also contains the result of the call.
    let made = world
        .run(&[
            "sessions",
            "fork",
            "s",
            "--at",
            "3",
            "--session",
            "f",
            "--name",
            "Other",
        ])
        .expect_code(0);
    assert_eq!(made.out.lines().next(), Some("f"));
    assert!(
        format!("{}{}", made.out, made.err).contains("run --session f"),
        "{}{}",
        made.out,
        made.err
    );
    assert_eq!(
        heads(&world, "f", &[]),
        ["1 system", "2 user", "3 assistant", "4 tool (head)"]
    );
    assert_eq!(artifact(&world, "f", "plan"), "one");
    let listed = world.run(&["sessions", "list"]).expect_code(0);
    assert!(listed.out.contains("Other"), "{}", listed.out);
    // Without `--at`, the copy contains all messages and has a generated id.
    let all = world
        .run(&["sessions", "fork", "s", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        heads(&world, all["session_id"].as_str().unwrap(), &[]).len(),
        9
    );

    // Switch back; documents are restored.
    let switched = world.run(&["sessions", "switch", "s", "4"]).expect_code(0);
    assert_eq!(
        switched.out,
        "moved the head of session s from message 9 to 4\nrestored 1 document: plan\n"
    );
    assert_eq!(artifact(&world, "s", "plan"), "one");
    let all = heads(&world, "s", &["--all"]);
    assert_eq!(
        (all[3].as_str(), all[4].as_str(), all[8].as_str()),
        (
            "4 tool (head)",
            "5 assistant (off the path)",
            "9 assistant (off the path)"
        )
    );
    assert_eq!(
        world
            .run(&["sessions", "switch", "s", "4"])
            .expect_code(0)
            .out,
        "the head of session s is still at message 4\n"
    );
    // Switch forward to a message that is now off the path.
    let forth = world
        .run(&["sessions", "switch", "s", "9", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        forth,
        json!({ "sequence": 9, "from_sequence": 4, "restored": ["plan"], "left": [] })
    );
    assert_eq!(artifact(&world, "s", "plan"), "two");

    // Rewind with `run --after`, with and without a prompt.
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "--after",
            "5",
            "Hello",
        ])
        .expect_code(0);
    assert_eq!(artifact(&world, "s", "plan"), "one");
    let path = heads(&world, "s", &[]);
    assert_eq!(
        path[..6].join(" "),
        "1 system 2 user 3 assistant 4 tool 5 assistant 10 user"
    );
    world
        .run(&["run", "--model", "offline", "--trace", "s", "--after", "10"])
        .expect_code(0);
    let later_heads = heads(&world, "s", &[]);
    assert_eq!(
        (&later_heads[..6], later_heads.len() > 6),
        (&path[..6], true)
    );
    assert!(later_heads.last().unwrap() != path.last().unwrap());
    // A fork is independent of the original session.
    world
        .run(&["run", "--model", "offline", "--session", "f", "Hello"])
        .expect_code(0);
    world.run(&["sessions", "delete", "s"]).expect_code(0);
    assert_eq!(artifact(&world, "f", "plan"), "one");
}

#[test]
fn fork_and_switch_work_through_the_owner() {
    let world = TestHome::new();
    talked(&world);
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "More"]);
    let request = service.next();
    let made = world
        .run(&["sessions", "fork", "s", "--at", "9", "--session", "f"])
        .expect_code(0);
    assert_eq!(made.out.lines().next(), Some("f"));
    let refused = world.run(&["sessions", "switch", "s", "4"]).expect_code(4);
    refused.expect_stderr(&["session_active"]);
    world.run(&["sessions", "switch", "f", "4"]).expect_code(0);
    assert_eq!(heads(&world, "f", &[]).last().unwrap(), "4 tool (head)");
    request.answer("Done.");
    owner.finish().expect_code(0);
    let count = |session: &str| -> Value {
        world
            .run(&["traces", "show", session, "--json"])
            .expect_code(0)
            .json()["trace"]["total_messages"]
            .clone()
    };
    assert_eq!((count("s"), count("f")), (json!(11), json!(9)));
}

#[test]
fn options_of_chat_need_no_command() {
    let world = TestHome::new();
    let chat = |args: &[&str]| world.run_with_input(args, b"Hello\n").expect_code(0).out;
    chat(&["--model", "offline", "--session", "s"]);
    assert!(chat(&["--continue", "--model", "offline"]).contains("Hello"));
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (
            sessions.as_array().unwrap().len(),
            &sessions[0]["session_id"]
        ),
        (1, &json!("s"))
    );
    world
        .run(&["--continue="])
        .expect_code(2)
        .expect_stderr(&["a value is required for '--continue"]);
    world
        .run(&["--continue", "--session", "s"])
        .expect_code(2)
        .expect_stderr(&["cannot be used with"]);
    assert!(
        world
            .run(&["--continue", "--help"])
            .expect_code(0)
            .out
            .contains("Usage: soong chat")
    );
    // The options of other commands are still errors, and so are unknown ones.
    for args in [
        &["--detach"][..],
        &["--continu"],
        &["sessions", "--continue"],
        &["--continue", "--nonsense"],
    ] {
        world
            .run(args)
            .expect_code(2)
            .expect_stderr(&["unexpected argument"]);
    }
}

#[test]
fn chat_rewinds_and_forks() {
    let world = TestHome::new();
    let lines = "Hello\n/rewind 2\n/retry\n/rewind 99\n";
    let ran = world.run_with_input(
        &["chat", "--model", "offline", "--session", "s"],
        lines.as_bytes(),
    );
    ran.expect_stderr(&[
        "cannot continue after message 99 of s",
        "soong traces messages s --all",
    ]);
    assert!(
        ran.out
            .contains("moved the head of the conversation from message 6 to 2"),
        "{}",
        ran.out
    );
    let ran = world.run_with_input(
        &["chat", "--model", "offline", "--session", "s"],
        b"/fork\nHello again\n",
    );
    assert!(ran.out.contains("; s is unchanged"), "{}", ran.out);
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().unwrap().len(), 2);
}
