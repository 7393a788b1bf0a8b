//! The run actor: a thin shell around the run state machine.
//!
//! Order (ACT-2): input → decision → one append → effects. At most one append is in flight; inputs
//! that arrive meanwhile join the next one. No handler waits for a model, a tool, a child or a
//! commit: each result arrives as a message.
//!
//! Elsewhere: the decisions (`machine/transition.rs`), appends and their retries
//! (`actor/append.rs`), the execution of effects (`actor/effects.rs`, `tasks.rs`).

mod append;
pub(super) mod effects;
pub(super) mod passivation;
mod state;
#[cfg(any(test, feature = "testing"))]
mod state_check;
pub(super) mod time_limit;

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use soong_protocol::{EndReason, ErrorCode, ErrorInfo, Run, RunStatus, RunWrite, Write};
use soong_storage::{
    fault::FaultPoint,
    store::{Append, Fence},
};
use state::RunActorState;

use crate::{
    actor_base::Mailbox,
    clock::now,
    fault::Faults,
    run::{
        approvals::Approvals,
        core::Core,
        debug_artifacts::DebugArtifacts,
        machine::{
            RunState,
            ending::Ending,
            errors,
            input::{ChildInput, EndInput, ResumeReason, RunInput, ToolInput},
            outcome,
            spec::RunSpec,
            view::stall_timeout_ms,
        },
        message::{LoadedRun, RunMsg, RunStart, SubAgentMsg},
        registry::{
            entry::{RunEntry, RunPhase},
            view,
        },
        step::run_step,
        tasks::{RunTasks, TaskServices, finalize::Finalizer},
    },
    task_journal::TaskJournals,
};

/// The handles that the actors of runs use.
pub(crate) struct RunServices {
    pub(crate) core: Arc<Core>,
    pub(crate) tasks: Arc<TaskServices>,
    pub(crate) task_journals: Arc<TaskJournals>,
    pub(crate) approvals: Arc<Approvals>,
    pub(crate) finalizer: Arc<Finalizer>,
    /// Stores the errors of actors that crashed; present if `runtime.debug_artifacts` is set.
    pub(crate) debug_artifacts: Option<Arc<DebugArtifacts>>,
    pub(crate) faults: Faults,
    /// After how many milliseconds without progress a run is reported as stuck
    /// (`runtime.stuck_after_s`).
    pub(crate) stuck_after_ms: u64,
}

/// The run actor. Its fields never change.
pub(crate) struct RunActor {
    pub(crate) services: Arc<RunServices>,
    pub(crate) entry: Arc<RunEntry>,
    pub(crate) spec: Arc<RunSpec>,
}

impl Actor for RunActor {
    type Msg = RunMsg;
    type State = RunActorState;
    type Arguments = RunStart;

