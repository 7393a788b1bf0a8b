//! Tests of `bash` with real commands. Processes that they leave running are searched for in the
//! process table.

use std::{
    fs,
    sync::{Mutex, atomic::AtomicU32},
    time::Instant,
};

use serde_json::json;
use soong_protocol::{BashConfig, PackageCache, ToolsConfig};
use soong_text::Environment;

use super::*;
use crate::{Progress, testing::TestProject};

#[path = "tests/confined.rs"]
mod confined;
#[path = "tests/left_over.rs"]
mod left_over;
#[path = "tests/permissions.rs"]
mod permissions;

/// A secret in the environment of the runtime that no command may see.
const CANARY: &str = "canary-7f3a";

/// A project, a home for the runtime and for the user, and the tool.
struct BashTest {
    project: TestProject,
    user: tempfile::TempDir,
    bash: Bash,
}

impl BashTest {
    fn new() -> Self {
        Self::with(ToolsConfig::default())
    }

    fn with(tools: ToolsConfig) -> Self {
        let user = tempfile::tempdir().unwrap();
        for (path, text) in [
            (".soong-agent/home.db", "of the runtime"),
            (".ssh/id_rsa", "of the user"),
            (".plain", "p"),
        ] {
            let path = user.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let path = Environment::from_process()
            .get("PATH")
            .unwrap_or("/usr/bin:/bin")
            .to_owned();
        let environment = Environment::of([
            ("PATH", path.as_str()),
            ("HOME", user.path().to_str().unwrap()),
            ("LANG", "C"),
            ("OPENAI_API_KEY", CANARY),
            ("SSH_AUTH_SOCK", CANARY),
        ]);
        let home = Some(user.path().join(".soong-agent"));
        let tool_environment = ToolEnvironment {
            tools,
            environment,
            home,
            ..ToolEnvironment::default()
        };
        Self {
            project: TestProject::new(&[]),
            user,
            bash: bash(&tool_environment),
        }
    }

    async fn run(&self, command: &str) -> Result<String, ErrorInfo> {
        self.project
            .call(&self.bash, json!({ "command": command }))
            .await
    }

    /// Runs a command that must succeed, and returns its output.
    async fn ok(&self, command: &str) -> String {
        self.run(command)
            .await
            .unwrap_or_else(|error| panic!("{command}: {error}"))
    }
}

/// Returns the tool of a runtime with these surroundings.
fn bash(tool_environment: &ToolEnvironment) -> Bash {
    Bash::new(
        tool_environment,
        Arc::new(PathPolicy::new(tool_environment)),
    )
}

/// A process of the test that is killed on drop, also if the test fails.
struct KilledOnDrop(std::process::Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns a number of seconds to sleep that no other test uses. It identifies the process in the
/// process table.
fn unique_seconds() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    100_000_000
        + (std::process::id() % 100_000) * 1_000
        + NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed)
}

/// Returns the live processes whose arguments contain a word.
fn processes_with_argument(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    let message = entries.filter_map(|entry| {
        // A process that has ended has no arguments any more.
        let arguments = fs::read(entry.path().join("cmdline")).ok()?;
        let arguments = String::from_utf8_lossy(&arguments).replace('\0', " ");
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        (pid != std::process::id() && arguments.contains(word))
            .then(|| format!("{pid}: {arguments}"))
    });
    message.collect()
}

