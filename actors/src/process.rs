//! Child processes: programs that are started, listened to, and gone afterwards (TOOL-5).
//!
//! Invariants: a program gets the variables that it is given and no others; it leads a session of its own, without
//! a terminal; whatever it started is killed with it, whether its [`Family`] is ended or dropped.
//! Not here: what is started and why (tools and hooks say so), leave for it, what models are shown of its output, and
//! the programs of servers of tools (`mcp/process.rs`).

mod before_exec;
pub mod confinement;
mod ends;
mod family;
mod mark;
mod peer;
mod table;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

pub use confinement::{Confinement, Fence, Reach, confinement};
pub use ends::Ends;
pub use family::{Ended, Family};
use futures::{FutureExt, future::FusedFuture};
pub use mark::MARK_VARIABLE;
pub use peer::is_confined_peer;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout, Command},
};

use crate::environment::Environment;
use before_exec::Preparation;
use mark::Mark;

/// How much is read from a program at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long what a program printed is waited for once it and its family are gone.
const DRAIN: Duration = Duration::from_secs(1);

/// A program that is about to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: PathBuf,
    variables: BTreeMap<String, String>,
    fence: Option<Fence>,
    may_gain_privileges: bool,
}

/// A program that was started, and what leads to it.
#[derive(Debug)]
pub struct Started {
    /// What it reads.
    pub stdin: ChildStdin,
    /// What it prints.
    pub stdout: ChildStdout,
    /// What it complains.
    pub stderr: ChildStderr,
    /// It, and everything that it starts. Dropping it ends them all.
    pub family: Family,
}

/// What became of a program that [`Launch::run`] ran.
#[derive(Debug)]
pub struct Finished {
    /// How it ended; `None` = it took too long, and was killed.
    pub status: Option<ExitStatus>,
    /// What it printed.
    pub stdout: Ends,
    /// What it complained.
    pub stderr: Ends,
}

impl Launch {
    /// Prepares a program that runs in `directory` with these variables, and the mark, and no others.
    pub fn new(program: impl Into<PathBuf>, directory: &Path, variables: BTreeMap<String, String>) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.to_owned(),
            variables,
            fence: None,
            may_gain_privileges: true,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Keeps it, and all that it starts, within a fence.
    #[must_use]
    pub fn within(mut self, fence: Option<Fence>) -> Self {
        self.fence = fence;
        self
    }

    /// Keeps set-user-id programs, such as `sudo`, from working: what they start could not be killed. Of root's
    /// powers those remain that concern files.
    #[must_use]
    pub fn without_new_privileges(mut self) -> Self {
        self.may_gain_privileges = false;
        self
    }

    /// Starts the program. Needs a tokio runtime with I/O enabled.
    pub fn start(self) -> io::Result<Started> {
        let mark = Mark::new();
        let mut command = std::process::Command::new(&self.program);
        command
            .args(&self.arguments)
            .current_dir(&self.directory)
            .env_clear()
            .envs(&self.variables)
            .env(MARK_VARIABLE, mark.text())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut preparation = Preparation::marked(mark.number());
        if !self.may_gain_privileges {
            preparation = preparation.without_new_privileges();
        }
        if let Some(fence) = self.fence {
            preparation = preparation.within(fence, &self.directory)?;
        }
        before_exec::prepare(&mut command, preparation);
        let mut child = Command::from(command).spawn()?;
        let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let family = Family::of(child, mark)?;
        let (Some(stdin), Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("a pipe of the child process is missing"));
        };
        Ok(Started { stdin, stdout, stderr, family })
    }

    /// Runs the program to its end, or for `limit` at most; then whatever it started is killed.
    ///
    /// `input` is what it reads. Of each stream the first `kept_bytes` are kept. Dropping the future kills as well.
    pub async fn run(self, input: &[u8], limit: Duration, kept_bytes: usize) -> io::Result<Finished> {
        let Started { mut stdin, mut stdout, mut stderr, mut family } = self.start()?;
        let (mut printed, mut complained) = (Ends::new(kept_bytes, 0), Ends::new(kept_bytes, 0));
        let status = {
            let feed = async {
                // A program need not read what it is given.
                let _ = stdin.write_all(input).await;
                drop(stdin);
            };
            let listen = async {
                tokio::join!(feed, collect(&mut stdout, &mut printed), collect(&mut stderr, &mut complained));
            };
            let mut listening = std::pin::pin!(listen.fuse());
            let mut over = std::pin::pin!(tokio::time::sleep(limit));
            let status = loop {
                tokio::select! {
                    status = family.wait() => break Some(status),
                    () = &mut over => break None,
                    () = &mut listening, if !listening.is_terminated() => {}
                }
            };
            family.end().await;
            if !listening.is_terminated() {
                // What is in the pipes still; nobody writes any more.
                let _ = tokio::time::timeout(DRAIN, &mut listening).await;
            }
            status.transpose()?
        };
        Ok(Finished { status, stdout: printed, stderr: complained })
    }
}

/// Reads a stream to its end.
async fn collect(stream: &mut (impl AsyncRead + Unpin), into: &mut Ends) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        into.push(&chunk[..count]);
    }
}

/// Returns the named variables that there are: what a program is given (TOOL-5).
pub fn allowed_variables(names: &[String], environment: &Environment) -> BTreeMap<String, String> {
    let named = |name: &String| Some((name.clone(), environment.get(name)?.to_owned()));
    names.iter().filter_map(named).collect()
}

/// Finds a program in the directories of PATH; relative ones do not count.
pub fn find_program(name: &str, environment: &Environment) -> Option<PathBuf> {
    let path = environment.get("PATH").unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let folders = path.split(':').map(Path::new).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
#[path = "process/tests.rs"]
mod tests;
