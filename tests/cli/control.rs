//! Two terminals: while one process owns the home, others can observe it, follow and stop its runs,
//! and start their own.

use std::{
    io::{BufRead, BufReader, ErrorKind, Lines, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::net::UnixStream,
    process::Stdio,
    sync::mpsc,
    time::{Duration, Instant},
};

use crate::process::{KillOnDrop, TIMEOUT, TestHome};
use crate::served::{OFFLINE, TestServer};
use crate::service::ManualModelService;
use rustix::process::Signal;
use serde_json::{Value, json};

/// Starts a command whose model is the service.
fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

/// Returns all actors of a kind in a tree.
fn actors<'a>(tree: &'a Value, kind: &str) -> Vec<&'a Value> {
    let mut found = Vec::new();
    let mut open = vec![tree];
    while let Some(actor) = open.pop() {
        if actor["kind"] == kind {
            found.push(actor);
        }
        open.extend(actor["children"].as_array().into_iter().flatten());
    }
    found
}

fn lines(running: &mut KillOnDrop) -> Lines<BufReader<std::process::ChildStdout>> {
    BufReader::new(running.child.stdout.take().unwrap()).lines()
}

fn has_socket(world: &TestHome) -> bool {
    world.home().join("control.sock").exists()
}

#[test]
fn second_terminal_follows_without_gaps_and_stops_child_and_run() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(
        &world,
        &service,
        &["run", "--session", "s", "--json", "Divide the work"],
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);

    let tree = world.run(&["tree", "--json"]).expect_code(0).json();
    assert_eq!(
        (&tree["source"], &tree["pid"]),
        (&json!("owner"), &json!(owner.child.id()))
    );
    let runs = actors(&tree, "run");
    let mut tasks: Vec<&str> = runs
        .iter()
        .filter_map(|run| run["run"]["task"].as_str())
        .collect();
    tasks.sort_unstable();
    assert_eq!(tasks, ["Divide the work", "left", "right"]);
    assert!(runs.iter().all(|run| run["state"] == "running"), "{tree}");
    // A piped tree has the width of a large window.
    let shown = world.run(&["tree"]).expect_code(0).out;
    for part in [
        "NAME",
        "TOKENS",
        "│ └ ▾ default Divide the work",
        "│   ├ explore left",
        "2 of 2 children",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in {shown}");
    }
    assert!(!shown.contains("session supervisor"), "{shown}");
    let supervised = world.run(&["tree", "--supervision"]).expect_code(0).out;
    assert!(
        supervised.contains("session supervisor") && supervised.contains("sub agent supervisor"),
        "{supervised}"
    );

    let mut follower = world.start(&["traces", "events", "s", "--json", "--follow"]);
    let mut followed = lines(&mut follower);
    assert!(followed.next().unwrap().unwrap().contains("loop_started"));

    let of = |task: &str| {
        let run = runs.iter().find(|run| run["run"]["task"] == task).unwrap();
        run["run"]["trace_id"].as_str().unwrap().to_owned()
    };
    let left = of("left");
    let stopped = world
        .run(&["traces", "stop", &left, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        (&stopped["status"], &stopped["trace_id"]),
        (&json!("cancelled"), &json!(left))
    );
    let still = world
        .run(&["traces", "show", &of("right"), "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        still["trace"]["status"], "running",
        "only one child was stopped"
    );
    assert!(
        world
            .run(&["traces", "stop", &left])
            .expect_code(4)
            .err
            .contains("nothing_running")
    );

    let ran = world.run(&["traces", "stop", "s"]).expect_code(0);
    assert!(ran.out.contains("ended: cancelled"), "{}", ran.out);
    drop(children);
    let ended = owner.finish().expect_code(1);
    ended.expect_stderr(&["cancelled by another client"]);
    follower.finish().expect_code(0);
    let mut seen = vec![json!(1)];
    seen.extend(
        followed
            .map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap()["event_id"].clone()),
    );
    assert_eq!(
        seen,
        (1..=seen.len()).map(|id| json!(id)).collect::<Vec<_>>(),
        "each event once and in order"
    );
    let stored = world
        .run(&["traces", "events", "s", "--json"])
        .expect_code(0)
        .json_lines();
    assert_eq!(stored.len(), seen.len());
    assert!(
        !has_socket(&world),
        "an owner that leaves takes its socket along"
    );
    assert!(
        world
            .run(&["tree"])
            .expect_code(0)
            .out
            .contains("no unfinished runs")
    );
}

