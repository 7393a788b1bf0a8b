//! The state machine of a run: computes the consequences of one input, without I/O.

pub(super) mod budget;
mod callbacks;
pub(super) mod documents;
pub(super) mod effect;
pub(super) mod ending;
pub(super) mod errors;
pub(super) mod hooks;
pub(super) mod inline;
pub(super) mod input;
pub(super) mod lifecycle;
pub(super) mod lost_calls;
pub(super) mod memory;
pub(super) mod naming;
pub(super) mod outcome;
pub(super) mod output_schema;
pub(super) mod permission_mode;
pub(super) mod replay;
pub(super) mod rewind;
pub(super) mod spec;
pub(super) mod state;
pub(super) mod sub_agents;
pub(super) mod system_prompt;
pub(super) mod tool_calls;
pub(super) mod tools;
pub(super) mod transition;
pub(super) mod turn;
pub(super) mod view;
