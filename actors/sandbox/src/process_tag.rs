//! The mark of a child process: identifies the call that it belongs to (TOOL-5).
//!
//! A process carries it twice. An environment variable names the call; it is lost if a program
//! clears its environment. A number derived from it is set as the limit on real-time computing,
//! which cannot be cleared: every child inherits it, and without privileges it can only be lowered.
//! As a limit it has no effect: it is more than 70 000 years in microseconds.

use uuid::Uuid;

/// Environment variable that names the call in all of its processes.
pub const MARK_VARIABLE: &str = "SOONG_CALL";

/// Minimum of a mark number; the maximum is one less than its double.
const FLOOR: u64 = 1 << 61;

/// The mark of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProcessTag(Uuid);

impl ProcessTag {
    /// Creates a unique mark.
    pub(super) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the value of the environment variable.
    pub(super) fn text(self) -> String {
        self.0.simple().to_string()
    }

    /// Returns the number used as the limit.
    pub(super) fn number(self) -> u64 {
        // The lower half of a version 7 UUID is random.
        FLOOR | (self.0.as_u64_pair().1 & (FLOOR - 1))
    }
}

/// Returns the mark number in the text of `/proc/PID/limits`; `None` if there is none.
pub(super) fn number_in_limits(limits: &str) -> Option<u64> {
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    // The columns are soft limit, hard limit and unit. The hard limit counts, since a process can
    // change the soft one freely.
    let hard: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    (FLOOR..2 * FLOOR).contains(&hard).then_some(hard)
}

/// Returns the mark in an environment, in the format of `/proc/PID/environ`.
pub(super) fn text_in_environment(environment: &[u8]) -> Option<String> {
    let of_name = |entry: &[u8]| {
        let value = entry
            .strip_prefix(MARK_VARIABLE.as_bytes())?
            .strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    environment.split(|byte| *byte == 0).find_map(of_name)
}
