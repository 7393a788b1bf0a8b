//! One command, from its start until no process of it is left (TOOL-5).
//!
//! Elsewhere: finding and killing processes (`process`).

use std::{
    os::unix::{fs::DirBuilderExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use soong_protocol::{ErrorCode, ErrorInfo, PackageCache};
use soong_sandbox::{Ended, Ends, Fence, Launch, Started};
use tokio::{
    io::AsyncReadExt,
    process::ChildStdout,
    time::{Instant, sleep_until, timeout},
};
use uuid::Uuid;

use super::{
    Setting,
    cache::Caches,
    limits::CommandLimits,
    reach::reach,
    shown::{SHOWN_BYTES, cleaned, shown},
};
use crate::tool::{Progress, ToolContext, ToolOutput, ToolResult};

/// How much of each end of what is printed is kept, in bytes.
const KEPT_BYTES: usize = SHOWN_BYTES;
/// How much of each end is shown where the command took too long, in bytes: the model reads it in an error.
const SHOWN_OF_LATE_BYTES: usize = 3_000;
const CHUNK_BYTES: usize = 64 * 1024;
/// How long between two pieces of news of what is printed.
const NEWS_EVERY: Duration = Duration::from_millis(400);
/// Most of what was printed that one piece of news holds, in bytes.
const NEWS_BYTES: usize = 2 * 1024;
/// How long a command may take to end by itself when it is asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long what is left in the pipe is waited for; nobody writes any more.
const DRAIN: Duration = Duration::from_secs(1);
/// Longest title, in characters.
const TITLE_CHARS: usize = 80;

/// How a command came to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// By itself, with this exit status as shells tell it.
    Status(i32),
    /// Unknown: its supervisor was killed.
    Lost,
    /// Its time was over.
    Late,
    /// The call was cancelled.
    Cancelled,
    /// It was over a limit, which this names.
    OverLimit(String),
}

/// Runs a command for `limit` at most.
pub(super) async fn run(setting: &Setting, context: &ToolContext, command: &str, limit: Duration) -> ToolResult {
    let mut running = start(setting, context, command).await?;
    let over_limit = setting.limits.exceeded(running.family.meter());
    let mut end = tokio::select! {
        biased;
        end = running.follow(Some(context), Instant::now() + limit) => end,
        which = over_limit => End::OverLimit(which),
    };
    if matches!(end, End::Late | End::Cancelled) {
        running.family.ask_to_end().await;
        running.follow(None, Instant::now() + GRACE).await;
    }
    let Running { family, mut stdout, mut printed, .. } = running;
    let ended = family.end().await;
    let _ = timeout(DRAIN, async {
        let mut chunk = vec![0; CHUNK_BYTES];
        while let Ok(count @ 1..) = stdout.read(&mut chunk).await {
            printed.push(&chunk[..count]);
        }
    })
    .await;
    if context.cancel.is_cancelled() {
        end = End::Cancelled;
    }
    let most_ms = setting.surroundings.tools.max_timeout_ms;
    answer(command, end, &printed, ended, &Bounds { limit, most_ms, limits: setting.limits })
}

/// Starts the command; what it prints and where it stands is followed from then on.
async fn start(setting: &Setting, context: &ToolContext, command: &str) -> Result<Running, ErrorInfo> {
    let failed = |what: &str, error: std::io::Error| {
        let message = format!("the command was not run: {what}: {error}");
        ErrorInfo::new(ErrorCode::InternalError, message)
    };
    let (surroundings, roots) = (setting.surroundings.clone(), Arc::clone(&setting.roots));
    let project = context.project_dir.to_path_buf();
    // Both ask the disk for many things.
    let limits = setting.limits;
    let prepared = tokio::task::spawn_blocking(move || {
        let environment = &surroundings.environment;
        let own = OwnDirectory::new(Path::new(environment.get("TMPDIR").unwrap_or("/tmp")))?;
        let home = surroundings.home.as_ref().filter(|_| surroundings.tools.bash.cache == PackageCache::Project);
        let caches = home.map(|home| Caches::of_project(home, &project, environment)).transpose()?;
        let folders = caches.iter().map(|caches| caches.folder.clone()).chain([own.0.clone()]);
        let reach = reach(&surroundings, &roots, &project, folders, limits.shared_memory_bytes())?;
        std::io::Result::Ok((own, Fence::around(&reach)?, caches))
    });
    let (own, fence, caches) = prepared
        .await
        .unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|error| failed("what it may write to cannot be prepared", error))?;
    let tools = &setting.surroundings.tools;
    let mut variables = setting.surroundings.environment.named(&tools.env_allowlist);
    variables.insert("TMPDIR".to_owned(), own.0.to_string_lossy().into_owned());
    variables.extend(caches.into_iter().flat_map(|caches| caches.variables));
    let launch = Launch::new(&setting.shell, &context.project_dir, variables)
        .arguments(["-c", command])
        .without_input()
        .with_merged_stderr()
        .within(fence)
        .limited(limits.of_kernel())
        .without_new_privileges();
    let shell = setting.shell.display();
    // Whoever waits for what the call leaves at work waits until its processes are gone.
    let started = launch.start_keeping((own, context.tasks.token())).await;
    let started = started.map_err(|error| failed(&format!("{shell} cannot be started"), error))?;
    let Started { stdout, family, .. } = started;
    let printed = Ends::new(KEPT_BYTES, KEPT_BYTES);
    let news = News { progress: context.progress.clone(), pending: Vec::new(), due: None };
    Ok(Running { family, stdout, is_open: true, printed, news })
}

