//! How commands fail: the exit code, a first line with the problem and its place, and lines with
//! advice.

use serde_json::json;

use super::{begin, configure};
use crate::{
    process::{HangingModelService, KillOnDrop, ProcessOutput, TestHome},
    scripted::{Reply, ScriptedServer, delta},
    service::ManualModelService,
};

/// A command and its expected failure.
pub(crate) struct Row<'a> {
    line: &'a str,
    code: i32,
    /// Text that the first line must contain.
    what: &'a str,
    /// Text that the lines below must contain. Empty: there are no such lines, and the first line
    /// contains the advice.
    advice: &'a str,
}

pub(crate) const fn row<'a>(line: &'a str, code: i32, what: &'a str, advice: &'a str) -> Row<'a> {
    Row {
        line,
        code,
        what,
        advice,
    }
}

const HELP: &str = "try '--help'";
const MODEL: &str = "Choose one of";
const PROMPT: &str = "soong run \"Summarize README.md\"";
const NOTHING_RAN: &str = "soong demo";

/// Splits a command line at spaces; `''` is an empty argument.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace()
        .map(|word| if word == "''" { "" } else { word })
        .collect()
}

/// Checks the error output of a failed command.
#[track_caller]
fn check_words(line: &str, ran: &ProcessOutput, what: &str, advice: &str) {
    let context = format!("`soong {line}` said:\n{}", ran.err);
    for bad in ['\u{1b}', '\u{7}', '\r'] {
        assert!(
            !ran.out.contains(bad) && !ran.err.contains(bad),
            "{bad:?}: {context}"
        );
    }
    assert!(!ran.err.contains("panicked"), "{context}");
    let errors = ran
        .err
        .lines()
        .filter(|line| line.starts_with("error:"))
        .count();
    assert_eq!(errors, 1, "one line says what: {context}");
    let mut lines = ran
        .err
        .lines()
        .skip_while(|line| !line.starts_with("error:"));
    let first = lines.next().unwrap();
    let rest = lines.collect::<Vec<_>>().join("\n");
    assert!(
        first.contains(what),
        "{what:?} is not in the first line: {context}"
    );
    assert!(
        rest.contains(advice) && rest.trim().is_empty() == advice.is_empty(),
        "{advice:?} is not below: {context}"
    );
}

