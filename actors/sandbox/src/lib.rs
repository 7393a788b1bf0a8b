//! Child processes: starting programs, reading their output, and ending everything that they
//! started (TOOL-5).
//!
//! Each program runs below a supervisor process, a copy of this one (`before_exec/supervisor.rs`).
//!
//! Invariants:
//! - A program gets the variables that it is given and no others.
//! - It leads its own session, without a terminal.
//! - Everything that it started is killed with it, whether its [`ProcessTree`] is ended or dropped,
//!   or this process is killed.
//!
//! Elsewhere: which programs are started and why, and how their output is shown.

mod before_exec;
pub mod confinement;
mod head_tail;
mod owner;
mod peer;
mod process_table;
mod process_tag;
mod process_tree;
mod report;

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

pub use before_exec::ResourceLimits;
pub use confinement::{
    Confinement, Protection, ProtectionLevel, Sandbox, SandboxPolicy, confinement, protections,
};
use futures::{FutureExt, future::FusedFuture};
pub use head_tail::HeadTailBuffer;
pub use owner::protect_owner;
pub use peer::is_tool_process;
pub use process_tag::MARK_VARIABLE;
pub use process_tree::{EndSummary, ProcessTree, ResourceUsage, UsageMeter};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{ChildStderr, ChildStdin, ChildStdout},
};
use tokio_util::task::AbortOnDropHandle;

use before_exec::{ChildSetup, ExecImage, SupervisorEnds};
use process_tag::ProcessTag;

/// Maximum number of bytes read from a program at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Maximum time to wait for remaining output after all processes have ended.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns the kernel's Landlock version; 0 if Landlock is missing or disabled.
#[cfg(all(target_os = "linux", feature = "sandbox"))]
fn landlock_version() -> i64 {
    before_exec::landlock_version()
}

/// Returns whether programs can be confined on this machine, at least partly. Unlike
/// [`confinement`](confinement::confinement), it starts no program.
pub fn can_confine() -> bool {
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    return landlock_version() >= 1;
    #[cfg(not(all(target_os = "linux", feature = "sandbox")))]
    return false;
}

/// Options for starting a program.
#[derive(Debug, Clone)]
pub struct SpawnOptions {
    program: PathBuf,
    arguments: Vec<OsString>,
    directory: PathBuf,
    variables: BTreeMap<String, String>,
    sandbox: Option<Sandbox>,
    may_gain_privileges: bool,
    has_input: bool,
    merge_stderr: bool,
    limits: ResourceLimits,
}

/// A supervisor that has started its program, with this process's ends of its pipes.
struct SpawnedSupervisor {
    supervisor: std::process::Child,
    mark: ProcessTag,
    lifeline: OwnedFd,
    reports: OwnedFd,
}

/// A started program and its streams.
#[derive(Debug)]
pub struct StartedProgram {
    /// Standard input of the program; `None` after [`SpawnOptions::without_input`].
    pub stdin: Option<ChildStdin>,
    /// Standard output of the program.
    pub stdout: ChildStdout,
    /// Standard error of the program.
    pub stderr: ChildStderr,
    /// The program and everything that it starts. Dropping it ends them all.
    pub process_tree: ProcessTree,
}

/// Result of [`SpawnOptions::run`].
#[derive(Debug)]
pub struct ProgramOutput {
    /// Exit status; `None` if the time limit passed and the program was killed.
    pub status: Option<ExitStatus>,
    /// The first bytes of standard output.
    pub stdout: HeadTailBuffer,
    /// The first bytes of standard error.
    pub stderr: HeadTailBuffer,
}

