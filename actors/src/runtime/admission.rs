//! Admission of runs: turns a caller's request into rows and a message to the session supervisor.
//!
//! A request that cannot run is rejected here, before anything is stored.
//!
//! Elsewhere: what is read of an existing session (`admission/existing_session.rs`), queues and
//! first commits (`session`).

mod call;
mod existing_session;
mod input_files;
mod sub_trace;

use std::{path::Path, sync::Arc};

use existing_session::{ExistingSession, read_session};
pub(super) use existing_session::{inherited_settings, session_deny_rules};
use futures::future::BoxFuture;
use soong_model::params::check_params;
use soong_protocol::{
    ErrorCode, ErrorInfo, MessageContent, NewSession, NewTrace, PermissionMode, RequestSubject,
    RequestWrite, Run, RunMode, RunSettings, RunStatus, SMALL_PRESET, SMALL_WINDOW_TOKENS, Session,
    SessionId, SessionWrite, TraceId, TraceWrite, Write,
};
use soong_storage::store::{Append, Reader};
use soong_text::shorten;
use tokio::sync::oneshot;

use super::{RunHandle, RunRequest, Runtime, project, settings, settings::InheritedSettings};
use crate::{
    actor_base::closing,
    clock::now,
    permission::Grant,
    preset::is_built_in,
    run::RunEntry,
    session::{SessionHistory, SessionSupervisorMsg, StartRequest, deleted_meanwhile},
};

/// Maximum length of a trace name derived from its task, in characters (RUN-6a).
const MAX_NAME_CHARS: usize = 60;

/// The session of a request.
struct FoundSession {
    session_id: SessionId,
    /// The incarnation that the run is prepared for: the stored one, or the one that a new session
    /// gets.
    incarnation: u64,
    /// `None` if there is no such session yet.
    stored: Option<ExistingSession>,
}

/// A run prepared for its session, and the channel on which the session replies.
pub(super) type PreparedStart = (
    StartRequest,
    oneshot::Receiver<Result<Arc<RunEntry>, ErrorInfo>>,
);

impl Runtime {
    /// Starts a run. Returns once the run is durable, either running or queued after other runs of
    /// its session.
    pub async fn start(&self, start: impl Into<RunRequest>) -> Result<RunHandle, ErrorInfo> {
        self.start_boxed(start.into()).await
    }

