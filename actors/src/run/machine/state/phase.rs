//! The phase of a run, and whether stop hooks were asked.

use soong_protocol::RunStatus;

use crate::run::machine::state::calls::OpenCalls;

/// The phase of the agent loop.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Phase {
    /// Nothing has happened yet.
    New,
    /// The program drives: there is no model; children come and go.
    Driven,
    /// It is being looked for what earlier runs have learned; then it begins.
    Recalling,
    /// A model call is owed.
    Thinking,
    /// A summary is owed, and then a model call.
    Compacting,
    /// Tool outcomes are owed.
    Acting { calls: Box<OpenCalls> },
    /// The model gave its final answer; only children may still be at work.
    Answered,
    /// No call is owed; only the ending is left.
    Halted,
    /// Over (R1).
    Ended(RunStatus),
}

/// Where a run stands with those that may refuse its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum StopHook {
    #[default]
    NotAsked,
    Asked,
    Allowed,
}
