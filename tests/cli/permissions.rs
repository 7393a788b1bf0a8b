//! Permissions for tool calls, seen from terminals: requested in place, denied, granted in advance
//! or by another process; and no output contains a secret (PERM-1, TOOL-5, SAFE-1).

use std::path::Path;

use crate::process::{KillOnDrop, TestHome};
use crate::pty::TestTerminal;
use crate::service::ManualModelService;
use serde_json::{Value, json};

/// A secret in the user's environment.
const CANARY: &str = "canary-7f3a9e51c2";

fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

/// Makes the run write a file.
fn writes(service: &ManualModelService, path: &str) {
    let mut request = service.next();
    request.call(
        "write",
        &json!({ "path": path, "content": "made by an agent\n" }),
    );
    request.end();
}

fn pending(world: &TestHome) -> Vec<Value> {
    world
        .run(&["permissions", "list", "--json"])
        .expect_code(0)
        .json()
        .as_array()
        .unwrap()
        .clone()
}

#[test]
fn call_requiring_permission_is_denied_without_a_terminal() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let run = begin(&world, &service, &["run", "Make a note"]);
    writes(&service, "note.md");
    let next = service.next();
    assert!(
        next.last_message().contains("[permission_denied]")
            && next.last_message().contains("no approver is available"),
        "{}",
        next.last_message()
    );
    next.answer("I could not.");
    let ran = run.finish().expect_code(0);
    ran.expect_stderr(&["tool write was denied"]);
    assert!(!world.project().join("note.md").exists());
    assert_eq!(pending(&world), [Value::Null; 0]);
}

#[test]
fn allow_option_grants_permission_within_its_scope() {
    for (allow, path, is_made) in [
        ("write", "note.md", true),
        ("write:docs", "docs/n.md", true),
        ("write:docs", "note.md", false),
    ] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let run = begin(&world, &service, &["run", "--allow", allow, "Make a note"]);
        writes(&service, path);
        service.next().answer("Done.");
        run.finish().expect_code(0);
        assert_eq!(
            world.project().join(path).exists(),
            is_made,
            "{allow} {path}"
        );
    }
    let world = TestHome::new();
    let service = ManualModelService::new();
    begin(&world, &service, &["run", "--allow", "write:", "x"])
        .finish()
        .expect_code(2)
        .expect_stderr(&["is not a permission rule"]);
}

#[test]
fn terminal_user_is_asked_in_place() {
    const KEYS: &str = "xterm-256color";
    const LINES: &str = "dumb";
    /// A prompt to wait for, and what is typed then.
    type Step = (&'static str, &'static str);
    let cases: [(&str, &[Step], bool, &str); 10] = [
        (KEYS, &[("allow?", "y")], true, ""),
        (KEYS, &[("allow?", "Y\r")], true, ""),
        (KEYS, &[("allow?", "maybe\r"), ("allow?", "y")], true, ""),
        // A word is no answer, also if it begins with a key.
        (
            KEYS,
            &[("allow?", "and then\r"), ("allow?", "n")],
            false,
            "",
        ),
        (KEYS, &[("allow?", "n")], false, ""),
        (
            KEYS,
            &[("allow?", "e"), ("reason:", "rather not\r")],
            false,
            "rather not",
        ),
        (LINES, &[("allow?", "y\r")], true, ""),
        (LINES, &[("allow?", "perhaps\ry\r")], true, ""),
        (LINES, &[("allow?", "n rather not\r")], false, "rather not"),
        (LINES, &[("allow?", "e\rrather not\r")], false, "rather not"),
    ];
    for (term, steps, is_made, reason) in cases {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let variables = [
            ("OPENAI_BASE_URL", service.address.as_str()),
            ("TERM", term),
        ];
        let terminal = TestTerminal::start(&world, &["run", "Make a note"], (30, 100), &variables);
        writes(&service, "note.md");
        terminal.wait_for_text("? write requests permission: note.md");
        terminal.wait_for_text("agent default, session ");
        for (at, (shown, typed)) in steps.iter().enumerate() {
            let count = steps[..=at].iter().filter(|step| step.0 == *shown).count();
            let is_shown = |row: &&String| row.contains(shown);
            terminal.wait_for(shown, |rows| rows.iter().filter(is_shown).count() == count);
            terminal.type_keys(typed);
        }
        let next = service.next();
        assert!(
            next.last_message().contains(reason),
            "{}",
            next.last_message()
        );
        next.answer("That was it.");
        let (code, rows) = terminal.wait_for_exit();
        assert_eq!(code, Some(0), "{rows:?}");
        assert_eq!(world.project().join("note.md").exists(), is_made);
        let shown = rows
            .iter()
            .filter(|row| row.contains("made by an agent"))
            .count();
        assert_eq!(shown, 1, "the change is shown, and not repeated: {rows:#?}");
    }
}

