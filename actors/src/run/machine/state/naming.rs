//! The state of naming the trace.

/// Progress of the call for a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::run::machine) enum Naming {
    #[default]
    NotStarted,
    /// The model was asked, with a request of about this many tokens.
    Open(u64),
    Ended,
}
