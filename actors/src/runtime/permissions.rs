//! Permission requests of tool calls, and their decisions (PERM-1).
//!
//! Elsewhere: which approver is asked automatically (`permission.rs`), how a call waits
//! (`run/machine/tool_calls/approval.rs`).

use std::{collections::HashSet, time::Duration};

use futures::future::try_join_all;
use soong_protocol::{
    Decision, ErrorCode, ErrorInfo, Permission, PermissionDecision, PermissionId, PermissionMode,
    SessionId,
};
use soong_storage::store::PermissionFilter;
use tokio::sync::oneshot;

use super::{Runtime, not_found};
use crate::{
    clock::now,
    run::{RunEntry, RunMsg, RunPhase, RunRegistry},
};

/// Pause before a request to a run whose actor has crashed is repeated.
const RETRY_PAUSE: Duration = Duration::from_millis(10);

/// Sets the permission mode of the active runs of a session, and of those that start meanwhile.
/// Returns their number.
async fn set_mode_of_session(
    runs: &RunRegistry,
    session: &SessionId,
    mode: PermissionMode,
) -> Result<usize, ErrorInfo> {
    let mut changed = HashSet::new();
    loop {
        // Not the queued runs of users, which have modes of their own.
        let is_active = |entry: &RunEntry| entry.has_started() || entry.published().interrupted;
        let mut active = runs.select(|entry| {
            entry.identity.session_id == *session && is_active(entry) && !entry.is_ending()
        });
        active.retain(|entry| !changed.contains(&entry.identity.run_id));
        // Parents first: their mode limits that of their sub-agents.
        let Some(depth) = active.iter().map(|entry| entry.identity.depth).min() else {
            return Ok(changed.len());
        };
        active.retain(|run| run.identity.depth == depth);
        try_join_all(active.iter().map(|run| set_mode_of_run(runs, run, mode))).await?;
        changed.extend(active.iter().map(|run| run.identity.run_id.clone()));
    }
}

/// Sets the permission mode of a run, and waits until the change is durable. Returns without a
/// change if the run ends.
async fn set_mode_of_run(
    runs: &RunRegistry,
    entry: &RunEntry,
    mode: PermissionMode,
) -> Result<(), ErrorInfo> {
    while !entry.is_ending() {
        let (reply, recorded) = oneshot::channel();
        runs.send(entry, RunMsg::SetPermissionMode { mode, reply });
        match recorded.await {
            Ok(()) => return Ok(()),
            Err(_) => tokio::time::sleep(RETRY_PAUSE).await,
        }
    }
    match &entry.published().phase {
        RunPhase::Interrupted(error) | RunPhase::Unrecorded(error) => Err(error.clone()),
        _ => Ok(()),
    }
}

/// Permission requests of a home: see [`Runtime::permissions`].
#[derive(Debug, Clone, Copy)]
pub struct Permissions<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Permissions<'_> {
    /// Lists permission requests, oldest first.
    pub async fn list(self, filter: PermissionFilter) -> Result<Vec<Permission>, ErrorInfo> {
        self.runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.permissions(&filter))
            .await
    }

    /// Reads a permission request.
    pub async fn get(self, id: &PermissionId) -> Result<Permission, ErrorInfo> {
        let wanted = id.clone();
        let found = self
            .runtime
            .inner
            .services
            .core
            .reader
            .read(move |reader| reader.permission(&wanted))
            .await?;
        found.ok_or_else(|| not_found(ErrorCode::PermissionNotFound, "permission", id.as_str()))
    }

    /// Grants or denies a permission request and resumes its run.
    ///
    /// Fails with `already_decided` if the request has a decision, or the run has ended. An
    /// interrupted run of an earlier process reads the decision when it is resumed: see
    /// [`Sessions::resume`](super::Sessions::resume).
    pub async fn decide(
        self,
        id: &PermissionId,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Permission, ErrorInfo> {
        self.decide_as(id, decision, reason, "api").await
    }

    /// Sets the permission mode of the active run of a session and its sub-agents. It applies from
    /// the next tool call, and is durable when this returns (PERM-2).
    ///
    /// # Errors
    /// `session_not_found`; `nothing_running` if no run of the session is active: the mode of a new
    /// run is part of its request; `storage_error` if the change could not be recorded in time.
    pub async fn set_mode(
        self,
        session: &SessionId,
        mode: PermissionMode,
    ) -> Result<(), ErrorInfo> {
        let services = &self.runtime.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(crate::actor_base::closing());
        }
        let limit = Duration::from_millis(services.core.config.runtime.cancel_timeout_ms);
        let changed = tokio::time::timeout(
            limit,
            set_mode_of_session(&services.core.runs, session, mode),
        );
        let changed = changed.await.unwrap_or_else(|_| {
            let message =
                format!("the permission mode of session {session} is not recorded yet: try again");
            Err(ErrorInfo::retryable(ErrorCode::StorageError, message))
        })?;
        if changed == 0 {
            self.runtime.sessions().get(session).await?;
            let message =
                format!("session {session} has no active run: set the mode of its next run");
            return Err(ErrorInfo::new(ErrorCode::NothingRunning, message));
        }
        Ok(())
    }

    /// Decides like [`decide`](Self::decide), and records the approver, such as `terminal`.
    pub async fn decide_as(
        self,
        id: &PermissionId,
        decision: Decision,
        reason: Option<String>,
        by: impl Into<String>,
    ) -> Result<Permission, ErrorInfo> {
        let services = &self.runtime.inner.services;
        if services.core.lifetime.is_closing() {
            return Err(crate::actor_base::closing());
        }
        let permission_id = id.clone();
        let by = by.into();
        let answer = PermissionDecision {
            permission_id,
            decision,
            decided_by: by,
            reason,
            at: now(),
        };
        services.approvals.decide(answer).await
    }
}
