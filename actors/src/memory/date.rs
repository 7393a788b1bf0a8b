//! Parser for dates as users write them in the experiences file. Pure.

use chrono::{DateTime, NaiveDate, NaiveDateTime};
use soong_protocol::Timestamp;

/// Formats of date and time with a zone: `Z`, `+02:00`, `+0200` or `+02`.
const WITH_ZONE: [&str; 2] = ["%Y-%m-%dT%H:%M:%S%.f%#z", "%Y-%m-%dT%H:%M%#z"];
/// Formats of date and time without a zone, which are in UTC.
const WITHOUT_ZONE: [&str; 2] = ["%Y-%m-%dT%H:%M:%S%.f", "%Y-%m-%dT%H:%M"];

/// Parses RFC 3339, a date, or a date and a time separated by a space, with or without seconds and
/// zone.
///
/// The zone defaults to UTC, the time to midnight.
pub(super) fn read_date(text: &str) -> Option<Timestamp> {
    let text = text.trim();
    let (text, is_utc) = match text
        .strip_suffix("UTC")
        .or_else(|| text.strip_suffix("GMT"))
    {
        Some(text) => (text.trim_end(), true),
        None => (text, false),
    };
    let text = text.replacen([' ', 't'], "T", 1).replace(' ', "");
    let zoned = WITH_ZONE
        .iter()
        .filter(|_| !is_utc)
        .find_map(|form| DateTime::parse_from_str(&text, form).ok());
    let plain = || {
        WITHOUT_ZONE
            .iter()
            .find_map(|form| NaiveDateTime::parse_from_str(&text, form).ok())
    };
    let day = || {
        NaiveDate::parse_from_str(&text, "%Y-%m-%d")
            .ok()?
            .and_hms_opt(0, 0, 0)
    };
    let millis = match zoned {
        Some(time) => time.timestamp_millis(),
        None => plain().or_else(day)?.and_utc().timestamp_millis(),
    };
    Some(Timestamp::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_date_formats_are_parsed() {
        for (text, want) in [
            ("2026-02-12T15:30:05Z", Some("2026-02-12T15:30:05.000Z")),
            ("2026-02-12T15:30:05.25Z", Some("2026-02-12T15:30:05.250Z")),
            (
                "2026-02-12T15:30:05+02:00",
                Some("2026-02-12T13:30:05.000Z"),
            ),
            ("2026-02-12T15:30+0200", Some("2026-02-12T13:30:00.000Z")),
            (
                "2026-02-12 15:30:05 -08:00",
                Some("2026-02-12T23:30:05.000Z"),
            ),
            ("2026-02-12 15:30:05", Some("2026-02-12T15:30:05.000Z")),
            ("2026-02-12 15:30", Some("2026-02-12T15:30:00.000Z")),
            ("2026-02-12T15:30", Some("2026-02-12T15:30:00.000Z")),
            ("2026-02-12 15:30 UTC", Some("2026-02-12T15:30:00.000Z")),
            ("2026-02-12t15:30:00z", Some("2026-02-12T15:30:00.000Z")),
            (" 2026-02-12 ", Some("2026-02-12T00:00:00.000Z")),
            ("2026-02-30", None),
            ("2026-02-12 25:00", None),
            ("12.02.2026", None),
            ("2026-02-12 15:30 PST", None),
            ("yesterday", None),
            ("", None),
        ] {
            assert_eq!(
                read_date(text).map(|time| time.to_string()).as_deref(),
                want,
                "{text:?}"
            );
        }
    }
}
