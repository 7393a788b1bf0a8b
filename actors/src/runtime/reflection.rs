//! Admission of reflections on a session (MEM-4): a run of the session's queue, on a side branch of
//! its conversation.
//!
//! Elsewhere: what such a run does (`run/machine/reflection.rs`).

use std::{path::Path, sync::Arc};

use soong_protocol::{
    ErrorCode, ErrorInfo, Run, RunOptions, RunPermissions, RunSettings, SessionId, TraceId,
};
use tokio::sync::oneshot;

use super::{
    RunRequest, Runtime,
    admission::{PreparedStart, inherited_settings},
};
use crate::{
    clock::now,
    memory::{reflection_prompt, reflection_question},
    session::{SessionHistory, StartRequest},
};

/// Maximum number of turns: one for the answer, one to correct an invalid answer, one in reserve.
const MAX_TURNS: u32 = 3;

impl Runtime {
    /// Prepares a reflection run from a caller's request.
    pub(super) async fn prepare_reflection(
        &self,
        start: RunRequest,
    ) -> Result<PreparedStart, ErrorInfo> {
        let services = &self.inner.services;
        let refuse = |message: &str| Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        let Some(text) = &start.session.session_id else {
            return refuse("a reflection requires a session");
        };
        if start.message.is_some() || !start.messages.is_empty() || start.after_sequence.is_some() {
            return refuse("a reflection takes no message: use `focus` to direct it");
        }
        let missing = || {
            ErrorInfo::new(
                ErrorCode::SessionNotFound,
                format!("there is no session {text}"),
            )
        };
        let id = SessionId::parse(text).map_err(|_| missing())?;
        let trace_id = start
            .sub_trace
            .clone()
            .unwrap_or_else(|| TraceId::root(&id));
        let wanted = id.clone();
        let trace = trace_id.clone();
        let read = move |reader: &dyn soong_storage::store::Reader| {
            let head = reader.trace(&trace)?.map_or(0, |trace| trace.head_sequence);
            let inherited = inherited_settings(reader, &trace)?;
            let live_runs = reader.live_runs(Some(&wanted))?;
            Ok((
                reader.session(&wanted)?,
                head,
                live_runs,
                reader.last_started_run(&trace)?,
                inherited,
            ))
        };
        let (session, head, live_runs, last, inherited) = services.core.reader.read(read).await?;
        let uid = start
            .session
            .uid
            .clone()
            .unwrap_or_else(|| "local".to_owned());
        let session = session
            .filter(|session| session.uid == uid)
            .ok_or_else(missing)?;
        if !live_runs.is_empty() {
            let message =
                format!("session {id} has a run that has not ended: wait for it, or stop it");
            return Err(ErrorInfo::retryable(ErrorCode::SessionActive, message));
        }
        if head == 0 {
            return refuse("the session has no conversation to reflect on");
        }
        let of_last = inherited.map(|before| before.settings.model);
        let settings = &start.settings;
        let model = settings
            .model
            .as_set()
            .cloned()
            .or_else(|| services.core.config.context.utility_profile.clone())
            .or(of_last);
        let focus = start
            .reflection
            .as_ref()
            .and_then(|reflects| reflects.focus.as_deref());
        let budget = settings.budget.as_set().copied().unwrap_or_default();
        let settings = RunSettings {
            model: model.unwrap_or_else(|| "default".to_owned()),
            options: RunOptions {
                max_turns: Some(MAX_TURNS),
                tools: Some(Vec::new()),
                budget: budget.or(services.core.config.budget),
                timeout_ms: start.timeout_ms,
                ..RunOptions::default()
            },
            system_prompt: Some(reflection_prompt()),
            permissions: RunPermissions {
                unattended: true,
                ..RunPermissions::default()
            },
            enable_memory: Some(false),
            reflects: start.reflection.clone(),
            ..RunSettings::default()
        };
        let mut run = Run::queued(
            id,
            trace_id,
            reflection_question(focus),
            settings,
            uid,
            now(),
        );
        run.session_incarnation = session.incarnation;
        run.depth = last.map_or(0, |last| last.depth);
        services.resolver.redactor.redact_run(&mut run);
        let project_dir: Arc<Path> = Path::new(&session.project_dir).into();
        services.resolver.resolve(&run, &project_dir)?;
        let (reply, answer) = oneshot::channel();
        let request = StartRequest {
            run,
            rows: Vec::new(),
            history: SessionHistory::Stored,
            project_dir,
            reject_if_busy: true,
            continues_from: None,
            request_key: start.request_key.clone(),
            reply,
        };
        Ok((request, answer))
    }
}
