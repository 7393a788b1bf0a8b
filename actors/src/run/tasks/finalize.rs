//! Ends runs that have no actor, by using the same state machine as run actors.
//!
//! This applies to queued runs that are cancelled, to runs whose actor crashed too often, and to
//! runs that were interrupted when an earlier owner of the home exited. A run is ended after its
//! children (R7).

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
};

use soong_protocol::{
    ChildResult, EndReason, ErrorCode, ErrorInfo, Run, RunId, RunStatus, RunWrite, TraceId, Write,
};
use soong_storage::store::{Append, Fence, Reader, StoreError};

use crate::{
    budget::{BudgetAccount, Consumed},
    run::{
        core::Core,
        machine::{
            RunState,
            ending::Ending,
            input::{EndInput, RunInput},
            jobs::flush_documents::unknown_flush,
            lost_calls::excused_consumption,
            outcome::{RunOutcome, run_outcome},
        },
        registry::entry::{RunEntry, RunPhase},
        resolver::RunResolver,
        step::run_step,
        tasks::load::{read_ended, read_stored, run_events},
    },
    task_journal::TaskJournals,
};

/// The outcome of a run, and its result for the parent.
type Finalized = (RunOutcome, Option<Box<ChildResult>>);

/// Runs of the interrupted run trees, each with what it has consumed. Ended runs are included, and
/// parents precede their children. Empty if no interrupted run has a budget.
pub(crate) type BudgetUsage = Vec<(Run, Consumed)>;

/// Ends runs that have no actor.
pub(crate) struct Finalizer {
    pub(crate) core: Arc<Core>,
    pub(crate) resolver: Arc<RunResolver>,
    pub(crate) task_journals: Arc<TaskJournals>,
}

impl Finalizer {
    /// Ends a run in the background: cancels its descendants, waits until they have ended, and then
    /// ends the run. Retries after retryable errors, for example while the disk refuses writes.
    /// After any other error, callers that wait for the run get that error.
    pub(crate) fn finalize_orphan(self: &Arc<Self>, entry: Arc<RunEntry>, ending: Ending) {
        let finalizer = Arc::clone(self);
        entry.set_phase(RunPhase::Ending);
        self.core.lifetime.spawn(async move {
            entry.control.token.cancel();
            entry.status.set_state("ending", "");
            entry.opening.lock().await.is_opened = true;
            let (before, _) = entry.address.renew_tasks();
            before.wait().await;
            let attempt = || finalizer.finalize_tree(&entry, &ending);
            match finalizer
                .core
                .lifetime
                .keep_trying("ending a run", attempt)
                .await
            {
                Ok(Some((outcome, result))) => {
                    if entry.claim_journal() {
                        finalizer.task_journals.start(&entry.identity.run_id);
                    }
                    finalizer.core.runs.run_ended(&entry, outcome, result);
                }
                // The run was never recorded: there is nothing to end.
                Ok(None) => finalizer.core.runs.abandon_start(&entry),
                Err(error) if error.code == ErrorCode::Closing => {} // shutdown marks the run as interrupted
                Err(error) => finalizer.core.runs.run_unrecorded(&entry, error),
            }
        });
    }