#[test]
fn ctrl_c_ends_the_stream_of_a_second_terminal() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let running = begin(&world, &service, &["run", "--session", "s", "Wait for me"]);
    let _open = service.next();
    let mut follower = world.start(&["traces", "events", "s", "--json", "--follow"]);
    let mut followed = lines(&mut follower);
    assert!(followed.next().unwrap().unwrap().contains("loop_started"));
    running.interrupt();
    running
        .finish()
        .expect_code(130)
        .expect_stderr(&["cancelling", "the run was cancelled"]);
    let last = followed.map(Result::unwrap).last().unwrap();
    assert!(last.contains("run_cancelled"), "{last}");
    follower.finish().expect_code(0);
    assert_eq!(
        world
            .run(&["traces", "show", "s", "--json"])
            .expect_code(0)
            .json()["trace"]["status"],
        "stopped"
    );
}

#[test]
fn second_ctrl_c_exits_immediately_with_a_full_output_pipe() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut running = begin(
        &world,
        &service,
        &["run", "--session", "s", "--json", "Talk"],
    );
    let mut request = service.next();
    for _ in 0..100 {
        request.text(&"more than a pipe holds ".repeat(400));
    }
    let (sender, receiver) = mpsc::channel();
    let errors = BufReader::new(running.child.stderr.take().unwrap());
    std::thread::spawn(move || {
        errors
            .lines()
            .map_while(Result::ok)
            .try_for_each(|line| sender.send(line))
    });
    // Signals in quick succession may be merged into one.
    let mut lines = Vec::new();
    while !lines
        .iter()
        .any(|line: &String| line.contains("exited immediately"))
    {
        running.interrupt();
        match receiver.recv_timeout(Duration::from_millis(200)) {
            Ok(line) => lines.push(line),
            Err(mpsc::RecvTimeoutError::Timeout) => {}
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("it ended otherwise: {lines:?}"),
        }
    }
    assert_eq!(running.finish().code, Some(130));
    world
        .run(&["tree"])
        .expect_code(0)
        .expect_stderr(&["no process owns this home"]);
}

#[test]
fn follower_reports_kill_9_and_next_owner_resumes_the_runs() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut owner = begin(
        &world,
        &service,
        &["run", "--session", "s", "Divide the work"],
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);
    let mut follower = world.start(&["traces", "events", "s", "--json", "--follow"]);
    let mut followed = lines(&mut follower);
    assert!(followed.next().unwrap().unwrap().contains("loop_started"));
    let pid = owner.child.id();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    drop(children);
    let rest = followed.map(Result::unwrap).count();
    follower.finish().expect_code(1).expect_stderr(&[
        &format!("process {pid}"),
        "has exited",
        "soong run --trace s",
    ]);
    assert!(rest > 3);

    assert!(has_socket(&world), "kill -9 leaves the socket behind");
    let tree = world.run(&["tree", "--json"]).expect_code(0).json();
    assert_eq!(
        (&tree["source"], &tree["children"][0]["id"]),
        (&json!("disk"), &json!("s"))
    );
    world
        .run(&["tree"])
        .expect_code(0)
        .expect_stderr(&["no process owns this home"]);
    world
        .run(&["traces", "events", "s", "--follow"])
        .expect_code(1)
        .expect_stderr(&["trace s was interrupted", "soong run --trace s"]);

    // The next owner resumes the runs: first the two children, then the parent.
    let next = begin(&world, &service, &["run", "--trace", "s"]);
    for child in service.take(2) {
        assert!(
            child.body["messages"].as_array().unwrap().len() == 2,
            "{}",
            child.body
        );
        child.answer("Looked.");
    }
    let request = service.next();
    let roles: Vec<&str> = request.body["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(
        roles,
        ["system", "user", "assistant", "tool"],
        "no message is added, and no call is without outcome"
    );
    assert!(
        request.body.to_string().matches("Looked.").count() >= 2,
        "{}",
        request.body
    );
    request.answer("Whole again.");
    let ran = next.finish().expect_code(0);
    ran.expect_stderr(&["3 runs were left unfinished by an earlier process"]);
    assert!(ran.out.contains("Whole again."), "{}", ran.out);
    world
        .run(&["run", "--trace", "s", "--model", "offline"])
        .expect_code(2)
        .expect_stderr(&["ends with an answer"]);
}

