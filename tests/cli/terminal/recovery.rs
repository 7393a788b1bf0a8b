//! Chats that continue an earlier session: after `kill -9`, and from another project.

use std::io::{BufRead, BufReader};

use rustix::process::Signal;
use serde_json::json;

use super::{ManualModelService, TestHome, TestTerminal, has, start_terminal};
use crate::process::KillOnDrop;

#[test]
fn continued_chat_resumes_the_run_that_was_killed() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let terminal = start_terminal(&world, &service, &["chat", "--mode", "orchestrator"]);
    terminal.wait_for_text("›");
    terminal.type_keys("Plan the garden\r");
    let mut request = service.next();
    request.call("list_files", &json!({ "path": "." }));
    request.end();
    let request = service.next();
    terminal.signal(Signal::KILL);
    drop((terminal, request));

    let terminal = start_terminal(&world, &service, &["--continue"]);
    let rows = terminal.wait_for_text("the last run was interrupted; it resumes now");
    for part in [" · orchestrator · ", "continuing session plan-the-garden-"] {
        assert!(
            rows.iter().any(|row| row.contains(part)),
            "{part:?} is missing in {rows:#?}"
        );
    }
    // The tool call is not repeated; the model call is.
    let request = service.next();
    assert!(
        request.body["messages"]
            .to_string()
            .contains("Plan the garden"),
        "{}",
        request.body
    );
    let is_shown = |row: &String| row.contains("● orchestrator") && row.contains("Plan the garden");
    terminal.wait_for("the resumed run", |rows| rows.iter().any(is_shown));
    request.answer("Planned.");
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
    let is_header =
        |row: &String| row.contains(" · normal · permissions ask · ") && row.contains("/other");
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
    let terminal = start_terminal(
        &world,
        &service,
        &[
            "chat",
            "--session",
            "first",
            "--path",
            other.to_str().unwrap(),
        ],
    );
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

/// Interrupts a run with a known cost, and returns its home.
fn interrupted_home(service: &ManualModelService) -> TestHome {
    let world = TestHome::new();
    std::fs::create_dir_all(world.home()).unwrap();
    let prices = "[prices.m]\nprompt_per_mtok = \"1000\"\ncompletion_per_mtok = \"1000\"\n";
    let model = format!(
        "[model]\nname = \"m\"\nbase_url = \"{}\"\n",
        service.address
    );
    std::fs::write(world.home().join("config.toml"), format!("{model}{prices}")).unwrap();
    let mut command = world.command(&["run", "--session", "s", "Build the lighthouse"]);
    let running = KillOnDrop {
        child: command.spawn().unwrap(),
    };
    let mut first_request = service.next();
    first_request.call("list_files", &json!({}));
    first_request.end();
    let interrupted_request = service.next();
    running.signal(Signal::KILL);
    running.finish();
    drop(interrupted_request);
    world
}

#[test]
fn serve_names_interrupted_runs_and_asks_what_to_do() {
    for (answer, outcome) in [
        ("n", "1 run left interrupted"),
        ("f", "1 run ended as failed"),
        ("", "1 run resumed"),
    ] {
        let service = ManualModelService::new();
        let world = interrupted_home(&service);
        let terminal = start_terminal(&world, &service, &["serve", "--addr", "127.0.0.1:0"]);
        let rows = terminal.wait_for_text("resume them?");
        assert!(has(&rows, "1 run was interrupted"), "{rows:#?}");
        assert!(
            has(&rows, "Build the lighthouse") && has(&rows, "2 turns, cost $0."),
            "{rows:#?}"
        );
        terminal.type_keys(&format!("{answer}\r"));
        terminal.wait_for_text(outcome);
        let resumed = service.poll().is_some();
        assert!(
            !resumed || answer.is_empty(),
            "nothing is asked of the model"
        );
        terminal.type_keys("\u{3}");
        assert_eq!(terminal.wait_for_exit().0, Some(0));
    }
}

#[test]
fn ctrl_c_at_the_question_of_serve_starts_nothing() {
    let service = ManualModelService::new();
    let world = interrupted_home(&service);
    let terminal = start_terminal(&world, &service, &["serve", "--addr", "127.0.0.1:0"]);
    terminal.wait_for_text("resume them?");
    terminal.type_keys("\u{3}");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(130), "{rows:#?}");
    assert!(!has(&rows, "serving"), "{rows:#?}");
}

#[test]
fn recovery_of_serve_is_chosen_by_option_or_setting() {
    for (setting, option, outcome) in [
        (None, Some("none"), "1 run left interrupted"),
        (None, None, "1 run resumed"),
        (Some("none"), None, "1 run left interrupted"),
        (Some("ask"), None, "1 run left interrupted"),
        (Some("fail"), Some("none"), "1 run left interrupted"),
        (Some("none"), Some("fail"), "1 run ended as failed"),
    ] {
        let service = ManualModelService::new();
        let world = interrupted_home(&service);
        let mut args = vec!["serve", "--addr", "127.0.0.1:0"];
        args.extend(option.into_iter().flat_map(|option| ["--recovery", option]));
        let mut command = world.command(&args);
        if let Some(setting) = setting {
            let path = world.home().join("config.toml");
            let config = std::fs::read_to_string(&path).unwrap();
            std::fs::write(
                path,
                format!("{config}[runtime]\nrecovery = \"{setting}\"\n"),
            )
            .unwrap();
        }
        let mut running = KillOnDrop {
            child: command.spawn().unwrap(),
        };
        let first = BufReader::new(running.child.stdout.take().unwrap())
            .lines()
            .next()
            .unwrap()
            .unwrap();
        running.signal(Signal::TERM);
        let ended = running.finish().expect_code(0);
        assert!(first.contains(outcome), "{setting:?} {option:?}: {first}");
        assert!(ended.err.contains("Build the lighthouse"), "{}", ended.err);
        assert_eq!(
            ended.err.contains("needs a terminal"),
            setting == Some("ask"),
            "{}",
            ended.err
        );
    }
}
