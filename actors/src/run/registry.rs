//! Runs that have not ended, and the actors that are notified about them.
//!
//! Readers look up a run without asking an actor. Elsewhere: the entry of one run
//! (`registry/entry.rs`), starting its actor (`supervision/spawner.rs`).

pub(super) mod address;
pub(super) mod entry;
pub(super) mod view;

use std::{collections::HashSet, path::Path, sync::Arc};

use dashmap::DashMap;
use soong_protocol::{
    ChildResult, ErrorInfo, PermissionMode, Run, RunId, RunStatus, SessionId, StatsPair,
};

use crate::{
    actor_base::{Lifetime, Mailbox, restart},
    actor_tree::{ActorKind, ActorStatus, ActorTree},
    budget::BudgetAccount,
    clock::now,
    journal::JournalHandle,
    run::{
        clock::RunClock,
        machine::{
            input::{ChildInput, EndInput, RunInput},
            outcome::RunOutcome,
        },
        message::{RunMsg, RunSupervisorMsg, SubAgentMsg},
        otel_spans,
        registry::{
            address::SendOutcome,
            entry::{RunControl, RunEntry, RunPhase},
            view::{RunStatusSource, initial_view},
        },
    },
};

/// Interface through which runs use their session.
pub(crate) trait RunSession: Send + Sync {
    /// Frees the queue place of a user run that has ended, or was never accepted.
    fn run_ended(&self, run: RunId);

    /// Cancels a user run that has not started.
    fn cancel_queued(&self, run: RunId);

    /// Interrupts the runs of the session, because a part that they need is permanently lost.
    fn interrupt(&self, failure: ErrorInfo);
}

/// The actors of a session that start its runs and are notified about them.
#[derive(Clone)]
pub(crate) struct SessionLinks {
    pub(crate) session: Arc<dyn RunSession>,
    pub(crate) runs: Mailbox<RunSupervisorMsg>,
    pub(crate) sub_agents: Mailbox<SubAgentMsg>,
    pub(crate) project_dir: Arc<Path>,
}

/// All runs of a runtime that have not ended.
pub(crate) struct RunRegistry {
    runs: DashMap<RunId, Arc<RunEntry>>,
    sessions: DashMap<SessionId, SessionLinks>,
    actor_tree: Arc<ActorTree>,
    journal: JournalHandle,
    lifetime: Lifetime,
}

impl RunRegistry {
    pub(crate) fn new(
        actor_tree: Arc<ActorTree>,
        journal: JournalHandle,
        lifetime: Lifetime,
    ) -> Self {
        Self {
            runs: DashMap::new(),
            sessions: DashMap::new(),
            actor_tree,
            journal,
            lifetime,
        }
    }

    /// Returns a run that has not ended.
    pub(crate) fn get(&self, id: &RunId) -> Option<Arc<RunEntry>> {
        self.runs.get(id).map(|run| Arc::clone(run.value()))
    }

    /// Returns whether a run is registered.
    pub(crate) fn contains(&self, id: &RunId) -> bool {
        self.runs.contains_key(id)
    }

    /// Returns the number of registered runs.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    /// Returns the registered runs for which `filter` holds. `filter` must not use the registry,
    /// which is locked.
    pub(crate) fn select(&self, filter: impl Fn(&RunEntry) -> bool) -> Vec<Arc<RunEntry>> {
        self.runs
            .iter()
            .filter(|run| filter(run))
            .map(|run| Arc::clone(run.value()))
            .collect()
    }

    /// Returns all registered runs.
    pub(crate) fn all(&self) -> Vec<Arc<RunEntry>> {
        self.select(|_| true)
    }

