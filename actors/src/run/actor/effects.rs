//! Executes the effects of durable decisions, and manages the slot that some effects require
//! (ACT-5).
//!
//! Elsewhere: which effects are requested (`machine/transition.rs`), long-running work
//! (`tasks.rs`).

use ractor::ActorRef;
use soong_protocol::Run;
use soong_storage::fault::FaultPoint;

use crate::run::{
    actor::{RunActor, RunActorState, time_limit::watch_time},
    machine::{
        RunState,
        effect::{ChildEffect, Effect, ToolCallEffect},
        input::{ChildInput, ModelInput, RunInput, ToolInput},
        jobs::JobKind,
    },
    message::{RunMsg, SubAgentMsg},
};

impl RunActor {
    pub(in crate::run) fn perform(
        &self,
        myself: &ActorRef<RunMsg>,
        effects: Vec<Effect>,
        state: &mut RunActorState,
    ) {
        for effect in effects {
            match effect {
                effect if effect.needs_slot() && self.lacks_slot(state) => {
                    state
                        .slot
                        .wait
                        .get_or_insert_with(|| self.entry.control.clock.pause());
                    state.slot.deferred.push(effect);
                }
                Effect::CallModel(call) => {
                    self.services
                        .faults
                        .at_run_point(&self.entry.identity.run_id, FaultPoint::CallModel);
                    state.tasks.call_model(myself.clone(), &self.spec, call);
                }
                Effect::Job { turn, request } => {
                    let fault_point = match request.kind() {
                        JobKind::FlushDocuments => Some(FaultPoint::Flush),
                        _ => request.calls_model().then_some(FaultPoint::CallModel),
                    };
                    if let Some(point) = fault_point {
                        let run_id = &self.entry.identity.run_id;
                        self.services.faults.at_run_point(run_id, point);
                    }
                    state
                        .tasks
                        .start_job(myself.clone(), &self.spec, turn, request);
                }
                Effect::Tool(effect) => self.perform_tool_effect(myself, effect, state),
                Effect::Child(effect) => self.perform_child_effect(effect, state),
                Effect::NotifyStartHooks { point, prompt } => {
                    self.services.tasks.hooks.notify_of_start(
                        &self.entry,
                        &self.spec,
                        point,
                        prompt,
                    );
                }
                Effect::InvalidateDocuments(names) => {
                    self.services
                        .core
                        .artifacts
                        .evict_restored(&self.entry.identity.session_id, &names);
                }
                Effect::DetachJob(kind) => state.tasks.detach_job(kind),
                Effect::AbortTasks => {
                    state.tasks.abort();
                    // The deferred effects start with a cancelled token, so they report
                    // immediately.
                    let deferred = state.slot.end_wait();
                    self.perform(myself, deferred, state);
                }
            }
        }
        self.return_slot_while_waiting(state);
        self.watch_time_limit(state);
    }

    fn perform_tool_effect(
        &self,
        myself: &ActorRef<RunMsg>,
        effect: ToolCallEffect,
        state: &mut RunActorState,
    ) {
        match effect {
            ToolCallEffect::Run(request) => {
                self.services
                    .faults
                    .at_run_point(&self.entry.identity.run_id, FaultPoint::RunTool);
                state.tasks.run_tool(myself.clone(), &self.spec, request);
            }
            ToolCallEffect::RequestPermission(id) => self.services.approvals.request(id),
            ToolCallEffect::ReadSettings { id, trace_id } => {
                state.tasks.read_settings(myself.clone(), id, trace_id)
            }
            ToolCallEffect::StoreResults(results) => {
                state
                    .tasks
                    .store_results(myself.clone(), &self.spec, results)
            }
            ToolCallEffect::ConfirmModeChange { ticket } => {
                if let Some(reply) = state.replies.mode_changes.take(ticket) {
                    let _ = reply.send(()); // the caller may be gone
                }
            }
            ToolCallEffect::AnswerQuestion { ticket, answer } => {
                if let Some(reply) = state.replies.questions.take(ticket) {
                    let _ = reply.send(answer); // the tool may be gone
                }
            }
        }
    }

