//! The live display of a run and the chat on a terminal, and the state of the screen afterwards.

mod chat;
mod monitor;
mod recovery;

use crate::process::TestHome;
use crate::pty::TestTerminal;
use crate::service::ManualModelService;
use rustix::process::Signal;
use serde_json::json;

const SIZE: (u16, u16) = (30, 100);

fn start_terminal(world: &TestHome, service: &ManualModelService, args: &[&str]) -> TestTerminal {
    TestTerminal::start(world, args, SIZE, &[("OPENAI_BASE_URL", &service.address)])
}

fn has(rows: &[String], text: &str) -> bool {
    rows.iter().any(|row| row.contains(text))
}

#[test]
fn run_shows_children_streamed_text_and_formatted_answer() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(
        &world,
        &service,
        &["run", "--session", "s", "Divide the work"],
    );
    let mut request = service.next();
    request.text("I ask **two** of them.\n\n");
    request.call("agent", &json!({ "task": ["left part", "right part"] }));
    request.end();
    let children = service.take(2);
    let rows = terminal.wait_for("two running children", |rows| {
        rows.iter()
            .filter(|row| row.contains("explore") && row.contains("model call"))
            .count()
            == 2
    });
    assert!(
        has(&rows, "├─ ● explore left part") && has(&rows, "└─ ● explore right part"),
        "{rows:#?}"
    );
    assert!(has(&rows, "Ctrl-C cancels"), "{rows:#?}");
    assert!(terminal.hides_cursor());
    for child in children {
        child.answer("Found.");
    }
    let mut request = service.next();
    request.text("# All of it\n\nThe **answer** is");
    terminal.wait_for_text("The answer is");
    // Typing does not disturb the display.
    terminal.type_keys("what now");
    request.text(" here.");
    let rows = terminal.wait_for_text("The answer is here.");
    assert!(!has(&rows, "what now"), "{rows:#?}");
    request.end();
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    let answers = rows
        .iter()
        .filter(|row| row.contains("The answer is here."))
        .count();
    assert_eq!(answers, 1, "the answer stands there once: {rows:#?}");
    for part in [
        "✓ default Divide the work",
        "├─ ✓ explore left part",
        "All of it",
        "completed: ",
        "sessions show s",
    ] {
        assert!(has(&rows, part), "{part:?} is missing in {rows:#?}");
    }
    assert!(
        !has(&rows, "**") && !has(&rows, "Ctrl-C cancels"),
        "{rows:#?}"
    );
}

#[test]
fn transcript_shows_what_the_tools_did_and_stays_after_ctrl_c() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::write(
        world.project().join("src/app.py"),
        "def f():\n    return 1\n",
    )
    .unwrap();
    let terminal = start_terminal(
        &world,
        &service,
        &["run", "--permission-mode", "all", "Fix it"],
    );
    let mut request = service.next();
    request.text("I **look** first.");
    request.call("read", &json!({ "path": "src/app.py" }));
    request.call("read", &json!({ "path": "./src/app.py" }));
    request.end();
    let mut request = service.next();
    let edit = json!({ "path": "src/app.py", "edits": [{ "old": "return 1", "new": "return 2" }] });
    request.call("edit", &edit);
    request.call(
        "bash",
        &json!({ "command": "for i in 1 2 3 4 5; do echo line $i; done" }),
    );
    request.call("bash", &json!({ "command": "exit 3" }));
    request.end();
    let _open = service.next();
    terminal.wait_for_text("✗ bash exit 3  exit 3, ");
    terminal.type_keys("\u{3}");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(130), "{rows:#?}");
    let from = rows
        .iter()
        .position(|row| row == "I look first.")
        .unwrap_or_else(|| panic!("{rows:#?}"));
    let shown: Vec<&str> = rows[from..]
        .iter()
        .map(|row| row.split(", 0.").next().unwrap())
        .take(12)
        .collect();
    let expected = [
        "I look first.",
        "",
        "● read 2 files",
        "● edit src/app.py +1 -1",
        "  |     1     1   def f():",
        "  |     2       -     return 1",
        "  |           2 +     return 2",
        "● bash for i in 1 2 3 4 5; do echo line $i; done  exit 0",
        "  (2 lines before)",
        "  line 3",
        "  line 4",
        "  line 5",
    ];
    assert_eq!(shown, expected);
}

