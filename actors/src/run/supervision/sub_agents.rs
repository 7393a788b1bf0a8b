//! The sub-agent supervisor of a session: starts and restarts child runs of every depth (SUB-7,
//! SUB-10).
//!
//! A limited number of children runs at a time. New children are admitted round-robin over their
//! parents. A child that waits only for its own children returns its slot, and gets one again
//! before new children do, so slots cannot deadlock (ACT-5). A queued child is a row and an entry
//! here; it has no actor.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use soong_protocol::{EndReason, Run, RunId, RunStatus};

use crate::{
    actor_tree::ActorStatus,
    fair_queue::FairQueue,
    run::{
        actor::RunServices,
        machine::{
            ending::Ending,
            input::{EndInput, ResumeReason, RunInput},
        },
        message::{RunMsg, RunStart, SubAgentMsg},
        registry::entry::RunEntry,
        resolver::RunResolver,
        supervision::spawner::RunSpawner,
    },
};

/// The sub-agent supervisor.
pub(crate) struct SubAgentSupervisorActor {
    pub(crate) services: Arc<RunServices>,
    pub(crate) resolver: Arc<RunResolver>,
    /// Maximum number of children that run at a time
    /// (`agents.max_concurrent_children_per_session`).
    pub(crate) slots: usize,
    pub(crate) status: Arc<ActorStatus>,
}

/// A child that waits for a slot.
struct QueuedChild {
    run: Run,
    /// How its actor starts when it gets a slot.
    start: QueuedStart,
}

/// The stored state of a child that waits for a slot.
enum QueuedStart {
    /// Only its rows are stored.
    Fresh,
    /// Events may be stored: of an earlier run of its trace, or by an earlier incarnation of this
    /// supervisor.
    Queued,
    /// It was running in an earlier process.
    Resume(ResumeReason),
}

/// Mutable state of the supervisor.
pub(crate) struct SubAgentSupervisorState {
    spawner: RunSpawner,
    queue: FairQueue<RunId, RunId>,
    /// Children that wait for a slot. A child that is cancelled is removed here; its queue entry is
    /// then skipped.
    queued: HashMap<RunId, QueuedChild>,
    /// All admitted children that have not ended. None is admitted twice.
    admitted: HashSet<RunId>,
    /// Children that wait for their slot back.
    slot_requests: VecDeque<RunId>,
    /// Children that hold a slot.
    slot_holders: HashSet<RunId>,
}

impl Actor for SubAgentSupervisorActor {
    type Msg = SubAgentMsg;
    type State = SubAgentSupervisorState;
    type Arguments = ();

