//! Runs one command until none of its processes is left (TOOL-5).
//!
//! Elsewhere: finding and killing processes (`soong_sandbox`).

use std::{
    os::unix::{fs::DirBuilderExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soong_protocol::{ErrorCode, ErrorInfo, PackageCache};
use soong_sandbox::{EndSummary, HeadTailBuffer, Sandbox, SpawnOptions, StartedProgram};
use tokio::{
    io::AsyncReadExt,
    process::ChildStdout,
    time::{Instant, sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    BashState,
    cache::PackageCaches,
    format_output::{MAX_END_BYTES, format_output, sanitize},
    limits::CommandLimits,
    sandbox_policy::sandbox_policy,
};
use crate::{Progress, ToolContext, ToolOutput, ToolResult};

/// Maximum size of each end of the output that is kept in memory, in bytes.
const KEPT_OUTPUT_BYTES: usize = MAX_END_BYTES;
/// Maximum size of each end of the output that is shown after a timeout, in bytes. The model reads
/// it in the error.
const TIMEOUT_OUTPUT_BYTES: usize = 3_000;
/// Size above which an output is replaced by one line when the prompt is rebuilt, in bytes (ART-9).
const LARGE_OUTPUT_BYTES: usize = 4_096;
const CHUNK_BYTES: usize = 64 * 1024;
/// Minimum time between two progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(400);
/// Maximum size of one progress report, in bytes.
const MAX_PROGRESS_BYTES: usize = 2 * 1024;
/// Time that a command has to exit after it was asked to.
const EXIT_GRACE: Duration = Duration::from_millis(500);
/// Maximum time to read the rest of the pipe after all writers have exited.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(1);
/// Maximum length of the title, in characters.
const TITLE_CHARS: usize = 80;

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandEnd {
    /// It exited, with this status in the notation of shells.
    Status(i32),
    /// Unknown, because its supervisor was killed.
    SupervisorKilled,
    /// It exceeded its time limit.
    TimedOut,
    /// The call was cancelled.
    Cancelled,
    /// It exceeded a limit; the text describes which.
    LimitExceeded(String),
}

/// Runs a command for at most `limit`.
pub(super) async fn run(
    setting: &BashState,
    context: &ToolContext,
    command: &str,
    limit: Duration,
) -> ToolResult {
    let mut running = start(setting, context, command).await?;
    let over_limit = setting.limits.wait_until_exceeded(running.family.meter());
    let mut end = tokio::select! {
        biased;
        end = running.follow(Some(context), Instant::now() + limit) => end,
        which = over_limit => CommandEnd::LimitExceeded(which),
    };
    if matches!(end, CommandEnd::TimedOut | CommandEnd::Cancelled) {
        running.family.ask_to_end().await;
        running.follow(None, Instant::now() + EXIT_GRACE).await;
    }
    let RunningCommand {
        family,
        mut stdout,
        output: mut printed,
        ..
    } = running;
    let ended = family.end().await;
    let _ = timeout(DRAIN_TIMEOUT, async {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = stdout.read(&mut chunk).await {
            printed.push(&chunk[..count]);
        }
    })
    .await;
    if context.cancel.is_cancelled() {
        end = CommandEnd::Cancelled;
    }
    let most_ms = setting.tool_environment.tools.max_timeout_ms;
    command_result(
        command,
        end,
        &printed,
        ended,
        &AppliedLimits {
            timeout: limit,
            max_timeout_ms: most_ms,
            limits: setting.limits,
        },
    )
}

/// Starts the command. [`RunningCommand::follow`] then reads its output.
async fn start(
    setting: &BashState,
    context: &ToolContext,
    command: &str,
) -> Result<RunningCommand, ErrorInfo> {
    let failed = |what: &str, error: std::io::Error| {
        let message = format!("the command was not run: {what}: {error}");
        ErrorInfo::new(ErrorCode::InternalError, message)
    };
    let tool_environment = setting.tool_environment.clone();
    let roots = Arc::clone(&setting.roots);
    let project = context.project_dir.to_path_buf();
    // Both steps access the file system many times.
    let limits = setting.limits;
    let prepared = tokio::task::spawn_blocking(move || {
        let environment = &tool_environment.environment;
        let temp_dir = TempDirectory::new(Path::new(environment.get("TMPDIR").unwrap_or("/tmp")))?;
        let home = tool_environment
            .home
            .as_ref()
            .filter(|_| tool_environment.tools.bash.cache == PackageCache::Project);
        let caches = home
            .map(|home| PackageCaches::of_project(home, &project, environment))
            .transpose()?;
        let folders = caches
            .iter()
            .map(|caches| caches.folder.clone())
            .chain([temp_dir.0.clone()]);
        let reach = sandbox_policy(
            &tool_environment,
            &roots,
            &project,
            folders,
            limits.shared_memory_bytes(),
        )?;
        std::io::Result::Ok((temp_dir, Sandbox::prepare(&reach)?, caches))
    });
    let (own, sandbox, caches) = prepared
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|error| failed("what it may write to cannot be prepared", error))?;
    let tools = &setting.tool_environment.tools;
    let mut variables = setting
        .tool_environment
        .environment
        .select(&tools.env_allowlist);
    variables.insert("TMPDIR".to_owned(), own.0.to_string_lossy().into_owned());
    variables.extend(caches.into_iter().flat_map(|caches| caches.variables));
    let launch = SpawnOptions::new(&setting.shell, &context.project_dir, variables)
        .arguments(["-c", command])
        .without_input()
        .with_merged_stderr()
        .sandboxed(sandbox)
        .limited(limits.kernel_limits())
        .without_new_privileges();
    let shell = setting.shell.display();
    // The token keeps `context.tasks` open until all processes of the command are gone.
    let started = launch
        .start_with_attachment((own, context.cleanup_tasks.token()))
        .await;
    let started = started.map_err(|error| failed(&format!("{shell} cannot be started"), error))?;
    let StartedProgram {
        stdout,
        process_tree: family,
        ..
    } = started;
    let printed = HeadTailBuffer::new(KEPT_OUTPUT_BYTES, KEPT_OUTPUT_BYTES);
    let output_progress = OutputProgress {
        progress: context.progress.clone(),
        pending: Vec::new(),
        due: None,
    };
    Ok(RunningCommand {
        family,
        stdout,
        is_open: true,
        output: printed,
        progress: output_progress,
    })
}

/// A running command.
struct RunningCommand {
    family: soong_sandbox::ProcessTree,
    stdout: ChildStdout,
    /// Whether `stdout` may still return output.
    is_open: bool,
    output: HeadTailBuffer,
    progress: OutputProgress,
}

impl RunningCommand {
    /// Follows the command until it ends, `until` is reached, or the call of `context` is
    /// cancelled.
    async fn follow(&mut self, context: Option<&ToolContext>, until: Instant) -> CommandEnd {
        let mut chunk = vec![0; CHUNK_BYTES];
        let cancelled = async {
            match context {
                Some(context) => context.cancel.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cancelled);
        loop {
            let news_due = self.progress.due;
            // In this order, so that continuous output cannot keep the other branches from being
            // polled.
            tokio::select! {
                biased;
                () = &mut cancelled => return CommandEnd::Cancelled,
                () = sleep_until(until) => return CommandEnd::TimedOut,
                status = self.family.wait() => return status.map_or(CommandEnd::SupervisorKilled, |status| CommandEnd::Status(shell_exit_status(status))),
                () = sleep_until(news_due.unwrap_or(until)), if news_due.is_some() => self.progress.flush(),
                read = self.stdout.read(&mut chunk), if self.is_open => match read {
                    Ok(count @ 1..) => {
                        self.output.push(&chunk[..count]);
                        self.progress.push(&chunk[..count]);
                    }
                    _ => self.is_open = false,
                },
            }
        }
    }
}

/// Returns an exit status in the notation of shells: 128 plus the signal number if a signal killed
/// the command.
fn shell_exit_status(status: std::process::ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Output since the last progress report.
struct OutputProgress {
    progress: Progress,
    pending: Vec<u8>,
    /// Time of the next report; `None` if there is nothing to report.
    due: Option<Instant>,
}

impl OutputProgress {
    fn push(&mut self, bytes: &[u8]) {
        self.pending
            .extend_from_slice(&bytes[bytes.len().saturating_sub(MAX_PROGRESS_BYTES)..]);
        let too_much = self.pending.len().saturating_sub(MAX_PROGRESS_BYTES);
        self.pending.drain(..too_much);
        self.due
            .get_or_insert_with(|| Instant::now() + PROGRESS_INTERVAL);
    }

    fn flush(&mut self) {
        self.due = None;
        self.progress
            .report(sanitize(&std::mem::take(&mut self.pending)));
    }
}

/// Limits of the command.
struct AppliedLimits {
    timeout: Duration,
    /// Maximum timeout that a call can request, in milliseconds.
    max_timeout_ms: u64,
    limits: CommandLimits,
}

/// Returns the result of the call: how the command ended, and its output.
fn command_result(
    command: &str,
    end: CommandEnd,
    printed: &HeadTailBuffer,
    ended: EndSummary,
    bounds: &AppliedLimits,
) -> ToolResult {
    let how = match end {
        CommandEnd::LimitExceeded(which) => {
            format!("killed with everything that it started: {which}")
        }
        CommandEnd::Status(status) if let Some(why) = bounds.limits.explain_exit_status(status) => {
            format!("killed by signal {}: {why}", status - 128)
        }
        CommandEnd::Status(status @ 129..=192) => {
            format!("killed by signal {} (exit status {status})", status - 128)
        }
        CommandEnd::Status(status) => format!("exit status {status}"),
        CommandEnd::SupervisorKilled => {
            "exit status unknown: the process that supervised the command was killed".to_owned()
        }
        CommandEnd::TimedOut => {
            let AppliedLimits {
                timeout: limit,
                max_timeout_ms: most_ms,
                ..
            } = bounds;
            let message = format!(
                "the command was ended after {} ms. Raise timeout_ms (at most {most_ms}) or do less at once. {}{}",
                limit.as_millis(),
                match printed.total() {
                    0 => "It had printed nothing.".to_owned(),
                    _ => format!(
                        "What it had printed:\n{}",
                        format_output(printed, TIMEOUT_OUTPUT_BYTES)
                    ),
                },
                leftover_note(&ended)
            );
            return Err(ErrorInfo::new(ErrorCode::Timeout, message));
        }
        CommandEnd::Cancelled => {
            return Err(ErrorInfo::new(
                ErrorCode::Cancelled,
                format!("cancelled{}", leftover_note(&ended)),
            ));
        }
    };
    let mut text = format_output(printed, MAX_END_BYTES);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{how}]"));
    text.push_str(&leftover_note(&ended));
    let title = format!("`{}`: {how}", title_of(command));
    let memory = format!("[{title}; {} bytes of output]", printed.total());
    Ok(ToolOutput::text(title, text).once_if_longer_than(LARGE_OUTPUT_BYTES, memory))
}

/// Returns lines for the model about the processes that were still alive when the command had
/// ended; may be empty.
fn leftover_note(ended: &EndSummary) -> String {
    let processes = |count: usize| {
        if count == 1 {
            "1 process".to_owned()
        } else {
            format!("{count} processes")
        }
    };
    let mut note = String::new();
    if ended.killed > 0 {
        let left = processes(ended.killed);
        // The names are unknown if the supervisor was killed.
        let names = if ended.names.is_empty() {
            String::new()
        } else {
            format!(": {}", ended.names.join(", "))
        };
        note.push_str(&format!(
            "\n[ended with it: {left} that it had left running{names}]"
        ));
    }
    if ended.survivors > 0 {
        note.push_str(&format!(
            "\n[{} that it started could not be ended]",
            processes(ended.survivors)
        ));
    }
    note
}

/// Returns the first line of a command, shortened.
fn title_of(command: &str) -> String {
    let line = sanitize(command.trim().lines().next().unwrap_or_default().as_bytes());
    let is_cut = line.chars().count() > TITLE_CHARS || command.trim().lines().nth(1).is_some();
    let shown: String = line.chars().take(TITLE_CHARS).collect();
    if is_cut { shown + "…" } else { shown }
}

/// Directory for the temporary files of one call, accessible only to its user. Removed on drop.
struct TempDirectory(PathBuf);

impl TempDirectory {
    fn new(below: &Path) -> std::io::Result<Self> {
        let path = below
            .canonicalize()?
            .join(format!("soong-call-{}", Uuid::now_v7().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for TempDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "the temporary directory of a command could not be removed");
        }
    }
}
