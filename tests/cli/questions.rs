//! Questions of agents, seen from terminals: answered in place, left pending, answered later
//! (SUB-9, SUB-11). Output schemas and budgets of runs (BUD-1).

use serde_json::{Value, json};
use soong::testing::{call, respond};

use crate::{
    process::{KillOnDrop, ProcessOutput, TestHome},
    pty::TestTerminal,
    service::{ManualModelService, Request},
};

const QUESTION: &str = "Which colour should the door have?";

fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

fn asks(service: &ManualModelService) {
    let mut request = service.next();
    request.call("ask_human", &json!({ "question": QUESTION, "to": "Ada" }));
    request.end();
}

/// Makes a run start two children: one asks a question, the other one works. Returns the open model
/// request of the latter.
fn divide(service: &ManualModelService) -> Request {
    let mut root = service.next();
    root.call(
        "agent",
        &json!({ "task": ["asks", "works"], "agent_type": "default" }),
    );
    root.end();
    let mut children = service.take(2);
    let index = children
        .iter()
        .position(|child| child.last_message() == "asks")
        .unwrap();
    let mut child = children.remove(index);
    child.call("ask_human", &json!({ "question": QUESTION }));
    child.end();
    children.remove(0)
}

/// Starts a run that asks a question, and waits until its process exits with the question pending.
/// Returns the output and the id of the question.
fn parked(
    world: &TestHome,
    service: &ManualModelService,
    more: &[&str],
) -> (ProcessOutput, String) {
    let run = begin(
        world,
        service,
        &[&["run", "--session", "s", "Paint the door"], more].concat(),
    );
    asks(service);
    let ran = run.finish().expect_code(6);
    let open = world
        .run(&["questions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&open[0]["question"], &open[0]["status"]),
        (&json!(QUESTION), &json!("pending"))
    );
    (ran, open[0]["question_id"].as_str().unwrap().to_owned())
}

/// Waits until the session's run has ended, and returns its trace.
fn outcome(world: &TestHome) -> Value {
    loop {
        let shown = world
            .run(&["traces", "show", "s", "--json"])
            .expect_code(0)
            .json();
        if shown["trace"]["status"] != "running" {
            return shown["trace"].clone();
        }
    }
}

#[test]
fn run_exits_waiting_for_an_answer_and_resumes_with_it() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let (ran, id) = parked(&world, &service, &[]);
    ran.expect_stderr(&[
        "waiting:",
        QUESTION,
        &id,
        &format!("soong questions answer {id}"),
        "soong traces stop s",
    ]);
    assert!(!ran.err.contains("error:"), "{}", ran.err);
    let listed = world.run(&["questions", "list"]).expect_code(0);
    assert!(
        listed.out.contains(&id) && listed.out.contains("Ada"),
        "{}",
        listed.out
    );
    // No process executes the run, and its question stays pending.
    let tree = world.run(&["tree"]).expect_code(0);
    assert!(tree.out.contains("waiting"), "{}", tree.out);
    world
        .run(&["questions", "answer", "nobody", "x"])
        .expect_code(3);
    world.run(&["questions", "answer", &id, " "]).expect_code(2);

    let answer = begin(&world, &service, &["questions", "answer", &id, "red"]);
    let mut next = service.next();
    assert_eq!(next.last_message(), "red");
    next.text("It is red.");
    answer.finish().expect_code(0);
    world
        .run(&["questions", "answer", &id, "blue"])
        .expect_code(4)
        .expect_stderr(&["already_decided", "red"]);
    next.end();
    let ended = outcome(&world);
    assert_eq!(
        (&ended["status"], &ended["result_summary"]),
        (&json!("completed"), &json!("It is red."))
    );
    assert_eq!(
        world
            .run(&["questions", "list", "--json"])
            .expect_code(0)
            .json(),
        json!([])
    );
    let all = world
        .run(&["questions", "list", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&all[0]["status"], &all[0]["answer"]),
        (&json!("answered"), &json!("red"))
    );
}

