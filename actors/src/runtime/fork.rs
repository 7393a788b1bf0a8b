//! Forks: a new session that starts as a copy of another session's conversation up to a message
//! (MSG-1, MSG-3, MSG-4).
//!
//! All rows are written in one commit. Artifact bytes are written before it and announced, so that
//! after a crash the next owner of the home removes them. The source does not change, and may have
//! a running run.
//!
//! Elsewhere: copying rows (`storage`) and bytes (`artifact/store/copy.rs`).

use std::sync::Arc;

use soong_protocol::{
    Artifact, ErrorCode, ErrorInfo, EventDraft, GoalTree, NewFork, NewSession, RunEvent,
    RunSettings, Session, SessionId, SessionWrite, Timestamp, TraceId, Write,
};
use soong_storage::store::{Append, Reader, StoreError};

use super::{
    Sessions,
    admission::{inherited_settings, session_deny_rules},
    not_found,
    services::Services,
    sessions::session_exists,
};
use crate::{actor_base::closing, artifact::registration_writes, clock::now, run::cannot_be_head};

/// Options of a fork. Every option has a default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fork {
    /// Last message to copy, on the main path or off it. If the message makes or answers tool
    /// calls, the last of their results is used (MSG-3). Default: the head, with the current
    /// artifacts unless a run is active.
    pub at: Option<u64>,
    /// Id of the copy. Default: generated.
    pub session_id: Option<String>,
    /// Display name of the copy. Default: that of the source.
    pub name: Option<String>,
}

/// Contents to copy.
struct ForkSource {
    source: Session,
    trace: TraceId,
    at: u64,
    goal_tree: GoalTree,
    /// The artifacts, each with the version number that it had.
    artifacts: Vec<(Artifact, u64)>,
    /// The settings of the last run.
    settings: Option<Box<RunSettings>>,
}

impl Sessions<'_> {
    /// Creates a session that is a copy of another session's conversation up to a message. Messages
    /// keep their numbers; goals and artifacts are copied in their state at that message.
    /// Sub-traces are linked. No run is started. The source does not change, and may have an active
    /// run.
    ///
    /// The usage of the copied messages is counted for the source only.
    ///
    /// # Errors
    /// `session_not_found`; `validation_error` if the conversation cannot continue from that
    /// message, or the id is taken; `session_active` while a session with that id is being deleted;
    /// `storage_error`. On an error nothing has changed.
    pub async fn fork(self, id: &SessionId, request: Fork) -> Result<Session, ErrorInfo> {
        let services = &self.runtime.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(closing());
        }
        let refuse = |message: String| ErrorInfo::new(ErrorCode::ValidationError, message);
        let session_id = match &request.session_id {
            None => SessionId::generate(),
            Some(text) => SessionId::parse(text).map_err(|error| refuse(error.to_string()))?,
        };
        let found = read_source(services, id, request.at).await?;
        if self.get(&session_id).await.is_ok() {
            return Err(session_exists(&session_id));
        }
        // In a separate task, so that copying completes even if the caller is dropped.
        let copying = Arc::clone(services);
        let copy_id = session_id.clone();
        let claim = self.claim(&session_id);
        let made = services
            .core
            .lifetime
            .spawn(async move { copy(&copying, found, copy_id, request.name, claim).await })
            .await;
        match made.unwrap_or_else(|error| {
            Err(ErrorInfo::new(ErrorCode::InternalError, error.to_string()))
        }) {
            Ok(()) => self.get(&session_id).await,
            // The session was deleted meanwhile, together with its files.
            Err(error) => Err(self.get(id).await.err().unwrap_or(error)),
        }
    }
}

async fn read_source(
    services: &Services,
    id: &SessionId,
    at: Option<u64>,
) -> Result<ForkSource, ErrorInfo> {
    let wanted = id.clone();
    match services
        .core
        .reader
        .read(move |reader| read_source_rows(reader, &wanted, at))
        .await?
    {
        Some(found) => found,
        None => Err(not_found(
            ErrorCode::SessionNotFound,
            "session",
            id.as_str(),
        )),
    }
}

