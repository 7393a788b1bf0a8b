//! The metrics of a runtime: its counters, and the current state of runs, sessions, gateways and
//! streams.
//!
//! Sends no message to an actor: all values are read from shared registries.

use std::collections::BTreeMap;

use soong_protocol::RunStatus;

use super::services::Services;
use crate::{
    actor_tree::ActorKind,
    metrics::{Metrics, count},
    run::RunPhase,
};

pub(super) fn read(services: &Services) -> Metrics {
    let unfinished = [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting];
    let mut live_runs: BTreeMap<&'static str, u64> =
        unfinished.map(|status| (status.as_str(), 0)).into();
    let mut queued_runs = 0;
    let mut queued_children = 0;
    for run in services.core.runs.all() {
        let published = run.published();
        let status = match published.phase {
            _ if !published.started => RunStatus::Queued,
            RunPhase::WaitingForUser => RunStatus::Waiting,
            _ => RunStatus::Running,
        };
        drop(published);
        *live_runs.entry(status.as_str()).or_default() += 1;
        if status == RunStatus::Queued {
            *(if run.identity.parent.is_some() {
                &mut queued_children
            } else {
                &mut queued_runs
            }) += 1;
        }
    }
    let gateways = services.resolver.models.all().into_iter();
    let restarts = ActorKind::ALL
        .into_iter()
        .map(|kind| (kind.as_str(), services.actor_tree.restarts(kind)));
    Metrics {
        live_runs,
        live_sessions: count(services.sessions.len()),
        queued_runs,
        queued_children,
        gateways: gateways
            .map(|gateway| (gateway.profile.to_string(), gateway.metrics()))
            .collect(),
        queued_appends: count(services.core.journal.queue_len()),
        journal: services.core.journal.stats(),
        subscribers: services.core.bus.metrics(),
        restarts: restarts.collect(),
        ..services.core.journal.meter().snapshot()
    }
}
