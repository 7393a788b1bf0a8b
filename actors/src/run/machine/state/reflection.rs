//! The state of a reflection.

/// Additional state of a reflecting run.
#[derive(Debug)]
pub(crate) struct ReflectionState {
    /// The conversation that the run reflects on.
    pub(in crate::run::machine) conversation: Vec<crate::context::SizedMessage>,
}
