//! The consequences of the program's callbacks for a run (HOOK-2).
//!
//! Pure; part of the run state machine. Elsewhere: calling them (`tasks/callbacks.rs`), those before
//! and after the run (`machine/jobs/before_agent.rs`, `machine/jobs/after_agent.rs`), and those
//! around model calls (`tasks/model_call.rs`), which change only the call.
//!
//! Invariant: what the callbacks of a step did is recorded together with its effect: with the
//! result of the tool call, the message, or the end of the run. Changed tasks and arguments are
//! recorded before they are used, and read from the event.

use soong_protocol::{EndReason, ErrorInfo, HookEvent, RunStatus};

use crate::{
    callback::Reports,
    run::machine::{RunState, Transition, ending::Ending},
};

impl RunState {
    /// Applies what a callback or a hook did.
    pub(super) fn apply_hook(&mut self, event: &HookEvent) {
        match event {
            HookEvent::CallbackCompleted {
                error: Some(error), ..
            } => self.fail_by_callback(error),
            // Before a tool call, only the call is refused.
            HookEvent::CallbackFailed {
                point,
                is_closed: true,
                error,
                ..
            } if point != "before_tool" => self.fail_by_callback(error),
            HookEvent::CallbackCompleted {
                point,
                decision,
                tool_call_id: Some(id),
                change: Some(arguments),
                ..
            } if point == "before_tool" && decision == "changed" => {
                if let Some(open) = self.calls_mut().and_then(|calls| calls.get_mut(id)) {
                    open.call.arguments = arguments.to_string();
                    open.is_changed_by_callback = true;
                }
            }
            // The others change nothing, or concern a job.
            HookEvent::CallbackCompleted { .. }
            | HookEvent::CallbackFailed { .. }
            | HookEvent::Denied { .. }
            | HookEvent::Failed { .. } => {}
        }
    }

    /// Ends the run because of a callback.
    pub(super) fn fail_by_callback(&mut self, error: &ErrorInfo) {
        let status = RunStatus::Failed;
        let reason = EndReason::Failed;
        self.end.ending.get_or_insert_with(|| Ending {
            status,
            reason,
            error: Some(error.clone()),
        });
    }
}

impl Transition<'_, '_> {
    /// Records the changed arguments of a call, and requests its execution with them.
    pub(crate) fn callbacks_changed(&mut self, id: &str, reports: Reports) {
        if self
            .state
            .calls_mut()
            .is_none_or(|calls| calls.started(id).is_none())
        {
            return;
        }
        self.record_reports(reports);
        let Some(call) = self.call_to_execute(id) else {
            return;
        };
        if let Err(error) = self.request_tool(&call, None) {
            self.close_call(&call, Err(error));
            self.schedule();
        }
    }

    /// Records what callbacks did.
    pub(super) fn record_reports(&mut self, reports: Reports) {
        for report in reports {
            self.emit(report);
        }
    }
}
