//! Formats numbers for users: tokens, bytes, times, costs. Pure.

use soong_protocol::{Timestamp, Usd};

/// Formats a count, with one decimal from one thousand up: `999`, `5.1k`, `2.0M`.
pub fn count(n: u64) -> String {
    match n {
        0..1_000 => n.to_string(),
        1_000..999_950 => format!("{}.{}k", n / 1_000, n % 1_000 / 100),
        _ => format!("{}.{}M", n / 1_000_000, n % 1_000_000 / 100_000),
    }
}

/// Formats a count and its share of a whole: `1.2k (45 %)`. Without the share if either is 0.
pub fn count_and_share(n: u64, whole: u64) -> String {
    let percent = u128::from(n) * 100 / u128::from(whole.max(1));
    if n == 0 || whole == 0 {
        count(n)
    } else {
        format!("{} ({percent} %)", count(n))
    }
}

/// Formats a size: `17 B`, `1.2 KiB`.
pub fn bytes(n: u64) -> String {
    let tenths = |unit: u64| format!("{}.{}", n / unit, n % unit * 10 / unit);
    match n {
        0..1_024 => format!("{n} B"),
        1_024..1_048_576 => format!("{} KiB", tenths(1_024)),
        1_048_576..1_073_741_824 => format!("{} MiB", tenths(1_048_576)),
        _ => format!("{} GiB", tenths(1_073_741_824)),
    }
}

/// Formats a duration: `0.4 s`, `12 s`, `3 min 05 s`, `2 h 07 min`.
pub fn duration(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..10 => format!("{seconds}.{} s", millis % 1_000 / 100),
        10..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

/// Formats a duration in at most five columns: `12s`, `3m05`, `2h07`, `4d`.
pub fn age(millis: u64) -> String {
    let seconds = millis / 1_000;
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m{:02}", seconds / 60, seconds % 60),
        3_600..86_400 => format!("{}h{:02}", seconds / 3_600, seconds % 3_600 / 60),
        _ => format!("{}d", (seconds / 86_400).min(9_999)),
    }
}

/// Formats an amount in at most eight columns, never rounded up: `$0.0123`, `$1.20`, `$120`.
pub fn usd(amount: Usd) -> String {
    let nanos = amount.as_nanos();
    let dollars = nanos / 1_000_000_000;
    let rest = nanos % 1_000_000_000;
    match nanos {
        0 => "$0.00".to_owned(),
        1..100_000 => "<$0.0001".to_owned(),
        100_000..1_000_000_000 => format!("$0.{:04}", rest / 100_000),
        1_000_000_000..100_000_000_000 => format!("${dollars}.{:02}", rest / 10_000_000),
        _ => format!("${}", count(dollars)),
    }
}

/// Formats a time for lists, in UTC, to the second.
pub fn time(at: Timestamp) -> String {
    at.to_string()
        .replacen('T', " ", 1)
        .chars()
        .take(19)
        .collect()
}

/// Formats a time relative to the current time: `just now`, `5 min ago`, `3 h ago`, `2 d ago`; from
/// one week on, the date in UTC.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.millis_since(at) / 1_000;
    match seconds {
        0..60 => "just now".to_owned(),
        60..3_600 => format!("{} min ago", seconds / 60),
        3_600..86_400 => format!("{} h ago", seconds / 3_600),
        86_400..604_800 => format!("{} d ago", seconds / 86_400),
        _ => time(at).chars().take(10).collect(),
    }
}

/// Formats a count with the singular or plural form of a noun.
pub fn plural(n: usize, one: &str, many: &str) -> String {
    format!("{n} {}", if n == 1 { one } else { many })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_abbreviated_and_rounded_down() {
        for (n, want) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1.0k"),
            (5_199, "5.1k"),
            (999_999, "0.9M"),
            (2_000_000, "2.0M"),
        ] {
            assert_eq!(count(n), want, "{n}");
        }
        for (n, whole, want) in [
            (0, 9, "0"),
            (5, 0, "5"),
            (1_250, 2_000, "1.2k (62 %)"),
            (7, 7, "7 (100 %)"),
        ] {
            assert_eq!(count_and_share(n, whole), want, "{n} of {whole}");
        }
        for (n, want) in [
            (17, "17 B"),
            (1_280, "1.2 KiB"),
            (3_145_728, "3.0 MiB"),
            (u64::MAX, "17179869183.9 GiB"),
        ] {
            assert_eq!(bytes(n), want, "{n}");
        }
        for (ms, want) in [
            (0, "0.0 s"),
            (450, "0.4 s"),
            (12_999, "12 s"),
            (185_000, "3 min 05 s"),
            (7_620_000, "2 h 07 min"),
        ] {
            assert_eq!(duration(ms), want, "{ms}");
        }
        for (ms, want) in [
            (0, "0s"),
            (59_999, "59s"),
            (185_000, "3m05"),
            (7_620_000, "2h07"),
            (u64::MAX, "9999d"),
        ] {
            assert_eq!(age(ms), want, "{ms}");
        }
        let at = Timestamp::from_millis(1_763_700_001_234);
        assert_eq!(time(at), "2025-11-21 04:40:01");
        for (seconds, want) in [
            (-5, "just now"),
            (59, "just now"),
            (3_599, "59 min ago"),
            (7_200, "2 h ago"),
            (604_799, "6 d ago"),
            (604_800, "2025-11-21"),
        ] {
            assert_eq!(
                ago(at, Timestamp::from_millis(at.as_millis() + seconds * 1_000)),
                want,
                "{seconds}"
            );
        }
    }

    #[test]
    fn cost_is_abbreviated_and_rounded_down() {
        for (nanos, want) in [
            (0, "$0.00"),
            (99_999, "<$0.0001"),
            (12_399_999, "$0.0123"),
            (999_999_999, "$0.9999"),
            (1_299_999_999, "$1.29"),
            (99_999_999_999, "$99.99"),
            (123_900_000_000, "$123"),
            (u64::MAX, "$18446.7M"),
        ] {
            let text = usd(Usd::from_nanos(nanos));
            assert_eq!(text, want, "{nanos}");
        }
    }
}
