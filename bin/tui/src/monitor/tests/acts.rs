//! Keys, and the requests that result from them.

use soong_protocol::{Decision, ErrorCode, ErrorInfo, Run, RunSettings, RunStatus};

use super::*;
use crate::monitor::{
    command::Command,
    detail::{ReadContent, ReadRequest},
    pane::RecordKind,
};

fn evening() -> TestMonitor {
    let mut evening = TestMonitor::begin(FINE);
    evening.hears(MonitorInput::Tree(sample_tree()));
    evening
}

fn deeds(requests: Vec<MonitorRequest>) -> Vec<Command> {
    requests
        .into_iter()
        .filter_map(|request| if let MonitorRequest::Execute(deed) = request { Some(deed) } else { None })
        .collect()
}

fn select(evening: &mut TestMonitor, key: &str) {
    let forest = std::mem::take(&mut evening.monitor.actors);
    evening.monitor.list.select(&forest, &key.into());
    evening.monitor.actors = forest;
}

#[test]
fn urgent_run_is_selected_first_and_n_selects_the_next() {
    let mut evening = evening();
    let selected = |evening: &TestMonitor| evening.monitor.list.selected().unwrap().to_string();
    assert_eq!(selected(&evening), "run:stuck");
    evening.types("n");
    assert_eq!(selected(&evening), "run:asks");
    evening.types("nn");
    assert_eq!(selected(&evening), "run:stuck", "from the last to the first");
}

#[test]
fn run_and_its_children_are_cancelled_after_confirmation() {
    let mut evening = evening();
    select(&mut evening, "run:main");
    assert_eq!(deeds(evening.types("c")), []);
    let screen = evening.screen(100, 24);
    assert!(screen.contains("and its 3 sub-agents?"), "{screen}");
    assert_eq!(deeds(evening.types("n")), [], "no is no");
    assert_eq!(deeds(evening.types("cy")), [Command::Cancel(vec![RunId::new("main")])]);
    select(&mut evening, "session:s");
    assert_eq!(deeds(evening.types("cy")), [Command::Cancel(vec![RunId::new("main")])]);
    select(&mut evening, "journal:0");
    assert_eq!(deeds(evening.types("cy")), []);
    assert!(evening.screen(100, 24).contains("nothing to cancel"));
}

#[test]
fn only_restartable_actors_can_be_killed() {
    let mut evening = evening();
    for (key, may) in [
        ("run:back", true),
        ("session:s", true),
        ("model_gateway:default", true),
        ("journal:0", false),
        ("runtime_supervisor:0", false),
    ] {
        select(&mut evening, key);
        let want = if may { vec![Command::Kill(key.to_owned())] } else { Vec::new() };
        assert_eq!(deeds(evening.types("Ky")), want, "{key}");
    }
}

#[test]
fn pending_requests_are_read_on_change_and_answered() {
    let mut evening = TestMonitor::begin(FINE);
    let requests = evening.hears(MonitorInput::Tree(sample_tree()));
    assert!(requests.contains(&MonitorRequest::ReadAsks), "{requests:?}");
    assert!(!evening.types("j").contains(&MonitorRequest::ReadAsks), "nothing has changed");
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission(), question()])));
    let decide = |decision, reason: Option<&str>| Command::Decide {
        id: PermissionId::new("p1"),
        decision,
        reason: reason.map(str::to_owned),
    };
    assert_eq!(deeds(evening.types("ay")), [], "it has not been on the screen");
    let screen = evening.screen(100, 24);
    assert!(screen.contains("explore \"") && screen.contains(", session s"), "{screen}");
    assert_eq!(deeds(evening.types("y")), [decide(Decision::AllowOnce, None)]);
    // The next request is shown immediately; keys pressed before it can be read are ignored.
    evening.types("y");
    assert!(evening.screen(100, 24).contains("Request 1 of 1"));
    evening.now = at(1);
    evening.key(KeyCode::Enter);
    evening.types("main");
    let answered = evening.key(KeyCode::Enter);
    assert_eq!(deeds(answered), [Command::Answer { id: QuestionId::new("q1"), text: "main".to_owned() }]);
    assert!(matches!(evening.monitor.dialog, crate::monitor::dialog::Dialog::None), "nothing is asked any more");
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission()])));
    evening.types("ae");
    evening.types("too slow");
    assert_eq!(deeds(evening.key(KeyCode::Enter)), [decide(Decision::Deny, Some("too slow"))]);
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission()])));
    evening.types("a");
    evening.screen(100, 24);
    assert_eq!(deeds(evening.types("a")), [decide(Decision::AllowForSession, None)]);
    for (keys, expected) in
        [("s", vec![decide(Decision::AllowForSession, None)]), ("n", vec![decide(Decision::Deny, None)]), ("l", vec![])]
    {
        evening.hears(MonitorInput::PendingRequests(Ok(vec![permission()])));
        evening.types("a");
        evening.screen(100, 24);
        assert_eq!(deeds(evening.types(keys)), expected, "{keys}");
        assert!(matches!(evening.monitor.dialog, crate::monitor::dialog::Dialog::None), "{keys}");
    }
}

