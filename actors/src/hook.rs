//! Hooks: commands of the user that are notified of events and can deny them (HOOK-1).
//!
//! Hooks are read once, from `hooks.json` of the home, never from a project (SAFE-1). Only
//! `PreToolUse` and `Stop` hooks can deny: by their answer or, with `hooks.json` of version 2, by
//! exit code 2. A hook that fails, exceeds its time limit or returns an invalid answer is reported,
//! and does not stop the run. No process that a hook starts outlives it.
//!
//! Elsewhere: when hooks are called (`run/machine/hooks.rs`).

mod file;

use std::{
    collections::BTreeMap,
    io,
    path::{Component, Path, PathBuf},
    time::{Duration, Instant},
};

use file::{Group, HookTable, Matcher};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use soong_protocol::{Config, ErrorInfo, RunId, SessionId, TraceId};
use soong_sandbox::{HeadTailBuffer, ProgramOutput, SpawnOptions, find_program};
use soong_text::{Environment, json_values};

/// Maximum size of a hook's answer, in bytes.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Maximum length of a reason on standard error, in characters.
const MAX_REASON_CHARS: usize = 2_000;
/// Maximum length of the standard error of a hook in a report, in characters.
const MAX_STDERR_CHARS: usize = 300;

/// Event for which a hook can be configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum HookPoint {
    /// The first run of a session starts.
    SessionStart,
    /// A user's run starts with a prompt.
    UserPromptSubmit,
    /// A tool call is about to run.
    PreToolUse,
    /// A tool call has finished.
    PostToolUse,
    /// A user's run is about to end with an answer.
    Stop,
}

impl HookPoint {
    /// Returns the name of the event in `hooks.json`.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::SessionStart => "SessionStart",
            Self::UserPromptSubmit => "UserPromptSubmit",
            Self::PreToolUse => "PreToolUse",
            Self::PostToolUse => "PostToolUse",
            Self::Stop => "Stop",
        }
    }

    const fn can_deny(self) -> bool {
        matches!(self, Self::PreToolUse | Self::Stop)
    }
}

/// Input of a hook: JSON on its standard input.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct HookInput {
    pub(crate) event: HookPoint,
    pub(crate) session_id: SessionId,
    pub(crate) trace_id: TraceId,
    pub(crate) run_id: RunId,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tool: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) arguments: Option<Value>,
    /// File or folder that the call would open, with symlinks resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resolved_path: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) outcome: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    /// Tags of the tool, to match hooks. Not part of the input.
    #[serde(skip)]
    pub(crate) tags: Vec<String>,
}

/// Result of the hooks of one event.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct HookResult {
    /// Reason of the hook that denied.
    pub(crate) denied: Option<String>,
    /// Failures of hooks.
    pub(crate) failures: Vec<String>,
    /// The calls, if records are kept.
    pub(crate) records: Vec<HookCallRecord>,
}

/// Input and answer of one hook.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct HookCallRecord {
    command: String,
    input: Value,
    /// How it ended: `exit status: 0`, or why it could not be started.
    end: String,
    duration_ms: u64,
    stdout: String,
    stderr: String,
    /// Why its answer could not be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

/// The hooks of a runtime.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    points: BTreeMap<HookPoint, Vec<Group>>,
    /// Whether exit code 2 denies, with the reason on standard error.
    exit_code_denies: bool,
    shell: PathBuf,
    variables: BTreeMap<String, String>,
    default_timeout_ms: u64,
    /// Whether results have records of the calls (`runtime.debug_artifacts`).
    keeps_records: bool,
}

/// Answer of a hook on its standard output. An empty output allows the event.
#[derive(Debug, Deserialize)]
struct HookAnswer {
    decision: HookDecision,
    #[serde(default)]
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum HookDecision {
    Allow,
    Deny,
}

/// The active hooks of a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HookCount {
    /// Number of commands.
    pub hooks: usize,
    /// Whether exit code 2 of a command denies, as `hooks.json` of version 2 says.
    pub exit_code_denies: bool,
}

/// Counts the active hooks of a home.
///
/// # Errors
/// `config_error` if `hooks.json` is not valid.
/// [`RuntimeBuilder::build`](crate::RuntimeBuilder::build) fails with the same error.
pub fn count_hooks(
    home: &Path,
    config: &Config,
    environment: &Environment,
) -> Result<HookCount, ErrorInfo> {
    let hooks = Hooks::load(home, config, environment)?;
    let count = hooks
        .points
        .values()
        .flatten()
        .map(|group| group.hooks.len())
        .sum();
    Ok(HookCount {
        hooks: count,
        exit_code_denies: hooks.exit_code_denies,
    })
}

