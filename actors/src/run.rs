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

pub(crate) use actor::{
    address::{Door, Sent},
    passivation::watch as watch_for_idle_runs,
    view::{RunFace, first_view},
};
pub(crate) use clock::RunClock;
pub use machine::{child_spec::ChildSpec, outcome::RunOutcome};
pub(crate) use machine::{
    ending::Ending,
    errors::takes_no_children,
    inline::Limits,
    input::{Again, ChildOrder, News},
    outcome::one_line,
    output_schema::AnswerSchema,
    spec::{Helper, ParentLink, RunSpec},
    sub_agents::spawn::{check_given, check_results},
};
pub(crate) use message::{RunMsg, Start};
pub(crate) use supervision::{spawner::Keeper, watchdog::watch as watch_for_stuck_runs};
pub(crate) use tasks::{
    finalize::{Used, bury, bury_interrupted, enter_left_behind, give_up, read_outcome, read_used},
    load::{last_settings, no_head, no_way_back},
};