#[test]
fn output_of_an_allowed_command_is_shown() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["run", "Count"]);
    let mut request = service.next();
    request.call(
        "bash",
        &json!({ "command": "for i in 1 2 3; do echo line $i; done" }),
    );
    request.end();
    terminal.wait_for_text("allow?");
    terminal.type_keys("y");
    service.next().answer("Counted.");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(has(&rows, "line 1") && has(&rows, "line 3"), "{rows:#?}");
}

#[test]
fn path_of_an_image_in_chat_is_attached() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(
        world.home().join("config.toml"),
        "[model]\ninput = [\"text\", \"image\"]\n",
    )
    .unwrap();
    let image = image::DynamicImage::new_rgb8(2, 2);
    image.save(world.project().join("my plan.png")).unwrap();
    let terminal = start_terminal(&world, &service, &["chat"]);
    terminal.wait_for_text("›");
    terminal.type_keys("What is ./my\\ plan.png ?\r");
    let request = service.next();
    let content = &request.body["messages"].as_array().unwrap().last().unwrap()["content"];
    assert_eq!(content[0]["text"], "What is ./my\\ plan.png ?");
    assert!(
        content[1]["image_url"]["url"]
            .as_str()
            .unwrap()
            .starts_with("data:image/png;base64,"),
        "{content}"
    );
    request.answer("A plan.");
    terminal.wait_for_text("A plan.");
    let rows = terminal.wait_for_text("completed: ");
    assert!(has(&rows, "attached my plan.png"), "{rows:#?}");

    // A document that the model does not take may be meant for the tools.
    std::fs::write(world.project().join("a.pdf"), "%PDF-").unwrap();
    terminal.type_keys("Convert ./a.pdf\r");
    let request = service.next();
    assert_eq!(request.last_message(), "Convert ./a.pdf");
    request.answer("Converted.");
    terminal.wait_for_text("does not take input of type pdf");
    terminal.wait_for_text("Converted.");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn chat_edits_lines_and_includes_files_and_commands() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::write(world.project().join("notes.txt"), "Water the beans.\n").unwrap();
    let terminal = start_terminal(&world, &service, &["chat"]);
    terminal.wait_for_text("›");
    terminal.type_keys("/he\t\r");
    terminal.wait_for_text("Alt-Enter, Ctrl-J  start a new line");
    terminal.type_keys("Read this");
    terminal.wait_for_text("› Read this");
    // Shift-Tab keeps what was typed.
    terminal.type_keys("\u{1b}[Z");
    terminal.wait_for_text("edits › Read this");
    terminal.type_keys("\u{1b}[Z");
    terminal.wait_for_text("plan › Read this");
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("press Ctrl-C again to quit, or use /quit or Ctrl-D");
    terminal.type_keys("!echo out; echo err >&2; exit 3\r");
    terminal.wait_for_text("(exit status: 3)");
    terminal.type_keys("Read @not\t\nand\u{1b}\rsay\r");
    let request = service.next();
    let message = request.last_message();
    assert!(
        message.starts_with("Read @notes.txt \nand\nsay\n\nI ran `echo out; echo err >&2; exit 3`"),
        "{message}"
    );
    for part in [
        "which exited with 3",
        "out\n",
        "err\n",
        "`notes.txt`:\n```\nWater the beans.\n```",
    ] {
        assert!(message.contains(part), "{part:?} is missing in {message}");
    }
    request.answer("I read it.");
    terminal.wait_for_text("I read it.");
    terminal.wait_for_text("completed: ");
    terminal.type_keys("/status\r");
    terminal.wait_for_text("agent     default in mode normal");
    terminal.type_keys("/resume nothing\r");
    terminal.wait_for_text("session_not_found");
    terminal.type_keys("/effort huge\r/staus\r");
    terminal.wait_for_text("use /effort none");
    terminal.wait_for_text("Did you mean /status?");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn chat_has_three_turns_with_a_cancelled_one() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["chat"]);
    terminal.wait_for_text("/help lists the commands");
    terminal.wait_for_text("›");
    terminal.type_keys("First question\r");
    let mut request = service.next();
    assert_eq!(request.last_message(), "First question");
    request.text("One paragraph.\n\nAnother");
    let rows = terminal.wait_for_text("Another");
    assert!(has(&rows, "One paragraph."), "{rows:#?}");
    request.text(" one, with `code`.");
    request.end();
    terminal.wait_for_text("completed: ");

    terminal.type_keys("/mode orchestrator\r");
    terminal.wait_for_text("mode set to orchestrator");
    terminal.type_keys("Second question\r");
    let mut request = service.next();
    request.text("This takes too");
    terminal.wait_for_text("This takes too");
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("cancelled: ");

    // Input typed before the prompt appears is kept.
    terminal.type_keys("/mode normal\rThird question\r");
    let request = service.next();
    let texts: Vec<&str> = request.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|m| m["content"].as_str())
        .collect();
    assert!(
        texts.contains(&"First question")
            && texts
                .iter()
                .any(|text| text.starts_with("Second question\n\nThird question")),
        "one session: {texts:?}"
    );
    assert!(
        !texts.iter().any(|text| text.contains("This takes too")),
        "what was cut off is not sent: {texts:?}"
    );
    request.answer("Three.");
    terminal.wait_for_text("Three.");
    terminal.type_keys("\u{4}");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0));
    for text in [
        "One paragraph.",
        "Another one, with code.",
        "This takes too",
        "Three.",
    ] {
        let count = rows.iter().filter(|row| row.contains(text)).count();
        assert_eq!(count, 1, "{text:?} stands there once: {rows:#?}");
    }
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
}

