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
    disk::StorageWait,
    run::{
        clock::ClockPause,
        machine::{
            RunState,
            effect::{ChildEffect, Effect, ToolCallEffect},
            input::{ResumeReason, RunInput},
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
    pub(super) appends: Appends,
    /// Whether the store has events of the run, and not only its rows.
    pub(super) has_started: bool,
    /// Reports to the session whether the first append of a new run is durable.
    pub(super) accepted: Option<oneshot::Sender<Result<(), ErrorInfo>>>,
    pub(super) replies: Replies,
    pub(super) tasks: RunTasks,
    /// Why this incarnation was started; set if it loads its state from the store.
    pub(super) resume_reason: Option<ResumeReason>,
    pub(super) slot: Slot,
    pub(super) reservations: Reservations,
    /// Stops the clock while the run waits for a user.
    pub(super) user_wait: Option<ClockPause>,
    pub(super) passivation: Passivation,
    /// Whether children were added while the run was queued. They start when the start of the run
    /// is durable.
    pub(super) has_added_children: bool,
}

impl RunActorState {
    pub(super) fn new(tasks: RunTasks) -> Self {
        Self {
            run: None,
            inputs: VecDeque::new(),
            appends: Appends::default(),
            has_started: false,
            accepted: None,
            replies: Replies::default(),
            tasks,
            resume_reason: None,
            slot: Slot::default(),
            reservations: Reservations::default(),
            user_wait: None,
            passivation: Passivation::default(),
            has_added_children: false,
        }
    }

    /// Returns whether nothing is in flight: no append, no task, no reply to a caller.
    pub(super) fn is_idle(&self) -> bool {
        self.appends.is_idle()
            && self.accepted.is_none()
            && self.inputs.is_empty()
            && self.replies.spawns.is_empty()
            && !self.slot.is_awaited()
            && self.reservations.is_empty()
            && self.tasks.is_empty()
    }
}

/// The appends of an incarnation, of which at most one is in flight.
#[derive(Default)]
pub(super) struct Appends {
    pub(super) epoch: u64,
    /// Number of the last append in the epoch.
    pub(super) number: u64,
    /// Effects that are performed when the append in flight is durable. They are kept while it is
    /// retried.
    pub(super) in_flight: Option<Vec<Effect>>,
    pub(super) failed: Option<FailedAppend>,
}

/// A refused append that will be retried.
pub(super) struct FailedAppend {
    pub(super) append: Append,
    /// Delay before the retry.
    pub(super) delay: Duration,
    /// Counts the append as waiting for the disk.
    pub(super) _wait: StorageWait,
}

impl Appends {
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_none() && self.failed.is_none()
    }
}

/// Pending replies to callers of the run.
#[derive(Default)]
pub(super) struct Replies {
    /// To programs and tools that have requested children.
    pub(super) spawns: PendingReplies<SpawnReply>,
    /// To tools that have asked a person.
    pub(super) questions: PendingReplies<oneshot::Sender<Result<String, ErrorInfo>>>,
    /// To callers that have requested another permission mode.
    pub(super) mode_changes: PendingReplies<oneshot::Sender<()>>,
}

impl Replies {
    /// Sends the reply to a request that came after the end of the run. Other effects are ignored.
    pub(super) fn reject(&mut self, effect: Effect) {
        match effect {
            Effect::Child(ChildEffect::AnswerSpawn { ticket, answer }) => {
                if let Some(reply) = self.spawns.take(ticket) {
                    reply.send(answer);
                }
            }
            Effect::Tool(ToolCallEffect::AnswerQuestion { ticket, .. }) => {
                drop(self.questions.take(ticket))
            }
            Effect::Tool(ToolCallEffect::ConfirmModeChange { ticket }) => {
                drop(self.mode_changes.take(ticket))
            }
            _ => {}
        }
    }
}

/// Replies of one kind that requests wait for.
pub(super) struct PendingReplies<R> {
    replies: HashMap<u64, R>,
    next_ticket: u64,
}

impl<R> Default for PendingReplies<R> {
    fn default() -> Self {
        Self {
            replies: HashMap::new(),
            next_ticket: 0,
        }
    }
}

impl<R> PendingReplies<R> {
    /// Keeps the reply until the request is decided. Returns the ticket of the request.
    pub(super) fn add(&mut self, reply: R) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.replies.insert(ticket, reply);
        ticket
    }

    /// Returns the reply to the request with that ticket. `None` if it was made to an earlier
    /// incarnation.
    pub(super) fn take(&mut self, ticket: u64) -> Option<R> {
        self.replies.remove(&ticket)
    }

    /// Returns all replies.
    pub(super) fn take_all(&mut self) -> impl Iterator<Item = R> {
        std::mem::take(&mut self.replies).into_values()
    }

    fn is_empty(&self) -> bool {
        self.replies.is_empty()
    }
}

/// The run's slot among the active children of its session (ACT-5).
#[derive(Default)]
pub(super) struct Slot {
    /// Whether the run has returned its slot because it waits for children.
    pub(super) is_returned: bool,
    /// Effects that require the slot.
    pub(super) deferred: Vec<Effect>,
    /// Stops the clock while the run waits for its slot.
    pub(super) wait: Option<ClockPause>,
}

impl Slot {
    /// Ends the wait for the slot. Returns the deferred effects.
    pub(super) fn end_wait(&mut self) -> Vec<Effect> {
        self.is_returned = false;
        self.wait = None;
        std::mem::take(&mut self.deferred)
    }

    fn is_awaited(&self) -> bool {
        !self.deferred.is_empty() || self.wait.is_some()
    }
}

/// Budget reservations of model calls that have ended. They are settled when the usage of their
/// calls is recorded.
#[derive(Default)]
pub(super) struct Reservations {
    /// Reservations whose calls are among the queued inputs.
    queued: Vec<Reservation>,
    /// Reservations whose calls are recorded by the append in flight.
    in_append: Vec<Reservation>,
}

impl Reservations {
    pub(super) fn add(&mut self, reservation: Option<Reservation>) {
        self.queued.extend(reservation);
    }

    /// Moves the reservations of the queued inputs to the next append.
    pub(super) fn move_to_append(&mut self) {
        self.in_append.append(&mut self.queued);
    }

    pub(super) fn settle_queued(&mut self) {
        self.queued.drain(..).for_each(Reservation::settle);
    }

    pub(super) fn settle_appended(&mut self) {
        self.in_append.drain(..).for_each(Reservation::settle);
    }

    fn is_empty(&self) -> bool {
        self.queued.is_empty() && self.in_append.is_empty()
    }
}

/// Passivation of the actor because the run has waited for a long time (ACT-7).
#[derive(Default)]
pub(super) struct Passivation {
    /// Whether an attempt is in progress. Any message for the run aborts it.
    pub(super) is_in_progress: bool,
    /// Number of the last attempt.
    pub(super) attempt: u32,
}
