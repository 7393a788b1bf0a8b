//! The way to an actor: a typed address that counts what waits there.

use std::sync::Arc;

use ractor::{ActorRef, Message};

use crate::observatory::Gauge;

/// An actor's address together with its gauge. Cheap to clone.
pub(crate) struct Mailbox<M> {
    actor: ActorRef<M>,
    gauge: Arc<Gauge>,
}

impl<M> Clone for Mailbox<M> {
    fn clone(&self) -> Self {
        Self { actor: self.actor.clone(), gauge: Arc::clone(&self.gauge) }
    }
}

impl<M: Message> Mailbox<M> {
    pub(crate) fn new(actor: ActorRef<M>, gauge: Arc<Gauge>) -> Self {
        Self { actor, gauge }
    }

    /// Sends a message; `false` = the actor is gone.
    pub(crate) fn cast(&self, message: M) -> bool {
        self.gauge.sent();
        let sent = self.actor.cast(message).is_ok();
        if !sent {
            self.gauge.took();
        }
        sent
    }

    pub(crate) fn actor(&self) -> &ActorRef<M> {
        &self.actor
    }

    pub(crate) fn gauge(&self) -> &Arc<Gauge> {
        &self.gauge
    }
}
