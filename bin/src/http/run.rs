//! Runs: start, go on, stop, cancel, and how one ended.

use std::path::PathBuf;

use axum::{
    Json,
    body::Bytes,
    extract::{Path, State, rejection::BytesRejection},
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use soong::{
    ErrorCode, ErrorInfo, RunHandle, Start,
    protocol::{ArtifactRef, Budget, GivenMessage, Reflection, Run, RunId, RunMode, SessionId, StatsPair, TraceId},
};

use super::{
    Api,
    error::{ApiError, body, refuse},
    stream::{followed, wants_stream},
};

/// What a client says of a run that is to be started.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct StartBody {
    /// What is asked of the run; absent = go on where the trace stopped (MSG-2).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) prompt: Option<String>,
    /// The message of the main path behind which it goes on; absent = where the conversation stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) after_sequence: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mode: Option<RunMode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) session_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) agent_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_iterations: Option<u32>,
    /// What stands in the conversation before the prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) messages: Vec<GivenMessage>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) skills: Option<Vec<String>>,
    /// The JSON schema that the answer has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expected_output_schema: Option<Value>,
    /// What the run and all below it may use (BUD-1).
    #[serde(default, skip_serializing_if = "Budget::is_open")]
    pub(crate) budget: Budget,
    /// Most run time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) timeout_ms: Option<u64>,
    /// The ceiling of what the run and all below it may use (SUB-6).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) tools: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_prompt: Option<String>,
    /// Name of a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name: Option<String>,
    /// Project folder of a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) project_dir: Option<PathBuf>,
    /// What the run and all below it may do without asking (PERM-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) allow: Vec<String>,
    /// Whether nobody can be asked: what needs leave is refused at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unattended: bool,
    /// Whether a new conversation is told what earlier runs have learned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) enable_memory: Option<bool>,
    /// Where it is only to look back on the session: how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reflects: Option<Reflection>,
    /// What happens while another run of the session is at work; `queue` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) if_busy: Option<IfBusy>,
}

/// What becomes of a run whose session is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IfBusy {
    /// It waits for its turn.
    Queue,
    /// It is refused as `session_active`.
    Reject,
}

/// What a client says of a look back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReflectBody {
    /// What to look at above all.
    #[serde(default)]
    pub(crate) focus: Option<String>,
}

/// A run that was taken in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Accepted {
    pub(crate) trace_id: TraceId,
    pub(crate) run_id: RunId,
    pub(crate) session_id: SessionId,
    /// `started`, `queued`, or `cancelling` where its end was asked for.
    pub(crate) status: String,
}

/// A run with what it brought, once it has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunView {
    #[serde(flatten)]
    pub(crate) run: Run,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) output: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifacts: Option<Vec<ArtifactRef>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stats: Option<StatsPair>,
}

/// POST `/api/traces`: a new session, or a further run of one.
///
/// Who accepts `text/event-stream` is answered with the session's stream from here on, behind a first
/// frame `accepted`: so not even text is missed that the model streams at once.
pub(super) async fn start(
    State(api): State<Api>,
    headers: HeaderMap,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let mut wish: StartBody = body(bytes)?;
    if !wants_stream(&headers) {
        return Ok(begin(&api, wish).await?.into_response());
    }
    let session = match &wish.session_id {
        Some(id) => SessionId::parse(id).map_err(|error| refuse(error.to_string()))?,
        None => SessionId::generate(),
    };
    wish.session_id = Some(session.to_string());
    let since = match api.runtime.session(&session).await {
        Ok(known) => known.last_session_seq,
        Err(error) if error.code == ErrorCode::SessionNotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let stream = api.runtime.session_events(&session, since);
    let (status, Json(accepted)) = begin(&api, wish).await?;
    Ok((status, followed(stream, &accepted)).into_response())
}

/// POST `/api/traces/{id}/run`: a further run of a session's root trace.
pub(super) async fn go_on(
    State(api): State<Api>,
    Path(id): Path<TraceId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let mut wish: StartBody = body(bytes)?;
    let trace = api.runtime.trace(&id).await?;
    if trace.parent_trace_id.is_some() {
        let message = format!("trace {id} is a sub-agent's: continue its session, {}", trace.session_id);
        return Err(refuse(message));
    }
    if wish.session_id.is_some() {
        return Err(refuse("session_id: the trace in the path says which session it is"));
    }
    wish.session_id = Some(trace.session_id.to_string());
    begin(&api, wish).await
}

/// POST `/api/traces/{id}/reflect`: a look back on a session, by its root trace.
pub(super) async fn reflect(
    State(api): State<Api>,
    Path(id): Path<TraceId>,
    bytes: Result<Bytes, BytesRejection>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let ReflectBody { focus } = body(bytes)?;
    let trace = api.runtime.trace(&id).await?;
    if trace.parent_trace_id.is_some() {
        let message = format!("trace {id} is a sub-agent's: look back on its session, {}", trace.session_id);
        return Err(refuse(message));
    }
    let session_id = Some(trace.session_id.to_string());
    begin(&api, StartBody { session_id, reflects: Some(Reflection { focus }), ..StartBody::default() }).await
}

async fn begin(api: &Api, wish: StartBody) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let passing = api.enter()?;
    let runtime = api.runtime.clone();
    // In a task of its own: a client that leaves meanwhile does not open the way for the owner.
    let starting = tokio::spawn(async move {
        let run = runtime.start(Start::from(wish)).await?;
        drop(passing);
        Ok::<_, ErrorInfo>(run)
    });
    let lost = |error| ErrorInfo::new(ErrorCode::InternalError, format!("the start did not finish: {error}"));
    let run = starting.await.map_err(lost)??;
    let is_next = api.runtime.active(run.trace_id()).is_none_or(|active| active.run_id() == run.run_id());
    Ok((StatusCode::ACCEPTED, Json(Accepted::of(&run, if is_next { "started" } else { "queued" }))))
}