fn read_source_rows(
    reader: &dyn Reader,
    id: &SessionId,
    at: Option<u64>,
) -> Result<Option<Result<ForkSource, ErrorInfo>>, StoreError> {
    let trace = TraceId::root(id);
    let (Some(source), Some(state)) = (reader.session(id)?, reader.trace(&trace)?) else {
        return Ok(None);
    };
    let wanted = at.unwrap_or(state.head_sequence);
    if at.is_none() && wanted == 0 {
        let message = format!("session {id} has no messages yet: there is nothing to copy");
        return Ok(Some(Err(ErrorInfo::new(
            ErrorCode::ValidationError,
            message,
        ))));
    }
    let Some(resume_point) = reader.resume_point(&trace, wanted)? else {
        return Ok(Some(Err(cannot_be_head(&trace, wanted))));
    };
    // Edits that an active run made after its last message belong to its next message.
    let is_as_now = at.is_none() && source.live_runs == 0;
    let artifacts = reader.artifacts_at(
        id,
        if is_as_now {
            u64::MAX
        } else {
            resume_point.lsn
        },
    )?;
    let goal_tree = if is_as_now {
        reader
            .goal_tree(&trace)?
            .unwrap_or_default()
            .without_computed_fields()
    } else {
        // Ids of goals that were created later stay reserved, so that they are not assigned again.
        let mut goals = reader.goal_tree(&trace)?.unwrap_or_default();
        goals.restore(
            reader
                .goal_tree_at(&trace, resume_point.until_lsn)?
                .unwrap_or_default(),
        );
        goals.rewind(resume_point.sequence);
        goals
    };
    let mut settings = inherited_settings(reader, &trace)?.map(|before| Box::new(before.settings));
    if let Some(settings) = &mut settings {
        settings.permissions.deny = session_deny_rules(reader, id, &trace)?;
    }
    Ok(Some(Ok(ForkSource {
        source,
        trace,
        at: resume_point.sequence,
        goal_tree,
        artifacts,
        settings,
    })))
}

/// Copies the artifact bytes, then creates the session.
async fn copy(
    services: &Services,
    found: ForkSource,
    session_id: SessionId,
    name: Option<String>,
    claim: Option<Write>,
) -> Result<(), ErrorInfo> {
    let ForkSource {
        source,
        trace,
        at,
        goal_tree,
        artifacts,
        settings,
    } = found;
    let copies = services
        .core
        .artifacts
        .store()
        .copy_all(&session_id, artifacts)
        .await?;
    let paths: Vec<String> = copies
        .iter()
        .map(|copy| copy.version.path.clone())
        .collect();
    let time: Timestamp = now();
    let trace_id: TraceId = TraceId::root(&session_id);
    // The bytes may take long: the source may have been deleted, and its id used again.
    let require = Write::Session(SessionWrite::Require {
        session_id: source.session_id,
        incarnation: source.incarnation,
    });
    let session = NewSession {
        session_id: session_id.clone(),
        name: name.or(source.name),
        uid: source.uid,
        project_dir: source.project_dir,
        created_at: time,
    };
    let event = RunEvent::SessionForked {
        source: trace.clone(),
        at,
        goal_tree: Box::new(goal_tree),
        settings,
    };
    let (made, events) = registration_writes(copies, &trace_id);
    let fork = Write::Session(SessionWrite::Fork(Box::new(NewFork {
        session,
        trace_id: trace_id.clone(),
        source_trace: trace.clone(),
        last_message: at,
    })));
    // The copies are written before the event, so that they are no newer than any copied message.
    let writes = [require, fork].into_iter().chain(made);
    let writes = writes
        .chain([Write::Event(EventDraft::new(trace_id, None, time, event))])
        .chain(events);
    let writes = writes.chain(claim).collect();
    let error = match services
        .core
        .journal
        .append_and_wait(Append {
            fence: None,
            writes,
        })
        .await
    {
        Ok(_) => {
            tracing::info!(session = %session_id, source = %trace, at, "session forked");
            return Ok(());
        }
        Err(error) => error,
    };
    // After a transient error or `Closed` it is not known whether the commit was written, so the
    // copies are kept. The next owner of the home removes those that are announced but not
    // registered.
    if !error.is_transient() && error != StoreError::Closed {
        services.core.artifacts.store().discard_copies(&paths).await;
    }
    Err(match error {
        StoreError::AlreadyExists(_) => session_exists(&session_id),
        StoreError::NotFound(_) => cannot_be_head(&trace, at),
        error => ErrorInfo::from(&error),
    })
}
