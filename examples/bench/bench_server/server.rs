//! The server under test: a separate process with a temporary home.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use serde_json::Value;

use crate::Failed;

/// Returns the path of the binary under test.
pub(crate) fn binary() -> Result<PathBuf, Failed> {
    let binary = PathBuf::from(
        std::env::var_os("SOONG_BINARY").unwrap_or_else(|| "target/release/soong".into()),
    );
    std::fs::canonicalize(&binary).map_err(|error| {
        format!(
            "{}: {error}: build it with cargo build --release",
            binary.display()
        )
        .into()
    })
}

/// A running server. Killed when dropped.
pub(crate) struct Server {
    _dir: tempfile::TempDir,
    home: PathBuf,
    project: PathBuf,
    child: Option<Child>,
    pub(crate) url: String,
    pub(crate) token: String,
}

impl Server {
    /// Starts a server that uses the model service at this address.
    pub(crate) fn start(base_url: &str) -> Result<Self, Failed> {
        let dir = tempfile::tempdir()?;
        let home = dir.path().join("home");
        let project = dir.path().join("project");
        std::fs::create_dir_all(&home)?;
        std::fs::create_dir_all(&project)?;
        std::fs::write(project.join("README.md"), "# A project\n")?;
        let config = format!(
            "[model]\nbase_url = \"{base_url}\"\nname = \"m\"\nmax_concurrency = 256\n\
             [runtime]\nidle_session_s = 1\n[server]\nmax_connections = 8192\n"
        );
        std::fs::write(home.join("config.toml"), config)?;
        let mut server = Self {
            _dir: dir,
            home,
            project,
            child: None,
            url: String::new(),
            token: String::new(),
        };
        server.begin("127.0.0.1:0")?;
        server.token = std::fs::read_to_string(server.home.join("server.token"))?
            .trim()
            .to_owned();
        Ok(server)
    }

    fn begin(&mut self, addr: &str) -> Result<(), Failed> {
        let mut child = Command::new(binary()?)
            .arg("--home")
            .arg(&self.home)
            .args(["serve", "--json", "--addr", addr])
            .current_dir(&self.project)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("the server has no stdout")?)
            .read_line(&mut line)?;
        let started: Value = serde_json::from_str(&line).map_err(|_| "the server did not start")?;
        started["url"]
            .as_str()
            .ok_or("the server reported no URL")?
            .clone_into(&mut self.url);
        self.child = Some(child);
        Ok(())
    }

    /// Ends the server, with SIGTERM or like `kill -9`, and starts it again on the same address.
    pub(crate) fn restart(&mut self, gently: bool) -> Result<(), Failed> {
        let mut child = self.child.take().ok_or("the server is not running")?;
        let signal = if gently {
            rustix::process::Signal::TERM
        } else {
            rustix::process::Signal::KILL
        };
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), signal)?;
        child.wait()?;
        let addr = self.url.trim_start_matches("http://").to_owned();
        self.begin(&addr)
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    pub(crate) fn pid(&self) -> Result<u32, Failed> {
        Ok(self.child.as_ref().ok_or("the server is not running")?.id())
    }

    /// Returns the resident memory of the process in KiB.
    pub(crate) fn resident_kib(&self) -> Result<u64, Failed> {
        let id = self.pid()?;
        let status = std::fs::read_to_string(format!("/proc/{id}/status"))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .ok_or("no VmRSS")?;
        Ok(line.trim().trim_end_matches(" kB").parse()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
