//! Memory: experiences that a run starts with, and reflection on a finished trace.

pub(in crate::run) mod reflection;
