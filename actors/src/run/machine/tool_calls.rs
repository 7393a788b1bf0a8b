//! Tool calls of a turn: scheduling, approval and questions.

pub(in crate::run) mod approval;
pub(in crate::run) mod questions;
pub(in crate::run) mod scheduler;