#[test]
fn json_ends_with_the_question_and_queued_run_exits_waiting() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let (ran, id) = parked(&world, &service, &["--json"]);
    let result = ran.json_lines().pop().unwrap()["result"].clone();
    assert_eq!(
        (&result["status"], &result["questions"][0]["question_id"]),
        (&json!("waiting"), &json!(id))
    );
    begin(
        &world,
        &service,
        &["run", "--session", "s", "And the window"],
    )
    .finish()
    .expect_code(6)
    .expect_stderr(&[&id]);
    world.run(&["traces", "stop", "s"]).expect_code(0);
    let all = world
        .run(&["questions", "list", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(all[0]["status"], "withdrawn");
    world
        .run(&["questions", "answer", &id, "x"])
        .expect_code(4)
        .expect_stderr(&["its run has ended"]);
}

#[test]
fn question_is_answered_from_another_terminal() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(
        &world,
        &service,
        &[
            "run",
            "--session",
            "s",
            "--mode",
            "orchestrator",
            "--json",
            "Divide",
        ],
    );
    let works = divide(&service);
    // The other child is still running, so the process does not exit.
    let id = loop {
        let open = world
            .run(&["questions", "list", "--json"])
            .expect_code(0)
            .json();
        if let Some(id) = open[0]["question_id"].as_str() {
            break id.to_owned();
        }
    };
    world
        .run(&["questions", "answer", &id, "green"])
        .expect_code(0);
    let request = service.next();
    assert_eq!(request.last_message(), "green");
    request.answer("did it in green");
    works.answer("worked");
    service.next().answer("both are done");
    let ran = owner.finish().expect_code(0);
    let kinds: Vec<Value> = ran
        .json_lines()
        .iter()
        .map(|line| line["event"].clone())
        .collect();
    for kind in [
        "question_asked",
        "run_waiting",
        "question_answered",
        "run_resumed",
    ] {
        assert!(kinds.contains(&json!(kind)), "{kind}");
    }
}

#[test]
fn terminal_user_is_asked_in_place() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(&world, &["run", "Paint the door"], (24, 90), &address);
    asks(&service);
    terminal.wait_for_text(QUESTION);
    terminal.wait_for_text("answer:");
    terminal.type_keys("\r");
    terminal.type_keys("yellow\r");
    let next = service.next();
    assert_eq!(next.last_message(), "yellow");
    next.answer("The door is yellow.");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:?}");
    assert!(
        rows.iter().any(|row| row.contains("The door is yellow.")),
        "{rows:?}"
    );
}

#[test]
fn user_can_skip_a_question_or_cancel_the_run() {
    for (key, code) in [("\u{4}", 6), ("\u{3}", 130)] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let address = [("OPENAI_BASE_URL", service.address.as_str())];
        let terminal = TestTerminal::start(
            &world,
            &["run", "--session", "s", "Paint the door"],
            (24, 90),
            &address,
        );
        asks(&service);
        terminal.wait_for_text("answer:");
        terminal.type_keys(key);
        let (ended, rows) = terminal.wait_for_exit();
        assert_eq!(ended, Some(code), "{rows:?}");
        let open = world
            .run(&["questions", "list", "--json"])
            .expect_code(0)
            .json();
        assert_eq!(open.as_array().unwrap().len(), usize::from(code == 6));
    }
}

#[test]
fn chat_asks_in_place() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(&world, &["chat"], (24, 90), &address);
    terminal.wait_for_text("/help");
    terminal.type_keys("Paint the door\r");
    asks(&service);
    terminal.wait_for_text("answer:");
    terminal.type_keys("yellow\r");
    let next = service.next();
    assert_eq!(next.last_message(), "yellow");
    next.answer("The door is yellow.");
    terminal.wait_for_text("The door is yellow.");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn output_schema_is_enforced_with_one_retry() {
    let world = TestHome::new();
    let schema =
        json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]});
    std::fs::write(world.project().join("schema.json"), schema.to_string()).unwrap();
    std::fs::write(world.project().join("bad.json"), "{").unwrap();
    for (first, second, code, out) in [
        ("```json\n{\"n\": 3}\n```", None, 0, "{\"n\": 3}"),
        ("three", Some("{\"n\": 4}"), 0, "{\"n\": 4}"),
        ("three", Some("four"), 1, ""),
    ] {
        let service = ManualModelService::new();
        let run = begin(
            &world,
            &service,
            &["run", "--output-schema", "schema.json", "Count"],
        );
        service.next().answer(first);
        if let Some(second) = second {
            service.next().answer(second);
        }
        let ran = run.finish().expect_code(code);
        assert_eq!(ran.out.trim(), out);
        if code == 1 {
            ran.expect_stderr(&["result_schema_validation_failed", "no JSON", "four"]);
        }
    }
    let service = ManualModelService::new();
    begin(
        &world,
        &service,
        &["run", "--output-schema", "bad.json", "x"],
    )
    .finish()
    .expect_code(2)
    .expect_stderr(&["is not valid JSON"]);
    begin(
        &world,
        &service,
        &["run", "--output-schema", "none.json", "x"],
    )
    .finish()
    .expect_code(3);
    std::fs::write(world.project().join("odd.json"), "{\"type\": 7}").unwrap();
    begin(
        &world,
        &service,
        &["run", "--output-schema", "odd.json", "x"],
    )
    .finish()
    .expect_code(2)
    .expect_stderr(&["not a valid JSON schema"]);
}

