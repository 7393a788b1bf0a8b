//! The `artifacts` commands, each with and without an owner of the home; files attached to a run,
//! large bodies, and the HTTP routes that the commands use.

mod attached;
mod routes;
mod sessionless;
mod streams;

use crate::process::{KillOnDrop, ProcessOutput, TestHome};
use crate::pty::TestTerminal;
use crate::service::{ManualModelService, Request};
use serde_json::{Value, json};

/// A process that owns the home: its run waits until the test sends the model's answer.
struct Owned {
    owner: KillOnDrop,
    request: Request,
}

impl Owned {
    fn begin(world: &TestHome, service: &ManualModelService, session: &str) -> Self {
        let owner = begin(
            world,
            service,
            &["run", "--session", session, "Wait for me"],
        );
        Self {
            owner,
            request: service.next(),
        }
    }

    #[track_caller]
    fn end(self) -> ProcessOutput {
        self.request.answer("Done.");
        self.owner.finish().expect_code(0)
    }
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

/// Returns a world with a session `s` that has run once. It is the project's last session until a
/// test starts another.
fn lived_in() -> TestHome {
    let world = TestHome::new();
    world
        .run(&["run", "--model", "offline", "--session", "s", "Hello"])
        .expect_code(0);
    world
}

fn write(world: &TestHome, name: &str, bytes: impl AsRef<[u8]>) {
    std::fs::write(world.project().join(name), bytes).unwrap();
}

#[track_caller]
fn artifact(world: &TestHome, args: &[&str]) -> ProcessOutput {
    world.run(&[&["artifacts"], args].concat()).expect_code(0)
}

#[track_caller]
fn fails(world: &TestHome, args: &[&str], code: i32, says: &[&str]) {
    let ran = world
        .run(&[&["artifacts"], args].concat())
        .expect_code(code);
    ran.expect_stderr(says);
    assert_eq!(ran.out, "", "{args:?}");
}

/// Executes every command once and returns their standard outputs.
fn work_through(world: &TestHome) -> Vec<String> {
    let of = ["--session", "s"];
    let mut outputs = Vec::new();
    let mut say = |args: &[&str]| {
        let ran = artifact(world, &[args, &of].concat());
        outputs.push(ran.out.clone());
        ran
    };
    assert_eq!(say(&["list"]).out, "no artifacts\n");
    assert_eq!(
        say(&["put", "plan", "README.md"]).out,
        "plan version 1: text/markdown, 28 B\n"
    );
    assert_eq!(
        say(&["edit", "plan", "--old", "ships", "--new", "boats"]).out,
        "plan version 2: exact match\n"
    );
    let edited = say(&[
        "edit",
        "plan",
        "--old",
        "Counts  boats",
        "--new",
        "Counts all",
    ])
    .out;
    assert!(
        edited.contains("plan version 3: ")
            && edited.contains(" match, ")
            && edited.contains("% similar"),
        "{edited}"
    );
    assert!(edited.contains("replaced:\n  Counts boats\n"), "{edited}");
    assert_eq!(say(&["get", "plan"]).out, "# Lighthouse\n\nCounts all.\n");
    assert_eq!(
        say(&["get", "plan", "--version", "1"]).out,
        "# Lighthouse\n\nCounts ships.\n"
    );
    let shown = say(&["show", "plan"]).out;
    for part in [
        "version   3 (stored: 1, 2, 3)",
        "from      api",
        "type      text/markdown",
        "Counts all.",
    ] {
        assert!(shown.contains(part), "{part:?} is missing in {shown}");
    }
    let versions = say(&["versions", "plan"]).out;
    assert!(
        versions.lines().count() == 4 && versions.contains("update_fuzzy"),
        "{versions}"
    );
    let ran = say(&["get", "plan", "-o", "out.md"]);
    ran.expect_stderr(&["plan written to out.md, 26 B"]);
    assert_eq!(
        std::fs::read_to_string(world.project().join("out.md")).unwrap(),
        "# Lighthouse\n\nCounts all.\n"
    );
    say(&["export", "plan", "-o", "plan.docx"]).expect_stderr(&["plan written to plan.docx"]);
    assert!(
        std::fs::read(world.project().join("plan.docx"))
            .unwrap()
            .starts_with(b"PK")
    );
    let listed = say(&["list"]).out;
    assert!(
        listed.contains("ARTIFACT") && listed.contains("# Lighthouse Counts all."),
        "{listed}"
    );
    assert_eq!(
        say(&["delete", "plan"]).out,
        "deleted plan: versions 1, 2, 3\n"
    );
    assert_eq!(say(&["list"]).out, "no artifacts\n");
    outputs
}

#[test]
fn every_command_works_with_and_without_an_owner() {
    let world = lived_in();
    let service = ManualModelService::new();
    work_through(&world);
    let owned = Owned::begin(&world, &service, "o");
    work_through(&world);
    for (args, code, says) in [
        (
            &["show", "plan", "--session", "s"][..],
            3,
            &["there is no artifact \"plan\"", "soong artifacts list"][..],
        ),
        (
            &["list", "--session", "nobody"],
            3,
            &["there is no session nobody", "soong sessions list"],
        ),
    ] {
        fails(&world, args, code, says);
    }
    owned.end();
}

#[test]
fn errors_are_the_same_with_and_without_an_owner() {
    let world = lived_in();
    let service = ManualModelService::new();
    artifact(&world, &["put", "plan", "README.md"]);
    world
        .run_with_input(&["artifacts", "put", "picture", "-"], &[0, 255, 1])
        .expect_code(0);
    let check = |owner: &str| {
        let session = ["--session", "s"];
        for (args, code, what) in [
            (&["show", "no"][..], 3, "there is no artifact \"no\""),
            (&["get", "no"], 3, "artifact_not_found"),
            (&["versions", "no"], 3, "artifact_not_found"),
            (&["export", "no", "-o", "x.docx"], 3, "artifact_not_found"),
            (
                &["edit", "no", "--old", "a", "--new", "b"],
                3,
                "artifact_not_found",
            ),
            (&["delete", "no"], 3, "artifact_not_found"),
            (
                &["get", "plan", "--version", "9"],
                3,
                "\"plan\" has no stored version 9; stored versions: 1",
            ),
            (
                &["get", "user:plan"],
                3,
                "there is no artifact \"user:plan\"",
            ),
            (
                &["edit", "plan", "--old", "nowhere at all", "--new", "b"],
                4,
                "no_match",
            ),
            (
                &["edit", "plan", "--old", "s", "--new", "b"],
                4,
                "ambiguous_match",
            ),
            (
                &["edit", "plan", "--old", "", "--new", "b"],
                2,
                "validation_error",
            ),
            (
                &["edit", "picture", "--old", "a", "--new", "b"],
                1,
                "unsupported_media",
            ),
            (
                &["export", "picture", "-o", "x.docx"],
                1,
                "unsupported_media",
            ),
            (
                &["export", "plan", "-o", "x.pdf"],
                2,
                "does not end in .docx",
            ),
            (&["put", "../x", "README.md"], 2, "cannot name an artifact"),
            (&["put", "x", "nothing.md"], 3, "nothing.md cannot be read"),
            (&["put", "x", "src"], 2, "src is a folder"),
            (
                &["put", "x", "README.md", "--content-type", "text/\n"],
                2,
                "not a valid content type",
            ),
            (
                &["get", "plan", "-o", "no/where"],
                1,
                "no/where cannot be written",
            ),
        ] {
            let ran = world
                .run(&[&["artifacts"], args, &session].concat())
                .expect_code(code);
            assert!(
                ran.err.contains(what) && ran.out.is_empty(),
                "{owner}: {args:?}: {}",
                ran.err
            );
        }
        assert_eq!(
            artifact(&world, &["get", "plan", "--session", "s"]).out,
            "# Lighthouse\n\nCounts ships.\n"
        );
        assert!(!world.project().join("x.docx").exists(), "{owner}");
    };
    check("no owner");
    let owned = Owned::begin(&world, &service, "o");
    check("an owner");
    owned.end();
}

#[test]
fn every_valid_name_can_be_used() {
    let world = lived_in();
    let service = ManualModelService::new();
    let names = [
        "plan",
        "a b.md",
        "upload",
        "content",
        "versions",
        "好.md",
        "Ünïcode",
        "user:style guide",
        "x.y.z",
    ];
    let check = |owner: &str| {
        for name in names {
            artifact(&world, &["put", name, "README.md", "--session", "s"]);
            let shown = artifact(&world, &["show", name, "--session", "s", "--json"]).json();
            assert_eq!(
                shown["content"], "# Lighthouse\n\nCounts ships.\n",
                "{owner}: {name}"
            );
            let edited = artifact(
                &world,
                &[
                    "edit",
                    name,
                    "--old",
                    "ships",
                    "--new",
                    "- %2F",
                    "--session",
                    "s",
                    "--json",
                ],
            );
            assert_eq!(
                edited.json(),
                json!({ "version": 2, "layer": "exact", "similarity": 1.0, "replaced": "ships" })
            );
            assert_eq!(
                artifact(&world, &["get", name, "--session", "s"]).out,
                "# Lighthouse\n\nCounts - %2F.\n"
            );
            let gone = artifact(&world, &["delete", name, "--session", "s", "--json"]).json();
            assert_eq!(
                (&gone["name"], &gone["versions"]),
                (&json!(name), &json!([1, 2])),
                "{owner}"
            );
        }
    };
    check("no owner");
    let owned = Owned::begin(&world, &service, "o");
    check("an owner");
    owned.end();
}

#[test]
fn default_session_is_last_of_project_and_user_scope_needs_none() {
    let world = lived_in();
    artifact(&world, &["put", "plan", "README.md"]).expect_stderr(&[]);
    artifact(&world, &["put", "user:style", "README.md"]);
    world
        .run(&["run", "--model", "offline", "--session", "t", "Hello"])
        .expect_code(0);
    fails(&world, &["show", "plan"], 3, &["artifact_not_found"]);
    let ran = artifact(&world, &["list"]);
    ran.expect_stderr(&["session t (last session of this project)"]);
    assert!(
        ran.out.contains("user:style") && !ran.out.contains("plan"),
        "{}",
        ran.out
    );
    let elsewhere = |args: &[&str]| {
        let mut command = world.command(&[&["artifacts"], args].concat());
        KillOnDrop {
            child: command
                .current_dir(world.dir.path().join("user"))
                .spawn()
                .unwrap(),
        }
        .finish()
    };
    assert_eq!(
        elsewhere(&["get", "user:style"]).expect_code(0).out,
        "# Lighthouse\n\nCounts ships.\n"
    );
    elsewhere(&["put", "user:note", "../project/README.md"]).expect_code(0);
    elsewhere(&["list"])
        .expect_code(3)
        .expect_stderr(&["the project", "--session ID"]);
    elsewhere(&["get", "plan"])
        .expect_code(3)
        .expect_stderr(&["the project", "--session ID"]);
}

#[test]
fn unstored_edits_are_visible_to_others_and_after_kill_9() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let mut owner = begin(&world, &service, &["run", "--session", "s", "Write"]);
    let mut request = service.next();
    request.call(
        "create_artifact",
        &json!({ "name": "plan", "content": "# Plan\n\none\n" }),
    );
    request.end();
    let mut request = service.next();
    request.call(
        "update_artifact",
        &json!({ "name": "plan", "old": "one", "new": "two" }),
    );
    request.end();
    let request = service.next();