#[test]
fn long_request_can_be_allowed_only_after_its_end_was_shown() {
    let mut evening = evening();
    let mut long = permission();
    if let UserRequest::Permission(asked) = &mut long {
        asked.arguments = format!("{{\"command\":\"make docs {} ; rm -r docs\"}}", "# harmless ".repeat(200));
    }
    evening.hears(MonitorInput::PendingRequests(Ok(vec![long])));
    evening.types("a");
    let screen = evening.screen(60, 15);
    assert!(screen.contains("v read on") && !screen.contains("allow once"), "{screen}");
    assert_eq!(deeds(evening.types("ys")), []);
    let mut screen = String::new();
    for _ in 0..20 {
        evening.types("v");
        screen = evening.screen(60, 15);
    }
    assert!(screen.contains("rm -r docs") && screen.contains("allow once"), "{screen}");
    evening.key(KeyCode::PageUp);
    evening.screen(60, 15);
    let deeds = deeds(evening.types("y"));
    assert!(matches!(deeds[..], [Command::Decide { decision: Decision::AllowOnce, .. }]), "{deeds:?}");
}

#[test]
fn request_dialog_opens_once_requests_are_read() {
    let mut evening = evening();
    evening.types("a");
    assert!(evening.screen(100, 24).contains("reading the pending requests"));
    evening.hears(MonitorInput::PendingRequests(Ok(Vec::new())));
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission()])));
    assert_eq!(deeds(evening.types("y")), [], "it is not in sight yet");
    let screen = evening.screen(100, 24);
    assert!(screen.contains("Request 1 of 1") && !screen.contains("reading the pending requests"), "{screen}");
    // A user who does something else in between is not interrupted.
    let mut evening = self::evening();
    evening.types("aj");
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission()])));
    assert!(!evening.screen(100, 24).contains("Request 1 of 1"));
    let mut calm = TestMonitor::begin(FINE);
    calm.hears(MonitorInput::Tree(tree(vec![run("r", None)])));
    calm.types("a");
    assert!(calm.screen(100, 24).contains("no pending requests"));
}

#[test]
fn key_applies_only_to_the_request_that_was_shown() {
    let mut evening = evening();
    evening.hears(MonitorInput::PendingRequests(Ok(vec![permission(), question()])));
    evening.types("a");
    assert!(evening.screen(100, 24).contains("Request 1 of 2"));
    let mut other = permission();
    if let UserRequest::Permission(asked) = &mut other {
        asked.permission_id = PermissionId::new("p2");
    }
    // The visible request was decided elsewhere, and another one replaced it.
    evening.hears(MonitorInput::PendingRequests(Ok(vec![other, question()])));
    assert!(evening.screen(100, 24).contains("No longer pending"));
    assert_eq!(deeds(evening.types("yscq")), [], "what was meant for it is for nothing else");
    evening.key(KeyCode::Enter);
    evening.screen(100, 24);
    let allowed = Command::Decide { id: PermissionId::new("p2"), decision: Decision::AllowOnce, reason: None };
    assert_eq!(deeds(evening.types("y")), [allowed], "now it is shown");
}

#[test]
fn trace_is_exported_to_the_entered_folder() {
    let mut evening = evening();
    evening.types("x");
    let requests = evening.key(KeyCode::Enter);
    assert_eq!(deeds(requests), [Command::Export { trace: TraceId::new("s@stuck"), dir: "soong-stuck".to_owned() }]);
}

#[test]
fn filter_applies_while_typed_and_esc_clears_it() {
    let mut evening = evening();
    let rows = evening.monitor.list.rows().len();
    evening.types("/VENDOR");
    assert_eq!(evening.monitor.list.rows().len(), 4, "the one, and what it hangs below");
    evening.key(KeyCode::Enter);
    evening.types("j");
    assert_eq!(evening.monitor.list.rows().len(), 4, "it is kept");
    evening.key(KeyCode::Esc);
    assert_eq!(evening.monitor.list.rows().len(), rows);
    for filter in ["/vendor", "/"] {
        evening.types(filter);
        evening.key(KeyCode::Esc);
        assert_eq!(evening.monitor.list.rows().len(), rows);
        assert!(matches!(evening.monitor.dialog, crate::monitor::dialog::Dialog::None), "{filter:?} is left");
    }
    evening.types("!");
    assert!(evening.monitor.list.rows().len() < rows);
}