    /// Registers a run, or returns its existing entry. If the runtime takes no new work, the entry
    /// is removed again, with the phase [`RunPhase::Interrupted`].
    pub(crate) fn register(&self, run: &Run) -> Arc<RunEntry> {
        if let Some(run) = self.get(&run.run_id) {
            return run;
        }
        let entry = self.new_entry(run);
        let registered = Arc::clone(self.runs.entry(run.run_id.clone()).or_insert(entry).value());
        // Closing may have listed the runs that it interrupts already, without this one.
        if !self.lifetime.is_open() {
            self.deregister(
                &registered,
                RunPhase::Interrupted(self.lifetime.interruption()),
            );
        }
        registered
    }

    fn new_entry(&self, run: &Run) -> Arc<RunEntry> {
        let parent = run.parent_run_id.as_ref().and_then(|id| self.get(id));
        if let Some(parent) = &parent {
            parent.count_child();
        }
        let account = parent
            .as_ref()
            .and_then(|parent| parent.control.budget.as_ref());
        let account = BudgetAccount::open(&run.run_id, account, run.settings.options.budget);
        let span = otel_spans::run_span(run, parent.as_ref().map(|parent| parent.span()).as_ref());
        let clock = Arc::new(RunClock::default());
        clock.progress(now());
        let supervisor = match run.parent_run_id {
            Some(_) => ActorKind::SubAgentSupervisor,
            None => ActorKind::RunSupervisor,
        };
        let status = self.actor_tree.register(
            ActorKind::Run,
            run.run_id.as_str(),
            Some(ActorStatus::actor_id(supervisor, run.session_id.as_str())),
            restart::RUN.label,
            Some(initial_view(run)),
        );
        let budget = account
            .clone()
            .filter(|_| !run.settings.options.budget.is_unlimited());
        let wall_time_s = run.settings.options.budget.wall_time_s;
        status.set_source(RunStatusSource {
            clock: Arc::clone(&clock),
            budget,
            wall_time_s,
        });
        status.set_state("queued", "");
        let token = parent
            .map(|parent| parent.control.token.child_token())
            .unwrap_or_default();
        let control = RunControl {
            token,
            budget: account,
            clock,
        };
        Arc::new(RunEntry::new(run, control, status, span))
    }

    /// Removes a run that has ended, or was never accepted, and publishes its final phase.
    pub(crate) fn deregister(&self, entry: &RunEntry, phase: RunPhase) {
        self.runs.remove(&entry.identity.run_id);
        match &phase {
            RunPhase::Ended(outcome) => self.actor_tree.deregister_ended(outcome.run_end()),
            _ => self
                .actor_tree
                .deregister(ActorKind::Run, entry.identity.run_id.as_str()),
        }
        entry.set_ended(phase);
    }

    /// Interrupts and removes all registered runs of a session. Does not stop their actors.
    pub(crate) fn interrupt_session(&self, session: &SessionId) {
        for run in self.select(|run| run.identity.session_id == *session) {
            self.deregister(&run, RunPhase::Interrupted(self.lifetime.interruption()));
        }
    }

    /// Removes a run that has ended, and notifies its supervisor, its parent and the callers that
    /// wait for it.
    pub(crate) fn run_ended(
        &self,
        entry: &RunEntry,
        outcome: RunOutcome,
        result: Option<Box<ChildResult>>,
    ) {
        let run_id = &entry.identity.run_id;
        let status = outcome.status.as_str();
        let error = outcome.error.as_ref().map(|error| error.code.as_str());
        match entry.identity.parent_id() {
            None => tracing::info!(run = %run_id, status, error, "run ended"),
            Some(parent) => {
                tracing::debug!(run = %run_id, %parent, status, error, "child run ended")
            }
        }
        self.deregister(entry, RunPhase::Ended(Arc::new(outcome)));
        self.notify_supervisors(entry, result);
    }