    let look = |source: &str| {
        let listed = artifact(&world, &["list"]);
        assert!(
            listed.out.contains("plan      2*"),
            "{source}: {}",
            listed.out
        );
        listed.expect_stderr(&["* has edits that are not a stored version yet"]);
        assert_eq!(
            artifact(&world, &["get", "plan"]).out,
            "# Plan\n\ntwo\n",
            "{source}"
        );
        let shown = artifact(&world, &["show", "plan", "--json"]).json();
        assert_eq!(
            (&shown["content"], &shown["versions"]),
            (&json!("# Plan\n\ntwo\n"), &json!([])),
            "{source}"
        );
        assert_eq!(
            (
                &shown["artifact"]["dirty"],
                &shown["artifact"]["stored_version"]
            ),
            (&json!(true), &json!(0))
        );
        assert!(
            artifact(&world, &["show", "plan"])
                .out
                .contains("2* (none stored)"),
            "{source}"
        );
        assert_eq!(
            artifact(&world, &["versions", "plan"]).out,
            "no stored versions\n"
        );
        fails(
            &world,
            &["get", "plan", "--version", "2"],
            3,
            &["has no stored version 2; stored versions: none yet"],
        );
        fails(
            &world,
            &["export", "plan", "-o", "x.docx"],
            3,
            &["a version is stored when its run ends"],
        );
        let session = world.run(&["sessions", "show", "s"]).expect_code(0);
        assert!(
            session.out.contains("plan      2*"),
            "{source}: {}",
            session.out
        );
        // Artifacts of a session with active runs are not deleted, and the output says so.
        let cleanup = artifact(&world, &["cleanup", "--all"]);
        assert_eq!(cleanup.out, "nothing to delete\n", "{source}");
        cleanup.expect_stderr(&["skipped: 1 artifact of session s, which has unfinished runs"]);
    };
    look("the owner");
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    drop(request);
    look("the disk");

