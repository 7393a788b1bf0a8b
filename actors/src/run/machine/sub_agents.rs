//! Child runs: spawning them, following them, and their results.

pub(in crate::run) mod children;
pub(in crate::run) mod spawn;