    /// Removes a run whose end cannot be recorded. Callers that wait for it get `error`. The store
    /// still shows the run as open, so the next process that opens the home resumes it.
    pub(crate) fn run_unrecorded(&self, entry: &RunEntry, error: ErrorInfo) {
        tracing::error!(run = %entry.identity.run_id, %error, "failed to record the end of a run");
        let result = entry
            .identity
            .parent_id()
            .and(entry.identity.trace_id.child_mode())
            .map(|mode| {
                Box::new(ChildResult {
                    mode,
                    sub_trace_id: entry.identity.trace_id.clone(),
                    run_id: entry.identity.run_id.clone(),
                    status: RunStatus::Failed,
                    summary: String::new(),
                    findings: Vec::new(),
                    passed: None,
                    artifacts: Vec::new(),
                    stats: StatsPair::zero(),
                    error: Some(error.clone()),
                })
            });
        self.deregister(entry, RunPhase::Unrecorded(error.clone()));
        self.journal
            .publish_lost_run(entry.unrecorded_report(error));
        self.notify_supervisors(entry, result);
    }

    /// Removes a run that was not accepted, and frees its place in the queue of its session.
    pub(crate) fn abandon_start(&self, entry: &RunEntry) {
        self.deregister(entry, RunPhase::Interrupted(self.lifetime.interruption()));
        if let Some(links) = self
            .links(&entry.identity.session_id)
            .filter(|_| entry.identity.parent.is_none())
        {
            links.session.run_ended(entry.identity.run_id.clone());
        }
    }

    fn notify_supervisors(&self, entry: &RunEntry, result: Option<Box<ChildResult>>) {
        let run_id = entry.identity.run_id.clone();
        let parent = entry.identity.parent_id().cloned();
        match (self.links(&entry.identity.session_id), parent) {
            (Some(links), None) => links.session.run_ended(run_id),
            (Some(links), parent) => {
                links.sub_agents.send(SubAgentMsg::Ended {
                    run_id,
                    parent,
                    result,
                });
            }
            // Without a session there is no supervisor, but there may be a parent.
            (None, Some(parent)) => self.notify_parent(&parent, result),
            (None, None) => {}
        }
    }

    /// Notifies a parent that one of its children has ended.
    pub(crate) fn notify_parent(&self, parent: &RunId, result: Option<Box<ChildResult>>) {
        if let (Some(parent), Some(result)) = (self.get(parent), result) {
            self.notify(&parent, RunInput::Child(ChildInput::Ended(result)));
        }
    }

    /// Sends an input to a run. Returns `false` if no actor receives it: the actor has crashed, and
    /// the next one reads the input from the store, or the run has ended.
    pub(crate) fn notify(&self, entry: &RunEntry, input: RunInput) -> bool {
        self.send(entry, RunMsg::Input(Box::new(input)))
    }

    /// Sends a message to a run, like [`notify`](Self::notify); a passivated run gets its actor
    /// back for it (ACT-7).
    pub(crate) fn send(&self, entry: &RunEntry, message: RunMsg) -> bool {
        let outcome = entry.address.send(message);
        if outcome == SendOutcome::BufferedFirst
            && let Some(links) = self.links(&entry.identity.session_id)
        {
            match entry.identity.parent {
                Some(_) => links
                    .sub_agents
                    .send(SubAgentMsg::Activate(entry.identity.run_id.clone())),
                None => links
                    .runs
                    .send(RunSupervisorMsg::Activate(entry.identity.run_id.clone())),
            };
        }
        outcome != SendOutcome::Dropped
    }

    /// Returns the permission mode that is in force for a run: the most restrictive one of the run
    /// and its ancestors.
    pub(crate) fn permission_mode(&self, entry: &RunEntry) -> PermissionMode {
        let mode = entry.published().permission_mode;
        self.permission_mode_of_parent(entry)
            .map_or(mode, |of_parent| of_parent.min(mode))
    }

    /// Returns the permission mode that is in force for the parent of a run. `None` if it has no
    /// parent, or the parent has ended.
    pub(crate) fn permission_mode_of_parent(&self, entry: &RunEntry) -> Option<PermissionMode> {
        let parent = entry.identity.parent_id().and_then(|id| self.get(id))?;
        Some(self.permission_mode(&parent))
    }

