//! Large bodies: they are streamed in chunks, with and without an owner, and a failed transfer
//! leaves no data.

use std::{
    io::{BufRead, BufReader, Read, Write},
    process::Stdio,
    time::Instant,
};

use super::{Owned, artifact, lived_in};
use crate::{
    process::{KillOnDrop, TIMEOUT, TestHome},
    service::ManualModelService,
};

/// Size of the body, in bytes.
const BODY_BYTES: usize = 50 * 1024 * 1024;
/// Maximum growth of a process's peak memory during a transfer, in bytes.
const MOST_BYTES: usize = BODY_BYTES * 2 / 5;

/// Returns the peak memory of a process, in bytes.
fn most_memory(running: &KillOnDrop) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.child.id())).unwrap();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .unwrap();
    line.split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<usize>()
        .unwrap()
        * 1024
}

fn piped(world: &TestHome, args: &[&str]) -> KillOnDrop {
    KillOnDrop {
        child: world
            .command(&[&["artifacts"], args].concat())
            .stdin(Stdio::piped())
            .spawn()
            .unwrap(),
    }
}

/// Returns a body whose 4-byte words are all different.
fn body() -> Vec<u8> {
    (0..BODY_BYTES as u32 / 4)
        .flat_map(u32::to_le_bytes)
        .collect()
}

/// Puts and gets the body, and checks the peak memory of each process before it ends.
fn pass_through(world: &TestHome, body: &[u8]) {
    let mut put = piped(world, &["put", "large", "-", "--session", "s"]);
    let mut input = put.child.stdin.take().unwrap();
    let (first, rest) = body.split_at(2_000_000);
    input.write_all(first).unwrap();
    let before = most_memory(&put);
    input.write_all(rest).unwrap();
    let after = most_memory(&put);
    assert!(after < before + MOST_BYTES, "put: {before}, then {after}");
    drop(input);
    put.finish().expect_code(0);

    let mut get = piped(world, &["get", "large", "--session", "s"]);
    let mut output = get.child.stdout.take().unwrap();
    let mut got = vec![0; body.len() - 1_000_000];
    let (first, rest) = got.split_at_mut(2_000_000);
    output.read_exact(first).unwrap();
    let before = most_memory(&get);
    output.read_exact(rest).unwrap();
    let after = most_memory(&get);
    assert!(after < before + MOST_BYTES, "get: {before}, then {after}");
    output.read_to_end(&mut got).unwrap();
    assert!(got == body, "what comes back is what was put");
    get.finish().expect_code(0);
    artifact(world, &["get", "large", "-o", "large", "--session", "s"]);
    assert!(std::fs::read(world.project().join("large")).unwrap() == body);
}

#[test]
#[cfg(target_os = "linux")]
fn fifty_megabytes_are_streamed_with_and_without_an_owner() {
    let world = lived_in();
    let service = ManualModelService::new();
    let body = body();
    pass_through(&world, &body);
    let owned = Owned::begin(&world, &service, "o");
    let before = most_memory(&owned.owner);
    pass_through(&world, &body);
    let after = most_memory(&owned.owner);
    assert!(
        after < before + MOST_BYTES,
        "the owner: {before}, then {after}"
    );
    owned.end();
}

#[test]
fn oversized_body_is_rejected_early_and_leaves_no_file() {
    let world = lived_in();
    std::fs::write(
        world.home().join("config.toml"),
        "[artifacts]\nmax_blob_bytes = 3000000\n",
    )
    .unwrap();
    let service = ManualModelService::new();
    let large = body();
    std::fs::write(world.project().join("large"), &large).unwrap();
    let refused = || {
        let ran = world
            .run(&["artifacts", "put", "large", "large", "--session", "s"])
            .expect_code(1);
        ran.expect_stderr(&[
            "payload_too_large",
            "artifacts.max_blob_bytes (3000000 bytes)",
        ]);
        // Input that does not end is rejected before its end.
        let mut endless = piped(&world, &["put", "large", "-", "--session", "s"]);
        let mut input = endless.child.stdin.take().unwrap();
        let writing = std::thread::spawn(move || {
            let _ = input.write_all(&[0; 4_000_000]);
            input
        });
        let ran = endless.finish().expect_code(1);
        ran.expect_stderr(&["payload_too_large"]);
        drop(writing.join().unwrap());
        assert_eq!(
            artifact(&world, &["list", "--session", "s"]).out,
            "no artifacts\n"
        );
        let folder = world.home().join("sessions/s/artifacts");
        let left = std::fs::read_dir(folder).map_or(0, Iterator::count);
        assert_eq!(left, 0, "no file is left");
    };
    refused();
    let owned = Owned::begin(&world, &service, "o");
    refused();
    owned.end();
}

#[test]
fn owner_waits_for_uploads_of_other_terminals() {
    let world = lived_in();
    let mut first = piped(&world, &["put", "first", "-", "--session", "s"]);
    let mut first_input = first.child.stdin.take().unwrap();
    first_input.write_all(b"one").unwrap();
    let deadline = Instant::now() + TIMEOUT;
    while !world.home().join("control.sock").exists() {
        assert!(Instant::now() < deadline, "nobody owns the home");
        std::thread::yield_now();
    }
    let pid = first.child.id();
    // A third terminal can store an artifact meanwhile. The first process owns the home and stores
    // it.
    artifact(&world, &["put", "third", "README.md", "--session", "s"]);
    assert_eq!(
        world.run(&["tree", "--json"]).expect_code(0).json()["pid"],
        pid
    );
    let mut second = piped(&world, &["put", "second", "-", "--session", "s"]);
    let mut second_input = second.child.stdin.take().unwrap();
    // More than the pipe and the socket buffer hold, so that this transfer is in progress when the
    // first input ends.
    second_input.write_all(&[b'2'; 4_000_000]).unwrap();
    drop(first_input);
    let mut stderr_lines = BufReader::new(first.child.stderr.take().unwrap()).lines();
    assert!(stderr_lines.any(|line| line.unwrap().contains("another terminal is still writing")));
    drop(second_input);
    second.finish().expect_code(0);
    first.finish().expect_code(0);
    assert_eq!(
        artifact(&world, &["get", "first", "--session", "s"]).out,
        "one"
    );
    let stored = artifact(&world, &["show", "second", "--session", "s", "--json"]).json();
    assert_eq!(stored["artifact"]["size"], 4_000_000);
}

#[test]
fn interrupted_put_ends_immediately_and_stores_nothing() {
    let world = lived_in();
    let mut put = piped(&world, &["put", "cut", "-", "--session", "s"]);
    let mut input = put.child.stdin.take().unwrap();
    input.write_all(&[0; 4_000_000]).unwrap();
    put.interrupt();
    put.finish()
        .expect_code(130)
        .expect_stderr(&["interrupted"]);
    drop(input);
    assert_eq!(
        artifact(&world, &["list", "--session", "s"]).out,
        "no artifacts\n"
    );
}