#[test]
fn owner_serves_a_second_run_and_waits_until_it_ends() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let first = begin(&world, &service, &["run", "First"]);
    let first_asked = service.next();
    // The second process has no key and no model address; the owner has both.
    let second = world.start(&["run", "Second"]);
    let second_asked = service.next();
    assert_eq!(second_asked.last_message(), "Second");
    first_asked.answer("One.");
    let mut first = first;
    let mut stderr_lines = BufReader::new(first.child.stderr.take().unwrap()).lines();
    assert!(stderr_lines.any(|line| {
        line.unwrap()
            .contains("this process exits when all have ended")
    }));
    second_asked.answer("Two.");
    let ran = second.finish().expect_code(0);
    assert!(ran.out.contains("Two."), "{}", ran.out);
    ran.expect_stderr(&[&format!("process {} owns this home", first.child.id())]);
    let ran = first.finish().expect_code(0);
    assert!(
        ran.out.contains("One.") && !ran.out.contains("Two."),
        "{}",
        ran.out
    );
}

#[test]
fn runs_of_one_session_queue_across_terminals() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let first = begin(
        &world,
        &service,
        &["run", "--session", "s", "--json", "First"],
    );
    let request = service.next();
    let mut second = world.start(&["run", "--session", "s", "--json", "Second"]);
    let mut shown = lines(&mut second);
    let event: Value = serde_json::from_str(&shown.next().unwrap().unwrap()).unwrap();
    assert_eq!(
        (&event["event"], &event["data"]["position"]),
        (&json!("run_queued"), &json!(1))
    );
    request.answer("One.");
    let request = service.next();
    request.answer("Two.");
    let shown: Vec<Value> = shown
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    let result = &shown.last().unwrap()["result"];
    assert_eq!(
        (&result["output"], &result["status"]),
        (&json!("Two."), &json!("completed"))
    );
    let others = shown
        .iter()
        .filter(|event| event["run_id"] != result["run_id"] && event["event"].is_string());
    assert_eq!(
        others.count(),
        0,
        "the first run's events are the first terminal's"
    );
    second.finish().expect_code(0);
    first.finish().expect_code(0);
}

#[test]
fn background_process_exits_after_its_detached_run() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let accepted = begin(
        &world,
        &service,
        &["run", "--detach", "--json", "Work alone"],
    )
    .finish()
    .expect_code(0)
    .json();
    let session = accepted["session_id"].as_str().unwrap().to_owned();
    let request = service.next();
    let tree = world.run(&["tree", "--json"]).expect_code(0).json();
    assert_eq!(actors(&tree, "run").len(), 1);
    let follower = world.start(&["traces", "events", &session, "--json", "--follow"]);
    request.answer("Done alone.");
    let events = follower.finish().expect_code(0).json_lines();
    assert_eq!(events.last().unwrap()["event"], "run_completed");
    let messages = world
        .run(&["traces", "messages", &session, "--json"])
        .expect_code(0)
        .json();
    assert_eq!(
        messages.as_array().unwrap().last().unwrap()["content"],
        "Done alone."
    );
    // The background process exits automatically.
    let deadline = Instant::now() + TIMEOUT;
    while has_socket(&world) {
        // Meanwhile `tree` succeeds, either through the owner or from disk.
        world.run(&["tree", "--json"]).expect_code(0);
        assert!(
            Instant::now() < deadline,
            "the background process could not detach"
        );
    }
    assert_eq!(
        world.run(&["tree", "--json"]).expect_code(0).json()["source"],
        "disk"
    );
}

