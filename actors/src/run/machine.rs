//! The state machine of a run: computes the consequences of one input, without I/O.

pub(in crate::run) mod budget;
mod callbacks;
pub(in crate::run) mod documents;
pub(in crate::run) mod effect;
pub(in crate::run) mod ending;
pub(in crate::run) mod errors;
pub(in crate::run) mod hooks;
pub(in crate::run) mod inline;
pub(in crate::run) mod input;
pub(in crate::run) mod lifecycle;
pub(in crate::run) mod lost_calls;
pub(in crate::run) mod memory;
pub(in crate::run) mod naming;
pub(in crate::run) mod outcome;
pub(in crate::run) mod output_schema;
pub(in crate::run) mod permission_mode;
pub(in crate::run) mod replay;
pub(in crate::run) mod rewind;
pub(in crate::run) mod spec;
pub(in crate::run) mod state;
pub(in crate::run) mod sub_agents;
pub(in crate::run) mod system_prompt;
pub(in crate::run) mod tool_calls;
pub(in crate::run) mod tools;
pub(in crate::run) mod transition;
pub(in crate::run) mod turn;
pub(in crate::run) mod view;
