//! Runs: the agent loop (RUN-1 … RUN-5).
//!
//! `state` knows and `decide` decides, free of I/O; `actor` journals what was decided and performs
//! the effects; `keeper` starts, restarts and buries runs for their supervisors. Others speak to a
//! run through its [`LiveRun`](crate::live::LiveRun).

mod actor;
mod allowance;
mod answer;
mod begin;
mod burial;
mod call;
mod calls;
mod child_spec;
mod children;
mod clock;
mod cut_calls;
mod debug;
mod decide;
mod door;
mod effect;
mod ending;
mod gate;
mod hook_calls;
mod hooks;
mod keeper;
mod leave;
mod look;
mod open_calls;
mod outcome;
mod output;
mod panicked;
mod passivation;
mod people;
mod perform;
mod rebuild;
mod recalling;
mod reflecting;
mod resume;
pub(crate) mod spans;
mod spawn;
mod spec;
mod state;
mod stored;
mod stuck;
mod turn;
mod written;

pub(crate) use actor::RunMsg;
pub(crate) use answer::AnswerSchema;
pub(crate) use burial::{Used, bury, bury_interrupted, enter_left_behind, give_up, read_outcome, read_used};
pub use child_spec::ChildSpec;
pub(crate) use clock::RunClock;
pub(crate) use decide::News;
pub(crate) use door::{Door, Sent};
pub(crate) use keeper::{Keeper, Start};
pub(crate) use look::{RunFace, first_view};
pub use outcome::RunOutcome;
pub(crate) use outcome::{one_line, takes_no_children};
pub(crate) use output::Limits;
pub(crate) use passivation::watch as watch_for_idle_runs;
pub(crate) use resume::Again;
pub(crate) use spawn::{ChildOrder, check_given, check_results};
pub(crate) use spec::{Helper, ParentLink, RunSpec};
pub(crate) use state::Ending;
pub(crate) use stored::{last_settings, no_head, no_way_back};
pub(crate) use stuck::watch as watch_for_stuck_runs;
