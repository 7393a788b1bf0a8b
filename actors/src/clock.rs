//! The system clock.

use std::time::{SystemTime, UNIX_EPOCH};

use soong_protocol::Timestamp;

/// Returns the current time.
pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}
