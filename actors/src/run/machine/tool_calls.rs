//! Tool calls of a turn: scheduling, approval, questions, `goal`, and resumption after a crash.

pub(in crate::run) mod approval;
mod goal;
pub(in crate::run) mod questions;
pub(in crate::run) mod resumption;
pub(in crate::run) mod scheduler;