#[tokio::test]
async fn exit_status_is_reported_and_call_succeeds() {
    let world = BashTest::new();
    for (command, want) in [
        ("echo hello", "hello\n[exit status 0]"),
        ("printf hello", "hello\n[exit status 0]"),
        ("true", "[exit status 0]"),
        ("exit 3", "[exit status 3]"),
        (
            "echo out; echo err >&2; echo more; false",
            "out\nerr\nmore\n[exit status 1]",
        ),
        ("kill -9 $$", "[killed by signal 9 (exit status 137)]"),
        ("kill -TERM $$", "[killed by signal 15 (exit status 143)]"),
        ("[[ a == a ]] && echo bash", "bash\n[exit status 0]"),
        ("cat", "[exit status 0]"), // standard input is empty
        ("pwd | wc -l; exit 200", "1\n[exit status 200]"),
        (
            "kill -TERM 0; echo not reached",
            "[killed by signal 15 (exit status 143)]",
        ),
        ("printf 'a\\0b\\033[1mc\\n'", "a\\x00bc\n[exit status 0]"),
        ("exec 1>&- 2>&-; exit 4", "[exit status 4]"),
    ] {
        assert_eq!(world.ok(command).await, want, "{command}");
    }
    let working_dir = world.ok("pwd").await;
    assert_eq!(
        working_dir,
        format!("{}\n[exit status 0]", world.project.path().display())
    );
    let missing = world.ok("surely-no-such-program").await;
    assert!(
        missing.contains("not found") && missing.ends_with("[exit status 127]"),
        "{missing}"
    );
    let output = world
        .bash
        .call(
            world.project.context(),
            json!({"command": "exit 3\n# more"}),
        )
        .await
        .unwrap();
    assert_eq!(
        (output.title.as_str(), output.include_output_only_once),
        ("`exit 3…`: exit status 3", false)
    );
}

#[tokio::test]
async fn large_output_is_shown_once() {
    let world = BashTest::new();
    let call = |command: &str| {
        world
            .bash
            .call(world.project.context(), json!({"command": command}))
    };
    let output = call("yes | head -c 5000").await.unwrap();
    let line = "[`yes | head -c 5000`: exit status 0; 5000 bytes of output]";
    assert_eq!(
        (
            output.include_output_only_once,
            output.long_term_memory.as_deref()
        ),
        (true, Some(line))
    );
    assert!(
        !call("yes | head -c 4000")
            .await
            .unwrap()
            .include_output_only_once
    );
}

#[tokio::test]
async fn invalid_arguments_are_rejected_before_execution() {
    let world = BashTest::with(ToolsConfig {
        max_timeout_ms: 5_000,
        default_timeout_ms: 9_000,
        ..ToolsConfig::default()
    });
    for (arguments, part) in [
        (json!({}), "command"),
        (json!({"command": 1}), "string"),
        (json!({"command": "touch made", "cwd": "/"}), "cwd"),
        (json!({"command": "touch made", "timeout_ms": -1}), "-1"),
        (
            json!({"command": "touch made", "timeout_ms": 0}),
            "1 to 5000 ms",
        ),
        (
            json!({"command": "touch made", "timeout_ms": 5_001}),
            "1 to 5000 ms",
        ),
        (json!({"command": " \n"}), "empty"),
        (json!({"command": "touch made\0"}), "NUL"),
        (
            json!({"command": format!("touch made; #{}", "x".repeat(MAX_COMMAND_BYTES))}),
            "file first",
        ),
    ] {
        let error = world
            .project
            .call(&world.bash, arguments.clone())
            .await
            .unwrap_err();
        assert_eq!(error.code, ErrorCode::ValidationError, "{arguments:.100}");
        assert!(error.message.contains(part), "{arguments:.100}: {error}");
        let access_error = world
            .bash
            .required_access(&world.project.context(), &arguments)
            .unwrap_err();
        assert_eq!(access_error, error, "{arguments:.100}");
    }
    assert!(!world.project.path().join("made").exists());
    // The default does not exceed the maximum, and `null` counts as absent.
    world
        .project
        .call(&world.bash, json!({"command": "true", "timeout_ms": null}))
        .await
        .unwrap();
    let spec = world.bash.spec();
    assert_eq!(spec.timeout_ms, Some(5_000 + KILL_GRACE_MS));
    assert!(!spec.idempotent && spec.effect.is_mutating());
    let environment = Environment::of([("TMPDIR", "/no/such/place")]);
    let bash = bash(&ToolEnvironment {
        environment,
        ..ToolEnvironment::default()
    });
    let error = world
        .project
        .call(&bash, json!({"command": "true"}))
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::InternalError);
}

