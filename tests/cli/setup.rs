//! Setup and diagnostics: the commands that show the configuration, check the installation and
//! complete the command line, through the real binary.

use std::{
    net::TcpListener,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use crate::process::{HangingModelService, KillOnDrop, ProcessOutput, TIMEOUT, TestHome};
use crate::scripted::{Reply, ScriptedServer};
use serde_json::Value;

/// Writes the home's configuration.
fn configure(world: &TestHome, text: &str) {
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(world.home().join("config.toml"), text).unwrap();
}

#[test]
fn config_show_prints_values_with_origin_but_no_secret() {
    let world = TestHome::new();
    let fresh = world.run(&["config", "show"]).expect_code(0).out;
    for part in [
        "environment SOONG_AGENT_HOME",
        "none (all settings have their defaults)",
        "model.name = \"gpt-4.1-mini\"",
    ] {
        assert!(fresh.contains(part), "{part:?} is missing in {fresh}");
    }
    assert!(!world.home().exists(), "looking makes nothing");

    let text = "[model]\n\nname = \"big\"\napi_key_env = \"MINE\"\n[model_profiles.small]\nname = \"little\"\n\
                [prices.\"gpt-4.1\"]\nprompt_per_mtok = \"1\"\ncompletion_per_mtok = \"2\"\n\
                [presets.reviewer]\ninstructions = \"a\\n\\u001b[31mb\"\n";
    configure(&world, text);
    let mut command = world.command(&["config", "show"]);
    let shown = command
        .env("MINE", "s3cret")
        .env("OPENAI_BASE_URL", "http://me:s3cret@server/v1")
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let file = world.home().join("config.toml").display().to_string();
    for (left, right) in [
        ("model.name = \"big\"", format!("{file}:3")),
        ("model.api_key_env = \"MINE\" (set)", format!("{file}:4")),
        (
            "model_profiles.small.name = \"little\"",
            format!("{file}:6"),
        ),
        (
            "prices.\"gpt-4.1\".prompt_per_mtok = \"1.00\"",
            format!("{file}:8"),
        ),
        (
            "model.base_url = \"http://[hidden]@server/v1\"",
            "environment OPENAI_BASE_URL".to_owned(),
        ),
        ("model.temperature = (not set)", "default".to_owned()),
        ("storage.durability = \"full\"", "default".to_owned()),
    ] {
        let line = shown
            .lines()
            .find(|line| line.starts_with(left))
            .unwrap_or_else(|| panic!("{left} in {shown}"));
        assert!(line.ends_with(&right), "{right} in {line}");
    }
    assert!(
        !shown.contains("s3cret") && !shown.contains('\u{1b}'),
        "{shown}"
    );

    let json = world
        .run(&["config", "show", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(json["home"]["origin"], "environment SOONG_AGENT_HOME");
    assert_eq!(
        (&json["file"]["value"], &json["file"]["origin"]),
        (&file.as_str().into(), &"home".into())
    );
    let key = |key: &str| {
        let settings = json["settings"].as_array().unwrap();
        settings
            .iter()
            .find(|setting| setting["key"] == key)
            .unwrap_or_else(|| panic!("{key} in {json}"))
            .clone()
    };
    assert_eq!(
        (&key("model.name")["origin"], &key("model.name")["line"]),
        (&"file".into(), &3.into())
    );
    assert_eq!(key("model.api_key_env")["is_set"], false);
    assert_eq!(
        (
            &key("model.temperature")["value"],
            key("model.temperature").get("line")
        ),
        (&Value::Null, None)
    );

    let named = world.dir.path().join("named.toml").display().to_string();
    std::fs::write(&named, "[model]\nname = \"named\"\n").unwrap();
    let json = world
        .run(&[
            "config",
            "show",
            "--json",
            "--config",
            &named,
            "--home",
            "elsewhere",
        ])
        .expect_code(0)
        .json();
    assert_eq!(
        (&json["home"]["origin"], &json["file"]["origin"]),
        (&"--home".into(), &"--config".into())
    );

    configure(&world, "[model]\napi_key_env = \"sk-s3cret\"\n");
    let refused = world.run(&["config", "show"]).expect_code(2);
    refused.expect_stderr(&["config.toml:2", "model.api_key_env"]);
    assert!(!refused.err.contains("s3cret"), "{}", refused.err);
    world.run(&["config"]).expect_code(2);
    world.run(&["config", "show", "nothing"]).expect_code(2);
}

#[test]
fn built_in_and_custom_presets_tools_and_models_are_listed() {
    let world = TestHome::new();
    for (what, parts) in [
        ("presets", &["default", "orchestrator", "built in"][..]),
        ("tools", &["read", "list_files", "agent", "create_artifact"]),
        (
            "models",
            &[
                "gpt-4.1-mini",
                "OPENAI_API_KEY (not set)",
                "https://api.openai.com/v1",
                "offline",
            ],
        ),
    ] {
        let out = world.run(&[what, "list"]).expect_code(0).out;
        assert!(
            parts.iter().all(|part| out.contains(part)),
            "{parts:?} in {out}"
        );
        world.run(&[what]).expect_code(2);
    }
    assert!(!world.home().exists(), "looking makes nothing");
    configure(
        &world,
        "[model_profiles.small]\nname = \"little\"\nbase_url = \"http://127.0.0.1:1/v1\"\n\
         [presets.reviewer]\ndescription = \"Reviews.\"\nallowed_tools = [\"read\", \"grep\"]\nmodel = \"small\"\n\
         [prices.little]\nprompt_per_mtok = \"0.40\"\ncompletion_per_mtok = \"1.60\"\n\
         [tools]\ndisabled = [\"grep\"]\n",
    );
    let all = |what: &str| {
        world
            .run(&[what, "list", "--json"])
            .expect_code(0)
            .json()
            .as_array()
            .unwrap()
            .clone()
    };
    let reviewer = all("presets")
        .into_iter()
        .find(|preset| preset["name"] == "reviewer")
        .unwrap();
    assert_eq!(
        (&reviewer["origin"], &reviewer["tools"]),
        (&"config".into(), &serde_json::json!(["read"]))
    );
    let disabled: Vec<Value> = all("tools")
        .into_iter()
        .filter(|tool| tool["disabled"] == true)
        .collect();
    assert_eq!((disabled.len(), &disabled[0]["name"]), (1, &"grep".into()));
    assert_eq!(disabled[0]["parameters"]["type"], "object");
    let small = all("models")
        .into_iter()
        .find(|model| model["profile"] == "small")
        .unwrap();
    assert_eq!(
        (&small["name"], &small["server"]["is_usable"]),
        (&"little".into(), &true.into())
    );
    assert_eq!(small["prices"]["prompt_per_mtok"], "0.40");
}

/// Runs a script in a shell whose `PATH` contains the binary. Returns `None` and prints a note if
/// the shell is not installed.
fn shell(world: &TestHome, name: &str, args: &[&str]) -> Option<ProcessOutput> {
    let bin = Path::new(env!("CARGO_BIN_EXE_soong"))
        .parent()
        .unwrap()
        .display();
    let path = format!("{bin}:{}", std::env::var("PATH").unwrap());
    let mut command = Command::new(name);
    command
        .args(args)
        .env("HOME", world.dir.path().join("user"))
        .env("PATH", path)
        .current_dir(world.project());
    match command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => Some(KillOnDrop { child }.finish()),
        Err(error) => {
            println!("skipped: {name} cannot be started here ({error})");
            None
        }
    }
}

#[test]
fn completion_script_works_in_every_shell() {
    let world = TestHome::new();
    for (name, file, script) in [
        (
            "bash",
            "soong.bash",
            "source FILE; complete -p soong | grep -q _soong || exit 1; COMP_WORDS=(soong tr); COMP_CWORD=1; COMP_TYPE=9; \
             _clap_complete_soong soong tr soong; printf '%s\\n' \"${COMPREPLY[@]}\"",
        ),
        (
            "zsh",
            "_soong",
            "zsh -n FILE && fpath=(${$(print FILE):h} $fpath) && autoload -U compinit && compinit -u -D && \
             autoload +X _soong && [[ $_comps[soong] == _soong ]] && \
             SOONG_COMPLETE=zsh _CLAP_IFS=$'\\n' _CLAP_COMPLETE_INDEX=1 soong -- soong tr",
        ),
        (
            "fish",
            "soong.fish",
            "fish --no-execute FILE; and source FILE; and complete -C 'soong tr'",
        ),
    ] {
        let written = world.run(&["completions", name]).expect_code(0).out;
        let path = world.dir.path().join(file);
        std::fs::write(&path, written).unwrap();
        let script = script.replace("FILE", &path.display().to_string());
        let bare: &[&str] = match name {
            "bash" => &["--noprofile", "--norc", "-c"],
            "zsh" => &["-f", "-c"],
            _ => &["--no-config", "-c"],
        };
        let Some(ran) = shell(&world, name, &[bare, &[script.as_str()]].concat()) else {
            continue;
        };
        let ran = ran.expect_code(0);
        assert!(
            ran.out.lines().any(|line| line.starts_with("traces")),
            "{name}: {} {}",
            ran.out,
            ran.err
        );
        assert_eq!(ran.err, "", "{name}");
    }
    for name in ["elvish", "powershell"] {
        assert!(
            world
                .run(&["completions", name])
                .expect_code(0)
                .out
                .contains("SOONG_COMPLETE"),
            "{name}"
        );
    }
    world.run(&["completions"]).expect_code(2);
    world.run(&["completions", "csh"]).expect_code(2);
    assert!(!world.home().exists());
}

/// Returns the completions of the last word of a command line.
fn completed(world: &TestHome, line: &[&str]) -> Vec<String> {
    let index = (line.len() - 1).to_string();
    let mut command = world.command(&[]);
    command
        .arg("--")
        .args(line)
        .env("SOONG_COMPLETE", "bash")
        .env("_CLAP_COMPLETE_INDEX", index)
        .env("_CLAP_IFS", "\n");
    let ran = KillOnDrop {
        child: command.spawn().unwrap(),
    }
    .finish()
    .expect_code(0);
    assert_eq!(ran.err, "");
    ran.out.lines().map(str::to_owned).collect()
}

#[test]
fn ids_and_configured_names_are_completed() {
    let world = TestHome::new();
    assert!(
        completed(&world, &["soong", "traces", "show", "se"]).is_empty(),
        "there is no home at"
    );
    std::fs::write(world.project().join("notes.md"), "notes").unwrap();
    for session in ["session-a", "other"] {
        world
            .run(&["run", "--model", "offline", "--session", session, "Begin"])
            .expect_code(0);
        world
            .run(&[
                "artifacts",
                "put",
                "--session",
                session,
                "report.md",
                "notes.md",
            ])
            .expect_code(0);
    }
    let home = world.home().display().to_string();
    for (line, want) in [
        (&["soong", "sessions", "show", "se"][..], "session-a"),
        (
            &["soong", "--home", &home, "traces", "show", "oth"],
            "other",
        ),
        (&["soong", "run", "--session", "se"], "session-a"),
        (&["soong", "chat", "--continue=se"], "--continue=session-a"),
        (&["soong", "permissions", "mode", "plan", "se"], "session-a"),
        (
            &["soong", "artifacts", "get", "--session", "other", "re"],
            "report.md",
        ),
        (
            &["soong", "artifacts", "get", "--session", "@1", "re"],
            "report.md",
        ),
        (&["soong", "run", "--agent-type", "orch"], "orchestrator"),
        (&["soong", "chat", "--model", "def"], "default"),
        (&["soong", "run", "--allow", "glo"], "glob"),
    ] {
        assert_eq!(completed(&world, line), [want], "{line:?}");
    }
    std::fs::write(world.home().join("config.toml"), "[model").unwrap();
    assert!(
        completed(&world, &["soong", "run", "--model", "def"]).is_empty(),
        "the configuration cannot be read"
    );
}

#[test]
fn man_pages_are_written_for_every_command() {
    let world = TestHome::new();
    world.run(&["man", "pages/man1"]).expect_code(0);
    let page = |name: &str| {
        std::fs::read_to_string(world.project().join("pages/man1").join(name)).unwrap()
    };
    assert!(
        page("soong.1").contains("soong\\-traces"),
        "{}",
        page("soong.1")
    );
    assert!(page("soong-traces-export.1").contains("meta.json"));
    std::fs::write(world.project().join("file"), "").unwrap();
    world
        .run(&["man", "file"])
        .expect_code(1)
        .expect_stderr(&["file: "]);
}

#[test]
fn full_disk_is_an_error_and_a_closed_pipe_is_not() {
    let world = TestHome::new();
    for args in [
        &["completions", "zsh"][..],
        &["config", "show"],
        &["tools", "list", "--json"],
        &["doctor"],
    ] {
        let mut unread = KillOnDrop {
            child: world
                .command(args)
                .env("OPENAI_API_KEY", "k")
                .spawn()
                .unwrap(),
        };
        drop(unread.child.stdout.take());
        assert_eq!(unread.finish().expect_code(0).err, "", "{args:?}");
        let Ok(full) = std::fs::File::options().write(true).open("/dev/full") else {
            continue;
        };
        let child = world.command(args).stdout(full).spawn().unwrap();
        KillOnDrop { child }
            .finish()
            .expect_code(1)
            .expect_stderr(&["standard output cannot be written"]);
    }
}

/// Returns the sorted names of the files in a folder, and their concatenated contents.
fn files(folder: &Path) -> (Vec<String>, String) {
    let entries = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap());
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    names.sort();
    let text = names
        .iter()
        .map(|name| std::fs::read_to_string(folder.join(name)).unwrap())
        .collect();
    (names, text)
}

#[test]
fn owner_rotates_daily_logs_and_logs_no_key() {
    let world = TestHome::new();
    let logs = world.home().join("logs");
    world
        .run(&["run", "--model", "offline", "--path", "nowhere", "x"])
        .expect_code(3);
    assert!(
        !world.home().exists(),
        "a command that is refused leaves nothing behind"
    );
    assert_eq!(
        world
            .run(&["run", "--model", "offline", "x"])
            .expect_code(0)
            .err
            .matches("INFO")
            .count(),
        0
    );
    let (names, text) = files(&logs);
    assert!(
        names.len() == 1 && names[0].starts_with("soong.") && names[0].ends_with(".log"),
        "{names:?}"
    );
    for part in ["home opened", "run accepted", "run ended", "home closed"] {
        assert!(text.contains(part), "{part:?} is missing in {text}");
    }
    world.run(&["traces", "list"]).expect_code(0);
    assert_eq!(files(&logs).1, text, "a command that reads writes no log");

    for day in 1..=9 {
        std::fs::write(logs.join(format!("soong.2020-01-0{day}.log")), "old").unwrap();
    }
    let service = HangingModelService::new();
    let mut command = world.command(&["-vv", "run", "--timeout", "1", "Wait for me"]);
    command
        .env("OPENAI_BASE_URL", &service.address)
        .env("OPENAI_API_KEY", "sk-s3cret-0123456789");
    let ran = KillOnDrop {
        child: command.spawn().unwrap(),
    }
    .finish()
    .expect_code(1);
    ran.expect_stderr(&["INFO", "home closed"]);
    let (names, text) = files(&logs);
    assert!(names.len() <= 7, "{names:?}");
    assert!(
        !ran.err.contains("s3cret") && !text.contains("s3cret"),
        "{}",
        ran.err
    );

    std::fs::remove_dir_all(&logs).unwrap();
    std::fs::write(&logs, "in the way").unwrap();
    let ran = world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
    assert!(!ran.err.contains("rror"), "{}", ran.err);
}

#[test]
fn named_pipe_instead_of_a_file_is_rejected_without_waiting() {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
    let pipe = |path: PathBuf| {
        let _ = std::fs::remove_file(&path);
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &path,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        path.to_str().unwrap().to_owned()
    };
    let named = pipe(world.project().join("pipe"));
    let refused = "not a regular file";
    world
        .run(&["run", "--model", "offline", "--config", &named, "x"])
        .expect_code(2)
        .expect_stderr(&["pipe", refused]);
    world
        .run(&["run", "--model", "offline", "--output-schema", &named, "x"])
        .expect_code(2)
        .expect_stderr(&["pipe", refused]);
    let config = pipe(world.home().join("config.toml"));
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(2)
        .expect_stderr(&[&config, refused]);
    std::fs::remove_file(config).unwrap();
    let database = pipe(world.home().join("sessions.sqlite"));
    for args in [
        &["run", "--model", "offline", "x"][..],
        &["sessions", "list"],
        &["serve", "--addr", "127.0.0.1:0"],
    ] {
        world.run(args).expect_code(1).expect_stderr(&[
            &database,
            "is a pipe",
            "move it to another folder",
        ]);
    }
    let output = world.run(&["doctor"]).expect_code(1).out;
    assert!(output.contains("is a pipe"), "{output}");
}

#[test]
fn empty_database_is_rejected_if_the_home_has_history() {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
    let database = world.home().join("sessions.sqlite");
    std::fs::write(&database, "").unwrap();
    std::fs::create_dir_all(world.home().join("sessions")).unwrap();
    for args in [
        &["run", "--model", "offline", "x"][..],
        &["sessions", "list"],
    ] {
        world
            .run(args)
            .expect_code(1)
            .expect_stderr(&["sessions.sqlite is empty", "restore a backup"]);
    }
    assert_eq!(
        database.metadata().unwrap().len(),
        0,
        "it is was not changed"
    );
    // Without other signs of earlier sessions, an empty file counts as a database that was being
    // created.
    std::fs::remove_dir_all(world.home().join("sessions")).unwrap();
    for log in ["sessions.sqlite-wal", "sessions.sqlite-shm"] {
        let _ = std::fs::remove_file(world.home().join(log));
    }
    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
}

/// Runs `doctor` with these variables in addition to the world's environment.
#[track_caller]
fn doctor(world: &TestHome, args: &[&str], variables: &[(&str, &str)], code: i32) -> ProcessOutput {
    let mut command = world.command(&[&["doctor"], args].concat());
    command.envs(variables.iter().copied());
    KillOnDrop {
        child: command.spawn().unwrap(),
    }
    .finish()
    .expect_code(code)
}

/// Returns a check as `status finding advice`.
#[track_caller]
fn check(json: &Value, name: &str) -> String {
    let checks = json["checks"].as_array().unwrap();
    let check = checks
        .iter()
        .find(|check| check["name"] == name)
        .unwrap_or_else(|| panic!("{name} in {json}"));
    let word = |field: &str| check[field].as_str().unwrap_or_default();
    format!("{} {} {}", word("status"), word("finding"), word("advice"))
}

const KEY: [(&str, &str); 1] = [("OPENAI_API_KEY", "sk-s3cret-0123456789")];

#[test]
fn doctor_warns_of_secrets_too_short_to_redact() {
    let world = TestHome::new();
    let json = doctor(&world, &["--json"], &KEY, 0).json();
    assert!(check(&json, "secrets").starts_with("ok"), "{json}");
    let json = doctor(
        &world,
        &["--json"],
        &[KEY[0], ("SERVICE_TOKEN", "s3cret")],
        0,
    )
    .json();
    let result = check(&json, "secrets");
    assert!(
        result.starts_with("warning")
            && result.contains("SERVICE_TOKEN")
            && !result.contains("s3cret"),
        "{result}"
    );
}

#[test]
fn doctor_reports_a_healthy_home_and_creates_nothing() {
    let world = TestHome::new();
    let json = doctor(&world, &["--json"], &KEY, 0).json();
    assert_eq!(json["broken"], 0);
    assert!(
        check(&json, "home").contains("it is created on first use"),
        "{json}"
    );
    assert!(check(&json, "config").starts_with("ok"), "{json}");
    assert!(!world.home().exists());

    world
        .run(&["run", "--model", "offline", "x"])
        .expect_code(0);
    std::fs::set_permissions(world.home(), std::fs::Permissions::from_mode(0o700)).unwrap();
    let before = std::fs::read(world.home().join("sessions.sqlite")).unwrap();
    let output = doctor(&world, &[], &KEY, 0).out;
    assert_eq!(
        std::fs::read(world.home().join("sessions.sqlite")).unwrap(),
        before
    );
    let mut lines = output.lines();
    let is_fine = |line: &str| {
        ["ok  ", "partly   confinement", "     "]
            .iter()
            .any(|start| line.starts_with(start))
    };
    assert!(
        lines
            .by_ref()
            .take_while(|line| !line.is_empty())
            .all(is_fine),
        "{output}"
    );
    // Confinement is never "ok", since at least the network is reachable.
    assert!(
        !output.contains("ok       confinement") && output.contains("reachable  the network\n"),
        "{output}"
    );
    assert_eq!(lines.collect::<Vec<_>>(), ["no check failed"]);
    assert!(
        !output.contains("s3cret") && !output.contains('\u{1b}'),
        "{output}"
    );
    let home = world.home().display().to_string();
    assert!(
        output.contains("the home has no owner") && output.contains(&format!("{home} is writable")),
        "{output}"
    );

    std::fs::set_permissions(world.home(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let json = doctor(&world, &["--json"], &KEY, 0).json();
    assert!(
        check(&json, "home").starts_with("warning other users can write to"),
        "{json}"
    );
}

#[test]
fn doctor_reports_problems_with_advice() {
    let world = TestHome::new();
    let json = doctor(&world, &["--json"], &[], 1).json();
    assert!(
        check(&json, "model").starts_with("broken no usable model: OPENAI_API_KEY is not set"),
        "{json}"
    );
    assert!(check(&json, "model").contains("soong demo"), "{json}");

    std::fs::write(world.home(), "no folder").unwrap();
    for home in [world.home(), world.home().join("below")] {
        let json = doctor(
            &world,
            &["--json", "--home", &home.display().to_string()],
            &KEY,
            1,
        )
        .json();
        assert!(
            check(&json, "home").starts_with("broken") && check(&json, "home").contains("--home"),
            "{json}"
        );
    }
    std::fs::remove_file(world.home()).unwrap();

    configure(&world, "[tools]\ndisabled = [\"grepp\"]\n");
    let json = doctor(&world, &["--json"], &KEY, 2).json();
    assert!(
        json["checks"]
            .to_string()
            .contains("tools.disabled: there is no tool"),
        "{json}"
    );
    configure(&world, "[model]\n\nname = 7\n");
    let output = doctor(&world, &["--call"], &KEY, 2).out;
    assert!(
        output.contains("broken   config: ") && output.contains("config.toml:3: `model.name`"),
        "{output}"
    );
    configure(&world, "");

    world
        .run(&["demo", "--home", &world.home().display().to_string()])
        .expect_code(0);
    let database = world.home().join("sessions.sqlite");
    let mut bytes = std::fs::read(&database).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0xa5);
    std::fs::write(&database, &bytes).unwrap();
    let json = doctor(&world, &["--json"], &KEY, 1).json();
    assert!(
        check(&json, "database").starts_with("broken")
            && check(&json, "database").contains("backup"),
        "{json}"
    );
    std::fs::write(&database, "no database".repeat(1_000)).unwrap();
    let json = doctor(&world, &["--json"], &KEY, 1).json();
    assert_eq!(
        (
            &json["broken"],
            check(&json, "database").starts_with("broken")
        ),
        (&1.into(), true),
        "{json}"
    );
    assert_eq!(
        std::fs::read(&database).unwrap(),
        "no database".repeat(1_000).into_bytes(),
        "was not changed"
    );
}

#[test]
fn doctor_distinguishes_active_from_interrupted_runs() {
    let world = TestHome::new();
    let service = HangingModelService::new();
    let mut command = world.command(&["run", "Wait for me"]);
    let mut running = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    };
    let _open = service
        .connections
        .recv_timeout(TIMEOUT)
        .expect("the model is asked");
    let json = doctor(&world, &["--json"], &KEY, 0).json();
    assert!(
        check(&json, "owner").contains(&format!("process {} owns", running.child.id())),
        "{json}"
    );
    assert!(
        check(&json, "runs").starts_with("ok 1 run active"),
        "{json}"
    );
    running.child.kill().unwrap();
    running.child.wait().unwrap();
    let json = doctor(&world, &["--json"], &KEY, 0).json();
    assert!(
        check(&json, "owner").contains("the home has no owner"),
        "{json}"
    );
    let runs = check(&json, "runs");
    assert!(
        runs.starts_with("warning 1 run left unfinished") && runs.contains("soong run --trace"),
        "{json}"
    );
}

#[test]
fn doctor_calls_the_model_only_with_the_call_flag() {
    let world = TestHome::new();
    let service =
        ScriptedServer::start(
            |request| match request.body["messages"].as_array().map(Vec::len) {
                Some(2) => Reply::calls(&[("1", "list_files", r#"{"path": "."}"#)]),
                _ => Reply::answer("soong-check.txt"),
            },
        );
    let base_url = service.base_url();
    let environment = [KEY[0], ("OPENAI_BASE_URL", base_url.as_str())];
    doctor(&world, &[], &environment, 0);
    assert!(
        service.requests().is_empty(),
        "only the server is asked, not the model"
    );
    let json = doctor(&world, &["--call", "--json"], &environment, 0).json();
    assert!(
        check(&json, "call").starts_with("ok gpt-4.1-mini answered after"),
        "{json}"
    );
    assert!(
        check(&json, "call tools").starts_with("ok the model called `list_files`"),
        "{json}"
    );
    for name in ["call streaming", "call usage", "call window"] {
        assert!(!check(&json, name).is_empty(), "{name}: {json}");
    }
    let requests = service.requests();
    assert_eq!(requests.len(), 2, "{requests:?}");
    assert!(
        requests[0].body["tools"]
            .as_array()
            .is_some_and(|tools| tools.len() == 1),
        "a small prompt: {requests:?}"
    );
    assert!(
        requests[1].body["messages"]
            .to_string()
            .contains("soong-check.txt"),
        "the tool's result: {requests:?}"
    );
    assert!(!world.home().exists(), "its records are nobody's");
    let left: Vec<_> = std::fs::read_dir(world.dir.path().join("tmp"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");

    let refusing = ScriptedServer::start(|_| {
        Reply::status(
            401,
            r#"{"error": {"message": "Incorrect API key: sk-s3cret-0123456789"}}"#,
        )
    });
    let dead = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for (base_url, part) in [
        (refusing.base_url(), "check the key"),
        (format!("http://{dead}/v1"), "is the server running there?"),
    ] {
        let ran = doctor(
            &world,
            &["--call"],
            &[KEY[0], ("OPENAI_BASE_URL", base_url.as_str())],
            5,
        );
        assert!(
            ran.out.contains("broken   call: ") && ran.out.contains(part),
            "{}",
            ran.out
        );
        assert!(
            !format!("{}{}", ran.out, ran.err).contains("s3cret"),
            "{} {}",
            ran.out,
            ran.err
        );
    }
    let output = doctor(&world, &["--call"], &[], 1).out;
    assert!(output.contains("no model was called"), "{output}");
}
