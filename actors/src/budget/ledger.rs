//! Ledger of a tree of runs: checks what each run has used and reserved against its own limits and
//! those above it (BUD-1).
//!
//! Pure: no clock, no waiting.
//!
//! Invariants:
//! - The use of a run is reported as a total, never as a difference, so a repeated report changes
//!   nothing.
//! - Sums equal the sum over the runs.
//! - No reservation is granted that could exceed a limit, even if all other reservations are fully
//!   used.
//!
//! Elsewhere: waiting (`budget.rs`), time and depth limits (the run itself).

use std::collections::HashMap;

use soong_protocol::{Budget, BudgetDimension, Prices, RunId, Stats, Usage, Usd};

// The same type describes a limit that is reached or nearly used and one that is displayed.
pub(crate) use crate::actor_tree::BudgetShare as LimitStatus;

/// Minimum length of an answer for which a call is made, in tokens, unless the requested maximum is
/// lower.
const MIN_OUTPUT_TOKENS: u64 = 16;
/// Minimum length of an answer for which a call is made while other calls hold reservations, in
/// tokens.
const MIN_SHARED_OUTPUT_TOKENS: u64 = 4_096;
/// Fraction of a limit at which the model is warned: four fifths.
const WARN_AT: (u64, u64) = (4, 5);

/// Amounts that were used, or are reserved for a running model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Consumed {
    pub(crate) tokens: u64,
    pub(crate) usd: Usd,
    pub(crate) model_calls: u64,
    pub(crate) tool_calls: u64,
    pub(crate) children: u64,
}

impl Consumed {
    /// Returns what a run itself has used.
    pub(crate) fn of(own: &Stats, children: usize) -> Self {
        Self {
            tokens: own.total_tokens,
            usd: own.cost.unwrap_or_default(),
            model_calls: own.model_calls,
            tool_calls: own.tool_calls,
            children: children as u64,
        }
    }

    fn combine(self, other: Self, by: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            tokens: by(self.tokens, other.tokens),
            usd: Usd::from_nanos(by(self.usd.as_nanos(), other.usd.as_nanos())),
            model_calls: by(self.model_calls, other.model_calls),
            tool_calls: by(self.tool_calls, other.tool_calls),
            children: by(self.children, other.children),
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_add)
    }

    pub(crate) fn minus(self, other: Self) -> Self {
        self.combine(other, u64::saturating_sub)
    }
}

/// A model call for which a reservation is requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReserveRequest {
    /// Estimated tokens of the prompt.
    pub(crate) prompt_tokens: u64,
    /// Maximum number of tokens in the answer.
    pub(crate) max_output_tokens: u64,
    /// Prices of the model.
    pub(crate) prices: Option<Prices>,
    /// Whether the prompt is written to the cache for longer.
    pub(crate) is_long_cached: bool,
}

impl ReserveRequest {
    fn cost(&self, output: u64) -> Usd {
        let usage = Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: output,
            ..Usage::default()
        };
        // All of the prompt may be written to the cache, which can cost more.
        let long_cache_write_tokens = if self.is_long_cached {
            self.prompt_tokens
        } else {
            0
        };
        let written = Usage {
            cache_write_tokens: self.prompt_tokens,
            long_cache_write_tokens,
            ..usage
        };
        self.prices
            .map(|prices| prices.cost(&usage).max(prices.cost(&written)))
            .unwrap_or_default()
    }

    /// Returns the maximum answer length that the amount pays for, at most `max_output_tokens`;
    /// `None` if it does not pay for the prompt.
    fn output_for(&self, money: Usd) -> Option<u64> {
        let mut fits = 0;
        let mut too_much = self.max_output_tokens.checked_add(1)?;
        if self.cost(0) > money {
            return None;
        }
        while too_much - fits > 1 {
            let middle = fits + (too_much - fits) / 2;
            if self.cost(middle) <= money {
                fits = middle
            } else {
                too_much = middle
            }
        }
        Some(fits)
    }

    fn min_output(&self) -> u64 {
        self.max_output_tokens.min(MIN_OUTPUT_TOKENS)
    }
}

