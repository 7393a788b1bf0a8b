//! The jobs of a run: work besides its turns and its tool calls.

pub(in crate::run) mod name_trace;
