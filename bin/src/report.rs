//! Report on a finished run: its answer, its artifacts and its usage.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::{Value, json};
use soong::protocol::{
    ArtifactRef, ErrorCode, PermissionMode, RunStatus, StatsPair, TraceId, api::RunWithOutcome,
};
use soong_tui::{
    format,
    markdown::{self, PageFormat},
    request::{TARGET_CHARS, UserRequest},
    spent::Spent,
    terminal::{Terminal, TextStyle},
    text,
    transcript::Step,
};

use crate::{
    context::Context,
    exit::{self, Exit, Failure},
    offline_store::OfflineStore,
    print,
};

/// An artifact that the run stored, with the file of its version.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct StoredArtifact {
    #[serde(flatten)]
    pub(crate) artifact: ArtifactRef,
    /// Path of the file. Absent if it is not recorded.
    pub(crate) path: Option<PathBuf>,
}

/// Result of following a run.
pub(crate) struct FollowedRun {
    pub(crate) run: RunWithOutcome,
    /// Whether Ctrl-C cancelled the run.
    pub(crate) interrupted: bool,
    /// Whether the reader of the events is gone.
    pub(crate) output_closed: bool,
    /// Whether the answer was printed while it streamed in.
    pub(crate) answer_printed: bool,
    /// Open requests of a run that waits for user input when no user can be prompted.
    pub(crate) open_requests: Vec<UserRequest>,
    /// Tool calls of the run and its descendants that were denied.
    pub(crate) refused: Vec<DeniedCall>,
    /// Size of the last prompt in tokens, as estimated.
    pub(crate) context_tokens: Option<u64>,
    /// Input that the user typed while the run was active.
    pub(crate) typed: TypedDuringRun,
    /// The last step of the transcript of which not all rows were shown.
    pub(crate) folded_step: Option<Step>,
}

/// Input that the user typed in a chat while a run was active.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TypedDuringRun {
    /// Permission mode at the end of the run, if it could be changed.
    pub(crate) permission_mode: Option<PermissionMode>,
    /// Whether Esc cancelled the run.
    pub(crate) cancelled_by_key: bool,
    /// Whether Esc was pressed after the run was cancelled, to go back to a message.
    pub(crate) goes_back: bool,
    /// Whether the run is to continue in another process.
    pub(crate) in_background: bool,
}

/// A denied tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct DeniedCall {
    pub(crate) tool: String,
    /// Target of the call if no approver was available. Absent if a rule or a user denied it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) target: Option<String>,
    /// Grants that would have allowed it.
    pub(crate) allow: Vec<String>,
}

impl DeniedCall {
    /// Describes the call on one line.
    pub(crate) fn line(&self) -> String {
        let target = text::escaped_line(self.target.as_deref().unwrap_or_default());
        format!(
            "{} {}",
            text::safe_line(&self.tool),
            text::cut(&target, TARGET_CHARS, "…")
        )
    }
}

/// Returns the artifacts that the run stored, only the last version of each. Includes their files
/// if the home is on this machine.
pub(crate) fn stored(home: Option<&Path>, run: &RunWithOutcome) -> Vec<StoredArtifact> {
    let records = home.and_then(|home| OfflineStore::open(home).ok());
    let mut last: Vec<&ArtifactRef> = Vec::new();
    for artifact in run.artifacts.iter().flatten() {
        match last
            .iter_mut()
            .find(|other| other.artifact_id == artifact.artifact_id)
        {
            Some(other) if other.version < artifact.version => *other = artifact,
            Some(_) => {}
            None => last.push(artifact),
        }
    }
    let file = |artifact: &ArtifactRef| {
        records
            .as_ref()
            .and_then(|records| records.file(&artifact.artifact_id, artifact.version))
    };
    last.into_iter()
        .map(|artifact| StoredArtifact {
            path: file(artifact),
            artifact: artifact.clone(),
        })
        .collect()
}

/// Prints the result of a run: as JSON, or as answer, artifacts and usage for the user.
pub(crate) fn print_result(
    context: &Context<'_>,
    home: &Path,
    watched: &FollowedRun,
    stored: &[StoredArtifact],
) -> Result<(), Failure> {
    if context.global.json {
        return json(home, watched, stored);
    }
    if print_answer(context, watched)? {
        print::line_or_stderr(context.terminal, TextStyle::Plain, "")?;
    }
    print_summary(watched, stored, context.terminal)
}

/// Prints commands that show the session, by its short name, and its last artifact, quoted for a
/// shell.
pub(crate) fn print_detail_commands(
    context: &Context<'_>,
    home: Option<&Path>,
    session: &str,
    stored: &[StoredArtifact],
) -> Result<(), Failure> {
    let session = text::safe_line(session);
    let soong = command(home, context.global.url.as_deref());
    print::line_or_stderr(
        context.terminal,
        TextStyle::Dim,
        &format!("Details: {soong} sessions show {session}"),
    )?;
    let Some(last) = stored.last() else {
        return Ok(());
    };
    let name = shell_quoted(last.artifact.label());
    let hint = format!("         {soong} artifacts show {name} --session {session}");
    print::line_or_stderr(
        context.terminal,
        TextStyle::Dim,
        &text::safe_line_keep_spaces(&hint),
    )
}

