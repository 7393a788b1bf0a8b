//! The chat on a terminal: how it starts, what can be typed while a run is active, and going back.

use rustix::process::Signal;
use serde_json::json;

use super::{ManualModelService, SIZE, TestHome, TestTerminal, has, start_terminal};

fn open_chat(world: &TestHome, service: &ManualModelService) -> TestTerminal {
    let terminal = start_terminal(world, service, &["chat"]);
    terminal.wait_for_text("›");
    terminal
}

#[test]
fn soong_without_a_command_opens_a_chat_with_a_header() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let git = world.project().join(".git");
    std::fs::create_dir(&git).unwrap();
    std::fs::write(git.join("HEAD"), "ref: refs/heads/topic\n").unwrap();
    let variables = [
        ("OPENAI_BASE_URL", service.address.as_str()),
        ("OPENAI_API_KEY", "k"),
    ];
    let terminal = TestTerminal::start(&world, &["--color", "never"], (24, 160), &variables);
    let rows = terminal.wait_for_text("new session; /help lists the commands");
    let header = &rows[0];
    for part in [
        concat!("soong ", env!("CARGO_PKG_VERSION")),
        " · gpt-",
        " · normal · permissions ask · ",
        " · topic",
    ] {
        assert!(header.contains(part), "{part:?} is missing in {header:?}");
    }
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));

    // Without a terminal, it prints the help.
    let ended = world.run(&[]).expect_code(2);
    assert!(
        ended.err.contains("Usage: soong [OPTIONS] [COMMAND]"),
        "{}",
        ended.err
    );
    assert_eq!(ended.out, "");
}

#[test]
fn project_is_asked_for_in_the_home_folder() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let project = world.project().canonicalize().unwrap();
    let home = project.to_str().unwrap();
    let start = |args: &[&str]| {
        let variables = [
            ("OPENAI_BASE_URL", service.address.as_str()),
            ("HOME", home),
        ];
        TestTerminal::start(&world, args, SIZE, &variables)
    };
    let terminal = start(&[]);
    terminal.wait_for_text("is your home folder or above it");
    terminal.type_keys("/\r");
    terminal.wait_for_text("this is also your home folder or above it");
    terminal.type_keys("missing\r");
    terminal.wait_for_text("the folder missing cannot be used");
    terminal.type_keys("~/src\r");
    terminal.wait_for_text("· ~/src");
    terminal.wait_for_text("›");
    terminal.type_keys("Hello\r");
    service.next().answer("Hi.");
    terminal.wait_for_text("completed: ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        sessions[0]["project_dir"],
        project.join("src").to_str().unwrap()
    );

    let terminal = start(&["chat"]);
    terminal.wait_for_text("or `here` to use this one:");
    terminal.type_keys("here\r");
    terminal.wait_for_text("permissions ask · ~");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));

    let terminal = start(&["chat"]);
    terminal.wait_for_text("or `here` to use this one:");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(2));
}