#[test]
fn terminal_is_as_before_after_a_request_ended_in_any_way() {
    for (keys, code) in [("y", 0), ("\u{3}", 130), ("\u{3}\u{3}", 130), ("\u{4}", 6)] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let address = [("OPENAI_BASE_URL", service.address.as_str())];
        let terminal = TestTerminal::start(&world, &["run", "Make a note"], (30, 100), &address);
        writes(&service, "note.md");
        terminal.wait_for_text("allow?");
        terminal.type_keys(keys);
        if code == 0 {
            service.next().answer("Done.");
        }
        let (ended, rows) = terminal.wait_for_exit();
        assert_eq!(ended, Some(code), "{rows:#?}");
    }
}

#[test]
fn permission_mode_is_an_option_and_can_change_during_a_run() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let run = begin(
        &world,
        &service,
        &[
            "run",
            "--session",
            "s",
            "--permission-mode",
            "plan",
            "Make a note",
        ],
    );
    writes(&service, "note.md");
    let mut next = service.next();
    assert!(
        next.last_message()
            .contains("in the permission mode `plan`"),
        "{}",
        next.last_message()
    );
    let set = world
        .run(&["permissions", "mode", "edits", "s"])
        .expect_code(0);
    assert_eq!(set.out, "permission mode of session s: edits\n");
    next.call(
        "write",
        &json!({ "path": "note.md", "content": "made by an agent\n" }),
    );
    next.end();
    service.next().answer("Done.");
    run.finish().expect_code(0);
    assert!(world.project().join("note.md").exists());
    world
        .run(&["permissions", "mode", "plan", "s"])
        .expect_code(4)
        .expect_stderr(&["session s has no active run"]);
    world
        .run(&["permissions", "mode", "plan", "none"])
        .expect_code(3)
        .expect_stderr(&["there is no session none"]);
    world
        .run(&["permissions", "mode", "most", "s"])
        .expect_code(2)
        .expect_stderr(&["plan, ask, edits, all"]);
}

/// The chat names the mode, and executes a plan in the mode that the user chooses.
#[test]
fn chat_executes_a_plan_in_the_chosen_mode() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(
        &world,
        &["chat", "--permission-mode", "plan"],
        (30, 100),
        &address,
    );
    terminal.wait_for_text("permissions plan");
    terminal.wait_for_text("plan ›");
    terminal.type_keys("/permissions\r");
    terminal.wait_for_text("permissions: plan");
    terminal.type_keys("Make a note\r");
    service.next().answer("I would write note.md.");
    terminal.wait_for_text("type 1 to execute this plan");
    terminal.type_keys("/help\r");
    terminal.wait_for_text("Ctrl-C            cancel the run");
    terminal.type_keys("2\r");
    let mut request = service.next();
    assert_eq!(request.last_message(), "Execute the plan.");
    request.call(
        "write",
        &json!({ "path": "note.md", "content": "made by an agent\n" }),
    );
    request.end();
    service.next().answer("It is written.");
    terminal.wait_for_text("edits ›");
    assert!(world.project().join("note.md").exists());
    terminal.type_keys("/permissions ask\r");
    terminal.wait_for_text("permissions: ask");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

