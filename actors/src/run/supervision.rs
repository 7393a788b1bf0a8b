//! Starts, restarts and ends runs from outside their actors.

pub(in crate::run) mod run_supervisor;
pub(in crate::run) mod spawner;
pub(in crate::run) mod sub_agents;
pub(in crate::run) mod watchdog;
