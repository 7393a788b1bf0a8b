//! Permission requests: obtains a decision, records it, and notifies the run (PERM-1).
//!
//! A request is stored before anyone is asked, and a decision is stored before the run is notified.
//! The first decision counts.
//!
//! Elsewhere: which calls require permission (`permission.rs`), how a call waits
//! (`run/machine/tool_calls/approval.rs`), how it is authorized (`run/tasks/authorize.rs`).

mod unclear;

use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};

use dashmap::DashSet;
use futures::FutureExt;
use soong_protocol::{
    Decision, ErrorCode, ErrorInfo, Permission, PermissionDecision, PermissionId, PermissionStatus,
    PermissionWrite, RememberPolicy, Write,
};
use soong_storage::store::{Append, PermissionFilter, StoreError};

use crate::{
    clock::now,
    permission::{ApprovalDecision, Approver, PermissionHandler, Permissions},
    run::{RunInput, core::Core, machine::input::ToolInput},
};

pub(crate) use self::unclear::PendingRow;

/// The permission requests and questions of a runtime.
pub(crate) struct Approvals {
    core: Arc<Core>,
    permissions: Arc<Permissions>,
    /// Whether a decision for the session is remembered (`permissions.remember`).
    remembers: bool,
    /// Timeout of a request, in seconds; 0 = unlimited.
    timeout_s: u64,
    /// Requests and questions whose decision may or may not be stored.
    unconfirmed: DashSet<PendingRow>,
}

impl Approvals {
    pub(crate) fn new(core: &Arc<Core>, permissions: &Arc<Permissions>) -> Self {
        let config = &core.config.permissions;
        Self {
            permissions: Arc::clone(permissions),
            remembers: config.remember == RememberPolicy::Session,
            timeout_s: config.timeout_s,
            unconfirmed: DashSet::new(),
            core: Arc::clone(core),
        }
    }

    /// Records a decision, and notifies the run that waits for it.
    ///
    /// # Errors
    /// - `already_decided` if a decision exists or the run has ended.
    /// - `permission_not_found` if there is no such request.
    /// - `storage_error` if the write failed. The decision may have been stored anyway; the run is
    ///   then notified later.
    pub(crate) async fn decide(
        self: &Arc<Self>,
        answer: PermissionDecision,
    ) -> Result<Permission, ErrorInfo> {
        let id = answer.permission_id.clone();
        let permission = self.read(&id).await?;
        let awaited = PendingRow::Permission(id.clone());
        let write = || Append {
            fence: None,
            writes: vec![Write::Permission(PermissionWrite::Decision(answer.clone()))],
        };
        let (written, is_retry) = self.core.journal.append_with_retry(write).await;
        match written {
            Ok(_) => {}
            Err(StoreError::AlreadyDecided(_)) => {
                let stored = self.read(&id).await?;
                let is_same = stored.decision == Some(answer.decision)
                    && stored.decided_at == Some(answer.at);
                if !is_retry || !is_same || stored.by.as_ref() != Some(&answer.decided_by) {
                    // The first call may have failed after its decision was stored, without
                    // notifying the run.
                    self.notify(awaited).await;
                    return Err(stored.already_decided());
                }
            }
            Err(error) => {
                self.notify_later(awaited);
                return Err(ErrorInfo::from(&error));
            }
        }
        if let Some(run) = self.core.runs.get(&permission.run_id) {
            self.core.runs.notify(
                &run,
                RunInput::Tool(ToolInput::PermissionDecided(Box::new(answer))),
            );
        }
        let decided = self.read(&id).await?;
        self.apply_session_grant(&decided).await?;
        Ok(decided)
    }

    /// Remembers a decision that applies to the session, and allows the other pending requests that
    /// it covers.
    pub(crate) async fn apply_session_grant(
        self: &Arc<Self>,
        permission: &Permission,
    ) -> Result<(), ErrorInfo> {
        let is_for_session =
            permission.decision == Some(Decision::AllowForSession) && self.remembers;
        if is_for_session {
            self.permissions.grant_for_session(permission);
            // If the session was deleted meanwhile, its grants were revoked before this one was
            // added.
            if let Err(error) = self.read(&permission.permission_id).await {
                if error.code == ErrorCode::PermissionNotFound {
                    self.permissions
                        .revoke_session_grants(&permission.session_id);
                }
                return Err(error);
            }
            self.grant_others(permission).await?;
        }
        Ok(())
    }