/// Makes the run change `note.md`, which contains the lines "one", "two" and "three".
fn edits(world: &TestHome, service: &ManualModelService) {
    std::fs::write(world.project().join("note.md"), "one\ntwo\nthree\n").unwrap();
    let mut request = service.next();
    request.call(
        "edit",
        &json!({ "path": "note.md", "edits": [{ "old": "two", "new": "zwei" }] }),
    );
    request.end();
}

#[test]
fn edit_request_shows_a_diff_with_line_numbers() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    begin(
        &world,
        &service,
        &["run", "--detach", "--session", "s", "Change the note"],
    )
    .finish()
    .expect_code(0);
    edits(&world, &service);
    let permission = loop {
        if let Some(permission) = pending(&world).pop() {
            break permission;
        }
    };
    assert!(
        permission["diff"]
            .as_str()
            .unwrap()
            .contains("-two\n+zwei\n"),
        "{permission}"
    );
    let listed = world
        .run(&["permissions", "list", "--color", "always"])
        .expect_code(0)
        .out;
    let rows = [
        "|     1     1   one",
        "\u{1b}[31m|     2       - two\u{1b}[0m",
        "\u{1b}[32m|           2 + zwei\u{1b}[0m",
    ];
    assert!(
        rows.iter().all(|row| listed.contains(row)) && !listed.contains("\"old\""),
        "{listed}"
    );
    world
        .run(&[
            "permissions",
            "allow",
            permission["permission_id"].as_str().unwrap(),
        ])
        .expect_code(0);
    service.next().answer("Done.");
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(&world, &["run", "Change the note"], (30, 100), &address);
    edits(&world, &service);
    let rows = terminal.wait_for_text("allow?");
    assert!(
        rows.iter().any(|row| row.contains("|     2       - two")),
        "{rows:#?}"
    );
    terminal.type_keys("y");
    service.next().answer("Done.");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
    assert_eq!(
        std::fs::read_to_string(world.project().join("note.md")).unwrap(),
        "one\nzwei\nthree\n"
    );
}

/// Returns the options that the last line of a run's output suggests.
fn suggested(err: &str) -> Vec<String> {
    let last = err.lines().last().unwrap();
    let options = last
        .strip_prefix("To allow them: ")
        .unwrap_or_else(|| panic!("{err}"));
    // A shell parses the options, as it would for a user.
    let shell = std::process::Command::new("sh")
        .args(["-c", &format!("printf '%s\\n' {options}")])
        .output()
        .unwrap();
    String::from_utf8(shell.stdout)
        .unwrap()
        .lines()
        .map(str::to_owned)
        .collect()
}

