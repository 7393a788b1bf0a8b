//! Routes of runs: start, continue, reflect, stop, cancel, read, and add children.

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use soong::{
    ChildSpec, ErrorCode, ErrorInfo, EventStream, RunHandle, RunRequest, SessionSpec,
    protocol::{
        ChildMode, Reflection, Role, RunId, RunOptions, RunPermissions, RunStatus, SessionId,
        TraceId,
        api::{
            Accepted, ChildrenBody, ChildrenView, IfBusy, ReflectBody, RunWithOutcome, StartBody,
            operation::{
                AddChildren, CancelRun, ReadRun, ReflectOnTrace, ResumeTrace, StartRun, StopTrace,
            },
        },
    },
};

use super::{
    accepted::{accepted, accepted_record},
    caller::{Access, TokenWatch},
    error::{ApiError, validation_error},
    request,
    stream::{stream_after_start, wants_stream},
};

/// Answers [`StartRun`]: with the accepted run, or with the event stream of its session.
pub(super) async fn start_or_stream(
    access: Access,
    token_watch: TokenWatch,
    headers: HeaderMap,
    request::Json(body): request::Json<StartBody>,
) -> Result<Response, ApiError> {
    if !wants_stream(&headers) {
        let accepted = start_run(&access, body).await?;
        return Ok((StatusCode::ACCEPTED, Json(accepted)).into_response());
    }
    let (accepted, stream) = start_with_events(&access, body).await?;
    let stream = stream_after_start(&access, token_watch, stream, &accepted);
    Ok((StatusCode::ACCEPTED, stream).into_response())
}

/// Starts a run, and streams the events of its session from that point on.
pub(super) async fn start_with_events(
    access: &Access,
    mut body: StartBody,
) -> Result<(Accepted, EventStream), ApiError> {
    let session = match &body.session_id {
        Some(id) => SessionId::parse(id).map_err(|error| validation_error(error.to_string()))?,
        None => SessionId::generate(),
    };
    body.session_id = Some(session.to_string());
    // The events of another user's session are not streamed: the start is rejected.
    let since = match access.session(&session).await {
        Ok(known) => known.last_session_seq,
        Err(error) if error.code == ErrorCode::SessionNotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let stream = access.runtime().sessions().events(&session, since);
    let accepted = start_run(access, body).await?;
    Ok((accepted, stream))
}

pub(super) async fn start(access: &Access, request: StartRun) -> Result<Accepted, ApiError> {
    start_run(access, request.body).await
}

/// Sets the conversation that a start continues: the one of a session, or of a sub-agent.
async fn set_trace(access: &Access, id: &TraceId, body: &mut StartBody) -> Result<(), ApiError> {
    let trace = access.trace(id).await?;
    body.session_id = Some(trace.session_id.to_string());
    body.trace_id = trace.parent_trace_id.is_some().then(|| id.clone());
    Ok(())
}

pub(super) async fn resume(access: &Access, request: ResumeTrace) -> Result<Accepted, ApiError> {
    let ResumeTrace {
        trace_id: id,
        mut body,
    } = request;
    if body.session_id.is_some() || body.trace_id.is_some() {
        return Err(validation_error(
            "session_id, trace_id: not allowed here, because the trace in the path determines them",
        ));
    }
    set_trace(access, &id, &mut body).await?;
    start_run(access, body).await
}

pub(super) async fn reflect(
    access: &Access,
    request: ReflectOnTrace,
) -> Result<Accepted, ApiError> {
    let ReflectOnTrace {
        trace_id: id,
        body: ReflectBody { focus },
    } = request;
    let mut body = StartBody {
        reflects: Some(Reflection { focus }),
        ..StartBody::default()
    };
    set_trace(access, &id, &mut body).await?;
    start_run(access, body).await
}

pub(super) async fn start_run(
    access: &Access,
    mut request: StartBody,
) -> Result<Accepted, ApiError> {
    let gate_guard = access.begin_change()?;
    request.uid = Some(access.uid(request.uid.as_deref())?);
    if let Some(id) = &request.trace_id {
        access.trace(id).await?; // it must be visible to the caller
    }
    let runtime = access.runtime().clone();
    let request_key = access.request_key().cloned();
    // The start runs in a separate task: if the client disconnects, the owner still stays until the
    // run is accepted.
    let starting = tokio::spawn(async move {
        let run = runtime
            .start(RunRequest {
                request_key,
                ..run_request(request)
            })
            .await?;
        drop(gate_guard);
        Ok::<_, ErrorInfo>(run)
    });
    let task_failed = |error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("the start did not finish: {error}"),
        )
    };
    let run = starting.await.map_err(task_failed)??;
    let status = if run.was_queued() {
        "queued"
    } else {
        "started"
    };
    Ok(accepted(&run, status))
}