/// Runs each row with and without `--json`, and checks that nothing is written to standard output.
#[track_caller]
pub(crate) fn check(world: &TestHome, variables: &[(&str, &str)], rows: &[Row<'_>]) {
    for Row {
        line,
        code,
        what,
        advice,
    } in rows
    {
        for json in [&[][..], &["--json"]] {
            let ran = begin(world, variables, &[json, &words(line)].concat()).finish();
            assert_eq!(
                ran.code,
                Some(*code),
                "`soong {line}` {json:?}: {}{}",
                ran.out,
                ran.err
            );
            assert_eq!(ran.out, "", "`soong {line}` {json:?}");
            check_words(line, &ran, what, advice);
            let before = ran
                .err
                .lines()
                .take_while(|line| !line.starts_with("error:"));
            let notes: Vec<&str> = before.filter(|line| !line.starts_with("note: ")).collect();
            assert!(
                notes.is_empty(),
                "`soong {line}`: something stands before the error: {notes:?}"
            );
        }
    }
}

#[test]
fn usage_error_names_the_argument_and_the_help() {
    let rows = [
        row("nothing", 2, "unrecognized subcommand 'nothing'", HELP),
        row("--nothing", 2, "unexpected argument '--nothing'", HELP),
        row("host --nothing", 2, "--nothing", HELP),
        row("help nothing", 2, "'nothing'", HELP),
        row("--home", 2, "--home <DIR>", HELP),
        row("--home '' tree", 2, "--home <DIR>", HELP),
        row("--config", 2, "--config <FILE>", HELP),
        row(
            "--color blue tree",
            2,
            "'blue' for '--color <WHEN>'",
            "auto, always, never",
        ),
        row("tree now", 2, "'now'", HELP),
        row("demo --children 0", 2, "'0' for '--children <N>'", HELP),
        row(
            "demo --children 201",
            2,
            "a whole number from 1 to 200",
            HELP,
        ),
        row("demo --children x", 2, "'x' for '--children <N>'", HELP),
        row("run x y", 2, "'y'", HELP),
        row("run --session", 2, "--session <SESSION>", HELP),
        row(
            "run --session last x",
            3,
            "there is no session last: the home has 0",
            "sessions list",
        ),
        row(
            "chat --session @3",
            3,
            "there is no session @3: the home has 0",
            "sessions list",
        ),
        row(
            "run --mode chaos x",
            2,
            "'chaos' for '--mode <MODE>'",
            "normal, orchestrator",
        ),
        row(
            "run --timeout soon x",
            2,
            "use seconds, or 90s, 30m, 2h, 7d",
            HELP,
        ),
        row("run --timeout 0 x", 2, "'0' for '--timeout <S>'", HELP),
        row(
            "run --max-iterations 0 x",
            2,
            "'0' for '--max-iterations <N>'",
            HELP,
        ),
        row(
            "run --continue --session s x",
            2,
            "'--continue[=<SESSION>]' cannot be used with '--session <SESSION>'",
            HELP,
        ),
        row("run --continue --trace s x", 2, "cannot be used with", HELP),
        row(
            "run --session s --trace s x",
            2,
            "cannot be used with",
            HELP,
        ),
        row(
            "chat --continue --session s",
            2,
            "cannot be used with",
            HELP,
        ),
        row("chat hello", 2, "'hello'", HELP),
        row("run --attach", 2, "--attach <FILE>", HELP),
        row("artifacts frobnicate", 2, "'frobnicate'", HELP),
        row("artifacts show", 2, "required arguments", "<NAME>"),
        row("artifacts get", 2, "required arguments", "<NAME>"),
        row(
            "artifacts get x --version 1.5",
            2,
            "'1.5' for '--version <N>'",
            HELP,
        ),
        row("artifacts put x", 2, "required arguments", "<FILE>"),
        row(
            "artifacts edit x --old a",
            2,
            "required arguments",
            "--new <TEXT>",
        ),
        row("artifacts versions", 2, "required arguments", "<NAME>"),
        row(
            "artifacts export x",
            2,
            "required arguments",
            "--output <FILE.docx>",
        ),
        row("artifacts delete", 2, "required arguments", "<NAME>"),
        row("artifacts delete ''", 2, "<NAME>", HELP),
        row("artifacts list --session ''", 2, "--session <ID>", HELP),
        row(
            "artifacts cleanup --older-than soon",
            2,
            "use seconds, or 90s, 30m, 2h, 7d",
            HELP,
        ),
        row(
            "artifacts cleanup --max-bytes much",
            2,
            "'much' for '--max-bytes <N>'",
            HELP,
        ),
        row("tasks frobnicate", 2, "'frobnicate'", HELP),
        row("tasks list --path", 2, "--path <DIR>", HELP),
        row(
            "tasks cleanup --older-than soon",
            2,
            "use seconds, or 90s, 30m, 2h, 7d",
            HELP,
        ),
        row("sessions frobnicate", 2, "'frobnicate'", HELP),
        row("sessions show", 2, "required arguments", "<SESSION>"),
        row(
            "sessions cleanup",
            2,
            "required arguments",
            "--older-than <D>",
        ),
        row(
            "sessions cleanup --yes",
            2,
            "required arguments",
            "--older-than <D>",
        ),
        row(
            "sessions cleanup --older-than soon",
            2,
            "use seconds, or 90s, 30m, 2h, 7d",
            HELP,
        ),
        row("sessions delete", 2, "required arguments", "<SESSION>"),
        row("sessions fork", 2, "required arguments", "<SESSION>"),
        row("sessions fork s --at x", 2, "'x' for '--at <SEQ>'", HELP),
        row("sessions switch", 2, "required arguments", "<SEQ>"),
        row("sessions switch s x", 2, "'x' for '<SEQ>'", HELP),
        row(
            "run --after 3 x",
            2,
            "required arguments",
            "--session <SESSION>",
        ),
        row(
            "run --session s --after 0 x",
            2,
            "expected a whole number, 1 or greater",
            HELP,
        ),
        row(
            "traces events s --since x",
            2,
            "expected a whole number, 0 or greater",
            HELP,
        ),
        row("traces show", 2, "required arguments", "<TRACE>"),
        row("traces messages", 2, "required arguments", "<TRACE>"),
        row("traces events", 2, "required arguments", "<TRACE>"),
        row(
            "traces events s --since x",
            2,
            "'x' for '--since <N>'",
            HELP,
        ),
        row("traces stop", 2, "required arguments", "<TRACE>"),
        row("traces export", 2, "required arguments", "<TRACE>"),
        row("traces export s", 2, "required arguments", "<DIR>"),
        row("usage now", 2, "'now'", HELP),
        row(
            "usage --by month",
            2,
            "'month' for '--by <BY>'",
            "day, model, session",
        ),
        row(
            "usage --since soon",
            2,
            "use seconds, or 90s, 30m, 2h, 7d",
            HELP,
        ),
        row("backup", 2, "required arguments", "<DIR>"),
        row("backup ''", 2, "<DIR>", HELP),
        row("completions", 2, "required arguments", "<SHELL>"),
        row(
            "completions csh",
            2,
            "'csh' for '<SHELL>'",
            "bash, elvish, fish, powershell, zsh",
        ),
        row("config hide", 2, "'hide'", HELP),
    ];
    let world = TestHome::new();
    check(&world, &[], &rows);
    assert!(!world.home().exists(), "nothing was made");
}

#[test]
fn missing_object_is_named_in_the_error() {
    let world = TestHome::new();
    check(
        &world,
        &[],
        &[
            row("sessions show s", 3, "there is no home at", NOTHING_RAN),
            row("sessions delete s", 3, "there is no home at", NOTHING_RAN),
            row("sessions fork s", 3, "there is no home at", NOTHING_RAN),
            row("sessions switch s 3", 3, "there is no home at", NOTHING_RAN),
            row(
                "sessions cleanup --older-than 1d --yes",
                3,
                "there is no home at",
                NOTHING_RAN,
            ),
            row(
                "traces events s --follow",
                3,
                "there is no home at",
                NOTHING_RAN,
            ),
            row("traces stop s", 3, "there is no home at", NOTHING_RAN),
            row("--home elsewhere tree", 3, "elsewhere", NOTHING_RAN),
            row("traces export s out", 3, "there is no home at", NOTHING_RAN),
            row("backup copy", 3, "there is no home at", NOTHING_RAN),
            row(
                "--home none artifacts list",
                3,
                "there is no home at",
                NOTHING_RAN,
            ),
            row("artifacts show x", 3, "there is no home at", NOTHING_RAN),
            row(
                "artifacts put x README.md",
                3,
                "there is no home at",
                NOTHING_RAN,
            ),
            row(
                "artifacts cleanup --yes",
                3,
                "there is no home at",
                NOTHING_RAN,
            ),
            row(
                "run --model offline --attach no.md x",
                3,
                "no.md cannot be read",
                "a file that exists",
            ),
            row(
                "run --model offline --detach --attach no.md x",
                3,
                "no.md cannot be read",
                "a file that exists",
            ),
            row(
                "run --model offline --attach src x",
                2,
                "src is a folder",
                "as an archive",
            ),
            row(
                "tasks list --path no/where",
                3,
                "the folder no/where",
                "a folder that exists",
            ),
            row(
                "tasks cleanup --yes --path no/where",
                3,
                "the folder no/where",
                "a folder that exists",
            ),
            row(
                "demo no/where",
                3,
                "the folder no/where",
                "a folder that exists",
            ),
            row(
                "run --model offline --path no/where x",
                3,
                "the folder no/where",
                "a folder that exists",
            ),
            row(
                "run --detach --model offline --path no/where x",
                3,
                "no/where",
                "a folder that exists",
            ),
            row(
                "chat --model offline --path no/where",
                3,
                "the folder no/where",
                "a folder that exists",
            ),
        ],
    );
    assert!(!world.home().exists(), "nothing was made");
    std::fs::create_dir(world.home()).unwrap();
    check(
        &world,
        &[],
        &[row("sessions show s", 3, "has no database", NOTHING_RAN)],
    );

    world
        .run(&["run", "--model", "offline", "--session", "s", "x"])
        .expect_code(0);
    let sessions = "soong sessions list";
    let traces = "soong traces list";
    check(
        &world,
        &[],
        &[
            row("sessions show no", 3, "there is no session no", sessions),
            row("sessions delete no", 3, "there is no session no", sessions),
            row("sessions fork no", 3, "there is no session no", sessions),
            row(
                "sessions switch no 3",
                3,
                "there is no session no",
                sessions,
            ),
            row(
                "sessions fork s --session s",
                2,
                "session s already exists",
                "soong help",
            ),
            row(
                "sessions fork s --session ../x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row(
                "sessions fork s --at 99",
                2,
                "cannot continue after message 99 of s",
                "soong traces messages s --all",
            ),
            row(
                "sessions switch s 99",
                2,
                "cannot continue after message 99 of s",
                "soong traces messages s --all",
            ),
            row(
                "run --model offline --session s --after 99 x",
                2,
                "cannot continue after message 99 of s",
                "soong help",
            ),
            row(
                "run --model offline --session new --after 3 x",
                2,
                "there is no conversation",
                "soong help",
            ),
            row("sessions show ''", 3, "there is no session", sessions),
            row("traces show no", 3, "there is no trace no", traces),
            row(
                "traces messages no --all",
                3,
                "there is no trace no",
                traces,
            ),
            row("traces events no", 3, "there is no trace no", traces),
            row("traces stop no", 3, "there is no trace no", traces),
            row(
                "run --model offline --trace no x",
                3,
                "there is no trace no",
                traces,
            ),
            row(
                "run --model offline --continue --path ../user x",
                3,
                "the project",
                "--continue",
            ),
            row(
                "chat --model offline --continue --path ../user",
                3,
                "the project",
                "--continue",
            ),
            row(
                "artifacts list --session no",
                3,
                "there is no session no",
                sessions,
            ),
            row(
                "artifacts put x README.md --session no",
                3,
                "there is no session no",
                sessions,
            ),
            row(
                "artifacts cleanup --session no",
                3,
                "there is no session no",
                sessions,
            ),
            row(
                "artifacts cleanup --yes --session no",
                3,
                "there is no session no",
                sessions,
            ),
            row(
                "artifacts show no",
                3,
                "there is no artifact \"no\"",
                "soong artifacts list",
            ),
            row(
                "artifacts put x no.md",
                3,
                "no.md cannot be read",
                "a file that exists",
            ),
            row(
                "artifacts export x -o x.pdf",
                2,
                "does not end in .docx",
                "soong artifacts get x -o FILE",
            ),
            row(
                "run --model offline --attach README.md --session ../x x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row("traces export no out", 3, "there is no trace no", traces),
            row(
                "traces export s src",
                4,
                "the folder src is not empty",
                "an empty folder",
            ),
            row(
                "backup src",
                4,
                "the folder src is not empty",
                "an empty folder",
            ),
            row(
                "backup README.md",
                4,
                "README.md is not a folder",
                "an empty folder",
            ),
            row(
                "backup ../home/copy",
                2,
                "is inside the home to be copied",
                "soong help",
            ),
            row(
                "traces stop s",
                4,
                "trace s has no active run (nothing_running)",
                "nothing to stop",
            ),
            row(
                "run --model offline --trace s",
                2,
                "session s ends with an answer",
                "soong help",
            ),
            row(
                "run --model offline --session ../x x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row(
                "run --model offline --detach --session ../x x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row(
                "run --model offline --agent-type nobody x",
                2,
                "no preset \"nobody\"; available: analyst",
                "soong help",
            ),
        ],
    );
}

#[test]
fn run_that_cannot_start_names_what_is_missing() {
    let world = TestHome::new();
    let lacks = "OPENAI_API_KEY is not set";
    check(
        &world,
        &[],
        &[
            row("run x", 2, lacks, MODEL),
            row("run --detach x", 2, lacks, MODEL),
            row(
                "run --model gpt-5 x",
                2,
                "provider \"openai-responses\" (model gpt-5)",
                MODEL,
            ),
            row("chat", 2, lacks, MODEL),
            row("run --model offline ''", 2, "the prompt is empty", PROMPT),
            row("run --model offline", 2, "the prompt is empty", PROMPT),
            row("run --model offline -", 2, "the prompt is empty", PROMPT),
        ],
    );
    assert!(!world.home().exists(), "nothing was made");
    for (variables, code, what, advice) in [
        (
            [("OPENAI_API_KEY", "k\nk")],
            5,
            "the key contains invalid characters; check the environment variable OPENAI_API_KEY",
            "",
        ),
        (
            [("OPENAI_BASE_URL", "ftp://x")],
            2,
            "OPENAI_BASE_URL) must be an http or https URL",
            "soong config show",
        ),
    ] {
        check(&world, &variables, &[row("run x", code, what, advice)]);
    }
    check(
        &world,
        &[("SOONG_AGENT_HOME", ""), ("HOME", "")],
        &[
            row(
                "tree",
                2,
                "neither HOME nor SOONG_AGENT_HOME is set",
                "--home DIR",
            ),
            row(
                "run --model offline x",
                2,
                "no home directory",
                "--home DIR",
            ),
            row("init", 2, "no home directory", "--home DIR"),
            row("config show", 2, "no home directory", "--home DIR"),
        ],
    );
}

#[test]
fn non_unicode_project_path_is_rejected() {
    use std::os::unix::ffi::OsStrExt;
    let world = TestHome::new();
    let folder = world.project().join(std::ffi::OsStr::from_bytes(b"p\xff"));
    std::fs::create_dir(&folder).unwrap();
    let output = world
        .command(&["run", "--path"])
        .arg(&folder)
        .arg("hello")
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("cannot be a project: its path is not valid Unicode"),
        "{stderr}"
    );
    assert!(
        stderr.contains("--path DIR") && !stderr.contains("defect"),
        "{stderr}"
    );
}

#[test]
fn config_error_names_file_line_and_key() {
    let world = TestHome::new();
    let missing: Vec<String> = [
        "run x",
        "chat",
        "demo",
        "tree",
        "traces list",
        "config show",
        "presets list",
    ]
    .into_iter()
    .chain(["tools list", "models list"])
    .map(|line| format!("--config missing.toml {line}"))
    .collect();
    let rows: Vec<Row<'_>> = missing
        .iter()
        .map(|line| row(line, 2, "missing.toml cannot be read", "Give a file"))
        .collect();
    check(&world, &[], &rows);
    assert!(!world.home().exists(), "nothing was made");
    for (text, what) in [
        ("[model\n", ":1: unclosed table"),
        ("\n[nothing]\n", ":2: `nothing`: unknown field"),
        (
            "[runtime]\n\nmax_turn = 3\n",
            ":3: `runtime.max_turn`: unknown field",
        ),
        (
            "[runtime]\nmax_turns = 0\n",
            ":2: `runtime.max_turns`: must be at least 1",
        ),
        ("[model]\nname = 7\n", ":2: `model.name`: invalid type"),
        (
            "[model]\nprovider = \"x\"\n",
            ":2: `model.provider`: unknown variant `x`",
        ),
        (
            "[model]\napi_key_env = \"sk-0123456789\"\n",
            ":2: `model.api_key_env`: must be the name",
        ),
        (
            "[storage]\ndurability = \"some\"\n",
            ":2: `storage.durability`",
        ),
        ("[agents]\nmax_depth = -1\n", ":2: `agents.max_depth`"),
        (
            "[prices.m]\nprompt_per_mtok = \"much\"\n",
            ":2: `prices.m.prompt_per_mtok`: \"much\" is not a valid amount",
        ),
        (
            "[prices.m]\nprompt_per_mtok = \"1\"\n",
            ":1: `prices.m`: missing field",
        ),
    ] {
        configure(&world, text);
        let what = format!("config.toml{what}");
        let lines = [
            "run --model offline x",
            "demo --home ../home",
            "config show",
            "models list",
        ];
        check(
            &world,
            &[],
            &lines.map(|line| row(line, 2, &what, "Correct that line")),
        );
    }
    configure(
        &world,
        "[presets.p]\nmodel = \"small\"\n[model_profiles.small]\napi_key_env = \"OTHER\"\n",
    );
    check(
        &world,
        &[],
        &[row(
            "run --model offline x",
            2,
            "environment variable OTHER",
            "configuration",
        )],
    );
    std::fs::write(world.home().join("config.toml"), b"\xff\xfe").unwrap();
    check(
        &world,
        &[],
        &[row(
            "run --model offline x",
            2,
            "config.toml cannot be read",
            "soong init",
        )],
    );
}

#[test]
fn unusable_home_is_named_in_the_error() {
    let world = TestHome::new();
    std::fs::write(world.home(), "no folder").unwrap();
    check(
        &world,
        &[],
        &[
            row("tree", 2, "is a file, not a folder", "--home DIR"),
            row(
                "run --model offline x",
                2,
                "is a file, not a folder",
                "--home DIR",
            ),
            row(
                "run --model offline --detach x",
                2,
                "is a file, not a folder",
                "--home DIR",
            ),
            row(
                "init --full",
                1,
                "config.toml cannot be written",
                "--home DIR",
            ),
        ],
    );
    std::fs::remove_file(world.home()).unwrap();
    world.run(&["init", "--full"]).expect_code(0);
    check(
        &world,
        &[],
        &[row(
            "init",
            4,
            "config.toml already exists",
            "soong init --force",
        )],
    );
    check(
        &world,
        &[],
        &[row(
            "init --full --config ../home/config.toml/x",
            1,
            "cannot be written",
            "--config FILE",
        )],
    );
    std::fs::write(
        world.home().join("sessions.sqlite"),
        "no database".repeat(1_000),
    )
    .unwrap();
    let what = "is not a database that soong can read";
    check(
        &world,
        &[],
        &[
            row("tree", 1, what, "the home"),
            row("run --model offline x", 1, what, "the home"),
            row("chat --model offline", 1, what, "the home"),
            row(
                "run --detach --model offline x",
                1,
                "the background process did not start",
                "host.log",
            ),
        ],
    );
}

#[test]
fn owned_home_rejects_conflicting_commands() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let environment = [("OPENAI_BASE_URL", service.address.as_str())];
    let mut owner = begin(
        &world,
        &environment,
        &["run", "--session", "s", "Divide the work"],
    );
    let mut request = service.next();
    request.call("agent", &json!({ "task": ["left", "right"] }));
    request.end();
    let children = service.take(2);
    let traces = world
        .run(&["traces", "list", "--json"])
        .expect_code(0)
        .json();
    let child = traces
        .as_array()
        .unwrap()
        .iter()
        .find(|trace| trace["task"] == "left")
        .unwrap();
    let child = child["trace_id"].as_str().unwrap();
    let resumes = format!("run --trace {child}");
    let home = world.home().display().to_string();
    let demo = format!("demo --home {home}");
    let owned = format!("(pid {}) owns the home", owner.child.id());
    check(
        &world,
        &[],
        &[
            row(&demo, 4, &owned, "--home DIR"),
            row(
                "run --trace s",
                4,
                "session s has an unfinished run",
                "soong traces stop",
            ),
            row(&resumes, 4, "unfinished run", "soong traces stop"),
            row("sessions switch s 2", 4, "unfinished run", "soong"),
            row(
                "sessions fork s --session s",
                2,
                "session s already exists",
                "soong help",
            ),
            row(
                "sessions fork no",
                3,
                "there is no session no",
                "soong sessions list",
            ),
            row(
                "sessions show no",
                3,
                "there is no session no",
                "soong sessions list",
            ),
            row(
                "traces show no",
                3,
                "there is no trace no",
                "soong traces list",
            ),
            row(
                "traces stop no",
                3,
                "there is no trace no",
                "soong traces list",
            ),
            row(
                "traces events no --follow",
                3,
                "there is no trace no",
                "soong traces list",
            ),
            row(
                "traces export no out",
                3,
                "there is no trace no",
                "soong traces list",
            ),
            row(
                "run --trace no x",
                3,
                "there is no trace no",
                "soong traces list",
            ),
            row(
                "run --session ../x x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row(
                "run --attach README.md --session ../x x",
                2,
                "\"../x\" is not a valid id",
                "soong help",
            ),
            row(
                "artifacts list --session no",
                3,
                "there is no session no",
                "soong sessions list",
            ),
            row(
                "artifacts versions no",
                3,
                "there is no artifact \"no\"",
                "soong artifacts list",
            ),
            row(
                "artifacts edit no --old a --new b",
                3,
                "there is no artifact \"no\"",
                "soong artifacts list",
            ),
            row(
                "artifacts put ../x README.md",
                2,
                "\"../x\" cannot name an artifact",
                "soong help",
            ),
            row(
                "run --agent-type nobody x",
                2,
                "no preset \"nobody\"",
                "soong help",
            ),
            row(
                "run --detach --agent-type nobody x",
                2,
                "no preset \"nobody\"",
                "soong help",
            ),
            row(
                "run --continue --path ../user x",
                3,
                "the project",
                "--continue",
            ),
        ],
    );
    world.run(&["traces", "stop", child]).expect_code(0);
    let what = format!("trace {child}");
    let stop = format!("traces stop {child}");
    check(&world, &[], &[row(&stop, 4, &what, "soong tree")]);

    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    drop(children);
    check(
        &world,
        &[],
        &[row(
            "traces events s --follow --since 9999",
            3,
            "trace s has no event 9999",
            "Omit --since",
        )],
    );
    // No process executes the run, but it can still be stopped. After that there is nothing more to
    // stop.
    world
        .run(&["traces", "stop", "s"])
        .expect_code(0)
        .expect_stderr(&[]);
    check(
        &world,
        &[],
        &[row("traces stop s", 4, "trace s", "nothing to stop")],
    );
}

