//! Child runs: starting them, tracking them, and handling their results.

pub(in crate::run) mod children;
pub(in crate::run) mod spawn;
