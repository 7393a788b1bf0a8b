//! Configuration, state and metrics of a runtime.
//!
//! Elsewhere: the health of the store and the gateways (`health.rs`), interrupted runs
//! (`recovery.rs`).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use soong_model::TokenDeviation;
use soong_protocol::{Config, SessionId, ToolSpec, api::SettingsDigests};

use super::{Runtime, metrics};
use crate::{metrics::Metrics, preset::KnownPreset, run::RunEntry, skill::Skills};

/// Configuration, state and metrics of a runtime: see [`Runtime::info`].
#[derive(Debug, Clone, Copy)]
pub struct RuntimeInfo<'a> {
    pub(super) runtime: &'a Runtime,
}

impl<'a> RuntimeInfo<'a> {
    /// Returns the number of runs that have not ended, including those of sub-agents.
    pub fn live_runs(self) -> usize {
        self.runtime.inner.services.core.runs.len()
    }

    /// Returns the number of runs that a user started and that have not ended.
    pub fn live_user_runs(self) -> usize {
        self.runtime
            .inner
            .services
            .core
            .runs
            .select(|run| run.identity.parent.is_none())
            .len()
    }

    /// Returns the number of user runs that are running or will run without further input. Runs of
    /// sessions that only wait for user input are not counted.
    pub fn active_user_runs(self) -> usize {
        self.active_runs().len()
    }

    /// Returns the sessions of the runs that [`RuntimeInfo::active_user_runs`] counts.
    pub fn active_sessions(self) -> BTreeSet<SessionId> {
        self.active_runs()
            .iter()
            .map(|run| run.identity.session_id.clone())
            .collect()
    }

    fn active_runs(self) -> Vec<Arc<RunEntry>> {
        let parked = self
            .runtime
            .inner
            .services
            .core
            .runs
            .sessions_awaiting_input();
        let is_active = |entry: &RunEntry| {
            entry.identity.parent.is_none() && !parked.contains(&entry.identity.session_id)
        };
        self.runtime.inner.services.core.runs.select(is_active)
    }

    /// Returns the number of model calls for names of traces that have outlived their runs. Such a
    /// call takes at most 20 s, and closing the runtime ends it, so a program that closes the
    /// runtime after a run may wait for it.
    pub fn pending_names(self) -> usize {
        self.runtime.inner.services.detached_jobs.len()
    }

    /// Returns the skills that runs may load, except those of projects (MEM-1).
    pub fn skills(self) -> Arc<Skills> {
        Arc::clone(&self.runtime.inner.services.resolver.skills)
    }

    /// Returns the presets, each with its source, sorted by name (SUB-5).
    pub fn presets(self) -> &'a [KnownPreset] {
        &self.runtime.inner.presets
    }

    /// Lists the tools that can be given to runs (TOOL-1), including the current tools of MCP
    /// servers.
    pub fn tools(self) -> Vec<ToolSpec> {
        self.runtime
            .inner
            .services
            .resolver
            .mcp
            .registry()
            .specs()
            .map(|spec| ToolSpec::clone(spec))
            .collect()
    }

    /// Returns the counters since the runtime was built, and the current state. Sends no message to
    /// any actor.
    pub fn metrics(self) -> Metrics {
        metrics::read(&self.runtime.inner.services)
    }

    /// Returns the configuration in use.
    pub fn config(self) -> &'a Config {
        &self.runtime.inner.services.core.config
    }

    /// Returns digests of the settings in use.
    pub fn settings_digests(self) -> &'a SettingsDigests {
        &self.runtime.inner.services.settings_digests
    }

    /// Returns the home directory.
    pub fn home(self) -> &'a Path {
        &self.runtime.inner.services.home
    }

    /// Returns the project directory of new sessions.
    pub fn project_dir(self) -> &'a Path {
        &self.runtime.inner.project_dir
    }

    /// Returns by how much local token counts of prompts differ from the counts that providers
    /// report, by model (CTX-4).
    pub fn token_deviations(self) -> BTreeMap<String, TokenDeviation> {
        self.runtime.inner.services.token_deviations.all()
    }

    /// Returns whether the runtime is closing or has closed, and so accepts no new work. Cheap,
    /// unlike [`Tree::snapshot`](crate::Tree::snapshot).
    pub fn is_closing(self) -> bool {
        self.runtime.inner.services.core.lifetime.is_closing()
    }
}
