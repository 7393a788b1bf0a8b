//! Tool calls of a turn: their order, approval, questions, and outcomes.

pub(in crate::run) mod approval;
pub(in crate::run) mod questions;
pub(in crate::run) mod scheduler;