#[test]
fn detached_run_reports_why_it_cannot_start() {
    let world = TestHome::new();
    world
        .run(&["run", "--detach", "x"])
        .expect_code(2)
        .expect_stderr(&["OPENAI_API_KEY"]);
    std::fs::create_dir(world.home()).unwrap();
    std::fs::write(world.home().join("sessions.sqlite"), "no database").unwrap();
    let ran = world
        .run(&["run", "--detach", "--model", "offline", "x"])
        .expect_code(1);
    ran.expect_stderr(&["the background process did not start", "host.log"]);
}

#[test]
fn demo_rejects_a_home_that_has_an_owner() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "First"]);
    let request = service.next();
    let home = world.home().display().to_string();
    let pid = format!("pid {}", owner.child.id());
    world
        .run(&["demo", "--home", &home])
        .expect_code(4)
        .expect_stderr(&["home_locked", &pid]);
    request.answer("One.");
    owner.finish().expect_code(0);
}

#[test]
fn socket_is_private_and_remote_errors_keep_their_codes() {
    use std::os::unix::fs::PermissionsExt;
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "First"]);
    let request = service.next();
    let mode = std::fs::metadata(world.home().join("control.sock"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o600);
    for (args, code, says) in [
        (vec!["traces", "show", "nothing"], 3, "trace_not_found"),
        (vec!["traces", "stop", "../../etc"], 3, "trace_not_found"),
        (
            vec!["traces", "messages", "no such?#"],
            3,
            "trace_not_found",
        ),
        (vec!["sessions", "show", "nothing"], 3, "session_not_found"),
        (vec!["run", "--trace", "nothing", "x"], 3, "trace_not_found"),
        (vec!["run", "--trace", "s"], 4, "session_active"),
        (vec!["run", "--agent-type", "nobody", "x"], 2, "nobody"),
        (vec!["run", "--session", "../x", "x"], 2, "../x"),
    ] {
        world.run(&args).expect_code(code).expect_stderr(&[says]);
    }
    // Reading commands also work while the home has an owner.
    for args in [
        vec!["sessions", "list"],
        vec!["sessions", "show", "s"],
        vec!["traces", "messages", "s", "--all"],
    ] {
        assert!(!world.run(&args).expect_code(0).out.is_empty(), "{args:?}");
    }
    request.answer("One.");
    owner.finish().expect_code(0);
}

#[test]
fn tree_shows_what_a_run_waits_for() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir(world.home()).unwrap();
    let config =
        "[model]\nmax_concurrency = 1\nretry = { max_attempts = 2, initial_backoff_ms = 20000 }\n";
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    let first = begin(&world, &service, &["run", "--session", "a", "First"]);
    let request = service.next();
    let mut second = world.start(&["run", "--session", "b", "--json", "Second"]);
    let waits = lines(&mut second)
        .map(Result::unwrap)
        .any(|line| line.contains("model_waiting"));
    assert!(waits);
    let activity = |world: &TestHome, task: &str| {
        let tree = world.run(&["tree", "--json"]).expect_code(0).json();
        let run = actors(&tree, "run")
            .into_iter()
            .find(|run| run["run"]["task"] == task)
            .cloned()
            .unwrap();
        run["activity"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        activity(&world, "Second"),
        "waiting for a free model call slot"
    );
    assert_eq!(activity(&world, "First"), "model call");
    // A failed call waits for its backoff and lets the other call proceed.
    let mut follower = world.start(&["traces", "events", "a", "--json", "--follow"]);
    let mut followed = lines(&mut follower).map(Result::unwrap);
    drop(request);
    assert!(followed.any(|line| line.contains("model_retrying")));
    let request = service.next();
    assert_eq!(request.last_message(), "Second");
    let waits = activity(&world, "First");
    assert!(
        waits.starts_with("waiting ") && waits.ends_with("s before attempt 2"),
        "{waits}"
    );
    assert_eq!(activity(&world, "Second"), "model call");
    world.run(&["traces", "stop", "a"]).expect_code(0);
    world.run(&["traces", "stop", "b"]).expect_code(0);
    first.finish().expect_code(1);
}