#[test]
fn owner_without_a_socket_blocks_other_owners() {
    let world = TestHome::new();
    let threads = tokio::runtime::Runtime::new().unwrap();
    let owner = soong::Runtime::builder()
        .home(world.home())
        .project_dir(world.project())
        .offline();
    let owner = threads.block_on(owner.build()).unwrap();
    let what = format!("(pid {}) owns the home", std::process::id());
    let demo = format!("demo --home {}", world.home().display());
    check(
        &world,
        &[],
        &[
            row(
                "run --model offline x",
                4,
                &what,
                "another home with --home DIR",
            ),
            row(
                "chat --model offline",
                4,
                "home_locked",
                "another home with --home DIR",
            ),
            row(&demo, 4, "home_locked", "another home with --home DIR"),
        ],
    );
    threads.block_on(owner.close());
}

/// Checks a run that starts and then fails: without `--json`, its whole output is on standard
/// error.
#[track_caller]
fn check_run(world: &TestHome, variables: &[(&str, &str)], row: &Row<'_>) {
    let Row {
        line,
        code,
        what,
        advice,
    } = row;
    let ran = begin(world, variables, &words(line)).finish();
    assert_eq!(
        ran.code,
        Some(*code),
        "`soong {line}`: {}{}",
        ran.out,
        ran.err
    );
    check_words(line, &ran, what, advice);
    assert_eq!(
        ran.out, "",
        "there is no answer: nothing is on standard output"
    );
    let json = begin(world, variables, &[&["--json"], &words(line)[..]].concat()).finish();
    assert_eq!(
        json.code,
        Some(*code),
        "`soong --json {line}`: {}{}",
        json.out,
        json.err
    );
    check_words(line, &json, what, advice);
    assert!(json.err.starts_with("error: "), "{}", json.err);
    let result = json.json_lines().pop().unwrap();
    assert!(
        result["result"]["status"] != "completed" && result["result"]["error"]["code"].is_string(),
        "{result}"
    );
}