impl Hooks {
    /// Reads the hooks of a home. A home without `hooks.json` has none.
    ///
    /// # Errors
    /// `config_error` if the file cannot be read or is invalid: running without its rules would be
    /// worse.
    pub(crate) fn load(
        home: &Path,
        config: &Config,
        environment: &Environment,
    ) -> Result<Self, ErrorInfo> {
        let HookTable {
            points,
            exit_code_denies,
        } = if config.hooks.enabled {
            file::read(&home.join("hooks.json"))?
        } else {
            HookTable::default()
        };
        Ok(Self {
            points,
            exit_code_denies,
            shell: find_program("sh", environment.get("PATH")).unwrap_or_else(|| "/bin/sh".into()),
            variables: environment.select(&config.tools.env_allowlist),
            default_timeout_ms: config.hooks.timeout_ms,
            keeps_records: config.runtime.debug_artifacts,
        })
    }

    /// Returns whether any hook is configured for an event.
    pub(crate) fn has_hooks(&self, point: HookPoint) -> bool {
        self.points.contains_key(&point)
    }

    /// Calls the matching hooks of an event in order, until one denies.
    pub(crate) async fn call(&self, event: &HookInput, project: &Path) -> HookResult {
        let mut result = HookResult::default();
        let groups = self.points.get(&event.event).into_iter().flatten();
        let input = serde_json::to_vec(event).unwrap_or_default();
        for hook in groups
            .filter(|group| matches(&group.matcher, event, project))
            .flat_map(|group| &group.hooks)
        {
            let limit_ms = hook.timeout_ms.unwrap_or(self.default_timeout_ms);
            let started = Instant::now();
            let ended = self.run(&hook.command, &input, project, limit_ms).await;
            let denies_by_code = self.exit_code_denies && event.event.can_deny();
            let answer = match denial_by_exit_code(&ended).filter(|_| denies_by_code) {
                Some(denial) => Ok(Some(denial)),
                None => read_answer(&ended, limit_ms),
            };
            if self.keeps_records {
                result.records.push(record(
                    &hook.command,
                    event,
                    &ended,
                    started.elapsed(),
                    answer.as_ref().err(),
                ));
            }
            match answer {
                Ok(Some(HookAnswer {
                    decision: HookDecision::Deny,
                    reason,
                })) if event.event.can_deny() => {
                    result.denied = Some(
                        reason.unwrap_or_else(|| format!("{} denied it", hook_name(&hook.command))),
                    );
                    break;
                }
                Ok(Some(HookAnswer {
                    decision: HookDecision::Deny,
                    ..
                })) => {
                    let why = format!(
                        "{}: {} hooks cannot deny",
                        hook_name(&hook.command),
                        event.event.as_str()
                    );
                    result.failures.push(why);
                }
                Ok(_) => {}
                Err(why) => result
                    .failures
                    .push(format!("{}: {why}", hook_name(&hook.command))),
            }
        }
        result
    }

    async fn run(
        &self,
        command: &str,
        input: &[u8],
        project: &Path,
        limit_ms: u64,
    ) -> io::Result<ProgramOutput> {
        let launch = SpawnOptions::new(&self.shell, project, self.variables.clone())
            .arguments(["-c", command]);
        launch
            .run(input, Duration::from_millis(limit_ms), MAX_ANSWER_BYTES)
            .await
    }
}

/// Returns the denial of a hook that has ended with exit code 2. Its standard error is the reason.
fn denial_by_exit_code(ended: &io::Result<ProgramOutput>) -> Option<HookAnswer> {
    let finished = ended.as_ref().ok()?;
    let stderr = String::from_utf8_lossy(finished.stderr.head());
    let reason = soong_text::shorten(stderr.trim(), MAX_REASON_CHARS);
    let is_denial = finished
        .status
        .is_some_and(|status| status.code() == Some(2));
    is_denial.then(|| HookAnswer {
        decision: HookDecision::Deny,
        reason: Some(reason).filter(|text| !text.is_empty()),
    })
}

