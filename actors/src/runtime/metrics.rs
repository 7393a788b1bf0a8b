//! The metrics of a runtime: its counters, and the current state of runs, sessions, gateways and streams.
//!
//! No message is sent to an actor: all values are read from shared registries.

use std::{collections::BTreeMap, sync::atomic::Ordering::Relaxed};

use soong_protocol::RunStatus;

use crate::{
    live::Shared,
    meter::{Metrics, count},
    observatory::ActorKind,
    run::WaitsFor,
};

pub(super) fn read(shared: &Shared) -> Metrics {
    let standing = [RunStatus::Queued, RunStatus::Running, RunStatus::Waiting];
    let mut live_runs: BTreeMap<&'static str, u64> = standing.map(|status| (status.as_str(), 0)).into();
    let (mut queued_runs, mut queued_children) = (0, 0);
    for run in &shared.runs {
        let status = match () {
            () if !run.begun.load(Relaxed) => RunStatus::Queued,
            () if run.waits_for(WaitsFor::People) => RunStatus::Waiting,
            () => RunStatus::Running,
        };
        *live_runs.entry(status.as_str()).or_default() += 1;
        if status == RunStatus::Queued {
            *(if run.parent_run_id.is_some() { &mut queued_children } else { &mut queued_runs }) += 1;
        }
    }
    let gateways = shared.profiles.gateways.iter();
    let restarts = ActorKind::ALL.into_iter().map(|kind| (kind.as_str(), shared.observatory.restarts(kind)));
    Metrics {
        live_runs,
        live_sessions: count(shared.sessions.len()),
        queued_runs,
        queued_children,
        gateways: gateways.map(|gateway| (gateway.key().clone(), gateway.metrics())).collect(),
        queued_appends: count(shared.journal.depth()),
        journal: shared.journal.stats(),
        subscribers: shared.hub.metrics(),
        restarts: restarts.collect(),
        ..shared.journal.meter().counted()
    }
}