#[tokio::test]
async fn timed_out_command_is_killed_and_its_output_reported() {
    let world = BashTest::new();
    let seconds = unique_seconds();
    let command = format!("echo first; seq 1 5000; echo last; sleep {seconds}");
    let arguments = json!({"command": command, "timeout_ms": 1_000});
    let error = world
        .project
        .call(&world.bash, arguments)
        .await
        .unwrap_err();
    assert_eq!(error.code, ErrorCode::Timeout);
    for part in [
        "after 1000 ms",
        "at most 600000",
        "first\n1\n2\n",
        "\n4999\n5000\nlast\n",
        "[left out: ",
    ] {
        assert!(error.message.contains(part), "{part}: {error}");
    }
    assert!(error.message.len() < 10_000);
    assert_eq!(
        processes_with_argument(&seconds.to_string()),
        Vec::<String>::new()
    );
    // The command is asked to exit before it is killed, and its last output is kept.
    let command = format!("trap 'echo asked; exit' TERM; sleep {seconds} & wait");
    let arguments = json!({"command": command, "timeout_ms": 1_000});
    let error = world
        .project
        .call(&world.bash, arguments)
        .await
        .unwrap_err();
    assert!(error.message.contains("asked\n"), "{error}");
}

#[tokio::test]
async fn command_gets_only_allowed_variables() {
    let world = BashTest::new();
    let shown = world.ok("cat /proc/self/environ | tr '\\0' '\\n'").await;
    let mut names: Vec<&str> = shown
        .lines()
        .filter_map(|line| Some(line.split_once('=')?.0))
        .collect();
    names.sort_unstable();
    // Variables that the shell itself sets.
    names.retain(|name| !["PWD", "OLDPWD", "SHLVL", "_"].contains(name));
    // Variables that point to package caches.
    names.retain(|name| {
        ![
            "CARGO_HOME",
            "GOCACHE",
            "GOMODCACHE",
            "PIP_CACHE_DIR",
            "npm_config_cache",
        ]
        .contains(name)
    });
    assert_eq!(
        names,
        ["HOME", "LANG", "PATH", "SOONG_CALL", "TMPDIR"],
        "{shown}"
    );
    for command in [
        "env",
        "set",
        "cat /proc/self/environ",
        "cat /proc/$$/environ",
        "cat /proc/$PPID/environ",
        "for p in /proc/[0-9]*; do tr '\\0' '\\n' < $p/environ; done 2>/dev/null | grep canary",
        "cat /proc/*/cmdline | tr '\\0' '\\n' | grep -v grep | grep ^canary",
    ] {
        let shown = world.ok(command).await;
        assert!(!shown.contains(CANARY), "{command}: {shown}");
    }
    // The supervisor of a command is a copy of the owner process.
    for file in ["environ", "mem", "maps"] {
        let shown = world.ok(&format!("head -c 10 /proc/$PPID/{file}")).await;
        assert!(shown.contains("denied"), "{file}: {shown}");
    }
}

#[tokio::test]
async fn temporary_directory_is_private_and_removed_afterwards() {
    let world = BashTest::new();
    let shown = world
        .ok("cd \"$TMPDIR\" && echo x > made && mktemp && stat -c %a . && pwd")
        .await;
    assert!(shown.contains("\n700\n"), "{shown}");
    let own = PathBuf::from(shown.lines().rev().nth(1).unwrap());
    assert!(own.is_absolute() && !own.exists(), "{own:?}");
}

