//! How a child process is set up before it becomes a program: made before the fork, read after it.

use std::{ffi::CString, io, os::unix::ffi::OsStrExt, path::Path};

#[cfg(all(target_os = "linux", feature = "sandbox"))]
use super::mounting;
use crate::confinement::Sandbox;

/// Steps of a child process before it becomes a program.
pub(crate) struct ChildSetup {
    pub(super) mark: u64,
    pub(super) no_new_privileges: bool,
    pub(super) merge_stderr: bool,
    pub(super) limits: ResourceLimits,
    /// Sandbox, and the working directory to enter again once the mounts are made.
    #[cfg_attr(not(all(target_os = "linux", feature = "sandbox")), allow(dead_code))]
    pub(super) fence: Option<(Sandbox, CString)>,
    /// Made before the fork, with room for every mount.
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    pub(super) trees: mounting::Trees,
    /// Seccomp filter, installed if privileges cannot be gained. Empty if there is none.
    #[cfg(all(target_os = "linux", feature = "sandbox"))]
    pub(super) filter: Vec<libc::sock_filter>,
}

/// Resource limits of a program, in the units of `setrlimit`. `None`: the limit of this process is
/// kept.
#[derive(Debug, Clone, Copy, Default)]
pub struct ResourceLimits {
    /// Maximum size of a file that the program writes, in bytes.
    pub file_bytes: Option<u64>,
    /// Maximum number of processes. Applied only in a user namespace: elsewhere it counts all
    /// processes of the user.
    pub processes: Option<u64>,
    /// Added to the nice value, so that the owner stays responsive.
    pub nice: Option<i32>,
    /// Whether core files are disabled.
    pub no_core: bool,
}

impl ChildSetup {
    /// Creates a preparation whose process carries the number of a mark.
    pub(crate) fn marked(mark: u64) -> Self {
        Self {
            mark,
            no_new_privileges: false,
            merge_stderr: false,
            limits: ResourceLimits::default(),
            fence: None,
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            trees: mounting::Trees::new(),
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            filter: Vec::new(),
        }
    }

    /// Keeps set-user-id programs from having any effect, and installs the seccomp filter.
    pub(crate) fn without_new_privileges(self) -> Self {
        Self {
            no_new_privileges: true,
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            filter: crate::confinement::seccomp_filter(),
            ..self
        }
    }

    /// Sends standard error to standard output.
    pub(crate) fn with_merged_stderr(self) -> Self {
        Self {
            merge_stderr: true,
            ..self
        }
    }

    pub(crate) fn limited(self, limits: ResourceLimits) -> Self {
        Self { limits, ..self }
    }

    /// Confines the process; `directory` is its working directory.
    pub(crate) fn with_sandbox(self, fence: Sandbox, directory: &Path) -> io::Result<Self> {
        Ok(Self {
            #[cfg(all(target_os = "linux", feature = "sandbox"))]
            trees: mounting::Trees::with_capacity(
                fence
                    .parts()
                    .mounts
                    .as_ref()
                    .map_or(0, |mounts| mounts.steps.len()),
            ),
            fence: Some((fence, CString::new(directory.as_os_str().as_bytes())?)),
            ..self.without_new_privileges()
        })
    }
}
