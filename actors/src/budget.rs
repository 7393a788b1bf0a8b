//! Budgets of trees of runs: the maximum use of a model call is reserved before the call and
//! settled after it (BUD-1).
//!
//! A run has a [`BudgetAccount`] if its budget, or the budget of a run above it, has a limit.
//! Elsewhere: how much each run may reserve (`ledger.rs`), and what a run does when it exceeds its
//! budget (the run state machine).

mod ledger;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(crate) use ledger::{Consumed, LimitStatus, ReserveRequest};
use ledger::{Ledger, ReserveOutcome};
use soong_protocol::{Budget, ErrorCode, ErrorInfo, RunId};
use tokio::sync::Notify;

#[derive(Default)]
struct BudgetTree {
    ledger: Mutex<Ledger>,
    /// Notified when a run uses or releases something.
    changed: Notify,
}

/// Budget account of a run. Cheap to clone.
#[derive(Clone)]
pub(crate) struct BudgetAccount {
    tree: Arc<BudgetTree>,
    run: RunId,
}

impl BudgetAccount {
    /// Opens the account of a run below the account of its parent; `None` if no limit applies.
    pub(crate) fn open(
        run: &RunId,
        parent: Option<&BudgetAccount>,
        budget: Budget,
    ) -> Option<Self> {
        if parent.is_none() && budget.is_unlimited() {
            return None;
        }
        let tree = parent
            .map(|parent| Arc::clone(&parent.tree))
            .unwrap_or_default();
        let account = Self {
            tree,
            run: run.clone(),
        };
        account
            .ledger()
            .open(run, parent.map(|parent| &parent.run), budget);
        Some(account)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // A poisoned lock is safe to use: each step leaves the ledger consistent.
        self.tree
            .ledger
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the total that the run itself has used so far.
    pub(crate) fn report(&self, own: Consumed) {
        self.ledger().report(&self.run, own);
        self.tree.changed.notify_waiters();
    }

    /// Sets the same total after an actor crash, before the new actor decides anything.
    pub(crate) fn restore(&self, own: Consumed) {
        self.ledger().restore(&self.run, own);
    }

    /// Sets the total that a run of the tree used in an earlier process. The run may have ended.
    pub(crate) fn report_for(&self, run: &RunId, parent: Option<&RunId>, own: Consumed) {
        let mut ledger = self.ledger();
        ledger.open(run, parent, Budget::default());
        ledger.report(run, own);
    }

    /// Reserves the maximum that a model call may use. Waits while other runs hold a reservation
    /// that they may not fully use.
    ///
    /// Calls `waits(true)` when the wait starts, and `waits(false)` when it ends.
    pub(crate) async fn reserve(
        &self,
        want: &ReserveRequest,
        mut on_wait: impl FnMut(bool),
    ) -> Result<Reservation, ErrorInfo> {
        let mut has_waited = false;
        loop {
            let mut changed = std::pin::pin!(self.tree.changed.notified());
            changed.as_mut().enable();
            let verdict = self.ledger().reserve(&self.run, want);
            if verdict != ReserveOutcome::Wait && has_waited {
                on_wait(false);
            }
            match verdict {
                ReserveOutcome::Granted {
                    reserved,
                    max_output_tokens,
                    is_limited,
                    short_of,
                } => {
                    return Ok(Reservation {
                        account: self.clone(),
                        reserved,
                        max_output_tokens,
                        is_limited,
                        limited_by: short_of,
                        is_settled: false,
                    });
                }
                ReserveOutcome::Exceeded(mark) => return Err(budget_exceeded_error(&mark)),
                ReserveOutcome::Wait => {
                    if !std::mem::replace(&mut has_waited, true) {
                        on_wait(true);
                    }
                    changed.await;
                }
            }
        }
    }

    /// Returns the reservation of a call that was lost in an actor crash; zero if there was none.
    pub(crate) fn lost_reservation(&self) -> Consumed {
        self.ledger().lost_reservation(&self.run)
    }

    /// Counts a tool call, or returns `budget_exceeded` with the limit that is used up.
    pub(crate) fn count_tool_call(&self) -> Result<(), ErrorInfo> {
        self.ledger()
            .count_tool_call(&self.run)
            .map_err(|mark| budget_exceeded_error(&mark))
    }

    /// Counts `count` sub-agents, or returns `budget_exceeded` with the limit that is used up and
    /// counts none of them.
    pub(crate) fn count_children(&self, count: usize) -> Result<(), ErrorInfo> {
        self.ledger()
            .count_children(&self.run, count as u64)
            .map_err(|mark| budget_exceeded_error(&mark))
    }

    /// Returns the limits of the run, with the total that it and all runs below it have used.
    pub(crate) fn limit_statuses(&self) -> Vec<LimitStatus> {
        self.ledger().limit_statuses(&self.run)
    }

    /// Returns a number that changes whenever the result of [`Self::limit_statuses`] may have
    /// changed.
    pub(crate) fn revision(&self) -> u64 {
        self.ledger().revision(&self.run)
    }

    /// Returns the limits that are at least 80 % used.
    pub(crate) fn nearly_exhausted(&self) -> Vec<LimitStatus> {
        self.ledger().nearly_exhausted(&self.run)
    }
}

/// Reservation for one model call. Counts as used if it is dropped without [`Self::settle`].
pub(crate) struct Reservation {
    account: BudgetAccount,
    reserved: Consumed,
    /// Maximum length of the answer, in tokens.
    pub(crate) max_output_tokens: u64,
    /// Whether tokens or money are limited.
    pub(crate) is_limited: bool,
    /// Limit because of which the answer may be shorter than requested.
    pub(crate) limited_by: Option<LimitStatus>,
    is_settled: bool,
}

impl Reservation {
    /// Releases the reservation after the actual use was reported.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation")
            .field("reserved", &self.reserved)
            .finish_non_exhaustive()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let run = &self.account.run;
        if self.is_settled {
            self.account.ledger().release(run, self.reserved)
        } else {
            self.account.ledger().mark_lost(run, self.reserved)
        }
        self.account.tree.changed.notify_waiters();
    }
}

/// Returns the error for a limit that is used up.
pub(crate) fn budget_exceeded_error(mark: &LimitStatus) -> ErrorInfo {
    let LimitStatus {
        dimension,
        used,
        limit,
    } = mark;
    let name = dimension.as_str();
    let message = format!(
        "the budget is too small for the next step: {used} of {limit} {name} used; raise the limit, or reduce the task"
    );
    let details = serde_json::json!({ "dimension": dimension, "used": used, "limit": limit });
    ErrorInfo {
        details,
        ..ErrorInfo::new(ErrorCode::BudgetExceeded, message)
    }
}

/// Reads the limit from an error made by [`budget_exceeded_error`].
pub(crate) fn limit_of_error(error: &ErrorInfo) -> Option<LimitStatus> {
    let text = |key: &str| error.details.get(key)?.as_str().map(str::to_owned);
    let dimension = serde_json::from_value(error.details.get("dimension")?.clone()).ok()?;
    (error.code == ErrorCode::BudgetExceeded).then_some(())?;
    Some(LimitStatus {
        dimension,
        used: text("used")?,
        limit: text("limit")?,
    })
}
