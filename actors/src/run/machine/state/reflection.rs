//! The state of a reflection.

/// What a run that looks back knows beside the rest.
#[derive(Debug, Default)]
pub(crate) struct LookBack {
    /// The conversation that it looks back on.
    pub(in crate::run::machine) past: Vec<crate::context::Entry>,
    /// Whether what it learned is being written down, and whether it is.
    pub(in crate::run::machine) writing: bool,
    pub(in crate::run::machine) written: bool,
}
