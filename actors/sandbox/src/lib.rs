//! Child processes: programs that are started, listened to, and gone afterwards (TOOL-5).
//!
//! Each program runs below a supervisor process, a copy of this one (`before_exec/supervisor.rs`).
//!
//! Invariants:
//! - A program gets the variables that it is given and no others.
//! - It leads a session of its own, without a terminal.
//! - Whatever it started is killed with it, whether its [`Family`] is ended or dropped, or this process is killed.
//!
//! Elsewhere: which programs are started and why, and what is shown of their output.

mod before_exec;
pub mod confinement;
mod ends;
mod family;
mod mark;
mod owner;
mod peer;
mod report;
mod table;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

pub use before_exec::Limits;
pub use confinement::{Confinement, Extent, Fence, Protection, Reach, confinement, protections};
pub use ends::Ends;
pub use family::{Ended, Family, Load, Meter};
use futures::{FutureExt, future::FusedFuture};
pub use mark::MARK_VARIABLE;
pub use owner::protect_owner;
pub use peer::is_confined_peer;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
};
use tokio_util::task::AbortOnDropHandle;

use before_exec::{Image, Preparation, SupervisorEnds};
use mark::Mark;

/// How much is read from a program at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// How long what a program printed is waited for once it and its family are gone.
const DRAIN: Duration = Duration::from_secs(1);

/// Returns which version of Landlock the kernel has; 0 = none, or it is switched off.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn landlock_version() -> i64 {
    before_exec::landlock_version()
}

/// A program that is about to be started.
#[derive(Debug, Clone)]
pub struct Launch {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: PathBuf,
    variables: BTreeMap<String, String>,
    fence: Option<Fence>,
    may_gain_privileges: bool,
    has_input: bool,
    merge_stderr: bool,
    limits: Limits,
}

/// A supervisor that has started its program.
struct Spawned {
    supervisor: std::process::Child,
    mark: Mark,
    lifeline: OwnedFd,
    reports: OwnedFd,
}

/// A program that was started, and what leads to it.
#[derive(Debug)]
pub struct Started {
    /// Its standard input; `None` after [`Launch::without_input`].
    pub stdin: Option<ChildStdin>,
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
            has_input: true,
            merge_stderr: false,
            limits: Limits::default(),
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

    /// Sets limits on each process of the program.
    #[must_use]
    pub fn limited(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Connects standard input to the null device.
    #[must_use]
    pub fn without_input(mut self) -> Self {
        self.has_input = false;
        self
    }

    /// Sends standard error where standard output goes.
    #[must_use]
    pub fn with_merged_stderr(mut self) -> Self {
        self.merge_stderr = true;
        self
    }

    /// Starts the program. Needs a tokio runtime with I/O enabled. Dropping the future ends what it has started.
    ///
    /// # Errors
    /// The program does not exist, or cannot be run or confined.
    pub async fn start(self) -> io::Result<Started> {
        self.start_keeping(()).await
    }

    /// Starts the program as [`Launch::start`] does, and keeps a value until it and all that it started are gone, also if
    /// the future is dropped.
    ///
    /// # Errors
    /// Those of [`Launch::start`]; the value is dropped.
    pub async fn start_keeping(self, belonging: impl Send + Sync + 'static) -> io::Result<Started> {
        // To copy a large process, and to prepare its sandbox, takes milliseconds.
        let starting = tokio::task::spawn_blocking(move || self.start_blocking(belonging));
        AbortOnDropHandle::new(starting).await.map_err(io::Error::other)?
    }

    fn start_blocking(self, belonging: impl Send + Sync + 'static) -> io::Result<Started> {
        let Spawned { mut supervisor, mark, lifeline, reports } = self.spawn([Stdio::piped(), Stdio::piped()])?;
        let pipes = (supervisor.stdin.take(), supervisor.stdout.take(), supervisor.stderr.take());
        let mut family = Family::of(supervisor, mark, lifeline, reports)?;
        family.keep(belonging);
        let (stdin, Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("a pipe of the child process is missing"));
        };
        let stdin = stdin.map(ChildStdin::from_std).transpose()?;
        Ok(Started { stdin, stdout: ChildStdout::from_std(stdout)?, stderr: ChildStderr::from_std(stderr)?, family })
    }

