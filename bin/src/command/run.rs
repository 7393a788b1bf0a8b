//! `soong run`: one run, followed to its end or started in the background.

use std::{
    io::IsTerminal,
    path::{Path, PathBuf},
};

use serde_json::Value;
use soong::{
    ErrorCode,
    protocol::{
        RunMode, RunSetting, Session, Setting, TraceId, TraceStatus,
        api::{
            Accepted, StartBody,
            operation::{ReadSession, ReadTrace},
        },
    },
};
use soong_client::{Client, Discovery};
use soong_tui::{format, terminal::TextStyle};

use super::{
    attach::Attachments,
    continued,
    host::{self, builder},
    piped_input::add_piped_input,
    runtime_session::{RunReport, RuntimeSession},
};
use crate::{
    cli,
    config::{self, Settings},
    context::{Context, RunDisplay},
    exit::{Exit, Failure},
    file, input, monitor,
    offline_store::OfflineStore,
    print, prompts, report,
};

pub(super) async fn run(context: &Context<'_>, mut options: cli::Run) -> Result<Exit, Failure> {
    let display = display(context, &options)?;
    let is_quiet = options.quiet;
    let home = context.home()?;
    let settings = config::read(&context.global, &home)?;
    continued::resolve(context, &mut options.conversation).await?;
    let cli::ConversationArgs {
        session,
        trace,
        continued,
        after,
        ..
    } = &options.conversation;
    let mut prompt = prompt(&options, trace.is_some() || after.is_some())?;
    let project = project(context, options.project.path.as_deref())?;
    let budget = options.budget.limits();
    if !budget.is_unlimited() && options.reset.contains(&RunSetting::Budget) {
        let advice = "Either set new limits, or reset the budget.";
        return Err(Failure::usage(
            "--reset budget cannot be combined with new limits",
            advice,
        ));
    }
    if matches!(Client::find(&context.address(&home)).await, Discovery::None) {
        let resumed_trace = trace
            .as_deref()
            .filter(|_| prompt.is_none() && after.is_none());
        let is_reset = options.agent.preset.is_some() || options.reset.contains(&RunSetting::Model);
        let mut model = options.agent.model.clone();
        if model.is_none() && !is_reset {
            let is_last = continued.is_some();
            let session = session.as_deref();
            model = last_model(
                &home,
                session,
                trace.as_deref(),
                is_last,
                project.as_deref(),
            );
        }
        check_credentials(context, &settings, &home, model.as_deref(), resumed_trace)?;
        print_model_selected_by_key(context, &settings, model.as_deref());
    }
    let fails_on_denied = options.permissions.fail_on_denied;
    let schema = options.output_schema.as_deref().map(schema).transpose()?;
    let max_bytes = settings.config.artifacts.max_text_bytes;
    let _stdin_folder = add_piped_input(&mut options, &mut prompt, max_bytes)?;
    let attached = Attachments::check(options.attach.clone(), &settings.config.artifacts)?;
    let input = RunInput {
        options,
        prompt,
        output_schema: schema,
        project,
    };
    if input.options.detach {
        return detach(context, &home, input, attached).await;
    }
    let mut runtime_session =
        RuntimeSession::connect(context, &home, || builder(context, &home, &settings)).await?;
    let build_request = async |runtime_session: &mut RuntimeSession<'_>| {
        let request = start_request(runtime_session.client(), input, context.global.json).await?;
        attach(context, runtime_session, attached, request).await
    };
    let done = match build_request(&mut runtime_session).await {
        Ok(request) => runtime_session.run(request, display).await,
        Err(failure) => Err(failure),
    };
    runtime_session.close().await;
    report_end(context, done?, is_quiet, fails_on_denied)
}