#[test]
fn truncated_answer_is_printed_with_how_to_continue() {
    let world = TestHome::new();
    let half = json!({ "content": "Half an answ" });
    let reply = Reply::sse([delta(half, json!(null)), delta(json!({}), json!("length"))]);
    let service = ScriptedServer::start(move |_| reply.clone());
    let mut command = world.command(&["run", "x"]);
    let run = command
        .env("OPENAI_BASE_URL", service.base_url())
        .env("OPENAI_API_KEY", "k");
    let ran = KillOnDrop {
        child: run.spawn().unwrap(),
    }
    .finish()
    .expect_code(1);
    assert_eq!(ran.out, "Half an answ\n");
    ran.expect_stderr(&[
        "max_output_tokens",
        "Raise model.max_output_tokens",
        "soong run --continue",
    ]);
    assert!(!ran.err.contains("base_url"), "{}", ran.err);
}

#[test]
fn failed_run_reports_cause_and_advice() {
    let world = TestHome::new();
    let once = "[model]\nretry = { max_attempts = 1 }\n";
    configure(&world, once);
    let refused = |status: u16, message: &str, code: &str| {
        Reply::status(
            status,
            json!({ "error": { "message": message, "code": code } }).to_string(),
        )
    };
    for (reply, row) in [
        (
            refused(401, "Incorrect API key", ""),
            row(
                "run x",
                5,
                "Incorrect API key; check the key in the environment variable OPENAI_API_KEY",
                "",
            ),
        ),
        (
            refused(404, "no such model", ""),
            row(
                "run x",
                1,
                "no such model; check `model.name`, `model.base_url` and `model.provider`",
                "",
            ),
        ),
        (
            refused(429, "slow down", ""),
            row("run x", 5, "provider_rate_limited", "model.max_concurrency"),
        ),
        (
            refused(429, "no money", "insufficient_quota"),
            row("run x", 1, "no money; the account has no credit left", ""),
        ),
        (
            refused(500, "oh", ""),
            row("run x", 5, "answered with HTTP 500: oh", ""),
        ),
        (
            refused(400, "top_k is not a number", ""),
            row(
                "run x",
                1,
                "answered with HTTP 400: top_k is not a number",
                "",
            ),
        ),
        (
            refused(400, "too many tokens", "context_length_exceeded"),
            row("run x", 1, "too many tokens; send less", ""),
        ),
        (
            Reply::status(200, "<html>"),
            row(
                "run x",
                5,
                "<html>; check `model.base_url`: it returned a web page",
                "",
            ),
        ),
        (
            Reply::calls(&[("1", "list_files", "{}")]),
            row(
                "run --max-iterations 1 x",
                1,
                "budget_exceeded",
                "--max-iterations",
            ),
        ),
    ] {
        let service = ScriptedServer::start(move |_| reply.clone());
        let variables = [
            ("OPENAI_BASE_URL", service.base_url()),
            ("OPENAI_API_KEY", "k".to_owned()),
        ];
        check_run(
            &world,
            &variables
                .each_ref()
                .map(|(name, value)| (*name, value.as_str())),
            &row,
        );
    }
    let service = HangingModelService::new();
    let variables = [("OPENAI_BASE_URL", service.address.as_str())];
    configure(&world, &format!("{once}timeout_ms = 300\n"));
    check_run(
        &world,
        &variables,
        &row(
            "run x",
            5,
            "sent no data for 1500 ms; raise `model.first_byte_timeout_ms`",
            "",
        ),
    );
    configure(&world, "");
    check_run(
        &world,
        &variables,
        &row(
            "run --timeout 1 x",
            1,
            "the run exceeded its time limit",
            "--timeout",
        ),
    );
}

