//! Runs: the agent loop (RUN-1 … RUN-5).
//!
//! `machine` decides, free of I/O. `actor` appends what was decided and performs the effects, with the tasks in
//! `tasks`. `supervision` starts, restarts and ends runs. Other modules use a run through its
//! [`LiveRun`](crate::live::LiveRun).

mod actor;
mod clock;
mod machine;
mod message;
pub(crate) mod spans;
mod step;
mod supervision;
mod tasks;

pub(crate) use actor::address::{Door, Sent};
pub(crate) use actor::passivation::watch as watch_for_idle_runs;
pub(crate) use actor::view::{RunFace, first_view};
pub(crate) use clock::RunClock;
pub use machine::child_spec::ChildSpec;
pub(crate) use machine::inline::Limits;
pub(crate) use machine::input::Again;
pub(crate) use machine::input::News;
pub use machine::outcome::RunOutcome;
pub(crate) use machine::output_schema::AnswerSchema;
pub(crate) use machine::spec::{Helper, ParentLink, RunSpec};
pub(crate) use machine::state::phase::Ending;
pub(crate) use machine::{errors::takes_no_children, outcome::one_line};
pub(crate) use machine::{
    input::ChildOrder,
    sub_agents::spawn::{check_given, check_results},
};
pub(crate) use message::RunMsg;
pub(crate) use message::Start;
pub(crate) use supervision::spawner::Keeper;
pub(crate) use supervision::watchdog::watch as watch_for_stuck_runs;
pub(crate) use tasks::finalize::{Used, bury, bury_interrupted, enter_left_behind, give_up, read_outcome, read_used};
pub(crate) use tasks::load::{last_settings, no_head, no_way_back};