#[test]
fn resized_window_is_redrawn_cleanly() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["run", "Divide the work"]);
    let mut request = service.next();
    let tasks: Vec<String> = (1..=12)
        .map(|n| format!("part {n} of the work that is to be done"))
        .collect();
    request.call("agent", &json!({ "task": tasks }));
    request.end();
    let children = service.take(12);
    terminal.wait_for_text("└─ ● explore part 12");
    for (rows, columns) in [(20, 60), (8, 40), (30, 120), (12, 80)] {
        terminal.resize(rows, columns);
        // Nothing of the old display remains, above or below.
        terminal.wait_for(
            &format!("one clean picture of {rows} by {columns}"),
            |shown| {
                let roots = shown
                    .iter()
                    .filter(|row| row.starts_with("● default"))
                    .count();
                let root = shown.iter().position(|row| row.starts_with("● default"));
                let foot = shown.iter().rposition(|row| row.contains("active"));
                let fits = shown
                    .iter()
                    .all(|row| row.chars().count() < usize::from(columns));
                let is_framed = |(root, foot): (usize, usize)| {
                    root < foot
                        && shown[..root].iter().all(String::is_empty)
                        && shown[foot + 1..].iter().all(String::is_empty)
                };
                roots == 1 && fits && root.zip(foot).is_some_and(is_framed)
            },
        );
    }
    drop(children);
    terminal.type_keys("\u{3}");
    let (code, _) = terminal.wait_for_exit();
    assert_eq!(code, Some(130));
}

#[test]
fn tiny_window_does_not_make_the_run_fail() {
    for size in [(1, 1), (2, 5), (3, 20), (1, 100), (30, 1)] {
        let world = TestHome::new();
        let terminal = TestTerminal::start(
            &world,
            &["run", "--model", "offline", "What is this?"],
            size,
            &[],
        );
        let (code, rows) = terminal.wait_for_exit();
        assert_eq!(code, Some(0), "{size:?}: {rows:#?}");
    }
}

#[test]
fn ctrl_z_restores_the_terminal_and_the_display_resumes() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["run", "Wait a while"]);
    let mut request = service.next();
    request.text("So far");
    terminal.wait_for_text("So far");
    assert!(terminal.hides_cursor());
    terminal.type_keys("\u{1a}");
    terminal.wait_until_stopped();
    terminal.wait_until_restored();
    terminal.signal(Signal::CONT);
    request.text(", so good.");
    terminal.wait_for_text("So far, so good.");
    request.end();
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(has(&rows, "completed: "), "{rows:#?}");
}

#[test]
fn dumb_terminal_gets_plain_lines() {
    let world = TestHome::new();
    for more in [
        &[("TERM", "dumb")][..],
        &[("TERM", "dumb"), ("NO_COLOR", "1"), ("LANG", "C")],
    ] {
        let terminal = TestTerminal::start(
            &world,
            &["run", "--model", "offline", "What is this?"],
            SIZE,
            more,
        );
        let written = {
            let (code, rows) = terminal.wait_for_exit();
            assert_eq!(code, Some(0), "{rows:#?}");
            rows.join("\n")
        };
        assert!(
            written.contains("run: started as default") && written.contains("completed: "),
            "{written}"
        );
    }
}

