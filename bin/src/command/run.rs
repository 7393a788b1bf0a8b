//! `soong run`: one run, watched to its end. `soong demo` works the same way.

use std::{io::IsTerminal, path::Path};

use soong::{
    Runtime, RuntimeBuilder, Start,
    protocol::{RunMode, Session, SessionId, TraceId},
};

use super::Context;
use crate::{
    cli, config,
    exit::{Exit, Failure},
    figure,
    interrupt::Interrupt,
    log, print,
    report::{self, Stored},
    watch::{Progress, watch},
};

pub(super) async fn run(context: &Context<'_>, options: cli::Run) -> Result<Exit, Failure> {
    let home = config::home(&context.global, &context.environment)?;
    let settings = config::read(&context.global, &home)?;
    let message = prompt(options.prompt)?;
    settings.check_model(options.model.as_deref(), &context.environment)?;
    let mut runtime = Runtime::builder().home(&home).config(settings.config).environment(context.environment.clone());
    if let Some(path) = &options.path {
        runtime = runtime.project_dir(path);
    }
    let mut start = Start::new(message).mode(options.mode.map(RunMode::from).unwrap_or_default());
    start.session_id = options.session;
    start.agent_type = options.agent_type;
    start.model = options.model;
    start.max_iterations = options.max_iterations;
    start.timeout_ms = options.timeout.map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX));
    let job = Job { runtime, start, resume: options.resume, keeps_mode: options.mode.is_none(), home: &home };
    let (_, exit) = work(context, job).await?;
    exit
}

/// Returns the prompt, from the command line or from standard input.
fn prompt(given: Option<String>) -> Result<String, Failure> {
    let example = "Say what is to be done: `soong run \"Summarise README.md\"`, or pipe it in.";
    let text = match given {
        Some(text) if text != "-" => text,
        None if std::io::stdin().is_terminal() => return Err(Failure::usage("there is no prompt", example)),
        _ => std::io::read_to_string(std::io::stdin()).map_err(|error| {
            Failure::usage(format!("the prompt cannot be read from standard input: {error}"), example)
        })?,
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty", example));
    }
    Ok(text)
}

/// What is to be run, and in what.
pub(super) struct Job<'a> {
    pub(super) runtime: RuntimeBuilder,
    pub(super) start: Start,
    /// Whether the last session of the project goes on.
    pub(super) resume: bool,
    /// Whether a session that goes on keeps the mode of its last run.
    pub(super) keeps_mode: bool,
    pub(super) home: &'a Path,
}

/// What came out of a job: what the run stored, and how the process ends.
pub(super) type Done = (Vec<Stored>, Result<Exit, Failure>);

/// Owns the home for one run and tells about it. `Err` = the run did not begin, or was lost.
pub(super) async fn work(context: &Context<'_>, job: Job<'_>) -> Result<Done, Failure> {
    let has_picture = context.terminal.can_redraw && !context.global.json;
    let log_file = job.home.join("logs").join("soong.log");
    log::start(context.global.verbose, has_picture.then_some(log_file.as_path()));
    let interrupt = Interrupt::listen();
    let runtime = job.runtime.build().await?;
    if runtime.interrupted_runs() > 0 && !context.global.json {
        let runs = figure::plural(runtime.interrupted_runs(), "run", "runs");
        print::error_line(&format!("note: {runs} that an earlier process left behind ended as interrupted"));
    }
    let done = one_run(context, &runtime, job.start, job.resume, job.keeps_mode, interrupt).await;
    runtime.close().await;
    done
}

async fn one_run(
    context: &Context<'_>,
    runtime: &Runtime,
    mut start: Start,
    resume: bool,
    keeps_mode: bool,
    interrupt: Interrupt,
) -> Result<Done, Failure> {
    let session = if resume { Some(last_session(runtime).await?) } else { known_session(runtime, &start).await? };
    let since = session.as_ref().map_or(0, |session| session.last_session_seq);
    if let Some(session) = &session {
        start.session_id = Some(session.session_id.to_string());
        if keeps_mode {
            start.mode = runtime.trace(&TraceId::root(&session.session_id)).await?.run_mode;
        }
    }
    let task = start.message.clone();
    let kind = match (&start.agent_type, start.mode) {
        (Some(kind), _) => kind.clone(),
        (None, RunMode::Orchestrator) => "orchestrator".to_owned(),
        (None, RunMode::Normal) => "default".to_owned(),
    };
    let run = runtime.start(start).await?;
    let progress = Progress::choose(context.global.json, context.terminal, &run, &kind, &task);
    let watched = watch(runtime, &run, since, progress, interrupt).await?;
    let stored = report::stored(runtime, &watched.outcome);
    let exit = report::exit(&watched);
    if watched.unread {
        return Ok((stored, exit));
    }
    if context.global.json {
        report::json(runtime, &watched.outcome, &stored).await?;
    } else {
        report::print(&watched.outcome, run.session_id(), &stored, context.terminal)?;
    }
    Ok((stored, exit))
}

/// Finds the session that the caller named, if there is one.
async fn known_session(runtime: &Runtime, start: &Start) -> Result<Option<Session>, Failure> {
    let Some(id) = start.session_id.as_deref().and_then(|id| SessionId::parse(id).ok()) else { return Ok(None) };
    match runtime.session(&id).await {
        Ok(session) => Ok(Some(session)),
        Err(error) if error.code == soong::ErrorCode::SessionNotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Finds the session of this project folder in which something happened last.
async fn last_session(runtime: &Runtime) -> Result<Session, Failure> {
    let project = runtime.project_dir().display().to_string();
    let mut last: Option<Session> = None;
    let mut cursor = None;
    loop {
        let page = runtime.sessions(100, cursor).await?;
        for session in page.items.into_iter().filter(|session| session.project_dir == project) {
            if last.as_ref().is_none_or(|other| other.updated_at < session.updated_at) {
                last = Some(session);
            }
        }
        cursor = page.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    last.ok_or_else(|| {
        let what = format!("no session of the project {project} can be continued");
        Failure::new(Exit::NotFound, what, "Begin one without --continue, or name one with --session ID.")
    })
}