#[test]
fn run_ends_with_a_list_of_denied_calls() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let calls = |request: &mut crate::service::Request| {
        request.call("write", &json!({ "path": "a b.md", "content": "x\n" }));
        request.call(
            "bash",
            &json!({ "command": "echo 'one  two' > /dev/null && rm -r no_such_folder || true" }),
        );
    };
    let other = json!({ "path": "other.md", "content": "x\n" });
    let run = begin(&world, &service, &["run", "Make a note"]);
    // In separate turns, because calls that follow a denied call in the same turn are skipped.
    let mut request = service.next();
    request.call("write", &json!({ "path": "a b.md", "content": "x\n" }));
    request.end();
    let mut request = service.next();
    request.call(
        "bash",
        &json!({ "command": "echo 'one  two' > /dev/null && rm -r no_such_folder || true" }),
    );
    request.end();
    service.next().answer("I could not.");
    let ran = run.finish().expect_code(0);
    ran.expect_stderr(&[
        "2 calls were denied, because no approver was available:",
        "a b.md",
        "rm -r no_such_folder",
    ]);
    let suggested = suggested(&ran.err);
    let options: Vec<&str> = suggested.iter().map(String::as_str).collect();
    let run = begin(
        &world,
        &service,
        &[&["run"], &options[..], &["--fail-on-denied", "x"]].concat(),
    );
    let mut request = service.next();
    calls(&mut request);
    request.end();
    let next = service.next();
    assert!(
        !next.last_message().contains("[permission_denied]"),
        "{}",
        next.last_message()
    );
    next.answer("Done.");
    run.finish().expect_code(0);
    assert!(world.project().join("a b.md").exists());
    // The suggested options are on the last line, also if denied calls make the run fail.
    let run = begin(
        &world,
        &service,
        &["run", "--fail-on-denied", "Make another note"],
    );
    let mut request = service.next();
    request.call("write", &json!({ "path": "c.md", "content": "x\n" }));
    request.end();
    service.next().answer("I could not.");
    let ran = run.finish().expect_code(4);
    let last = ran.err.lines().last().unwrap_or_default();
    assert!(
        last.contains("To allow them: --allow write:") && last.ends_with("c.md"),
        "{}",
        ran.err
    );
    // The same options allow nothing else.
    let run = begin(
        &world,
        &service,
        &[&["run"], &options[..], &["--fail-on-denied", "--json", "x"]].concat(),
    );
    let mut request = service.next();
    request.call("write", &other);
    request.end();
    service.next().answer("I could not.");
    let ran = run.finish().expect_code(4);
    assert!(!world.project().join("other.md").exists());
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!(last["result"]["refused"][0]["tool"], "write", "{last}");
}

#[test]
fn unknown_tool_in_the_configuration_is_rejected() {
    for (text, key) in [
        (
            "[permissions]\nallow = [\"wirte:src\"]\n",
            "permissions.allow",
        ),
        ("[permissions]\ndeny = [\"wirte\"]\n", "permissions.deny"),
        ("[tools]\ndisabled = [\"wirte\"]\n", "tools.disabled"),
        (
            "[presets.p]\nallowed_tools = [\"wirte\"]\n",
            "presets.p.allowed_tools",
        ),
    ] {
        let world = TestHome::new();
        std::fs::create_dir_all(world.home()).unwrap();
        std::fs::write(world.home().join("config.toml"), text).unwrap();
        for args in [
            &["run", "--model", "offline", "x"][..],
            &["serve", "--addr", "127.0.0.1:0"],
        ] {
            world.run(args).expect_code(2).expect_stderr(&[
                key,
                "\"wirte\"",
                "did you mean \"write\"?",
            ]);
        }
        let found = world.run(&["doctor"]).expect_code(2).out;
        assert!(
            found.contains(key) && found.contains("did you mean"),
            "{found}"
        );
    }
}

#[test]
fn forked_session_keeps_its_deny_rules() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let run = begin(
        &world,
        &service,
        &["run", "--session", "s", "--deny", "write:secret", "x"],
    );
    service.next().answer("Yes.");
    run.finish().expect_code(0);
    world
        .run(&["sessions", "fork", "s", "--session", "copy"])
        .expect_code(0);
    world.run(&["sessions", "delete", "s"]).expect_code(0);
    let run = begin(
        &world,
        &service,
        &["run", "--session", "copy", "--allow", "write", "x"],
    );
    writes(&service, "secret/n.md");
    let next = service.next();
    assert!(
        next.last_message().contains("a deny rule forbids it"),
        "{}",
        next.last_message()
    );
    next.answer("No.");
    run.finish().expect_code(0);
}

#[test]
fn deny_rules_apply_to_children_and_further_messages() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let run = begin(
        &world,
        &service,
        &[
            "run",
            "--session",
            "s",
            "--allow",
            "write",
            "--deny",
            "write:secret",
            "x",
        ],
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": "write it" }));
    request.end();
    // The call of the child.
    writes(&service, "secret/n.md");
    let next = service.next();
    assert!(
        next.last_message().contains("a deny rule forbids it"),
        "{}",
        next.last_message()
    );
    next.answer("No.");
    service.next().answer("No.");
    run.finish().expect_code(0);
    let run = begin(
        &world,
        &service,
        &["run", "--session", "s", "--allow", "write", "--json", "x"],
    );
    writes(&service, "secret/n.md");
    service.next().answer("No.");
    let lines = run.finish().expect_code(0).json_lines();
    let denied = lines
        .iter()
        .find(|line| line["event"] == "tool_denied")
        .unwrap();
    assert_eq!(denied["data"]["by"], "rule", "{denied}");
    assert!(!world.project().join("secret").exists());
}

