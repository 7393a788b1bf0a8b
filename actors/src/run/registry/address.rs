//! The address of a run. It delivers messages to the run's actor, drops them between a crash and the restart, and
//! buffers them while the actor is passivated (ACT-7).
//!
//! Invariant: buffered messages reach the next actor in order, unless the address is closed first because the run has
//! ended or its actor has crashed.
//!
//! Elsewhere: when an actor is passivated (`actor/passivation.rs`), how the next one is started
//! (`supervision/spawner.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio_util::task::TaskTracker;

use crate::{
    actor_base::Mailbox,
    run::{clock::Standstill, message::RunMsg},
};

enum State {
    /// There is no actor. Messages are dropped, because the next actor reads the store.
    Shut,
    Open(Mailbox<RunMsg>),
    Passive {
        letters: Vec<RunMsg>,
        /// Keeps the run's clock stopped.
        still: Option<Standstill>,
    },
}

/// The outcome of sending a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The message was passed to the actor.
    Delivered,
    /// Buffered as the first message: the caller must have the next actor started.
    Calls,
    /// Buffered after other messages: the next actor has been requested.
    Waits,
    /// Not delivered: there is no actor, or its mailbox is closed. The content of the message is in the store.
    Dropped,
}

struct Actor {
    state: State,
    /// Tasks of the current incarnation; the next one starts when they have ended (ACT-3).
    tasks: TaskTracker,
}

/// The address of a run, over all incarnations of its actor.
pub(crate) struct Door(Mutex<Actor>);

impl Default for Door {
    fn default() -> Self {
        Self(Mutex::new(Actor { state: State::Shut, tasks: TaskTracker::new() }))
    }
}

impl Door {
    /// Connects an actor, delivers the buffered messages to it, and returns the guard that stopped the clock.
    pub(crate) fn open(&self, mailbox: Mailbox<RunMsg>) -> Option<Standstill> {
        match std::mem::replace(&mut self.actor().state, State::Open(mailbox.clone())) {
            State::Passive { letters, still } => {
                for letter in letters {
                    mailbox.cast(letter);
                }
                still
            }
            State::Shut | State::Open(_) => None,
        }
    }

    pub(crate) fn shut(&self) {
        self.actor().state = State::Shut;
    }

    /// Buffers messages for the next actor from now on. `still` keeps the run's clock stopped.
    pub(crate) fn let_wait(&self, still: Option<Standstill>) {
        self.actor().state = State::Passive { letters: Vec::new(), still };
    }

    pub(crate) fn send(&self, message: RunMsg) -> Sent {
        match &mut self.actor().state {
            State::Shut => Sent::Dropped,
            State::Open(mailbox) => {
                if mailbox.cast(message) {
                    Sent::Delivered
                } else {
                    Sent::Dropped
                }
            }
            State::Passive { letters, .. } => {
                letters.push(message);
                if letters.len() == 1 { Sent::Calls } else { Sent::Waits }
            }
        }
    }

    /// Asks the actor to passivate itself. Does nothing if there is no actor.
    pub(crate) fn ask_to_leave(&self) {
        if let State::Open(mailbox) = &self.actor().state {
            mailbox.cast(RunMsg::Passivate);
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        matches!(self.actor().state, State::Shut)
    }

    /// Returns whether messages are buffered; `None` if the address does not buffer.
    pub(crate) fn is_called(&self) -> Option<bool> {
        match &self.actor().state {
            State::Passive { letters, .. } => Some(!letters.is_empty()),
            State::Shut | State::Open(_) => None,
        }
    }

    /// Replaces the task tracker for a new incarnation. Returns the closed tracker of the previous incarnation, and the
    /// new one.
    pub(crate) fn renew_tasks(&self) -> (TaskTracker, TaskTracker) {
        let tasks = TaskTracker::new();
        let before = std::mem::replace(&mut self.actor().tasks, tasks.clone());
        before.close();
        (before, tasks)
    }

    fn actor(&self) -> MutexGuard<'_, Actor> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