/// Prints the commands that continue after a run, and returns the exit code. `fails_on_denied`: a
/// denied call is a failure.
fn report_end(
    context: &Context<'_>,
    done: RunReport,
    is_quiet: bool,
    fails_on_denied: bool,
) -> Result<Exit, Failure> {
    let has_failed =
        fails_on_denied && matches!(done.exit, Ok(Exit::Success)) && !done.denied.is_empty();
    let advice = report::allow_advice(&done.denied);
    if !context.global.json && !done.output_closed {
        if !is_quiet {
            report::print_detail_commands(
                context,
                context.global.home.as_deref(),
                &done.session_name,
                &done.stored,
            )?;
        }
        report::print_denied_calls(&done.denied);
        if !has_failed && !advice.is_empty() {
            print::error_line(&advice);
        }
    }
    match done.exit? {
        _ if has_failed => {
            let calls = format::plural(done.denied.len(), "call was", "calls were");
            Err(Failure::new(
                Exit::Refused,
                format!("{calls} denied (--fail-on-denied)"),
                advice,
            ))
        }
        exit => Ok(exit),
    }
}

/// Returns how the run is shown. Fails if the terminal cannot show it so.
fn display(context: &Context<'_>, options: &cli::Run) -> Result<RunDisplay, Failure> {
    match (options.monitor, options.quiet) {
        (true, _) => monitor::check(context.terminal).map(|()| RunDisplay::Monitored),
        (false, true) => Ok(RunDisplay::Quiet),
        (false, false) => Ok(RunDisplay::Once),
    }
}

/// Prints, at a terminal, the model that a key selects, because none is configured. `model`: the
/// one that is requested.
fn print_model_selected_by_key(context: &Context<'_>, settings: &Settings, model: Option<&str>) {
    let selected = settings
        .model_selected_by_key(&context.environment)
        .filter(|_| model.is_none());
    if let Some(selected) = selected.filter(|_| !context.global.json && prompts::is_interactive()) {
        print::error_line(&context.terminal.stderr.paint(TextStyle::Dim, &selected));
    }
}

/// Fails if the credentials of a required model are missing. When an interrupted run is resumed,
/// its models are required, else `model`.
fn check_credentials(
    context: &Context<'_>,
    settings: &Settings,
    home: &Path,
    model: Option<&str>,
    resumed_trace: Option<&str>,
) -> Result<(), Failure> {
    let trace = resumed_trace.and_then(|id| {
        OfflineStore::open(home)
            .ok()
            .map(|records| (records.trace(&TraceId::new(id)), records))
    });
    if let Some((Ok(trace), records)) = trace {
        let models = records.unfinished_models(&trace.session_id)?;
        // A trace that is complete cannot be resumed: let the owner reject it with that reason, not
        // with a missing key.
        if !models.is_empty() || trace.status == TraceStatus::Completed {
            return models
                .iter()
                .try_for_each(|model| settings.check_model(Some(model), &context.environment));
        }
    }
    settings.check_model(model, &context.environment)
}

/// Returns the model of the last run of a session or a trace, which is given by its id, or as the
/// last session of the project.
pub(super) fn last_model(
    home: &Path,
    session: Option<&str>,
    trace: Option<&str>,
    is_last: bool,
    project: Option<&Path>,
) -> Option<String> {
    let records = OfflineStore::open(home).ok()?;
    let trace = match session.or(trace) {
        Some(id) => Some(TraceId::new(id)),
        None if is_last => continued::last_session_of(records.sessions(false).ok()?, project?)
            .map(|session| TraceId::root(&session.session_id)),
        None => None,
    };
    records.last_model(&trace?)
}

/// Applies `--reset`: resets each setting unless the command line also sets it.
pub(super) fn reset(body: &mut StartBody, settings: &[RunSetting]) {
    for setting in settings {
        body.reset_unless_set(*setting);
        // The temperature is one of the parameters for users of the command line.
        if *setting == RunSetting::LlmParams {
            body.reset_unless_set(RunSetting::Temperature);
        }
    }
}

/// Uploads the attachments of a run and sets the session of the run to the one they were stored in.
pub(super) async fn attach(
    context: &Context<'_>,
    runtime_session: &mut RuntimeSession<'_>,
    mut attached: Attachments,
    mut request: StartBody,
) -> Result<StartBody, Failure> {
    if attached.is_empty() {
        return Ok(request);
    }
    let session = runtime_session
        .request(async |client| attached.upload(client, &request).await)
        .await?;
    request.session_id = Some(session.to_string());
    attached.add_to(&mut request);
    if !context.global.json {
        attached.print();
    }
    Ok(request)
}

