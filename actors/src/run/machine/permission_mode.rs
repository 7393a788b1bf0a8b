//! The permission mode of a run, which can change while it runs (PERM-2).
//!
//! Pure; part of the run state machine. Elsewhere: which calls a mode allows or refuses
//! (`tasks/authorize.rs`, `permission.rs`).

use std::sync::Arc;

use soong_protocol::{Message, PermissionEvent, PermissionMode};

use crate::run::machine::{
    RunState, Transition,
    effect::{Effect, ToolCallEffect},
};

/// Heading of the section of a context update that names the mode.
const HEADING: &str = "## Permission mode";

/// Returns the section of a context update for the model. `None` if the model sees no difference:
/// in every mode except `plan`, unless the conversation says that another mode is in force.
pub(super) fn note(mode: PermissionMode, messages: &[Arc<Message>]) -> Option<String> {
    let is_named = || {
        let mut updates = messages
            .iter()
            .filter_map(|message| message.context_update.as_deref());
        updates.any(|update| update.lines().any(|line| line == HEADING))
    };
    let text = match mode {
        PermissionMode::Plan => {
            "plan: calls that write, run commands or use the network are refused. Read what you need, and answer with a \
             plan for the changes."
        }
        PermissionMode::Ask if is_named() => {
            "ask: calls that change something request permission from the user."
        }
        PermissionMode::Edits if is_named() => {
            "edits: writes and edits in the project are allowed; other changes request permission from the user."
        }
        PermissionMode::All if is_named() => "all: calls are allowed without a request.",
        _ => return None,
    };
    Some(format!("{HEADING}\n{text}\n"))
}

impl RunState {
    /// Returns the permission mode that applies to the next tool call.
    pub(crate) fn permission_mode(&self) -> PermissionMode {
        self.waiting.permission_mode
    }
}

impl Transition<'_, '_> {
    /// Changes the permission mode. `ticket`: the request to answer, if a caller waits for the
    /// answer.
    pub(crate) fn set_permission_mode(&mut self, mode: PermissionMode, ticket: Option<u64>) {
        if mode != self.state.waiting.permission_mode {
            self.emit(PermissionEvent::ModeChanged { mode });
        }
        if let Some(ticket) = ticket {
            self.step
                .effects
                .push(Effect::Tool(ToolCallEffect::ConfirmModeChange { ticket }));
        }
    }
}

#[cfg(test)]
mod tests {
    use soong_protocol::{Role, Timestamp, TraceId};

    use super::*;

    #[test]
    fn model_reads_the_mode_if_it_is_plan_or_was_plan() {
        let message = |update: Option<&str>| {
            let message = Message::new(
                TraceId::new("t"),
                1,
                None,
                Role::Assistant,
                "x",
                Timestamp::default(),
            );
            Arc::new(Message {
                context_update: update.map(str::to_owned),
                ..message
            })
        };
        let plain = [message(None), message(Some("## Goals\n1. x"))];
        for mode in PermissionMode::ALL {
            assert_eq!(
                note(mode, &plain).is_some(),
                mode == PermissionMode::Plan,
                "{mode:?}"
            );
        }
        let planned = [
            message(Some("x\n\n## Permission mode\nplan: …")),
            message(None),
        ];
        for mode in PermissionMode::ALL {
            let text = note(mode, &planned).unwrap();
            assert!(
                text.starts_with(&format!("## Permission mode\n{}: ", mode.as_str())),
                "{text}"
            );
        }
    }
}
