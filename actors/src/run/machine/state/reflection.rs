//! The state of a reflection.

/// Additional state of a reflecting run.
#[derive(Debug, Default)]
pub(crate) struct ReflectionState {
    /// The conversation that the run reflects on.
    pub(in crate::run::machine) conversation: Vec<crate::context::SizedMessage>,
    /// Whether the learned experiences are being written (`writing`), and whether that has ended
    /// (`written`).
    pub(in crate::run::machine) is_writing: bool,
    pub(in crate::run::machine) is_written: bool,
}