/// Options of a run, with the values that were read and checked before the owner is contacted.
struct RunInput {
    options: cli::Run,
    /// The prompt; `None` to resume without one.
    prompt: Option<String>,
    output_schema: Option<Value>,
    project: Option<PathBuf>,
}

/// Builds the request body of the run.
async fn start_request(
    client: &Client,
    input: RunInput,
    is_json: bool,
) -> Result<StartBody, Failure> {
    let RunInput {
        options,
        prompt,
        output_schema: expected_output_schema,
        project,
    } = input;
    let budget = options.budget.limits();
    let mut trace_id = None;
    let session_id = match (options.conversation.session, options.conversation.trace) {
        (Some(session), _) => Some(session),
        (None, Some(trace)) => {
            let session;
            (session, trace_id) = session_of(client, &trace).await?;
            let is_set = options.agent.model.is_some()
                || options.max_turns.is_some()
                || options.timeout.is_some()
                || !budget.is_unlimited()
                || expected_output_schema.is_some();
            if prompt.is_none() && is_set && session.live_runs > 0 {
                print::note(
                    "the interrupted run resumes with its original settings; --model, limits and --output-schema are ignored",
                );
            }
            Some(session.session_id.to_string())
        }
        (None, None) => match &options.conversation.continued {
            Some(reference) => {
                let found =
                    continued::fetch_continued(client, reference.as_deref(), project.as_deref())
                        .await?;
                Some(found.session_id.to_string())
            }
            None => None,
        },
    };
    let not_empty =
        |names: Vec<String>| names.into_iter().filter(|name| !name.is_empty()).collect();
    let tools: Option<Vec<String>> = options.tools.map(not_empty);
    let mut body = StartBody {
        prompt,
        mode: options.mode.map(RunMode::from).into(),
        session_id,
        trace_id,
        preset: options.agent.preset.into(),
        model: options.agent.model.into(),
        max_turns: options.max_turns.into(),
        tools: tools.into(),
        timeout_ms: options
            .timeout
            .map(|limit| u64::try_from(limit.as_millis()).unwrap_or(u64::MAX)),
        budget: (!budget.is_unlimited()).then_some(budget).into(),
        expected_output_schema,
        project_dir: project,
        allow_home_project: options.project.here,
        after_sequence: options.conversation.after,
        compact: options.conversation.compact,
        allow: options.permissions.allow,
        deny: options.permissions.deny,
        permission_mode: options.permissions.mode.permission_mode,
        unattended: !options.detach && (is_json || !prompts::is_interactive()),
        ..StartBody::default()
    };
    reset(&mut body, &options.reset);
    if let Some(effort) = options.agent.effort {
        let params = continued::params_with_effort(client, &body, effort).await?;
        body.llm_params = Setting::Set(params);
    }
    Ok(body)
}

/// Returns the session of a trace, and the trace if it is that of a sub-agent.
pub(super) async fn session_of(
    client: &Client,
    trace: &str,
) -> Result<(Session, Option<TraceId>), Failure> {
    let trace = client
        .call(ReadTrace {
            trace_id: TraceId::new(trace),
        })
        .await?
        .trace;
    let session = client
        .call(ReadSession {
            session_id: trace.session_id.clone(),
        })
        .await?
        .session;
    Ok((session, trace.parent_trace_id.map(|_| trace.trace_id)))
}

/// Reads the JSON schema of the answer.
pub(super) fn schema(path: &Path) -> Result<Value, Failure> {
    let text = soong_server::text_file::read_text(path, file::MAX_TEXT_BYTES).map_err(|error| {
        let what = format!("the schema {} cannot be read: {error}", path.display());
        let exit = if error.kind() == std::io::ErrorKind::NotFound {
            Exit::NotFound
        } else {
            Exit::Usage
        };
        Failure::new(exit, what, "Give an existing, readable file.")
    })?;
    serde_json::from_str(&text).map_err(|error| {
        let what = format!("the schema {} is not valid JSON: {error}", path.display());
        Failure::usage(what, "Write a JSON schema, such as {\"type\": \"object\"}.")
    })
}

/// Returns the project folder. With a server, the path is one on its machine, and `None` selects
/// the server's default.
pub(super) fn project(
    context: &Context<'_>,
    path: Option<&Path>,
) -> Result<Option<PathBuf>, Failure> {
    match context.remote {
        Some(_) => Ok(path.map(Path::to_owned)),
        None => folder(path).map(Some),
    }
}