#[test]
fn clients_report_a_lost_owner_and_chat_becomes_the_owner() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut owner = begin(&world, &service, &["run", "First"]);
    let first = service.next();
    let watching = world.start(&["run", "Second"]);
    let second = service.next();
    let mut talking = world.command(&["chat"]);
    let mut talking = KillOnDrop {
        child: talking
            .env("OPENAI_BASE_URL", &service.address)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap(),
    };
    let mut says = talking.child.stdin.take().unwrap();
    says.write_all(b"Third\n").unwrap();
    service.next().answer("Three.");
    let mut output_lines = lines(&mut talking).map(Result::unwrap);
    assert!(output_lines.any(|line| line == "Three."));
    let mut notes = BufReader::new(talking.child.stderr.take().unwrap())
        .lines()
        .map(Result::unwrap);
    assert!(notes.any(|line| line.starts_with("completed: ")));
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    drop((first, second));
    watching
        .finish()
        .expect_code(1)
        .expect_stderr(&["has exited", "soong run --trace"]);
    // When the next message is entered, the chat process finds no owner and becomes the owner.
    says.write_all(b"Fourth\n").unwrap();
    let request = service.next();
    assert_eq!(
        request.body["messages"].as_array().unwrap().len(),
        4,
        "the same session. {}",
        request.body
    );
    request.answer("Four.");
    drop(says);
    assert!(output_lines.any(|line| line == "Four."));
    assert!(notes.any(|line| line.contains("2 runs were left unfinished by an earlier process")));
    talking.finish().expect_code(0);
}

#[test]
fn suspended_owner_blocks_no_command() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "First"]);
    let request = service.next();
    owner.signal(Signal::STOP);
    let tree = world.run(&["tree", "--json"]).expect_code(0);
    tree.expect_stderr(&["does not respond", "reading from disk"]);
    assert_eq!(tree.json()["source"], "disk");
    world
        .run(&["run", "--model", "offline", "Second"])
        .expect_code(4)
        .expect_stderr(&["does not respond", "fg"]);
    // A command that changes something needs the owner, so it reads nothing from disk first.
    let changes: [&[&str]; 12] = [
        &["traces", "stop", "s"],
        &["traces", "reflect", "s"],
        &["run", "--model", "offline", "--session", "s", "Next"],
        &["run", "--model", "offline", "--continue", "Next"],
        &["permissions", "mode", "edits", "s"],
        &["permissions", "allow", "s.p1"],
        &["questions", "answer", "s.q1", "Yes."],
        &["sessions", "fork", "s"],
        &["sessions", "switch", "s", "1"],
        &["sessions", "delete", "s"],
        &["sessions", "cleanup", "--older-than", "1d", "--yes"],
        &["artifacts", "delete", "notes", "--session", "s"],
    ];
    let started = changes.map(|change| (change, world.start(change)));
    for (change, process) in started {
        let refused = process.finish().expect_code(4);
        refused.expect_stderr(&["does not respond", "fg"]);
        assert!(
            !refused.err.contains("reading from disk"),
            "{change:?}: {}",
            refused.err
        );
    }
    owner.signal(Signal::CONT);
    assert_eq!(
        world.run(&["tree", "--json"]).expect_code(0).json()["source"],
        "owner"
    );
    request.answer("One.");
    owner.finish().expect_code(0);
}

#[test]
fn concurrent_detached_runs_share_one_background_process() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let starts: Vec<KillOnDrop> = (0..4)
        .map(|_| {
            begin(
                &world,
                &service,
                &["run", "--detach", "--json", "Work alone"],
            )
        })
        .collect();
    for start in starts {
        start.finish().expect_code(0);
    }
    let requests = service.take(4);
    let tree = world.run(&["tree", "--json"]).expect_code(0).json();
    assert_eq!(actors(&tree, "run").len(), 4);
    for request in requests {
        request.answer("Done.");
    }
}

#[test]
fn prompt_of_two_megabytes_is_accepted() {
    let world = TestHome::new();
    let log = "a line of a long log\n".repeat(100_000);
    let ran = world
        .run_with_input(
            &["run", "--model", "offline", "--json", "-"],
            log.as_bytes(),
        )
        .expect_code(0);
    let result = ran.json_lines().pop().unwrap();
    assert_eq!(result["result"]["status"], "completed");
    let trace = result["result"]["trace_id"].as_str().unwrap();
    let messages = world
        .run(&["traces", "messages", trace, "--json"])
        .expect_code(0)
        .json();
    assert!(
        messages
            .as_array()
            .unwrap()
            .iter()
            .any(|message| message["content"] == log.as_str())
    );
}