#[tokio::test]
async fn command_over_limit_is_killed_and_limit_named() {
    let limits = BashConfig {
        max_processes: 20,
        max_memory_mb: Some(200),
        max_file_mb: 1,
        ..BashConfig::default()
    };
    let world = BashTest::with(ToolsConfig {
        bash: limits,
        ..ToolsConfig::default()
    });
    let seconds = unique_seconds();
    for (command, part) in [
        (
            format!("for i in $(seq 40); do setsid sleep {seconds} & done; wait"),
            "max_processes, which is 20",
        ),
        (
            format!("for i in $(seq 400); do sleep {seconds} & done; wait"),
            "max_processes, which is 20",
        ),
        (
            format!("x=$(head -c 300M /dev/zero | tr '\\0' x); sleep {seconds}"),
            "max_memory_mb is 200",
        ),
        (
            "ulimit -c; exec head -c 2M /dev/zero > big".to_owned(),
            "max_file_mb, which is 1",
        ),
    ] {
        let shown = world.ok(&command).await;
        assert!(
            shown.contains("[killed ") && shown.contains(part),
            "{command}: {shown}"
        );
        assert_eq!(
            processes_with_argument(&seconds.to_string()),
            Vec::<String>::new(),
            "{command}"
        );
    }
    assert_eq!(
        world
            .ok("ulimit -c; for i in $(seq 10); do sleep 0.3 & done; wait")
            .await,
        "0\n[exit status 0]"
    );
}

#[tokio::test]
async fn command_has_no_terminal() {
    let world = BashTest::new();
    let shown = world
        .ok("(echo x > /dev/tty) 2>&1; ps -o tty= -p $$ 2>/dev/null || true")
        .await;
    assert!(shown.contains("/dev/tty"), "{shown}");
}

/// Returns the maximum memory that this process has ever used, in bytes.
fn most_memory_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    line.trim()
        .strip_suffix(" kB")
        .unwrap()
        .trim()
        .parse::<u64>()
        .unwrap()
        * 1024
}

#[tokio::test]
async fn gigabyte_of_output_is_truncated_in_bounded_memory() {
    let world = BashTest::new();
    let before = most_memory_bytes();
    let shown = world
        .ok("echo begin; yes | head -c 1000000000; echo end")
        .await;
    let grown = most_memory_bytes() - before;
    assert!(grown < 64 * 1024 * 1024, "{grown} bytes");
    assert!(
        shown.starts_with("begin\ny\ny\n") && shown.ends_with("y\nend\n[exit status 0]"),
        "{}",
        shown.len()
    );
    let shown_bytes = 2 * u64::try_from(format_output::MAX_END_BYTES).unwrap();
    let note = format!(
        "\n[left out: {} of 1000000010 bytes]\n",
        1_000_000_010 - shown_bytes
    );
    assert!(shown.contains(&note), "{note}");
    assert!(shown.len() < 5 * 1024 * 1024, "{}", shown.len());
    let zeros = world.ok("head -c 9000000 /dev/zero").await;
    assert!(
        zeros.len() < 5 * 1024 * 1024 && zeros.contains("of 9000000 bytes]"),
        "{}",
        zeros.len()
    );
}

#[tokio::test]
async fn output_is_reported_while_command_runs() {
    let world = BashTest::new();
    let message = Arc::new(Mutex::new(Vec::new()));
    let mut context = world.project.context();
    let progress = Arc::clone(&message);
    let seen = world.project.path().join("seen");
    context.progress = Progress::new(move |text| {
        // The command waits for this file, so the report arrives while it runs.
        fs::write(&seen, "x").unwrap();
        progress.lock().unwrap().push(text);
    });
    let command = "printf '\\033[1mwaiting\\n'; until [ -e seen ]; do sleep 0.05; done; yes | head -c 5000000";
    let start = Instant::now();
    world
        .bash
        .call(context, json!({"command": command, "timeout_ms": 60_000}))
        .await
        .unwrap();
    let pieces = message.lock().unwrap();
    assert_eq!(pieces[0], "waiting\n");
    let most = 2 + start.elapsed().as_millis() / 300;
    assert!(
        (pieces.len() as u128) <= most,
        "{} pieces in {:?}",
        pieces.len(),
        start.elapsed()
    );
    assert!(pieces.iter().all(|text| text.len() <= 4096));
}
