//! Moving the head of a conversation to another message (MSG-2 … MSG-4).
//!
//! Elsewhere: rewinding as part of a run (`run/machine/lifecycle/start.rs`), copies of a
//! conversation (`fork.rs`).

use soong_protocol::{
    ErrorCode, ErrorInfo, EventDraft, MessageEvent, Session, SessionId, SessionWrite, TraceId,
    Write,
};
use soong_storage::store::{Append, ResumePoint, StoreError};

use super::Sessions;
use crate::{artifact::RestorePlan, clock::now, run::cannot_be_head};

/// Maximum number of attempts if a document is changed concurrently.
const MAX_ATTEMPTS: usize = 20;

/// Result of a head switch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeadSwitched {
    /// The new head: the requested message, or, if it makes or answers tool calls, the last of
    /// their results (MSG-3).
    pub sequence: u64,
    /// The previous head.
    pub from_sequence: u64,
    /// Documents that were restored to their text at that message.
    pub restored: Vec<String>,
    /// Documents that were not restored, because another writer has changed them since.
    pub not_restored: Vec<String>,
}

impl Sessions<'_> {
    /// Continues a session's conversation from another message, on its main path or off it. Goals
    /// and documents are restored to that message in the same commit. No run is started.
    ///
    /// # Errors
    /// `session_not_found`; `session_active` while a run of the session has not ended;
    /// `validation_error` if the conversation cannot continue from that message; `overloaded`
    /// (retryable) if documents are changed during every attempt; `storage_error`.
    pub async fn switch_head(
        self,
        id: &SessionId,
        sequence: u64,
    ) -> Result<HeadSwitched, ErrorInfo> {
        let session = self.get(id).await?;
        let trace = TraceId::root(id);
        for _ in 0..MAX_ATTEMPTS {
            match self.try_switch(&session, &trace, sequence).await? {
                Some(switched) => return Ok(switched),
                None => continue, // a document was changed concurrently
            }
        }
        Err(ErrorInfo::retryable(
            ErrorCode::Overloaded,
            "the session's documents are being changed concurrently: retry",
        ))
    }

    async fn try_switch(
        self,
        session: &Session,
        trace: &TraceId,
        sequence: u64,
    ) -> Result<Option<HeadSwitched>, ErrorInfo> {
        let services = &self.runtime.inner.services;
        let wanted = trace.clone();
        let (resume_point, last, before, (then, collaborators)) = services
            .core
            .reader
            .read(move |reader| {
                let resume_point = reader.resume_point(&wanted, sequence)?;
                let before = reader.goal_tree(&wanted)?.unwrap_or_default();
                let then = match &resume_point {
                    Some(resume_point) => {
                        let lsn = resume_point.until_lsn;
                        (
                            reader.goal_tree_at(&wanted, lsn)?,
                            Some(reader.collaborators_at(&wanted, lsn)?),
                        )
                    }
                    None => (None, None),
                };
                Ok((
                    resume_point,
                    reader.last_started_run(&wanted)?,
                    before,
                    then,
                ))
            })
            .await?;
        let Some(resume_point) = resume_point else {
            return Err(cannot_be_head(trace, sequence));
        };
        let ResumePoint {
            sequence,
            lsn,
            head,
            ..
        } = resume_point;
        if sequence == head {
            let restored = Vec::new();
            let left = Vec::new();
            return Ok(Some(HeadSwitched {
                sequence,
                from_sequence: head,
                restored,
                not_restored: left,
            }));
        }
        let mut goal_tree = then.unwrap_or_default();
        goal_tree.rewind(sequence);
        let moved = match &last {
            Some(last) => {
                services
                    .core
                    .artifacts
                    .plan_restore(trace, &last.run_id, None, lsn)
                    .await?
            }
            None => RestorePlan::default(), // a copy without runs: it has no edits
        };
        let event = MessageEvent::HeadSwitched {
            sequence,
            from_sequence: head,
            goal_tree_snapshot: Box::new(before),
            goal_tree: Box::new(goal_tree),
            restored: moved.restored.clone(),
            left: moved.unchanged.clone(),
            collaborators,
        };
        let require = SessionWrite::Require {
            session_id: session.session_id.clone(),
            incarnation: session.incarnation,
        };
        let event = EventDraft::new(trace.clone(), None, now(), event);
        let mut writes = vec![Write::Session(require), Write::Event(event)];
        writes.extend(moved.writes);
        match services
            .core
            .journal
            .append_and_wait(Append {
                fence: None,
                writes,
            })
            .await
        {
            Ok(_) => {}
            Err(StoreError::AlreadyExists(_)) => return Ok(None),
            Err(error) => return Err(ErrorInfo::from(&error)),
        }
        services
            .core
            .artifacts
            .evict_restored(&session.session_id, &moved.restored);
        Ok(Some(HeadSwitched {
            sequence,
            from_sequence: head,
            restored: moved.restored,
            not_restored: moved.unchanged,
        }))
    }
}