#[test]
fn new_session_in_the_home_folder_requires_here_flag() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let user = world.home().with_file_name("user");
    std::fs::create_dir_all(&user).unwrap();
    let inside = |args: &[&str]| {
        let mut command = world.command(args);
        command
            .current_dir(&user)
            .env("OPENAI_BASE_URL", &service.address)
            .stdin(std::process::Stdio::null());
        command
    };
    for args in [&["run", "x"][..], &["chat"], &["demo"]] {
        let ran = inside(args).output().unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr).into_owned();
        // A chat without input starts no session.
        let wanted = if args[0] == "chat" { Some(0) } else { Some(2) };
        assert_eq!(ran.status.code(), wanted, "{args:?}: {stderr}");
        assert!(
            wanted == Some(0) || stderr.contains("--here"),
            "{args:?}: {stderr}"
        );
    }
    let run = KillOnDrop {
        child: inside(&["run", "--here", "x"]).spawn().unwrap(),
    };
    service.next().answer("Yes.");
    run.finish().expect_code(0);
    for args in [&["doctor"][..], &["sessions", "list"], &["init"]] {
        let ran = inside(args).output().unwrap();
        assert!(
            !String::from_utf8_lossy(&ran.stderr).contains("--here"),
            "{args:?}"
        );
    }
}

#[test]
fn unknown_tool_on_the_command_line_is_rejected() {
    let world = TestHome::new();
    for (option, value) in [("--allow", "wirte"), ("--deny", "wirte:src")] {
        let args = ["run", "--model", "offline", option, value, "x"];
        world
            .run(&args)
            .expect_code(2)
            .expect_stderr(&["there is no tool \"wirte\"", "did you mean \"write\"?"]);
    }
    world
        .run(&["run", "--model", "offline", "--deny", "mcp.none.x", "x"])
        .expect_code(0)
        .expect_stderr(&["not configured"]);
}

#[test]
fn detached_run_waits_for_permission_from_another_process() {
    for (verb, more, is_made) in [
        ("allow", &[][..], true),
        ("allow", &["--session"], true),
        ("deny", &["--reason", "no"], false),
    ] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        begin(
            &world,
            &service,
            &["run", "--detach", "--session", "s", "Make a note"],
        )
        .finish()
        .expect_code(0);
        writes(&service, "note.md");
        let permission = loop {
            if let Some(permission) = pending(&world).pop() {
                break permission;
            }
        };
        let id = permission["permission_id"].as_str().unwrap();
        assert_eq!(
            (&permission["tool"], &permission["status"]),
            (&json!("write"), &json!("pending"))
        );
        let listed = world.run(&["permissions", "list"]).expect_code(0);
        assert!(
            listed.out.contains(id) && listed.out.contains("made by an agent"),
            "{}",
            listed.out
        );
        world
            .run(&["permissions", "allow", "nobody"])
            .expect_code(3);
        assert!(!world.project().join("note.md").exists());
        world
            .run(&[&["permissions", verb, id], more].concat())
            .expect_code(0);
        service.next().answer("Done.");
        world
            .run(&["permissions", "allow", id])
            .expect_code(4)
            .expect_stderr(&["already_decided"]);
        assert_eq!(world.project().join("note.md").exists(), is_made);
    }
}

