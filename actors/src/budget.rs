//! Budgets over trees of runs: what a model call may use is held back before it is made, and settled behind it
//! (BUD-1).
//!
//! A run whose budget, or that of one above it, limits anything has a [`Purse`]. Not here: who may draw how much
//! (`ledger.rs`), what a run does that may not (the run machine).

mod ledger;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ledger::{Ledger, Verdict};
pub(crate) use ledger::{Mark, Spent, Want};
use soong_protocol::{Budget, ErrorCode, ErrorInfo, RunId};
use tokio::sync::Notify;

#[derive(Default)]
struct Tree {
    ledger: Mutex<Ledger>,
    /// Somebody used something, or gave it back.
    changed: Notify,
}

/// What a run draws on. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Purse {
    tree: Arc<Tree>,
    run: RunId,
}

impl Purse {
    /// Opens a run's account below that of its parent; `None` = nothing limits it.
    pub(crate) fn open(run: &RunId, parent: Option<&Purse>, budget: Budget) -> Option<Self> {
        if parent.is_none() && budget.is_open() {
            return None;
        }
        let tree = parent.map(|parent| Arc::clone(&parent.tree)).unwrap_or_default();
        let purse = Self { tree, run: run.clone() };
        purse.ledger().open(run, parent.map(|parent| &parent.run), budget);
        Some(purse)
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        // It is changed in steps that leave it whole.
        self.tree.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says what the run has used itself so far.
    pub(crate) fn report(&self, own: Spent) {
        self.ledger().report(&self.run, own);
        self.tree.changed.notify_waiters();
    }

    /// The same where an actor takes over from one that crashed, before it decides anything.
    pub(crate) fn retell(&self, own: Spent) {
        self.ledger().retell(&self.run, own);
    }

    /// Says what a run of the tree has used in an earlier process; it may have ended.
    pub(crate) fn report_of(&self, run: &RunId, parent: Option<&RunId>, own: Spent) {
        let mut ledger = self.ledger();
        ledger.open(run, parent, Budget::default());
        ledger.report(run, own);
    }

    /// Holds back what a model call may use at most; waits while others hold it that may not need all of it.
    ///
    /// `waits` is told when it has to wait, and when that is over.
    pub(crate) async fn reserve(&self, want: &Want, mut waits: impl FnMut(bool)) -> Result<Reservation, ErrorInfo> {
        let mut has_waited = false;
        loop {
            let mut changed = std::pin::pin!(self.tree.changed.notified());
            changed.as_mut().enable();
            let verdict = self.ledger().reserve(&self.run, want);
            if verdict != Verdict::Wait && has_waited {
                waits(false);
            }
            match verdict {
                Verdict::Granted { held, max_output_tokens, short_of } => {
                    return Ok(Reservation {
                        purse: self.clone(),
                        held,
                        max_output_tokens,
                        short_of,
                        is_settled: false,
                    });
                }
                Verdict::Exceeded(mark) => return Err(exceeded(&mark)),
                Verdict::Wait => {
                    if !std::mem::replace(&mut has_waited, true) {
                        waits(true);
                    }
                    changed.await;
                }
            }
        }
    }

    /// Returns what was held back for a call of the run that was lost with the actor that made it: 0 = none was made.
    pub(crate) fn lost(&self) -> Spent {
        self.ledger().lost(&self.run)
    }

    /// Takes a tool call, or says what is used up.
    pub(crate) fn take_tool_call(&self) -> Result<(), ErrorInfo> {
        self.ledger().take_tool_call(&self.run).map_err(|mark| exceeded(&mark))
    }

    /// Takes so many sub-agents, all or none, or says what is used up.
    pub(crate) fn take_children(&self, count: usize) -> Result<(), ErrorInfo> {
        self.ledger().take_children(&self.run, count as u64).map_err(|mark| exceeded(&mark))
    }

    /// Returns the limits that the run was given, with what it and all below it have used.
    pub(crate) fn shares(&self) -> Vec<Mark> {
        self.ledger().shares(&self.run)
    }

    /// Returns a number that is another one after each change of that.
    pub(crate) fn stamp(&self) -> u64 {
        self.ledger().stamp(&self.run)
    }

    /// Returns the limits of which four fifths are used.
    pub(crate) fn nearly_used(&self) -> Vec<Mark> {
        self.ledger().nearly_used(&self.run)
    }
}

/// What is held back for a call, until what it used is booked; used, where it is dropped before.
pub(crate) struct Reservation {
    purse: Purse,
    held: Spent,
    /// How long the answer may be.
    pub(crate) max_output_tokens: u64,
    /// The limit for which that is less than it could be.
    pub(crate) short_of: Option<Mark>,
    is_settled: bool,
}

impl Reservation {
    /// Gives it back: what the call used is booked.
    pub(crate) fn settle(mut self) {
        self.is_settled = true;
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation").field("held", &self.held).finish_non_exhaustive()
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let run = &self.purse.run;
        match self.is_settled {
            true => self.purse.ledger().release(run, self.held),
            false => self.purse.ledger().lose(run, self.held),
        }
        self.purse.tree.changed.notify_waiters();
    }
}

/// Says that a budget is used up, and of what.
pub(crate) fn exceeded(mark: &Mark) -> ErrorInfo {
    let Mark { dimension, used, limit } = mark;
    let name = dimension.as_str();
    let message = format!(
        "the budget does not do for the next step: {used} of {limit} {name} are used; give it more, or less to do"
    );
    let details = serde_json::json!({ "dimension": dimension, "used": used, "limit": limit });
    ErrorInfo { details, ..ErrorInfo::new(ErrorCode::BudgetExceeded, message) }
}

/// Reads what [`exceeded`] says.
pub(crate) fn exceeded_mark(error: &ErrorInfo) -> Option<Mark> {
    let text = |key: &str| error.details.get(key)?.as_str().map(str::to_owned);
    let dimension = serde_json::from_value(error.details.get("dimension")?.clone()).ok()?;
    (error.code == ErrorCode::BudgetExceeded).then_some(())?;
    Some(Mark { dimension, used: text("used")?, limit: text("limit")? })
}
