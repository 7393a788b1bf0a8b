//! A server that is a program: started in a process group of its own, and gone as a whole.
//!
//! It gets the variables that it is to have and a mark, nothing else. What it writes to standard error is logged,
//! and its last words are kept for whoever asks why it ended. Invariant: when [`Process::end`] returns, or the
//! process was dropped, nothing of its group runs on; on Linux that counts for what left the group as well, found
//! by its mark.

use std::{
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use soong_protocol::{ErrorCode, ErrorInfo};
use tokio::{
    io::AsyncReadExt,
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
};
use tokio_util::task::AbortOnDropHandle;

use super::listing::clean;

/// Names the mark in the environment of everything that a call or a server starts.
pub(super) const MARK: &str = "SOONG_CALL";
/// How long a program may take to end by itself when its input is closed.
const GRACE: Duration = Duration::from_secs(1);
/// How long it may take when it was told to end.
const TERM_GRACE: Duration = Duration::from_secs(1);
/// How much of standard error is taken at once, in bytes; what is longer is logged in pieces.
const PIECE_BYTES: usize = 4096;
/// How many of its last words are kept, in bytes.
const LAST_WORDS_BYTES: usize = 512;

/// A running program.
pub(super) struct Process {
    /// `None` = it has ended, and its group is gone.
    group: Option<Group>,
    child: Child,
    last_words: Arc<Mutex<Vec<u8>>>,
    stderr: Option<AbortOnDropHandle<()>>,
}

/// Its input and output.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

impl Process {
    /// Starts a program.
    pub(super) fn start(
        server: &str,
        command: &str,
        args: &[String],
        variables: &[(String, String)],
    ) -> Result<(Self, Pipes), ErrorInfo> {
        let failed = |why: String| {
            let message =
                format!("{command:?} (mcp.{server}.command) could not be started: {why}; check the command and PATH");
            ErrorInfo::new(ErrorCode::ConfigError, message)
        };
        let mark = format!("mcp-{server}-{}", uuid::Uuid::now_v7());
        let mut program = Command::new(command);
        program
            .args(args)
            .env_clear()
            .envs(variables.iter().map(|(name, value)| (name, value)))
            .env(MARK, &mark)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        let mut child = program.spawn().map_err(|error| failed(error.to_string()))?;
        let leader = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = leader.map(|leader| Group { leader, mark });
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            return Err(failed("it has no pipes".to_owned()));
        };
        let last_words = Arc::<Mutex<Vec<u8>>>::default();
        let logging = log(server.to_owned(), stderr, Arc::clone(&last_words));
        let stderr = Some(AbortOnDropHandle::new(tokio::spawn(logging)));
        Ok((Self { group, child, last_words, stderr }, Pipes { stdin, stdout }))
    }

    /// Returns what it last wrote to standard error, on one line.
    pub(super) fn last_words(&self) -> String {
        let words = self.last_words.lock().unwrap_or_else(PoisonError::into_inner);
        clean(&String::from_utf8_lossy(&words), LAST_WORDS_BYTES)
    }

    /// Waits a little for a program that is about to end by itself, and says how it did.
    pub(super) async fn obituary(&mut self) -> String {
        let how = match tokio::time::timeout(GRACE, self.child.wait()).await {
            Ok(Ok(status)) => format!("its process ended ({status})"),
            Ok(Err(error)) => format!("its process cannot be waited for ({error})"),
            Err(_) => "it closed its output".to_owned(),
        };
        // Its last words may still be on the way.
        if let Some(logging) = &mut self.stderr {
            let _ = tokio::time::timeout(Duration::from_millis(100), logging).await;
            self.stderr = None;
        }
        match self.last_words() {
            words if words.is_empty() => how,
            words => format!("{how}; it said: {words}"),
        }
    }

    /// Ends it, whose input is closed: it may leave by itself for a while, then it is told to, then it is killed.
    /// Returns when it is reaped.
    pub(super) async fn end(mut self) {
        let is_over = tokio::time::timeout(GRACE, self.child.wait()).await.is_ok();
        let Some(group) = self.group.take() else { return };
        if !is_over {
            group.signal(Signal::TERM);
            let _ = tokio::time::timeout(TERM_GRACE, self.child.wait()).await;
        }
        // What it started is still in the group, or was.
        group.kill();
        let _ = self.child.wait().await;
    }
}

impl Drop for Process {
    /// Cut off: nothing of it may stay. The leader is reaped by tokio.
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.kill();
        }
    }
}

/// A program with everything that it started.
struct Group {
    leader: Pid,
    mark: String,
}

impl Group {
    fn signal(&self, signal: Signal) {
        let _ = kill_process_group(self.leader, signal); // it may be gone
    }

    fn kill(&self) {
        self.signal(Signal::KILL);
        for runaway in marked(&self.mark) {
            let _ = rustix::process::kill_process(runaway, Signal::KILL);
        }
    }
}

/// Finds the processes that carry a mark in their environment. Where there is no `/proc`, it finds none.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{MARK}={mark}");
    let Ok(processes) = std::fs::read_dir("/proc") else { return Vec::new() };
    let ids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let carries = |id: &i32| {
        let environment = std::fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    ids.filter(carries).filter_map(Pid::from_raw).collect()
}

/// Logs standard error to its end, and keeps the last of it.
async fn log(server: String, mut stderr: ChildStderr, last_words: Arc<Mutex<Vec<u8>>>) {
    let mut piece = vec![0; PIECE_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        let said = &piece[..count];
        let text = clean(&String::from_utf8_lossy(said), PIECE_BYTES);
        tracing::debug!(server, text, "an MCP server wrote to standard error");
        let mut words = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        words.extend_from_slice(said);
        let surplus = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..surplus);
    }
}