#[test]
fn permission_granted_after_process_exit_resumes_the_run() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(
        &world,
        &["run", "--session", "s", "Make a note"],
        (30, 100),
        &address,
    );
    writes(&service, "note.md");
    terminal.wait_for_text("allow?");
    terminal.type_keys("\u{4}");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(6), "{rows:?}");
    assert!(
        rows.iter()
            .any(|row| row.contains("soong permissions allow")),
        "{rows:#?}"
    );
    let id = pending(&world)[0]["permission_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let listed = world.run(&["sessions", "list"]).expect_code(0);
    assert!(
        listed.out.contains("1 unfinished, waiting for input"),
        "{}",
        listed.out
    );
    let allowing = begin(&world, &service, &["permissions", "allow", &id]);
    service.next().answer("Done.");
    allowing.finish().expect_code(0);
    assert!(world.project().join("note.md").exists());
}

#[test]
fn confined_command_cannot_reach_the_control_socket() {
    if soong_sandbox::confinement().missing().is_some() {
        eprintln!("skipped: this kernel cannot confine commands");
        return;
    }
    let world = TestHome::new();
    let service = ManualModelService::new();
    let run = begin(
        &world,
        &service,
        &["run", "--allow", "bash", "--session", "s", "Ask the owner"],
    );
    let mut request = service.next();
    let soong = env!("CARGO_BIN_EXE_soong");
    let home = world.home().display().to_string();
    request.call(
        "bash",
        &json!({ "command": format!("{soong} --home {home} sessions list; {soong} --home {home} tree --json") }),
    );
    request.end();
    let next = service.next();
    assert!(
        !next.last_message().contains("\"actor_id\"") && !next.last_message().contains("1 active"),
        "{}",
        next.last_message()
    );
    next.answer("It does not answer me.");
    run.finish().expect_code(0);
}

/// Returns the files below a folder that contain a text.
fn holding(folder: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            if bytes
                .windows(text.len())
                .any(|window| window == text.as_bytes())
            {
                found.push(path.display().to_string());
            }
        }
    }
    found
}

#[test]
fn environment_secret_appears_nowhere() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut command = world.command(&[
        "run",
        "-vv",
        "--allow",
        "bash",
        "--json",
        "--session",
        "s",
        &format!("My key is {CANARY}"),
    ]);
    command
        .env("OPENAI_BASE_URL", &service.address)
        .env("OPENAI_API_KEY", CANARY)
        .env("HARMLESS_WORD", "lighthouse-123");
    let run = KillOnDrop {
        child: command.spawn().unwrap(),
    };
    let mut request = service.next();
    assert!(
        request.last_message().contains("[redacted:OPENAI_API_KEY]"),
        "{}",
        request.last_message()
    );
    // The model's own text also contains the secret, streamed in pieces.
    for piece in CANARY.as_bytes().chunks(3) {
        request.text(std::str::from_utf8(piece).unwrap());
    }
    request.text(" lighthouse-123");
    request.call(
        "bash",
        &json!({ "command": "env; cat /proc/$PPID/environ; cat /proc/self/environ" }),
    );
    request.call(
        "create_artifact",
        &json!({ "name": "keys", "content": format!("the key: {CANARY}") }),
    );
    request.end();
    let next = service.next();
    assert!(!next.body.to_string().contains(CANARY), "{}", next.body);
    next.answer(&format!("It was {CANARY}."));
    let ran = run.finish().expect_code(0);
    for (stream, text) in [("standard output", &ran.out), ("standard error", &ran.err)] {
        assert!(!text.contains(CANARY), "{stream}: {text}");
    }
    assert!(
        ran.out.contains("lighthouse-123"),
        "what is no secret is shown"
    );
    assert_eq!(holding(world.dir.path(), CANARY), [""; 0]);
    assert!(
        !holding(world.dir.path(), "lighthouse-123").is_empty(),
        "the search finds what is there"
    );
    for command in [
        &["traces", "messages", "s"][..],
        &["traces", "events", "s"],
        &["artifacts", "show", "keys", "--session", "s"],
    ] {
        let shown = world.run(command).expect_code(0);
        assert!(!shown.out.contains(CANARY), "{command:?}: {}", shown.out);
    }
}
