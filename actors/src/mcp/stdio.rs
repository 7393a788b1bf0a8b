//! An MCP server that is a child process: its environment, its output, and its termination.
//!
//! Standard error is logged, and its end is kept for error messages. [`ProcessTree`] ensures that
//! no process of the server remains after it has ended or was dropped.
//!
//! Elsewhere: the protocol (`connection.rs`).

use std::{
    io,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, ready},
    time::Duration,
};

use soong_protocol::{ErrorCode, ErrorInfo};
use tokio::{
    io::{AsyncRead, AsyncReadExt, ReadBuf},
    process::{ChildStderr, ChildStdin, ChildStdout},
    sync::watch,
};
use tokio_util::{sync::CancellationToken, task::AbortOnDropHandle};

use super::{leniency::BatchSplitter, task_tools::TaskTools, tool_list::sanitize};
use soong_sandbox::{ProcessTree, SpawnOptions, StartedProgram};

/// Maximum length of a line of output, in bytes. The SDK discards longer lines.
pub(super) const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// Maximum length of a line that is searched for tools that are tasks, in bytes.
const MAX_LIST_BYTES: usize = 1024 * 1024;
/// Time for a program to exit after its input is closed.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for a program to exit after it was asked to terminate.
const TERM_TIMEOUT: Duration = Duration::from_secs(1);
/// Size of a read from standard error, in bytes. Longer output is logged in several records.
const READ_BYTES: usize = 4096;
/// Length of the end of standard error that is kept, in bytes.
const STDERR_TAIL_BYTES: usize = 512;

/// A running server program.
pub(super) struct Process {
    process_tree: ProcessTree,
    stderr_tail: Arc<Mutex<Vec<u8>>>,
    stderr: Option<AbortOnDropHandle<()>>,
}

/// Standard input and output of the program.
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ProcessOutput,
}

/// Standard output of a program, with one message a line. It signals the end of the output before
/// the reader of the protocol notices it.
pub(super) struct ProcessOutput {
    stdout: ChildStdout,
    splitter: BatchSplitter,
    /// Output that was read and not passed on yet, from `passed_bytes`.
    pending: Vec<u8>,
    passed_bytes: usize,
    pub(super) closed: CancellationToken,
    /// Number of bytes read of the current line.
    line_bytes: usize,
    /// Beginning of the current line, up to `MAX_LIST_BYTES`.
    line: Vec<u8>,
    task_tools: TaskTools,
    /// Number of lines that were too long.
    oversized_lines: watch::Sender<u64>,
}

impl ProcessOutput {
    fn new(stdout: ChildStdout, task_tools: TaskTools) -> Self {
        let over = CancellationToken::new();
        let long_lines = watch::Sender::default();
        Self {
            stdout,
            splitter: BatchSplitter::default(),
            pending: Vec::new(),
            passed_bytes: 0,
            closed: over,
            line_bytes: 0,
            line: Vec::new(),
            task_tools,
            oversized_lines: long_lines,
        }
    }

    /// Passes on as much of the pending output as there is room for. Returns `false` if nothing is
    /// pending.
    fn pass_on(&mut self, into: &mut ReadBuf<'_>) -> bool {
        let rest = &self.pending[self.passed_bytes..];
        if rest.is_empty() {
            return false;
        }
        let count = rest.len().min(into.remaining());
        into.put_slice(&rest[..count]);
        self.passed_bytes += count;
        if self.passed_bytes == self.pending.len() {
            self.pending = Vec::new();
            self.passed_bytes = 0;
        }
        true
    }

    /// Counts the lines that are longer than [`MAX_LINE_BYTES`], including their line ends.
    pub(super) fn long_lines(&self) -> watch::Receiver<u64> {
        self.oversized_lines.subscribe()
    }

    fn inspect(&mut self, bytes: &[u8]) {
        for (index, piece) in bytes.split(|byte| *byte == b'\n').enumerate() {
            if index > 0 {
                self.task_tools.inspect(&self.line);
                self.line.clear();
            }
            let room = MAX_LIST_BYTES
                .saturating_sub(self.line.len())
                .min(piece.len());
            self.line.extend_from_slice(&piece[..room]);
            let before = if index == 0 { self.line_bytes } else { 0 };
            self.line_bytes = before + piece.len();
            // The SDK counts the line end too.
            if before < MAX_LINE_BYTES && self.line_bytes >= MAX_LINE_BYTES {
                self.oversized_lines.send_modify(|count| *count += 1);
            }
        }
    }
}