/// Result of a reservation request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReserveOutcome {
    /// The amount is reserved. The answer may have `max_output_tokens`, which is less than
    /// requested if `short_of` is set. `is_limited`: tokens or money are limited, so the answer
    /// must not be longer.
    Granted {
        reserved: Consumed,
        max_output_tokens: u64,
        is_limited: bool,
        short_of: Option<LimitStatus>,
    },
    /// Other runs hold reservations that they may not fully use.
    Wait,
    /// The remaining budget is not sufficient, even if all other reservations are released.
    Exceeded(LimitStatus),
}

struct Account {
    parent: Option<RunId>,
    budget: Budget,
    own: Consumed,
    /// Reservations of calls whose outcome is unknown. They count as used until the run reports its
    /// use.
    lost: Consumed,
    /// Total of the run and of all runs below it: what is used, and what is reserved.
    used: Consumed,
    reserved: Consumed,
    /// Number of changes of these totals.
    revision: u64,
}

impl Account {
    /// Returns each limited dimension, the amount used, and the limit. Money is in billionths of a
    /// dollar.
    fn limits(&self) -> impl Iterator<Item = (BudgetDimension, u64, u64)> {
        let used = &self.used;
        let budget = &self.budget;
        let all = [
            (BudgetDimension::Tokens, used.tokens, budget.tokens),
            (
                BudgetDimension::Usd,
                used.usd.as_nanos(),
                budget.usd.map(Usd::as_nanos),
            ),
            (
                BudgetDimension::ModelCalls,
                used.model_calls,
                budget.model_calls,
            ),
            (
                BudgetDimension::ToolCalls,
                used.tool_calls,
                budget.tool_calls,
            ),
            (BudgetDimension::Children, used.children, budget.children),
        ];
        all.into_iter()
            .filter_map(|(dimension, used, limit)| Some((dimension, used, limit?)))
    }
}

/// Accounts of the runs of a tree.
#[derive(Default)]
pub(crate) struct Ledger {
    accounts: HashMap<RunId, Account>,
}

impl Ledger {
    /// Opens the account of a run. An account that is already open is unchanged.
    pub(crate) fn open(&mut self, run: &RunId, parent: Option<&RunId>, budget: Budget) {
        self.accounts.entry(run.clone()).or_insert_with(|| Account {
            parent: parent.cloned(),
            budget,
            own: Consumed::default(),
            lost: Consumed::default(),
            used: Consumed::default(),
            reserved: Consumed::default(),
            revision: 0,
        });
    }

    /// Sets the total that a run itself has used, and clears its lost reservations.
    pub(crate) fn report(&mut self, run: &RunId, own: Consumed) {
        let Some(account) = self.accounts.get_mut(run) else {
            return;
        };
        let before =
            std::mem::replace(&mut account.own, own).plus(std::mem::take(&mut account.lost));
        self.update_with_ancestors(run, |account| {
            account.used = account.used.minus(before).plus(own)
        });
    }

    /// Sets the same total after an actor crash. Lost reservations still count until the run
    /// reports them.
    pub(crate) fn restore(&mut self, run: &RunId, own: Consumed) {
        let Some(account) = self.accounts.get_mut(run) else {
            return;
        };
        let before = std::mem::replace(&mut account.own, own);
        self.update_with_ancestors(run, |account| {
            account.used = account.used.minus(before).plus(own)
        });
    }