    async fn pre_start(
        &self,
        myself: ActorRef<RunMsg>,
        start: RunStart,
    ) -> Result<RunActorState, ActorProcessingErr> {
        let (previous_tasks, tracker) = self.entry.address.renew_tasks();
        let mut state =
            RunActorState::new(RunTasks::new(&self.services.tasks, &self.entry, tracker));
        self.connect_address(&myself, &mut state);
        match start {
            RunStart::New { rows, accepted } => {
                state.accepted = accepted;
                state.run = Some(RunState::new(Arc::clone(&self.spec)));
                self.start(&myself, &mut state, rows);
                // The mode of the parent may have changed while the run was queued.
                let of_parent = self
                    .services
                    .core
                    .runs
                    .permission_mode_of_parent(&self.entry);
                let own = self.entry.published().permission_mode;
                if let Some(mode) = of_parent.filter(|mode| *mode != own) {
                    state
                        .inputs
                        .push_back(RunInput::PermissionMode { mode, ticket: None });
                }
                // The run may have been cancelled before its actor had a mailbox.
                if self.entry.control.token.is_cancelled() {
                    state.inputs.push_back(RunInput::End(EndInput::Cancel));
                }
            }
            RunStart::Load { restarted } => {
                // A child returned its slot before it was passivated.
                state.slot.is_returned = matches!(restarted, Some(ResumeReason::Reactivated))
                    && self.entry.identity.parent.is_some();
                state.resume_reason = restarted;
                state.tasks.load(myself, previous_tasks, Duration::ZERO);
            }
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<RunMsg>,
        message: RunMsg,
        state: &mut RunActorState,
    ) -> Result<(), ActorProcessingErr> {
        self.entry.status.message_handled();
        if state.passivation.is_in_progress
            && !matches!(message, RunMsg::FinishPassivation(_) | RunMsg::Passivate)
        {
            self.abort_passivation(&myself, state);
        }
        match message {
            RunMsg::Input(input) => {
                self.hit_fault_point(&input);
                state.inputs.push_back(*input);
            }
            RunMsg::ModelCallEnded { input, reservation } => {
                self.hit_fault_point(&input);
                state.reservations.add(reservation);
                state.inputs.push_back(*input);
            }
            RunMsg::Spawn { request, reply } => {
                let ticket = state.replies.spawns.add(reply);
                state
                    .inputs
                    .push_back(RunInput::Child(ChildInput::Spawn { request, ticket }));
            }
            RunMsg::Ask { request, reply } => {
                let ticket = state.replies.questions.add(reply);
                state
                    .inputs
                    .push_back(RunInput::Tool(ToolInput::Ask { request, ticket }));
            }
            RunMsg::SetPermissionMode { mode, reply } => {
                let ticket = Some(state.replies.mode_changes.add(reply));
                state
                    .inputs
                    .push_back(RunInput::PermissionMode { mode, ticket });
            }
            RunMsg::Appended(outcome) => {
                #[cfg(any(test, feature = "testing"))]
                if outcome.is_ok()
                    && let Some(stored) = self.rows_to_compare().await
                {
                    self.compare_rebuilt_state(stored, state);
                }
                self.appended(&myself, *outcome, state)?;
            }
            RunMsg::Loaded(loaded) => {
                self.loaded(*loaded, state);
                if state.run.as_ref().is_some_and(RunState::is_ended) {
                    // It crashed after its end was recorded and before anyone was notified.
                    self.notify_end(&myself, state);
                }
            }
            RunMsg::LoadFailed(error) => self.finalize_and_stop(&myself, *error),
            RunMsg::RetryAppend => self.retry_append(&myself, state),
            RunMsg::SlotGranted => {
                let effects = state.slot.end_wait();
                self.entry.control.clock.progress(now());
                self.perform(&myself, effects, state);
            }
            RunMsg::Passivate => self.begin_passivation(&myself, state),
            RunMsg::FinishPassivation(departure) => {
                self.finish_passivation(&myself, departure, state)
            }
            RunMsg::Crash => {
                tracing::warn!(run = %self.entry.identity.run_id, "crashing on request");
                return Err("crashed on request".into());
            }
        }
        self.handle_inputs(&myself, state);
        Ok(())
    }
}

/// Has recorded children of a run started. The supervisor ignores those that it has admitted
/// before.
fn send_children(services: &RunServices, parent: &RunEntry, children: Vec<Run>) {
    let Some(links) = services
        .core
        .runs
        .links(&parent.identity.session_id)
        .filter(|_| !children.is_empty())
    else {
        return;
    };
    let reason = ResumeReason::Crashed {
        count: 0,
        error: "the parent run's actor crashed".to_owned(),
    };
    links.sub_agents.send(SubAgentMsg::Restore {
        runs: children,
        reason,
    });
}

impl RunActor {
    /// Makes the first append of a run of which nothing is stored except its rows.
    fn start(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState, rows: Vec<Write>) {
        let Some(run) = &mut state.run else { return };
        let mut step = run_step(run, RunInput::Start, Some(&self.entry));
        let mut writes = rows;
        writes.push(Write::Run(RunWrite::NewEpoch(
            self.entry.identity.run_id.clone(),
        )));
        writes.append(&mut step.writes);
        state.appends.in_flight = Some(step.effects);
        self.entry.set_started();
        self.update_status(state);
        self.submit(
            myself,
            Append {
                fence: None,
                writes,
            },
        );
    }

