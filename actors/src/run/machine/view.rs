//! Read access to the state of a run: its status for users, and whether it waits only for others.

use crate::{
    actor_tree::ActorRun,
    run::machine::{
        RunState, outcome,
        state::{calls::CallState, phase::Phase},
        tools::is_spawning_tool,
    },
};

impl RunState {
    pub(crate) fn is_cancel_requested(&self) -> bool {
        self.end.is_cancel_requested
    }

    /// Returns whether the run is ending or has ended, for a reason other than completion.
    pub(crate) fn is_ending(&self) -> bool {
        self.end.ending.is_some()
    }

    pub(crate) fn has_started(&self) -> bool {
        self.clock.started_at.is_some()
    }

    /// Returns whether the status of the run is `waiting`: for an answer or a permission.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.since.is_some()
    }

    /// Returns the active time in milliseconds; waiting does not count (SUB-7).
    pub(crate) fn used_ms(&self) -> u64 {
        self.clock.used_ms
    }

    /// Returns the number of children that the run has started.
    pub(crate) fn child_count(&self) -> usize {
        self.sub_agents.children.len()
    }

    /// Returns the status of the run and a short description of its activity, for users.
    pub(crate) fn activity(&self) -> (&'static str, String) {
        if self.end.ending.is_some() && !self.is_ended() {
            return (
                "ending",
                format!("waiting for {} children", self.sub_agents.open),
            );
        }
        match &self.phase {
            Phase::New => ("queued", String::new()),
            Phase::Driven => (
                "running",
                format!(
                    "driven by a program, {} open children",
                    self.sub_agents.open
                ),
            ),
            Phase::Preparing => ("running", "calling the program's callbacks".to_owned()),
            Phase::Recalling => (
                "running",
                "searching experiences of earlier runs".to_owned(),
            ),
            Phase::CallingModel => ("running", "model call".to_owned()),
            Phase::Reflecting => ("running", "reflecting on older messages".to_owned()),
            Phase::Compacting => ("running", "summarizing the conversation".to_owned()),
            Phase::RunningTools { .. } if self.waiting.since.is_some() => {
                let is_permission = self.waiting.reason.as_deref() == Some("permission");
                (
                    "waiting",
                    if is_permission {
                        "a permission"
                    } else {
                        "an answer"
                    }
                    .to_owned(),
                )
            }
            Phase::RunningTools { .. } if self.sub_agents.open > 0 => (
                "running",
                format!(
                    "{} of {} children",
                    self.sub_agents.open,
                    self.sub_agents.children.len()
                ),
            ),
            Phase::RunningTools { calls } => {
                let at_work = calls
                    .iter()
                    .filter(|open| matches!(open.state, CallState::Started { .. }));
                let names: Vec<&str> = at_work
                    .map(|open| open.call.name.as_str())
                    .take(4)
                    .collect();
                ("running", format!("tool {}", names.join(", ")))
            }
            Phase::Answered | Phase::Halted => ("ending", String::new()),
            Phase::Ended(status) => (status.as_str(), String::new()),
        }
    }

    /// Updates the published view of the run.
    pub(crate) fn update_view(&self, view: &mut ActorRun) {
        view.turn = self.turn.number;
        view.tokens = self.usage.own.total_tokens;
        view.cost = self.usage.own.cost;
        view.estimated = self.usage.own.estimated;
        view.asks = self.pending_request_count();
        // A closed goal, possibly of an earlier run, does not describe the current work.
        let goal = self.goals.current().filter(|goal| goal.status.is_open());
        view.goal =
            goal.map(|goal| format!("{} {}", goal.number, outcome::one_line(&goal.description)));
    }

    /// Returns the number of calls that wait for a user.
    fn pending_request_count(&self) -> u32 {
        let Phase::RunningTools { calls } = &self.phase else {
            return 0;
        };
        let asking = calls
            .iter()
            .filter(|open| open.state != CallState::Done && open.waits_for_user());
        u32::try_from(asking.count()).unwrap_or(u32::MAX)
    }

    /// Returns whether the run waits only for children or users. If so, it needs no slot (ACT-5).
    pub(crate) fn only_waits_for_others(&self) -> bool {
        self.waiting.since.is_some() || (self.sub_agents.open > 0 && self.has_no_own_work())
    }

    fn has_no_own_work(&self) -> bool {
        match &self.phase {
            Phase::RunningTools { calls } => calls.iter().all(|open| match open.state {
                // A call that has not started waits for a call with children: nothing else is in
                // flight.
                CallState::Done | CallState::Waiting => true,
                // A tool that has started children is taken to wait for them: its slot is free for
                // them meanwhile.
                CallState::Started { .. } => {
                    is_spawning_tool(&open.call.name)
                        || open.open_children > 0
                        || open.waits_for_user()
                }
            }),
            Phase::Preparing | Phase::Answered | Phase::Driven | Phase::Halted => true,
            Phase::New
            | Phase::Recalling
            | Phase::CallingModel
            | Phase::Reflecting
            | Phase::Compacting
            | Phase::Ended(_) => false,
        }
    }
}

/// Maximum time without progress in the current phase, in milliseconds; `None` if unlimited.
pub(crate) fn stall_timeout_ms(run: &RunState, stuck_after_ms: u64) -> Option<u64> {
    match run.phase {
        Phase::Recalling | Phase::CallingModel | Phase::Reflecting | Phase::Compacting => {
            Some(stuck_after_ms.max(run.spec.model.max_silence_ms))
        }
        _ if run.only_waits_for_others() || run.phase == Phase::Driven => None,
        _ => Some(stuck_after_ms),
    }
}