    async fn pre_start(
        &self,
        _: ActorRef<SubAgentMsg>,
        (): (),
    ) -> Result<SubAgentSupervisorState, ActorProcessingErr> {
        self.status.set_state("running", "");
        Ok(SubAgentSupervisorState {
            spawner: RunSpawner::new(Arc::clone(&self.services), Arc::clone(&self.resolver)),
            queue: FairQueue::default(),
            queued: HashMap::new(),
            admitted: HashSet::new(),
            slot_requests: VecDeque::new(),
            slot_holders: HashSet::new(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SubAgentMsg>,
        message: SubAgentMsg,
        state: &mut SubAgentSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        self.status.message_handled();
        match message {
            SubAgentMsg::Admit(runs) => {
                for run in runs {
                    let queued_start = if run.settings.continues {
                        QueuedStart::Queued
                    } else {
                        QueuedStart::Fresh
                    };
                    self.enqueue(state, run, queued_start);
                }
            }
            SubAgentMsg::Restore { runs, reason } => {
                self.restore(&myself, state, runs, reason).await
            }
            SubAgentMsg::Ended {
                run_id,
                parent,
                result,
            } => {
                state.slot_holders.remove(&run_id);
                state.admitted.remove(&run_id);
                if let Some(parent) = parent {
                    self.services.core.runs.notify_parent(&parent, result);
                }
            }
            SubAgentMsg::Cancel(run) => {
                if let Some(waiting) = state.queued.remove(&run) {
                    self.cancel_queued(&waiting.run);
                } else if let Some(entry) = self.services.core.runs.get(&run) {
                    if state.admitted.contains(&run) || entry.has_started() {
                        self.services
                            .core
                            .runs
                            .notify(&entry, RunInput::End(EndInput::Cancel));
                    } else {
                        // It was recorded while its parent was queued, so it is not in this queue.
                        self.end_unstarted(entry);
                    }
                }
            }
            SubAgentMsg::ReturnSlot(run) => {
                state.slot_holders.remove(&run);
            }
            SubAgentMsg::RequestSlot(run) => state.slot_requests.push_back(run),
            SubAgentMsg::Activate(run) => state.spawner.activate(&myself, &run).await,
            SubAgentMsg::StartFailed(failed) => state.spawner.start_failed(failed),
            SubAgentMsg::Crash => return Err("crashed on request".into()),
        }
        self.assign_slots(&myself, state).await;
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SubAgentMsg>,
        event: SupervisionEvent,
        state: &mut SubAgentSupervisorState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(run) = state.spawner.supervise(&myself, event).await {
            // The new incarnation holds a slot, whatever the old one had returned or requested.
            state.slot_requests.retain(|other| *other != run);
            state.slot_holders.insert(run);
        }
        Ok(())
    }
}

impl SubAgentSupervisorActor {
    /// Restores children that have not ended: running children first, then queued ones.
    async fn restore(
        &self,
        myself: &ActorRef<SubAgentMsg>,
        state: &mut SubAgentSupervisorState,
        runs: Vec<Run>,
        reason: ResumeReason,
    ) {
        let (waiting, running): (Vec<Run>, Vec<Run>) = runs
            .into_iter()
            .partition(|run| run.status == RunStatus::Queued);
        for run in running {
            // A new process may be configured with fewer slots.
            if matches!(reason, ResumeReason::ProcessRestart) {
                self.enqueue(state, run, QueuedStart::Resume(reason.clone()));
            } else if state.admitted.insert(run.run_id.clone()) {
                state.slot_holders.insert(run.run_id.clone());
                let start = RunStart::Load {
                    restarted: Some(reason.clone()),
                };
                state.spawner.start(myself, &run, start).await;
            }
        }
        for run in waiting {
            self.enqueue(state, run, QueuedStart::Queued);
        }
    }

    fn enqueue(&self, state: &mut SubAgentSupervisorState, run: Run, queued_start: QueuedStart) {
        let Some(parent) = run.parent_run_id.clone() else {
            return;
        };
        if !state.admitted.insert(run.run_id.clone()) {
            return;
        }
        if self
            .services
            .core
            .runs
            .register(&run)
            .control
            .token
            .is_cancelled()
        {
            // Its parent is being cancelled.
            return self.cancel_queued(&run);
        }
        state.queue.push(parent, run.run_id.clone());
        state.queued.insert(
            run.run_id.clone(),
            QueuedChild {
                run,
                start: queued_start,
            },
        );
    }

    fn cancel_queued(&self, run: &Run) {
        if let Some(entry) = self.services.core.runs.get(&run.run_id) {
            self.end_unstarted(entry);
        }
    }

    fn end_unstarted(&self, entry: Arc<RunEntry>) {
        if entry.is_ending() {
            return;
        }
        let ending = Ending {
            status: RunStatus::Cancelled,
            reason: EndReason::Cancelled,
            error: None,
        };
        self.services.finalizer.finalize_orphan(entry, ending);
    }

    /// Assigns free slots: first to children that request theirs back, then to new children.
    async fn assign_slots(
        &self,
        myself: &ActorRef<SubAgentMsg>,
        state: &mut SubAgentSupervisorState,
    ) {
        let slots = self.slots;
        while state.slot_holders.len() < slots {
            if let Some(run) = state.slot_requests.pop_front() {
                let grant = |entry: Arc<RunEntry>| {
                    self.services.core.runs.send(&entry, RunMsg::SlotGranted)
                };
                if self.services.core.runs.get(&run).is_some_and(grant) {
                    state.slot_holders.insert(run);
                }
                continue;
            }
            let Some(run) = state.queue.pop() else { break };
            let Some(QueuedChild {
                run: row,
                start: queued_start,
            }) = state.queued.remove(&run)
            else {
                continue;
            };
            if self
                .services
                .core
                .runs
                .register(&row)
                .control
                .token
                .is_cancelled()
            {
                // Its cancellation is on the way: nothing new starts below a cancelled run (RT-6).
                self.cancel_queued(&row);
                continue;
            }
            state.slot_holders.insert(run);
            let start = match queued_start {
                QueuedStart::Fresh => RunStart::New {
                    rows: Vec::new(),
                    accepted: None,
                },
                QueuedStart::Queued => RunStart::Load { restarted: None },
                QueuedStart::Resume(reason) => RunStart::Load {
                    restarted: Some(reason),
                },
            };
            state.spawner.start(myself, &row, start).await;
        }
        let activity = match (state.slot_holders.len(), state.queued.len()) {
            (0, 0) => String::new(),
            (working, 0) => format!("{working} of {slots} slots"),
            (working, waiting) => format!("{working} of {slots} slots, {waiting} queued"),
        };
        self.status.set_state("running", activity);
    }
}
