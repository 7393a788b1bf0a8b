//! Permission requests of tool calls, and their decisions (PERM-1).
//!
//! Elsewhere: which approver is asked automatically (`permission.rs`), how a call waits
//! (`run/machine/tool_calls/approval.rs`).

use soong_protocol::{Decision, ErrorCode, ErrorInfo, Permission, PermissionDecision, PermissionId};
use soong_storage::store::PermissionFilter;

use super::{Runtime, not_found};
use crate::clock::now;

/// Permission requests of a home: see [`Runtime::permissions`].
#[derive(Debug, Clone, Copy)]
pub struct Permissions<'a> {
    pub(super) runtime: &'a Runtime,
}

impl Permissions<'_> {
    /// Lists permission requests, oldest first.
    pub async fn list(self, filter: PermissionFilter) -> Result<Vec<Permission>, ErrorInfo> {
        self.runtime.inner.services.reader.read(move |reader| reader.permissions(&filter)).await
    }

    /// Reads a permission request.
    pub async fn get(self, id: &PermissionId) -> Result<Permission, ErrorInfo> {
        let wanted = id.clone();
        let found = self.runtime.inner.services.reader.read(move |reader| reader.permission(&wanted)).await?;
        found.ok_or_else(|| not_found(ErrorCode::PermissionNotFound, "permission", id.as_str()))
    }

    /// Grants or denies a permission request and resumes its run.
    ///
    /// Fails with `already_decided` if the request has a decision, or the run has ended. An interrupted run of an
    /// earlier process reads the decision when it is resumed: see [`Sessions::resume`](super::Sessions::resume).
    pub async fn decide(
        self,
        id: &PermissionId,
        decision: Decision,
        reason: Option<String>,
    ) -> Result<Permission, ErrorInfo> {
        self.decide_as(id, decision, reason, "api").await
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
        if services.lifetime.is_closing() {
            return Err(crate::actor_base::closing());
        }
        let (permission_id, by) = (id.clone(), by.into());
        let answer = PermissionDecision { permission_id, decision, decided_by: by, reason, at: now() };
        services.approvals.decide(answer).await
    }
}
