//! Runs: the agent loop (RUN-1 … RUN-5).
//!
//! `machine` decides, free of I/O. `actor` appends what was decided and performs the effects, with the tasks in
//! `tasks`. `supervision` starts, restarts and ends runs. Other modules use a run through its
//! [`LiveRun`](crate::live::LiveRun).

mod actor;
mod machine;
pub(crate) mod spans;
mod supervision;
mod tasks;

pub(crate) use actor::RunMsg;
pub(crate) use actor::address::{Door, Sent};
pub(crate) use actor::clock::RunClock;
pub(crate) use actor::passivation::watch as watch_for_idle_runs;
pub(crate) use actor::view::{RunFace, first_view};
pub(crate) use machine::lifecycle::resume::Again;
pub use machine::outcome::RunOutcome;
pub(crate) use machine::outcome::{one_line, takes_no_children};
pub(crate) use machine::spec::{Helper, ParentLink, RunSpec};
pub(crate) use machine::state::Ending;
pub use machine::sub_agents::child_spec::ChildSpec;
pub(crate) use machine::sub_agents::spawn::{ChildOrder, check_given, check_results};
pub(crate) use machine::transition::News;
pub(crate) use machine::turn::output_schema::AnswerSchema;
pub(crate) use supervision::finalize::{
    Used, bury, bury_interrupted, enter_left_behind, give_up, read_outcome, read_used,
};
pub(crate) use supervision::spawner::{Keeper, Start};
pub(crate) use supervision::watchdog::watch as watch_for_stuck_runs;
pub(crate) use tasks::load::{last_settings, no_head, no_way_back};
pub(crate) use tasks::tool_output::Limits;
