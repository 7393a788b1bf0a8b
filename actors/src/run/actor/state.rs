//! Mutable state of the run actor.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use soong_protocol::ErrorInfo;
use soong_storage::store::Append;
use tokio::sync::oneshot;

use crate::{
    budget::Reservation,
    run::{
        clock::ClockPause,
        machine::{
            effect::Effect,
            input::{ResumeReason, RunInput},
            state::RunState,
        },
        message::SpawnReply,
        tasks::RunTasks,
    },
};

/// Mutable state of the run actor.
pub(crate) struct RunActorState {
    /// `None` until the state is rebuilt.
    pub(super) run: Option<RunState>,
    pub(super) inputs: VecDeque<RunInput>,
    pub(super) epoch: u64,
    pub(super) appends: u64,
    /// Whether events of the run are recorded in addition to its rows.
    pub(super) has_started: bool,
    /// Effects that are released when the append in flight is durable.
    pub(super) in_flight: Option<Vec<Effect>>,
    pub(super) failed_append: Option<(Append, Duration)>,
    pub(super) accepted: Option<oneshot::Sender<Result<(), ErrorInfo>>>,
    pub(super) pending_spawns: HashMap<u64, SpawnReply>,
    pub(super) next_spawn_id: u64,
    pub(super) tasks: RunTasks,
    /// Why this incarnation was started; set if it loads its state from the store.
    pub(super) resume_reason: Option<ResumeReason>,
    /// Whether it has returned its slot because it waits for children (ACT-5).
    pub(super) slot_returned: bool,
    pub(super) deferred_effects: Vec<Effect>,
    /// Reservations of model calls that have ended and are not recorded yet.
    pub(super) reservations: Vec<Reservation>,
    pub(super) recorded_reservations: Vec<Reservation>,
    /// Guards that stop the clock while the run waits for a user, or for its slot.
    pub(super) user_wait: Option<ClockPause>,
    pub(super) slot_wait: Option<ClockPause>,
    /// Whether the actor is being passivated because the run has waited for a long time (ACT-7), and the number of the
    /// passivation attempt.
    pub(super) is_passivating: bool,
    pub(super) passivation_attempt: u32,
}

impl RunActorState {
    /// Returns whether nothing is in flight: no append, no task, no reply to a caller.
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none()
            && self.failed_append.is_none()
            && self.accepted.is_none()
            && self.inputs.is_empty()
            && self.pending_spawns.is_empty()
            && self.deferred_effects.is_empty()
            && self.reservations.is_empty()
            && self.recorded_reservations.is_empty()
            && self.slot_wait.is_none()
            && self.tasks.is_empty()
    }
}
