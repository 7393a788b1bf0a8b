//! Address of a run: delivers messages to the run's actor, buffers them while the run is passivated
//! (ACT-7), and drops them while there is no actor for another reason, such as between a crash and
//! the restart.
//!
//! Invariant: buffered messages reach the next actor in order, unless the address is closed first
//! because the run has ended or its actor has crashed.
//!
//! Elsewhere: when an actor is passivated (`actor/passivation.rs`), how the next one is started
//! (`supervision/spawner.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

use crate::{
    actor_base::Mailbox,
    run::{clock::ClockPause, message::RunMsg},
};

enum AddressState {
    /// There is no actor. Messages are dropped, because the next actor reads their content from the
    /// store.
    Closed,
    Open(Mailbox<RunMsg>),
    Passivated {
        buffered: Vec<RunMsg>,
        /// Keeps the run's clock stopped.
        clock_pause: Option<ClockPause>,
    },
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SendOutcome {
    /// The message was passed to the actor.
    Delivered,
    /// Buffered as the first message. The caller must request the start of the next actor.
    BufferedFirst,
    /// Buffered after other messages. The start of the next actor has already been requested.
    Buffered,
    /// Not delivered: there is no actor, or its mailbox is closed. The content of the message is in
    /// the store.
    Dropped,
}

/// Whether a run is passivated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passivation {
    /// It is not.
    None,
    /// It is, and no message waits for it.
    Idle,
    /// It is, and messages wait for its next actor.
    MessagesWait,
}

struct AddressInner {
    state: AddressState,
    /// Tasks of the current incarnation. The next incarnation starts when they have ended (ACT-3).
    tasks: TaskTracker,
}

/// Address of a run. Stays the same when the run's actor is restarted.
pub(crate) struct RunAddress(Mutex<AddressInner>);

impl Default for RunAddress {
    fn default() -> Self {
        Self(Mutex::new(AddressInner {
            state: AddressState::Closed,
            tasks: TaskTracker::new(),
        }))
    }
}

impl RunAddress {
    /// Connects a new actor and delivers the buffered messages to it. Returns the guard that keeps
    /// the run's clock stopped, if the run was passivated with one.
    pub(crate) fn open(&self, mailbox: Mailbox<RunMsg>) -> Option<ClockPause> {
        match std::mem::replace(&mut self.lock().state, AddressState::Open(mailbox.clone())) {
            AddressState::Passivated {
                buffered,
                clock_pause,
            } => {
                for message in buffered {
                    mailbox.send(message);
                }
                clock_pause
            }
            AddressState::Closed | AddressState::Open(_) => None,
        }
    }

    pub(crate) fn close(&self) {
        self.lock().state = AddressState::Closed;
    }

    /// Starts to buffer messages for the next actor. `clock_pause` keeps the run's clock stopped
    /// until [`open`](Self::open) or [`close`](Self::close).
    pub(crate) fn start_buffering(&self, clock_pause: Option<ClockPause>) {
        self.lock().state = AddressState::Passivated {
            buffered: Vec::new(),
            clock_pause,
        };
    }

    pub(crate) fn send(&self, message: RunMsg) -> SendOutcome {
        match &mut self.lock().state {
            AddressState::Closed => SendOutcome::Dropped,
            AddressState::Open(mailbox) => {
                if mailbox.send(message) {
                    SendOutcome::Delivered
                } else {
                    SendOutcome::Dropped
                }
            }
            AddressState::Passivated { buffered, .. } => {
                buffered.push(message);
                if buffered.len() == 1 {
                    SendOutcome::BufferedFirst
                } else {
                    SendOutcome::Buffered
                }
            }
        }
    }

    /// Asks the actor to passivate itself. Does nothing if there is no actor.
    pub(crate) fn request_passivation(&self) {
        if let AddressState::Open(mailbox) = &self.lock().state {
            mailbox.send(RunMsg::Passivate);
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.lock().state, AddressState::Closed)
    }

    /// Returns whether the run is passivated, and whether messages wait for its next actor.
    pub(crate) fn passivation(&self) -> Passivation {
        match &self.lock().state {
            AddressState::Passivated { buffered, .. } if buffered.is_empty() => Passivation::Idle,
            AddressState::Passivated { .. } => Passivation::MessagesWait,
            AddressState::Closed | AddressState::Open(_) => Passivation::None,
        }
    }

    /// Replaces the task tracker for a new incarnation. Returns the closed tracker of the previous
    /// incarnation, and the new one.
    pub(crate) fn renew_tasks(&self) -> (TaskTracker, TaskTracker) {
        let tasks = TaskTracker::new();
        let previous = std::mem::replace(&mut self.lock().tasks, tasks.clone());
        previous.close();
        (previous, tasks)
    }

    fn lock(&self) -> MutexGuard<'_, AddressInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