/// Prints the calls that were denied because no approver was available.
pub(crate) fn print_denied_calls(refused: &[DeniedCall]) {
    let unasked: Vec<&DeniedCall> = refused
        .iter()
        .filter(|refused| refused.target.is_some())
        .collect();
    if unasked.is_empty() {
        return;
    }
    let calls = format::plural(unasked.len(), "call was", "calls were");
    print::error_line(&format!(
        "{calls} denied, because no approver was available:"
    ));
    unasked
        .iter()
        .for_each(|refused| print::error_line(&format!("  {}", refused.line())));
}

/// Returns advice with the narrowest options that would allow these calls, or an empty string.
pub(crate) fn allow_advice(refused: &[DeniedCall]) -> String {
    let mut options: Vec<String> = Vec::new();
    // A grant with characters that would be escaped cannot be copied from the output.
    let grants = refused
        .iter()
        .flat_map(|refused| &refused.allow)
        .filter(|grant| text::escaped(grant) == **grant);
    for grant in grants {
        let option = format!("--allow {}", shell_quoted(grant));
        if !options.contains(&option) {
            options.push(option);
        }
    }
    if options.is_empty() {
        String::new()
    } else {
        format!("To allow them: {}", options.join(" "))
    }
}

/// Returns the `soong` command with the options of the given home or server.
pub(crate) fn command(home: Option<&Path>, url: Option<&str>) -> String {
    let url = url.map(|url| format!(" --url {}", shell_quoted(url)));
    let home = home.map(|home| format!(" --home {}", shell_quoted(&home.display().to_string())));
    format!(
        "soong{}{}",
        url.unwrap_or_default(),
        home.unwrap_or_default()
    )
}

/// Quotes an argument for a shell if necessary.
fn shell_quoted(argument: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-:".contains(c);
    if argument.chars().all(is_plain) {
        argument.to_owned()
    } else {
        format!("'{}'", argument.replace('\'', r"'\''"))
    }
}

/// Prints the last line of `--json`: the run's record with its output and artifacts.
fn json(home: &Path, watched: &FollowedRun, stored: &[StoredArtifact]) -> Result<(), Failure> {
    let broken = |error: serde_json::Error| Failure::new(Exit::Failed, error.to_string(), "");
    let mut result = serde_json::to_value(&watched.run).map_err(broken)?;
    if let Value::Object(fields) = &mut result {
        fields.insert(
            "artifacts".to_owned(),
            serde_json::to_value(stored).map_err(broken)?,
        );
        if !watched.open_requests.is_empty() {
            let (questions, permissions): (Vec<&UserRequest>, Vec<&UserRequest>) = watched
                .open_requests
                .iter()
                .partition(|ask| matches!(ask, UserRequest::Question(_)));
            for (name, asks) in [("questions", questions), ("permissions", permissions)] {
                if !asks.is_empty() {
                    fields.insert(name.to_owned(), serde_json::to_value(asks).map_err(broken)?);
                }
            }
        }
        if !watched.refused.is_empty() {
            fields.insert(
                "refused".to_owned(),
                serde_json::to_value(&watched.refused).map_err(broken)?,
            );
        }
        fields.insert("home".to_owned(), Value::from(home.display().to_string()));
    }
    print::json_line(&json!({ "result": result }))
}

/// Prints the answer, unless it was printed while it streamed in: rendered on a terminal, otherwise
/// as plain text. Returns whether it did.
pub(crate) fn print_answer(context: &Context<'_>, watched: &FollowedRun) -> Result<bool, Failure> {
    let output = watched.run.output.as_deref().unwrap_or_default();
    let violates_schema = watched
        .run
        .run
        .error
        .as_ref()
        .is_some_and(|error| error.code == ErrorCode::ResultSchemaValidationFailed);
    if violates_schema && watched.run.output.is_some() {
        // It goes to standard error, not to a reader of standard output.
        print::line_or_stderr(
            context.terminal,
            TextStyle::Plain,
            &text::safe_block(output),
        )?;
        return Ok(false);
    }
    if watched.answer_printed || output.trim().is_empty() {
        return Ok(false);
    }
    render(output, context.terminal)
        .iter()
        .try_for_each(|line| print::line(line))
        .map(|()| true)
}

/// Returns the lines of a Markdown text: rendered on a terminal, otherwise unchanged except for
/// unsafe characters.
pub(crate) fn render(text: &str, terminal: &Terminal) -> Vec<String> {
    render_indented(text, terminal, 0)
}

