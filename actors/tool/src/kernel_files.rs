//! File systems of the kernel, such as procfs. They cannot contain a project, and file tools open
//! no files in them.
//!
//! Their files show memory, environment and open files of processes, including this one.

use std::{fs::File, path::Path};

/// Magic numbers of the kernel's file systems.
#[cfg(target_os = "linux")]
const KERNEL_FILE_SYSTEMS: [(u32, &str); 11] = [
    (0x9fa0, "proc"),
    (0x6265_6572, "sysfs"),
    (0x1cd1, "devpts"),
    (0x6462_6720, "debugfs"),
    (0x7472_6163, "tracefs"),
    (0x7363_6673, "securityfs"),
    (0x0027_e0eb, "cgroup"),
    (0x6367_7270, "cgroup2"),
    (0xcafe_4a11, "bpf"),
    (0x6269_6e6d, "binfmt_misc"),
    (0x1980_0202, "mqueue"),
];

/// Returns the name of the kernel file system that contains a path; `None` if it is on another file
/// system or cannot be read.
#[cfg(target_os = "linux")]
pub fn file_system(path: &Path) -> Option<&'static str> {
    kernel_file_system_name(rustix::fs::statfs(path).ok()?)
}

/// Returns the name of the kernel file system that contains an open file.
#[cfg(target_os = "linux")]
pub(super) fn file_system_of(file: &File) -> Option<&'static str> {
    kernel_file_system_name(rustix::fs::fstatfs(file).ok()?)
}

#[cfg(target_os = "linux")]
fn kernel_file_system_name(found: rustix::fs::StatFs) -> Option<&'static str> {
    // The magic number has 32 bits on every architecture.
    let kind = found.f_type as u32;
    KERNEL_FILE_SYSTEMS
        .iter()
        .find(|(magic, _)| *magic == kind)
        .map(|(_, name)| *name)
}

/// Returns `None`: only Linux has such file systems.
#[cfg(not(target_os = "linux"))]
pub fn file_system(_: &Path) -> Option<&'static str> {
    None
}

#[cfg(not(target_os = "linux"))]
pub(super) fn file_system_of(_: &File) -> Option<&'static str> {
    None
}
