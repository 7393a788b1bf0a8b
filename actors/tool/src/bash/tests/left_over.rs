//! TOOL-5: no process of a command is left after the call, however the command tries to leave one
//! running.

use std::time::Duration;

use soong_sandbox::{SpawnOptions, StartedProgram};

use super::*;

/// Commands that leave a process running. `SLEEP` is a `sleep` that can be distinguished from
/// others. Each prints `ready`.
const LEFTOVER_COMMANDS: [(&str, &str); 15] = [
    ("a background child", "SLEEP & echo ready"),
    ("nohup", "nohup SLEEP >/dev/null 2>&1 & echo ready"),
    (
        "a session of its own",
        "setsid SLEEP & sleep 0.2; echo ready",
    ),
    ("a double fork", "( ( SLEEP & ) & ) ; sleep 0.2; echo ready"),
    (
        "a daemon",
        "setsid sh -c 'cd /; exec </dev/null >/dev/null 2>&1; SLEEP & SLEEP' & sleep 0.2; echo ready",
    ),
    (
        "no environment",
        "env -i setsid SLEEP & sleep 0.2; echo ready",
    ),
    (
        "a daemon without environment",
        "(env -i setsid sh -c '(SLEEP) </dev/null >/dev/null 2>&1 &') & sleep 0.3; echo ready",
    ),
    (
        "deaf to signals",
        "sh -c 'trap \"\" TERM HUP INT; SLEEP; SLEEP' & sleep 0.2; echo ready",
    ),
    ("stopped", "SLEEP & kill -STOP $!; echo ready"),
    (
        "fifty at once",
        "for i in $(seq 50); do setsid SLEEP & done; sleep 0.3; echo ready",
    ),
    (
        "the supervisor attacked",
        "SLEEP & setsid SLEEP & sleep 0.2; echo ready; kill -9 $PPID; kill -STOP $PPID",
    ),
    (
        "no environment, and the supervisor attacked",
        "env -i setsid SLEEP </dev/null >/dev/null 2>&1 & sleep 0.3; echo ready; kill -9 $PPID",
    ),
    (
        "no sign of its origin, and the supervisor attacked",
        "(env -i PATH=$PATH setsid bash -c 'ulimit -R 1000; (setsid SLEEP) </dev/null >/dev/null 2>&1 &' &); sleep 0.4; \
         echo ready; kill -9 $PPID; true",
    ),
    (
        "a reaper of its own",
        "python3 -c 'import ctypes,os; ctypes.CDLL(None).prctl(36,1,0,0,0); \
         os.fork() or (os.fork() or os.execvp(\"sleep\",[\"sleep\",\"SECONDS\"]))' & sleep 0.4; echo ready",
    ),
    (
        "the whole group killed",
        "setsid SLEEP & sleep 0.2; echo ready; kill -9 0",
    ),
];

fn with_sleep(command: &str, seconds: u32) -> String {
    command
        .replace("SLEEP", &format!("sleep {seconds}"))
        .replace("SECONDS", &seconds.to_string())
}

