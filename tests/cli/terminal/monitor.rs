//! The monitor through the real binary on a terminal: its display, its keys, and the screen after
//! it ends.

use rustix::process::Signal;
use serde_json::{Value, json};

use super::{ManualModelService, TestHome, TestTerminal, has};
use crate::{
    process::KillOnDrop,
    served::{OFFLINE, TestServer},
};

const WIDE: (u16, u16) = (36, 139);

fn row<'a>(rows: &'a [String], text: &str) -> &'a str {
    rows.iter()
        .find(|row| row.contains(text))
        .unwrap_or_else(|| panic!("{text:?} is missing in {rows:#?}"))
}

fn priced(world: &TestHome) {
    let config = "[model]
name = \"m\"
[prices.m]
prompt_per_mtok = \"2\"
completion_per_mtok = \"10\"
cached_per_mtok = \"1\"
";
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), config).unwrap();
}

fn begin(world: &TestHome, service: &ManualModelService, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(args)
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
}

#[test]
fn demo_child_is_crashed_restarted_and_all_is_cancelled() {
    let world = TestHome::new();
    let terminal = TestTerminal::start(
        &world,
        &["demo", "--monitor", "--pace", "2s", "--children", "2"],
        WIDE,
        &[],
    );
    let rows = terminal.wait_for("two running children", |rows| {
        rows.iter()
            .filter(|row| row.contains("explore Explore") && row.contains("running"))
            .count()
            == 2
    });
    assert!(has(&rows, "1 run + 2 children"), "{rows:#?}");
    assert!(terminal.hides_cursor());
    // Select the first child, which is below the orchestrator.
    terminal.type_keys("\u{1b}[B");
    terminal.wait_for_text("agent       explore in mode normal");
    terminal.type_keys("K");
    terminal.wait_for_text("to test its restart?");
    terminal.type_keys("y");
    terminal.wait_for_text("1 was restarted");
    // The error is the crash until the restarted actor has recovered its run.
    terminal.wait_for_text("interrupted: the model call was interrupted");
    let rows = terminal.wait_for_text("restarts    1 (limit 3/60s)");
    assert!(
        rows.iter()
            .any(|row| row.contains("explore Explore") && row.contains("1/3")),
        "{rows:#?}"
    );
    terminal.type_keys("\r4");
    terminal.wait_for_text("actor_restarted");
    // Ctrl-C cancels the run that the monitor was started with.
    terminal.type_keys("\u{3}");
    terminal.wait_for_text("The run has ended: cancelled");
    terminal.type_keys("q");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(1), "{rows:#?}");
    assert!(
        has(&rows, "cancelled in ") && !has(&rows, "soong monitor"),
        "{rows:#?}"
    );
}

#[test]
fn permission_is_granted_and_the_answer_is_printed_after_exit() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let args = [
        "run",
        "--monitor",
        "--session",
        "s",
        "Write \u{1b}[2J\u{202e}it down",
    ];
    let terminal = TestTerminal::start(
        &world,
        &args,
        WIDE,
        &[("OPENAI_BASE_URL", &service.address)],
    );
    let mut request = service.next();
    // Control characters in tasks, files and model output do not affect the screen.
    terminal.wait_for_text("default Write ?[2J?it down");
    request.call(
        "write",
        &json!({ "path": "notes.txt", "content": "noted\n" }),
    );
    request.end();
    terminal.wait_for_text("1 needs input");
    // Stopped with Ctrl-Z while the runtime is busy on another thread, the monitor restores the
    // terminal. It redraws the screen after SIGCONT.
    terminal.type_keys("\u{1a}");
    terminal.wait_until_stopped();
    terminal.wait_until_restored();
    terminal.signal(Signal::CONT);
    terminal.wait_for_text("1 needs input");
    terminal.type_keys("a");
    terminal.wait_for_text("write requests permission: ");
    terminal.type_keys("y");
    terminal.wait_for_text("allowed once");
    let answer = service.next();
    assert_eq!(
        std::fs::read_to_string(world.project().join("notes.txt")).unwrap(),
        "noted\n"
    );
    answer.answer("It is noted.");
    terminal.wait_for_text("The run has ended: completed");
    terminal.type_keys("6\t");
    terminal.wait_for_text("no artifacts in this session");
    terminal.type_keys("5");
    terminal.wait_for_text("It is noted.");
    terminal.type_keys("q");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        has(&rows, "It is noted.") && has(&rows, "completed: "),
        "{rows:#?}"
    );
}