    // A command that changes an artifact becomes the owner. It first stores the edits of the killed
    // process as a version.
    write(&world, "plan.md", "mine");
    artifact(&world, &["put", "plan", "plan.md"])
        .expect_stderr(&["1 run was left unfinished by an earlier process"]);
    let versions = artifact(&world, &["versions", "plan", "--json"]).json();
    let numbers: Vec<&Value> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(numbers, [2, 3]);
    assert_eq!(
        artifact(&world, &["get", "plan", "--version", "2"]).out,
        "# Plan\n\ntwo\n"
    );
    assert_eq!(artifact(&world, &["get", "plan"]).out, "mine");
}

#[test]
fn user_edit_between_run_edits_is_kept_and_stores_are_reported() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let owner = begin(&world, &service, &["run", "--session", "s", "Write"]);
    let mut request = service.next();
    request.call(
        "create_artifact",
        &json!({ "name": "my plan", "content": "one\n" }),
    );
    request.end();
    let request = service.next();
    let edited = artifact(&world, &["edit", "my plan", "--old", "one", "--new", "two"]);
    assert_eq!(edited.out, "my plan version 2: exact match\n");
    let mut request = request;
    request.call(
        "update_artifact",
        &json!({ "name": "my plan", "old": "two", "new": "three" }),
    );
    request.end();
    service.next().answer("Done.");
    let ran = owner.finish().expect_code(0);
    ran.expect_stderr(&[
        "artifact my plan edited, revision 3",
        "artifact my plan version 3 saved",
    ]);
    ran.expect_stderr(&[
        "  my plan  version 3  6 B  ",
        "soong artifacts show 'my plan' --session s",
    ]);
    let line = ran
        .err
        .lines()
        .find(|line| line.starts_with("  my plan  version 3"))
        .unwrap();
    let file = line.split("  ").last().unwrap();
    assert_eq!(std::fs::read_to_string(file).unwrap(), "three\n");
    let versions = artifact(&world, &["versions", "my plan", "--json"]).json();
    let numbers: Vec<&Value> = versions
        .as_array()
        .unwrap()
        .iter()
        .map(|version| &version["version"])
        .collect();
    assert_eq!(numbers, [1, 2, 3]);
}