    /// Reserves the maximum that a model call may use. If no other reservation is in the way,
    /// shortens the answer to the remaining budget.
    pub(crate) fn reserve(&mut self, run: &RunId, want: &ReserveRequest) -> ReserveOutcome {
        let mut output = want.max_output_tokens;
        let mut waits = false;
        let mut is_limited = false;
        let mut short_of = None;
        for account in self.with_ancestors(run) {
            let used = account.used;
            let reserved = account.reserved;
            is_limited |= account.budget.tokens.is_some() || account.budget.usd.is_some();
            let mut check = |free_at_best: bool,
                             free_now: Option<u64>,
                             is_held: bool,
                             mark: LimitStatus| {
                if !free_at_best {
                    return Some(ReserveOutcome::Exceeded(mark));
                }
                match free_now {
                    Some(room) if room >= output => {}
                    // While other calls hold reservations, half of the room is granted if that is
                    // enough for most answers.
                    Some(room)
                        if is_held && room / 2 >= MIN_SHARED_OUTPUT_TOKENS && room != u64::MAX =>
                    {
                        output = room / 2;
                        short_of = Some(mark);
                    }
                    _ if is_held => waits = true,
                    room => (output, short_of) = (room.unwrap_or(0), Some(mark)),
                }
                None
            };
            if let Some(limit) = account.budget.model_calls {
                let now = (used.model_calls + reserved.model_calls < limit).then_some(u64::MAX);
                let mark = limit_status_of(BudgetDimension::ModelCalls, used.model_calls, limit);
                if let Some(verdict) = check(
                    used.model_calls < limit,
                    now,
                    reserved.model_calls > 0,
                    mark,
                ) {
                    return verdict;
                }
            }
            if let Some(limit) = account.budget.tokens {
                let room = |used: u64| limit.checked_sub(used)?.checked_sub(want.prompt_tokens);
                let at_best = room(used.tokens).is_some_and(|room| room >= want.min_output());
                let now = room(used.tokens.saturating_add(reserved.tokens));
                let mark = limit_status_of(BudgetDimension::Tokens, used.tokens, limit);
                if let Some(verdict) = check(at_best, now, reserved.tokens > 0, mark) {
                    return verdict;
                }
            }
            if let Some(limit) = account.budget.usd {
                let room = |used: u64| {
                    want.output_for(Usd::from_nanos(limit.as_nanos().checked_sub(used)?))
                };
                let at_best =
                    room(used.usd.as_nanos()).is_some_and(|room| room >= want.min_output());
                // A free model may continue when all the money is spent, but not if the limit is
                // zero.
                let at_best = at_best && limit > Usd::default();
                let now = room(used.usd.as_nanos().saturating_add(reserved.usd.as_nanos()));
                let mark = limit_status_of(BudgetDimension::Usd, used.usd, limit);
                if let Some(verdict) = check(at_best, now, reserved.usd > Usd::default(), mark) {
                    return verdict;
                }
            }
        }
        if waits {
            return ReserveOutcome::Wait;
        }
        let tokens = want.prompt_tokens.saturating_add(output);
        let reserved = Consumed {
            tokens,
            usd: want.cost(output),
            model_calls: 1,
            ..Consumed::default()
        };
        self.update_with_ancestors(run, |account| {
            account.reserved = account.reserved.plus(reserved)
        });
        ReserveOutcome::Granted {
            reserved,
            max_output_tokens: output,
            is_limited,
            short_of,
        }
    }

    /// Releases a reservation.
    pub(crate) fn release(&mut self, run: &RunId, reserved: Consumed) {
        self.update_with_ancestors(run, |account| {
            account.reserved = account.reserved.minus(reserved)
        });
    }

    /// Counts a reservation as used: the actor that made the call crashed, and its successor will
    /// report the use.
    pub(crate) fn mark_lost(&mut self, run: &RunId, reserved: Consumed) {
        let Some(account) = self.accounts.get_mut(run) else {
            return;
        };
        account.lost = account.lost.plus(reserved);
        self.update_with_ancestors(run, |account| {
            account.reserved = account.reserved.minus(reserved);
            account.used = account.used.plus(reserved);
        });
    }

    /// Returns the reservations of a run that were lost in a crash.
    pub(crate) fn lost_reservation(&self, run: &RunId) -> Consumed {
        self.accounts
            .get(run)
            .map(|account| account.lost)
            .unwrap_or_default()
    }

    /// Counts `count` sub-agents, or none if that exceeds a limit.
    pub(crate) fn count_children(&mut self, run: &RunId, count: u64) -> Result<(), LimitStatus> {
        let used = |spent: &Consumed| spent.children;
        self.count(
            run,
            Consumed {
                children: count,
                ..Consumed::default()
            },
            BudgetDimension::Children,
            used,
            |budget| budget.children,
        )
    }