    /// Boxes [`Runtime::start_request`], so that it is compiled with this crate, and not again with
    /// each that awaits it.
    fn start_boxed(&self, start: RunRequest) -> BoxFuture<'_, Result<RunHandle, ErrorInfo>> {
        Box::pin(self.start_request(start))
    }

    async fn start_request(&self, mut start: RunRequest) -> Result<RunHandle, ErrorInfo> {
        let services = &self.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(closing());
        }
        if let Some(failure) = self.info().failure() {
            return Err(failure);
        }
        start.take_system_message()?;
        self.find_session_of_sub_trace(&mut start).await?;
        if let Some(interrupted) = self.resume_interrupted(&start).await? {
            if let Some(key) = start.request_key.take() {
                let subject = RequestSubject::Run(interrupted.run_id().clone());
                self.write_request(RequestWrite::Claim {
                    key,
                    subject,
                    at: now(),
                })
                .await?;
            }
            return Ok(interrupted);
        }
        // Wait until MCP servers have connected or failed, so that the first run has their tools.
        tokio::select! {
            () = services.resolver.mcp.wait_started() => {}
            () = services.core.lifetime.closing().cancelled() => return Err(closing()),
        }
        let files = self.store_input_files(&mut start).await?;
        let started = self.start_prepared(start).await;
        // After another error, the run may have been accepted.
        let is_rejected = |error: &ErrorInfo| {
            matches!(
                error.code,
                ErrorCode::SessionActive | ErrorCode::Overloaded | ErrorCode::ValidationError
            )
        };
        if started.as_ref().is_err_and(is_rejected) {
            self.discard_input_files(files).await;
        }
        started
    }

    /// Starts a run whose files are stored.
    async fn start_prepared(&self, start: RunRequest) -> Result<RunHandle, ErrorInfo> {
        let services = &self.inner.services;
        let (request, reply) = self.prepare(start).await?;
        let is_known = request.history != SessionHistory::None
            || matches!(
                request.rows.first(),
                Some(Write::Trace(TraceWrite::FirstTask(_)))
            );
        self.ensure_gateways(&request.run).await?;
        let run = request.run.clone();
        if !services
            .sessions
            .send_to_supervisor(SessionSupervisorMsg::Start(Box::new(request)))
        {
            return Err(services.core.lifetime.interruption());
        }
        let entry = match reply.await {
            Ok(Ok(entry)) => entry,
            Ok(Err(error)) => return Err(self.explain_start_error(error, &run, is_known).await),
            Err(_) => self.find_unacknowledged(&run).await?,
        };
        tracing::info!(run = %run.run_id, session = %run.session_id, agent = run.settings.agent_type, "run accepted");
        Ok(RunHandle::new(Arc::clone(services), entry))
    }

    /// Replaces a start error with `session_not_found` (retryable) if the session was deleted after
    /// the request was prepared.
    async fn explain_start_error(&self, error: ErrorInfo, run: &Run, is_known: bool) -> ErrorInfo {
        let may_be_gone = is_known && error.code == ErrorCode::StorageError && !error.retryable;
        let is_gone = |found: &Result<Session, ErrorInfo>| {
            found
                .as_ref()
                .is_err_and(|error| error.code == ErrorCode::SessionNotFound)
        };
        if may_be_gone && is_gone(&self.sessions().get(&run.session_id).await) {
            return deleted_meanwhile(&run.session_id);
        }
        error
    }

    /// Resumes the interrupted runs of a session if the request asks for no more than that: it has
    /// no message and names no earlier message, or it is a reflection and a reflection of its trace
    /// was interrupted.
    async fn resume_interrupted(&self, start: &RunRequest) -> Result<Option<RunHandle>, ErrorInfo> {
        let reflects = start.reflection.is_some();
        let Some(Ok(id)) = start.session.session_id.as_deref().map(SessionId::parse) else {
            return Ok(None);
        };
        if !reflects && (start.message.is_some() || start.after_sequence.is_some()) {
            return Ok(None);
        }
        match self.sessions().get(&id).await {
            Ok(session) if session.uid == start.session.uid.as_deref().unwrap_or("local") => {}
            Ok(_) => return Ok(None),
            Err(error) if error.code == ErrorCode::SessionNotFound => return Ok(None),
            Err(error) => return Err(error),
        }
        let trace_id = start
            .sub_trace
            .clone()
            .unwrap_or_else(|| TraceId::root(&id));
        let is_meant = |run: &Run| {
            let is_reflection = run.settings.reflects.is_some();
            run.trace_id == trace_id && run.parent_run_id.is_none() && (!reflects || is_reflection)
        };
        let is_own_interrupted = self.interrupted_in(&id).await?.iter().any(is_meant);
        // An interrupted reflection is resumed instead of starting a second one. A request for the
        // trace of a sub-agent does not ask for the runs of other traces.
        if !is_own_interrupted && (reflects || start.sub_trace.is_some()) {
            return Ok(None);
        }
        let resumed = self.sessions().resume(&id).await?;
        if !is_own_interrupted {
            return Ok(resumed);
        }
        let own = self.active_run_among(|run| {
            run.identity.trace_id == trace_id && run.identity.parent.is_none()
        });
        Ok(own.or(resumed))
    }

    /// Finds out whether a run was accepted, if its session crashed before it replied.
    async fn find_unacknowledged(&self, run: &Run) -> Result<Arc<RunEntry>, ErrorInfo> {
        let services = &self.inner.services;
        // Waits until everything that the session had sent to the journal is written.
        let barrier = services
            .core
            .journal
            .append_and_wait(Append::default())
            .await;
        barrier.map_err(|error| ErrorInfo::from(&error))?;
        match self.traces().run(&run.run_id).await {
            Ok(stored) if stored.status == RunStatus::Interrupted => Err(ErrorInfo::new(
                ErrorCode::RuntimeFailed,
                format!(
                    "run {} was accepted and interrupted immediately: it resumes with the next process",
                    run.run_id
                ),
            )),
            Ok(stored) if !stored.status.is_terminal() => Ok(services.core.runs.register(&stored)),
            _ => Err(ErrorInfo::retryable(
                ErrorCode::InternalError,
                "the session crashed before the run was accepted: start the run again",
            )),
        }
    }

    async fn prepare(&self, mut start: RunRequest) -> Result<PreparedStart, ErrorInfo> {
        if start.reflection.is_some() {
            return self.prepare_reflection(start).await;
        }
        let services = &self.inner.services;
        if start.message.as_ref().is_some_and(MessageContent::is_blank) {
            return Err(invalid("the message is empty"));
        }
        let resumes = start.message.is_none();
        let FoundSession {
            session_id,
            incarnation,
            stored,
        } = self.find_session(&start, resumes).await?;
        let trace_id = start
            .sub_trace
            .clone()
            .unwrap_or_else(|| TraceId::root(&session_id));
        let after_sequence = match (start.after_sequence, &stored) {
            (None, _) => None,
            (Some(sequence), Some(known)) => known.rewind_target(sequence)?,
            (Some(_), None) => {
                return Err(invalid(
                    "after_sequence: there is no conversation to rewind",
                ));
            }
        };
        let known = stored.as_ref();
        let is_tied = resumes || after_sequence.is_some();
        if let Some(known) = known.filter(|_| is_tied || start.reject_if_busy) {
            self.reject_interrupted(&session_id, known, &trace_id, start.reject_if_busy)?;
        }
        let content = match (start.message.take(), known) {
            (Some(message), _) => message,
            (None, Some(known)) => known.unanswered_task()?.into(),
            (None, None) => {
                return Err(invalid(
                    "prompt, messages: a message is required, because there is no conversation to resume",
                ));
            }
        };
        let before = known.and_then(ExistingSession::inherited);
        let copied = known.and_then(|known| known.copied_mode);
        let mode = settings::mode(&start, before.as_ref().map(|before| before.mode).or(copied));
        let message = input_files::task_text(&content);
        let task_content = if content.parts().is_empty() {
            MessageContent::default()
        } else {
            content
        };
        let mut settings = self.settings(&start, mode, resumes, before.as_ref(), known)?;
        let chooses_agent = before.is_none() && mode == RunMode::Normal && !start.driven;
        let names_agent = start.settings.preset.is_set() || start.settings.system_prompt.is_set();
        if chooses_agent && !names_agent {
            self.choose_small_preset(&mut settings).await;
        }
        let settings = RunSettings {
            after_sequence,
            task_content,
            ..settings
        };
        // The head may have moved by the time such a run is recorded.
        let continues_from = known
            .filter(|_| is_tied)
            .map(ExistingSession::conversation_point);
        let last = known.and_then(|known| known.last.as_ref());
        let history = self.history(known);
        let depth = last.map_or(0, |last| last.depth);
        let stored = stored.map(|known| known.session);
        let uid = start
            .session
            .uid
            .clone()
            .unwrap_or_else(|| "local".to_owned());
        if stored.as_ref().is_some_and(|session| session.uid != uid) {
            return Err(ErrorInfo::new(
                ErrorCode::SessionNotFound,
                format!("there is no session {session_id}"),
            ));
        }
        let project_dir = self.project_of(stored.as_ref(), &start)?;
        let queued = Run::queued(
            session_id.clone(),
            trace_id,
            message.clone(),
            settings,
            uid,
            now(),
        );
        let mut run = Run {
            mode,
            depth,
            session_incarnation: incarnation,
            ..queued
        };
        services.resolver.redactor.redact_run(&mut run);
        run.settings.provisional_name =
            self.provisional_name(&run, start.session.name.as_deref(), stored.as_ref());
        services.resolver.projects.refresh(&project_dir).await;
        // Check the settings before the run is accepted.
        let explain = |error| {
            if before.is_some() {
                settings::explain_inherited(&start, error)
            } else {
                error
            }
        };
        let spec = services
            .resolver
            .resolve(&run, &project_dir)
            .map_err(explain)?;
        run.settings.agent_type.clone_from(&spec.preset.name);
        let rows = first_rows(
            &run,
            message,
            &spec.model.name,
            start.session.name,
            &project_dir,
            stored.is_none(),
        );
        let (reply, answer) = oneshot::channel();
        let request = StartRequest {
            run,
            rows,
            history,
            project_dir,
            reject_if_busy: start.reject_if_busy,
            continues_from,
            request_key: start.request_key,
            reply,
        };
        Ok((request, answer))
    }

    /// Replaces the built-in preset `default` if its prompt takes too much of the model's context
    /// window.
    async fn choose_small_preset(&self, settings: &mut RunSettings) {
        let resolver = &self.inner.services.resolver;
        let is_own = |name: &str| !resolver.presets.get(name).is_some_and(is_built_in);
        let names_tools = settings.options.tools.is_some() || resolver.has_own_tools;
        if settings.agent_type != "default"
            || names_tools
            || is_own("default")
            || is_own(SMALL_PRESET)
        {
            return;
        }
        let window = resolver.models.context_window(&settings.model).await;
        if window.is_some_and(|window| window < SMALL_WINDOW_TOKENS) {
            settings.agent_type = SMALL_PRESET.to_owned();
        }
    }

    /// Returns the name of the run's trace if a model may replace it. `given`: the requested name
    /// of the session.
    fn provisional_name(
        &self,
        run: &Run,
        given: Option<&str>,
        known: Option<&Session>,
    ) -> Option<String> {
        self.inner
            .services
            .core
            .config
            .context
            .utility_profile
            .as_ref()?;
        if given.is_some()
            || run.settings.driven
            || run.mode == RunMode::Call
            || run.trace_id.parent().is_some()
        {
            return None;
        }
        match known.map(|session| session.name.as_deref()) {
            // It gets its name with this run.
            None | Some(None) => Some(name_of(&run.task)),
            Some(Some(name)) => run
                .settings
                .provisional_name
                .clone()
                .filter(|provisional| provisional == name),
        }
    }

    /// Sets the session of a request that names the trace of a sub-agent.
    async fn find_session_of_sub_trace(&self, start: &mut RunRequest) -> Result<(), ErrorInfo> {
        let Some(id) = start.sub_trace.clone() else {
            return Ok(());
        };
        let trace = self.traces().get(&id).await?;
        if trace.parent_trace_id.is_none() {
            return Err(invalid(format!(
                "trace {id} is not that of a sub-agent: name its session"
            )));
        }
        if start
            .session
            .session_id
            .as_deref()
            .is_some_and(|session| session != trace.session_id.as_str())
        {
            return Err(invalid(format!(
                "trace {id} belongs to session {}",
                trace.session_id
            )));
        }
        start.session.session_id = Some(trace.session_id.to_string());
        Ok(())
    }

    /// Finds the session that a request names, or chooses the id of a new one.
    async fn find_session(
        &self,
        start: &RunRequest,
        resumes: bool,
    ) -> Result<FoundSession, ErrorInfo> {
        let Some(text) = &start.session.session_id else {
            return Ok(FoundSession {
                session_id: SessionId::generate(),
                incarnation: 1,
                stored: None,
            });
        };
        let id = SessionId::parse(text).map_err(|error| invalid(error.to_string()))?;
        let wanted = id.clone();
        let after = start.after_sequence;
        let trace = start
            .sub_trace
            .clone()
            .unwrap_or_else(|| TraceId::root(&id));
        let read = move |reader: &dyn Reader| {
            let stored = read_session(reader, &wanted, trace, resumes, after)?;
            let incarnation = match &stored {
                Some(known) => known.session.incarnation,
                None => reader.next_incarnation(&wanted)?,
            };
            Ok((incarnation, stored))
        };
        let (incarnation, stored) = self.inner.services.core.reader.read(read).await?;
        Ok(FoundSession {
            session_id: id,
            incarnation,
            stored,
        })
    }

    /// Fails if a session has runs that nothing executes, and that would make a start on this trace
    /// wait: with `includes_all` any run, else those of the trace and of traces above it. Without
    /// this check, they would be resumed although the request is rejected.
    fn reject_interrupted(
        &self,
        id: &SessionId,
        known: &ExistingSession,
        trace_id: &TraceId,
        includes_all: bool,
    ) -> Result<(), ErrorInfo> {
        let services = &self.inner.services;
        let mut live_runs = known
            .live_runs
            .iter()
            .filter(|run| includes_all || trace_id.is_within(&run.trace_id));
        if services.sessions.contains(id)
            || live_runs.all(|run| services.core.runs.contains(&run.run_id))
        {
            return Ok(());
        }
        let message = format!("session {id} has an interrupted run: resume it or stop it first");
        Err(ErrorInfo::retryable(ErrorCode::SessionActive, message))
    }

    /// Returns how the session of a new run is to be started.
    fn history(&self, known: Option<&ExistingSession>) -> SessionHistory {
        match known {
            Some(known)
                if known
                    .live_runs
                    .iter()
                    .any(|run| !self.inner.services.core.runs.contains(&run.run_id)) =>
            {
                SessionHistory::Interrupted
            }
            Some(known) if known.last.is_some() || known.copied_mode.is_some() => {
                SessionHistory::Stored
            }
            // In a session without runs, the first run is committed together with its start, as in
            // a new session.
            _ => SessionHistory::None,
        }
    }

    /// Returns the settings of a run. `resumes`: it has no message. `before`: the settings that it
    /// inherits.
    fn settings(
        &self,
        start: &RunRequest,
        mode: RunMode,
        resumes: bool,
        before: Option<&InheritedSettings>,
        known: Option<&ExistingSession>,
    ) -> Result<RunSettings, ErrorInfo> {
        let services = &self.inner.services;
        if start.sub_trace.is_some() {
            let before =
                before.ok_or_else(|| invalid("the sub-agent has not run yet: wait for it"))?;
            sub_trace::check(
                start,
                before,
                services.resolver.presets.get(&before.settings.agent_type),
            )?;
        }
        let mut settings =
            settings::resolve(start, mode, resumes, before, &services.core.config.budget);
        if mode == RunMode::Call {
            settings = call::settings(start, settings, known)?;
        }
        self.check_settings(start, settings, known, resumes)
    }

    /// Checks the settings of a run, and adds the deny rules of its session.
    fn check_settings(
        &self,
        start: &RunRequest,
        mut settings: RunSettings,
        known: Option<&ExistingSession>,
        resumes: bool,
    ) -> Result<RunSettings, ErrorInfo> {
        match known.and_then(|known| known.conversation_end.as_ref()) {
            Some(end) if resumes => {
                crate::run::check_tool_results(&settings.options.messages, &end.head)?
            }
            _ => crate::run::check_initial_messages(&settings.options.messages)?,
        }
        check_params(&settings.llm_params)?;
        if settings
            .temperature
            .is_some_and(|temperature| !(0.0..=2.0).contains(&temperature))
        {
            return Err(invalid("temperature must be between 0 and 2"));
        }
        let mode = start
            .permissions
            .mode
            .unwrap_or(self.inner.services.core.config.permissions.mode);
        settings.permissions.mode = (mode != PermissionMode::default()).then_some(mode);
        // Deny rules stay in force for the session and for copies of it.
        let denied = known.into_iter().flat_map(|known| &known.deny_rules);
        settings.permissions.deny.extend(
            denied
                .filter(|text| !start.permissions.deny.contains(text))
                .cloned(),
        );
        let resolver = &self.inner.services.resolver;
        let tools: Vec<String> = resolver
            .mcp
            .registry()
            .specs()
            .map(|spec| spec.name.clone())
            .collect();
        for text in settings
            .permissions
            .allow
            .iter()
            .chain(&settings.permissions.deny)
        {
            let grant = Grant::parse(text).map_err(|error| invalid(error.to_string()))?;
            grant
                .check(&tools)
                .map_err(|error| invalid(error.to_string()))?;
            if let Some(server) = grant.missing_server(&self.inner.services.core.config.mcp) {
                tracing::warn!(
                    rule = text,
                    server,
                    "a permission rule names an MCP server that is not configured"
                );
            }
            if grant.is_of_missing_mcp_tool(&tools) {
                tracing::warn!(
                    rule = text,
                    "a permission rule names a tool that its MCP server does not have"
                );
            }
        }
        Ok(settings)
    }

    /// Returns the project of a session: its stored one, else the requested one, else that of the
    /// runtime.
    fn project_of(
        &self,
        stored: Option<&Session>,
        start: &RunRequest,
    ) -> Result<Arc<Path>, ErrorInfo> {
        let project_dir: Arc<Path> = match (stored, &start.session.project_dir) {
            (Some(session), _) => return Ok(Path::new(&session.project_dir).into()),
            (None, Some(dir)) => project::resolve_project(dir)?.into(),
            (None, None) => Arc::clone(&self.inner.project_dir),
        };
        self.check_project(
            &project_dir,
            start.session.project_dir.is_some(),
            start.session.allow_home_project,
        )?;
        Ok(project_dir)
    }

    /// Opens the gateways that a run and its presets need, so that a missing key or profile is
    /// reported before the run is accepted.
    async fn ensure_gateways(&self, run: &Run) -> Result<(), ErrorInfo> {
        let services = &self.inner.services;
        let presets = services
            .resolver
            .presets
            .values()
            .filter_map(|preset| preset.model.as_deref());
        let summaries = services.core.config.context.compact_profile.as_deref();
        let utility = services.core.config.context.utility_profile.as_deref();
        let own = [run.settings.model.as_str()];
        let mut wanted: Vec<&str> = presets.chain(own).chain(summaries).chain(utility).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let preset = services.resolver.presets.get(&run.settings.agent_type);
        let needed = preset
            .and_then(|preset| preset.model.as_deref())
            .unwrap_or(&run.settings.model);
        for name in wanted {
            match services.resolver.models.open(name).await.map(drop) {
                // The run may never call this model.
                Err(error) if error.code == ErrorCode::RuntimeFailed && name != needed => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }
}

fn invalid(message: impl Into<String>) -> ErrorInfo {
    ErrorInfo::new(ErrorCode::ValidationError, message)
}

/// Returns the name of a trace with this task that has no other name.
fn name_of(task: &str) -> String {
    shorten(&crate::run::one_line(task), MAX_NAME_CHARS)
}

/// Returns the rows that are stored together with a run: those of a new session, or the task of a
/// root trace that may not have one yet. `names` are the name of the model, and the requested name
/// of the session.
fn first_rows(
    run: &Run,
    task: String,
    model: &str,
    name: Option<String>,
    project_dir: &Path,
    is_new: bool,
) -> Vec<Write> {
    if run.trace_id.parent().is_some() {
        return Vec::new();
    }
    let name = name.unwrap_or_else(|| name_of(&run.task));
    let trace = NewTrace {
        trace_id: run.trace_id.clone(),
        session_id: run.session_id.clone(),
        run_mode: run.mode,
        task,
        name: name.clone(),
        agent_type: run.settings.agent_type.clone(),
        parent_trace_id: None,
        parent_goal_id: None,
        uid: run.uid.clone(),
        model: model.to_owned(),
        created_at: run.created_at,
    };
    if !is_new {
        return vec![Write::Trace(TraceWrite::FirstTask(trace))];
    }
    let session = NewSession {
        session_id: run.session_id.clone(),
        name: Some(name),
        uid: run.uid.clone(),
        project_dir: project_dir.display().to_string(),
        created_at: run.created_at,
    };
    vec![
        Write::Session(SessionWrite::Create(session)),
        Write::Trace(TraceWrite::Create(trace)),
    ]
}
