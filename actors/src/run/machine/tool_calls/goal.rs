//! Executes the tool `goal`.
//!
//! Pure; part of the run state machine.

use serde::Deserialize;
use serde_json::Value;
use soong_protocol::{CollaboratorStatus, ErrorCode, ErrorInfo, GoalEvent, GoalStatus};
use soong_tool::{ToolOutput, ToolResult};

use crate::run::machine::{Transition, tools::OneOrMany};

#[derive(Deserialize)]
struct GoalArguments {
    add: Option<OneOrMany>,
    #[serde(default)]
    reason: String,
    under: Option<String>,
    after: Option<String>,
    focus: Option<String>,
    done: Option<String>,
    abandon: Option<String>,
}

impl Transition<'_, '_> {
    pub(crate) fn run_goal(&mut self, arguments: Value) -> ToolResult {
        let request: GoalArguments = soong_tool::arguments(arguments)?;
        let to_error = |error: soong_protocol::GoalError| {
            let code = match error {
                soong_protocol::GoalError::NotFound(_) => ErrorCode::GoalNotFound,
                _ => ErrorCode::ValidationError,
            };
            ErrorInfo::new(code, error.to_string())
        };
        // All or nothing: the changes are applied to a copy, and its events are emitted only if
        // none is rejected.
        let mut planned_goals = self.state.goals.clone();
        let mut events = Vec::new();
        let mut plan = |future: &mut soong_protocol::GoalTree, planned: Vec<GoalEvent>| {
            for event in &planned {
                future.apply(event);
            }
            events.extend(planned);
        };
        if let Some(add) = request.add {
            let descriptions = match add {
                OneOrMany::One(one) => vec![one],
                OneOrMany::Many(many) => many,
            };
            let under = request.under.as_deref();
            let after = request.after.as_deref();
            let sequence = self.state.conversation.last_sequence;
            let planned = planned_goals
                .plan_add(
                    &descriptions,
                    &request.reason,
                    under,
                    after,
                    sequence,
                    self.context.now,
                )
                .map_err(to_error)?;
            plan(&mut planned_goals, planned);
        }
        for (summary, status) in [
            (&request.done, GoalStatus::Completed),
            (&request.abandon, GoalStatus::Abandoned),
        ] {
            if let Some(summary) = summary {
                let planned = planned_goals
                    .plan_close(None, status, summary)
                    .map_err(to_error)?;
                plan(&mut planned_goals, planned);
            }
        }
        if let Some(focus) = &request.focus {
            let planned = planned_goals.plan_focus(focus).map_err(to_error)?;
            plan(&mut planned_goals, planned);
        }
        if events.is_empty() {
            let message = "nothing to do: give add, focus, done or abandon";
            return Err(ErrorInfo::new(ErrorCode::ValidationError, message));
        }
        self.emit_goals(events);
        self.notify_parent(CollaboratorStatus::Running, false);
        Ok(ToolOutput::text(
            "goals updated",
            self.state.goals.render(false),
        ))
    }
}
