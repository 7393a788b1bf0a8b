//! `soong mcp`, and runs with MCP servers, through the real binary.
//!
//! The server is this test binary itself, started with [`serves`] as the only test to run.
#![allow(unreachable_pub, reason = "the server is an example of its own")]

#[path = "../../examples/support/mcp_server.rs"]
mod server;

use crate::process::{KillOnDrop, TestHome};
use crate::service::ManualModelService;
use serde_json::{Value, json};

/// Not a test: serves MCP if the binary under test started this process.
#[test]
fn serves() {
    if std::env::var_os("SOONG_CALL").is_some() {
        server::serve();
        std::process::exit(0);
    }
}

/// Returns the `config.toml` table of a server that runs this test binary.
fn program(name: &str, more: &str) -> String {
    let exe = std::env::current_exe().unwrap();
    let args = ["--exact", "mcp::serves", "--nocapture", "--quiet"];
    format!(
        "[mcp.{name}]\ncommand = {:?}\nargs = {args:?}\n{more}\n",
        exe.to_str().unwrap()
    )
}

fn world(config: &str) -> TestHome {
    let world = TestHome::new();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), config).unwrap();
    world
}

#[test]
fn commands_explain_how_to_configure_a_server() {
    let world = world("");
    for args in [["mcp", "list"], ["mcp", "test"]] {
        let ran = world.run(&args).expect_code(0);
        assert!(ran.out.contains("[mcp.NAME]"), "{args:?}: {}", ran.out);
    }
    assert_eq!(
        world.run(&["mcp", "test", "--json"]).expect_code(0).json(),
        json!([])
    );
}

#[test]
fn list_without_start_shows_missing_variables() {
    let world =
        world("[mcp.files]\ncommand = \"/no/such/program\"\nenv = { KEY = \"FILES_KEY\" }\n");
    let ran = world.run(&["mcp", "list", "--no-start"]).expect_code(0);
    assert!(
        ran.out.contains("FILES_KEY (not set)") && ran.out.contains("/no/such/program"),
        "{}",
        ran.out
    );
    let shown = world
        .run(&["mcp", "list", "--no-start", "--json"])
        .expect_code(0)
        .json();
    let keys: Vec<&String> = shown[0].as_object().unwrap().keys().collect();
    assert_eq!(
        keys,
        [
            "name",
            "command",
            "args",
            "variables",
            "timeout_ms",
            "start_timeout_ms",
            "disabled_tools"
        ]
    );
}

#[test]
fn list_shows_working_servers_and_skipped_tools() {
    let bad = "[mcp.bad]\ncommand = \"/no/such/program\"\n";
    let world = world(&format!(
        "{}{bad}",
        program("good", "disabled_tools = [\"crash\"]")
    ));
    let ran = world.run(&["mcp", "list"]).expect_code(0);
    for part in [
        "7 tools, 4 skipped",
        "bad: failed: ",
        "good: skipped: ",
        "only be called as an MCP task",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in:\n{}",
            ran.out
        );
    }
    let shown = world.run(&["mcp", "list", "--json"]).expect_code(0).json();
    assert_eq!(
        (&shown[0]["is_usable"], &shown[1]["is_usable"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(shown[1]["left_out"].as_array().unwrap().len(), 4, "{shown}");
}

#[test]
fn test_lists_tools_and_the_errors_of_broken_servers() {
    let bad = "[mcp.bad]\ncommand = \"/no/such/program\"\n[mcp.lacks]\nurl = \"http://127.0.0.1:9/mcp\"\n\
               header_env = { Authorization = \"NOT_SET\" }\n";
    let world = world(&format!(
        "{}{bad}",
        program("good", "disabled_tools = [\"crash\"]")
    ));
    let ran = world.run(&["mcp", "test", "good"]).expect_code(0);
    for part in [
        "good: 7 tools, took ",
        "mcp.good.add",
        "read-only (declared)",
        "dangerous",
        "skipped: ",
        "bad_schema",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in:\n{}",
            ran.out
        );
    }
    assert!(!ran.out.contains("mcp.good.crash"), "{}", ran.out);
    let ran = world.run(&["mcp", "test"]).expect_code(1);
    for part in [
        "bad: failed: ",
        "(mcp.bad.command) could not be started",
        "good: 7 tools",
        "NOT_SET",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in:\n{}",
            ran.out
        );
    }
    world
        .run(&["mcp", "test", "other"])
        .expect_code(2)
        .expect_stderr(&["\"other\"", "bad, good, lacks"]);
    let tested = world.run(&["mcp", "test", "--json"]).expect_code(1).json();
    let keys = |at: usize| {
        tested[at]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        keys(0),
        ["name", "is_usable", "tools", "left_out", "error", "advice"]
    );
    assert_eq!(
        keys(1),
        ["name", "is_usable", "took_ms", "tools", "left_out"]
    );
    let tool: Vec<&String> = tested[1]["tools"][0].as_object().unwrap().keys().collect();
    assert_eq!(tool, ["name", "title", "effect", "description"]);
    assert_eq!(
        tested[1]["left_out"].as_array().unwrap().len(),
        4,
        "{tested}"
    );
}

