//! Parsers for values on the command line: numbers, durations and names.

use std::{ops::RangeInclusive, time::Duration};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use soong::protocol::{Effort, PermissionMode, RunSetting};

pub(crate) use soong_server::duration::duration;

/// Returns a parser for whole numbers in a range.
pub(super) fn number_parser<T: TryFrom<u64>>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |text| {
        let number = text.parse().ok().filter(|number| range.contains(number));
        number
            .and_then(|number| T::try_from(number).ok())
            .ok_or_else(|| match (range.start(), range.end()) {
                (first, &u64::MAX) => format!("expected a whole number, {first} or greater"),
                (first, last) => format!("expected a whole number from {first} to {last}"),
            })
    }
}

/// Parses a level of reasoning.
pub(super) fn effort(text: &str) -> Result<Effort, String> {
    let known = Effort::ALL
        .into_iter()
        .find(|effort| effort.as_str() == text);
    known.ok_or_else(|| {
        format!(
            "expected one of {}",
            Effort::ALL.map(Effort::as_str).join(", ")
        )
    })
}

/// Parses a permission mode.
pub(super) fn permission_mode(text: &str) -> Result<PermissionMode, String> {
    let names = || PermissionMode::ALL.map(PermissionMode::as_str).join(", ");
    PermissionMode::from_name(text).ok_or_else(|| format!("expected one of {}", names()))
}

/// Returns a parser for the name of a setting that a further run inherits: the name in JSON, with
/// hyphens.
pub(super) fn run_setting() -> impl TypedValueParser<Value = RunSetting> {
    let name_of = |setting: RunSetting| setting.as_str().replace('_', "-");
    let values = RunSetting::ALL.iter().map(move |setting| {
        let about = setting.about();
        let first_sentence = about.split_once(". ").map_or(about, |(first, _)| first);
        let mut help = first_sentence.trim_end_matches('.').to_owned();
        if *setting == RunSetting::LlmParams {
            help.push_str("; also resets the temperature");
        }
        let value = PossibleValue::new(name_of(*setting)).help(help);
        match setting {
            // The name in earlier versions.
            RunSetting::Preset => value.alias("preset"),
            _ => value,
        }
    });
    PossibleValuesParser::new(values).map(move |name| {
        let is_named = |setting: &&RunSetting| name_of(**setting) == name;
        match RunSetting::ALL.iter().find(is_named) {
            Some(setting) => *setting,
            // The only other name is the alias.
            None => RunSetting::Preset,
        }
    })
}

/// Parses a duration of at most one hour that may have a fraction: `500ms`, `1.5`, `1.5s`, or the
/// forms of [`duration`].
pub(super) fn short_duration(text: &str) -> Result<Duration, String> {
    let (number, unit_s) = match text.strip_suffix("ms") {
        Some(number) => (number, 0.001),
        None => (text.strip_suffix('s').unwrap_or(text), 1.0),
    };
    let is_number =
        number.starts_with(|c: char| c.is_ascii_digit()) && !number.contains(['e', 'E']);
    let seconds = number
        .parse::<f64>()
        .ok()
        .filter(|_| is_number)
        .map(|number| number * unit_s);
    match seconds {
        Some(seconds) if seconds <= 3_600.0 => Ok(Duration::from_secs_f64(seconds)),
        Some(_) => Err(format!("the duration {text:?} is longer than one hour")),
        None => duration(text).map_err(|_| {
            format!("invalid duration {text:?}: use a number of seconds, 1.5s, 500ms or 2m")
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_may_be_fractional_seconds() {
        for (text, millis) in [
            ("3", 3_000),
            ("3s", 3_000),
            ("1.5", 1_500),
            ("1.5s", 1_500),
            ("500ms", 500),
            ("0", 0),
            ("2m", 120_000),
        ] {
            assert_eq!(
                short_duration(text),
                Ok(Duration::from_millis(millis)),
                "{text}"
            );
        }
        for bad in [
            "", "-1", "1e3", "inf", "NaN", "ms", "1.55555m", "3601", "fast",
        ] {
            assert!(short_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn invalid_number_error_names_the_range() {
        assert_eq!(
            (
                number_parser::<u64>(0..=u64::MAX)("7"),
                number_parser::<u16>(1..=200)("200")
            ),
            (Ok(7), Ok(200))
        );
        for bad in ["", "x", "-1", "1.5", "0", "201"] {
            assert_eq!(
                number_parser::<u16>(1..=200)(bad).unwrap_err(),
                "expected a whole number from 1 to 200",
                "{bad}"
            );
        }
        assert_eq!(
            number_parser::<u64>(1..=u64::MAX)("0").unwrap_err(),
            "expected a whole number, 1 or greater"
        );
    }

    #[test]
    fn durations_are_parsed_with_unit() {
        for (text, seconds) in [
            ("90", Some(90)),
            ("90s", Some(90)),
            ("30m", Some(1_800)),
            ("2h", Some(7_200)),
            ("7d", Some(604_800)),
            ("1w", Some(604_800)),
            ("1h 30m", Some(5_400)),
            ("1.5h", Some(5_400)),
        ] {
            assert_eq!(
                duration(text).ok(),
                seconds.map(Duration::from_secs),
                "{text}"
            );
        }
        for bad in [
            "",
            "0",
            "s",
            "1x",
            "-1",
            "1.5s",
            "500ms",
            "99999999999999999999",
            "99999999999d",
        ] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
