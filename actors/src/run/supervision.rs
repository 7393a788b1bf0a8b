//! Starts, restarts and ends runs from outside their actors.

pub(super) mod run_supervisor;
pub(super) mod spawner;
pub(super) mod sub_agents;
pub(super) mod watchdog;