#[test]
fn ended_run_reports_who_ended_it() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let variables = [("OPENAI_BASE_URL", service.address.as_str())];
    let started = || begin(&world, &variables, &["run", "--session", "s", "x"]);
    let ended = |running: KillOnDrop, code: i32, what: &str, advice: &str| {
        let ran = running.finish();
        assert_eq!(ran.code, Some(code), "{}{}", ran.out, ran.err);
        check_words("run x", &ran, what, advice);
    };
    let running = started();
    let request = service.next();
    running.interrupt();
    ended(
        running,
        130,
        "the run was cancelled",
        "soong run --continue",
    );
    drop(request);

    let running = started();
    let request = service.next();
    world.run(&["traces", "stop", "s"]).expect_code(0);
    ended(running, 1, "the run was cancelled by another client", "");
    drop(request);

    // A run in another terminal, whose owner is killed.
    let mut owner = begin(&world, &variables, &["run", "--session", "o", "x"]);
    let of_owner = service.next();
    let second = started();
    let of_second = service.next();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    let ran = second.finish();
    assert!(
        matches!(ran.code, Some(1 | 4)),
        "{:?} {}",
        ran.code,
        ran.err
    );
    assert!(ran.err.contains("error: the process that "), "{}", ran.err);
    drop((of_owner, of_second));
}
