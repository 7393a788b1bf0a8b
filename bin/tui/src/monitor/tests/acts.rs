//! Keys, and the requests that result from them.

use soong_protocol::{Decision, ErrorCode, ErrorInfo, Run, RunSettings, RunStatus};

use super::*;
use crate::monitor::{
    command::Command,
    detail::{ReadContent, ReadRequest},
    pane::RecordKind,
};

fn sample_monitor() -> TestMonitor {
    let mut test = TestMonitor::begin(FINE);
    test.receive(MonitorInput::Tree(sample_tree()));
    test
}

fn commands(requests: Vec<MonitorRequest>) -> Vec<Command> {
    requests
        .into_iter()
        .filter_map(|request| {
            if let MonitorRequest::Execute(command) = request {
                Some(command)
            } else {
                None
            }
        })
        .collect()
}

fn select(test: &mut TestMonitor, key: &str) {
    let actors = std::mem::take(&mut test.monitor.actors);
    test.monitor.list.select(&actors, &key.into());
    test.monitor.actors = actors;
}

#[test]
fn urgent_run_is_selected_first_and_n_selects_the_next() {
    let mut test = sample_monitor();
    let selected = |test: &TestMonitor| test.monitor.list.selected().unwrap().to_string();
    assert_eq!(selected(&test), "run:stuck");
    test.types("n");
    assert_eq!(selected(&test), "run:asks");
    test.types("nn");
    assert_eq!(selected(&test), "run:stuck", "from the last to the first");
}

#[test]
fn run_and_its_children_are_cancelled_after_confirmation() {
    let mut test = sample_monitor();
    select(&mut test, "run:main");
    assert_eq!(commands(test.types("c")), []);
    let screen = test.screen(100, 24);
    assert!(screen.contains("and its 3 sub-agents?"), "{screen}");
    assert_eq!(commands(test.types("n")), [], "no is no");
    assert_eq!(
        commands(test.types("cy")),
        [Command::Cancel(vec![RunId::new("main")])]
    );
    select(&mut test, "session:s");
    assert_eq!(
        commands(test.types("cy")),
        [Command::Cancel(vec![RunId::new("main")])]
    );
    select(&mut test, "journal:0");
    assert_eq!(commands(test.types("cy")), []);
    assert!(test.screen(100, 24).contains("nothing to cancel"));
}

#[test]
fn only_restartable_actors_can_be_killed() {
    let mut test = sample_monitor();
    for (key, may) in [
        ("run:back", true),
        ("session:s", true),
        ("model_gateway:default", true),
        ("journal:0", false),
        ("runtime_supervisor:0", false),
    ] {
        select(&mut test, key);
        let want = if may {
            vec![Command::Kill(key.to_owned())]
        } else {
            Vec::new()
        };
        assert_eq!(commands(test.types("Ky")), want, "{key}");
    }
}

#[test]
fn pending_requests_are_read_on_change_and_answered() {
    let mut test = TestMonitor::begin(FINE);
    let requests = test.receive(MonitorInput::Tree(sample_tree()));
    assert!(requests.contains(&MonitorRequest::ReadAsks), "{requests:?}");
    assert!(
        !test.types("j").contains(&MonitorRequest::ReadAsks),
        "nothing has changed"
    );
    test.receive(MonitorInput::PendingRequests(Ok(vec![
        permission(),
        question(),
    ])));
    let decide = |decision, reason: Option<&str>| Command::Decide {
        id: PermissionId::new("p1"),
        decision,
        reason: reason.map(str::to_owned),
    };
    assert_eq!(
        commands(test.types("ay")),
        [],
        "it has not been on the screen"
    );
    let screen = test.screen(100, 24);
    assert!(
        screen.contains("explore \"") && screen.contains(", session s"),
        "{screen}"
    );
    assert_eq!(
        commands(test.types("y")),
        [decide(Decision::AllowOnce, None)]
    );
    // The next request is shown immediately; keys pressed before it can be read are ignored.
    test.types("y");
    assert!(test.screen(100, 24).contains("Request 1 of 1"));
    test.now = at(1);
    test.key(KeyCode::Enter);
    test.types("main");
    let answered = test.key(KeyCode::Enter);
    assert_eq!(
        commands(answered),
        [Command::Answer {
            id: QuestionId::new("q1"),
            text: "main".to_owned()
        }]
    );
    assert!(
        matches!(test.monitor.dialog, crate::monitor::dialog::Dialog::None),
        "nothing is asked any more"
    );
    test.receive(MonitorInput::PendingRequests(Ok(vec![permission()])));
    test.types("ae");
    test.types("too slow");
    assert_eq!(
        commands(test.key(KeyCode::Enter)),
        [decide(Decision::Deny, Some("too slow"))]
    );
    test.receive(MonitorInput::PendingRequests(Ok(vec![permission()])));
    test.types("a");
    test.screen(100, 24);
    assert_eq!(
        commands(test.types("a")),
        [decide(Decision::AllowForSession, None)]
    );
    for (keys, expected) in [
        ("s", vec![decide(Decision::AllowForSession, None)]),
        ("n", vec![decide(Decision::Deny, None)]),
        ("l", vec![]),
    ] {
        test.receive(MonitorInput::PendingRequests(Ok(vec![permission()])));
        test.types("a");
        test.screen(100, 24);
        assert_eq!(commands(test.types(keys)), expected, "{keys}");
        assert!(
            matches!(test.monitor.dialog, crate::monitor::dialog::Dialog::None),
            "{keys}"
        );
    }
}