#[test]
fn keys_answer_deny_open_artifacts_and_export_the_trace() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let args = ["run", "--monitor", "--session", "s", "Ask, and write"];
    let terminal = TestTerminal::start(
        &world,
        &args,
        WIDE,
        &[("OPENAI_BASE_URL", &service.address)],
    );
    let mut request = service.next();
    request.call("ask_human", &json!({ "question": "Which colour?" }));
    request.end();
    terminal.wait_for_text("1 needs input");
    terminal.type_keys("a");
    terminal.wait_for_text("Which colour?");
    terminal.type_keys("\rred\r");
    terminal.wait_for_text("answered");
    let mut request = service.next();
    assert!(
        request.last_message().contains("red"),
        "{}",
        request.last_message()
    );
    request.call(
        "write",
        &json!({ "path": "notes.txt", "content": "noted\n" }),
    );
    request.end();
    // The line that counts the requests may still show the question.
    terminal.wait_for_text("a permission");
    terminal.type_keys("a");
    terminal.wait_for_text("write requests permission: ");
    terminal.type_keys("enot today\r");
    terminal.wait_for_text("refused");
    let request = service.next();
    assert!(
        request.last_message().contains("not today"),
        "{}",
        request.last_message()
    );
    assert!(!world.project().join("notes.txt").exists());
    // Control characters in an artifact do not affect the screen either.
    let plan = "first\n\u{1b}[2J\u{202e}second\n";
    world
        .run_with_input(
            &["artifacts", "put", "plan.md", "-", "--session", "s"],
            plan.as_bytes(),
        )
        .expect_code(0);
    world
        .run_with_input(
            &["artifacts", "put", "picture", "-", "--session", "s"],
            &[0, 255, 1],
        )
        .expect_code(0);
    request.answer("Done.");
    terminal.wait_for_text("The run has ended: completed");
    terminal.type_keys("6\t");
    terminal.wait_for_text("picture");
    terminal.type_keys("\r");
    terminal.wait_for_text("soong artifacts get picture --session s -o FILE");
    terminal.type_keys("\u{1b}");
    terminal.wait_for_text("plan.md");
    terminal.type_keys("\u{1b}[B\r");
    terminal.wait_for_text("?[2J?second");
    terminal.type_keys("x\u{15}out\r");
    terminal.wait_for_text("trace s written to ");
    assert!(world.project().join("out").is_dir());
    terminal.type_keys("q");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn screen_numbers_match_the_api_and_the_database() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    priced(&world);
    let budget = [
        "run",
        "--session",
        "s",
        "--mode",
        "orchestrator",
        "--budget-tokens",
        "9000000",
        "Divide it",
    ];
    let owner = begin(&world, &service, &budget);
    let mut root = service.next();
    root.call("agent", &json!({ "task": ["one", "two", "three"] }));
    root.end();
    // Each child has completed a different number of turns and waits for its next answer.
    let mut children = Vec::new();
    for mut child in service.take(3) {
        let turns = ["one", "two", "three"]
            .iter()
            .position(|task| *task == child.last_message())
            .unwrap();
        for _ in 0..turns {
            child.call("list_files", &json!({}));
            child.end();
            child = service.next();
        }
        children.push(child);
    }
    let terminal = TestTerminal::start(&world, &["monitor"], WIDE, &[]);
    terminal.wait_for_text("live");
    let rows = terminal.wait_for_text("1 run + 3 children");
    let tree = world.run(&["tree", "--json"]).expect_code(0).json();
    // The database is read from a copy, so that the owner is not asked.
    let copy = world.dir.path().join("copy");
    world
        .run(&["backup", copy.to_str().unwrap()])
        .expect_code(0);
    let disk = |trace: &str| {
        let shown = world
            .run(&[
                "--home",
                copy.to_str().unwrap(),
                "traces",
                "show",
                trace,
                "--json",
            ])
            .expect_code(0)
            .json();
        shown["trace"].clone()
    };
    let mut tokens = 0;
    let mut nanos = 0;
    let runs = runs(&tree);
    assert_eq!(runs.len(), 4);
    for view in &runs {
        let run = &view["run"];
        let recorded = disk(run["trace_id"].as_str().unwrap());
        assert_eq!(
            (&run["tokens"], &run["cost"]),
            (&recorded["total_tokens"], &recorded["total_cost"]),
            "{recorded}"
        );
        assert_eq!(run["events"], recorded["last_event_id"], "one run a trace");
        let name = format!(
            "{} {}",
            run["agent_type"].as_str().unwrap(),
            run["task"].as_str().unwrap()
        );
        let shown: Vec<&str> = row(&rows, &name).split_whitespace().collect();
        let cost: f64 = run["cost"].as_str().unwrap().parse().unwrap();
        let count = run["tokens"].as_u64().unwrap();
        for part in [
            count.to_string(),
            format!("${cost:.4}").replace("$0.0000", "$0.00"),
            run["turn"].to_string(),
        ] {
            assert!(
                shown.contains(&part.as_str()),
                "{part} is missing in {shown:?}"
            );
        }
        tokens += count;
        nanos += (cost * 1e9).round() as u64;
    }
    assert!(
        has(
            &rows,
            &format!("{tokens} tokens ${:.4}", nanos as f64 / 1e9)
        ),
        "{rows:#?}"
    );
    let root = runs
        .iter()
        .find(|view| view["run"]["parent_run_id"].is_null())
        .unwrap();
    let used = &root["run"]["budget"][0]["used"];
    let limit = &root["run"]["budget"][0]["limit"];
    assert_eq!(
        (used, limit),
        (&json!(tokens.to_string()), &json!("9000000")),
        "the budget is that of all below it"
    );
    terminal.type_keys("/orchestrator\r");
    terminal.wait_for_text(&format!("{tokens} of 9000000"));
    terminal.type_keys("q");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
    drop((children, owner));
}