#[test]
fn messages_typed_during_a_run_are_queued_and_sent_in_order() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("One\r");
    let mut request = service.next();
    request.text("First");
    terminal.wait_for_text("type to queue a message");
    terminal.type_keys("Two\rThree\r");
    terminal.wait_for_text("queued: Three");
    terminal.type_keys("\u{1b}[200~Four\rlines\u{1b}[201~");
    terminal.wait_for_text("lines▏");
    // Esc takes the last queued message back.
    terminal.type_keys("\u{1b}");
    let rows = terminal.wait_for_text("› Three");
    assert!(!has(&rows, "queued: Three"), "{rows:#?}");
    // Shift-Tab changes the permission mode of the run.
    terminal.type_keys("\u{1b}[Z");
    terminal.wait_for_text("permissions edits");
    request.end();
    let request = service.next();
    assert_eq!(request.last_message(), "Two");
    terminal.wait_for_text("› Three");
    request.answer("Second");
    // The text that was not sent is the beginning of the next message.
    let rows = terminal.wait_for_text("edits › Three");
    assert!(has(&rows, "edits › Two") && has(&rows, "Four"), "{rows:#?}");
    terminal.type_keys("\r");
    let request = service.next();
    assert_eq!(request.last_message(), "Three\nFour\nlines");
    request.answer("Third");
    terminal.wait_for_text("Third");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn esc_cancels_the_run_and_keeps_what_was_typed() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("One\r");
    let mut request = service.next();
    request.text("First");
    terminal.wait_for_text("First");
    terminal.type_keys("half");
    terminal.wait_for_text("half▏");
    terminal.type_keys("\u{1b}");
    terminal.wait_for_text("cancelled: ");
    terminal.wait_for_text("› half");
    terminal.type_keys(" of it\r");
    let request = service.next();
    assert!(
        request.last_message().ends_with("half of it"),
        "{}",
        request.last_message()
    );
    request.answer("Second");
    terminal.wait_for_text("Second");
    terminal.wait_for("the prompt", |rows| {
        rows.iter().filter(|row| row.starts_with('›')).count() == 3
    });
    // The second Ctrl-C quits.
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("press Ctrl-C again to quit");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn ctrl_c_between_two_prompts_is_not_lost() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("press Ctrl-C again to quit");
    // The terminal makes this signal of a Ctrl-C as long as the next prompt does not read keys.
    terminal.signal(Signal::INT);
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn going_back_offers_the_message_again() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("/undo\r");
    terminal.wait_for_text("no messages yet");
    for (message, answer) in [
        ("Plant beans", "Beans planted."),
        ("Water them", "Watered."),
    ] {
        terminal.type_keys(&format!("{message}\r"));
        service.next().answer(answer);
        terminal.wait_for_text(answer);
        terminal.wait_for_cursor();
    }
    terminal.type_keys("\u{1b}\u{1b}");
    let rows = terminal.wait_for_text("number of the message to edit");
    assert!(
        has(&rows, "    2  Plant beans") && has(&rows, "    4  Water them"),
        "{rows:#?}"
    );
    terminal.type_keys("4\r");
    terminal.wait_for_text("moved the head of the conversation from message 5 to 3");
    terminal.wait_for_text("› Water them");
    terminal.type_keys(" twice\r");
    let request = service.next();
    assert_eq!(request.last_message(), "Water them twice");
    let messages = request.body["messages"].to_string();
    assert!(
        messages.contains("Beans planted.") && !messages.contains("Watered."),
        "{messages}"
    );
    request.answer("Watered twice.");
    terminal.wait_for_text("Watered twice.");
    terminal.wait_for_cursor();
    terminal.type_keys("/undo\r");
    terminal.wait_for_text("› Water them twice");
    // The first message can be taken back too.
    terminal.type_keys("\u{15}/undo\r");
    terminal.wait_for_text("› Plant beans");
    terminal.type_keys("\u{15}/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn messages_come_from_an_editor_and_from_custom_commands() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let editor = world.project().join("append.sh");
    std::fs::write(&editor, "printf ' edited %s\\n\\n' \"$1\" >> \"$2\"\n").unwrap();
    std::fs::create_dir_all(world.home().join("commands")).unwrap();
    std::fs::write(
        world.home().join("commands/review.md"),
        "# Review a file\nReview $ARGUMENTS.\n",
    )
    .unwrap();
    std::fs::write(world.home().join("commands/Bad.md"), "x").unwrap();
    let variables = [
        ("OPENAI_BASE_URL", service.address.as_str()),
        ("EDITOR", "sh append.sh well"),
    ];
    let terminal = TestTerminal::start(&world, &["chat"], SIZE, &variables);
    terminal.wait_for_text("a command name may contain only a-z");
    terminal.wait_for_text("›");
    terminal.type_keys("Draft\u{7}");
    terminal.wait_for_text("› Draft edited well");
    terminal.type_keys("\r");
    let request = service.next();
    assert_eq!(request.last_message(), "Draft edited well");
    request.answer("Fine.");
    terminal.wait_for_text("Fine.");
    terminal.wait_for_cursor();
    terminal.type_keys("/rev\t");
    terminal.wait_for_text("› /review");
    terminal.type_keys("a.rs\r");
    let request = service.next();
    assert_eq!(request.last_message(), "# Review a file\nReview a.rs.");
    request.answer("Reviewed.");
    terminal.wait_for_text("Reviewed.");
    terminal.wait_for_cursor();
    terminal.type_keys("/context\r");
    terminal.wait_for_text("of the 1.0M tokens that gpt-4.1-mini can take");
    terminal.type_keys("/copy\r");
    terminal.wait_for_text("copied the last answer");
    terminal.type_keys("/help\r");
    terminal.wait_for_text("/review [TEXT]    Review a file");
    std::fs::write(world.project().join("my notes.txt"), "x").unwrap();
    for path in ["my notes.txt", "my\\ notes.txt", "'my notes.txt'"] {
        terminal.type_keys(&format!("/attach {path}\r"));
    }
    let attached =
        |row: &&String| row.contains("your next message attaches") && row.ends_with("my notes.txt");
    terminal.wait_for("three attachments", |rows| {
        rows.iter().filter(attached).count() == 3
    });
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn signals_during_a_run_of_a_chat_restore_the_terminal() {
    for signal in [Signal::TERM, Signal::HUP, Signal::QUIT] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let terminal = open_chat(&world, &service);
        terminal.type_keys("Wait\r");
        let mut request = service.next();
        request.text("So far");
        terminal.wait_for_text("So far");
        terminal.signal(signal);
        let (ended, rows) = terminal.wait_for_exit();
        assert_eq!(ended, Some(130), "{signal:?}: {rows:#?}");
    }
}

