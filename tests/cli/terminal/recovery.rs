//! Chats that continue an earlier session: after `kill -9`, and from another project.

use rustix::process::Signal;
use serde_json::json;

use super::{ManualModelService, TestHome, TestTerminal, start_terminal};

#[test]
fn continued_chat_resumes_the_run_that_was_killed() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["chat", "--mode", "orchestrator"]);
    terminal.wait_for_text("›");
    terminal.type_keys("Plan the garden\r");
    let mut asked = service.next();
    asked.call("list_files", &json!({ "path": "." }));
    asked.end();
    let asked = service.next();
    terminal.signal(Signal::KILL);
    drop((terminal, asked));

    let terminal = start_terminal(&world, &service, &["--continue"]);
    let rows = terminal.wait_for_text("the last run was interrupted; it resumes now");
    for part in [" · orchestrator · ", "continuing session plan-the-garden-"] {
        assert!(rows.iter().any(|row| row.contains(part)), "{part:?} is missing in {rows:#?}");
    }
    // The tool call is not repeated; the model call is.
    let asked = service.next();
    assert!(asked.body["messages"].to_string().contains("Plan the garden"), "{}", asked.body);
    let is_shown = |row: &String| row.contains("● orchestrator") && row.contains("Plan the garden");
    terminal.wait_for("the resumed run", |rows| rows.iter().any(is_shown));
    asked.answer("Planned.");
    terminal.wait_for_text("Planned.");
    terminal.wait_for_text("completed: ");
    terminal.type_keys("Thanks\r");
    service.next().answer("You are welcome.");
    terminal.wait_for_text("You are welcome.");
    terminal.wait_for_cursor();
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

/// Checks that a chat continues the session `first` in the project `other`, and ends the chat.
fn continues_first(terminal: TestTerminal) {
    let rows = terminal.wait_for_text("continuing session first; ");
    let is_header = |row: &String| row.contains(" · normal · permissions ask · ") && row.contains("/other");
    assert!(rows.iter().any(is_header), "{rows:#?}");
    terminal.type_keys("Read @only\t");
    terminal.wait_for_text("› Read @only-there.txt");
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("press Ctrl-C again to quit");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn resumed_session_of_another_project_completes_its_files() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let other = world.dir.path().join("other");
    std::fs::create_dir_all(&other).unwrap();
    std::fs::write(other.join("only-there.txt"), "").unwrap();
    let terminal = start_terminal(&world, &service, &["chat", "--session", "first", "--path", other.to_str().unwrap()]);
    terminal.wait_for_text("›");
    terminal.type_keys("Hello\r");
    service.next().answer("Hello to you.");
    terminal.wait_for_text("completed: ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));

    let terminal = start_terminal(&world, &service, &["chat"]);
    terminal.wait_for_text("›");
    terminal.type_keys("/resume first\r");
    continues_first(terminal);

    let terminal = start_terminal(&world, &service, &["chat", "--session", "first"]);
    continues_first(terminal);
}
