//! The state of a reflection.

/// Additional state of a reflecting run.
#[derive(Debug, Default)]
pub(crate) struct LookBack {
    /// The conversation that the run reflects on.
    pub(in crate::run::machine) past: Vec<crate::context::Entry>,
    /// Whether the learned experiences are being written (`writing`), and whether that has ended (`written`).
    pub(in crate::run::machine) writing: bool,
    pub(in crate::run::machine) written: bool,
}