#[test]
fn control_socket_speaks_plain_http() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "First"]);
    let request = service.next();
    let ask = |request: &str| {
        let mut stream = UnixStream::connect(world.home().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "GET {request}\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        BufReader::new(stream).lines().map(Result::unwrap)
    };
    for (request, status, says) in [
        ("/health/live HTTP/1.1", "200", r#"{"status":"live"}"#),
        ("/api/sessions/s HTTP/1.1", "200", r#""session_id":"s""#),
        (
            "/api/traces?session_id=s&limit=1 HTTP/1.1",
            "200",
            r#""next_cursor":"#,
        ),
        (
            "/api/traces/s/events?limit=2 HTTP/1.1",
            "200",
            r#"{"events":[{"event_id":1,"event":"loop_started""#,
        ),
        ("/api/traces?colour=red HTTP/1.1", "400", "validation_error"),
        (
            "/api/traces/s/events?tree=true&limit=2 HTTP/1.1",
            "200",
            r#""session_seq":2"#,
        ),
        ("/api/traces/nothing HTTP/1.1", "404", "trace_not_found"),
        ("/api/nothing HTTP/1.1", "404", "no route GET /api/nothing"),
    ] {
        let answer: Vec<String> = ask(request).collect();
        assert!(
            answer[0].starts_with(&format!("HTTP/1.1 {status} ")),
            "{request}: {answer:?}"
        );
        assert!(
            answer.iter().any(|line| line.contains(says)),
            "{request}: {answer:?}"
        );
    }
    // A stream starts after the cursor, for a trace or for a whole session.
    for request in [
        "/api/traces/s/events?since_event_id=2 HTTP/1.1\r\naccept: text/event-stream",
        "/api/traces/s/events HTTP/1.1\r\naccept: text/event-stream\r\nlast-event-id: 2",
        "/api/traces/s/events?tree=true&since_session_seq=2 HTTP/1.1\r\naccept: text/event-stream",
    ] {
        let first = ask(request).find(|line| line.starts_with("id: "));
        assert_eq!(first.as_deref(), Some("id: 3"), "{request}");
    }
    request.answer("One.");
    owner.finish().expect_code(0);
}

#[test]
fn active_session_cannot_be_deleted_with_or_without_an_owner() {
    let world = TestHome::new();
    for session in ["alone", "beside", "other"] {
        world
            .run(&["run", "--model", "offline", "--session", session, "x"])
            .expect_code(0);
    }
    let count = || {
        world
            .run(&["sessions", "list", "--json"])
            .expect_code(0)
            .json()
            .as_array()
            .unwrap()
            .len()
    };
    let gone = |args: &[&str], session: &str| {
        let output = world.run(args).expect_code(0).out;
        assert!(
            output.contains(session) && output.contains('1'),
            "one trace went: {output}"
        );
        world.run(&["sessions", "show", session]).expect_code(3);
        world
            .run(&["sessions", "delete", session])
            .expect_code(3)
            .expect_stderr(&[&format!("there is no session {session}")]);
    };
    gone(&["sessions", "delete", "alone"], "alone");
    assert!(!has_socket(&world) && count() == 2, "it has left again");

    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "First"]);
    let request = service.next();
    world
        .run(&["sessions", "delete", "s"])
        .expect_code(4)
        .expect_stderr(&["session_active", "stop it"]);
    gone(&["sessions", "delete", "beside", "--json"], "beside");
    let delete = |path: &str| {
        let mut stream = UnixStream::connect(world.home().join("control.sock")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        write!(
            stream,
            "DELETE {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        )
        .unwrap();
        BufReader::new(stream).lines().next().unwrap().unwrap()
    };
    for (session, status) in [("s", "409"), ("other", "204"), ("other", "404")] {
        let answer = delete(&format!("/api/sessions/{session}"));
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{session}: {answer}"
        );
    }
    request.answer("One.");
    owner.finish().expect_code(0);
    assert_eq!(count(), 1);
    gone(&["sessions", "delete", "s"], "s");
}

#[test]
fn byte_order_marks_are_removed_and_utf_16_is_refused() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::write(world.project().join("AGENTS.md"), "\u{feff}Be kind.").unwrap();
    for (args, input) in [
        (&["run"][..], "\u{feff}Work."),
        (&["run", "-"], "\u{feff}Work."),
        (&["chat"], "\u{feff}Work.\n"),
    ] {
        let mut command = world.command(args);
        let mut child = command
            .env("OPENAI_BASE_URL", &service.address)
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(input.as_bytes())
            .unwrap();
        let request = service.next();
        assert_eq!(request.last_message(), "Work.", "{args:?}");
        let prompt = request.body["messages"][0]["content"].as_str().unwrap();
        assert!(
            prompt.contains("Be kind.") && !prompt.contains('\u{feff}'),
            "{args:?}"
        );
        request.answer("done");
        KillOnDrop { child }.finish().expect_code(0);
    }
    let utf_16: Vec<u8> = std::iter::once(0xfeff)
        .chain("Work.".encode_utf16())
        .flat_map(u16::to_le_bytes)
        .collect();
    for args in [
        &["run", "--model", "offline"][..],
        &["chat", "--model", "offline"],
    ] {
        world
            .run_with_input(args, &utf_16)
            .expect_code(2)
            .expect_stderr(&["UTF-16", "iconv"]);
    }
}

