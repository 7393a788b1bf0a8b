//! The parts of the budget that the run itself enforces: tool calls, sub-agents, time, and warnings
//! to the model (BUD-1).
//!
//! Pure; part of the run state machine. The budget account is an argument, like the time.
//! Elsewhere: how much each run may draw (`budget.rs`), model calls (their effects reserve budget).

use soong_protocol::{BudgetDimension, BudgetEvent, EndReason, ErrorInfo, RunStatus};

use crate::{
    budget::{self, LimitStatus},
    run::machine::{RunState, Transition, ending::Ending},
};

impl RunState {
    pub(crate) fn apply_budget(&mut self, event: &BudgetEvent) {
        match event {
            BudgetEvent::Warning { dimension, .. } => self.usage.warned.push(*dimension),
            BudgetEvent::Exceeded {
                dimension,
                used,
                limit,
            } => {
                let limit_status = LimitStatus {
                    dimension: *dimension,
                    used: used.clone(),
                    limit: limit.clone(),
                };
                self.end.ending.get_or_insert_with(|| Ending {
                    status: RunStatus::Failed,
                    reason: EndReason::BudgetExceeded,
                    error: Some(budget::budget_exceeded_error(&limit_status)),
                });
            }
        }
    }
}

impl Transition<'_, '_> {
    /// Ends the run with `budget_exceeded` if the error reports an exceeded budget.
    pub(crate) fn end_if_budget_exceeded(&mut self, error: &ErrorInfo) {
        if let Some(LimitStatus {
            dimension,
            used,
            limit,
        }) = budget::limit_of_error(error)
            && self.state.end.ending.is_none()
        {
            self.emit(BudgetEvent::Exceeded {
                dimension,
                used,
                limit,
            });
        }
    }

    /// Takes one tool call from the budget. If none remains, ends the run.
    pub(crate) fn consume_tool_call(&mut self) -> Result<(), ErrorInfo> {
        let outcome = self
            .context
            .budget
            .map_or(Ok(()), budget::BudgetAccount::count_tool_call);
        if let Err(error) = &outcome {
            self.end_if_budget_exceeded(error);
        }
        outcome
    }

    /// Ends the run because the time limit of its budget is reached.
    pub(crate) fn end_by_time_budget(&mut self, limit_s: u64) {
        let used = self.state.clock.used_ms / 1_000;
        let limit = limit_s;
        let limit_status = LimitStatus {
            dimension: BudgetDimension::WallTimeS,
            used: used.to_string(),
            limit: limit.to_string(),
        };
        self.end_if_budget_exceeded(&budget::budget_exceeded_error(&limit_status));
    }

    /// Records a warning, once per limit, when four fifths of it are used.
    pub(crate) fn record_budget_warnings(&mut self) {
        for LimitStatus {
            dimension,
            used,
            limit,
        } in self.nearly_used()
        {
            if !self.state.usage.warned.contains(&dimension) {
                self.emit(BudgetEvent::Warning {
                    dimension,
                    used,
                    limit,
                });
            }
        }
    }

    /// Returns the note for the model about nearly used limits; `None` if there are none.
    pub(crate) fn budget_note(&self) -> Option<String> {
        let limits = self.nearly_used();
        let lines = limits.iter().map(
            |LimitStatus {
                 dimension,
                 used,
                 limit,
             }| { format!("- {}: {used} of {limit} used\n", dimension.as_str()) },
        );
        let lines: String = lines.collect();
        (!lines.is_empty()).then(|| {
            format!(
                "## Budget\nLittle is left, for you and your sub-agents together: finish with what you have.\n{lines}"
            )
        })
    }

    pub(crate) fn nearly_used(&self) -> Vec<LimitStatus> {
        self.context
            .budget
            .map(budget::BudgetAccount::nearly_exhausted)
            .unwrap_or_default()
    }
}