    /// Allows the other pending requests of the session that the decision covers.
    async fn grant_others(self: &Arc<Self>, granted: &Permission) -> Result<(), ErrorInfo> {
        let filter = PermissionFilter {
            status: Some(PermissionStatus::Pending),
            session_id: Some(granted.session_id.clone()),
            ..PermissionFilter::default()
        };
        let waiting = self
            .core
            .reader
            .read(move |reader| reader.permissions(&filter))
            .await?;
        let is_covered = |permission: &Permission| {
            self.permissions.is_granted_for_session(
                &permission.session_id,
                &permission.tool,
                &permission.demand,
            )
        };
        for permission in waiting.into_iter().filter(is_covered) {
            let answer = PermissionDecision {
                permission_id: permission.permission_id,
                decision: Decision::AllowOnce,
                decided_by: "rule".to_owned(),
                reason: Some(format!("covered by {}", granted.permission_id)),
                at: now(),
            };
            // The request may have been decided in the meantime.
            match Box::pin(self.decide(answer)).await {
                Err(error) if error.code != ErrorCode::AlreadyDecided => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn read(&self, id: &PermissionId) -> Result<Permission, ErrorInfo> {
        let wanted = id.clone();
        let found = self
            .core
            .reader
            .read(move |reader| reader.permission(&wanted))
            .await?;
        found.ok_or_else(|| {
            let message = format!("there is no permission {id:?}: list the existing permissions");
            ErrorInfo::new(ErrorCode::PermissionNotFound, message)
        })
    }

    /// Obtains a decision for a pending request in the background: from the program's handler, or a
    /// denial after `permissions.timeout_s`. Users are not notified here: they list the pending
    /// requests.
    pub(crate) fn request(self: &Arc<Self>, id: PermissionId) {
        let timeout_s = self.timeout_s;
        let handler = match &self.permissions.approver {
            Approver::Handler(handler) => Some(Arc::clone(handler)),
            Approver::None | Approver::Users => None,
        };
        if (handler.is_none() && timeout_s == 0)
            || !self.permissions.pending_requests.insert(id.clone())
        {
            return;
        }
        let approvals = Arc::clone(self);
        self.core.lifetime.spawn(async move {
            let work = async {
                let permission = approvals.read(&id).await?;
                if permission.status != PermissionStatus::Pending {
                    if let (Some(run), Some(answer)) =
                        (approvals.core.runs.get(&permission.run_id), PermissionDecision::from_request(permission))
                    {
                        approvals.core.runs.notify(&run, RunInput::Tool(ToolInput::PermissionDecided(Box::new(answer))));
                    }
                    return Ok(());
                }
                let run_cancelled =
                    approvals.core.runs.get(&permission.run_id).map(|run| run.control.token.clone()).unwrap_or_default();
                let (by, answer) = tokio::select! {
                    // The request stays pending: its run is cancelled, or resumes in a later
                    // process.
                    () = approvals.core.lifetime.closing().cancelled() => return Ok(()),
                    () = run_cancelled.cancelled() => return Ok(()),
                    answered = wait_for_decision(&permission, handler, timeout_s) => answered,
                };
                let ApprovalDecision { decision, reason } = answer;
                let answer = PermissionDecision {
                    permission_id: id.clone(),
                    decision,
                    decided_by: by.to_owned(),
                    reason,
                    at: now(),
                };
                let record = || async { approvals.decide(answer.clone()).await.map(drop) };
                approvals.core.lifetime.keep_trying("recording a decision", record).await
            };
            match work.await {
                Err(error) if error.code != ErrorCode::AlreadyDecided => {
                    tracing::warn!(permission = %id, %error, "failed to record the decision on a permission");
                }
                _ => {}
            }
            approvals.permissions.pending_requests.remove(&id);
        });
    }
}

/// Waits for an answer of the program's handler, or for the timeout.
async fn wait_for_decision(
    permission: &Permission,
    handler: Option<Arc<dyn PermissionHandler>>,
    timeout_s: u64,
) -> (&'static str, ApprovalDecision) {
    let deny = |reason: String| ApprovalDecision {
        decision: Decision::Deny,
        reason: Some(reason),
    };
    let too_late = async {
        match timeout_s {
            0 => std::future::pending().await,
            limit => {
                // Measured from now, not from `created_at`: the system clock may have changed. A
                // restart resets the limit.
                tokio::time::sleep(Duration::from_millis(limit.saturating_mul(1_000))).await;
                deny(format!(
                    "no decision within {limit} s (permissions.timeout_s)"
                ))
            }
        }
    };
    let answered = async {
        match handler {
            None => std::future::pending().await,
            Some(handler) => {
                match AssertUnwindSafe(async { handler.decide(permission.clone()).await })
                    .catch_unwind()
                    .await
                {
                    Ok(Ok(answer)) => answer,
                    Ok(Err(error)) => {
                        deny(format!("the permission handler failed: {}", error.message))
                    }
                    Err(_) => deny("the permission handler crashed".to_owned()),
                }
            }
        }
    };
    tokio::select! {
        biased;
        answer = answered => ("handler", answer),
        answer = too_late => ("timeout", answer),
    }
}
