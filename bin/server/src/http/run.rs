//! Runs: start, go on, stop, cancel, add children, and how one ended.

use std::path::PathBuf;

use axum::{
    Json,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use soong::{
    ChildSpec, ErrorCode, ErrorInfo, RunHandle, RunSetting, Start,
    protocol::{
        ArtifactRef, Budget, ChildMode, GivenMessage, Reflection, Role, Run, RunId, RunMode, SessionId, StatsPair,
        ToolCall, Trace, TraceId,
    },
};
use utoipa::ToSchema;

use super::{
    accepted::Accepted,
    caller::{Access, Leave},
    error::{ApiError, refuse},
    request::{self, Path},
    stream::{followed, wants_stream},
};

/// Options of a new run. All are optional.
///
/// A further run of a session takes these settings from the session's last run if they are left out: `mode`,
/// `agent_type`, `model`, `temperature`, `llm_params`, `max_iterations`, `tools`, `auto_execute_tools`, `system_prompt`,
/// `skills`, `enable_memory`, and each limit of `budget`. `null` resets one to the server's configuration. An
/// `agent_type` drops the last run's `system_prompt`, `tools` and `model`; a change of `mode` drops its `agent_type`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StartBody {
    /// What is asked of the run. Without it, what the last of `messages` asks; without both it goes on where the
    /// conversation stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// What stands in the conversation before what is asked, of role `user` and `assistant`; or the results of the tool
    /// calls that the last run handed out, of role `tool`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<GivenMessage>,
    /// The message of the main path behind which it goes on; absent = where the conversation stands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after_sequence: Option<u64>,
    /// What kind of agent leads it.
    #[schema(value_type = Option<RunMode>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub mode: Given<RunMode>,
    /// The session; an id that is not known makes a session of that id, without one a new one is made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// The preset.
    #[schema(value_type = Option<String>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub agent_type: Given<String>,
    /// A model profile, or a model name of the default profile.
    #[schema(value_type = Option<String>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub model: Given<String>,
    /// Sampling temperature, 0 to 2.
    #[schema(value_type = Option<f64>, minimum = 0, maximum = 2)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub temperature: Given<f64>,
    /// Further sampling parameters, sent with the model calls as they are: `top_p`, `seed`, `stop`, …
    #[schema(value_type = Option<Map<String, Value>>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub llm_params: Given<Map<String, Value>>,
    /// Most turns.
    #[schema(value_type = Option<u32>, minimum = 0, maximum = 4294967295u64)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub max_iterations: Given<u32>,
    /// The ceiling: the tools that the run and all below it may use; absent = everything configured.
    #[schema(value_type = Option<Vec<String>>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub tools: Given<Vec<String>>,
    /// Whether the run does the tool calls of its model; `false` = it completes with the first ones, and its record
    /// holds them as `tool_calls`.
    #[schema(value_type = Option<bool>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub auto_execute_tools: Given<bool>,
    /// System prompt in place of the preset's.
    #[schema(value_type = Option<String>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub system_prompt: Given<String>,
    /// The skills that go into the system prompt; absent = the preset's.
    #[schema(value_type = Option<Vec<String>>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub skills: Given<Vec<String>>,
    /// The JSON schema that the answer has to fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected_output_schema: Option<Value>,
    /// What the run and all below it may use (BUD-1).
    #[schema(value_type = Option<Budget>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub budget: Given<Budget>,
    /// Most run time, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// Name of a new session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Whose run it is: nobody's but the caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<String>,
    /// Project folder of a new session, on the server's machine.
    #[schema(value_type = Option<String>)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project_dir: Option<PathBuf>,
    /// Allows the home folder of the server's user, or a folder above it, as the project of a new session.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_home_project: bool,
    /// What the run and all below it may do without asking: `TOOL` or `TOOL:SCOPE` (PERM-1).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow: Vec<String>,
    /// Denies calls to the run, to all below it and to further runs of its session, whatever else allows them: `TOOL`,
    /// `TOOL:SCOPE` or `bash(PATTERN)`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deny: Vec<String>,
    /// Whether nobody can be asked: what needs leave is refused at once.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// Whether a new conversation is told what earlier runs have learned.
    #[schema(value_type = Option<bool>)]
    #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    pub enable_memory: Given<bool>,
    /// Where it is only to look back on the session: how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reflects: Option<Reflection>,
    /// What happens while another run of the session is at work; `queue` by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub if_busy: Option<IfBusy>,
}

