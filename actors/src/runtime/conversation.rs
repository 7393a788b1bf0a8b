//! Conversations as a whole: from which message one goes on (MSG-2 … MSG-4).
//!
//! Not here: going back as a part of a run (`run/machine/lifecycle/start.rs`), copies of a conversation (`fork.rs`).

use soong_protocol::{ErrorCode, ErrorInfo, EventDraft, MessageEvent, SessionId, TraceId, Write};
use soong_storage::store::{Append, Place, StoreError};

use super::Runtime;
use crate::{artifact::Moved, clock::now, run::no_head};

/// How often a switch is tried again because somebody changed a document meanwhile.
const ROUNDS: usize = 20;

/// Where a conversation stands after a switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Switched {
    /// The head now: the message that was asked for, or where it makes or answers tool calls the last of their
    /// results (MSG-3).
    pub sequence: u64,
    /// The head before.
    pub from_sequence: u64,
    /// Documents that have their text at that message again.
    pub restored: Vec<String>,
    /// Documents that stay as they are, because somebody else has changed them since.
    pub left: Vec<String>,
}

impl Runtime {
    /// Lets a session's conversation go on from another message, on its main path or off it; goals and documents
    /// move along, in one commit. No run is started.
    ///
    /// # Errors
    /// `session_not_found`; `session_active` while a run of it has not ended; `validation_error` where the message
    /// is none to go on from; `storage_error`.
    pub async fn switch_head(&self, id: &SessionId, sequence: u64) -> Result<Switched, ErrorInfo> {
        self.session(id).await?;
        let trace = TraceId::root(id);
        for _ in 0..ROUNDS {
            match self.try_switch(id, &trace, sequence).await? {
                Some(switched) => return Ok(switched),
                None => continue, // somebody else changed a document meanwhile
            }
        }
        Err(ErrorInfo::retryable(ErrorCode::Overloaded, "its documents are changed all the time: try again"))
    }

    async fn try_switch(&self, id: &SessionId, trace: &TraceId, sequence: u64) -> Result<Option<Switched>, ErrorInfo> {
        let services = &self.inner.services;
        let wanted = trace.clone();
        let (place, last, before, (then, collaborators)) = services
            .reader
            .read(move |reader| {
                let place = reader.place(&wanted, sequence)?;
                let before = reader.goal_tree(&wanted)?.unwrap_or_default();
                let then = match &place {
                    Some(place) => {
                        let lsn = place.until_lsn;
                        (reader.goal_tree_at(&wanted, lsn)?, Some(reader.collaborators_at(&wanted, lsn)?))
                    }
                    None => (None, None),
                };
                Ok((place, reader.last_begun_run(&wanted)?, before, then))
            })
            .await?;
        let Some(place) = place else { return Err(no_head(trace, sequence)) };
        let Place { sequence, lsn, head, .. } = place;
        if sequence == head {
            let (restored, left) = (Vec::new(), Vec::new());
            return Ok(Some(Switched { sequence, from_sequence: head, restored, left }));
        }
        let mut goal_tree = then.unwrap_or_default();
        goal_tree.rewind(sequence);
        let moved = match &last {
            Some(last) => services.artifacts.plan_to_go_back(trace, (&last.run_id, None), lsn).await?,
            None => Moved::default(), // a copy without a run of its own: nobody has edited anything
        };
        let event = MessageEvent::HeadSwitched {
            sequence,
            from_sequence: head,
            goal_tree_snapshot: Box::new(before),
            goal_tree: Box::new(goal_tree),
            restored: moved.restored.clone(),
            left: moved.left.clone(),
            collaborators,
        };
        let mut writes = vec![Write::Event(EventDraft::new(trace.clone(), None, now(), event))];
        writes.extend(moved.writes);
        match services.journal.append_and_wait(Append { fence: None, writes }).await {
            Ok(_) => {}
            Err(StoreError::Exists(_)) => return Ok(None),
            Err(error) => return Err(ErrorInfo::from(&error)),
        }
        services.artifacts.have_moved(id, &moved.restored);
        Ok(Some(Switched { sequence, from_sequence: head, restored: moved.restored, left: moved.left }))
    }
}
