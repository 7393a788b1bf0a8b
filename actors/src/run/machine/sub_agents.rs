//! Child runs: starting them, tracking them, and handling their results.

mod child_run;
pub(in crate::run) mod children;
mod requests;
pub(in crate::run) mod spawn;