/// A setting that a client can leave out (`None`), reset (`Some(None)`) or set.
pub type Given<T> = Option<Option<T>>;

/// Reads a setting that is present: `null` resets it.
fn given<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Given<T>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// What becomes of a run whose session is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum IfBusy {
    /// It waits for its turn.
    Queue,
    /// It is refused as `session_active`.
    Reject,
}

/// What a client says of a look back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReflectBody {
    /// What to look at above all.
    #[serde(default)]
    pub focus: Option<String>,
}

/// A run with what it brought, once it has ended.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[schema(as = RunWithOutcome)]
pub struct RunView {
    /// The run as it is stored.
    #[serde(flatten)]
    pub run: Run,
    /// The answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// The tool calls that it leaves to its caller.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// What it stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifacts: Option<Vec<ArtifactRef>>,
    /// What it used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stats: Option<StatsPair>,
}

/// Starts a run: of a new session, or a further one.
///
/// Who accepts `text/event-stream` is answered with the session's stream from here on, behind a first
/// frame `accepted`: so not even text is missed that the model streams at once.
#[utoipa::path(post, path = "/api/traces", tag = "runs", request_body = StartBody,
    responses((status = ACCEPTED, content((Accepted = "application/json"), (String = "text/event-stream")))))]
pub(super) async fn start(
    access: Access,
    leave: Leave,
    headers: HeaderMap,
    request::Json(mut wish): request::Json<StartBody>,
) -> Result<Response, ApiError> {
    if !wants_stream(&headers) {
        return Ok(begin(&access, wish).await?.into_response());
    }
    let session = match &wish.session_id {
        Some(id) => SessionId::parse(id).map_err(|error| refuse(error.to_string()))?,
        None => SessionId::generate(),
    };
    wish.session_id = Some(session.to_string());
    // Of a session of another's nothing is streamed: the start is refused.
    let since = match access.session(&session).await {
        Ok(known) => known.last_session_seq,
        Err(error) if error.code == ErrorCode::SessionNotFound => 0,
        Err(error) => return Err(error.into()),
    };
    let stream = access.runtime().session_events(&session, since);
    let (status, Json(accepted)) = begin(&access, wish).await?;
    Ok((status, followed(&access, leave, stream, &accepted)).into_response())
}

/// Finds the trace of a session that further runs are to be of.
async fn root(access: &Access, id: &TraceId) -> Result<Trace, ApiError> {
    let trace = access.trace(id).await?;
    if trace.parent_trace_id.is_some() {
        let message = format!("trace {id} is a sub-agent's: continue its session, {}", trace.session_id);
        return Err(refuse(message));
    }
    Ok(trace)
}

/// Goes on with a conversation: a further message, from an earlier one on, or again (MSG-2).
#[utoipa::path(post, path = "/api/traces/{trace_id}/run", tag = "runs", params(("trace_id" = String, Path)),
    request_body = Option<StartBody>, responses((status = ACCEPTED, body = Accepted)))]
pub(super) async fn go_on(
    access: Access,
    Path(id): Path<TraceId>,
    request::Json(mut wish): request::Json<StartBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let trace = root(&access, &id).await?;
    if wish.session_id.is_some() {
        return Err(refuse("session_id: the trace in the path says which session it is"));
    }
    wish.session_id = Some(trace.session_id.to_string());
    begin(&access, wish).await
}

/// Looks back on a session, and keeps what was learned (MEM-4).
#[utoipa::path(post, path = "/api/traces/{trace_id}/reflect", tag = "runs", params(("trace_id" = String, Path)),
    request_body = Option<ReflectBody>, responses((status = ACCEPTED, body = Accepted)))]
pub(super) async fn reflect(
    access: Access,
    Path(id): Path<TraceId>,
    request::Json(ReflectBody { focus }): request::Json<ReflectBody>,
) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let session_id = Some(root(&access, &id).await?.session_id.to_string());
    begin(&access, StartBody { session_id, reflects: Some(Reflection { focus }), ..StartBody::default() }).await
}

async fn begin(access: &Access, mut wish: StartBody) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let passing = access.enter()?;
    wish.uid = Some(access.uid(wish.uid.as_deref())?);
    let runtime = access.runtime().clone();
    // In a task of its own: a client that leaves meanwhile does not open the way for the owner.
    let starting = tokio::spawn(async move {
        let run = runtime.start(Start::from(wish)).await?;
        drop(passing);
        Ok::<_, ErrorInfo>(run)
    });
    let lost = |error| ErrorInfo::new(ErrorCode::InternalError, format!("the start did not finish: {error}"));
    let run = starting.await.map_err(lost)??;
    Ok((StatusCode::ACCEPTED, Json(Accepted::of(&run, if run.was_queued() { "queued" } else { "started" }))))
}