impl AsyncRead for ProcessOutput {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let start = into.filled().len();
        if into.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        loop {
            if self.pass_on(into) {
                return Poll::Ready(Ok(()));
            }
            let read = ready!(Pin::new(&mut self.stdout).poll_read(context, into));
            let is_over = read.is_err() || into.filled().len() == start;
            if is_over {
                self.closed.cancel();
                return Poll::Ready(read);
            }
            self.inspect(&into.filled()[start..]);
            let Self {
                splitter, pending, ..
            } = &mut *self;
            if !splitter.take(&into.filled()[start..], MAX_LINE_BYTES, pending) {
                return Poll::Ready(Ok(()));
            }
            into.set_filled(start);
        }
    }
}

impl Process {
    /// Starts a program.
    pub(super) async fn start(
        server: &str,
        command: &str,
        args: &[String],
        variables: &[(String, String)],
        task_tools: &TaskTools,
    ) -> Result<(Self, Pipes), ErrorInfo> {
        let failed = |why: String| {
            let message = format!(
                "{command:?} (mcp.{server}.command) could not be started: {why}; check the command and PATH"
            );
            ErrorInfo::new(ErrorCode::ConfigError, message)
        };
        // The program runs in the working directory of this process.
        let launch =
            SpawnOptions::new(command, Path::new("."), variables.iter().cloned().collect())
                .arguments(args);
        let started = launch
            .start()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let StartedProgram {
            stdin,
            stdout,
            stderr,
            process_tree: family,
        } = started;
        let last_words = Arc::<Mutex<Vec<u8>>>::default();
        let logging = log_stderr(server.to_owned(), stderr, Arc::clone(&last_words));
        let stderr = Some(AbortOnDropHandle::new(tokio::spawn(logging)));
        let Some(stdin) = stdin else {
            return Err(failed("its standard input is not available".to_owned()));
        };
        let stdout = ProcessOutput::new(stdout, task_tools.clone());
        Ok((
            Self {
                process_tree: family,
                stderr_tail: last_words,
                stderr,
            },
            Pipes { stdin, stdout },
        ))
    }

    /// Returns the end of standard error, on one line.
    pub(super) fn stderr_tail(&self) -> String {
        let tail = self
            .stderr_tail
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sanitize(&String::from_utf8_lossy(&tail), STDERR_TAIL_BYTES)
    }

    /// Waits up to `EXIT_TIMEOUT` for a program that is about to exit, and returns how it ended.
    pub(super) async fn exit_reason(&mut self) -> String {
        let how = match tokio::time::timeout(EXIT_TIMEOUT, self.process_tree.wait()).await {
            Ok(Ok(status)) => format!("its process exited ({status})"),
            Ok(Err(error)) => format!("waiting for its process failed ({error})"),
            Err(_) => "it closed its output".to_owned(),
        };
        // The end of standard error may not have been read yet.
        if let Some(logging) = &mut self.stderr {
            let _ = tokio::time::timeout(Duration::from_millis(100), logging).await;
            self.stderr = None;
        }
        match self.stderr_tail() {
            words if words.is_empty() => how,
            words => format!("{how}; last output: {words}"),
        }
    }

    /// Ends the program, whose input is closed: waits for it to exit, then asks it to terminate,
    /// then kills it with all processes it started. Returns after it has been reaped.
    pub(super) async fn end(mut self) {
        if tokio::time::timeout(EXIT_TIMEOUT, self.process_tree.wait())
            .await
            .is_err()
        {
            self.process_tree.ask_to_end().await;
            let _ = tokio::time::timeout(TERM_TIMEOUT, self.process_tree.wait()).await;
        }
        self.process_tree.end().await;
    }
}

/// Logs standard error until it is closed, and keeps its end.
async fn log_stderr(server: String, mut stderr: ChildStderr, last_words: Arc<Mutex<Vec<u8>>>) {
    let mut piece = vec![0; READ_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut piece).await {
        let bytes = &piece[..count];
        let text = sanitize(&String::from_utf8_lossy(bytes), READ_BYTES);
        tracing::debug!(server, text, "an MCP server wrote to standard error");
        let mut tail = last_words.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend_from_slice(bytes);
        let surplus = tail.len().saturating_sub(STDERR_TAIL_BYTES);
        tail.drain(..surplus);
    }
}
