//! When hooks are called, and what follows from what they say (HOOK-1).
//!
//! Before a tool call and before the end of a user's run their answer is waited for; of the rest they only hear, and
//! nobody waits. Not here: the hooks themselves (`hook.rs`).

use std::{path::Path, sync::Arc};

use serde_json::{Value, json};
use soong_protocol::{ErrorCode, ErrorInfo, Event, HookEvent, Role};

use super::{
    calls::ToolJob,
    decide::{Deciding, Effect, News},
    spec::RunSpec,
    state::Phase,
};
use crate::{
    hook::{Heard, HookPoint, Told},
    live::{LiveRun, Shared},
    tool::ToolResult,
};

/// Where a run stands with those that may refuse its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StopHook {
    #[default]
    NotAsked,
    Asked,
    Allowed,
}

impl Deciding<'_, '_> {
    /// Has hooks told that a user's run begins.
    pub(crate) fn tell_of_beginning(&mut self) {
        let spec = Arc::clone(&self.state.spec);
        if spec.parent.is_some() || spec.settings.driven {
            return;
        }
        let is_new = self.state.transcript.is_empty() && self.state.head.is_none();
        if is_new && spec.hooks.hear(HookPoint::SessionStart) {
            self.step.effects.push(Effect::TellHooks { point: HookPoint::SessionStart, prompt: None });
        }
        if !spec.settings.goes_on && spec.hooks.hear(HookPoint::UserPromptSubmit) {
            let prompt = Some(spec.task.clone());
            self.step.effects.push(Effect::TellHooks { point: HookPoint::UserPromptSubmit, prompt });
        }
    }

    /// Asks whether a run may end that has its answer; `true` = wait for what they say.
    pub(crate) fn asks_to_stop(&mut self) -> bool {
        let state = &mut self.state;
        let spec = &state.spec;
        let ends_well = state.phase == Phase::Answered && state.ending.is_none();
        if !ends_well || spec.parent.is_some() || spec.settings.driven || !spec.hooks.hear(HookPoint::Stop) {
            return false;
        }
        match state.stop_hook {
            StopHook::Allowed => false,
            StopHook::Asked => true,
            StopHook::NotAsked => {
                state.stop_hook = StopHook::Asked;
                self.step.effects.push(Effect::AskToStop(state.answer.clone()));
                true
            }
        }
    }

    /// Takes what the hooks say about the end: where one refuses it, the run goes on with its reason.
    pub(crate) fn stop_heard(&mut self, heard: Heard) {
        if self.state.stop_hook != StopHook::Asked {
            return;
        }
        self.hooks_failed(HookPoint::Stop, heard.failures);
        self.state.stop_hook = StopHook::Allowed;
        let is_open = self.state.phase == Phase::Answered && self.state.ending.is_none();
        if let Some(reason) = heard.refused.filter(|_| is_open) {
            self.state.stop_hook = StopHook::NotAsked;
            self.emit(HookEvent::Denied { event: HookPoint::Stop.as_str().to_owned(), reason: reason.clone() });
            let text = format!("You cannot end yet: {reason}");
            self.add_message(Role::User, text, |message| {
                message.description = "a hook refused the end".to_owned();
            });
            self.open_turn();
        }
    }

    /// Tells what went wrong with hooks.
    pub(crate) fn hooks_failed(&mut self, point: HookPoint, failures: Vec<String>) {
        for error in failures {
            self.emit(HookEvent::Failed { event: point.as_str().to_owned(), error });
        }
    }
}

fn told(spec: &RunSpec, event: HookPoint) -> Told {
    Told {
        event,
        session_id: spec.session_id.clone(),
        trace_id: spec.trace_id.clone(),
        run_id: spec.run_id.clone(),
        tool: None,
        arguments: None,
        outcome: None,
        prompt: None,
        reason: None,
        tags: Vec::new(),
    }
}

fn of_call(spec: &RunSpec, job: &ToolJob, event: HookPoint) -> Told {
    Told {
        tool: Some(job.spec.name.clone()),
        arguments: Some(job.arguments.clone()),
        tags: job.spec.tags.clone(),
        ..told(spec, event)
    }
}

/// What hooks say about a call that is about to run; events for the run come with it.
pub(crate) async fn before_call(
    spec: &RunSpec,
    job: &ToolJob,
    project: &Path,
    mut tell: impl FnMut(Event),
) -> Result<(), ErrorInfo> {
    let event = HookPoint::PreToolUse;
    // Who was asked for leave has passed them.
    if job.leave.is_some() || !spec.hooks.hear(event) {
        return Ok(());
    }
    let Heard { refused, failures } = spec.hooks.call(&of_call(spec, job, event), project).await;
    let event = event.as_str().to_owned();
    failures.into_iter().for_each(|error| tell(HookEvent::Failed { event: event.clone(), error }.into()));
    let Some(reason) = refused else { return Ok(()) };
    tell(HookEvent::Denied { event, reason: reason.clone() }.into());
    let message = format!(
        "`{}` was not run, a hook refused it: {reason}. Find another way, or say what you could not do",
        job.spec.name
    );
    Err(ErrorInfo::new(ErrorCode::PermissionDenied, message))
}

/// Says what hooks are told of a call that has its outcome; `None` = nobody wants to hear.
pub(crate) fn after_call(spec: &RunSpec, job: &ToolJob) -> Option<Told> {
    let event = HookPoint::PostToolUse;
    spec.hooks.hear(event).then(|| of_call(spec, job, event))
}

/// Writes an outcome down as hooks are told it.
pub(crate) fn outcome(result: &ToolResult, redact: impl Fn(&mut String)) -> Value {
    let (key, mut text) = match result {
        Ok(output) => ("output", output.output.clone()),
        Err(error) => ("error", error.to_string()),
    };
    redact(&mut text);
    json!({ key: text })
}

/// Tells hooks of something in the background; the run hears of what went wrong with them, if it is there still.
pub(crate) fn tell(shared: &Arc<Shared>, live: &Arc<LiveRun>, spec: &Arc<RunSpec>, told: Told) {
    let (shared, live, spec) = (Arc::clone(shared), Arc::clone(live), Arc::clone(spec));
    shared.tasks.clone().spawn(async move {
        let project = project_of(&shared, &spec);
        let heard = tokio::select! {
            heard = spec.hooks.call(&told, &project) => heard,
            () = shared.closing.cancelled() => return,
        };
        for error in heard.failures {
            let event = told.event.as_str().to_owned();
            tracing::warn!(hook = event, error, "a hook failed");
            shared.tell(&live, News::HookNote(HookEvent::Failed { event, error }.into()));
        }
    });
}

/// Tells hooks that a user's run begins.
pub(crate) fn tell_of_beginning(
    shared: &Arc<Shared>,
    live: &Arc<LiveRun>,
    spec: &Arc<RunSpec>,
    point: HookPoint,
    prompt: Option<String>,
) {
    tell(shared, live, spec, Told { prompt, ..told(spec, point) });
}

/// Asks hooks whether a run may end with this answer.
pub(crate) async fn before_end(shared: &Shared, spec: &RunSpec, answer: String) -> Heard {
    let told = Told { outcome: Some(json!({ "output": answer })), ..told(spec, HookPoint::Stop) };
    spec.hooks.call(&told, &project_of(shared, spec)).await
}

fn project_of(shared: &Shared, spec: &RunSpec) -> Arc<Path> {
    shared.session(&spec.session_id).map_or_else(|| Path::new(".").into(), |session| session.project_dir)
}
