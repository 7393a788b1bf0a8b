//! The mailbox handle of an actor. It counts pending messages.

use std::sync::Arc;

use ractor::{ActorRef, Message};

use crate::actor_tree::ActorStatus;

/// The mailbox of an actor, with the actor's status. Cheap to clone.
pub(crate) struct Mailbox<M> {
    actor: ActorRef<M>,
    status: Arc<ActorStatus>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self {
            actor: self.actor.clone(),
            status: Arc::clone(&self.status),
        }
    }
}

impl<M: Message> Mailbox<M> {
    pub(crate) fn new(actor: ActorRef<M>, status: Arc<ActorStatus>) -> Self {
        Self { actor, status }
    }

    /// Sends a message. Returns `false` if the actor has stopped.
    pub(crate) fn send(&self, message: M) -> bool {
        self.status.message_sent();
        let sent = self.actor.cast(message).is_ok();
        if !sent {
            self.status.message_handled();
        }
        sent
    }

    pub(crate) fn actor(&self) -> &ActorRef<M> {
        &self.actor
    }

    pub(crate) fn status(&self) -> &Arc<ActorStatus> {
        &self.status
    }
}
