//! Events of a budget, on the timeline of the run that notices.

use crate::{BudgetDimension, event_macro::events};

events! {
    /// What happened to the budget that a run draws on (BUD-1).
    BudgetEvent {
        /// Four fifths of it are used; told once for each thing that is limited.
        Warning = "budget_warning" {
            /// What is limited.
            dimension: BudgetDimension,
            /// How much is used, by everybody who draws on it; money as a decimal.
            used: String,
            /// How much there is.
            limit: String,
        },
        /// What is left does not do for the next step: the run ends.
        Exceeded = "budget_exceeded" {
            /// What is limited.
            dimension: BudgetDimension,
            /// How much is used, by everybody who draws on it; money as a decimal.
            used: String,
            /// How much there is.
            limit: String,
        },
    }
}
