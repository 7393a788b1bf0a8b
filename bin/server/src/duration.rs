//! Parsing of durations.

use std::time::Duration;

/// Parses a duration: `90`, `90s`, `30m`, `2h`, `7d`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let refuse = || format!("{text:?} is not a valid duration: use seconds, or 90s, 30m, 2h, 7d");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().map_err(|_| refuse())?;
    let factor = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(refuse()),
    };
    let seconds = number.checked_mul(factor).filter(|seconds| (1..=u64::from(u32::MAX)).contains(seconds));
    seconds.map(Duration::from_secs).ok_or_else(refuse)
}