/// Separates the settings that a client resets from those that it sets.
struct Settings<'a> {
    reset: &'a mut Vec<RunSetting>,
}

impl Settings<'_> {
    fn value<T>(&mut self, given: Given<T>, setting: RunSetting) -> Option<T> {
        if matches!(given, Some(None)) {
            self.reset.push(setting);
        }
        given.flatten()
    }
}

impl From<StartBody> for Start {
    fn from(mut wish: StartBody) -> Self {
        // In OpenAI's form the last message is what is asked.
        let asks = wish.messages.last().is_some_and(|message| message.role == Role::User);
        if wish.prompt.is_none() && asks {
            wish.prompt = wish.messages.pop().map(|message| message.content);
        }
        let mut reset = Vec::new();
        let mut read = Settings { reset: &mut reset };
        Self {
            message: wish.prompt,
            messages: wish.messages,
            after_sequence: wish.after_sequence,
            session_id: wish.session_id,
            mode: read.value(wish.mode, RunSetting::Mode),
            agent_type: read.value(wish.agent_type, RunSetting::Preset),
            model: read.value(wish.model, RunSetting::Model),
            temperature: read.value(wish.temperature, RunSetting::Temperature),
            llm_params: read.value(wish.llm_params, RunSetting::LlmParams),
            auto_execute_tools: read.value(wish.auto_execute_tools, RunSetting::AutoExecuteTools),
            max_iterations: read.value(wish.max_iterations, RunSetting::MaxIterations),
            tools: read.value(wish.tools, RunSetting::Tools),
            system_prompt: read.value(wish.system_prompt, RunSetting::SystemPrompt),
            skills: read.value(wish.skills, RunSetting::Skills),
            expected_output_schema: wish.expected_output_schema,
            budget: read.value(wish.budget, RunSetting::Budget).unwrap_or_default(),
            timeout_ms: wish.timeout_ms,
            name: wish.name,
            uid: wish.uid,
            project_dir: wish.project_dir,
            allow_home_project: wish.allow_home_project,
            allow: wish.allow,
            deny: wish.deny,
            unattended: wish.unattended,
            enable_memory: read.value(wish.enable_memory, RunSetting::EnableMemory),
            reflects: wish.reflects,
            reject_if_busy: wish.if_busy == Some(IfBusy::Reject),
            reset,
            ..Self::default()
        }
    }
}

/// Cancels the run that is at work on a trace, with everything below it.
#[utoipa::path(post, path = "/api/traces/{trace_id}/stop", tag = "runs", params(("trace_id" = String, Path)),
    responses((status = ACCEPTED, body = Accepted)))]
pub(super) async fn stop(access: Access, Path(id): Path<TraceId>) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    access.trace(&id).await?;
    if let Some(run) = access.runtime().active(&id) {
        return cancelling(run).await;
    }
    let _passing = access.enter()?;
    let Run { trace_id, run_id, session_id, .. } = access.runtime().end_left_behind(&id).await?;
    Ok((StatusCode::ACCEPTED, Json(Accepted { trace_id, run_id, session_id, status: "cancelling".to_owned() })))
}

/// Cancels a run, with everything below it.
#[utoipa::path(post, path = "/api/runs/{run_id}/cancel", tag = "runs", params(("run_id" = String, Path)),
    responses((status = ACCEPTED, body = Accepted)))]
pub(super) async fn cancel(access: Access, Path(id): Path<RunId>) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    access.run(&id).await?;
    cancelling(access.runtime().handle(&id)?).await
}

/// Cancels a run, and answers once that is durable. The run ends in the background: its end shows on its events.
async fn cancelling(run: RunHandle) -> Result<(StatusCode, Json<Accepted>), ApiError> {
    let accepted = Accepted::of(&run, "cancelling");
    // In a task of its own: a client that goes away changes nothing.
    let ending = run.clone();
    tokio::spawn(async move { ending.cancel().await });
    run.request_cancel().await?;
    Ok((StatusCode::ACCEPTED, Json(accepted)))
}

/// Reads a run; once it has ended, with its output, artifacts and stats.
#[utoipa::path(get, path = "/api/runs/{run_id}", tag = "runs", params(("run_id" = String, Path)),
    responses((status = OK, body = RunView)))]