#[test]
fn session_on_the_screen_is_read_for_its_name_and_folder() {
    let mut test = TestMonitor::begin(FINE);
    let request = MonitorRequest::ReadSession(SessionId::new("s"));
    let requests = test.receive(MonitorInput::Tree(sample_tree()));
    assert_eq!(
        requests.iter().filter(|other| **other == request).count(),
        1,
        "{requests:?}"
    );
    assert!(!test.types("j").contains(&request), "the read is pending");
    let mut new = session();
    new.slug = None;
    new.last_run_at = None;
    test.receive(MonitorInput::Session(
        SessionId::new("s"),
        Box::new(Ok(new)),
    ));
    test.now = at(3);
    assert!(
        test.types("j").contains(&request),
        "it has no name before its first run"
    );
    test.receive(MonitorInput::Session(
        SessionId::new("s"),
        Box::new(Ok(session())),
    ));
    let screen = test.screen(100, 24);
    assert!(screen.contains("session write-a-report-3f  "), "{screen}");
    test.now = at(99);
    assert!(!test.types("j").contains(&request));

    let mut edit = permission();
    if let UserRequest::Permission(permission) = &mut edit {
        permission.demand.target = "/home/user/project/src/main.rs".to_owned();
    }
    test.receive(MonitorInput::PendingRequests(Ok(vec![edit])));
    test.types("a");
    let screen = test.screen(100, 24);
    assert!(
        screen.contains(", session write-a-report-3f ") && screen.contains(": src/main.rs "),
        "{screen}"
    );
    assert!(screen.contains("in /home/user/project"), "{screen}");
    test.types("l/");
    test.types("a-report");
    let screen = test.screen(100, 24);
    assert!(
        screen.contains("session write-a-report-3f") && screen.contains("orchestrator"),
        "with its runs: {screen}"
    );
    assert!(!screen.contains("journal"), "{screen}");
    select(&mut test, "session:s");
    assert!(test.screen(140, 40).contains("/home/user/project"));
}

#[test]
fn long_request_can_be_allowed_only_after_its_end_was_shown() {
    let mut test = sample_monitor();
    let mut long = permission();
    if let UserRequest::Permission(permission) = &mut long {
        permission.arguments = format!(
            "{{\"command\":\"make docs {} ; rm -r docs\"}}",
            "# harmless ".repeat(200)
        );
    }
    test.receive(MonitorInput::PendingRequests(Ok(vec![long])));
    test.types("a");
    let screen = test.screen(60, 15);
    assert!(
        screen.contains("v read on") && !screen.contains("allow once"),
        "{screen}"
    );
    assert_eq!(commands(test.types("ys")), []);
    let mut screen = String::new();
    for _ in 0..20 {
        test.types("v");
        screen = test.screen(60, 15);
    }
    assert!(
        screen.contains("rm -r docs") && screen.contains("allow once"),
        "{screen}"
    );
    test.key(KeyCode::PageUp);
    test.screen(60, 15);
    let commands = commands(test.types("y"));
    assert!(
        matches!(
            commands[..],
            [Command::Decide {
                decision: Decision::AllowOnce,
                ..
            }]
        ),
        "{commands:?}"
    );
}

