//! Inventory of artifacts that a run sees in every turn: the plan in full, and one line for each
//! other artifact (ART-8).
//!
//! It is rendered from rows, and cached until an artifact is stored or edited.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use dashmap::DashMap;
use soong_protocol::{Artifact, ArtifactScope, ArtifactSource};
use soong_storage::store::RecentArtifacts;

use super::PLAN;

/// Maximum number of artifacts of a scope in a prompt, the most recently changed ones;
/// `list_artifacts` returns all.
pub(super) const MAX_LINES: usize = 100;

/// Cached inventories, by scope.
#[derive(Default)]
pub(super) struct Inventories {
    rendered: DashMap<ArtifactScope, Option<Arc<str>>>,
    /// Number of changes. It prevents caching an inventory that was read during a change.
    changes: AtomicU64,
}

impl Inventories {
    /// Returns the cached inventory of a scope, if any.
    pub(super) fn cached(&self, scope: &ArtifactScope) -> Option<Option<Arc<str>>> {
        self.rendered.get(scope).map(|known| known.value().clone())
    }

    /// Returns the number of changes so far, for [`keep`](Self::insert_unless_changed).
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// Caches an inventory, unless there was a change after `changes` was read.
    pub(super) fn insert_unless_changed(
        &self,
        scope: &ArtifactScope,
        text: Option<Arc<str>>,
        changes: u64,
    ) {
        self.rendered.insert(scope.clone(), text);
        if self.changes() != changes {
            self.rendered.remove(scope);
        }
    }

    /// Removes the cached inventory of a scope after a change.
    pub(super) fn invalidate(&self, scope: &ArtifactScope) {
        self.changes.fetch_add(1, Ordering::AcqRel);
        self.rendered.remove(scope);
    }
}

fn is_plan(artifact: &Artifact) -> bool {
    artifact.name.as_deref() == Some(PLAN)
        && matches!(artifact.scope, ArtifactScope::Session { .. })
}

/// Renders the inventory of a scope. `plan` is the plan with its text, or without one if it is not
/// text.
pub(super) fn render(
    artifacts: RecentArtifacts,
    plan: Option<(Option<Arc<str>>, Artifact)>,
) -> String {
    let mut text = String::new();
    let RecentArtifacts {
        mut named,
        named_count,
        unnamed_count: captured,
    } = artifacts;
    let plans = u64::from(plan.as_ref().is_some_and(|(_, plan)| !plan.debug));
    if let Some((Some(content), plan)) = plan {
        text.push_str(&format!(
            "### {PLAN} (version {})\n{content}\n",
            plan.current_version
        ));
    }
    named.retain(|artifact| !is_plan(artifact));
    named.truncate(MAX_LINES);
    named.sort_by(|a, b| a.name.cmp(&b.name));
    let omitted = named_count.saturating_sub(plans + named.len() as u64);
    for artifact in named {
        let uploaded_note = if artifact.source == ArtifactSource::UserUpload {
            ", uploaded by the user"
        } else {
            ""
        };
        let summary = artifact.summary.as_deref().unwrap_or(&artifact.title);
        text.push_str(&format!(
            "- {} (version {}, {}, {} bytes{uploaded_note}): {summary}\n",
            artifact.key(),
            artifact.current_version,
            artifact.content_type,
            artifact.size
        ));
    }
    if omitted > 0 {
        text.push_str(&format!(
            "- … and {omitted} more: list_artifacts names them\n"
        ));
    }
    if captured > 0 {
        text.push_str(&format!(
            "- stored outputs of tools: {captured}; list_artifacts names them\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use soong_protocol::{ArtifactId, Provenance, SessionId};

    use super::*;

    fn artifact(name: &str, debug: bool) -> Artifact {
        Artifact {
            artifact_id: ArtifactId::new(name),
            scope: ArtifactScope::Session {
                session_id: SessionId::new("s"),
            },
            name: Some(name.to_owned()),
            withdrawn: None,
            title: name.to_owned(),
            filename: name.to_owned(),
            content_type: "text/plain".to_owned(),
            size: 1,
            current_version: 1,
            stored_version: 1,
            dirty: false,
            source: ArtifactSource::Agent,
            debug,
            provenance: Provenance::default(),
            summary: None,
            metadata: serde_json::Map::new(),
            created_at: Default::default(),
            updated_at: Default::default(),
        }
    }

    #[test]
    fn inventory_lists_100_artifacts_and_counts_the_rest() {
        for (others, has_plan, shown, more) in [
            (0, false, 0, None),
            (100, false, 100, None),
            (100, true, 100, None),
            (101, true, 100, Some(1)),
        ] {
            let mut named: Vec<Artifact> = (0..others)
                .map(|n| artifact(&format!("a{n:03}"), false))
                .collect();
            let plan = has_plan.then(|| (Some(Arc::from("- [ ] x")), artifact(PLAN, false)));
            named.extend(plan.iter().map(|(_, plan)| plan.clone()));
            let named_count = named.len() as u64;
            named.reverse();
            named.truncate(MAX_LINES + 1);
            let text = render(
                RecentArtifacts {
                    named,
                    named_count,
                    unnamed_count: 2,
                },
                plan,
            );
            assert_eq!(
                text.lines().filter(|line| line.starts_with("- a")).count(),
                shown,
                "{others} {has_plan}"
            );
            assert_eq!(text.contains("- [ ] x"), has_plan);
            let footer = text
                .lines()
                .find(|line| line.starts_with("- …"))
                .map(str::to_owned);
            assert_eq!(
                footer,
                more.map(|more: u32| format!("- … and {more} more: list_artifacts names them"))
            );
            assert!(text.contains("stored outputs of tools: 2"), "{text}");
        }
    }
}
