//! Runs the real binary in an isolated world: a home, a project and an empty environment.
//!
//! Tests do not sleep: they wait for output, for a request or for the end of a process. When a test
//! fails, it kills its remaining processes.
//!
//! Elsewhere: worlds within the test process (`world.rs`).
#![allow(dead_code, reason = "no suite uses all of it")]

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Maximum time to wait for a process.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct TestHome {
    pub(crate) dir: tempfile::TempDir,
}

/// Output and exit code of a process.
#[derive(Debug)]
pub(crate) struct ProcessOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl ProcessOutput {
    #[track_caller]
    pub(crate) fn expect_code(self, code: i32) -> Self {
        assert_eq!(
            self.code,
            Some(code),
            "stdout:\n{}\nstderr:\n{}",
            self.out,
            self.err
        );
        assert!(!self.err.contains("panicked"), "{}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    #[track_caller]
    pub(crate) fn json_lines(&self) -> Vec<Value> {
        self.out
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect()
    }

    #[track_caller]
    pub(crate) fn expect_stderr(&self, parts: &[&str]) -> &Self {
        for part in parts {
            assert!(
                self.err.contains(part),
                "{part:?} is missing in:\n{}",
                self.err
            );
        }
        self
    }
}

/// A process that is killed when dropped.
pub(crate) struct KillOnDrop {
    pub(crate) child: Child,
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads a pipe to its end on a separate thread.
fn drain(mut pipe: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (tell, all) = mpsc::channel();
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        let _ = tell.send(String::from_utf8_lossy(&bytes).into_owned());
    });
    all
}

impl KillOnDrop {
    #[track_caller]
    pub(crate) fn finish(mut self) -> ProcessOutput {
        let out = self.child.stdout.take().map(drain);
        let err = self.child.stderr.take().map(drain);
        let text = |all: Option<mpsc::Receiver<String>>| {
            all.map_or_else(String::new, |all| {
                all.recv_timeout(TIMEOUT).expect("the process does not end")
            })
        };
        let out = text(out);
        let err = text(err);
        let status: ExitStatus = self.child.wait().unwrap();
        ProcessOutput {
            code: status.code(),
            out,
            err,
        }
    }

    /// Sends SIGINT, like Ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.signal(Signal::INT);
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl TestHome {
    /// Creates a world whose project has a few files.
    pub(crate) fn new() -> Self {
        let world = Self::empty();
        for (path, text) in [
            ("README.md", "# Lighthouse\n\nCounts ships.\n"),
            ("src/main.rs", "//! Counts ships.\nfn main() {}\n"),
            ("src/ship.rs", "//! A ship.\npub struct Ship;\n"),
            ("docs/guide.md", "# Guide\n"),
        ] {
            let path = world.project().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        world
    }

    pub(crate) fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["project", "tmp", "user"] {
            std::fs::create_dir(dir.path().join(folder)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn project(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_soong"));
        command
            .env_clear()
            .env("HOME", self.dir.path().join("user"))
            .env("TMPDIR", self.dir.path().join("tmp"));
        command
            .env("LANG", "C.UTF-8")
            .env("SOONG_AGENT_HOME", self.home())
            .current_dir(self.project());
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> KillOnDrop {
        KillOnDrop {
            child: self.command(args).spawn().unwrap(),
        }
    }

    #[track_caller]
    pub(crate) fn run(&self, args: &[&str]) -> ProcessOutput {
        self.start(args).finish()
    }

    #[track_caller]
    pub(crate) fn run_with_input(&self, args: &[&str], input: &[u8]) -> ProcessOutput {
        let mut running = KillOnDrop {
            child: self.command(args).stdin(Stdio::piped()).spawn().unwrap(),
        };
        running
            .child
            .stdin
            .take()
            .unwrap()
            .write_all(input)
            .unwrap();
        running.finish()
    }

    /// Runs the demo in the world's home and returns its events and its result.
    pub(crate) fn demo(&self, args: &[&str]) -> (Vec<Value>, Value) {
        let home = self.home().display().to_string();
        let ran = self
            .run(&[&["demo", "--json", "--home", &home], args].concat())
            .expect_code(0);
        let mut lines = ran.json_lines();
        let result = lines.pop().unwrap()["result"].clone();
        (lines, result)
    }
}

/// A model service that accepts calls and never answers. It has no other routes.
pub(crate) struct HangingModelService {
    pub(crate) address: String,
    pub(crate) connections: mpsc::Receiver<TcpStream>,
}

impl HangingModelService {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/v1", listener.local_addr().unwrap());
        let (tell, connections) = mpsc::channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let mut first = String::new();
                let _ = BufReader::new(&stream).read_line(&mut first);
                if first.starts_with("GET ") {
                    continue;
                }
                if tell.send(stream).is_err() {
                    return;
                }
            }
        });
        Self {
            address,
            connections,
        }
    }
}