#[test]
fn request_dialog_opens_once_requests_are_read() {
    let mut test = sample_monitor();
    test.types("a");
    assert!(
        test.screen(100, 24)
            .contains("reading the pending requests")
    );
    test.receive(MonitorInput::PendingRequests(Ok(Vec::new())));
    test.receive(MonitorInput::PendingRequests(Ok(vec![permission()])));
    assert_eq!(commands(test.types("y")), [], "it is not in sight yet");
    let screen = test.screen(100, 24);
    assert!(
        screen.contains("Request 1 of 1") && !screen.contains("reading the pending requests"),
        "{screen}"
    );
    // A user who does something else in between is not interrupted.
    let mut test = self::sample_monitor();
    test.types("aj");
    test.receive(MonitorInput::PendingRequests(Ok(vec![permission()])));
    assert!(!test.screen(100, 24).contains("Request 1 of 1"));
    let mut calm = TestMonitor::begin(FINE);
    calm.receive(MonitorInput::Tree(tree(vec![run("r", None)])));
    calm.types("a");
    assert!(calm.screen(100, 24).contains("no pending requests"));
}

#[test]
fn key_applies_only_to_the_request_that_was_shown() {
    let mut test = sample_monitor();
    test.receive(MonitorInput::PendingRequests(Ok(vec![
        permission(),
        question(),
    ])));
    test.types("a");
    assert!(test.screen(100, 24).contains("Request 1 of 2"));
    let mut other = permission();
    if let UserRequest::Permission(permission) = &mut other {
        permission.permission_id = PermissionId::new("p2");
    }
    // The visible request was decided elsewhere, and another one replaced it.
    test.receive(MonitorInput::PendingRequests(Ok(vec![other, question()])));
    assert!(test.screen(100, 24).contains("No longer pending"));
    assert_eq!(
        commands(test.types("yscq")),
        [],
        "what was meant for it is for nothing else"
    );
    test.key(KeyCode::Enter);
    test.screen(100, 24);
    let allowed = Command::Decide {
        id: PermissionId::new("p2"),
        decision: Decision::AllowOnce,
        reason: None,
    };
    assert_eq!(commands(test.types("y")), [allowed], "now it is shown");
}

#[test]
fn trace_is_exported_to_the_entered_folder() {
    let mut test = sample_monitor();
    test.types("x");
    let requests = test.key(KeyCode::Enter);
    assert_eq!(
        commands(requests),
        [Command::Export {
            trace: TraceId::new("s@stuck"),
            dir: "soong-stuck".to_owned()
        }]
    );
}

#[test]
fn filter_applies_while_typed_and_esc_clears_it() {
    let mut test = sample_monitor();
    let rows = test.monitor.list.rows().len();
    test.types("/VENDOR");
    assert_eq!(
        test.monitor.list.rows().len(),
        4,
        "the one, and what it hangs below"
    );
    test.key(KeyCode::Enter);
    test.types("j");
    assert_eq!(test.monitor.list.rows().len(), 4, "it is kept");
    test.key(KeyCode::Esc);
    assert_eq!(test.monitor.list.rows().len(), rows);
    for filter in ["/vendor", "/"] {
        test.types(filter);
        test.key(KeyCode::Esc);
        assert_eq!(test.monitor.list.rows().len(), rows);
        assert!(
            matches!(test.monitor.dialog, crate::monitor::dialog::Dialog::None),
            "{filter:?} is left"
        );
    }
    test.types("!");
    assert!(test.monitor.list.rows().len() < rows);
}

#[test]
fn panes_are_read_when_opened() {
    let mut test = sample_monitor();
    let reads = |requests: Vec<MonitorRequest>| -> Vec<ReadRequest> {
        requests
            .into_iter()
            .filter_map(|request| {
                if let MonitorRequest::Read(want) = request {
                    Some(want)
                } else {
                    None
                }
            })
            .collect()
    };
    let wants = reads(test.types("5"));
    assert_eq!(
        wants.iter().map(|want| want.need).collect::<Vec<_>>(),
        [RecordKind::Messages]
    );
    assert!(test.screen(100, 30).contains("reading"));
    let error = ErrorInfo::new(ErrorCode::StorageError, "the disk is gone");
    test.receive(MonitorInput::Read(wants[0].clone(), Box::new(Err(error))));
    assert!(
        test.screen(100, 30)
            .contains("read failed: the disk is gone")
    );
    test.now = at(5);
    let away = test.types("j");
    let new_reads = reads(away.into_iter().chain(test.types("k")).collect());
    let of_stuck = new_reads
        .into_iter()
        .rfind(|want| want.run == RunId::new("stuck"))
        .unwrap();
    test.receive(MonitorInput::Read(
        of_stuck,
        Box::new(Ok(ReadContent::Messages(Vec::new()))),
    ));
    assert!(test.screen(100, 30).contains("no messages yet"));
}

