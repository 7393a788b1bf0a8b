//! How a run starts, resumes and finishes.

pub(in crate::run) mod finish;
pub(in crate::run) mod resume;
pub(in crate::run) mod start;