impl SpawnOptions {
    /// Prepares a program that runs in `directory` with these variables, [`MARK_VARIABLE`], and no
    /// others.
    pub fn new(
        program: impl Into<PathBuf>,
        directory: &Path,
        variables: BTreeMap<String, String>,
    ) -> Self {
        Self {
            program: program.into(),
            arguments: Vec::new(),
            directory: directory.to_owned(),
            variables,
            sandbox: None,
            may_gain_privileges: true,
            has_input: true,
            merge_stderr: false,
            limits: ResourceLimits::default(),
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<A: Into<OsString>>(mut self, arguments: impl IntoIterator<Item = A>) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Confines the program and everything that it starts.
    #[must_use]
    pub fn sandboxed(mut self, fence: Option<Sandbox>) -> Self {
        self.sandbox = fence;
        self
    }

    /// Disables set-user-id programs such as `sudo`, because their processes could not be killed.
    /// Root keeps only the capabilities for files, signals, low ports, and changing user and group
    /// ids.
    #[must_use]
    pub fn without_new_privileges(mut self) -> Self {
        self.may_gain_privileges = false;
        self
    }

    /// Sets resource limits for each process of the program.
    #[must_use]
    pub fn limited(mut self, limits: ResourceLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Connects standard input to the null device.
    #[must_use]
    pub fn without_input(mut self) -> Self {
        self.has_input = false;
        self
    }

    /// Sends standard error to standard output.
    #[must_use]
    pub fn with_merged_stderr(mut self) -> Self {
        self.merge_stderr = true;
        self
    }

    /// Starts the program. Requires a tokio runtime with I/O enabled. Dropping the future ends
    /// everything that it has started.
    ///
    /// # Errors
    /// The program does not exist, or cannot be run or confined.
    pub async fn start(self) -> io::Result<StartedProgram> {
        self.start_with_attachment(()).await
    }

    /// Starts the program as [`SpawnOptions::start`] does, and keeps a value until the program and
    /// everything that it started have ended, even if the future is dropped.
    ///
    /// # Errors
    /// Those of [`SpawnOptions::start`]; the value is dropped.
    pub async fn start_with_attachment(
        self,
        attachment: impl Send + Sync + 'static,
    ) -> io::Result<StartedProgram> {
        // Copying a large process and preparing its sandbox take milliseconds.
        let starting = tokio::task::spawn_blocking(move || self.start_blocking(attachment));
        AbortOnDropHandle::new(starting)
            .await
            .map_err(io::Error::other)?
    }

    fn start_blocking(self, attachment: impl Send + Sync + 'static) -> io::Result<StartedProgram> {
        let SpawnedSupervisor {
            mut supervisor,
            mark,
            lifeline,
            reports,
        } = self.spawn([Stdio::piped(), Stdio::piped()])?;
        let pipes = (
            supervisor.stdin.take(),
            supervisor.stdout.take(),
            supervisor.stderr.take(),
        );
        let mut family = ProcessTree::of(supervisor, mark, lifeline, reports)?;
        family.attach(attachment);
        let (stdin, Some(stdout), Some(stderr)) = pipes else {
            return Err(io::Error::other("a pipe of the child process is missing"));
        };
        let stdin = stdin.map(ChildStdin::from_std).transpose()?;
        Ok(StartedProgram {
            stdin,
            stdout: ChildStdout::from_std(stdout)?,
            stderr: ChildStderr::from_std(stderr)?,
            process_tree: family,
        })
    }

    /// Runs the program to its end, without input and output, and waits until everything that it
    /// started has ended.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    fn run_without_output(self) -> io::Result<ExitStatus> {
        use std::os::unix::process::ExitStatusExt;
        let SpawnedSupervisor {
            mut supervisor,
            lifeline,
            reports,
            ..
        } = self.without_input().spawn([Stdio::null(), Stdio::null()])?;
        let report = report::Report::receive(&reports);
        drop(lifeline);
        supervisor.wait()?;
        match report? {
            Some(report::Report::Exited { status }) => Ok(ExitStatus::from_raw(status)),
            _ => Err(io::Error::other(
                "the supervisor process of the program was killed",
            )),
        }
    }

    /// Starts a supervisor, which starts the program.
    fn spawn(self, [stdout, stderr]: [Stdio; 2]) -> io::Result<SpawnedSupervisor> {
        let mark = ProcessTag::new();
        let mut variables = self.variables;
        variables.insert(MARK_VARIABLE.to_owned(), mark.text());
        let program = resolve_program(&self.program, &variables)?;
        let pairs = variables
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()));
        let image = ExecImage::new(
            &program,
            self.arguments.iter().map(OsString::as_os_str),
            pairs,
        )?;
        let mut preparation = ChildSetup::marked(mark.number()).limited(self.limits);
        if !self.may_gain_privileges {
            preparation = preparation.without_new_privileges();
        }
        if self.merge_stderr {
            preparation = preparation.with_merged_stderr();
        }
        if let Some(fence) = self.sandbox {
            preparation = preparation.with_sandbox(fence, &self.directory)?;
        }
        let (lifeline_end, lifeline) = io::pipe()?;
        let (reports, reports_end) = io::pipe()?;
        let ends = SupervisorEnds {
            lifeline: lifeline_end.into(),
            reports: reports_end.into(),
        };
        // The supervisor never executes this command: the program, its arguments and its variables
        // are those of the image.
        let mut command = std::process::Command::new(&program);
        let stdin = if self.has_input {
            Stdio::piped()
        } else {
            Stdio::null()
        };
        command
            .current_dir(&self.directory)
            .stdin(stdin)
            .stdout(stdout)
            .stderr(stderr);
        before_exec::supervise(&mut command, preparation, image, ends);
        let supervisor = command.spawn()?;
        Ok(SpawnedSupervisor {
            supervisor,
            mark,
            lifeline: lifeline.into(),
            reports: reports.into(),
        })
    }