#[test]
fn budget_option_ends_the_run_with_a_message() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    begin(&world, &service, &["run", "--budget-tokens", "0", "x"])
        .finish()
        .expect_code(1)
        .expect_stderr(&[
            "the budget is too small for the next step",
            "budget_exceeded",
            "--budget-tokens",
        ]);
    begin(
        &world,
        &service,
        &["run", "--model", "m", "--budget-usd", "1.50", "x"],
    )
    .finish()
    .expect_code(2)
    .expect_stderr(&["prices."]);
    begin(&world, &service, &["run", "--budget-usd", "much", "x"])
        .finish()
        .expect_code(2)
        .expect_stderr(&["is not a valid amount of USD"]);
}

#[test]
fn prompt_closes_when_answered_elsewhere_and_next_one_works() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(
        &world,
        &["run", "--session", "s", "Paint the door"],
        (24, 90),
        &address,
    );
    asks(&service);
    terminal.wait_for_text("answer:");
    terminal.type_keys("gre");
    terminal.wait_for_text("answer: gre");
    let open = world
        .run(&["questions", "list", "--json"])
        .expect_code(0)
        .json();
    world
        .run(&[
            "questions",
            "answer",
            open[0]["question_id"].as_str().unwrap(),
            "red",
        ])
        .expect_code(0);
    let mut next = service.next();
    assert_eq!(next.last_message(), "red");
    terminal.wait_for_text("decided elsewhere");
    next.call("ask_human", &json!({ "question": "And the window?" }));
    next.end();
    // A line entered before the prompt appears would count as the answer to the first question.
    terminal.wait_for("the prompt of the second question", |rows| {
        let rows = rows
            .iter()
            .skip_while(|row| !row.contains("And the window?"));
        rows.skip(1).any(|row| row.starts_with("answer:"))
    });
    terminal.type_keys("blue\r");
    let last = service.next();
    assert_eq!(last.last_message(), "blue");
    last.answer("Red and blue.");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:?}");
    for row_start in [
        "  | Which colour should the door have?",
        "  | And the window?",
        "Red and blue.",
    ] {
        assert!(
            rows.iter().any(|row| row.starts_with(row_start)),
            "{row_start}: {rows:#?}"
        );
    }
}

#[test]
fn process_waits_for_active_runs_when_question_is_left_open() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let address = [("OPENAI_BASE_URL", service.address.as_str())];
    let terminal = TestTerminal::start(
        &world,
        &["run", "--session", "s", "--mode", "orchestrator", "Divide"],
        (24, 90),
        &address,
    );
    let works = divide(&service);
    terminal.wait_for_text("answer:");
    terminal.wait_for_text("asks");
    terminal.type_keys("\u{4}");
    terminal.wait_for_text("the request stays open");
    works.answer("worked");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(6), "{rows:?}");
    let listed = world.run(&["sessions", "list"]).expect_code(0);
    assert!(
        listed.out.contains("2 unfinished, waiting for input"),
        "{}",
        listed.out
    );
    let doctor = world.run(&["doctor"]);
    assert!(
        doctor.out.contains("2 runs wait for input"),
        "{}",
        doctor.out
    );
    let shown = world.run(&["sessions", "show", "s"]).expect_code(0);
    assert!(shown.out.contains(QUESTION), "{}", shown.out);
}

