//! Databases that cannot be used: commands name the file, say what to do, and do not change it
//! (DUR-5). A disk that rejects writes during a run (DUR-6).

use std::{
    process::{Command, Stdio},
    time::Instant,
};

use soong::protocol::{RunStatus, SessionId, TraceId};

use super::failures::{check, row};
use crate::process::{KillOnDrop, TIMEOUT, TestHome};

#[test]
fn unusable_database_is_reported_and_not_changed() {
    let world = TestHome::new();
    world.demo(&[]);
    let path = world.home().join("sessions.sqlite");
    let sound = std::fs::read(&path).unwrap();
    let newer = [&sound[..60], &99_u32.to_be_bytes(), &sound[64..]].concat();
    let behind = sound.len() * 2 / 3 / 4096 * 4096;
    // The damage starts after the schema, so that only commands that read those pages encounter it.
    let damaged = [&sound[..behind], &vec![0xa5; sound.len() - behind]].concat();
    let named = format!("{} is damaged", path.display());
    let lines = [
        "tree",
        "run --model offline x",
        "run --model offline --detach x",
    ];
    for (bytes, lines, what) in [
        (&newer, &lines[..], "the database has format 99"),
        (&damaged, &["traces list"], &named),
    ] {
        std::fs::write(&path, bytes).unwrap();
        for line in lines {
            let advice = if line.contains("--detach") {
                "host.log"
            } else {
                "soong doctor"
            };
            check(&world, &[], &[row(line, 1, what, advice)]);
        }
        assert!(
            std::fs::read(&path).unwrap() == *bytes,
            "{what}: nothing is changed"
        );
    }
    std::fs::remove_file(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    let what = "sessions.sqlite is a folder and not a database: move it to another folder";
    check(
        &world,
        &[],
        &["tree", "run --model offline x"].map(|line| row(line, 1, what, "soong doctor")),
    );
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
}

/// With any single damaged page, a run either completes or fails with an error that states the
/// cause.
#[test]
fn run_with_any_damaged_page_completes_or_fails_clearly() {
    let world = TestHome::new();
    world
        .run(&[
            "run",
            "--model",
            "offline",
            "--session",
            "s",
            "--mode",
            "orchestrator",
            "look around",
        ])
        .expect_code(0);
    let sound = std::fs::read(world.home().join("sessions.sqlite")).unwrap();
    let mut done = 0;
    let mut reported = 0;
    for page in 1..sound.len() / 4096 {
        let range = page * 4096..(page + 1) * 4096;
        let mut damaged = sound.clone();
        damaged[range].fill(0xa5);
        let other = TestHome::new();
        std::fs::create_dir(other.home()).unwrap();
        std::fs::write(other.home().join("sessions.sqlite"), damaged).unwrap();
        let ran = other.run(&["run", "--model", "offline", "--session", "s", "again"]);
        match ran.code {
            Some(0) => done += 1,
            code => {
                assert_eq!(code, Some(1), "page {page}: {}", ran.err);
                assert!(
                    ran.err.contains("storage_error"),
                    "page {page}: {}",
                    ran.err
                );
                reported += 1;
            }
        }
    }
    assert!(
        done > 0 && reported > 10,
        "{done} done, {reported} reported"
    );
}

/// Starts a demo whose files are limited to `kib` KiB. The system rejects writes beyond that.
fn start_within(world: &TestHome, kib: u32) -> KillOnDrop {
    let plain = world.command(&["demo", "--home", &world.home().display().to_string()]);
    let mut limited = Command::new("/bin/sh");
    // The unit is 512 bytes. A process that ignores the signal gets an error instead.
    let line = format!("trap '' XFSZ; ulimit -f {}; exec \"$0\" \"$@\"", kib * 2);
    limited
        .args(["-c", &line])
        .arg(plain.get_program())
        .args(plain.get_args());
    limited.env_clear().envs(
        plain
            .get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    limited
        .current_dir(world.project())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    KillOnDrop {
        child: limited.spawn().unwrap(),
    }
}

#[test]
fn run_waits_for_disk_space_and_resumes() {
    let world = TestHome::new();
    // The database is created before the limit applies.
    world
        .run(&["run", "--model", "offline", "--session", "before", "hello"])
        .expect_code(0);
    let mut limited = start_within(&world, 150);
    let start = Instant::now();
    let waits = |row: &str| row.contains("waiting") && row.contains(" storage");
    while !world.run(&["tree"]).out.lines().any(waits) {
        assert!(
            start.elapsed() < TIMEOUT,
            "the tree says what is waited for"
        );
        assert_eq!(limited.child.try_wait().unwrap(), None, "it waits");
    }
    let traces = world
        .run(&["traces", "list", "--json"])
        .expect_code(0)
        .json();
    let running = traces
        .as_array()
        .unwrap()
        .iter()
        .find(|trace| trace["trace_id"] != "before")
        .unwrap();
    let trace = TraceId::root(&SessionId::new(running["session_id"].as_str().unwrap()));
    limited.child.kill().unwrap();
    limited.child.wait().unwrap();
    let doctor = world.run(&["doctor"]).out;
    assert!(doctor.contains("sessions.sqlite is intact"), "{doctor}");
    assert!(
        doctor
            .lines()
            .any(|line| line.contains("tables: ") && line.contains(" more: ")),
        "{doctor}"
    );
    let threads = tokio::runtime::Runtime::new().unwrap();
    threads.block_on(async {
        let owner = soong::Runtime::builder()
            .home(world.home())
            .project_dir(world.project())
            .offline();
        let owner = owner.build().await.unwrap();
        let run = owner
            .traces()
            .active_run(&trace)
            .expect("the run is active");
        let outcome = tokio::time::timeout(TIMEOUT, run.wait())
            .await
            .expect("it ends")
            .unwrap();
        assert_eq!(outcome.status, RunStatus::Completed, "{:?}", outcome.error);
        owner.close().await;
    });
}