    fn loaded(&self, loaded: LoadedRun, state: &mut RunActorState) {
        let begun = loaded.stored.started_at.is_some();
        // The children of a passivated run are running already.
        if !matches!(state.resume_reason, Some(ResumeReason::Reactivated)) {
            self.entry.control.clock.reset_time_limit();
            if begun {
                self.restore_children(loaded.children);
            } else {
                state.has_added_children = !loaded.children.is_empty();
            }
        }
        state.appends.epoch = loaded.epoch;
        let run = RunState::rebuild(Arc::clone(&self.spec), loaded.stored);
        let reason = match state.resume_reason.take() {
            // Also if the actor that should have resumed the run crashed before it could record
            // that.
            _ if self.entry.published().interrupted => ResumeReason::ProcessRestart,
            Some(reason) => reason,
            None => ResumeReason::Crashed {
                count: 0,
                error: String::new(),
            },
        };
        state.has_started = begun;
        let first_input = if begun {
            RunInput::Resume(reason)
        } else {
            RunInput::Start
        };
        self.entry.set_started();
        state.inputs.push_front(first_input);
        // The mode of the parent may have changed while the run was queued. A run that has begun
        // takes only a stricter one.
        let own_mode = run.permission_mode();
        let of_parent = self
            .services
            .core
            .runs
            .permission_mode_of_parent(&self.entry);
        let of_parent = of_parent.filter(|mode| {
            if begun {
                *mode < own_mode
            } else {
                *mode != own_mode
            }
        });
        if let Some(mode) = of_parent {
            state
                .inputs
                .push_back(RunInput::PermissionMode { mode, ticket: None });
        }
        if let Some(summary) = self.entry.published().finish_summary.clone() {
            state
                .inputs
                .push_back(RunInput::End(EndInput::Finish { summary }));
        }
        if self.entry.control.token.is_cancelled() {
            state.inputs.push_back(RunInput::End(EndInput::Cancel));
        }
        if run.is_cancel_requested() {
            self.entry.set_cancel_recorded();
        }
        if let Some(account) = &self.entry.control.budget {
            account.restore(run.consumed());
        }
        state.run = Some(run);
    }

    /// Restores children that an earlier incarnation recorded but did not start.
    fn restore_children(&self, children: Vec<Run>) {
        let is_missing = |run: &Run| {
            self.services
                .core
                .runs
                .get(&run.run_id)
                .is_none_or(|entry| !entry.has_started())
        };
        send_children(
            &self.services,
            &self.entry,
            children.into_iter().filter(is_missing).collect(),
        );
    }

    /// Restores the children that were added while the run was queued. They are read when the start
    /// of the run is durable, because some may have been cancelled since the run was loaded.
    fn restore_added_children(&self) {
        let services = Arc::clone(&self.services);
        let entry = Arc::clone(&self.entry);
        self.services.core.lifetime.spawn(async move {
            let read = || async {
                let run_id = entry.identity.run_id.clone();
                services
                    .tasks
                    .core
                    .reader
                    .read(move |reader| reader.children(&run_id))
                    .await
            };
            if let Ok(children) = services
                .core
                .lifetime
                .keep_trying("reading the children of a run", read)
                .await
            {
                let open = children.into_iter().filter(|run| !run.status.is_terminal());
                send_children(&services, &entry, open.collect());
            }
        });
    }