fn runs(view: &Value) -> Vec<Value> {
    let below = view["children"].as_array().unwrap().iter().flat_map(runs);
    let own = (view["kind"] == "run").then(|| view.clone());
    own.into_iter().chain(below).collect()
}

#[test]
fn every_screen_size_is_drawn_and_server_restart_is_shown() {
    let mut served = TestServer::new(OFFLINE);
    let url = served.url.clone();
    let token = served.token();
    let terminal = TestTerminal::start(
        &served.world,
        &["--url", &url, "monitor"],
        (15, 60),
        &[("SOONG_TOKEN", &token), ("NO_COLOR", "1")],
    );
    terminal.wait_for_text("live");
    for size in [(24, 80), (50, 200), (15, 60), (6, 30), (3, 12), (30, 100)] {
        terminal.resize(size.0, size.1);
        match size {
            (3, _) => drop(terminal.wait_for_text("too small")),
            _ => drop(terminal.wait_for("a whole picture", |rows| {
                rows[0].starts_with("soong monitor") && rows[rows.len() - 1].starts_with("q exit")
            })),
        }
    }
    terminal.wait_for_text("journal");
    served.kill();
    let rows = terminal.wait_for_text("offline, reconnecting");
    assert!(
        rows[2].starts_with("! ") && has(&rows, "journal"),
        "what was known stays, and why is said: {rows:#?}"
    );
    served.restart();
    terminal.wait_for_text(&format!("live {}", served.pid()));
    assert!(!terminal.has_colors(), "NO_COLOR is respected");
    terminal.signal(Signal::TERM);
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        !has(&rows, "soong monitor"),
        "the screen is as it was: {rows:#?}"
    );
}

#[test]
fn monitor_waits_for_an_owner_and_rejects_a_missing_home() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let none = TestTerminal::start(&world, &["--home", "no-such-home", "monitor"], WIDE, &[]);
    let (code, rows) = none.wait_for_exit();
    assert!(
        code == Some(3) && has(&rows, "there is no home at"),
        "{rows:#?}"
    );
    world
        .run(&["monitor"])
        .expect_code(2)
        .expect_stderr(&["needs a terminal", "soong tree"]);
    world
        .run(&["monitor", "--json"])
        .expect_code(2)
        .expect_stderr(&["soong tree --json"]);
    world
        .run(&["run", "--monitor", "x"])
        .expect_code(2)
        .expect_stderr(&["needs a terminal"]);
    let first = begin(&world, &service, &["run", "--session", "s", "Begin"]);
    service.next().answer("Begun.");
    first.finish().expect_code(0);
    let terminal = TestTerminal::start(&world, &["monitor"], WIDE, &[]);
    terminal.wait_for_text("no process owns this home");
    let second = begin(&world, &service, &["run", "--session", "s", "Go on"]);
    let request = service.next();
    terminal.wait_for_text("default Go on");
    // After Ctrl-Z and SIGCONT the whole screen is redrawn.
    terminal.type_keys("\u{1a}");
    terminal.wait_until_stopped();
    terminal.wait_until_restored();
    terminal.signal(Signal::CONT);
    terminal.wait_for_text("soong monitor");
    terminal.type_keys("/go on\rcy");
    terminal.wait_for_text("cancelling 1 run");
    second.finish().expect_code(1);
    drop(request);
    terminal.wait_for_text("no process owns this home");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit().0, Some(0));
}

#[test]
fn remote_run_is_watched_and_its_answer_printed_after_exit() {
    let served = TestServer::new(OFFLINE);
    let url = served.url.clone();
    let token = served.token();
    let args = ["--url", &url, "run", "--monitor", "Which project is this?"];
    let terminal = TestTerminal::start(&served.world, &args, WIDE, &[("SOONG_TOKEN", &token)]);
    let rows = terminal.wait_for_text("The run has ended: completed");
    assert!(has(&rows, &url), "{rows:#?}");
    terminal.type_keys("q");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        has(&rows, "offline stand-in") && has(&rows, "completed: "),
        "{rows:#?}"
    );
}