    /// Counts a tool call.
    pub(crate) fn count_tool_call(&mut self, run: &RunId) -> Result<(), LimitStatus> {
        let used = |spent: &Consumed| spent.tool_calls;
        self.count(
            run,
            Consumed {
                tool_calls: 1,
                ..Consumed::default()
            },
            BudgetDimension::ToolCalls,
            used,
            |budget| budget.tool_calls,
        )
    }

    fn count(
        &mut self,
        run: &RunId,
        request: Consumed,
        dimension: BudgetDimension,
        used: impl Fn(&Consumed) -> u64,
        limit: impl Fn(&Budget) -> Option<u64>,
    ) -> Result<(), LimitStatus> {
        for account in self.with_ancestors(run) {
            let used_before = used(&account.used);
            let used_after = used_before.saturating_add(used(&request));
            if let Some(limit) = limit(&account.budget)
                && used_after > limit
            {
                return Err(limit_status_of(dimension, used_before, limit));
            }
        }
        if let Some(own) = self.accounts.get(run).map(|account| account.own) {
            self.report(run, own.plus(request));
        }
        Ok(())
    }

    /// Returns the limits of a run and of those above it that are at least four fifths used: one
    /// per dimension, the nearest first.
    pub(crate) fn nearly_exhausted(&self, run: &RunId) -> Vec<LimitStatus> {
        let mut marks = Vec::new();
        for account in self.with_ancestors(run) {
            for (dimension, used, limit) in account.limits() {
                let is_near = u128::from(used) * u128::from(WARN_AT.1)
                    >= u128::from(limit) * u128::from(WARN_AT.0);
                let is_new = marks
                    .iter()
                    .all(|known: &LimitStatus| known.dimension != dimension);
                if is_near && is_new {
                    marks.push(limit_status(dimension, used, limit));
                }
            }
        }
        marks
    }

    /// Returns the limits of a run, with the total that it and all runs below it have used.
    pub(crate) fn limit_statuses(&self, run: &RunId) -> Vec<LimitStatus> {
        let limits = self.accounts.get(run).into_iter().flat_map(Account::limits);
        limits
            .map(|(dimension, used, limit)| limit_status(dimension, used, limit))
            .collect()
    }

    /// Returns a number that changes when the total of a run and of all runs below it changes.
    pub(crate) fn revision(&self, run: &RunId) -> u64 {
        self.accounts
            .get(run)
            .map(|account| account.revision)
            .unwrap_or_default()
    }

    /// Returns the total that a run and all runs below it have used.
    #[cfg(test)]
    pub(crate) fn used(&self, run: &RunId) -> Consumed {
        self.accounts
            .get(run)
            .map(|account| account.used)
            .unwrap_or_default()
    }

    /// Returns the account of a run and those above it, the nearest first.
    fn with_ancestors<'l>(&'l self, run: &RunId) -> impl Iterator<Item = &'l Account> {
        let parent = |account: &&'l Account| self.accounts.get(account.parent.as_ref()?);
        std::iter::successors(self.accounts.get(run), parent)
    }

    fn update_with_ancestors(&mut self, run: &RunId, change: impl Fn(&mut Account)) {
        let mut next = Some(run.clone());
        while let Some(account) = next.take().and_then(|run| self.accounts.get_mut(&run)) {
            change(account);
            account.revision += 1;
            next.clone_from(&account.parent);
        }
    }
}

/// Formats a limit of an account.
fn limit_status(dimension: BudgetDimension, used: u64, limit: u64) -> LimitStatus {
    match dimension {
        BudgetDimension::Usd => {
            limit_status_of(dimension, Usd::from_nanos(used), Usd::from_nanos(limit))
        }
        _ => limit_status_of(dimension, used, limit),
    }
}

fn limit_status_of(
    dimension: BudgetDimension,
    used: impl ToString,
    limit: impl ToString,
) -> LimitStatus {
    LimitStatus {
        dimension,
        used: used.to_string(),
        limit: limit.to_string(),
    }
}

#[cfg(test)]
mod tests;
