//! Files attached to a run.

use serde_json::{Value, json};

use super::{artifact, begin, fails, lived_in, write};
use crate::{
    process::{KillOnDrop, TestHome},
    service::ManualModelService,
};

#[test]
fn attached_file_is_listed_to_the_model_as_an_upload() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    write(&world, "a b \"q\".md", "minutes");
    let run = begin(
        &world,
        &service,
        &[
            "run",
            "--attach",
            "README.md",
            "--attach",
            "a b \"q\".md",
            "Read them",
        ],
    );
    let request = service.next();
    let prompt = request.body["messages"][1]["content"]
        .as_str()
        .unwrap()
        .to_owned();
    for part in ["README.md", "a b _q_.md", "uploaded by the user"] {
        assert!(prompt.contains(part), "{part:?} is missing in {prompt}");
    }
    request.answer("Read.");
    let ran = run.finish().expect_code(0);
    ran.expect_stderr(&[
        "attached README.md\n",
        "attached a b \"q\".md (as a b _q_.md)",
    ]);
    assert!(ran.out.contains("Read."), "{}", ran.out);
    let listed = artifact(&world, &["list", "--json"]).json();
    let known: Vec<(&Value, &Value, &Value)> = listed
        .as_array()
        .unwrap()
        .iter()
        .map(|artifact| (&artifact["name"], &artifact["source"], &artifact["title"]))
        .collect();
    let upload = json!("user_upload");
    assert_eq!(
        known[0],
        (&json!("README.md"), &upload, &json!("README.md"))
    );
    assert_eq!(
        (known[1].0, known[1].1, known.len()),
        (&json!("a b _q_.md"), &upload, 2)
    );
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    assert_eq!(sessions.as_array().unwrap().len(), 1);
    assert_eq!(
        sessions[0]["name"], "Read them",
        "it is named after its first task"
    );
}

#[test]
fn attached_image_reaches_the_model_and_a_document_is_rejected() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    std::fs::create_dir_all(world.home()).unwrap();
    std::fs::write(
        world.home().join("config.toml"),
        "[model]\ninput = [\"text\", \"image\"]\n",
    )
    .unwrap();
    image::DynamicImage::new_rgb8(2, 2)
        .save(world.project().join("a.png"))
        .unwrap();
    let run = begin(
        &world,
        &service,
        &[
            "run",
            "--attach",
            "a.png",
            "--attach",
            "README.md",
            "What is it?",
        ],
    );
    let request = service.next();
    let content = &request.body["messages"].as_array().unwrap().last().unwrap()["content"];
    assert_eq!(content[0], json!({"type": "text", "text": "What is it?"}));
    assert!(
        content[1]["image_url"]["url"]
            .as_str()
            .unwrap()
            .starts_with("data:image/png;base64,"),
        "{content}"
    );
    assert!(
        content[2]["text"]
            .as_str()
            .unwrap()
            .contains("\n- README.md ("),
        "a text file is an artifact only: {content}"
    );
    assert_eq!(content.as_array().unwrap().len(), 3, "{content}");
    request.answer("A square.");
    run.finish().expect_code(0);
    let sessions = world
        .run(&["sessions", "list", "--json"])
        .expect_code(0)
        .json();
    let shown = world
        .run(&[
            "traces",
            "messages",
            sessions[0]["session_id"].as_str().unwrap(),
        ])
        .expect_code(0);
    assert!(
        shown.out.contains("[image a.png, image/png, 2x2, "),
        "{}",
        shown.out
    );

    write(&world, "a.pdf", "%PDF-");
    let mut command = world.command(&["run", "--attach", "a.pdf", "What is it?"]);
    let refused = KillOnDrop {
        child: command
            .env("OPENAI_BASE_URL", &service.address)
            .spawn()
            .unwrap(),
    }
    .finish();
    refused.expect_code(1).expect_stderr(&[
        "does not take input of type pdf",
        "model.input",
        "unsupported_capability",
    ]);
}

#[test]
fn standard_input_is_attached() {
    let world = TestHome::new();
    let mut png = Vec::new();
    let image = image::DynamicImage::new_rgb8(2, 2);
    image
        .write_to(&mut std::io::Cursor::new(&mut png), image::ImageFormat::Png)
        .unwrap();
    let args = [
        "run",
        "--model",
        "offline",
        "--session",
        "s",
        "--attach",
        "-",
        "What is it?",
    ];
    world
        .run_with_input(&args, &png)
        .expect_code(0)
        .expect_stderr(&["attached stdin.png"]);
    let shown = world.run(&["traces", "messages", "s"]).expect_code(0);
    assert!(
        shown.out.contains("[image stdin.png, image/png, 2x2, "),
        "{}",
        shown.out
    );
    let both = ["run", "--model", "offline", "--attach", "-"];
    world
        .run_with_input(&both, b"x")
        .expect_code(2)
        .expect_stderr(&["both the prompt and an attachment"]);
}