/// Waits until no process of a command is left; panics after 10 seconds.
async fn wait_until_no_process(seconds: u32, name: &str) {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let left = processes_with_argument(&seconds.to_string());
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "{name}: {left:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_remains_after_normal_exit() {
    let world = BashTest::new();
    for (name, command) in LEFTOVER_COMMANDS {
        let seconds = unique_seconds();
        let shown = world.ok(&with_sleep(command, seconds)).await;
        assert_eq!(
            processes_with_argument(&seconds.to_string()),
            Vec::<String>::new(),
            "{name}: {shown}"
        );
        assert!(shown.starts_with("ready\n"), "{name}: {shown}");
        assert!(!shown.contains("status unknown"), "{name}: {shown}");
        assert!(!shown.contains("could not be ended"), "{name}: {shown}");
    }
    let seconds = unique_seconds();
    let shown = world
        .ok(&with_sleep("SLEEP & SLEEP & echo ready", seconds))
        .await;
    let want = "ready\n[exit status 0]\n[ended with it: 2 processes that it had left running: ";
    assert!(shown.starts_with(want), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_remains_after_timeout() {
    let world = BashTest::new();
    for (name, command) in LEFTOVER_COMMANDS {
        let seconds = unique_seconds();
        let command = with_sleep(&format!("{command}; SLEEP"), seconds);
        let result = world
            .project
            .call(
                &world.bash,
                json!({"command": command, "timeout_ms": 1_000}),
            )
            .await;
        assert_eq!(
            processes_with_argument(&seconds.to_string()),
            Vec::<String>::new(),
            "{name}"
        );
        match result {
            Err(error) => assert_eq!(error.code, ErrorCode::Timeout, "{name}"),
            Ok(shown) => assert!(name.contains("killed"), "{name}: {shown}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_remains_after_cancel() {
    for (name, command) in LEFTOVER_COMMANDS {
        let world = BashTest::new();
        let seconds = unique_seconds();
        let command = with_sleep(&format!("{command}; touch marker; SLEEP"), seconds);
        let marker = world.project.path().join("marker");
        let cancel = world.project.cancel.clone();
        let cancelling = async {
            while !marker.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            cancel.cancel();
        };
        let call = world.run(&command);
        let killer = name.contains("killed");
        let result = tokio::select! {
            result = async { tokio::join!(call, async { if !killer { cancelling.await } }).0 } => result,
            () = tokio::time::sleep(Duration::from_secs(30)) => panic!("{name}: it goes on"),
        };
        assert_eq!(
            processes_with_argument(&seconds.to_string()),
            Vec::<String>::new(),
            "{name}"
        );
        if !killer {
            assert_eq!(result.unwrap_err().code, ErrorCode::Cancelled, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_process_remains_after_future_is_dropped() {
    for (name, command) in LEFTOVER_COMMANDS
        .into_iter()
        .filter(|(name, _)| !name.contains("killed"))
    {
        let world = BashTest::new();
        let seconds = unique_seconds();
        let command = with_sleep(
            &format!("{command}; echo $TMPDIR > marker; touch done; SLEEP"),
            seconds,
        );
        let context = world.project.context();
        let tasks = context.cleanup_tasks.clone();
        let done = world.project.path().join("done");
        tokio::select! {
            result = world.bash.call(context, json!({"command": command})) => panic!("{name}: {result:?}"),
            () = async { while !done.exists() { tokio::time::sleep(Duration::from_millis(20)).await } } => {}
        }
        let own = fs::read_to_string(world.project.path().join("marker")).unwrap();
        // The run waits for these tasks before it reports the outcome.
        tasks.close();
        tasks.wait().await;
        assert_eq!(
            processes_with_argument(&seconds.to_string()),
            Vec::<String>::new(),
            "{name}"
        );
        assert!(
            !PathBuf::from(own.trim()).exists(),
            "{name}: its own directory is left"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn fork_bomb_is_killed() {
    let world = BashTest::new();
    let seconds = unique_seconds();
    // Each of them forks as long as it lives, some in separate sessions.
    let storm = format!(
        "f() {{ for i in 1 2 3 4 5 6 7 8; do (sleep {seconds}) & done; sleep 0.1; f; }}; f & f & setsid bash -c \
         'while :; do (sleep {seconds}) & sleep 0.05; done' & sleep 1; echo ready"
    );
    let shown = world.ok(&storm).await;
    assert!(
        shown.contains("ready\n[exit status 0]\n[ended with it: "),
        "{shown}"
    );
    assert_eq!(
        processes_with_argument(&seconds.to_string()),
        Vec::<String>::new()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn closing_lifeline_kills_all_processes() {
    let world = BashTest::new();
    let seconds = unique_seconds();
    // The second one clears its environment and that of its child. Their parents are gone.
    let command = format!(
        "setsid sleep {seconds} & (env -i setsid sh -c 'sleep {seconds} & sleep {seconds}; :' &); sleep {seconds}"
    );
    let variables = [(
        "PATH".to_owned(),
        Environment::from_process()
            .get("PATH")
            .unwrap_or("/usr/bin:/bin")
            .to_owned(),
    )];
    let launch = SpawnOptions::new("/bin/sh", &world.project.path(), variables.into())
        .arguments(["-c", &command]);
    let StartedProgram { process_tree, .. } = launch.start().await.unwrap();
    while processes_with_argument(&format!("sleep {seconds}")).len() < 6 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The same effect as when the kernel kills the owner process.
    process_tree.close_lifeline_only();
    wait_until_no_process(seconds, "the lifeline").await;
}