pub(super) async fn show(access: Access, Path(id): Path<RunId>) -> Result<Json<RunView>, ApiError> {
    access.run(&id).await?;
    let outcome = access.runtime().outcome(&id).await?;
    // Read behind it: who has an outcome has ended.
    let run = access.run(&id).await?;
    Ok(Json(match outcome {
        Some(outcome) => RunView {
            run,
            output: Some(outcome.output),
            tool_calls: outcome.tool_calls,
            artifacts: Some(outcome.artifacts),
            stats: Some(outcome.stats),
        },
        None => RunView { run, output: None, tool_calls: Vec::new(), artifacts: None, stats: None },
    }))
}

/// What a client says of children that are to be added to a run: one `task`, or several `tasks` at once.
#[derive(Debug, Clone, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ChildrenBody {
    /// What is asked of one child.
    task: Option<String>,
    /// What is asked of several, all or none of which are added.
    tasks: Option<Vec<String>>,
    /// Why they are started; absent = `delegate` for a `task`, `explore` for `tasks`.
    mode: Option<ChildMode>,
    /// The preset; absent = the one that fits the mode.
    agent_type: Option<String>,
    /// A model profile, or a model name of the default profile; absent = as the run.
    model: Option<String>,
    /// What they need to know beyond their task.
    context: Option<String>,
    /// What stands in their conversation before the task.
    #[serde(default)]
    messages: Vec<GivenMessage>,
    /// The skills that go into their system prompt.
    skills: Option<Vec<String>>,
    /// The JSON schema that their answer has to fit.
    expected_output_schema: Option<Value>,
    /// What each of them may use, within what is left to the run.
    #[serde(default)]
    budget: Budget,
    /// Most run time, in milliseconds.
    timeout_ms: Option<u64>,
    /// Most turns.
    #[schema(minimum = 0, maximum = 4294967295u64)]
    max_iterations: Option<u32>,
    /// Tools, within what the run hands on.
    tools: Option<Vec<String>>,
    /// Whether their results enter the run's conversation, before its next turn.
    #[serde(default)]
    deliver: bool,
}

/// Children that were added, in the order of their tasks.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ChildrenView {
    children: Vec<Accepted>,
}

/// Adds children to a run that has not ended.
#[utoipa::path(post, path = "/api/runs/{run_id}/children", tag = "runs", params(("run_id" = String, Path)),
    request_body = ChildrenBody, responses((status = ACCEPTED, body = ChildrenView)))]
pub(super) async fn spawn(
    access: Access,
    Path(id): Path<RunId>,
    request::Json(wish): request::Json<ChildrenBody>,
) -> Result<(StatusCode, Json<ChildrenView>), ApiError> {
    let passing = access.enter()?;
    access.run(&id).await?;
    let specs = wish.specs()?;
    let run = access.runtime().handle(&id)?;
    // In a task of its own: what is added is told to whoever asked, or nothing is.
    let spawning = tokio::spawn(async move {
        let children = run.spawn_all(specs).await;
        drop(passing);
        children
    });
    let lost = |error| ErrorInfo::new(ErrorCode::InternalError, format!("it is not known what was started: {error}"));
    let children = spawning.await.map_err(lost)??;
    let children = children.iter().map(|child| Accepted::of(child, "started")).collect();
    Ok((StatusCode::ACCEPTED, Json(ChildrenView { children })))
}

impl ChildrenBody {
    fn specs(self) -> Result<Vec<ChildSpec>, ApiError> {
        let (tasks, mode) = match (self.task, self.tasks) {
            (Some(task), None) => (vec![task], ChildMode::Delegate),
            (None, Some(tasks)) => (tasks, ChildMode::Explore),
            _ => return Err(refuse("say `task` for one child, or `tasks` for several")),
        };
        let mode = self.mode.unwrap_or(mode);
        let spec = |task| ChildSpec {
            agent_type: self.agent_type.clone(),
            model: self.model.clone(),
            context: self.context.clone(),
            messages: self.messages.clone(),
            skills: self.skills.clone(),
            expected_output_schema: self.expected_output_schema.clone(),
            budget: self.budget,
            timeout_ms: self.timeout_ms,
            max_iterations: self.max_iterations,
            tools: self.tools.clone(),
            deliver: self.deliver,
            ..ChildSpec::new(task).mode(mode)
        };
        Ok(tasks.into_iter().map(spec).collect())
    }
}
