//! The mechanisms of a machine that confine commands.

/// Mechanisms of this machine that confine commands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::process) struct Means {
    /// Version of Landlock; 0 = none.
    pub(in crate::process) landlock: i64,
    /// Whether a command gets mounts of its own.
    pub(in crate::process) mounts: bool,
    /// Whether these include terminals and shared memory.
    pub(in crate::process) devices: bool,
    /// Whether there is a seccomp filter for this architecture.
    pub(in crate::process) seccomp: bool,
}
