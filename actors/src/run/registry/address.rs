//! The address of a run: it delivers messages to the run's actor, drops them between a crash and the restart, and buffers
//! them while the actor is passivated (ACT-7).
//!
//! Invariant: nothing that was put into the letter box is lost; the next incarnation finds it in its mailbox, in order.
//! Not here: when an actor may go (`passivation.rs`), who starts the next one (`supervision/spawner.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{
    actor_base::Mailbox,
    run::{clock::Standstill, message::RunMsg},
};

enum State {
    /// No actor: what comes is dropped, since the next one rebuilds.
    Shut,
    Open(Mailbox<RunMsg>),
    Passive {
        letters: Vec<RunMsg>,
        /// Keeps the run's clock still meanwhile.
        still: Option<Standstill>,
    },
}

/// What became of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// The actor has it.
    Delivered,
    /// It waits for the next actor, which has to be asked for: it is the first one that does.
    Calls,
    /// It waits for the next actor.
    Waits,
    /// There is no actor; what it told of is stored.
    Dropped,
}

/// The way to a run, over all incarnations of its actor.
pub(crate) struct Door(Mutex<State>);

impl Default for Door {
    fn default() -> Self {
        Self(Mutex::new(State::Shut))
    }
}

impl Door {
    /// Opens it to an actor, which gets what has waited for it; returns what has kept the clock still.
    pub(crate) fn open(&self, mailbox: Mailbox<RunMsg>) -> Option<Standstill> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Open(mailbox.clone())) {
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
        *self.state() = State::Shut;
    }

    /// Lets messages wait from now on for the next actor.
    pub(crate) fn let_wait(&self, still: Option<Standstill>) {
        *self.state() = State::Passive { letters: Vec::new(), still };
    }

    pub(crate) fn send(&self, message: RunMsg) -> Sent {
        match &mut *self.state() {
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

    /// Asks the actor to leave, if there is one: whoever has left is not called back for it.
    pub(crate) fn ask_to_leave(&self) {
        if let State::Open(mailbox) = &*self.state() {
            mailbox.cast(RunMsg::Passivate);
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        matches!(*self.state(), State::Shut)
    }

    /// Returns whether anything waits for the next actor; `None` = nothing would.
    pub(crate) fn is_called(&self) -> Option<bool> {
        match &*self.state() {
            State::Passive { letters, .. } => Some(!letters.is_empty()),
            State::Shut | State::Open(_) => None,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