#[test]
fn ended_run_shows_its_stored_record() {
    let mut test = sample_monitor();
    let requests = test.changes(Vec::new(), &["run:back"]);
    assert!(
        requests.contains(&MonitorRequest::ReadRun(RunId::new("back"))),
        "{requests:?}"
    );
    assert!(test.screen(139, 30).contains("ended"));
    let mut record = Run::queued(
        SessionId::new("s"),
        TraceId::new("s@back"),
        "Explore the folder `src/`".to_owned(),
        RunSettings::default(),
        "local".to_owned(),
        at(-300),
    );
    record.run_id = RunId::new("back");
    record.status = RunStatus::Failed;
    record.usage.total_tokens = 9_950;
    record.completed_at = Some(at(0));
    record.error = Some(ErrorInfo::new(ErrorCode::Timeout, "it took too long"));
    test.receive(MonitorInput::Record(
        RunId::new("back"),
        Box::new(Ok(record)),
    ));
    let screen = test.screen(139, 30);
    for part in ["failed", "9.9k", "it took too long"] {
        assert!(screen.contains(part), "{part:?} is missing in:\n{screen}");
    }
    test.types("e");
    assert!(
        !test.screen(139, 30).contains("it took too long"),
        "those that have ended are left out"
    );
}

#[test]
fn ctrl_c_cancels_own_run_first_and_then_exits() {
    let interrupt = || MonitorInput::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let mut own = TestMonitor {
        monitor: Monitor::new("home".to_owned(), Some(RunId::new("main")), FINE),
        now: at(0),
    };
    own.receive(MonitorInput::Link(Connection::Connected {
        pid: 1,
        version: "0.1.0".to_owned(),
    }));
    own.receive(MonitorInput::Tree(sample_tree()));
    assert_eq!(
        own.monitor.list.selected().map(|key| &**key),
        Some("run:main"),
        "it is what one came for"
    );
    assert_eq!(
        commands(own.receive(interrupt())),
        [Command::Cancel(vec![RunId::new("main")])]
    );
    assert!(own.receive(interrupt()).contains(&MonitorRequest::Exit));
    own.changes(Vec::new(), &["run:main"]);
    let screen = own.screen(100, 24);
    assert!(
        screen.contains("The run has ended") && screen.contains("Press q to see its answer"),
        "{screen}"
    );
    let mut other = sample_monitor();
    assert!(
        other.receive(interrupt()).contains(&MonitorRequest::Exit),
        "it is not ours to cancel"
    );
}

#[test]
fn nothing_is_read_while_disconnected_and_all_is_reread_after() {
    let mut test = sample_monitor();
    test.types("4");
    test.receive(MonitorInput::Link(Connection::Lost("gone".to_owned())));
    test.now = at(60);
    let asks = |requests: &[MonitorRequest]| {
        requests.iter().any(|request| {
            matches!(
                request,
                MonitorRequest::Read(_) | MonitorRequest::ReadRun(_) | MonitorRequest::ReadAsks
            )
        })
    };
    assert!(!asks(&test.types("j")) && !asks(&test.types("1")));
    let requests = test.receive(MonitorInput::Link(Connection::Connected {
        pid: 9,
        version: "0.1.0".to_owned(),
    }));
    assert!(asks(&requests), "{requests:?}");
}

#[test]
fn first_run_is_selected_when_it_appears() {
    let mut test = TestMonitor::begin(FINE);
    test.receive(MonitorInput::Tree(tree(vec![])));
    test.changes(vec![run("m", None)], &[]);
    assert_eq!(
        test.monitor.list.selected().map(|key| &**key),
        Some("run:m")
    );
    // From then on, only the user changes the selection.
    test.key(KeyCode::Up);
    let selected = test.monitor.list.selected().cloned();
    test.changes(vec![run("n", None)], &[]);
    assert_eq!(test.monitor.list.selected(), selected.as_ref());
}