    /// Cancels a run and everything below it: tokens first, so that nothing new starts (RT-6).
    pub(crate) fn cancel(&self, entry: &RunEntry) {
        entry.control.token.cancel();
        entry.status.set_state("cancelling", "");
        if entry.has_started() {
            self.notify(entry, RunInput::End(EndInput::Cancel));
            return;
        }
        if let Some(links) = self.links(&entry.identity.session_id) {
            match entry.identity.parent {
                Some(_) => drop(
                    links
                        .sub_agents
                        .send(SubAgentMsg::Cancel(entry.identity.run_id.clone())),
                ),
                None => links.session.cancel_queued(entry.identity.run_id.clone()),
            }
        }
    }

    /// Returns the sessions in which at least one run waits for a user, and no other run can make
    /// progress.
    pub(crate) fn sessions_awaiting_input(&self) -> HashSet<SessionId> {
        let mut states = Vec::new();
        for run in self.all() {
            let parent = run
                .identity
                .parent
                .as_ref()
                .and_then(|parent| self.get(&parent.run_id));
            let is_behind_parent = parent.is_some_and(|parent| !parent.has_started());
            let is_behind_session = run.identity.parent.is_none();
            let published = run.published();
            let is_behind = !published.started && (is_behind_session || is_behind_parent);
            states.push((
                run.identity.session_id.clone(),
                is_behind,
                published.phase.clone(),
            ));
        }
        awaiting_input(states.into_iter())
    }

    /// Sets the actors of a session.
    pub(crate) fn link_session(&self, id: SessionId, links: SessionLinks) {
        self.sessions.insert(id, links);
    }

    /// Removes the actors of a session.
    pub(crate) fn unlink_session(&self, id: &SessionId) {
        self.sessions.remove(id);
    }

    /// Removes the actors of all sessions.
    pub(crate) fn unlink_all(&self) {
        self.sessions.clear();
    }

    /// Returns the actors of a session, if it has any.
    pub(crate) fn links(&self, id: &SessionId) -> Option<SessionLinks> {
        self.sessions.get(id).map(|links| links.value().clone())
    }

    /// Returns the project folder of a session; `.` if the session has no actors.
    pub(crate) fn project_dir(&self, id: &SessionId) -> Arc<Path> {
        self.links(id)
            .map_or_else(|| Path::new(".").into(), |links| links.project_dir)
    }
}

/// Returns the sessions that await input. Each item of `runs` is a run's session, whether it waits
/// for the run ahead of it or for the start of its parent, and its phase.
fn awaiting_input(runs: impl Iterator<Item = (SessionId, bool, RunPhase)>) -> HashSet<SessionId> {
    let mut waiting = HashSet::new();
    let mut running = HashSet::new();
    for (session, is_behind, phase) in runs {
        match phase {
            RunPhase::WaitingForUser => drop(waiting.insert(session)),
            RunPhase::WaitingForChildren => {}
            // It waits, or is being removed from the queue.
            _ if is_behind => {}
            _ => drop(running.insert(session)),
        }
    }
    waiting.retain(|session| !running.contains(session));
    waiting
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_awaits_input_if_no_other_run_can_make_progress() {
        let waiting_run = (false, RunPhase::WaitingForUser);
        for (others, want) in [
            (vec![], true),
            (vec![(false, RunPhase::WaitingForChildren)], true),
            (vec![(false, RunPhase::Running)], false),
            // A sub-agent that waits for a slot.
            (vec![(false, RunPhase::Queued)], false),
            (vec![(true, RunPhase::Queued)], true),
            // Cancelled in the queue, while the disk refuses to record its end.
            (vec![(true, RunPhase::Ending)], true),
            (vec![(false, RunPhase::Ending)], false),
        ] {
            let runs = [waiting_run.clone()].into_iter().chain(others.clone());
            let found = awaiting_input(
                runs.map(|(is_behind, phase)| (SessionId::new("s"), is_behind, phase)),
            );
            assert_eq!(found.len(), usize::from(want), "{others:?}");
        }
    }
}