#[test]
fn answer_needs_no_model() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let (_, id) = parked(&world, &service, &[]);
    let ran = world
        .run(&["questions", "answer", &id, "blue"])
        .expect_code(0);
    assert!(
        ran.out
            .contains("resumes with the next `soong run --session`"),
        "{}",
        ran.out
    );
    let all = world
        .run(&["questions", "list", "--all", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&all[0]["status"], &all[0]["answer"]),
        (&json!("answered"), &json!("blue"))
    );
    world
        .run(&["questions", "answer", &id, "red"])
        .expect_code(4)
        .expect_stderr(&["already_decided"]);
}

/// Starts a run in this process, which owns the home, and waits until its call of `write` is
/// pending approval.
async fn owner_that_asks(
    world: &TestHome,
) -> (soong::Runtime, soong::RunHandle, soong::EventStream) {
    let runtime = soong::Runtime::builder()
        .home(world.home())
        .project_dir(world.dir.path())
        .model(
            "default",
            respond(|_| call("write", json!({ "path": "a.txt", "content": "x" }))),
        )
        .permissions_by_users()
        .build()
        .await
        .unwrap();
    let run = runtime
        .start(soong::RunRequest::new("write it").session("s"))
        .await
        .unwrap();
    let mut events = run.events().unwrap();
    while let Some(item) = events.next().await {
        if matches!(item.unwrap(), soong::StreamItem::Event(event) if event.event.kind() == "run_waiting")
        {
            break;
        }
    }
    (runtime, run, events)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn owner_without_a_socket_is_distinguished_from_no_owner() {
    let world = TestHome::new();
    let (runtime, run, _) = owner_that_asks(&world).await;
    let pid = std::process::id();
    tokio::task::block_in_place(|| {
        let tree = world.run(&["tree"]).expect_code(0);
        tree.expect_stderr(&[&format!(
            "process {pid} owns this home but has no control socket"
        )]);
        assert!(!tree.err.contains("cut off"), "{}", tree.err);
        let sessions = world.run(&["sessions", "list"]).expect_code(0).out;
        assert!(
            sessions.contains("1 active, waiting for input"),
            "{sessions}"
        );
        let doctor = world.run(&["doctor"]);
        assert!(
            doctor.out.contains("has no control socket"),
            "{}",
            doctor.out
        );
        let permissions = world
            .run(&["permissions", "list", "--json"])
            .expect_code(0)
            .json();
        let id = permissions[0]["permission_id"].as_str().unwrap();
        let refused = world.run(&["permissions", "allow", id]).expect_code(4);
        refused.expect_stderr(&["home_locked", "Answer or decide in that program"]);
        let permissions = world
            .run(&["permissions", "list", "--json"])
            .expect_code(0)
            .json();
        assert_eq!(permissions[0]["status"], "pending");
    });
    run.cancel().await.unwrap();
    runtime.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_work_with_a_program_that_serves_the_socket() {
    use soong_server::ServeControl as _;
    let world = TestHome::new();
    let (runtime, run, mut events) = owner_that_asks(&world).await;
    let replaced = runtime.serve_control().unwrap();
    let control = runtime.serve_control().unwrap();
    drop(replaced);
    tokio::task::block_in_place(|| {
        let tree = world.run(&["tree", "--json"]).expect_code(0).json();
        assert_eq!(
            (&tree["source"], &tree["pid"]),
            (&json!("owner"), &json!(std::process::id()))
        );
        let permissions = world
            .run(&["permissions", "list", "--json"])
            .expect_code(0)
            .json();
        let id = permissions[0]["permission_id"].as_str().unwrap();
        world.run(&["permissions", "allow", id]).expect_code(0);
    });
    while let Some(item) = events.next().await {
        if matches!(item.unwrap(), soong::StreamItem::Event(event) if event.event.kind() == "tool_completed")
        {
            break;
        }
    }
    control.close().await;
    assert!(!world.home().join("control.sock").exists());
    run.cancel().await.unwrap();
    runtime.close().await;
    assert!(runtime.serve_control().is_err());
    assert!(!world.home().join("control.sock").exists());
}
