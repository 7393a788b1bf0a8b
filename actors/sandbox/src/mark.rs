//! The mark of a child process: what tells, whatever becomes of it, that it belongs to a call (TOOL-5).
//!
//! It is carried twice. A variable of the environment names the call, and is lost where a program wipes its
//! environment. The same number, as the limit on real-time computing, cannot be wiped: every child inherits it, and
//! without privileges it can only be lowered. As a limit it means nothing: more than 70 000 years of microseconds.

use uuid::Uuid;

/// The variable that names the call in the environment of everything that it starts.
pub const MARK_VARIABLE: &str = "SOONG_CALL";

/// Every number of a mark lies between this one and its double.
const FLOOR: u64 = 1 << 61;

/// The mark of one call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Mark(Uuid);

impl Mark {
    /// Makes one that no other call has.
    pub(super) fn new() -> Self {
        Self(Uuid::now_v7())
    }

    /// Returns the value of the variable.
    pub(super) fn text(self) -> String {
        self.0.simple().to_string()
    }

    /// Returns the number.
    pub(super) fn number(self) -> u64 {
        // The lower half of a UUID of version 7 is random.
        FLOOR | (self.0.as_u64_pair().1 & (FLOOR - 1))
    }
}

/// Returns the number of a mark that the text of `/proc/PID/limits` tells; `None` = it tells of none.
pub(super) fn number_in_limits(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max realtime timeout"))?;
    // The soft limit, the hard one, the unit: the hard one counts, for the soft one may be set freely.
    let hard: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    (FLOOR..2 * FLOOR).contains(&hard).then_some(hard)
}

/// Returns the mark that an environment, as `/proc/PID/environ` tells it, holds.
pub(super) fn text_in_environment(environment: &[u8]) -> Option<String> {
    let of_name = |entry: &[u8]| {
        let value = entry.strip_prefix(MARK_VARIABLE.as_bytes())?.strip_prefix(b"=")?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    environment.split(|byte| *byte == 0).find_map(of_name)
}