#[test]
fn secret_repeated_by_a_server_is_redacted() {
    let table = program(
        "leaky",
        "env = { MCP_MODE = \"MODE\", MCP_SECRET = \"LEAKY_TOKEN\" }",
    );
    let world = world(&table);
    let secret = "tok-5ecret-0123456789";
    for mode in ["leave", "describe"] {
        for args in [&["mcp", "test"][..], &["mcp", "test", "--json"]] {
            let mut command = world.command(args);
            let ran = KillOnDrop {
                child: command
                    .env("MODE", mode)
                    .env("LEAKY_TOKEN", secret)
                    .spawn()
                    .unwrap(),
            }
            .finish();
            assert!(
                ran.out.contains("[redacted:LEAKY_TOKEN]"),
                "{mode}: {} {}",
                ran.out,
                ran.err
            );
            assert!(
                !format!("{}{}", ran.out, ran.err).contains("5ecret"),
                "{mode}: {} {}",
                ran.out,
                ran.err
            );
        }
    }
}

#[test]
fn run_offers_tool_names_without_dots_and_calls_the_server() {
    let world = world(&program("demo", ""));
    let service = ManualModelService::new();
    let mut command = world.command(&["run", "--json", "--allow", "mcp.demo.*", "x"]);
    let running = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    let mut request = service.next();
    let tools = request.body["tools"].as_array().unwrap().clone();
    let names: Vec<&str> = tools
        .iter()
        .map(|tool| tool["function"]["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"mcp__demo__add"), "{names:?}");
    request.call("mcp__demo__add", &json!({"a": 20, "b": 22}));
    request.end();
    let request = service.next();
    assert_eq!(request.last_message(), "42");
    let before = request.body["messages"].as_array().unwrap();
    let called: Vec<&Value> = before
        .iter()
        .filter_map(|m| m["tool_calls"][0]["function"].get("name"))
        .collect();
    assert_eq!(called, ["mcp__demo__add"]);
    request.answer("done");
    let ran = running.finish().expect_code(0);
    assert!(
        ran.out.contains("\"name\":\"mcp.demo.add\""),
        "events have our name: {}",
        ran.out
    );
}

#[test]
fn doctor_tests_servers_and_run_warns_of_a_missing_one() {
    let bad = "[mcp.bad]\ncommand = \"/no/such/program\"\n[model]\nprovider = \"offline\"\n";
    let world = world(&format!(
        "{}{bad}",
        program("good", "start_timeout_ms = 30000")
    ));
    let ran = world.run(&["doctor"]).expect_code(0);
    for part in [
        "partly   mcp: good: 8 tools: add, ",
        "bad_schema",
        "warning  mcp: bad: failed: ",
    ] {
        assert!(
            ran.out.contains(part),
            "{part:?} is missing in:\n{}",
            ran.out
        );
    }
    let ran = world.run(&["run", "x"]).expect_code(0);
    let lines: Vec<&str> = ran
        .err
        .lines()
        .filter(|line| line.contains("/no/such/program"))
        .collect();
    assert!(
        lines.len() == 1 && lines[0].contains("warning: MCP server \"bad\" is not available"),
        "{}",
        ran.err
    );
}