#[test]
fn only_ascii_marks_are_used_without_utf_8() {
    let world = TestHome::new();
    let terminal = TestTerminal::start(
        &world,
        &["demo", "--children", "2"],
        SIZE,
        &[("LANG", "C"), ("NO_COLOR", "1")],
    );
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        has(&rows, "|- + explore") && has(&rows, "`- + evaluator"),
        "{rows:#?}"
    );
    assert!(rows.iter().all(|row| row.is_ascii()), "{rows:#?}");
}

#[test]
fn piped_chat_is_plain_and_ends_at_the_first_failure() {
    let world = TestHome::new();
    let ran = world
        .run_with_input(
            &["chat", "--model", "offline"],
            b"What is this?\n\n/mode normal\nAnd now?\n",
        )
        .expect_code(0);
    assert_eq!(
        ran.err
            .lines()
            .filter(|line| line.starts_with("completed: "))
            .count(),
        2,
        "{}",
        ran.err
    );
    assert!(
        !ran.out.contains("completed: "),
        "a pipe gets the answers alone: {}",
        ran.out
    );
    assert!(!ran.out.contains('\u{1b}') && !ran.err.contains('\u{1b}'));
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    world
        .run_with_input(
            &["chat", "--model", "offline", "--agent-type", "nobody"],
            b"x\ny\n",
        )
        .expect_code(2)
        .expect_stderr(&["nobody"]);
    world
        .run_with_input(&["chat", "--continue", "--model", "offline"], b"Go on\n")
        .expect_code(0);
    let piped = world
        .run_with_input(
            &["chat", "--model", "offline"],
            b"!touch made @notes.txt\n!\n",
        )
        .expect_code(0);
    assert!(
        !world.project().join("made").exists(),
        "a pipe runs no command: {}",
        piped.out
    );
    world
        .run_with_input(&["chat"], b"x\n")
        .expect_code(2)
        .expect_stderr(&["OPENAI_API_KEY"]);
}

#[test]
fn chat_suspended_at_its_prompt_keeps_the_input() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["chat"]);
    terminal.wait_for_text("›");
    terminal.type_keys("Half a ");
    terminal.wait_for_text("Half a");
    terminal.type_keys("\u{1a}");
    terminal.wait_until_stopped();
    terminal.wait_until_restored();
    terminal.signal(Signal::CONT);
    terminal.wait_until_edited();
    terminal.type_keys("question\r");
    let request = service.next();
    assert_eq!(request.last_message(), "Half a question");
    request.answer("Whole.");
    terminal.wait_for_text("Whole.");
    terminal.type_keys("/quit\r");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        has(&rows, "continue this session with `soong chat --session "),
        "{rows:#?}"
    );
}

#[test]
fn termination_signals_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let terminal = start_terminal(&world, &service, &["chat"]);
        terminal.wait_for_text("›");
        terminal.signal(signal);
        let (ended, rows) = terminal.wait_for_exit();
        assert_eq!(ended, Some(130), "{signal:?}: {rows:#?}");
        // The same during a run.
        let terminal = start_terminal(&world, &service, &["run", "Wait"]);
        let mut request = service.next();
        request.text("So far");
        terminal.wait_for_text("So far");
        terminal.signal(signal);
        let (ended, rows) = terminal.wait_for_exit();
        assert_eq!(ended, Some(130), "{signal:?}: {rows:#?}");
    }
}

#[test]
fn dumb_terminal_echoes_input_and_ctrl_d_exits() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let variables = [
        ("OPENAI_BASE_URL", service.address.as_str()),
        ("TERM", "dumb"),
    ];
    let terminal = TestTerminal::start(&world, &["chat", "--session", "s"], SIZE, &variables);
    terminal.wait_for_text("/help lists");
    terminal.type_keys("hello there");
    terminal.wait_for_text("hello there");
    terminal.type_keys("\n");
    let request = service.next();
    assert_eq!(request.last_message(), "hello there");
    request.answer("Good day.");
    terminal.wait_for_text("Good day.");
    terminal.type_keys("\u{4}");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(service.poll().is_none(), "no further message");
}