    /// Runs the program until it ends, or for `limit` at most. Then everything that it started is
    /// killed.
    ///
    /// `input` is written to standard input. The first `kept_bytes` of each stream are kept.
    /// Dropping the future kills all processes as well.
    pub async fn run(
        self,
        input: &[u8],
        limit: Duration,
        kept_bytes: usize,
    ) -> io::Result<ProgramOutput> {
        let StartedProgram {
            stdin,
            mut stdout,
            mut stderr,
            process_tree: mut family,
        } = self.start().await?;
        let mut stdout_bytes = HeadTailBuffer::new(kept_bytes, 0);
        let mut stderr_bytes = HeadTailBuffer::new(kept_bytes, 0);
        let status = {
            let feed = async {
                if let Some(mut stdin) = stdin {
                    // A program need not read its input.
                    let _ = stdin.write_all(input).await;
                }
            };
            let listen = async {
                tokio::join!(
                    feed,
                    collect(&mut stdout, &mut stdout_bytes),
                    collect(&mut stderr, &mut stderr_bytes)
                );
            };
            let mut listening = std::pin::pin!(listen.fuse());
            let mut time_limit = std::pin::pin!(tokio::time::sleep(limit));
            let status = loop {
                tokio::select! {
                    status = family.wait() => break Some(status),
                    () = &mut time_limit => break None,
                    () = &mut listening, if !listening.is_terminated() => {}
                }
            };
            family.end().await;
            if !listening.is_terminated() {
                // Reads the remaining output from the pipes, which have no writers any more.
                let _ = tokio::time::timeout(DRAIN_TIMEOUT, &mut listening).await;
            }
            status.transpose()?
        };
        Ok(ProgramOutput {
            status,
            stdout: stdout_bytes,
            stderr: stderr_bytes,
        })
    }
}

/// Reads a stream to its end.
async fn collect(stream: &mut (impl AsyncRead + Unpin), into: &mut HeadTailBuffer) {
    let mut chunk = vec![0; CHUNK_BYTES];
    while let Ok(count @ 1..) = stream.read(&mut chunk).await {
        into.push(&chunk[..count]);
    }
}

/// Returns the path of a program: the given one if it contains a slash, else the one found through
/// PATH.
fn resolve_program(program: &Path, variables: &BTreeMap<String, String>) -> io::Result<PathBuf> {
    let name = program.to_str().filter(|name| !name.contains('/'));
    let Some(name) = name else {
        return Ok(program.to_owned());
    };
    let path = variables
        .get("PATH")
        .map(String::as_str)
        .filter(|path| !path.is_empty());
    find_program(name, path).ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// Finds a program in the folders of `path`, the value of PATH. Default: the system folders.
/// Relative folders are ignored.
pub fn find_program(name: &str, path: Option<&str>) -> Option<PathBuf> {
    let path = path.unwrap_or("/usr/local/bin:/usr/bin:/bin");
    let folders = path
        .split(':')
        .map(Path::new)
        .filter(|folder| folder.is_absolute());
    folders
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests;