/// A server on this machine is reached directly: the proxy of the environment must not see the
/// token.
#[test]
fn client_of_a_local_server_ignores_the_proxy_of_the_environment() {
    let served = TestServer::new(OFFLINE);
    let token = served.token();
    // A proxy that refuses everything; it is enough that nobody connects to it.
    let proxy = TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let proxy_url = format!("http://{}", proxy.local_addr().unwrap());
    for host in ["127.0.0.1", "localhost"] {
        let url = served.url.replace("127.0.0.1", host);
        for args in [
            &["sessions", "list"][..],
            &["run", "Which project is this?"],
        ] {
            let mut command = served.world.command(&[&["--url", &url], args].concat());
            command.env("SOONG_TOKEN", &token);
            for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY"] {
                command.env(variable, &proxy_url);
            }
            KillOnDrop {
                child: command.spawn().unwrap(),
            }
            .finish()
            .expect_code(0);
            let connection = proxy.accept();
            let nobody = connection
                .as_ref()
                .is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
            assert!(nobody, "{host} {args:?}: {connection:?}");
        }
    }
}

/// A way to a server that forwards everything until a client sends a request that contains
/// `silent_at`. From then on its connection is silent.
struct SilentProxy {
    url: String,
    is_silent: mpsc::Receiver<()>,
}

impl SilentProxy {
    fn new(server: &str, silent_at: &'static str) -> Self {
        let server = server.trim_start_matches("http://").to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (silent, is_silent) = mpsc::channel();
        std::thread::spawn(move || {
            for client in listener.incoming() {
                let server = TcpStream::connect(&server).unwrap();
                let silent = silent.clone();
                std::thread::spawn(move || forward(client.unwrap(), server, silent_at, &silent));
            }
        });
        Self { url, is_silent }
    }
}

fn forward(
    mut client: TcpStream,
    mut server: TcpStream,
    silent_at: &str,
    silent: &mpsc::Sender<()>,
) {
    let mut from_server = server.try_clone().unwrap();
    let mut to_client = client.try_clone().unwrap();
    std::thread::spawn(move || std::io::copy(&mut from_server, &mut to_client));
    let proxy_host = client.local_addr().unwrap().to_string();
    let server_host = server.peer_addr().unwrap().to_string();
    let mut buffer = [0; 65_536];
    while let Ok(length @ 1..) = client.read(&mut buffer) {
        // A client sends the head of a request at once. All of it is text.
        let text = String::from_utf8_lossy(&buffer[..length]);
        if text.contains(silent_at) {
            let _ = silent.send(());
        } else if server
            .write_all(text.replace(&proxy_host, &server_host).as_bytes())
            .is_err()
        {
            return;
        }
    }
}

