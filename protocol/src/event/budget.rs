//! Budget events, on the timeline of the run that detects them.

use crate::{BudgetDimension, event_macro::events};

events! {
    /// A limit of the budget that a run draws on (BUD-1).
    BudgetEvent {
        /// 80 % of a limit is used. Sent once per run and dimension.
        Warning = "budget_warning" [Warn] {
            /// The limited quantity.
            dimension: BudgetDimension,
            /// Total usage of all runs that share the budget. Cost is a decimal number.
            used: String,
            /// The limit.
            limit: String,
        },
        /// The remaining budget does not suffice for the next step. The run ends.
        Exceeded = "budget_exceeded" [Error] {
            /// The limited quantity.
            dimension: BudgetDimension,
            /// Total usage of all runs that share the budget. Cost is a decimal number.
            used: String,
            /// The limit.
            limit: String,
        },
    }
}
