//! Parsing of durations.

use std::time::Duration;

/// Parses a duration of whole seconds: `90`, `90s`, `30m`, `2h`, `7d`, or several parts such as `1h
/// 30m`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => humantime::parse_duration(text).ok(),
    };
    parsed
        .filter(|parsed| {
            parsed.subsec_nanos() == 0 && (1..=u64::from(u32::MAX)).contains(&parsed.as_secs())
        })
        .ok_or_else(|| {
            format!("{text:?} is not a valid duration: use seconds, or 90s, 30m, 2h, 7d")
        })
}