/// Resolves the project folder before anything is created. For a file, returns the folder that
/// contains it.
pub(super) fn folder(path: Option<&Path>) -> Result<PathBuf, Failure> {
    let path = path.unwrap_or(Path::new("."));
    let found = path.canonicalize().map_err(|error| {
        let what = format!("the folder {} cannot be used: {error}", path.display());
        Failure::new(Exit::NotFound, what, "Give a folder that exists.")
    })?;
    let found = match found.parent() {
        Some(parent) if found.is_file() => parent.to_owned(),
        _ => found,
    };
    if found.to_str().is_none() {
        let what = format!(
            "the folder {} cannot be a project: its path is not valid Unicode",
            found.display()
        );
        return Err(Failure::usage(
            what,
            "Rename it, or use another folder with --path DIR.",
        ));
    }
    Ok(found)
}

/// Returns the prompt from the command line or from standard input, or `None` to resume without
/// one.
fn prompt(options: &cli::Run, may_resume: bool) -> Result<Option<String>, Failure> {
    let given = options.prompt.as_deref();
    let is_read = given.map_or(!may_resume, |prompt| prompt == "-");
    if is_read && options.attach.iter().any(|path| path.as_os_str() == "-") {
        let advice = "Give the prompt as an argument, or attach a file.";
        return Err(Failure::usage(
            "standard input cannot be both the prompt and an attachment",
            advice,
        ));
    }
    if given.is_none() && may_resume {
        return Ok(None);
    }
    prompt_text(
        given,
        "Give a prompt, such as `soong run \"Summarize README.md\"`, or pipe one in.",
    )
    .map(Some)
}

/// Returns a prompt that is given, or read from standard input. `example`: advice if there is none.
pub(super) fn prompt_text(given: Option<&str>, example: &str) -> Result<String, Failure> {
    let text = match given {
        Some(text) if text != "-" => text.to_owned(),
        None if std::io::stdin().is_terminal() => return Err(Failure::usage("no prompt", example)),
        _ => input::read_all()?,
    };
    if text.trim().is_empty() {
        return Err(Failure::usage("the prompt is empty", example));
    }
    Ok(text)
}

/// Checks the credentials of a model, if no process owns the home.
pub(super) async fn check_model(
    context: &Context<'_>,
    settings: &Settings,
    home: &Path,
    model: Option<&str>,
) -> Result<(), Failure> {
    if matches!(Client::find(&context.address(home)).await, Discovery::None) {
        check_credentials(context, settings, home, model, None)?;
        print_model_selected_by_key(context, settings, model);
    }
    Ok(())
}

/// Starts the run at the owner of the home, or at a new background process, and returns.
async fn detach(
    context: &Context<'_>,
    home: &Path,
    input: RunInput,
    mut attached: Attachments,
) -> Result<Exit, Failure> {
    let mut client = host::connect_or_spawn(context, home).await?;
    let mut request = start_request(&client, input, context.global.json).await?;
    if !attached.is_empty() {
        let mut uploaded = attached.upload(&client, &request).await;
        if uploaded
            .as_ref()
            .is_err_and(|error| error.code == ErrorCode::Closing && error.retryable)
        {
            client = host::connect_or_spawn(context, home).await?;
            uploaded = attached.upload(&client, &request).await;
        }
        request.session_id = Some(uploaded?.to_string());
        attached.add_to(&mut request);
        if !context.global.json {
            attached.print();
        }
    }
    let run = client.start(&request).await?;
    if context.global.json {
        print::json(&run)?;
        return Ok(Exit::Success);
    }
    let Accepted {
        run_id,
        session_id,
        status,
        ..
    } = run;
    print::line(&format!("run {run_id} of session {session_id}: {status}"))?;
    let soong = report::command(
        context.global.home.as_deref(),
        context.global.url.as_deref(),
    );
    print::line(&format!(
        "follow it:  {soong} traces events {session_id} --follow"
    ))?;
    print::line(&format!("show it:    {soong} tree"))?;
    print::line(&format!("stop it:    {soong} traces stop {session_id}"))?;
    Ok(Exit::Success)
}