#[test]
fn unnamed_artifact_is_addressed_by_its_id() {
    let world = TestHome::new();
    std::fs::create_dir(world.home()).unwrap();
    std::fs::write(
        world.home().join("config.toml"),
        "[artifacts]\nmax_inline_bytes = 20\n",
    )
    .unwrap();
    let service = ManualModelService::new();
    let allow = [
        "run",
        "--session",
        "s",
        "--allow",
        "bash",
        "--allow",
        "bash:unconfined",
        "Look around",
    ];
    let owner = begin(&world, &service, &allow);
    let mut request = service.next();
    // Long enough to be captured: a shorter output would be shorter than the reference that
    // replaces it.
    request.call(
        "bash",
        &json!({ "command": "printf 'a long line %.0s' $(seq 100)" }),
    );
    request.end();
    let request = service.next();
    let check = |state: &str| {
        let listed = artifact(&world, &["list", "--json"]).json();
        let captured = &listed[0];
        assert!(captured.get("name").is_none(), "{state}: {listed}");
        let id = captured["artifact_id"].as_str().unwrap().to_owned();
        assert!(artifact(&world, &["list"]).out.contains(&id), "{state}");
        assert!(
            artifact(&world, &["get", &id])
                .out
                .contains("a long line a long line"),
            "{state}"
        );
        assert!(
            artifact(&world, &["show", &id])
                .out
                .contains("version   1 (only version)"),
            "{state}"
        );
        assert!(
            world
                .run(&["sessions", "show", "s"])
                .expect_code(0)
                .out
                .contains(&id),
            "{state}"
        );
        fails(
            &world,
            &["put", &id, "README.md"],
            2,
            &["cannot name an artifact"],
        );
        id
    };
    let id = check("an owner");
    request.answer("Found.");
    let ran = owner.finish().expect_code(0);
    ran.expect_stderr(&[
        &format!("artifact {id} version 1 saved"),
        &format!("  {id}  version 1  "),
    ]);
    ran.expect_stderr(&[&format!("soong artifacts show {id} --session s")]);
    assert_eq!(check("no owner"), id);
    assert_eq!(
        artifact(&world, &["delete", &id]).out,
        format!("deleted {id}: version 1\n")
    );
}

