//! Inventory of artifacts that a run sees in every turn (ART-8).

use std::sync::Arc;

use soong_protocol::{ArtifactScope, ErrorInfo, SessionId};
use soong_tool::artifact::ArtifactOwner;

use crate::artifact::{
    ArtifactStore, PLAN,
    inventory::{MAX_LINES, render},
};

impl ArtifactStore {
    /// Returns the inventory of both scopes, or `None` if they are empty.
    pub(crate) async fn inventory(
        &self,
        owner: &ArtifactOwner,
    ) -> Result<Option<String>, ErrorInfo> {
        let mut text = String::new();
        for scope in owner.scopes() {
            if let Some(part) = self.scope_inventory(&scope).await? {
                text.push_str(&part);
            }
        }
        Ok((!text.is_empty()).then(|| format!("## Artifacts\n{text}")))
    }

    async fn scope_inventory(&self, scope: &ArtifactScope) -> Result<Option<Arc<str>>, ErrorInfo> {
        if let Some(known) = self.inventories.cached(scope) {
            return Ok(known);
        }
        let before = self.inventories.changes();
        let wanted = scope.clone();
        let (artifacts, plan) = self
            .reads
            .read(move |reader| {
                let plan = match &wanted {
                    ArtifactScope::Session { .. } => reader.artifact(&wanted, PLAN)?,
                    ArtifactScope::User { .. } => None,
                };
                // The plan may be among the most recent artifacts, so one more is read.
                Ok((reader.recent_artifacts(&wanted, MAX_LINES + 1)?, plan))
            })
            .await?;
        let plan = match plan {
            Some(plan) => {
                let text = self.text_of(&plan).await.unwrap_or_else(|error| {
                    // A plan that cannot be read must not block the run.
                    tracing::warn!(%error, "the plan cannot be read");
                    Some(format!("(the plan cannot be read: {})", error.message).into())
                });
                Some((text, plan))
            }
            None => None,
        };
        let text = render(artifacts, plan);
        let text: Option<Arc<str>> = (!text.is_empty()).then(|| text.into());
        self.inventories
            .insert_unless_changed(scope, text.clone(), before);
        Ok(text)
    }

    /// Removes the cached inventory of a session whose actors have stopped.
    pub(crate) fn evict_inventory(&self, session: &SessionId) {
        self.inventories.invalidate(&ArtifactScope::Session {
            session_id: session.clone(),
        });
    }
}
