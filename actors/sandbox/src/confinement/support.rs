//! Mechanisms that can confine commands.

/// Mechanisms of this machine that confine commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Mechanisms {
    /// Version of Landlock; 0 if it is not available.
    pub(crate) landlock: i64,
    /// Whether a command gets its own mounts.
    pub(crate) mounts: bool,
    /// Whether these include terminals and shared memory.
    pub(crate) devices: bool,
    /// Whether there is a seccomp filter for this architecture.
    pub(crate) seccomp: bool,
}