/// A command at work.
struct Running {
    family: soong_sandbox::Family,
    stdout: ChildStdout,
    /// Whether more may come from there.
    is_open: bool,
    printed: Ends,
    news: News,
}

impl Running {
    /// Follows the command until it ends, or until then; `context` says who may cancel.
    async fn follow(&mut self, context: Option<&ToolContext>, until: Instant) -> End {
        let mut chunk = vec![0; CHUNK_BYTES];
        let cancelled = async {
            match context {
                Some(context) => context.cancel.cancelled().await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(cancelled);
        loop {
            let news_due = self.news.due;
            // In this order: whatever floods the last one cannot keep the others from their turn.
            tokio::select! {
                biased;
                () = &mut cancelled => return End::Cancelled,
                () = sleep_until(until) => return End::Late,
                status = self.family.wait() => return status.map_or(End::Lost, |status| End::Status(as_shells_do(status))),
                () = sleep_until(news_due.unwrap_or(until)), if news_due.is_some() => self.news.tell(),
                read = self.stdout.read(&mut chunk), if self.is_open => match read {
                    Ok(count @ 1..) => {
                        self.printed.push(&chunk[..count]);
                        self.news.add(&chunk[..count]);
                    }
                    _ => self.is_open = false,
                },
            }
        }
    }
}

/// Returns an exit status as shells number it: 128 and the signal, if one killed the command.
fn as_shells_do(status: std::process::ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// What was printed since it was last told, for those who watch.
struct News {
    progress: Progress,
    pending: Vec<u8>,
    /// When it is told; `None` = there is nothing to tell.
    due: Option<Instant>,
}

impl News {
    fn add(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(&bytes[bytes.len().saturating_sub(NEWS_BYTES)..]);
        let too_much = self.pending.len().saturating_sub(NEWS_BYTES);
        self.pending.drain(..too_much);
        self.due.get_or_insert_with(|| Instant::now() + NEWS_EVERY);
    }

    fn tell(&mut self) {
        self.due = None;
        self.progress.say(cleaned(&std::mem::take(&mut self.pending)));
    }
}

/// What the command was given.
struct Bounds {
    limit: Duration,
    /// The longest time that a call can ask for.
    most_ms: u64,
    limits: CommandLimits,
}

/// Puts into words how the command ended and what it printed.
fn answer(command: &str, end: End, printed: &Ends, ended: Ended, bounds: &Bounds) -> ToolResult {
    let how = match end {
        End::OverLimit(which) => format!("killed with everything that it started: {which}"),
        End::Status(status) if let Some(why) = bounds.limits.explain(status) => {
            format!("killed by signal {}: {why}", status - 128)
        }
        End::Status(status @ 129..=192) => format!("killed by signal {} (exit status {status})", status - 128),
        End::Status(status) => format!("exit status {status}"),
        End::Lost => "exit status unknown: the process that supervised the command was killed".to_owned(),
        End::Late => {
            let Bounds { limit, most_ms, .. } = bounds;
            let message = format!(
                "the command was ended after {} ms. Raise timeout_ms (at most {most_ms}) or do less at once. {}{}",
                limit.as_millis(),
                match printed.total() {
                    0 => "It had printed nothing.".to_owned(),
                    _ => format!("What it had printed:\n{}", shown(printed, SHOWN_OF_LATE_BYTES)),
                },
                left_over(&ended)
            );
            return Err(ErrorInfo::new(ErrorCode::Timeout, message));
        }
        End::Cancelled => return Err(ErrorInfo::new(ErrorCode::Cancelled, format!("cancelled{}", left_over(&ended)))),
    };
    let mut text = shown(printed, SHOWN_BYTES);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&format!("[{how}]"));
    text.push_str(&left_over(&ended));
    Ok(ToolOutput::text(format!("`{}`: {how}", title_of(command)), text))
}

/// Names the processes that were still alive when the command had ended, in lines for the model; may be empty.
fn left_over(ended: &Ended) -> String {
    let processes = |count: usize| if count == 1 { "1 process".to_owned() } else { format!("{count} processes") };
    let mut note = String::new();
    if ended.killed > 0 {
        let left = processes(ended.killed);
        // Names are unknown if the supervisor had been killed.
        let names = if ended.names.is_empty() { String::new() } else { format!(": {}", ended.names.join(", ")) };
        note.push_str(&format!("\n[ended with it: {left} that it had left running{names}]"));
    }
    if ended.left > 0 {
        note.push_str(&format!("\n[{} that it started could not be ended]", processes(ended.left)));
    }
    note
}

/// Returns the first line of a command, shortened.
fn title_of(command: &str) -> String {
    let line = cleaned(command.trim().lines().next().unwrap_or_default().as_bytes());
    let is_cut = line.chars().count() > TITLE_CHARS || command.trim().lines().nth(1).is_some();
    let shown: String = line.chars().take(TITLE_CHARS).collect();
    if is_cut { shown + "…" } else { shown }
}

/// A directory for the temporary files of one call, for its user only; removed when it is dropped.
struct OwnDirectory(PathBuf);

impl OwnDirectory {
    fn new(below: &Path) -> std::io::Result<Self> {
        let path = below.canonicalize()?.join(format!("soong-call-{}", Uuid::now_v7().simple()));
        std::fs::DirBuilder::new().mode(0o700).create(&path)?;
        Ok(Self(path))
    }
}

impl Drop for OwnDirectory {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            tracing::warn!(%error, "the temporary directory of a command could not be removed");
        }
    }
}