    fn perform_child_effect(&self, effect: ChildEffect, state: &mut RunActorState) {
        match effect {
            ChildEffect::Start(runs) => {
                self.services
                    .faults
                    .at_run_point(&self.entry.identity.run_id, FaultPoint::StartChildren);
                self.start_children(&runs);
            }
            ChildEffect::Cancel(runs) => {
                for child in runs
                    .iter()
                    .filter_map(|run| self.services.core.runs.get(run))
                {
                    self.services.core.runs.cancel(&child);
                }
            }
            ChildEffect::AnswerSpawn { ticket, answer } => {
                if let Some(reply) = state.replies.spawns.take(ticket) {
                    reply.send(answer);
                }
            }
            ChildEffect::NotifyParent {
                parent,
                run_id,
                collaborator,
            } => {
                if let Some(parent) = self.services.core.runs.get(&parent) {
                    let changed = ChildInput::Changed {
                        run_id,
                        collaborator: Box::new(collaborator),
                    };
                    self.services
                        .core
                        .runs
                        .notify(&parent, RunInput::Child(changed));
                }
            }
        }
    }

    /// Starts the timer of the nearest limit: the timeout of the run, or its budget of time.
    fn watch_time_limit(&self, state: &RunActorState) {
        let settings = &self.spec.settings;
        let budget_ms = settings
            .options
            .budget
            .wall_time_s
            .map(|limit| limit.saturating_mul(1_000));
        let limits = [(settings.options.timeout_ms, false), (budget_ms, true)];
        let nearest = limits
            .into_iter()
            .filter_map(|(limit, is_budget)| Some((limit?, is_budget)))
            .min();
        if let Some((limit_ms, is_budget)) = nearest
            && let Some(run) = state.run.as_ref().filter(|run| run.has_started())
        {
            watch_time(
                &self.services,
                &self.entry,
                run.used_ms(),
                limit_ms,
                is_budget,
            );
        }
    }

    /// Hits the fault points that follow an effect: the effect is done, and its input has not been
    /// handled yet.
    pub(in crate::run) fn hit_fault_point(&self, input: &RunInput) {
        let point = match input {
            RunInput::Model(ModelInput::Answered { .. }) => FaultPoint::ModelAnswered,
            RunInput::Tool(ToolInput::Ended { .. }) => FaultPoint::ToolEnded,
            _ => return,
        };
        self.services
            .faults
            .at_run_point(&self.entry.identity.run_id, point);
    }

    /// Registers the children before a caller can look them up, and then has them admitted.
    fn start_children(&self, runs: &[Run]) {
        for run in runs {
            self.services.core.runs.register(run);
        }
        self.send_to_sub_agents(SubAgentMsg::Admit(runs.to_vec()));
    }

    fn send_to_sub_agents(&self, message: SubAgentMsg) {
        if let Some(links) = self
            .services
            .core
            .runs
            .links(&self.entry.identity.session_id)
        {
            links.sub_agents.send(message);
        }
    }

    /// Returns the slot while a child waits only for its own children (ACT-5).
    fn return_slot_while_waiting(&self, state: &mut RunActorState) {
        let is_waiting = RunState::only_waits_for_others;
        if self.entry.identity.parent.is_some()
            && !state.slot.is_returned
            && state.run.as_ref().is_some_and(is_waiting)
        {
            state.slot.is_returned = true;
            self.send_to_sub_agents(SubAgentMsg::ReturnSlot(self.entry.identity.run_id.clone()));
        }
    }

    /// Returns whether the run has no slot. Requests the slot on the first call.
    fn lacks_slot(&self, state: &RunActorState) -> bool {
        if state.slot.is_returned && state.slot.deferred.is_empty() {
            self.send_to_sub_agents(SubAgentMsg::RequestSlot(self.entry.identity.run_id.clone()));
        }
        state.slot.is_returned
    }
}
