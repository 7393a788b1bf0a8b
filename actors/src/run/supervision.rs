//! Starting, restarting and ending runs from outside of their actors.

pub(in crate::run) mod run_supervisor;
pub(in crate::run) mod spawner;
pub(in crate::run) mod sub_agents;
pub(in crate::run) mod watchdog;