/// Reads the answer of a hook that has ended.
fn read_answer(
    ended: &io::Result<ProgramOutput>,
    limit_ms: u64,
) -> Result<Option<HookAnswer>, String> {
    let finished = ended
        .as_ref()
        .map_err(|error| format!("could not be started: {error}"))?;
    let stderr = String::from_utf8_lossy(finished.stderr.head())
        .trim()
        .to_owned();
    let complaint = match soong_text::shorten(&stderr, MAX_STDERR_CHARS) {
        nothing if nothing.is_empty() => nothing,
        said => format!(": {said}"),
    };
    match finished.status {
        None => {
            return Err(format!(
                "timed out after {limit_ms} ms and was killed{complaint}"
            ));
        }
        Some(status) if !status.success() => return Err(format!("failed ({status}){complaint}")),
        Some(_) => {}
    }
    if finished.stdout.total() > MAX_ANSWER_BYTES as u64 {
        return Err(format!(
            "its output is larger than {MAX_ANSWER_BYTES} bytes"
        ));
    }
    let answer = String::from_utf8_lossy(finished.stdout.head());
    if answer.trim().is_empty() {
        return Ok(None);
    }
    let expected = r#"its output must be {"decision": "allow"}, {"decision": "deny", "reason": "…"}, or empty"#;
    let answer = answer.trim_start_matches('\u{feff}').trim();
    let error = match serde_json::from_str(answer) {
        Ok(answer) => return Ok(Some(answer)),
        Err(error) => error,
    };
    // Programs that a hook calls may write lines before the answer. A denial on a line of its own
    // counts wherever it is.
    let of_lines = answer
        .lines()
        .filter_map(|line| serde_json::from_str(line.trim()).ok());
    let of_text = json_values(answer)
        .into_iter()
        .filter_map(|found| serde_json::from_value(found.value).ok());
    let answers: Vec<HookAnswer> = of_lines.chain(of_text).collect();
    let denial = answers
        .iter()
        .position(|answer| matches!(answer.decision, HookDecision::Deny));
    match answers.into_iter().nth(denial.unwrap_or(0)) {
        Some(answer) => Ok(Some(answer)),
        None => Err(format!("{expected}: {error}")),
    }
}

fn record(
    command: &str,
    input: &HookInput,
    ended: &io::Result<ProgramOutput>,
    duration: Duration,
    failure: Option<&String>,
) -> HookCallRecord {
    let text = |buffer: &HeadTailBuffer| String::from_utf8_lossy(buffer.head()).into_owned();
    let (end, stdout, stderr) = match ended {
        Ok(finished) => {
            let end = finished
                .status
                .map_or_else(|| "killed".to_owned(), |status| status.to_string());
            (end, text(&finished.stdout), text(&finished.stderr))
        }
        Err(error) => (error.to_string(), String::new(), String::new()),
    };
    HookCallRecord {
        command: command.to_owned(),
        input: serde_json::to_value(input).unwrap_or_default(),
        end,
        duration_ms: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX),
        stdout,
        stderr,
        failure: failure.cloned(),
    }
}

/// Returns the name of a hook in messages.
fn hook_name(command: &str) -> String {
    format!("hook `{}`", soong_text::shorten(command, 80))
}

/// Returns whether an event fits every condition of a matcher. A matcher without conditions fits
/// every event.
fn matches(matcher: &Matcher, input: &HookInput, project: &Path) -> bool {
    let tool = matcher
        .tool
        .as_ref()
        .is_none_or(|tool| input.tool.as_ref() == Some(tool));
    let tag = matcher
        .tag
        .as_ref()
        .is_none_or(|tag| input.tags.contains(tag));
    let path = matcher.path_prefix.as_ref().is_none_or(|prefix| {
        let prefix = project.join(prefix);
        let path_argument = input
            .arguments
            .as_ref()
            .and_then(|arguments| arguments.get("path"))
            .and_then(Value::as_str);
        let is_named = path_argument.is_some_and(|path| {
            normalize_lexically(&project.join(path)).starts_with(normalize_lexically(&prefix))
        });
        // The opened file is matched too, because the name in the arguments may be a symlink.
        is_named
            || input
                .resolved_path
                .as_ref()
                .is_some_and(|path| path.starts_with(canonicalize_existing(&prefix)))
    });
    tool && tag && path
}

/// Resolves the symlinks in the part of a path that exists.
pub(crate) fn canonicalize_existing(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => canonicalize_existing(parent).join(name),
        _ => normalize_lexically(path),
    }
}

/// Removes `.` and `..` from a path without accessing the file system.
fn normalize_lexically(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut plain, part| {
        match part {
            Component::CurDir => {}
            Component::ParentDir => drop(plain.pop()),
            part => plain.push(part),
        }
        plain
    })
}

#[cfg(test)]
#[path = "hook/tests.rs"]
mod tests;
