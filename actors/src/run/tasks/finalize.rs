//! Burials: ends runs that have no actor, by the same machine.
//!
//! For queued runs that are cancelled, runs that crash too often, and runs that an earlier owner
//! of the home left behind. A run is buried after its children (R7).

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, atomic::Ordering},
};

use soong_protocol::{EndReason, ErrorCode, ErrorInfo, Run, RunId, RunStatus, TraceId, Write};
use soong_storage::store::{Append, Fence, Reader, StoreError};

use crate::{
    actor_base::keep_trying,
    budget::{Purse, Spent},
    live::Shared,
    run::{
        machine::{
            ending::Ending,
            input::News,
            outcome::{RunOutcome, run_outcome},
            state::RunState,
        },
        registry::entry::LiveRun,
        step::decide,
        tasks::{
            load::{read_own, read_stored},
            not_found_out,
        },
    },
};

/// How a buried run ended, and what it brings to its parent.
type Buried = (RunOutcome, Option<Box<soong_protocol::ChildResult>>);

/// Cancels what is below a run, waits for it, and ends the run; tries again while the disk refuses. A run whose end
/// can never be recorded is lost: those who wait hear why.
pub(crate) fn give_up(shared: &Arc<Shared>, live: Arc<LiveRun>, ending: Ending) {
    let shared = Arc::clone(shared);
    live.over.store(true, Ordering::Release);
    let tracker = shared.tasks.clone();
    tracker.spawn(async move {
        live.token.cancel();
        live.gauge.show("ending", "");
        let (before, _) = live.renew_work();
        before.wait().await;
        match keep_trying(&shared.closing, "ending a run", || bury_tree(&shared, &live, &ending)).await {
            Ok(Some((outcome, result))) => {
                if live.begins_journal() {
                    shared.task_journals.follow(&live.run_id);
                }
                shared.run_ended(&live, outcome, result);
            }
            // It was never recorded: there is nothing to end.
            Ok(None) => shared.never_began(&live),
            Err(error) if error.code == ErrorCode::Closing => {} // closing parks it
            Err(error) => shared.run_lost(&live, error),
        }
    });
}

