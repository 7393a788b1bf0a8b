//! Whom a run waits for.

/// Whom a run waits for that does nothing itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// It is at work, or is about to be.
    Nobody,
    /// Children of its own.
    Children,
    /// People (SUB-9).
    People,
}