#[test]
fn client_of_a_silent_server_reacts_to_signals() {
    let service = ManualModelService::new();
    let served = TestServer::new(&format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    ));
    let token = served.token();
    for (silent_at, can_cancel) in [
        ("POST /api/traces ", false),
        ("accept: text/event-stream", true),
        ("GET /api/runs/", true),
        ("GET /api/questions", true),
    ] {
        for signal in [Signal::INT, Signal::TERM] {
            let proxy = SilentProxy::new(&served.url, silent_at);
            let mut command = served.world.command(&["--url", &proxy.url, "run", "Wait."]);
            let child = KillOnDrop {
                child: command.env("SOONG_TOKEN", &token).spawn().unwrap(),
            };
            proxy.is_silent.recv_timeout(TIMEOUT).expect(silent_at);
            child.signal(signal);
            let ended = child.finish();
            assert_eq!(ended.code, Some(130), "{silent_at} {signal:?}: {ended:?}");
            let word = match (signal, can_cancel) {
                (_, false) => "may have been started",
                (Signal::TERM, true) => "continues on the server",
                (_, true) => "cancelled",
            };
            assert!(
                format!("{}{}", ended.out, ended.err).contains(word),
                "{silent_at} {signal:?}: {ended:?}"
            );
        }
    }
}

#[test]
fn configuration_that_the_owner_does_not_use_is_an_error() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir_all(world.home()).unwrap();
    let model = format!(
        "[model]\nbase_url = \"{}\"\nname = \"m\"\n",
        service.address
    );
    std::fs::write(world.home().join("config.toml"), &model).unwrap();
    let owner = KillOnDrop {
        child: world
            .command(&["run", "--session", "s", "Wait."])
            .spawn()
            .unwrap(),
    };
    let request_of_owner = service.next();

    let other = world.dir.path().join("other.toml");
    let path = other.to_str().unwrap();
    let header = "[model.headers]\nx-key = \"sk-secret\"\n[runtime]\nmax_turns = 7\n";
    std::fs::write(&other, format!("{model}{header}")).unwrap();
    for args in [
        &["--config", path, "run", "Work."][..],
        &["--config", path, "run", "--json", "Work."],
    ] {
        let refused = world.run(args).expect_code(4);
        for part in [
            "owns this home with other settings than",
            "model.headers.x-key",
            "runtime.max_turns",
            "home_locked",
        ] {
            assert!(
                refused.err.contains(part),
                "{part:?} is missing in {}",
                refused.err
            );
        }
        assert!(
            !refused.err.contains("sk-secret") && !refused.err.contains("model.name"),
            "{}",
            refused.err
        );
    }
    std::fs::write(
        &other,
        format!("{model}max_output_tokens = 1000\n[runtime]\nmax_turns = 200\n"),
    )
    .unwrap();
    world
        .run(&["--config", path, "run", "Work."])
        .expect_code(4)
        .expect_stderr(&["model.max_output_tokens"]);
    // The same settings, written in another way.
    std::fs::write(&other, format!("{model}[runtime]\nmax_turns = 200\n")).unwrap();
    let run = begin(&world, &service, &["--config", path, "run", "Work."]);
    service.next().answer("Worked.");
    run.finish().expect_code(0);

    // Without --config, the settings of the owner apply. Variables that it does not have are named.
    let mut command = world.command(&["run", "Work."]);
    command
        .env("OPENAI_BASE_URL", "http://elsewhere.invalid")
        .env("ANTHROPIC_API_KEY", "sk-mine");
    let run = KillOnDrop {
        child: command.spawn().unwrap(),
    };
    service.next().answer("Worked.");
    let ended = run.finish().expect_code(0);
    let note =
        "its own settings and key, not with ANTHROPIC_API_KEY, OPENAI_BASE_URL of this terminal";
    assert!(
        ended.err.contains(note) && !ended.err.contains("sk-mine"),
        "{}",
        ended.err
    );
    request_of_owner.answer("Done.");
    owner.finish().expect_code(0);
}
