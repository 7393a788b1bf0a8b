//! `soong init`: the models that it finds, the check, and the file that it writes.

use serde_json::{Value, json};

use crate::process::{KillOnDrop, ProcessOutput, TestHome};
use crate::pty::TestTerminal;
use crate::scripted::{Reply, ScriptedServer};

/// A server that lists two models and answers as one that can call tools.
fn server() -> ScriptedServer {
    ScriptedServer::start_with_routes(|request| {
        match (
            request.path.as_str(),
            request.body["messages"].as_array().map(Vec::len),
        ) {
            ("/v1/models", _) => {
                let models = [
                    json!({"id": "small", "max_model_len": 32768}),
                    json!({"id": "large"}),
                    json!({"id": "x-embed"}),
                ];
                Reply::status(200, json!({"object": "list", "data": models}).to_string())
            }
            (_, Some(2)) => Reply::calls(&[("1", "list_files", r#"{"path": "."}"#)]),
            _ => Reply::answer("soong-check.txt"),
        }
    })
}

fn init(world: &TestHome, args: &[&str], variables: &[(&str, &str)], code: i32) -> ProcessOutput {
    let mut command = world.command(&[&["init"], args].concat());
    command.envs(variables.iter().copied());
    KillOnDrop {
        child: command.spawn().unwrap(),
    }
    .finish()
    .expect_code(code)
}

fn config(world: &TestHome) -> String {
    std::fs::read_to_string(world.home().join("config.toml")).unwrap()
}

#[test]
fn init_writes_a_short_file_for_a_model_that_answers() {
    let world = TestHome::new();
    let server = server();
    let base_url = server.base_url();
    let variables = [
        ("OPENAI_BASE_URL", base_url.as_str()),
        ("OPENAI_API_KEY", "k"),
    ];
    let written = init(&world, &["--yes", "--json"], &variables, 0).json();
    assert_eq!(
        (&written["model"], &written["checks"][0]["status"]),
        (&json!("small"), &json!("ok"))
    );
    let text = config(&world);
    assert!(text.lines().count() <= 7, "{text}");
    for line in [&format!("base_url = {:?}", base_url), r#"name = "small""#] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing in {text}"
        );
    }
    let requests = server.requests();
    assert_eq!(requests[0].headers["authorization"], "Bearer k");
    for request in requests
        .iter()
        .filter(|request| request.path.ends_with("/chat/completions"))
    {
        assert_eq!(request.body["model"], "small", "{requests:?}");
    }
    let shown = world
        .run(&["config", "show", "--json"])
        .expect_code(0)
        .json();
    let is_set = |setting: &&Value| {
        setting["key"] == "model.name" && setting["value"].to_string().contains("small")
    };
    assert!(
        shown["settings"]
            .as_array()
            .unwrap()
            .iter()
            .any(|setting| is_set(&setting)),
        "{shown}"
    );
    init(&world, &["--yes"], &variables, 4).expect_stderr(&["already exists", "--force"]);
    assert_eq!(
        server.requests().len(),
        requests.len(),
        "no model is called for a file that stays"
    );
}

#[test]
fn init_writes_nothing_without_a_working_model() {
    let world = TestHome::new();
    // A server of the developer that runs these tests would be found.
    let is_free = |port: u16| std::net::TcpStream::connect(("127.0.0.1", port)).is_err();
    if [11434, 1234, 8080, 8000].into_iter().all(is_free) {
        init(&world, &["--yes"], &[], 2).expect_stderr(&[
            "no usable model was found",
            "OPENAI_API_KEY",
            "soong demo",
        ]);
    }
    let rejecting = ScriptedServer::start_with_routes(|request| match request.path.as_str() {
        "/v1/models" => Reply::status(200, r#"{"data": [{"id": "m"}]}"#),
        _ => Reply::status(401, r#"{"error": {"message": "no"}}"#),
    });
    let base_url = rejecting.base_url();
    let ran = init(&world, &["--yes"], &[("OPENAI_BASE_URL", &base_url)], 5);
    ran.expect_stderr(&["no configuration was written", "m: "]);
    assert!(ran.out.contains("broken   call: "), "{}", ran.out);
    let listless = ScriptedServer::start_with_routes(|_| Reply::status(404, "{}"));
    let variables = [
        ("OPENAI_BASE_URL", listless.base_url()),
        ("ANTHROPIC_BASE_URL", rejecting.base_url()),
    ];
    let variables = variables
        .each_ref()
        .map(|(name, url)| (*name, url.as_str()));
    let ran = init(
        &world,
        &["--yes"],
        &[&variables[..], &[("ANTHROPIC_API_KEY", "k")]].concat(),
        5,
    );
    ran.expect_stderr(&["note: OPENAI_BASE_URL: ", "does not list its models"]);
    assert!(!world.home().exists());
}

#[test]
fn init_asks_for_the_model_on_a_terminal() {
    let world = TestHome::new();
    let server = server();
    let base_url = server.base_url();
    let terminal = TestTerminal::start(
        &world,
        &["init"],
        (30, 100),
        &[("OPENAI_BASE_URL", &base_url)],
    );
    terminal.wait_for_text("by number or name [1]:");
    terminal.type_keys("no-such-model\r");
    terminal.wait_for_text("enter a number from 1 to");
    terminal.type_keys("large\r");
    let (code, rows) = terminal.wait_for_exit();
    assert_eq!(code, Some(0), "{rows:#?}");
    assert!(
        rows.iter().any(|row| row.starts_with("wrote ")),
        "{rows:#?}"
    );
    assert!(config(&world).contains(r#"name = "large""#));

    let other = TestHome::new();
    let terminal = TestTerminal::start(
        &other,
        &["init"],
        (30, 100),
        &[("OPENAI_BASE_URL", &base_url)],
    );
    terminal.wait_for_text("by number or name [1]:");
    terminal.type_keys("\u{4}");
    let (code, rows) = terminal.wait_for_exit();
    assert!(
        code == Some(2) && rows.iter().any(|row| row.contains("no model was chosen")),
        "{rows:#?}"
    );
    assert!(!other.home().exists());
}

#[test]
fn full_file_is_overwritten_only_with_force() {
    let world = TestHome::new();
    world.run(&["init", "--full"]).expect_code(0);
    let file = world.home().join("config.toml");
    let fresh = config(&world);
    std::fs::write(&file, "mine").unwrap();
    world
        .run(&["init", "--full"])
        .expect_code(4)
        .expect_stderr(&["exists", "--force"]);
    assert_eq!(config(&world), "mine");
    world.run(&["init", "--full", "--force"]).expect_code(0);
    assert_eq!(config(&world), fresh);
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
}