/// Like [`drawn`], for lines that are printed with an indentation of `indent` columns.
pub(crate) fn render_indented(text: &str, terminal: &Terminal, indent: usize) -> Vec<String> {
    if terminal.has_stdout {
        let lines = markdown::render(text, &PageFormat::of(terminal).narrower(indent));
        return lines
            .iter()
            .map(|line| line.to_ansi(terminal.stdout))
            .collect();
    }
    let text = text::safe_piped(text.trim_end());
    text.trim_start_matches('\n')
        .lines()
        .map(str::to_owned)
        .collect()
}

/// Prints the artifacts and the usage of a run.
fn print_summary(
    watched: &FollowedRun,
    stored: &[StoredArtifact],
    terminal: &Terminal,
) -> Result<(), Failure> {
    let view = &watched.run;
    if !stored.is_empty() {
        print::line_or_stderr(terminal, TextStyle::Bold, "Artifacts")?;
    }
    for StoredArtifact { artifact, path } in stored {
        let path = path
            .as_ref()
            .map_or_else(String::new, |path| path.display().to_string());
        let name = text::safe_line(artifact.label());
        let size = format::bytes(artifact.size);
        let line = format!(
            "  {name}  version {}  {size}  {}",
            artifact.version,
            text::safe_line_keep_spaces(&path)
        );
        print::line_or_stderr(terminal, TextStyle::Plain, &line)?;
    }
    if !stored.is_empty() {
        print::line_or_stderr(terminal, TextStyle::Plain, "")?;
    }
    let Some(StatsPair { own, tree }) = &view.stats else {
        return Ok(());
    };
    let children = match tree.total_tokens - own.total_tokens.min(tree.total_tokens) {
        0 => String::new(),
        tokens => format!(" ({} by sub-agents)", format::count(tokens)),
    };
    let spent = Spent::from(tree);
    let cached = match tree.cached_tokens {
        0 => String::new(),
        read => format!(
            ", {} read from the cache",
            format::count_and_share(read, tree.prompt_tokens)
        ),
    };
    let cost = match tree.cost {
        None if tree.total_tokens > 0 => "cost unknown: a model has no price".to_owned(),
        _ => spent.cost(),
    };
    let prompt = watched.context_tokens.map_or_else(String::new, |tokens| {
        format!(", context {}", format::count(tokens))
    });
    let figures = format!(
        "{}: {} tokens{children}{cached}{prompt}, {cost}, {}",
        view.run.status.as_str(),
        spent.tokens(),
        format::duration(tree.duration_ms),
    );
    print::text_or_stderr(terminal, TextStyle::Dim, &figures)
}

/// Returns the failure for a run that waits for user input, with commands to answer or stop it.
fn waiting_failure(soong: &str, ask: &UserRequest, more: &[UserRequest]) -> Failure {
    let also: String = more
        .iter()
        .map(|ask| format!("Also waiting for: {}\n", ask.summary()))
        .collect();
    let advice = format!(
        "{also}Answer to resume the run: {}\nOr stop it: {soong} traces stop {}",
        ask.answer_command(soong),
        ask.session_id()
    );
    Failure::new(
        Exit::AwaitsInput,
        format!("the run is waiting for input: {}", ask.summary()),
        advice,
    )
}

/// Returns the exit code or failure for the result of the run.
pub(crate) fn exit(context: &Context<'_>, watched: &FollowedRun) -> Result<Exit, Failure> {
    let run = &watched.run.run;
    if let Some((ask, more)) = watched.open_requests.split_first() {
        return Err(waiting_failure(
            &command(
                context.global.home.as_deref(),
                context.global.url.as_deref(),
            ),
            ask,
            more,
        ));
    }
    match run.status {
        RunStatus::Completed => Ok(Exit::Success),
        RunStatus::Cancelled if watched.interrupted => {
            let soong = command(
                context.global.home.as_deref(),
                context.global.url.as_deref(),
            );
            let is_main = run.trace_id == TraceId::root(&run.session_id);
            let option = if is_main {
                format!("--continue={}", run.session_id)
            } else {
                format!("--trace {}", run.trace_id)
            };
            let advice = format!("Its work is saved. Continue it: {soong} run {option} \"…\"");
            Err(Failure::new(
                Exit::Interrupted,
                "the run was cancelled",
                advice,
            ))
        }
        RunStatus::Cancelled if watched.output_closed => Err(Failure::new(
            Exit::Failed,
            "the run was cancelled, because the output was closed",
            "",
        )),
        RunStatus::Cancelled => Err(Failure::new(
            Exit::Failed,
            "the run was cancelled by another client",
            "",
        )),
        _ => {
            let error = run.error.as_ref();
            let code = error.map_or(ErrorCode::InternalError, |error| error.code);
            let why = error.map_or_else(|| "no error was recorded".to_owned(), ToString::to_string);
            let exit = match error.map_or(Exit::Failed, Exit::of_error) {
                Exit::Provider => Exit::Provider,
                _ => Exit::Failed,
            };
            Err(Failure::new(
                exit,
                format!("the run failed: {why}"),
                exit::advice(code),
            ))
        }
    }
}