    /// Runs the program to its end, without input and output, and waits for everything that it started to be gone.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    fn run_quietly(self) -> io::Result<ExitStatus> {
        use std::os::unix::process::ExitStatusExt;
        let Spawned { mut supervisor, lifeline, reports, .. } =
            self.without_input().spawn([Stdio::null(), Stdio::null()])?;
        let report = report::Report::receive(&reports);
        drop(lifeline);
        supervisor.wait()?;
        match report? {
            Some(report::Report::Exited { status }) => Ok(ExitStatus::from_raw(status)),
            _ => Err(io::Error::other("its supervisor was killed")),
        }
    }

    /// Starts a supervisor, which starts the program.
    fn spawn(self, [stdout, stderr]: [Stdio; 2]) -> io::Result<Spawned> {
        let mark = Mark::new();
        let mut variables = self.variables;
        variables.insert(MARK_VARIABLE.to_owned(), mark.text());
        let program = located(&self.program, &variables)?;
        let pairs = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let image = Image::new(&program, self.arguments.iter().map(OsString::as_os_str), pairs)?;
        let mut preparation = Preparation::marked(mark.number()).limited(self.limits);
        if !self.may_gain_privileges {
            preparation = preparation.without_new_privileges();
        }
        if self.merge_stderr {
            preparation = preparation.with_merged_stderr();
        }
        if let Some(fence) = self.fence {
            preparation = preparation.within(fence, &self.directory)?;
        }
        let ((lifeline_end, lifeline), (reports, reports_end)) = (io::pipe()?, io::pipe()?);
        let ends = SupervisorEnds { lifeline: lifeline_end.into(), reports: reports_end.into() };
        // Its program, arguments and variables are those of the image.
        let mut command = std::process::Command::new(&program);
        let stdin = if self.has_input { Stdio::piped() } else { Stdio::null() };
        command.current_dir(&self.directory).stdin(stdin).stdout(stdout).stderr(stderr);
        before_exec::supervise(&mut command, preparation, image, ends);
        let supervisor = command.spawn()?;
        Ok(Spawned { supervisor, mark, lifeline: lifeline.into(), reports: reports.into() })
    }

    /// Runs the program to its end, or for `limit` at most; then whatever it started is killed.
    ///
    /// `input` is what it reads. Of each stream the first `kept_bytes` are kept. Dropping the future kills as well.
    pub async fn run(self, input: &[u8], limit: Duration, kept_bytes: usize) -> io::Result<Finished> {
        let Started { stdin, mut stdout, mut stderr, mut family } = self.start().await?;
        let (mut printed, mut complained) = (Ends::new(kept_bytes, 0), Ends::new(kept_bytes, 0));
        let status = {
            let feed = async {
                if let Some(mut stdin) = stdin {
                    // A program need not read what it is given.
                    let _ = stdin.write_all(input).await;
                }
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

/// Returns the path of a program: itself if it has a slash, else what PATH leads to.
fn located(program: &Path, variables: &BTreeMap<String, String>) -> io::Result<PathBuf> {
    let name = program.to_str().filter(|name| !name.contains('/'));
    let Some(name) = name else { return Ok(program.to_owned()) };
    let path = variables.get("PATH").map(String::as_str).filter(|path| !path.is_empty());
    find_program(name, path).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Finds a program in the folders of `path`, the value of PATH if there is one. Relative folders do not count.
pub fn find_program(name: &str, path: Option<&str>) -> Option<PathBuf> {
    let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let folders = path.split(':').map(Path::new).filter(|folder| folder.is_absolute());
    folders.map(|folder| folder.join(name)).find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