#[test]
fn cleanup_lists_candidates_and_deletes_only_with_yes() {
    let world = lived_in();
    artifact(&world, &["put", "plan", "README.md"]);
    artifact(&world, &["put", "user:style", "README.md"]);
    world
        .run(&["run", "--model", "offline", "--session", "t", "Hello"])
        .expect_code(0);
    artifact(&world, &["put", "other", "README.md"]);
    assert_eq!(
        artifact(&world, &["cleanup"]).out,
        "nothing to delete\n",
        "ordinary ones stay"
    );
    assert_eq!(
        artifact(&world, &["cleanup", "--all", "--older-than", "1d"]).out,
        "nothing to delete\n"
    );
    assert_eq!(
        artifact(&world, &["cleanup", "--all", "--max-bytes", "56"]).out,
        "nothing to delete\n"
    );
    let listed = artifact(&world, &["cleanup", "--all", "--max-bytes", "28"]);
    assert!(
        listed.out.contains("plan")
            && listed.out.contains("more than 28")
            && !listed.out.contains("other")
    );
    let listed = artifact(&world, &["cleanup", "--all"]);
    listed.expect_stderr(&["2 artifacts, 56 B: nothing was deleted; delete with --yes"]);
    assert!(
        listed
            .out
            .contains("the request includes ordinary artifacts")
            && !listed.out.contains("style"),
        "{}",
        listed.out
    );
    fails(
        &world,
        &["cleanup", "--session", "no"],
        3,
        &["there is no session no"],
    );
    let done = artifact(
        &world,
        &["cleanup", "--all", "--session", "s", "--yes", "--json"],
    )
    .json();
    assert_eq!(
        (&done["dry_run"], done["deleted"].as_array().unwrap().len()),
        (&json!(false), 1)
    );
    assert!(
        artifact(&world, &["list", "--session", "t"])
            .out
            .contains("other")
    );
    artifact(&world, &["cleanup", "--all", "--yes"]).expect_stderr(&["1 of 1 artifact deleted"]);
    assert!(
        artifact(&world, &["list", "--session", "t"])
            .out
            .contains("user:style"),
        "a user's stay"
    );
}

#[test]
fn terminal_gets_text_but_no_binary_data() {
    let world = lived_in();
    write(&world, "bad.txt", "one \u{1b}[31mtwo\u{7}\n");
    write(
        &world,
        "picture.png",
        [0x89, b'P', b'N', b'G', 0, 1, 2, 255],
    );
    artifact(&world, &["put", "bad", "bad.txt"]);
    artifact(&world, &["put", "picture", "picture.png"]);
    let start_terminal = |args: &[&str]| {
        TestTerminal::start(&world, &[&["artifacts"], args].concat(), (30, 100), &[])
            .wait_for_exit()
    };
    let (code, rows) = start_terminal(&["get", "picture"]);
    assert_eq!(code, Some(2));
    let screen = rows.join("\n");
    assert!(
        screen.contains("is not printed on a terminal") && screen.contains("-o FILE"),
        "{screen}"
    );
    let (code, rows) = start_terminal(&["get", "bad"]);
    assert_eq!(
        (code, rows[0].as_str()),
        (Some(0), "one [31mtwo"),
        "the emulator shows no replacement characters"
    );
    // A pipe receives the unmodified bytes.
    assert_eq!(
        artifact(&world, &["get", "bad"]).out,
        "one \u{1b}[31mtwo\u{7}\n"
    );
    let (code, rows) = start_terminal(&["get", "picture", "-o", "copy.png"]);
    assert_eq!(code, Some(0), "{rows:?}");
    assert_eq!(
        std::fs::read(world.project().join("copy.png")).unwrap(),
        [0x89, b'P', b'N', b'G', 0, 1, 2, 255]
    );
    fails(
        &world,
        &["get", "picture", "--json"],
        2,
        &["--json requires -o FILE", "-o FILE"],
    );
}
