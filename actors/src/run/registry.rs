//! Runs that have not ended, and how to reach them.

pub(in crate::run) mod address;
pub(in crate::run) mod entry;
pub(in crate::run) mod view;
pub(in crate::run) mod waits_for;