#[test]
fn panes_are_read_when_opened() {
    let mut evening = evening();
    let reads = |requests: Vec<MonitorRequest>| -> Vec<ReadRequest> {
        requests
            .into_iter()
            .filter_map(|request| if let MonitorRequest::Read(want) = request { Some(want) } else { None })
            .collect()
    };
    let wants = reads(evening.types("5"));
    assert_eq!(wants.iter().map(|want| want.need).collect::<Vec<_>>(), [RecordKind::Messages]);
    assert!(evening.screen(100, 30).contains("reading"));
    let error = ErrorInfo::new(ErrorCode::StorageError, "the disk is gone");
    evening.hears(MonitorInput::Read(wants[0].clone(), Box::new(Err(error))));
    assert!(evening.screen(100, 30).contains("read failed: the disk is gone"));
    evening.now = at(5);
    let away = evening.types("j");
    let again = reads(away.into_iter().chain(evening.types("k")).collect());
    let of_stuck = again.into_iter().rfind(|want| want.run == RunId::new("stuck")).unwrap();
    evening.hears(MonitorInput::Read(of_stuck, Box::new(Ok(ReadContent::Messages(Vec::new())))));
    assert!(evening.screen(100, 30).contains("no messages yet"));
}

#[test]
fn ended_run_shows_its_stored_record() {
    let mut evening = evening();
    let requests = evening.changes(Vec::new(), &["run:back"]);
    assert!(requests.contains(&MonitorRequest::ReadRun(RunId::new("back"))), "{requests:?}");
    assert!(evening.screen(139, 30).contains("ended"));
    let mut record = Run::queued(
        SessionId::new("s"),
        TraceId::new("s@back"),
        "Explore the folder `src/`".to_owned(),
        RunSettings::default(),
        "local".to_owned(),
        at(-300),
    );
    (record.run_id, record.status) = (RunId::new("back"), RunStatus::Failed);
    (record.usage.total_tokens, record.completed_at) = (9_950, Some(at(0)));
    record.error = Some(ErrorInfo::new(ErrorCode::Timeout, "it took too long"));
    evening.hears(MonitorInput::Record(RunId::new("back"), Box::new(Ok(record))));
    let screen = evening.screen(139, 30);
    for part in ["failed", "9.9k", "it took too long"] {
        assert!(screen.contains(part), "{part:?} is missing in:\n{screen}");
    }
    evening.types("e");
    assert!(!evening.screen(139, 30).contains("it took too long"), "those that have ended are left out");
}

#[test]
fn ctrl_c_cancels_own_run_first_and_then_exits() {
    let interrupt = || MonitorInput::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    let mut own = TestMonitor { monitor: Monitor::new("home".to_owned(), Some(RunId::new("main")), FINE), now: at(0) };
    own.hears(MonitorInput::Link(Connection::Connected { pid: 1, version: "0.1.0".to_owned() }));
    own.hears(MonitorInput::Tree(sample_tree()));
    assert_eq!(own.monitor.list.selected().map(|key| &**key), Some("run:main"), "it is what one came for");
    assert_eq!(deeds(own.hears(interrupt())), [Command::Cancel(vec![RunId::new("main")])]);
    assert!(own.hears(interrupt()).contains(&MonitorRequest::Exit));
    own.changes(Vec::new(), &["run:main"]);
    let screen = own.screen(100, 24);
    assert!(screen.contains("The run has ended") && screen.contains("Press q to see its answer"), "{screen}");
    let mut other = evening();
    assert!(other.hears(interrupt()).contains(&MonitorRequest::Exit), "it is not ours to cancel");
}

#[test]
fn nothing_is_read_while_disconnected_and_all_is_reread_after() {
    let mut evening = evening();
    evening.types("4");
    evening.hears(MonitorInput::Link(Connection::Lost("gone".to_owned())));
    evening.now = at(60);
    let asks = |requests: &[MonitorRequest]| {
        requests.iter().any(|request| {
            matches!(request, MonitorRequest::Read(_) | MonitorRequest::ReadRun(_) | MonitorRequest::ReadAsks)
        })
    };
    assert!(!asks(&evening.types("j")) && !asks(&evening.types("1")));
    let requests = evening.hears(MonitorInput::Link(Connection::Connected { pid: 9, version: "0.1.0".to_owned() }));
    assert!(asks(&requests), "{requests:?}");
}

#[test]
fn first_run_is_selected_when_it_appears() {
    let mut evening = TestMonitor::begin(FINE);
    evening.hears(MonitorInput::Tree(tree(vec![])));
    evening.changes(vec![run("m", None)], &[]);
    assert_eq!(evening.monitor.list.selected().map(|key| &**key), Some("run:m"));
    // From then on, only the user changes the selection.
    evening.key(KeyCode::Up);
    let selected = evening.monitor.list.selected().cloned();
    evening.changes(vec![run("n", None)], &[]);
    assert_eq!(evening.monitor.list.selected(), selected.as_ref());
}