#[test]
fn undo_reverts_files_that_only_agents_changed() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let file = |name: &str| world.project().join(name);
    for name in ["a.txt", "b.txt"] {
        std::fs::write(file(name), "one\n").unwrap();
    }
    let terminal = start_terminal(&world, &service, &["chat", "--permission-mode", "all"]);
    terminal.wait_for_text("›");
    terminal.type_keys("Change them\r");
    let mut request = service.next();
    for name in ["a.txt", "b.txt"] {
        request.call(
            "edit",
            &json!({ "path": name, "edits": [{ "old": "one", "new": "two" }] }),
        );
    }
    let lines: String = (1..=60).map(|n| format!("line {n}\n")).collect();
    request.call("write", &json!({ "path": "new/c.txt", "content": lines }));
    request.call("bash", &json!({ "command": "true" }));
    request.end();
    service.next().answer("Changed.");
    terminal.wait_for_text("Changed.");
    terminal.wait_for_text("(20 lines more)");
    terminal.wait_for_cursor();
    terminal.type_keys("\u{f}");
    terminal.wait_for_text("60 + line 60");
    terminal.type_keys("\u{f}");
    terminal.wait_for_text("no output is folded");
    std::fs::write(file("b.txt"), "mine\n").unwrap();

    terminal.type_keys("/undo\r");
    let rows =
        terminal.wait_for_text("go back: b(oth), c(onversation), f(iles), or Enter to cancel:");
    for line in [
        "  conversation: takes back 7 messages, changes of goals",
        "  files: restores a.txt",
        "  files: leaves b.txt alone: it was changed since",
        "  files: deletes new/c.txt, which is new",
        "  not undone: effects of 1 command",
    ] {
        assert!(has(&rows, line), "{line:?} is missing in {rows:#?}");
    }
    terminal.type_keys("\r");
    terminal.wait_for_text("nothing was changed");
    assert_eq!(std::fs::read_to_string(file("a.txt")).unwrap(), "two\n");
    terminal.type_keys("/undo\r");
    terminal.wait_for("the prompt again", |rows| {
        rows.iter()
            .filter(|row| row.starts_with("go back:"))
            .count()
            == 2
    });
    terminal.type_keys("b\r");
    terminal.wait_for_text("reverted 2 files");
    terminal.wait_for_text("› Change them");
    let read = |name: &str| std::fs::read_to_string(file(name)).ok();
    let ours = Some("one\n".to_owned());
    let theirs = Some("mine\n".to_owned());
    assert_eq!(
        [read("a.txt"), read("b.txt"), read("new/c.txt")],
        [ours, theirs, None]
    );
    terminal.type_keys("\u{15}Look again\r");
    service.next().answer("Seen again.");
    terminal.wait_for_text("Seen again.");
    terminal.wait_for_cursor();
    terminal.type_keys("/fork\r");
    terminal.wait_for_text("is unchanged");
    terminal.type_keys("/undo\r");
    terminal.wait_for_text("files: keeps all changes from before this session was forked");
    terminal.wait_for_text("› Look again");
    terminal.type_keys("\u{15}/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn undo_of_files_only_tells_the_model() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["chat", "--permission-mode", "edits"]);
    terminal.wait_for_text("›");
    terminal.type_keys("Write it\r");
    let mut request = service.next();
    request.call("write", &json!({ "path": "d.txt", "content": "d\n" }));
    request.end();
    service.next().answer("Written.");
    terminal.wait_for_text("Written.");
    terminal.wait_for_cursor();
    terminal.type_keys("/undo\r");
    terminal.wait_for_text("go back: b(oth)");
    terminal.type_keys("f\r");
    terminal.wait_for_text("reverted 1 file");
    assert!(!world.project().join("d.txt").exists());
    terminal.wait_for_cursor();
    terminal.type_keys("Go on\r");
    let request = service.next();
    assert!(
        request
            .last_message()
            .starts_with("Go on\n\nI have reverted these files"),
        "{}",
        request.last_message()
    );
    assert!(request.body["messages"].to_string().contains("Write it"));
    request.answer("Fine.");
    terminal.wait_for_text("Fine.");
    terminal.wait_for_cursor();
    // The file is as it was before both messages, so nothing is asked.
    for count in 1..=2 {
        terminal.type_keys("\u{15}/undo\r");
        let moved = |row: &&String| row.starts_with("moved the head");
        terminal.wait_for("another message", |rows| {
            rows.iter().filter(moved).count() == count
        });
        terminal.wait_for_cursor();
    }
    terminal.type_keys("\u{15}/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn background_keeps_a_run_that_no_other_process_could_resume() {
    let world = TestHome::new();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(
        world.home().join("config.toml"),
        "[runtime]\nrecovery = \"fail\"\n",
    )
    .unwrap();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("Make a note\r");
    let request = service.next();
    terminal.type_keys("/background\r");
    terminal.wait_for_text("note: 1 run is still active in this home");
    request.answer("Noted.");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(!has(&rows, "continues in the background"), "{rows:#?}");
    let messages = world
        .run(&["traces", "messages", "last"])
        .expect_code(0)
        .out;
    assert!(messages.contains("Noted."), "{messages}");
}

#[test]
fn background_ends_the_chat_and_continues_the_run() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("/background\r");
    terminal.wait_for_text("no run is active");
    terminal.type_keys("Make a note\r");
    let request = service.next();
    terminal.type_keys("later\r");
    terminal.wait_for_text("queued: later");
    terminal.type_keys("/background\r");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    for part in [
        "not sent:",
        "later",
        "chat --session make-a-note",
        "the run continues in the background",
    ] {
        assert!(has(&rows, part), "{part:?} is missing in {rows:#?}");
    }
    drop(request);
    // The background process sends the request of the interrupted turn again.
    let request = service.next();
    assert!(
        request.body["messages"].to_string().contains("Make a note"),
        "{}",
        request.body
    );
    let terminal = start_terminal(&world, &service, &["chat", "--session", "last"]);
    terminal.wait_for_text("owns this home");
    terminal.type_keys("Another note\r");
    terminal.wait_for_text("Another note");
    request.answer("Noted.");
    // A chat whose run is executed by another process leaves it there.
    let request = service.next();
    terminal.wait_for_text("1 active");
    terminal.type_keys("/background\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
    request.answer("Noted again.");
    let messages = loop {
        let shown = world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json();
        if shown[0]["live_runs"] == 0 {
            break world
                .run(&["traces", "messages", "last"])
                .expect_code(0)
                .out;
        }
    };
    assert!(
        messages.contains("Noted.") && messages.contains("Noted again."),
        "{messages}"
    );
}

#[test]
fn compact_summarizes_before_the_next_message_is_answered() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = open_chat(&world, &service);
    terminal.type_keys("/compact\r");
    terminal.wait_for_text("no messages yet");
    let long = "word ".repeat(2_000);
    for message in ["One", "Two"] {
        terminal.type_keys(&format!("{message}\r"));
        service.next().answer(&format!("{long}{message} done."));
        terminal.wait_for_text(&format!("{message} done."));
        terminal.wait_for_cursor();
    }
    terminal.type_keys("/compact\r");
    terminal.wait_for_text("the conversation is summarized before your next message is answered");
    for (message, is_summarized) in [("Three", true), ("Four", false)] {
        terminal.type_keys(&format!("{message}\r"));
        if is_summarized {
            // A reflection on the messages that the summary replaces comes first.
            service.next().answer("{\"experiences\": []}");
            let request = service.next();
            assert!(request.body.get("tools").is_none(), "{}", request.body);
            request.answer(
                "## Request and intent\nOne and two.\n## Artifacts\nnone\n## Current work\nnone\n## Next step\nthree",
            );
            terminal.wait_for_text("messages 2 to 5 replaced by a summary");
        }
        let request = service.next();
        let messages = request.body["messages"].to_string();
        assert!(
            messages.contains("One and two.") && !messages.contains("word word"),
            "{messages}"
        );
        request.answer(&format!("{message} done."));
        terminal.wait_for_text(&format!("{message} done."));
        terminal.wait_for_cursor();
    }
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}
