//! Usage of a run, and the times of its events.

use soong_protocol::{BudgetDimension, Stats, Timestamp};

use crate::{budget::Consumed, run::machine::state::open_model_calls::OpenModelCalls};

/// Usage of the run and of its children.
pub(in crate::run::machine) struct Usage {
    /// Usage of the run alone.
    pub(in crate::run::machine) own: Stats,
    /// Usage of all its descendants.
    pub(in crate::run::machine) below: Stats,
    /// Limits that the model was warned of.
    pub(in crate::run::machine) warned: Vec<BudgetDimension>,
    /// Model calls without an outcome.
    pub(in crate::run::machine) open_model_calls: OpenModelCalls,
    /// Charges of this incarnation for calls that were lost with an earlier process. They do not count against budgets.
    pub(in crate::run::machine) excused: Consumed,
}

impl Default for Usage {
    fn default() -> Self {
        Self {
            own: Stats::zero(),
            below: Stats::zero(),
            warned: Vec::new(),
            open_model_calls: OpenModelCalls::default(),
            excused: Consumed::default(),
        }
    }
}

/// Times of the events of a run.
#[derive(Default)]
pub(in crate::run::machine) struct Times {
    pub(in crate::run::machine) started_at: Option<Timestamp>,
    pub(in crate::run::machine) last_event_at: Option<Timestamp>,
    /// Time that the run was active, in milliseconds: it was not queued, had a process, and did not wait for a user,
    /// for a slot or for its turn with a model (SUB-7). Measured with a monotonic clock and stored with each append.
    pub(in crate::run::machine) used_ms: u64,
    /// Time that the run was not active, computed from its events: for runs of versions that did not store `used_ms`.
    pub(in crate::run::machine) idle_ms: u64,
    /// Time of the last progress report to the parent.
    pub(in crate::run::machine) parent_notified_at: Option<Timestamp>,
}