impl Accepted {
    fn of(run: &RunHandle, status: &str) -> Self {
        Self {
            trace_id: run.trace_id().clone(),
            run_id: run.run_id().clone(),
            session_id: run.session_id().clone(),
            status: status.to_owned(),
        }
    }
}

impl From<StartBody> for Start {
    fn from(wish: StartBody) -> Self {
        Self {
            message: wish.prompt,
            after_sequence: wish.after_sequence,
            session_id: wish.session_id,
            mode: wish.mode,
            agent_type: wish.agent_type,
            model: wish.model,
            max_iterations: wish.max_iterations,
            tools: wish.tools,
            system_prompt: wish.system_prompt,
            messages: wish.messages,
            skills: wish.skills,
            expected_output_schema: wish.expected_output_schema,
            budget: wish.budget,
            timeout_ms: wish.timeout_ms,
            name: wish.name,
            project_dir: wish.project_dir,
            allow: wish.allow,
            unattended: wish.unattended,
            enable_memory: wish.enable_memory,
            reflects: wish.reflects,
            reject_if_busy: wish.if_busy == Some(IfBusy::Reject),
            ..Self::default()
        }
    }
}

/// POST `/api/traces/{id}/stop`: cancels the run that is at work on the trace.
pub(super) async fn stop(
    State(api): State<Api>,
    Path(id): Path<TraceId>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    api.runtime.trace(&id).await?;
    if let Some(run) = api.runtime.active(&id) {
        return Ok(cancelling(run));
    }
    let _passing = api.enter()?;
    let Run { trace_id, run_id, session_id, .. } = api.runtime.end_left_behind(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { trace_id, run_id, session_id, status: "cancelling".to_owned() })))
}

/// POST `/api/runs/{id}/cancel`.
pub(super) async fn cancel(
    State(api): State<Api>,
    Path(id): Path<RunId>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    api.runtime.run(&id).await?;
    Ok(cancelling(api.runtime.handle(&id)?))
}

/// Cancels a run in the background: its end shows on its events.
fn cancelling(run: RunHandle) -> (StatusCode, Json<Accepted>) {
    let accepted = Accepted::of(&run, "cancelling");
    tokio::spawn(async move { run.cancel().await });
    (StatusCode::ACCEPTED, Json(accepted))
}

/// GET `/api/runs/{id}`: the record, and once it has ended its output, artifacts and stats.
pub(super) async fn show(State(api): State<Api>, Path(id): Path<RunId>) -> Result<Json<RunView>, ApiError> {
    let run = api.runtime.run(&id).await?;
    let outcome = api.runtime.outcome(&id).await?;
    let (output, artifacts, stats) = match outcome {
        Some(outcome) => (Some(outcome.output), Some(outcome.artifacts), Some(outcome.stats)),
        None => (None, None, None),
    };
    Ok(Json(RunView { run, output, artifacts, stats }))
}