    /// Ends all descendants of a run, then the run. Returns `None` if the run is not recorded.
    async fn finalize_tree(
        &self,
        entry: &RunEntry,
        ending: &Ending,
    ) -> Result<Option<Finalized>, ErrorInfo> {
        self.finalize_children(&entry.identity.run_id).await?;
        match self
            .finalize(
                &entry.identity.run_id,
                &entry.identity.trace_id,
                ending.clone(),
            )
            .await
        {
            Ok(finalized) => Ok(Some(finalized)),
            Err(error) if error.code == ErrorCode::RunNotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Ends the descendants of a run: cancels each open child that is registered and waits for it,
    /// and finalizes each open child that is not.
    async fn finalize_children(&self, run_id: &RunId) -> Result<(), ErrorInfo> {
        let id = run_id.clone();
        let children = self
            .core
            .reader
            .read(move |reader| reader.children(&id))
            .await?;
        for child in children
            .into_iter()
            .filter(|child| !child.status.is_terminal())
        {
            match self.core.runs.get(&child.run_id) {
                Some(entry) => {
                    self.core.runs.cancel(&entry);
                    entry.wait_outcome().await?;
                }
                None => {
                    let ending = Ending {
                        status: RunStatus::Cancelled,
                        reason: EndReason::Cancelled,
                        error: None,
                    };
                    self.finalize(&child.run_id, &child.trace_id, ending)
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Ends a run that has no actor and no open children. If the run has ended already, its outcome
    /// does not change.
    ///
    /// # Errors
    /// - `run_not_found` if the run is not recorded.
    /// - `storage_error`, retryable while the disk refuses writes.
    /// - `internal_error`, retryable, if children are open.
    pub(crate) async fn finalize(
        &self,
        run_id: &RunId,
        trace_id: &TraceId,
        ending: Ending,
    ) -> Result<Finalized, ErrorInfo> {
        let open = Append {
            fence: None,
            writes: vec![Write::Run(RunWrite::NewEpoch(run_id.clone()))],
        };
        let ack = self
            .core
            .journal
            .append_and_wait(open)
            .await
            .map_err(|error| match error {
                StoreError::NotFound(what) => {
                    ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no {what}"))
                }
                error => ErrorInfo::from(&error),
            })?;
        let mut state = self.read_state(run_id, trace_id).await?;
        let flush = match self.core.artifacts.flush_run(trace_id, run_id).await {
            Err(error) if !error.retryable => unknown_flush(error),
            outcome => outcome?,
        };
        // Budget reservations are kept in memory only. A run that was interrupted in an earlier
        // process has none.
        let here = self
            .core
            .runs
            .get(run_id)
            .filter(|entry| !entry.published().interrupted);
        let step = run_step(
            &mut state,
            RunInput::End(EndInput::Abandon {
                ending,
                flushed: flush,
            }),
            here.as_deref(),
        );
        if !step.writes.is_empty() {
            let epoch = ack.epoch.unwrap_or_default();
            let fence = Fence {
                run_id: run_id.clone(),
                epoch,
                number: 1,
                active_ms: None,
            };
            let append = Append {
                fence: Some(fence),
                writes: step.writes,
            };
            self.core
                .journal
                .append_and_wait(append)
                .await
                .map_err(|error| match error {
                    // Another task is finalizing the run; the next attempt reads what it wrote.
                    StoreError::StaleIncarnation(_) => {
                        ErrorInfo::retryable(ErrorCode::StorageError, error.to_string())
                    }
                    error => ErrorInfo::from(&error),
                })?;
        }
        // A reservation that was lost with the run's actor no longer counts as used.
        if let Some(account) = self
            .core
            .runs
            .get(run_id)
            .and_then(|entry| entry.control.budget.clone())
        {
            account.report(state.consumed());
        }
        // The run has no outcome if children were added in the meantime.
        let open = || {
            ErrorInfo::retryable(
                ErrorCode::InternalError,
                "the run could not be ended: it has open children",
            )
        };
        run_outcome(&state).ok_or_else(open)
    }

    /// Rebuilds the state of a run that has no actor yet, so that the run can be changed.
    pub(super) async fn read_queued(&self, entry: &RunEntry) -> Result<RunState, ErrorInfo> {
        let run_id = entry.identity.run_id.clone();
        let trace_id = entry.identity.trace_id.clone();
        let (run, stored) = self
            .core
            .reader
            .read(move |reader| read_stored(reader, &run_id, &trace_id))
            .await?;
        let project = self.core.runs.project_dir(&run.session_id);
        let spec = self.resolver.resolve(&run, &project)?;
        Ok(RunState::rebuild(Arc::new(spec), stored))
    }

    /// Rebuilds the state of a run from the store. If its history is corrupt, uses only the record
    /// of the run.
    async fn read_state(&self, run_id: &RunId, trace_id: &TraceId) -> Result<RunState, ErrorInfo> {
        let id = run_id.clone();
        let trace = trace_id.clone();
        let read = move |reader: &dyn Reader| match read_stored(reader, &id, &trace) {
            Err(error @ StoreError::Corrupt(_)) => {
                let run = reader.run(&id)?.ok_or(error)?;
                Ok((run, None))
            }
            read => read.map(|(run, stored)| (run, Some(stored))),
        };
        let (run, stored) = self.core.reader.read(read).await?;
        let spec = Arc::new(self.resolver.resolve_ended(&run));
        Ok(match stored {
            Some(stored) => RunState::rebuild(spec, stored),
            None => RunState::without_history(spec, run.started_at, run.usage),
        })
    }

    /// Reads the outcome of a run; `None` if it has not ended.
    pub(crate) async fn read_outcome(&self, run: Run) -> Result<Option<RunOutcome>, ErrorInfo> {
        if run.completed_at.is_none() {
            return Ok(None);
        }
        let spec = self.resolver.resolve_ended(&run);
        let stored = self
            .core
            .reader
            .read(move |reader| read_ended(reader, &run))
            .await?;
        let state = RunState::rebuild(Arc::new(spec), stored);
        Ok(run_outcome(&state).map(|(outcome, _)| outcome))
    }

    /// Ends the given runs as failed with the reason `Interrupted`, children first.
    pub(crate) async fn finalize_interrupted(&self, mut runs: Vec<Run>) -> Result<(), ErrorInfo> {
        runs.sort_by_key(|run| std::cmp::Reverse(run.depth));
        for run in &runs {
            let error = ErrorInfo::new(
                ErrorCode::Interrupted,
                "the process ended while the run was active: continue the session to resume its work",
            );
            let ending = Ending {
                status: RunStatus::Failed,
                reason: EndReason::Interrupted,
                error: Some(error),
            };
            self.finalize(&run.run_id, &run.trace_id, ending).await?;
        }
        Ok(())
    }

    /// Reads the runs whose usage counts against the budgets of interrupted runs (BUD-1).
    pub(crate) async fn read_used(&self, runs: &[Run]) -> Result<BudgetUsage, ErrorInfo> {
        let ids: HashSet<&RunId> = runs.iter().map(|run| &run.run_id).collect();
        let is_top = |run: &&Run| {
            run.parent_run_id
                .as_ref()
                .is_none_or(|parent| !ids.contains(parent))
        };
        let roots: Vec<Run> = runs.iter().filter(is_top).cloned().collect();
        if runs
            .iter()
            .all(|run| run.settings.options.budget.is_unlimited())
        {
            return Ok(Vec::new());
        }
        let read = move |reader: &dyn Reader| {
            let mut tree = Vec::new();
            let mut open: VecDeque<Run> = roots.into();
            while let Some(run) = open.pop_front() {
                let children = reader.children(&run.run_id)?;
                let mut consumed = Consumed::of(&run.usage, children.len());
                if run.usage.estimated {
                    consumed =
                        consumed.minus(excused_consumption(&run_events(reader, &run.run_id)?));
                }
                tree.push((run, consumed));
                open.extend(children);
            }
            Ok(tree)
        };
        self.core.reader.read(read).await
    }

    /// Registers interrupted runs in the given order, which must be parents first, and restores the
    /// usage of their budgets. If a cancel request is recorded for a run, cancels its token, so
    /// that the run starts nothing new.
    pub(crate) fn register_interrupted(&self, runs: &[Run], used: &BudgetUsage) {
        let mut has_new = false;
        for run in runs {
            let is_new = !self.core.runs.contains(&run.run_id);
            let entry = self.core.runs.register(run);
            if is_new {
                entry.set_interrupted(true);
            }
            if run.cancel_requested {
                entry.control.token.cancel();
            }
            has_new |= is_new;
        }
        if !has_new {
            return; // all runs were registered before, so their budgets are up to date
        }
        // A run without a budget account of its own, such as an ended run, counts against the
        // account of its parent. Parents come first in `used`, so that account is already known.
        let mut accounts: HashMap<&RunId, BudgetAccount> = HashMap::new();
        for (run, consumed) in used {
            let parent_account = || accounts.get(run.parent_run_id.as_ref()?).cloned();
            let own = self
                .core
                .runs
                .get(&run.run_id)
                .and_then(|entry| entry.control.budget.clone());
            if let Some(account) = own.or_else(parent_account) {
                account.report_for(&run.run_id, run.parent_run_id.as_ref(), *consumed);
                accounts.insert(&run.run_id, account);
            }
        }
    }
}