/// Ends a run after everything below it; `None` = no such run is recorded.
async fn bury_tree(shared: &Arc<Shared>, live: &LiveRun, ending: &Ending) -> Result<Option<Buried>, ErrorInfo> {
    bury_below(shared, &live.run_id).await?;
    match bury(shared, &live.run_id, &live.trace_id, ending.clone()).await {
        Ok(buried) => Ok(Some(buried)),
        Err(error) if error.code == ErrorCode::RunNotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Ends what is below a run: cancels what is alive, buries what was recorded and never started.
async fn bury_below(shared: &Arc<Shared>, run_id: &RunId) -> Result<(), ErrorInfo> {
    let id = run_id.clone();
    let children = shared.reading.read(move |reader| reader.children(&id)).await?;
    for child in children.into_iter().filter(|child| !child.status.is_terminal()) {
        let live = shared.runs.get(&child.run_id).map(|live| Arc::clone(live.value()));
        match live {
            Some(live) => {
                shared.cancel_run(&live);
                live.outcome().await?;
            }
            None => {
                let ending = Ending { status: RunStatus::Cancelled, reason: EndReason::Cancelled, error: None };
                bury(shared, &child.run_id, &child.trace_id, ending).await?;
            }
        }
    }
    Ok(())
}

/// Ends a run that has no actor and no open children. A run that has ended keeps its end.
pub(crate) async fn bury(
    shared: &Shared,
    run_id: &RunId,
    trace_id: &TraceId,
    ending: Ending,
) -> Result<Buried, ErrorInfo> {
    let open = Append { fence: None, writes: vec![Write::OpenRun(run_id.clone())] };
    let ack = shared.journal.append_and_wait(open).await.map_err(|error| match error {
        StoreError::Missing(what) => ErrorInfo::new(ErrorCode::RunNotFound, format!("there is no {what}")),
        error => ErrorInfo::from(&error),
    })?;
    let mut state = read_state(shared, run_id, trace_id).await?;
    let flushed = match shared.artifacts.flush_run(trace_id, run_id).await {
        Err(error) if !error.retryable => not_found_out(error),
        outcome => outcome?,
    };
    // What a call held that was lost in this process is known, and in no other.
    let here = shared.run(run_id).filter(|live| !live.left_behind.load(Ordering::Acquire));
    let step = decide(&mut state, News::Abandon { ending, flushed }, here.as_deref());
    if !step.writes.is_empty() {
        let epoch = ack.epoch.unwrap_or_default();
        let fence = Fence { run_id: run_id.clone(), epoch, number: 1, used_ms: None };
        let append = Append { fence: Some(fence), writes: step.writes };
        shared.journal.append_and_wait(append).await.map_err(|error| match error {
            // Somebody else buries it: what he wrote is found at the next try.
            StoreError::Stale(_) => ErrorInfo::retryable(ErrorCode::StorageError, error.to_string()),
            error => ErrorInfo::from(&error),
        })?;
    }
    // They may have been added while others were waited for.
    let open = || ErrorInfo::retryable(ErrorCode::InternalError, "the run could not be ended: children of it are open");
    run_outcome(&state).ok_or_else(open)
}

/// Rebuilds the state of a run that is to be ended: from its row alone, where the rest can never be read.
async fn read_state(shared: &Shared, run_id: &RunId, trace_id: &TraceId) -> Result<RunState, ErrorInfo> {
    let (id, trace) = (run_id.clone(), trace_id.clone());
    let (run, stored) = shared
        .reading
        .read(move |reader| match read_stored(reader, &id, &trace) {
            Err(error @ StoreError::Corrupt(_)) => {
                let run = reader.run(&id)?.ok_or(error)?;
                Ok((run, None))
            }
            read => read.map(|(run, stored)| (run, Some(stored))),
        })
        .await?;
    let spec = Arc::new(shared.profiles.spec_for_burial(&shared.config, &run));
    Ok(match stored {
        Some(stored) => RunState::rebuild(spec, stored),
        None => RunState::without_history(spec, run.started_at, run.usage),
    })
}

/// Reads how a run ended; `None` while it has not.
pub(crate) async fn read_outcome(shared: &Shared, run: Run) -> Result<Option<RunOutcome>, ErrorInfo> {
    if run.completed_at.is_none() {
        return Ok(None);
    }
    let spec = shared.profiles.spec_for_burial(&shared.config, &run);
    let stored = shared.reading.read(move |reader| read_own(reader, &run)).await?;
    let state = RunState::rebuild(Arc::new(spec), stored);
    Ok(run_outcome(&state).map(|(outcome, _)| outcome))
}

/// Ends runs that an earlier owner of the home left behind, children first.
pub(crate) async fn bury_interrupted(shared: &Arc<Shared>, mut runs: Vec<Run>) -> Result<(), ErrorInfo> {
    runs.sort_by_key(|run| std::cmp::Reverse(run.depth));
    for run in &runs {
        let error = ErrorInfo::new(
            ErrorCode::Interrupted,
            "the process ended while the run was at work: continue the session to go on",
        );
        let ending = Ending { status: RunStatus::Failed, reason: EndReason::Interrupted, error: Some(error) };
        bury(shared, &run.run_id, &run.trace_id, ending).await?;
    }
    Ok(())
}

/// What the runs of budgeted trees have used, those that have ended too, parents first; each with how many children
/// it has had.
pub(crate) type Used = Vec<(Run, usize)>;

/// Reads what budgets have to know of runs that an earlier process left behind (BUD-1).
pub(crate) async fn read_used(shared: &Shared, runs: &[Run]) -> Result<Used, ErrorInfo> {
    let ids: HashSet<&RunId> = runs.iter().map(|run| &run.run_id).collect();
    let is_top = |run: &&Run| run.parent_run_id.as_ref().is_none_or(|parent| !ids.contains(parent));
    let tops: Vec<Run> = runs.iter().filter(is_top).cloned().collect();
    if runs.iter().all(|run| run.settings.budget.is_open()) {
        return Ok(Vec::new());
    }
    let read = move |reader: &dyn Reader| {
        let mut tree: Used = tops.iter().map(|top| (top.clone(), 0)).collect();
        let mut next = 0;
        while next < tree.len() {
            let children = reader.children(&tree[next].0.run_id)?;
            tree[next].1 = children.len();
            tree.extend(children.into_iter().map(|child| (child, 0)));
            next += 1;
        }
        Ok(tree)
    };
    shared.reading.read(read).await
}

/// Enters runs that an earlier process left behind among the living, parents before children as they are given, and
/// tells their budgets what was used; whose end was asked for makes no further step.
pub(crate) fn enter_left_behind(shared: &Shared, runs: &[Run], used: &Used) {
    let mut has_new = false;
    for run in runs {
        let is_new = !shared.runs.contains_key(&run.run_id);
        let live = shared.enter_run(run);
        if is_new {
            live.left_behind.store(true, Ordering::Release);
        }
        if run.cancel_requested {
            live.token.cancel();
        }
        has_new |= is_new;
    }
    if !has_new {
        return; // those that were among the living know better themselves
    }
    // One that has ended draws on what the one above it does; parents come first.
    let mut purses: HashMap<&RunId, Purse> = HashMap::new();
    for (run, children) in used {
        let above = || purses.get(run.parent_run_id.as_ref()?).cloned();
        let own = shared.runs.get(&run.run_id).and_then(|live| live.purse.clone());
        if let Some(purse) = own.or_else(above) {
            purse.report_of(&run.run_id, run.parent_run_id.as_ref(), Spent::of(&run.usage, *children));
            purses.insert(&run.run_id, purse);
        }
    }
}