    /// Handles all queued inputs, unless an append is in flight.
    fn handle_inputs(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        if !state.appends.is_idle() || state.inputs.is_empty() {
            return;
        }
        let Some(run) = &mut state.run else { return };
        if run.is_ended() {
            state.reservations.settle_queued();
            // These inputs are too late; only programs get an answer.
            for input in state.inputs.drain(..) {
                run_step(run, input, None)
                    .effects
                    .into_iter()
                    .for_each(|effect| state.replies.reject(effect));
            }
            return;
        }
        // A report that the run is stuck is not progress.
        if state
            .inputs
            .iter()
            .any(|input| !matches!(input, RunInput::End(EndInput::Stuck { .. })))
        {
            self.entry.control.clock.progress(now());
            self.entry.status.update_run(|view| view.stuck = false);
        }
        let mut writes = Vec::new();
        let mut effects = Vec::new();
        for input in state.inputs.drain(..) {
            let step = run_step(run, input, Some(&self.entry));
            writes.extend(step.writes);
            effects.extend(step.effects);
        }
        // 0 means that no value is stored.
        let used_ms = run.used_ms().max(1);
        self.update_status(state);
        if let Some(trouble) = view::last_error(&writes) {
            self.entry.status.record_error(trouble);
        }
        state.reservations.move_to_append();
        if writes.is_empty() {
            state.reservations.settle_appended();
            self.perform(myself, effects, state);
            return;
        }
        self.services
            .faults
            .at_run_point(&self.entry.identity.run_id, FaultPoint::BeforeAppend);
        state.appends.number += 1;
        let fence = Fence {
            run_id: self.entry.identity.run_id.clone(),
            epoch: state.appends.epoch,
            number: state.appends.number,
            active_ms: Some(used_ms),
        };
        state.appends.in_flight = Some(effects);
        self.submit(
            myself,
            Append {
                fence: Some(fence),
                writes,
            },
        );
    }

    pub(super) fn mailbox(&self, myself: &ActorRef<RunMsg>) -> Mailbox<RunMsg> {
        Mailbox::new(myself.clone(), Arc::clone(&self.entry.status))
    }

    /// Stops the actor, and has the finalizer end the run from its stored state.
    fn finalize_and_stop(&self, myself: &ActorRef<RunMsg>, error: ErrorInfo) {
        if error.code != ErrorCode::Closing {
            let ending = Ending {
                status: RunStatus::Failed,
                reason: EndReason::Failed,
                error: Some(error),
            };
            self.services
                .finalizer
                .finalize_orphan(Arc::clone(&self.entry), ending);
        }
        myself.stop(None);
    }

    /// Notifies all callers that wait for the end of the run, and stops the actor.
    fn notify_end(&self, myself: &ActorRef<RunMsg>, state: &mut RunActorState) {
        self.services
            .faults
            .at_run_point(&self.entry.identity.run_id, FaultPoint::Ended);
        let Some(run) = &state.run else { return };
        if let Some((outcome, result)) = outcome::run_outcome(run) {
            self.services
                .core
                .runs
                .run_ended(&self.entry, outcome, result);
        }
        state
            .replies
            .spawns
            .take_all()
            .for_each(|reply| reply.send(Err(errors::run_has_ended())));
        myself.stop(None);
    }

    /// Updates the published status of the run.
    fn update_status(&self, state: &mut RunActorState) {
        let Some(run) = &state.run else { return };
        self.entry.set_permission_mode(run.permission_mode());
        self.entry
            .control
            .clock
            .set_stall_timeout(stall_timeout_ms(run, self.services.stuck_after_ms));
        let waits_for_people = run.is_waiting();
        let phase = if run.is_ended() {
            RunPhase::Ending
        } else if run.is_ending() || !run.only_waits_for_others() {
            RunPhase::Running
        } else if waits_for_people {
            RunPhase::WaitingForUser
        } else {
            RunPhase::WaitingForChildren
        };
        self.entry.set_phase(phase);
        if waits_for_people != state.user_wait.is_some() {
            state.user_wait = waits_for_people.then(|| self.entry.control.clock.pause());
        }
        if let Some(account) = &self.entry.control.budget {
            account.report(run.consumed());
        }
        let (status, activity) = run.activity();
        self.entry.status.set_state(status, activity);
        self.entry.status.update_run(|view| run.update_view(view));
    }
}
