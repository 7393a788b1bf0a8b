//! Commands that print or export the records of runs: events, messages, versions, the HTML page,
//! and the pager.

use std::time::Duration;

use serde_json::{Value, json};

use crate::process::{KillOnDrop, TestHome};
use crate::pty::TestTerminal;
use crate::scripted::{Reply, ScriptedServer};

/// Returns a world with a session `s`, whose run has edited a file.
fn edited() -> TestHome {
    let world = TestHome::new();
    std::fs::write(world.project().join("notes.txt"), "one\ntwo\n").unwrap();
    let server = ScriptedServer::start(|request| {
        match request.body["messages"].as_array().map(Vec::len) {
            Some(2) => Reply::calls(&[("1", "read", r#"{"path": "notes.txt"}"#)]),
            Some(4) => {
                let change =
                    json!({"path": "notes.txt", "edits": [{"old": "two", "new": "<b>three</b>"}]});
                Reply::calls(&[("2", "edit", &change.to_string())])
            }
            _ => Reply::answer("I **changed** <script>it</script>."),
        }
    });
    let mut command = world.command(&[
        "run",
        "--session",
        "s",
        "--allow",
        "edit",
        "Change the notes",
    ]);
    let ran = command
        .env("OPENAI_BASE_URL", server.base_url())
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert_eq!(
        std::fs::read_to_string(world.project().join("notes.txt")).unwrap(),
        "one\n<b>three</b>\n"
    );
    world
}

#[test]
fn events_are_sentences_and_messages_can_be_limited() {
    let world = edited();
    let events = world.run(&["traces", "events", "s"]).expect_code(0).out;
    for part in [
        "started as default in mode normal",
        "message 2 of user: Change the notes",
        "tool read completed after",
    ] {
        assert!(events.contains(part), "{part:?} is missing in {events}");
    }
    assert!(!events.contains("{\""), "no JSON: {events}");
    let kinds: Vec<&str> = events
        .lines()
        .filter_map(|line| line.split_whitespace().nth(2))
        .collect();
    assert!(
        kinds.contains(&"tool_completed"),
        "a pipe gets the kinds: {events}"
    );
    let all = world
        .run(&["traces", "messages", "s", "--json"])
        .expect_code(0)
        .json();
    let last = world
        .run(&["traces", "messages", "s", "--last", "2", "--json"])
        .expect_code(0)
        .json();
    let all = all.as_array().unwrap();
    assert_eq!(last.as_array().unwrap()[..], all[all.len() - 2..]);
    let more = world
        .run(&["traces", "messages", "s", "--last", "99", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(more.as_array().unwrap(), all);
    world
        .run(&["traces", "messages", "s", "--last", "0"])
        .expect_code(2);
}

#[test]
fn columns_of_lists_can_be_selected() {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "--session", "s", "Hello"])
        .expect_code(0);
    let sessions = world
        .run(&["sessions", "list", "--columns", "name,session"])
        .expect_code(0)
        .out;
    assert_eq!(sessions, "NAME   SESSION\nHello  s\n");
    let traces = world
        .run(&["traces", "list", "--columns", "trace,status"])
        .expect_code(0)
        .out;
    assert_eq!(traces, "TRACE  STATUS\ns      completed\n");
    let unknown = world
        .run(&["sessions", "list", "--columns", "nam"])
        .expect_code(2);
    unknown.expect_stderr(&[
        "there is no column nam",
        "session, last-event, runs, name, project",
    ]);
    world
        .run(&["sessions", "list", "--columns", "name", "--json"])
        .expect_code(2);
}

#[test]
fn versions_of_an_artifact_are_compared() {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "--session", "s", "Hello"])
        .expect_code(0);
    let file = world.project().join("plan.md");
    for text in ["a\nb\n", "a\nB\n", "a\nB\nc\n"] {
        std::fs::write(&file, text).unwrap();
        world
            .run(&["artifacts", "put", "plan.md", "plan.md"])
            .expect_code(0);
    }
    let diff = |args: &[&str]| {
        world
            .run(&[&["artifacts", "diff", "plan.md"], args].concat())
            .expect_code(0)
            .out
    };
    assert_eq!(diff(&[]), "@@ -1,2 +1,3 @@\n a\n B\n+c\n");
    assert_eq!(diff(&["1"]), "@@ -1,2 +1,3 @@\n a\n-b\n+B\n+c\n");
    assert_eq!(diff(&["1", "2"]), "@@ -1,2 +1,2 @@\n a\n-b\n+B\n");
    assert_eq!(diff(&["2", "2"]), "");
    let json = world
        .run(&["artifacts", "diff", "plan.md", "1", "2", "--json"])
        .expect_code(0)
        .json();
    assert_eq!((&json["from"], &json["to"]), (&json!(1), &json!(2)));
    assert!(
        json["diff"].as_str().unwrap().contains("-b\n+B\n"),
        "{json}"
    );
    world
        .run(&["artifacts", "diff", "plan.md", "7"])
        .expect_code(3);
    world
        .run(&["artifacts", "put", "one", "plan.md"])
        .expect_code(0);
    world
        .run(&["artifacts", "diff", "one"])
        .expect_code(3)
        .expect_stderr(&["no earlier version"]);
}

#[test]
fn trace_is_exported_to_one_page() {
    let world = edited();
    let ran = world
        .run(&["traces", "export", "s", "--html", "../page.html"])
        .expect_code(0);
    assert!(
        ran.out.starts_with("1 trace written to ../page.html, "),
        "{}",
        ran.out
    );
    let page = std::fs::read_to_string(world.project().join("../page.html")).unwrap();
    for part in [
        "<h1>Change the notes</h1>",
        "<svg ",
        "<summary>System prompt</summary>",
        "+ &lt;b&gt;three&lt;/b&gt;",
        "<span class=\"bold\">changed</span>",
    ] {
        assert!(page.contains(part), "{part:?} is missing in {page}");
    }
    assert!(
        !page.contains("<script") && !page.contains("http"),
        "it needs nothing else"
    );
    // A page of a demo has all its agents.
    let (_, result) = world.demo(&[]);
    let demo = result["trace_id"].as_str().unwrap();
    let json = world
        .run(&["traces", "export", demo, "--html", "../page.html", "--json"])
        .expect_code(0)
        .json();
    let traces = json["traces"].as_array().unwrap().len();
    assert!(traces >= 6, "{json}");
    let page = std::fs::read_to_string(world.project().join("../page.html")).unwrap();
    assert_eq!(json["size"], Value::from(page.len()));
    assert_eq!(page.matches("<h2 id=").count(), traces);
    // A message of more than 64 KiB, and a secret that would be escaped.
    let server = ScriptedServer::start(|_| Reply::answer("Done."));
    let long = format!(
        "{} the end of it, with pass&word<12345",
        "word ".repeat(16_000)
    );
    let mut command = world.command(&["run", "--session", "long", "-"]);
    command
        .env("OPENAI_BASE_URL", server.base_url())
        .stdin(std::process::Stdio::piped());
    let mut child = KillOnDrop {
        child: command.spawn().unwrap(),
    };
    std::io::Write::write_all(&mut child.child.stdin.take().unwrap(), long.as_bytes()).unwrap();
    child.finish().expect_code(0);
    let mut command = world.command(&["traces", "export", "long", "--html", "../page.html"]);
    assert!(
        command
            .env("DB_PASSWORD", "pass&word<12345")
            .output()
            .unwrap()
            .status
            .success()
    );
    let page = std::fs::read_to_string(world.project().join("../page.html")).unwrap();
    assert!(page.contains("the end of it, with"), "the whole message");
    assert!(!page.contains("pass&amp;word"), "the secret is redacted");
    assert!(
        page.lines()
            .filter(|line| line.starts_with("<h2"))
            .all(|line| line.len() < 300),
        "the heading is cut"
    );
    world.run(&["traces", "export", "s"]).expect_code(2);
    world
        .run(&["traces", "export", "s", "../out", "--html", "../page.html"])
        .expect_code(2);
}

#[test]
fn long_output_on_a_terminal_is_shown_with_the_pager() {
    let world = edited();
    let show = |args: &[&str], pager: &str| {
        let terminal = TestTerminal::start(
            &world,
            args,
            (12, 100),
            &[("PAGER", pager), ("PATH", "/usr/bin:/bin")],
        );
        let (code, rows) = terminal.wait_for_exit();
        assert_eq!(code, Some(0), "{rows:#?}");
        rows
    };
    let numbered = "sed s/^/paged:/";
    let rows = show(&["traces", "events", "s"], numbered);
    assert!(
        rows.iter().filter(|row| row.starts_with("paged:")).count() > 12,
        "{rows:#?}"
    );
    for (args, pager, part) in [
        (&["sessions", "list"][..], numbered, "Change the notes"),
        (&["traces", "events", "s"], "cat", "started as default"),
        (
            &["traces", "events", "s"],
            "/no/such/pager -R",
            "started as default",
        ),
    ] {
        let rows = show(args, pager);
        assert!(
            !rows.iter().any(|row| row.starts_with("paged:")),
            "{args:?} {pager}: {rows:#?}"
        );
        assert!(
            rows.iter().any(|row| row.contains(part)),
            "{args:?} {pager}: {rows:#?}"
        );
    }
    // A pager that the user closes early is no error.
    show(&["traces", "messages", "s"], "head -n 1");
}

#[test]
fn quiet_run_prints_only_the_answer() {
    let world = TestHome::new();
    let server = ScriptedServer::start(|_| Reply::answer("Only this."));
    let environment = [("OPENAI_BASE_URL", server.base_url())];
    let environment = environment
        .each_ref()
        .map(|(name, url)| (*name, url.as_str()));
    let mut command = world.command(&["run", "--quiet", "Say it"]);
    let ran = command.envs(environment).output().unwrap();
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), "Only this.\n");
    assert_eq!(String::from_utf8(ran.stderr).unwrap(), "");
    let terminal = TestTerminal::start(&world, &["run", "-q", "Say it"], (12, 60), &environment);
    let (code, rows) = terminal.wait_for_exit();
    let rows: Vec<&str> = rows
        .iter()
        .map(String::as_str)
        .filter(|row| !row.is_empty())
        .collect();
    assert_eq!((code, rows), (Some(0), vec!["Only this."]));
    for more in ["--json", "--monitor", "--detach"] {
        world
            .run(&["run", "--quiet", more, "Say it"])
            .expect_code(2);
    }
}

/// Closing the runtime would end the call for the name.
#[test]
fn process_of_a_single_run_waits_for_the_name() {
    let world = TestHome::new();
    let server = ScriptedServer::start(|request| {
        if request.body.to_string().contains("You name conversations") {
            return Reply::answer("Purpose of the files").after(Duration::from_millis(500));
        }
        Reply::answer("They are for tests.")
    });
    let config = "[model]\nname = \"m\"\n[context]\nutility_profile = \"default\"\n";
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let mut command = world.command(&["run", "--session", "s", "What are the files for?"]);
    let ran = command
        .env("OPENAI_BASE_URL", server.base_url())
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
    let session = world
        .run(&["sessions", "show", "s", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        session["session"]["name"], "Purpose of the files",
        "{session}"
    );
}