#[test]
fn files_attach_to_the_right_session_with_any_owner() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let attach = ["--attach", "README.md", "--model", "offline"];
    let names = |session: &str| {
        let listed = artifact(&world, &["list", "--session", session, "--json"]).json();
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|artifact| artifact["name"].as_str().unwrap().to_owned())
            .collect()
    };
    let want = |n: usize| -> Vec<String> {
        let all = [
            "README.md",
            "README_1.md",
            "README_2.md",
            "README_3.md",
            "README_4.md",
        ];
        all[..n].iter().map(|name| (*name).to_owned()).collect()
    };
    let check = |n: usize| assert_eq!(Vec::<String>::from_iter::<Vec<String>>(names("s")), want(n));
    world
        .run(&[&["run", "--session", "s", "Begin"], &attach[..]].concat())
        .expect_code(0);
    check(1);
    let ran = world
        .run(&[&["run", "--continue", "More"], &attach[..]].concat())
        .expect_code(0);
    ran.expect_stderr(&["attached README.md (as README_1.md)"]);
    check(2);
    let ran = world
        .run(&[&["run", "--session", "s", "--json", "More"], &attach[..]].concat())
        .expect_code(0);
    assert!(
        !ran.err.contains("attached") && ran.json_lines().last().unwrap()["result"].is_object()
    );
    check(3);
    // Through a background process: first when it starts, then while it is running.
    let wait = [
        "run",
        "--session",
        "s",
        "--reset",
        "model",
        "--detach",
        "--attach",
        "README.md",
        "Wait",
    ];
    let ran = begin(&world, &service, &wait);
    ran.finish()
        .expect_code(0)
        .expect_stderr(&["attached README.md (as README_3.md)"]);
    check(4);
    let request = service.next();
    let queued = world
        .run(&[
            "run",
            "--session",
            "s",
            "--detach",
            "--json",
            "--attach",
            "README.md",
            "Then",
        ])
        .expect_code(0);
    assert_eq!(queued.json()["status"], "queued");
    check(5);
    world
        .run(&[&["run", "--session", "new", "Other"], &attach[..]].concat())
        .expect_code(0);
    assert_eq!(
        Vec::<String>::from_iter::<Vec<String>>(names("new")),
        want(1)
    );
    request.answer("One.");
    service.next().answer("Two.");
}

/// Creates a named pipe without a writer, so that opening it for reading blocks.
fn make_fifo(world: &TestHome) {
    use rustix::fs::{CWD, FileType, Mode, mknodat};
    mknodat(
        CWD,
        world.project().join("fifo"),
        FileType::Fifo,
        Mode::RUSR | Mode::WUSR,
        0,
    )
    .unwrap();
}

#[test]
fn special_files_are_rejected() {
    let world = lived_in();
    make_fifo(&world);
    for (file, says) in [
        ("fifo", "fifo is not a regular file"),
        ("/dev/null", "/dev/null is not a regular file"),
        ("/dev/stdin", "/dev/stdin is not a regular file"),
    ] {
        fails(
            &world,
            &["put", "x", file],
            2,
            &[says, "`soong artifacts put NAME -` reads standard input"],
        );
    }
    assert_eq!(artifact(&world, &["list"]).out, "no artifacts\n");
}

#[test]
fn attach_errors_are_reported_before_anything_is_created() {
    let world = TestHome::new();
    write(&world, "config.toml", "[artifacts]\nmax_text_bytes = 20\n");
    let config = ["--config", "config.toml"];
    make_fifo(&world);
    for (file, more, code, says) in [
        (
            "nothing.md",
            &[][..],
            3,
            &["nothing.md cannot be read", "Give a file that exists"][..],
        ),
        ("src", &[], 2, &["src is a folder"]),
        (
            "fifo",
            &[],
            2,
            &["fifo is not a regular file but a pipe", "put NAME -"],
        ),
        ("/dev/null", &[], 2, &["/dev/null is not a regular file"]),
        (
            "README.md",
            &config,
            1,
            &[
                "README.md has 28 B, more than the limit of 20 B",
                "artifacts.max_text_bytes",
            ],
        ),
    ] {
        for detach in [&[][..], &["--detach"]] {
            let args = [
                &["run", "--model", "offline", "--attach", file, "x"],
                more,
                detach,
            ]
            .concat();
            world.run(&args).expect_code(code).expect_stderr(says);
            assert!(!world.home().exists(), "{args:?}: nothing was made");
        }
    }
}