/// Translates the body of a start. In OpenAI's format, the last message is the prompt.
fn run_request(mut request: StartBody) -> RunRequest {
    let settings = request.take_settings();
    let has_prompt = request
        .messages
        .last()
        .is_some_and(|message| message.role == Role::User);
    let message = match request.prompt {
        Some(prompt) => Some(prompt.into()),
        None if has_prompt => request.messages.pop().map(|message| message.content),
        None => None,
    };
    RunRequest {
        message,
        session: SessionSpec {
            session_id: request.session_id,
            name: request.name,
            uid: request.uid,
            project_dir: request.project_dir,
            allow_home_project: request.allow_home_project,
        },
        sub_trace: request.trace_id,
        settings,
        messages: request.messages,
        expected_output_schema: request.expected_output_schema,
        timeout_ms: request.timeout_ms,
        permissions: RunPermissions {
            allow: request.allow,
            deny: request.deny,
            mode: request.permission_mode,
            unattended: request.unattended,
        },
        after_sequence: request.after_sequence,
        reject_if_busy: request.if_busy == Some(IfBusy::Reject),
        driven: false,
        reflection: request.reflects,
        compact: request.compact,
        request_key: None,
    }
}

pub(super) async fn stop(access: &Access, request: StopTrace) -> Result<Accepted, ApiError> {
    let StopTrace { trace_id: id } = request;
    access.trace(&id).await?;
    if let Some(run) = access.runtime().traces().active_run(&id) {
        return cancelling(run).await;
    }
    let _passing = access.begin_change()?;
    let run = access.runtime().traces().cancel_interrupted(&id).await?;
    Ok(accepted_record(&run, "cancelling"))
}

pub(super) async fn cancel(access: &Access, request: CancelRun) -> Result<Accepted, ApiError> {
    let CancelRun { run_id: id } = request;
    access.run(&id).await?;
    cancelling(access.runtime().traces().handle(&id)?).await
}

/// Cancels a run, and responds once the request is durable. The run ends in the background, as its
/// events show.
async fn cancelling(run: RunHandle) -> Result<Accepted, ApiError> {
    let cancelling = accepted(&run, "cancelling");
    // Runs in a separate task, so that it continues if the client disconnects.
    let ending = run.clone();
    tokio::spawn(async move { ending.cancel().await });
    run.request_cancel().await?;
    Ok(cancelling)
}

pub(super) async fn show(access: &Access, request: ReadRun) -> Result<RunWithOutcome, ApiError> {
    let ReadRun { run_id: id } = request;
    run_view(access, &id).await
}

/// Reads a run, with its output if it has ended.
pub(super) async fn run_view(access: &Access, id: &RunId) -> Result<RunWithOutcome, ApiError> {
    access.run(id).await?;
    let outcome = access.runtime().traces().outcome(id).await?;
    // The run is read after its outcome: a run that has an outcome has ended.
    let run = access.run(id).await?;
    Ok(match outcome {
        Some(outcome) => RunWithOutcome {
            run,
            output: Some(outcome.output),
            tool_calls: outcome.tool_calls,
            artifacts: Some(outcome.artifacts),
            stats: Some(outcome.stats),
        },
        None => RunWithOutcome {
            run,
            output: None,
            tool_calls: Vec::new(),
            artifacts: None,
            stats: None,
        },
    })
}

pub(super) async fn add_children(
    access: &Access,
    request: AddChildren,
) -> Result<ChildrenView, ApiError> {
    let AddChildren { run_id: id, body } = request;
    let gate_guard = access.begin_change()?;
    let waits_for_parent = access.run(&id).await?.status == RunStatus::Queued;
    let specs = child_specs(body)?;
    let run = access.runtime().traces().handle(&id)?;
    // Runs in a separate task: either all children are added and reported to the client, or none is
    // added.
    let spawning = tokio::spawn(async move {
        let children = run.spawn_all(specs).await;
        drop(gate_guard);
        children
    });
    let task_failed = |error| {
        ErrorInfo::new(
            ErrorCode::InternalError,
            format!("it is unknown whether the children were started: {error}"),
        )
    };
    let children = spawning.await.map_err(task_failed)??;
    let status = if waits_for_parent {
        "queued"
    } else {
        "started"
    };
    let children = children
        .iter()
        .map(|child| accepted(child, status))
        .collect();
    Ok(ChildrenView { children })
}

/// Returns one child run for each task.
fn child_specs(body: ChildrenBody) -> Result<Vec<ChildSpec>, ApiError> {
    let (tasks, mode) = match (body.task, body.tasks) {
        (Some(task), None) => (vec![task], ChildMode::Delegate),
        (None, Some(tasks)) => (tasks, ChildMode::Explore),
        _ => {
            return Err(validation_error(
                "set either `task` for one child, or `tasks` for several",
            ));
        }
    };
    let mode = body.mode.unwrap_or(mode);
    let options = RunOptions {
        max_turns: body.max_turns,
        tools: body.tools,
        messages: body.messages,
        skills: body.skills,
        expected_output_schema: body.expected_output_schema,
        budget: body.budget,
        timeout_ms: body.timeout_ms,
    };
    let spec = |task| ChildSpec {
        preset: body.agent_type.clone(),
        model: body.model.clone(),
        context: body.context.clone(),
        options: options.clone(),
        deliver: body.deliver,
        ..ChildSpec::new(task).mode(mode)
    };
    Ok(tasks.into_iter().map(spec).collect())
}
