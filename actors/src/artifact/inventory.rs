//! What a run reads of the artifacts in every turn: the plan whole, everything else as a line (ART-8).
//!
//! Rendered from rows, and kept until something is stored or edited.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dashmap::DashMap;
use soong_protocol::{Artifact, ArtifactScope, ArtifactSource, ErrorInfo, SessionId};

use super::{ArtifactStore, PLAN, Place};

/// How many artifacts of a scope are named in a prompt, the last changed ones; `list_artifacts` names all.
const MAX_LINES: usize = 100;

/// Rendered inventories of scopes.
#[derive(Default)]
pub(super) struct Inventories {
    rendered: DashMap<ArtifactScope, Option<Arc<str>>>,
    /// How often something changed: an inventory that was read meanwhile is not kept.
    changes: AtomicU64,
}

impl Inventories {
    /// Forgets a scope's inventory: something there has changed.
    pub(super) fn void(&self, scope: &ArtifactScope) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.rendered.remove(scope);
    }
}

impl ArtifactStore {
    /// Renders what a run may read; `None` = there is nothing.
    pub(crate) async fn inventory(&self, place: &Place) -> Result<Option<String>, ErrorInfo> {
        let mut text = String::new();
        for scope in place.scopes() {
            if let Some(part) = self.scope_inventory(&scope).await? {
                text.push_str(&part);
            }
        }
        Ok((!text.is_empty()).then(|| format!("## Artifacts\n{text}")))
    }

    async fn scope_inventory(&self, scope: &ArtifactScope) -> Result<Option<Arc<str>>, ErrorInfo> {
        if let Some(known) = self.inventories.rendered.get(scope) {
            return Ok(known.value().clone());
        }
        let before = self.inventories.changes.load(Ordering::Acquire);
        let wanted = scope.clone();
        let artifacts = self.reading.read(move |reader| reader.artifacts(&wanted)).await?;
        let plan = match artifacts.iter().find(|artifact| is_plan(artifact)) {
            Some(plan) => self.text_of(plan).await?.map(|text| (plan.current_version, text)),
            None => None,
        };
        let text = render(&artifacts, plan);
        let text: Option<Arc<str>> = (!text.is_empty()).then(|| text.into());
        self.inventories.rendered.insert(scope.clone(), text.clone());
        if self.inventories.changes.load(Ordering::Acquire) != before {
            self.inventories.rendered.remove(scope);
        }
        Ok(text)
    }

    /// Forgets a session's inventory: its actors are gone.
    pub(crate) fn forget(&self, session: &SessionId) {
        self.inventories.void(&ArtifactScope::Session { session_id: session.clone() });
    }
}

fn is_plan(artifact: &Artifact) -> bool {
    artifact.name.as_deref() == Some(PLAN) && matches!(artifact.scope, ArtifactScope::Session { .. })
}

fn render(artifacts: &[Artifact], plan: Option<(u64, Arc<str>)>) -> String {
    let mut text = String::new();
    if let Some((version, plan)) = plan {
        text.push_str(&format!("### {PLAN} (version {version})\n{plan}\n"));
    }
    let mut named: Vec<&Artifact> =
        artifacts.iter().filter(|one| one.name.is_some() && !one.debug && !is_plan(one)).collect();
    let captured = artifacts.iter().filter(|one| one.name.is_none() && !one.debug).count();
    let left_out = named.len().saturating_sub(MAX_LINES);
    if left_out > 0 {
        named.sort_by_key(|artifact| std::cmp::Reverse(artifact.updated_at));
        named.truncate(MAX_LINES);
        named.sort_by(|a, b| a.name.cmp(&b.name));
    }
    for artifact in named {
        let by_hand = if artifact.source == ArtifactSource::UserUpload { ", uploaded by the user" } else { "" };
        let summary = artifact.summary.as_deref().unwrap_or(&artifact.title);
        text.push_str(&format!(
            "- {} (version {}, {}, {} bytes{by_hand}): {summary}\n",
            artifact.key(),
            artifact.current_version,
            artifact.content_type,
            artifact.size
        ));
    }
    if left_out > 0 {
        text.push_str(&format!("- … and {left_out} more: list_artifacts names them\n"));
    }
    if captured > 0 {
        text.push_str(&format!("- stored outputs of tools: {captured}; list_artifacts names them\n"));
    }
    text
}
