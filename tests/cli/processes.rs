//! Processes of the real binary: no process that it starts outlives it, reads its memory or changes
//! its limits.

use std::{
    fs,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::process::{KillOnDrop, TIMEOUT, TestHome};
use crate::service::ManualModelService;
use serde_json::json;

/// Returns a sleep duration in seconds that no other test uses. It identifies the process in the
/// process table.
fn own_seconds() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    200_000_000 + (std::process::id() % 100_000) * 1_000 + NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Returns the live processes whose arguments contain a word, except this process.
fn processes_with(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let found = entries.filter_map(|entry| {
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (pid != std::process::id() && arguments.contains(word))
            .then(|| format!("{pid}: {arguments}"))
    });
    found.collect()
}

/// Waits until a condition holds; fails with its name if it never does.
fn until(name: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < TIMEOUT, "{name}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until no process has a word in its arguments.
fn nothing_is_left(word: &str, name: &str) {
    until(&format!("{name}: {:?}", processes_with(word)), || {
        processes_with(word).is_empty()
    });
}

/// Starts a run in this session whose model calls `bash` with a command. Returns once the file
/// `ready` exists in the project. Supervisors have the arguments of their owner, so the session id
/// identifies them as well.
fn at_a_command(
    world: &TestHome,
    service: &ManualModelService,
    session: &str,
    command: &str,
) -> KillOnDrop {
    let allow = ["--allow", "bash", "--allow", "bash:unconfined"];
    let mut owner =
        world.command(&[&["run", "--session", session], &allow[..], &["Run it"]].concat());
    owner
        .env("OPENAI_BASE_URL", &service.address)
        .env("PATH", "/usr/bin:/bin");
    let owner = KillOnDrop {
        child: owner.spawn().unwrap(),
    };
    let mut request = service.next();
    request.call(
        "bash",
        &json!({ "command": format!("{command}\ntouch ready; sleep 3600") }),
    );
    request.end();
    until("the command", || world.project().join("ready").exists());
    owner
}

#[test]
fn commands_die_with_a_killed_owner() {
    for (name, command) in [
        ("a background child", "sleep SECONDS &"),
        ("a session of its own", "setsid sleep SECONDS &"),
        (
            "no sign of its origin",
            "(env -i setsid bash -c 'ulimit -R 1000; (setsid sleep SECONDS) </dev/null >/dev/null 2>&1 &' &); sleep 0.3",
        ),
        (
            "deaf and stopped",
            "sh -c 'trap \"\" TERM; sleep SECONDS; :' & kill -STOP $!",
        ),
    ] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let seconds = own_seconds().to_string();
        let mut owner = at_a_command(
            &world,
            &service,
            &seconds,
            &command.replace("SECONDS", &seconds),
        );
        owner.child.kill().unwrap();
        owner.child.wait().unwrap();
        nothing_is_left(&seconds, name);
    }
}

#[test]
fn killed_supervisor_leaves_no_process() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let seconds = own_seconds().to_string();
    let command = "(env -i setsid bash -c 'ulimit -R 1000; (setsid sleep SECONDS) </dev/null >/dev/null 2>&1 &' &); \
                   sleep 0.3; echo $PPID > supervisor";
    let owner = at_a_command(&world, &service, "s", &command.replace("SECONDS", &seconds));
    let supervisor: i32 = fs::read_to_string(world.project().join("supervisor"))
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    // Only a process outside the sandbox can kill the supervisor.
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(supervisor).unwrap(),
        rustix::process::Signal::KILL,
    )
    .unwrap();
    let request = service.next();
    assert!(
        request.last_message().contains("exit status unknown"),
        "{}",
        request.last_message()
    );
    assert_eq!(processes_with(&seconds), Vec::<String>::new());
    request.answer("Done.");
    owner.finish().expect_code(0);
}

#[test]
fn mcp_server_processes_end_with_the_run() {
    for (name, script) in [
        ("a server that never answers", "sleep SECONDS"),
        (
            "a daemon of a server",
            "setsid sh -c 'cd /; sleep SECONDS & sleep SECONDS' </dev/null >/dev/null 2>&1 & sleep SECONDS",
        ),
    ] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let seconds = own_seconds().to_string();
        fs::create_dir_all(world.home()).unwrap();
        let script = script.replace("SECONDS", &seconds);
        let config = format!(
            "[mcp.slow]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\nstart_timeout_ms = 200\n"
        );
        fs::write(world.home().join("config.toml"), config).unwrap();
        let mut run = world.command(&["run", "Say hello"]);
        let run = run
            .env("OPENAI_BASE_URL", &service.address)
            .env("PATH", "/usr/bin:/bin")
            .spawn()
            .unwrap();
        let run = KillOnDrop { child: run };
        service.next().answer("Hello.");
        run.finish().expect_code(0);
        nothing_is_left(&seconds, name);
    }
}

#[test]
fn mcp_server_processes_die_with_a_killed_owner() {
    for (name, script) in [
        (
            "a server that ignores the end of its input",
            "exec </dev/null; while :; do sleep SECONDS; done",
        ),
        (
            "a server that ignores signals",
            "trap '' TERM HUP INT; exec </dev/null; while :; do sleep SECONDS; done",
        ),
        (
            "a daemon of a server",
            "setsid sh -c 'cd /; sleep SECONDS' </dev/null >/dev/null 2>&1 & sleep SECONDS",
        ),
    ] {
        let world = TestHome::new();
        let service = ManualModelService::new();
        let seconds = own_seconds().to_string();
        fs::create_dir_all(world.home()).unwrap();
        let script = script.replace("SECONDS", &seconds);
        let config = format!(
            "[mcp.slow]\ncommand = \"/bin/sh\"\nargs = [\"-c\", {script:?}]\nstart_timeout_ms = 200\n"
        );
        fs::write(world.home().join("config.toml"), config).unwrap();
        // The second owner finds no process of the first owner, and leaves none either.
        for _ in 0..2 {
            let mut run = world.command(&["run", "Say hello"]);
            let run = run
                .env("OPENAI_BASE_URL", &service.address)
                .env("PATH", "/usr/bin:/bin")
                .spawn()
                .unwrap();
            let mut run = KillOnDrop { child: run };
            let request = service.next();
            until("the server", || !processes_with(&seconds).is_empty());
            run.child.kill().unwrap();
            run.child.wait().unwrap();
            drop(request);
            nothing_is_left(&seconds, name);
        }
    }
}

#[test]
fn owner_writes_no_core_file_and_hides_its_memory() {
    let world = TestHome::new();
    let service = ManualModelService::new();
    let command = "prlimit --pid OWNER --core=unlimited --cpu=1: > limits 2>&1; head -c 1 /proc/OWNER/environ > read 2>&1";
    // The owner is the parent of the command's supervisor.
    let command = command.replace(
        "OWNER",
        "$(sed -n 's/^PPid:[[:space:]]*//p' /proc/$PPID/status)",
    );
    let owner = at_a_command(&world, &service, "s", &command);
    let read = |name: &str| fs::read_to_string(world.project().join(name)).unwrap();
    assert!(
        read("limits").contains("not permitted"),
        "{}",
        read("limits")
    );
    assert!(read("read").contains("denied"), "{}", read("read"));
    let limits = fs::read_to_string(format!("/proc/{}/limits", owner.child.id())).unwrap();
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .unwrap();
    assert_eq!(
        core.split_whitespace().collect::<Vec<_>>()[4..6],
        ["0", "0"]
    );
    owner.interrupt();
    owner.finish().expect_code(130);
}
